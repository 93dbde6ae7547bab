"""The confidence in a plan: the chance that its systems meet the limits, and how many do at 50, 80 and 95 % confidence.

The error of the step model is taken as one unknown factor on the time of every step. The distribution of the factor is that of the
held-out errors (``perf.prediction_error``) of the metric that binds: TTFT, TPOT or E2E where a limit on it does, requests/s at saturation.
The capacity is found again with steps that are slower by the 50th, 80th and 95th percentile of the factor, and the systems follow from
it. The chance at the chosen number of systems is that of the factor at which its instances carry exactly the peak, interpolated between
these capacities. Under load a TTFT grows faster than its steps, so using its error for the steps errs on the safe side. The scatter of a
finite run is included, as the standard error of the limited latency. Uncertainty of the traffic is not: it is taken as asked.

The choice is simulated again with slower steps. For the other candidates the runs that found their capacity are enough: an instance whose
every step takes f times as long is the same instance with a slower clock. At a rate r it does what the instance itself does at r·f, and
takes f times as long for it. So the highest rate inside a limit is the rate at which the instance strains the limit by 1/f, divided by f.
Front end and turnaround are no steps but are stretched as well, which is a few milliseconds on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING

from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import shipped_residuals
from tonnage.plan.confidence import Confidence
from tonnage.sizing.candidate import needed
from tonnage.sizing.capacity import STABLE
from tonnage.sizing.instance import Instance
from tonnage.sizing.search import measure

if TYPE_CHECKING:
    from tonnage.perf.regime import Regime
    from tonnage.perf.residuals import Residuals
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.limit import Bound
    from tonnage.sizing.bounds import Carried
    from tonnage.sizing.capacity import Capacity
    from tonnage.sizing.question import Question
    from tonnage.sizing.search import Answer
    from tonnage.spec.deployment import LimitMetric

ASKED = (0.5, 0.8, 0.95)

METRICS: dict[LimitMetric, str] = {"ttft": "ttft_ms", "itl": "itl_ms", "tpot": "itl_ms", "e2e": "e2e_ms"}
"""Whose errors stand for the step factor, by the metric of the limit that binds; those of requests/s where none does."""

BISECTIONS = 40


def confidence_of(question: Question, found: Answer, workers: int | None = None) -> Confidence:
    """The confidence in the number of systems of the first candidate.

    The rate that the plan states was confirmed in a longer run, and its systems by the whole fleet; what these changed
    is taken to change the slower ones by the same factor.
    """
    best, chosen = found.candidates[0], found.carried[0]
    instance, stated = chosen.ready.instance, chosen.capacity
    confirmed = _confirmed(question, best, chosen)

    def measured(factor: float) -> float:
        asked = replace(instance.asked, step_factor=instance.asked.step_factor * factor)
        capacity = measure(question, replace(chosen.ready, instance=Instance(instance.deployment, asked)))
        return capacity.rate if capacity.reason is None else 0.0

    def rates_at(factors: Sequence[float]) -> list[float]:
        with ThreadPoolExecutor(max_workers=workers) as pool:
            same, *others = pool.map(measured, (1.0, *factors))
        return [rate * confirmed * stated.rate / same for rate in others] if same > 0 else [0.0 for _ in others]

    return _of_candidate(question, best, chosen, rates_at)


def confidences(question: Question, found: Answer) -> tuple[Confidence | None, ...]:
    """The confidence in each candidate, from the runs that found its capacity; None for a replayed recording or a job."""
    if question.offline or question.recording is not None:
        return (None,) * len(found.candidates)

    def one(candidate: Candidate, carried: Carried) -> Confidence:
        stated = carried.capacity
        confirmed = _confirmed(question, candidate, carried)

        def rates_at(factors: Sequence[float]) -> list[float]:
            return [rate * confirmed for rate in rates_with_slower_steps(stated, carried.ready.instance.trail, factors)]

        return _of_candidate(question, candidate, carried, rates_at)

    return tuple(one(candidate, carried) for candidate, carried in zip(found.candidates, found.carried, strict=True))


def _systems_for(question: Question, candidate: Candidate, rate: float) -> int:
    return needed(question, rate, candidate.parallelism.gpus, candidate.gpus_per_system).systems


def _confirmed(question: Question, candidate: Candidate, carried: Carried) -> float:
    """Systems by the stated rate over those that the whole fleet was shown to need."""
    return _systems_for(question, candidate, carried.capacity.rate) / candidate.systems


def _of_candidate(
    question: Question, candidate: Candidate, carried: Carried, rates_at: Callable[[Sequence[float]], Sequence[float]]
) -> Confidence:
    stated, deployment = carried.capacity, carried.ready.instance.deployment
    serving = candidate.instances * (candidate.systems - question.spare) / candidate.systems
    clients = stated.concurrency if question.load == "closed" else None
    return confidence_in(
        rate=stated.rate * _confirmed(question, candidate, carried),
        needed_rate=question.demand.sizing_requests_per_second / serving,
        binds=stated.binds,
        regime=regime_of(deployment, isl=question.isl.mean, osl=question.osl.mean, clients=clients),
        residuals=shipped_residuals(),
        rates_at=rates_at,
        systems_for=lambda rate: _systems_for(question, candidate, rate),
        noise=stated.noise,
    )


def confidence_in(
    *,
    rate: float,
    needed_rate: float,
    binds: Bound | None,
    regime: Regime,
    residuals: Residuals,
    rates_at: Callable[[Sequence[float]], Sequence[float]],
    systems_for: Callable[[float], int],
    noise: float = 0.0,
) -> Confidence:
    """The confidence in a number of instances that each carry a rate.

    Args:
        rate: requests per second that one instance carries by the prediction.
        needed_rate: what each of the chosen instances must carry at the peak.
        binds: what ends its load.
        regime: what the prediction is of.
        residuals: held-out errors.
        rates_at: the rate again, with every step so many times as long, for each of several factors; 0 where no load
            meets the limits.
        systems_for: whole systems, spare ones included, when one instance carries a rate above 0.
        noise: standard error of the limited latency in the run that found the rate, as a share of it.
    """
    metric = "requests_s" if binds is None or binds.limit is None else METRICS[binds.limit.metric]

    def of_steps(p: float) -> float:
        return residuals.log_error(metric, regime, p) if metric == "requests_s" else -residuals.log_error(metric, regime, 1 - p)

    middle = of_steps(0.5)

    def log_factor(p: float) -> float:
        away = math.hypot(of_steps(p) - middle, noise * NormalDist().inv_cdf(p))
        return middle + math.copysign(away, p - 0.5)

    factors = {p: math.exp(log_factor(p)) for p in ASKED}
    rates = dict(zip(ASKED, rates_at(list(factors.values())), strict=True))
    known = sorted({1.0: rate, **{factors[p]: rates[p] for p in ASKED}}.items())
    most = critical_factor(known, needed_rate)
    return Confidence(
        meets=_probability(log_factor, math.log(most)),
        systems={f"{100 * p:.0f}": systems_for(rates[p]) if rates[p] > 0 else None for p in ASKED},
        step_factors={f"{100 * p:.0f}": round(factors[p], 4) for p in ASKED},
        metric=metric,
    )


def critical_factor(known: list[tuple[float, float]], needed: float) -> float:
    """The step factor at which the rate falls to the needed one, between (factor, rate) pairs in order of the factor.

    Log-linear; beyond the pairs by the nearest two. A rate of 0 counts as reached halfway to it.
    """
    positive = [(math.log(factor), math.log(rate / needed)) for factor, rate in known if rate > 0]
    dead = [math.log(factor) for factor, rate in known if rate <= 0]
    if not positive:
        return known[0][0]
    if len(positive) == 1:
        found = positive[0][0] + positive[0][1]  # a rate that falls as the steps grow
    else:
        pairs = list(pairwise(positive))
        (x0, y0), (x1, y1) = next((pair for pair in pairs if pair[1][1] < 0), pairs[-1])
        slope = min((y1 - y0) / (x1 - x0), -0.5) if x1 > x0 else -1.0
        found = x0 - y0 / slope
    if dead:
        last = max(x for x, _ in positive)
        found = min(found, (last + min(dead)) / 2) if min(dead) > last else found
    return math.exp(found)


def _probability(log_factor: Callable[[float], float], at: float) -> float:
    """The share of the factor's distribution below a value, in whole per mille."""
    low, high = 0.001, 0.999
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if log_factor(middle) <= at else (low, middle)
    return round((low + high) / 2, 3)


def rates_with_slower_steps(capacity: Capacity, trail: Mapping[float, float], factors: Sequence[float]) -> list[float]:
    """The highest rate inside the limits with every step slowed down, for each of several factors.

    Args:
        capacity: of the instance as it is.
        trail: strain on the limits (largest value over its limit) by rate; 0 requests/s stands for a single client.
        factors: on the duration of every step.

    Returns:
        Requests per second; 0 where a single client exceeds the limits.
    """
    most = max(capacity.saturation * STABLE, capacity.rate)
    points = _rising(trail)
    here = _rate_at(points, 1.0, most)
    if here <= 0.0:
        return [capacity.rate / factor for factor in factors]
    return [capacity.rate * _rate_at(points, 1.0 / factor, most) / here / factor for factor in factors]


def _rising(trail: Mapping[float, float]) -> list[tuple[float, float]]:
    """Rates in order, with the largest strain up to each: noise of the runs makes no rate easier than a lower one."""
    found: list[tuple[float, float]] = []
    for rate, strain in sorted(trail.items()):
        found.append((rate, max(strain, found[-1][1] if found else 0.0)))
    return found


def _rate_at(points: Sequence[tuple[float, float]], strain: float, most: float) -> float:
    """The highest rate at which the strain is at most that, no more than ``most``; linear between runs in the strain's logarithm."""
    if not points or points[0][1] > strain:
        return 0.0
    for (low, below), (high, above) in pairwise(points):
        if above > strain:
            share = math.log(strain / below) / math.log(above / below) if below > 0 else (strain - below) / (above - below)
            return min(low + share * (high - low), most)
    return most
