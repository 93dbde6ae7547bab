"""The confidence in a number of systems, which decides how many a plan asks for.

Predictions are off by unknown factors, which are distributed like the held-out errors (``perf.prediction_error``) of what is predicted. The
number of systems at a confidence of 80 % is the smallest that meets the limits when each of these factors is as bad as its 80th
percentile: every step takes as many times as long as the error of requests/s says, and every limited latency is as many times as long as
the error of its metric says (``Slowdown``). The chance that a number of systems meets the limits is that of all percentiles at which it
still does. Both are read from what one instance carries then (``slower_steps``), for every deployment in the same way; of the choice, the
whole fleet is simulated as well, and what that shows corrects the rates. That all errors are at the same percentile at once is on the
safe side. The scatter of finite runs is left out: it moves the load that an instance carries by some percent. So is uncertainty of the
traffic: it is taken as asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import shipped_residuals
from tonnage.plan.confidence import BESIDE, Confidence, percent_key
from tonnage.plan.fleet import Fleet, fleet
from tonnage.sizing.loads.bounds import Carried
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.slower_steps import AS_PREDICTED, METRICS, Slowdown, SlowerSteps, metric_of

if TYPE_CHECKING:
    from tonnage.perf.regime import Regime
    from tonnage.perf.residuals import Residuals
    from tonnage.sizing.question import Question

LOWEST, HIGHEST = 1, 999
"""No chance is named beyond these, in per mille."""

SLACK = 1e-6
"""A number of systems that was found for a level meets the limits with that chance, whatever the rounding of its rate."""

PREDICTED = 0.04
"""Steps that take longer or shorter by no more than this share count as long as predicted."""

HAIR = 1e-6
"""How far a corrected rate stays away from the rates that whole numbers of systems need."""


@dataclass(frozen=True, kw_only=True)
class StepErrors:
    """The distribution of the factor on the time of every step.

    Attributes:
        metric: whose held-out errors it is made of.
        regime: what the prediction is of.
        residuals: the table of held-out errors.
    """

    metric: str
    regime: Regime
    residuals: Residuals

    def factor(self, p: float) -> float:
        """The quantile of the factor: with the probability ``p`` steps take at most so many times as long as predicted."""
        return math.exp(self._of_steps(p))

    @cached_property
    def _of_predictions(self) -> Callable[[float], float]:
        return self.residuals.quantile_function(self.metric, self.regime)

    def _of_steps(self, p: float) -> float:
        return self._of_predictions(p) if self.metric == "requests_s" else -self._of_predictions(1 - p)


def factors_at(errors: Mapping[str, StepErrors], p: float) -> Slowdown:
    """How far off the predictions are with that probability at most; a latency is off by no less than the steps."""
    steps = errors["requests_s"].factor(p)
    return Slowdown(steps=steps, latencies={metric: max(each.factor(p), steps) for metric, each in errors.items()})


def step_errors(question: Question, carried: Carried) -> dict[str, StepErrors]:
    """The errors of the steps of one deployment, by the metric whose errors they are: first the one that binds, last requests/s."""
    capacity, instance = carried.capacity, carried.ready.instance
    clients = capacity.concurrency if question.load == "closed" else None
    regime = regime_of(instance.deployment, isl=question.isl.mean, osl=question.osl.mean, clients=clients)
    metrics = dict.fromkeys((metric_of(capacity.binds), *(METRICS[limit.metric] for limit in instance.asked.slo), "requests_s"))
    return {metric: StepErrors(metric=metric, regime=regime, residuals=shipped_residuals()) for metric in metrics}


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
        factor: quantiles of the error of the metric that binds, as a factor on times.
        rate: what one instance carries, in requests per second, where all errors are at such a quantile; 0 where the limits hold at no
            load.
        nominal: what one instance carries by the prediction as it is.
        metric: the metric that binds.
        shown: systems without spare ones that the whole fleet was shown to need; None where it was not simulated.
    """

    asked: float
    load: float
    layout: Fleet
    spare: int
    factor: Callable[[float], float]
    rate: Callable[[float], float]
    nominal: float
    metric: str
    shown: int | None = None

    @cached_property
    def level(self) -> float | None:
        """The asked confidence, or the highest below it that some number of systems reaches; None where none does."""
        below = sorted((level for level in BESIDE if level < self.asked), reverse=True)
        return next((level for level in (self.asked, *below) if self.rate(level) > 0), None)

    @cached_property
    def _uncorrected(self) -> float:
        """The rate of one instance at the level, before the whole fleet was simulated; that of the prediction where no level is reached."""
        return self.nominal if self.level is None else self.rate(self.level)

    @cached_property
    def by_division(self) -> int:
        """Systems, without spare ones, by what one instance carries."""
        return self.layout.carrying(self.load, self._uncorrected).systems

    @property
    def systems(self) -> int:
        """Systems, without spare ones."""
        return self.by_division if self.shown is None else self.shown

    @cached_property
    def correction(self) -> float:
        """What the simulation of the whole fleet changes of the rates, by the least that agrees with it."""
        shown, rate = self.shown, self._uncorrected
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
        return self.correction * self._uncorrected

    def systems_at(self, level: float) -> int | None:
        """Systems that do with a confidence, spare ones included; None where no number does."""
        rate = self.correction * self.rate(level)
        return self.layout.carrying(self.load, rate).systems + self.spare if rate > 0 else None

    def meets(self, systems: int) -> float:
        """The chance that so many systems, spare ones left out, meet the limits, in whole per mille."""
        needed = self.load / self.layout.of(systems).instances * (1 - 1e-9)
        low, high = LOWEST, HIGHEST + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.correction * self.rate(middle / 1e3 - SLACK) >= needed else (low, middle)
        return low / 1e3

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
    errors, trial, steps = step_errors(question, carried), carried.ready.trial, SlowerSteps(question, carried)
    return Sureness(
        asked=question.confidence,
        load=question.demand.sizing_requests_per_second,
        layout=fleet(trial.deployment.parallelism.gpus, trial.system.gpus),
        spare=question.spare,
        factor=next(iter(errors.values())).factor,
        rate=lambda level: steps.rate(Slowdown(steps=errors["requests_s"].factor(level)) if steps.known else factors_at(errors, level)),
        nominal=carried.capacity.rate,
        metric=metric_of(carried.capacity.binds),
        shown=shown,
    )


def sharpened(question: Question, carried: Carried) -> None:
    """Make the runs without which the rates at the confidences are not known: at the asked one, and for a plan in full at the others.

    None are made for predictions that are hardly off, whose rates follow from the capacity.
    """
    errors, steps = step_errors(question, carried), SlowerSteps(question, carried)
    for level in levels(question.confidence) if question.deepen else (question.confidence,):
        slowdown, decisive = factors_at(errors, level), level == question.confidence
        if decisive or any(abs(factor - 1.0) > PREDICTED for factor in slowdown.latencies.values()):
            steps.sharpen(slowdown, decisive=decisive)


def at_confidence(question: Question, carried: Carried) -> Carried:
    """The deployment with steps as slow as the asked confidence allows for, and limits tighter by what latencies are off beyond that."""
    found, errors, instance = sureness(question, carried), step_errors(question, carried), carried.ready.instance
    slowdown = AS_PREDICTED if found.level is None else factors_at(errors, found.level)
    slo = tuple(replace(limit, seconds=limit.seconds * slowdown.steps / slowdown.of(limit)) for limit in instance.asked.slo)
    slow = Instance(instance.deployment, replace(instance.asked, step_factor=instance.asked.step_factor * slowdown.steps, slo=slo))
    slow.fleets = instance.fleets
    capacity = replace(carried.capacity, rate=found.sized_rate, saturation=carried.capacity.saturation / slowdown.steps)
    return Carried(ready=replace(carried.ready, instance=slow), capacity=capacity)
