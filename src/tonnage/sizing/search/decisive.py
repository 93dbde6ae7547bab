"""The contest among a few deployments by the one load that decides their number of systems: that at the asked confidence.

``search.compete`` finds what each deployment carries as predicted, and what it carries with times as long as the confidence allows for is
found after that. Where only the number of systems is asked for, as in each figure of the sensitivity, the second is all that is needed. A
deployment is scanned only as far as shows that it carries no more per GPU than another that it compares with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.plan.limit import SATURATION
from tonnage.sizing.loads.bounds import Carried, bound_per_gpu
from tonnage.sizing.loads.capacity import Capacity, saturation, scan_of
from tonnage.sizing.loads.confidence import factors_at, step_errors
from tonnage.sizing.loads.limits import strain
from tonnage.sizing.loads.load_scan import SURE, Highest
from tonnage.sizing.loads.slower_steps import LEAST, SlowerSteps

if TYPE_CHECKING:
    from tonnage.sizing.loads.ready import Ready, Trial
    from tonnage.sizing.question import Question


def decided(question: Question, prepared: Sequence[Ready]) -> list[Carried] | None:
    """The deployments that may need the fewest systems, each with what it carries at the asked confidence as its capacity.

    Args:
        question: an open loop without a recording.
        prepared: the deployments, those that are likely to carry most per GPU first.

    Returns:
        None where the load as it is predicted has to be known: a deployment breaks a limit at any load, or carries next to nothing.
    """
    found: list[Carried] = []
    for ready in prepared:
        alone = ready.instance.alone()
        if strain(alone, ready.instance.asked.slo) > 1.0:
            return None
        most = max((other.rate_per_gpu for other in found if _compare(ready.trial, other.ready.trial)), default=0.0)
        carried = Carried(ready=ready, capacity=_unknown(ready))
        slowdown = factors_at(step_errors(question, carried), question.confidence)
        if bound_per_gpu(ready) < most * slowdown.steps:
            continue
        tighter = slowdown.tightened(ready.instance.asked.slo)
        if tighter and strain(alone, tighter) > 1.0:
            return None
        scan, above = scan_of(ready.instance), most * ready.trial.deployment.parallelism.gpus * slowdown.steps
        if above > 0.0 and scan.surely_no_higher(tighter, above):
            continue
        highest = scan.highest(tighter, above, SURE)
        if not isinstance(highest, Highest):
            if most > 0.0:
                continue
            return None
        rate = highest.rate / slowdown.steps
        if rate < LEAST * saturation(ready.instance):
            return None
        capacity = replace(carried.capacity, rate=rate, saturation=max(saturation(ready.instance), highest.rate), summary=highest.summary)
        carried = Carried(ready=ready, capacity=capacity)
        SlowerSteps(question, carried).know(slowdown, rate)
        found.append(carried)
    return found


def _compare(one: Trial, other: Trial) -> bool:
    """Whether the one that carries more per GPU needs no more GPUs: on one GPU type, or in systems of one size that both fill."""
    sizes = {each.system.gpus for each in (one, other)}
    filled = all(each.system.gpus % each.deployment.parallelism.gpus == 0 for each in (one, other))
    return one.deployment.gpu == other.deployment.gpu or (len(sizes) == 1 and filled)


def _unknown(ready: Ready) -> Capacity:
    """A capacity of which nothing is known."""
    return Capacity(
        rate=0.0,
        concurrency=0.0,
        saturation=0.0,
        summary=ready.instance.alone(),
        binds=SATURATION,
        reason=None,
        simulated_requests=0,
        care=SURE,
    )
