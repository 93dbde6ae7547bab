"""The course's way beside the simulated one: the percentile of the arrivals in one second over a benchmark's throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.fleet import fleet
from tonnage.plan.percentile_answer import PercentileAnswer
from tonnage.sizing.loads.capacity import find_capacity
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.search.search_space import asked

if TYPE_CHECKING:
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.search import Answer


def percentile_answer(question: Question, found: Answer) -> PercentileAnswer | None:
    """The systems by the percentile way; None where no percentile was asked for, or nothing meets the limits."""
    demand = question.demand
    if demand.percentile is None or not found.carried:
        return None
    best, trial = found.candidates[0], found.carried[0].ready.trial
    capacity = find_capacity(Instance(trial.deployment, asked(question, trial.system.gpus, "closed")))
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
