"""What closed forms say at once of a question, before anything is simulated: an estimate for each
type of GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tonnage.plan.candidate import Identity
from tonnage.plan.limit import Breach
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import MARGIN, Ready
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.sizing.search.disaggregated import contenders_of, poolable
from tonnage.sizing.search.search_space import prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One deployment by closed forms: they know no queue, so that the number of systems is rather
    too low than too high. Whether it meets the limits at all, a simulated single client decides, as
    in the search.

    Attributes:
        deployment: as the plan would name it.
        system: that it is bought in.
        systems: whole systems, spare ones included.
        systems_exact: before rounding up, spare ones left out.
        gpus: of the whole systems.
        requests_per_second: of one instance.
        ttft_ms, tpot_ms: of a single request on an empty engine.
        confidence: with which no time is longer than reckoned; None where times are as predicted,
            because no deployment meets the limits with the confidence of the question.
        breach: the limit that a single client breaks, and its value there; no load meets it, and
            systems, GPUs and requests per second are 0. None where a single client meets all.
    """

    deployment: Identity
    system: str
    systems: int
    systems_exact: float
    gpus: int
    requests_per_second: float
    ttft_ms: float
    tpot_ms: float
    confidence: float | None
    breach: Breach | None = None


def estimates(question: Question, runs: Runs) -> tuple[Estimate, ...]:
    """The deployment of each GPU type that needs the fewest GPUs by closed forms, the fewest first;
    where a single client breaks a limit on each deployment of a type, the nearest, after the
    others. None for an offline job.

    Raises InputError: the question contradicts itself.
    """
    question.check()
    if question.offline or question.load == "closed":
        return ()
    ready = [
        candidate
        for candidate in poolable(question, prepare(question, runs))
        if isinstance(candidate, Ready)
    ]
    contenders = contenders_of(question, ready, runs)
    sure = _by_gpu(contenders, question.confidence)
    if all(estimate.breach is not None for estimate in sure):
        return _by_gpu(contenders, None)
    return sure


def _by_gpu(contenders: Sequence[Contender], level: float | None) -> tuple[Estimate, ...]:
    """The estimate of each GPU type at a confidence; None for times as predicted."""
    closed_forms = [(_estimate(contender, level), contender) for contender in contenders]
    best_by_gpu: dict[str, Estimate] = {}
    for estimate, contender in sorted(closed_forms, key=lambda pair: _key(pair[0])):
        gpu = estimate.deployment.gpu
        best = best_by_gpu.get(gpu)
        if estimate.requests_per_second <= 0 or (best is not None and best.breach is None):
            continue
        checked = _alone(estimate, contender)
        if best is None or _key(checked) < _key(best):
            best_by_gpu[gpu] = checked
    return tuple(sorted(best_by_gpu.values(), key=_key))


def _alone(estimate: Estimate, contender: Contender) -> Estimate:
    """The estimate, without systems where a single client breaks a limit."""
    slower = _slowdown(contender, estimate.confidence)
    if contender.meets_alone(slower):
        return estimate
    return replace(
        estimate,
        systems=0,
        systems_exact=0.0,
        gpus=0,
        requests_per_second=0.0,
        breach=contender.alone_at(slower),
    )


def _slowdown(contender: Contender, level: float | None) -> Slowdown:
    return contender.as_asked if level is None else contender.slowdown(level)


def _key(estimate: Estimate) -> tuple[float, ...]:
    breach = estimate.breach
    if breach is not None:
        return (1, (breach.value_ms or 0.0) / breach.limit.seconds)
    return (0, estimate.gpus, estimate.systems_exact * estimate.gpus / max(estimate.systems, 1))


def _estimate(contender: Contender, level: float | None) -> Estimate:
    question, trial = contender.question, contender.ready.trial
    rate = float(contender.bound(_slowdown(contender, level))) / MARGIN
    systems = (
        contender.layout.carrying(contender.load, rate).systems + question.spare if rate > 0 else 0
    )
    return Estimate(
        deployment=trial.identity,
        system=trial.system.name,
        systems=systems,
        systems_exact=float(contender.layout.exactly(contender.load, rate)) if rate > 0 else 0.0,
        gpus=systems * trial.system.gpus,
        requests_per_second=rate,
        ttft_ms=1e3 * float(contender.instance.unloaded_ttft_s()),
        tpot_ms=1e3 * float(contender.instance.unloaded_tpot_s()),
        confidence=level,
    )
