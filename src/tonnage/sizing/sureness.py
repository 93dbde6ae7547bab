"""The confidence of a plan's choice: its capacity found again with slower steps (``confidence`` says how)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.sizing.capacity import Instance
from tonnage.sizing.confidence import Confidence, confidence
from tonnage.sizing.contest import measure
from tonnage.sizing.intervals import regime_of, shipped_residuals
from tonnage.sizing.plan import fleet

if TYPE_CHECKING:
    from tonnage.sizing.contest import Answer
    from tonnage.sizing.question import Question


def confidence_of(question: Question, found: Answer, workers: int | None = None) -> Confidence:
    """How sure the first candidate's number of systems is.

    The rate that the plan states was confirmed in a longer run, and its systems by the whole fleet; what these changed
    is taken to change the slower ones by the same factor.
    """
    best, chosen = found.candidates[0], found.carried[0]
    instance, stated = chosen.ready.instance, chosen.capacity
    demand, gpus = question.demand.sizing_requests_per_second, best.parallelism.gpus

    def measured(factor: float) -> float:
        asked = replace(instance.asked, step_factor=instance.asked.step_factor * factor)
        capacity = measure(question, replace(chosen.ready, instance=Instance(instance.deployment, asked)))
        return 0.0 if capacity.reason else capacity.rate

    def rates_at(factors: Sequence[float]) -> list[float]:
        with ThreadPoolExecutor(max_workers=workers) as pool:
            same, *others = pool.map(measured, (1.0, *factors))
        return [rate * confirmed * stated.rate / same for rate in others] if same > 0 else [0.0 for _ in others]

    def systems_for(rate: float) -> int:
        return fleet(demand, rate, gpus, best.gpus_per_system, question.spare).systems

    confirmed = systems_for(stated.rate) / best.systems
    serving = best.instances * (best.systems - question.spare) / best.systems
    clients = stated.concurrency if question.load == "closed" else None
    return confidence(
        rate=stated.rate * confirmed,
        needed_rate=demand / serving,
        binds=stated.binds,
        regime=regime_of(instance.deployment, isl=question.isl.mean, osl=question.osl.mean, clients=clients),
        residuals=shipped_residuals(),
        rates_at=rates_at,
        systems_for=systems_for,
    )
