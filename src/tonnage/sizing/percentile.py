"""The course's way beside the simulated one: the percentile of the arrivals in one second over a benchmark's throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.fleet import fleet
from tonnage.plan.sensitivity import PercentileAnswer
from tonnage.sizing.loads.capacity import find_capacity
from tonnage.sizing.search.search_space import traffic

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.sizing.search.contender import Sized


def percentile_answer(chosen: Sized, best: Candidate) -> PercentileAnswer | None:
    """The systems by the percentile way; None where no percentile was asked for, or nothing meets the limits.

    Args:
        chosen: the choice.
        best: it, as the plan states it.
    """
    question, trial = chosen.contender.question, chosen.ready.trial
    demand = question.demand
    if demand.percentile is None:
        return None
    instance = chosen.contender.runs.instance(trial.deployment, traffic(question, trial.system.gpus, "closed"))
    capacity = find_capacity(chosen.contender.runs, instance, question.limits)
    if capacity.reason is not None:
        return None
    need = fleet(best.parallelism.gpus, best.gpus_per_system).carrying(demand.peak_requests_per_second, capacity.rate)
    return PercentileAnswer(
        percentile=demand.percentile,
        mean_requests_per_second=demand.sizing_requests_per_second,
        peak_requests_per_second=demand.peak_requests_per_second,
        requests_per_second_per_instance=capacity.rate,
        concurrency_per_instance=capacity.concurrency,
        systems_exact=need.exactly(demand.peak_requests_per_second, capacity.rate),
        systems=need.systems + question.spare,
        simulated_systems_exact=best.systems_exact,
        simulated_systems=best.systems,
        process=question.process,
        cv=question.cv if question.process == "gamma" else None,
    )
