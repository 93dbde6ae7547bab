"""What closed forms say at once of a question, before anything is simulated: an estimate for each
type of GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.candidate import Identity
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import MARGIN, Ready
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.sizing.search.disaggregated import contenders_of, poolable
from tonnage.sizing.search.search_space import prepare


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One deployment by closed forms: they know no queue, so that the number of systems is rather
    too low than too high.

    Attributes:
        deployment: as the plan would name it.
        system: that it is bought in.
        systems: whole systems, spare ones included.
        systems_exact: before rounding up, spare ones left out.
        gpus: of the whole systems.
        requests_per_second: of one instance.
        ttft_ms, tpot_ms: of a single request on an empty engine.
    """

    deployment: Identity
    system: str
    systems: int
    systems_exact: float
    gpus: int
    requests_per_second: float
    ttft_ms: float
    tpot_ms: float


def estimates(question: Question, runs: Runs) -> tuple[Estimate, ...]:
    """The deployment of each GPU type that needs the fewest GPUs by closed forms, the fewest first;
    none for an offline job.

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
    best_by_gpu: dict[str, Estimate] = {}
    for contender in contenders_of(question, ready, runs):
        estimate = _estimate(contender)
        gpu = estimate.deployment.gpu
        if estimate.requests_per_second > 0 and (
            gpu not in best_by_gpu or _key(estimate) < _key(best_by_gpu[gpu])
        ):
            best_by_gpu[gpu] = estimate
    return tuple(sorted(best_by_gpu.values(), key=_key))


def _key(estimate: Estimate) -> tuple[float, ...]:
    return (estimate.gpus, estimate.systems_exact * estimate.gpus / max(estimate.systems, 1))


def _estimate(contender: Contender) -> Estimate:
    question, trial = contender.question, contender.ready.trial
    slower = contender.slowdown(question.confidence)
    rate = float(contender.bound(slower)) / MARGIN
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
    )
