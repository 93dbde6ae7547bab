"""The confidence in a number of systems, which decides how many a plan asks for.

The error of the step model is taken as one unknown factor on the time of every step. The distribution of the factor is that of the
held-out errors (``perf.prediction_error``) of the metric that binds: TTFT, TPOT or E2E where a limit on it does, requests/s at saturation.
The number of systems at a confidence of 80 % is the smallest that meets the limits when every step takes as many times as long as the
80th percentile of the factor. The chance that a number of systems meets the limits is that of all factors with which it still does.
Both are read from what one instance carries with slower steps (``slower_steps``), for every deployment in the same way; of the choice,
the whole fleet is simulated with the slower steps as well, and what that shows corrects the rates. Under load a TTFT grows faster than
its steps, so that using its error for the steps errs on the safe side. The scatter of a finite run is included, as the standard error of
the limited latency. Uncertainty of the traffic is not: it is taken as asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import shipped_residuals
from tonnage.plan.confidence import BESIDE, Confidence, percent_key
from tonnage.plan.fleet import Fleet, fleet
from tonnage.sizing.bounds import Carried
from tonnage.sizing.instance import Instance
from tonnage.sizing.slower_steps import SlowerSteps

if TYPE_CHECKING:
    from tonnage.perf.regime import Regime
    from tonnage.perf.residuals import Residuals
    from tonnage.plan.limit import Bound
    from tonnage.sizing.question import Question
    from tonnage.spec.deployment import LimitMetric

METRICS: dict[LimitMetric, str] = {"ttft": "ttft_ms", "itl": "itl_ms", "tpot": "itl_ms", "e2e": "e2e_ms"}
"""Whose errors stand for the step factor, by the metric of the limit that binds; those of requests/s where none does."""

BISECTIONS = 40

LOWEST, HIGHEST = 0.001, 0.999
"""No chance is named beyond these."""

PREDICTED = 0.04
"""Steps that take longer or shorter by no more than this share count as long as predicted."""

HAIR = 1e-6
"""How far a corrected rate stays away from the rates that whole numbers of systems need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepErrors:
    """The distribution of the factor on the time of every step.

    Attributes:
        metric: whose held-out errors it is made of.
        regime: what the prediction is of.
        residuals: the table of held-out errors.
        noise: standard error of the limited latency in the run that found the capacity, as a share of it.
    """

    metric: str
    regime: Regime
    residuals: Residuals
    noise: float = 0.0

    def factor(self, p: float) -> float:
        """The quantile of the factor: with the probability ``p`` steps take at most so many times as long as predicted."""
        middle = self._of_steps(0.5)
        away = math.hypot(self._of_steps(p) - middle, self.noise * NormalDist().inv_cdf(p))
        return math.exp(middle + math.copysign(away, p - 0.5))

    def _of_steps(self, p: float) -> float:
        if self.metric == "requests_s":
            return self.residuals.log_error(self.metric, self.regime, p)
        return -self.residuals.log_error(self.metric, self.regime, 1 - p)


def metric_of(binds: Bound | None) -> str:
    """The metric whose errors count where that ends the load."""
    return "requests_s" if binds is None or binds.limit is None else METRICS[binds.limit.metric]


def step_errors(question: Question, carried: Carried) -> StepErrors:
    """The errors of the steps of one deployment."""
    capacity, deployment = carried.capacity, carried.ready.instance.deployment
    clients = capacity.concurrency if question.load == "closed" else None
    return StepErrors(
        metric=metric_of(capacity.binds),
        regime=regime_of(deployment, isl=question.isl.mean, osl=question.osl.mean, clients=clients),
        residuals=shipped_residuals(),
        noise=capacity.noise,
    )


def levels(asked: float) -> tuple[float, ...]:
    """The confidences that a plan names: 50, 80 and 95 %, and the one that was asked for."""
    return tuple(sorted({*BESIDE, asked}))


@dataclass(frozen=True, kw_only=True)
class Sureness:
    """How sure the numbers of systems of one deployment are.

    Attributes:
        asked: the confidence that decides.
        load: requests per second in all.
        layout: how instances stand in systems.
        spare: systems that stand by.
        factor: quantiles of the factor on the time of every step.
        rate: what one instance carries at such a factor, in requests per second; 0 where the limits hold at no load.
        metric: whose errors these are.
        shown: systems without spare ones that the whole fleet was shown to need; None where it was not simulated.
    """

    asked: float
    load: float
    layout: Fleet
    spare: int
    factor: Callable[[float], float]
    rate: Callable[[float], float]
    metric: str
    shown: int | None = None

    @cached_property
    def level(self) -> float | None:
        """The asked confidence, or the highest below it that some number of systems reaches; None where none does."""
        below = sorted((level for level in BESIDE if level < self.asked), reverse=True)
        return next((level for level in (self.asked, *below) if self.rate(self.factor(level)) > 0), None)

    @property
    def step_factor(self) -> float:
        """The factor on the steps that the number of systems allows for."""
        return 1.0 if self.level is None else self.factor(self.level)

    @cached_property
    def by_division(self) -> int:
        """Systems, without spare ones, by what one instance carries."""
        return self.layout.carrying(self.load, self.rate(self.step_factor)).systems

    @property
    def systems(self) -> int:
        """Systems, without spare ones."""
        return self.by_division if self.shown is None else self.shown

    @cached_property
    def correction(self) -> float:
        """What the simulation of the whole fleet changes of the rates, by the least that agrees with it."""
        shown, rate = self.shown, self.rate(self.step_factor)
        if shown is None or shown == self.by_division:
            return 1.0
        enough = self.load / self.layout.of(shown).instances
        if shown < self.by_division:
            return enough / rate * (1 + HAIR)
        fewer = self.layout.of(shown - self.layout.systems_per_instance).instances
        return max(enough, self.load / fewer * (1 - HAIR) if fewer else 0.0) / rate

    @property
    def sized_rate(self) -> float:
        """Requests per second of one instance that the number of systems counts on."""
        return self.correction * self.rate(self.step_factor)

    def systems_at(self, level: float) -> int | None:
        """Systems that do with a confidence, spare ones included; None where no number does."""
        rate = self.correction * self.rate(self.factor(level))
        return self.layout.carrying(self.load, rate).systems + self.spare if rate > 0 else None

    def meets(self, systems: int) -> float:
        """The chance that so many systems, spare ones left out, meet the limits, in whole per mille."""
        needed = self.load / self.layout.of(systems).instances * (1 - 1e-9)
        low, high = LOWEST, HIGHEST
        if self.correction * self.rate(self.factor(high)) >= needed:
            return HIGHEST
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.correction * self.rate(self.factor(middle)) >= needed else (low, middle)
        return math.floor(1e3 * low + 1e-3) / 1e3

    def confidence(self) -> Confidence:
        """As the plan states it."""
        named = levels(self.asked)
        return Confidence(
            asked=self.asked,
            meets=self.meets(self.systems),
            systems={percent_key(level): self.systems_at(level) for level in named},
            step_factors={percent_key(level): round(self.factor(level), 4) for level in named},
            metric=self.metric,
        )


def sureness(question: Question, carried: Carried, shown: int | None = None) -> Sureness:
    """How sure the numbers of systems of a deployment are; ``shown`` as in ``Sureness``."""
    errors, trial = step_errors(question, carried), carried.ready.trial
    return Sureness(
        asked=question.confidence,
        load=question.demand.sizing_requests_per_second,
        layout=fleet(trial.deployment.parallelism.gpus, trial.system.gpus),
        spare=question.spare,
        factor=errors.factor,
        rate=SlowerSteps(question, carried).rate,
        metric=errors.metric,
        shown=shown,
    )


def sharpened(question: Question, carried: Carried) -> None:
    """Make the runs without which the rates at the confidences are not known: at the asked one, and for a plan in full at the others.

    None are made for steps that are about as long as predicted, whose rates follow from the capacity.
    """
    errors = step_errors(question, carried)
    decisive = errors.factor(question.confidence)
    others = [errors.factor(level) for level in levels(question.confidence) if level != question.confidence] if question.deepen else []
    factors = [decisive, *(factor for factor in others if abs(factor - 1.0) > PREDICTED)]
    SlowerSteps(question, carried).sharpen(factors, decisive=decisive)


def at_confidence(question: Question, carried: Carried) -> Carried:
    """The deployment with steps as slow as the asked confidence allows for, and what it carries then."""
    found = sureness(question, carried)
    factor, instance = found.step_factor, carried.ready.instance
    slow = Instance(instance.deployment, replace(instance.asked, step_factor=instance.asked.step_factor * factor))
    capacity = replace(carried.capacity, rate=found.sized_rate, saturation=carried.capacity.saturation / factor)
    return Carried(ready=replace(carried.ready, instance=slow), capacity=capacity)
