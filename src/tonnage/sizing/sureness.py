"""The confidence of a plan's candidates: their capacity with slower steps (``confidence`` says how).

That of the choice is simulated again with these steps. That of the others is read from the runs that found their
capacity (``stretched``), which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import shipped_residuals
from tonnage.sizing.capacity import Instance
from tonnage.sizing.confidence import Confidence, confidence
from tonnage.sizing.search import measure
from tonnage.sizing.stretched import stretched_rates
from tonnage.sizing.systems import fleet

if TYPE_CHECKING:
    from tonnage.plan.former_candidate import Candidate
    from tonnage.sizing.bounds import Carried
    from tonnage.sizing.question import Question
    from tonnage.sizing.search import Answer


def confidence_of(question: Question, found: Answer, workers: int | None = None) -> Confidence:
    """How sure the first candidate's number of systems is.

    The rate that the plan states was confirmed in a longer run, and its systems by the whole fleet; what these changed
    is taken to change the slower ones by the same factor.
    """
    best, chosen = found.candidates[0], found.carried[0]
    instance, stated = chosen.ready.instance, chosen.capacity
    confirmed = _confirmed(question, best, chosen)

    def measured(factor: float) -> float:
        asked = replace(instance.asked, step_factor=instance.asked.step_factor * factor)
        capacity = measure(question, replace(chosen.ready, instance=Instance(instance.deployment, asked)))
        return 0.0 if capacity.reason else capacity.rate

    def rates_at(factors: Sequence[float]) -> list[float]:
        with ThreadPoolExecutor(max_workers=workers) as pool:
            same, *others = pool.map(measured, (1.0, *factors))
        return [rate * confirmed * stated.rate / same for rate in others] if same > 0 else [0.0 for _ in others]

    return _confidence(question, best, chosen, rates_at)


def confidences(question: Question, found: Answer) -> tuple[Confidence | None, ...]:
    """How sure each candidate's number of systems is, by the runs that found its capacity; None for a replayed recording or a job."""
    if question.offline or question.recording is not None:
        return (None,) * len(found.candidates)

    def one(candidate: Candidate, carried: Carried) -> Confidence:
        stated = carried.capacity
        confirmed = _confirmed(question, candidate, carried)

        def rates_at(factors: Sequence[float]) -> list[float]:
            return [rate * confirmed for rate in stretched_rates(stated, carried.ready.instance.trail, factors)]

        return _confidence(question, candidate, carried, rates_at)

    return tuple(one(candidate, carried) for candidate, carried in zip(found.candidates, found.carried, strict=True))


def _systems_for(question: Question, candidate: Candidate, rate: float) -> int:
    demand = question.demand.sizing_requests_per_second
    return fleet(demand, rate, candidate.parallelism.gpus, candidate.gpus_per_system, question.spare).systems


def _confirmed(question: Question, candidate: Candidate, carried: Carried) -> float:
    """Systems by the stated rate over those that the whole fleet was shown to need."""
    return _systems_for(question, candidate, carried.capacity.rate) / candidate.systems


def _confidence(
    question: Question, candidate: Candidate, carried: Carried, rates_at: Callable[[Sequence[float]], Sequence[float]]
) -> Confidence:
    stated, deployment = carried.capacity, carried.ready.instance.deployment
    serving = candidate.instances * (candidate.systems - question.spare) / candidate.systems
    clients = stated.concurrency if question.load == "closed" else None
    return confidence(
        rate=stated.rate * _confirmed(question, candidate, carried),
        needed_rate=question.demand.sizing_requests_per_second / serving,
        binds=stated.binds,
        regime=regime_of(deployment, isl=question.isl.mean, osl=question.osl.mean, clients=clients),
        residuals=shipped_residuals(),
        rates_at=rates_at,
        systems_for=lambda rate: _systems_for(question, candidate, rate),
        noise=stated.noise,
    )
