"""Understands classes of traffic, such as "chat 0.7 ttft=1s, batch 0.3", and what priorities and deadlines go with."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.simulator.ranked import is_for_reference
from tonnage.spec.deployment import TrafficClass
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.spec.deployment import EngineKnobs, Slo
    from tonnage.spec.workload import Workload

EXAMPLE = '"chat 0.7 ttft=1s, batch 0.3"'
MOST_CLASSES = 100
MOST_TOKENS = 20_000_000
"""Output tokens of a run with priorities or deadlines where they are not compiled: the readable simulator makes them in about a minute."""


def classes_of(text: str | None) -> tuple[TrafficClass, ...]:
    """Read "chat 0.7 ttft=1s, batch 0.3": name and share of each class, the highest priority first, and a limit on the first token.

    Raises:
        InputError: naming what is wrong.
    """
    if text is None:
        return ()
    where, found = option("classes"), []
    for part in text.split(","):
        words = part.split()
        if len(words) not in (2, 3) or (len(words) == 3 and not words[2].lower().startswith("ttft=")):
            raise InputError(
                f"{where}: '{part.strip()}' is not a class; write name, share and a limit on the first token, such as {EXAMPLE}"
            )
        ttft_s = None if len(words) == 2 else parse_duration(words[2][len("ttft=") :], where)
        found.append(TrafficClass(name=words[0], share=_share(words[1], where), ttft_s=ttft_s))
    if len({one.name for one in found}) < len(found) or len(found) > MOST_CLASSES:
        raise InputError(f"{where}: '{text}' has a class twice, or more than {MOST_CLASSES} of them; write for example {EXAMPLE}")
    total = math.fsum(one.share for one in found)
    if abs(total - 1) > 1e-6:
        raise InputError(f"{where}: the shares of '{text}' sum to {total:g}; write shares of the requests that sum to 1")
    return tuple(replace(one, share=one.share / total) for one in found)


def _share(text: str, where: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise InputError(f"{where}: '{text}' is not a share of the requests; write a number above 0, at most 1")
    return share


def with_classes(
    workloads: Sequence[Workload], asked: str | None, knobs: EngineKnobs, limits: Slo, *, alone: bool, drafted: bool
) -> tuple[Workload, ...]:
    """Workloads whose requests have these classes; with deadlines and no classes, all have the tightest limit on the TTFT.

    Args:
        workloads: the loads of one deployment.
        asked: as ``classes_of`` reads it.
        knobs: the engine's, which say whether priorities or deadlines count.
        limits: those that the run is held against.
        alone: whether one instance by itself is simulated, without attention ranks and sessions.
        drafted: whether it has speculative decoding.

    Raises:
        InputError: classes that cannot be, or that are not simulated with what else is asked.
    """
    classes = classes_of(asked)
    if not classes and not knobs.ranks:
        return tuple(workloads)
    needing = option("shed") if knobs.shed else option("queue_order")
    if not classes:
        seconds = [limit.seconds for limit in limits if limit.metric == "ttft"]
        if knobs.queue_order == "priority":
            raise InputError(f"{option('queue_order')}: priority goes by class; give {option('classes')} {EXAMPLE}")
        if not seconds:
            raise InputError(f"{needing}: needs a limit on the first token; give {option('ttft')} p95<=1s, or {option('classes')}")
        classes = (TrafficClass(name="all", share=1.0, ttft_s=min(seconds)),)
    elif (knobs.shed or knobs.queue_order == "deadline") and all(one.ttft_s is None for one in classes):
        raise InputError(f"{needing}: none of the classes has a limit on its first token; write such as {EXAMPLE}")
    if not alone:
        whose = ", ".join(option(name) for name in ("classes", "queue_order", "shed"))
        raise InputError(f"{whose}: classes are simulated on one instance by itself so far, and without sessions; leave the others out")
    for workload in workloads:
        if is_for_reference(knobs, drafted=drafted, shares=workload.shares):
            _check_size(workload)
    return tuple(replace(workload, classes=classes) for workload in workloads)


def _check_size(workload: Workload) -> None:
    """Refuse more tokens than the readable simulator is given.

    Raises:
        InputError: there are too many.
    """
    outputs = (workload.osl if workload.pairs is None else workload.pairs.lengths()[1]).mean
    if workload.requests * outputs > MOST_TOKENS:
        raise InputError(
            f"{option('requests')}: {workload.requests:,} with {outputs:,.0f} output tokens each are more than the {MOST_TOKENS:,} for "
            "which the readable simulator runs priorities and deadlines with speculative decoding or shared prompts; ask for fewer"
        )
