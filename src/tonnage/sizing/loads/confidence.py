"""How much longer times may be than predicted: the errors of predictions as factors on them.

Predictions are off by unknown factors, which are distributed like the held-out errors
(``perf.prediction_error``) of what is predicted. The number of systems at a confidence of 80 % is
the smallest that meets the limits when each of these factors is as bad as its 80th percentile:
every step is longer by the factor of the error of requests/s, and every limited latency by the
factor of the error of its metric (``Slowdown``). That all errors are at the
same percentile at once is on the safe side. Uncertainty of the traffic is left out: it is taken as
asked.

An instance whose every step takes f times as long is the same instance with a slower clock. At a
rate r it does what the instance itself does at r·f, and takes f times as long for it. So the
highest rate inside limits is what the instance itself carries inside limits that are f times as
tight, divided by f: no run is made for a confidence alone. Front end and turnaround are no steps
but are stretched as well, which is a few milliseconds on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import Regime, Residuals, shipped_residuals
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS, DURATIONS
from tonnage.plan.candidate import BESIDE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.plan.limit import Bound
    from tonnage.sizing.question import Question
    from tonnage.spec.deployment import Deployment, Limit, LimitMetric, Slo


METRICS: dict[LimitMetric, str] = {
    "ttft": "ttft_ms",
    "itl": "itl_ms",
    "tpot": "itl_ms",
    "e2e": "e2e_ms",
    "attain": "requests_s",
    "first_ttft": "ttft_ms",
    "further_ttft": "ttft_ms",
    "slowdown": "requests_s",
}
"""Whose errors stand for the step factor, by the metric of a limit; those of requests/s at
saturation and of joint limits."""


def metric_of(binds: Bound | None) -> str:
    """The metric whose errors count where that ends the load."""
    return "requests_s" if binds is None or binds.limit is None else METRICS[binds.limit.metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """By which factors times are longer than the step model says.

    Attributes:
        steps: of every step.
        latencies: of the latencies in all, by the metric whose errors they have; no less than
            ``steps``. Unnamed ones are as slow as the steps.
    """

    steps: float
    latencies: Mapping[str, float] = field(default_factory=dict)

    def of(self, limit: Limit) -> float:
        """The factor of the latency that a limit is on; 1 for a limit on the slowdown, whose two
        latencies are equally slow.
        """
        if limit.is_ratio:
            return 1.0
        return max(
            self.latencies.get(METRICS[metric], self.steps)
            for metric, _ in limit.parts or ((limit.metric, 0.0),)
        )

    def tightened(self, slo: Slo) -> Slo:
        """The limits that an instance as predicted has to meet for one with these times to meet
        ``slo``.
        """
        return tuple(replace(limit, seconds=limit.seconds / self.of(limit)) for limit in slo)

    def beyond_steps(self, slo: Slo) -> Slo:
        """The limits that an instance whose steps are that slow has to meet, where latencies are
        off by more than the steps.
        """
        return tuple(
            limit
            if limit.is_ratio
            else replace(limit, seconds=limit.seconds * self.steps / self.of(limit))
            for limit in slo
        )

    def times(self, factor: float) -> Slowdown:
        """All times so much longer again."""
        return Slowdown(
            steps=self.steps * factor,
            latencies={
                metric: latency_factor * factor for metric, latency_factor in self.latencies.items()
            },
        )


AS_PREDICTED = Slowdown(steps=1.0)


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
        """The quantile of the factor: with the probability ``p`` steps take at most so many times
        as long as predicted.
        """
        return math.exp(
            self._of_predictions(p) if self.metric == "requests_s" else -self._of_predictions(1 - p)
        )

    @cached_property
    def _of_predictions(self) -> Callable[[float], float]:
        return self.residuals.quantile_function(self.metric, self.regime)


def step_errors(
    question: Question, deployment: Deployment, clients: float | None = None
) -> dict[str, StepErrors]:
    """The errors of one deployment's predictions, by the metric whose errors they are: those of the
    limits, and requests/s.

    ``clients`` are those of a closed loop.
    """
    regime = regime_of(deployment, isl=question.isl.mean, osl=question.osl.mean, clients=clients)
    limited = [
        metric for limit in question.limits for metric, _ in limit.parts or ((limit.metric, 0.0),)
    ]
    metrics = dict.fromkeys((*map(METRICS.__getitem__, limited), "requests_s"))
    return {
        metric: StepErrors(metric=metric, regime=regime, residuals=shipped_residuals())
        for metric in metrics
    }


def factors_at(errors: Mapping[str, StepErrors], p: float) -> Slowdown:
    """How far off the predictions are with that probability at most; a latency is off by no less
    than the steps.
    """
    steps = errors["requests_s"].factor(p)
    return Slowdown(
        steps=steps,
        latencies={
            metric: max(step_errors.factor(p), steps) for metric, step_errors in errors.items()
        },
    )


def levels(confidence: float) -> tuple[float, ...]:
    """The confidences that a plan names: 50, 80 and 95 %, and the requested one."""
    return tuple(sorted({*BESIDE, confidence}))


# A step model whose steps take longer by a factor, to see what an error of the step model would
# change.


def slower(step: StepModel, factor: float) -> StepModel:
    """The step model with every duration of a step multiplied by ``factor``; the front end is no
    part of a step and stays as it is.
    """
    if factor == 1.0:
        return step
    drafting = step.drafting
    drafted = (
        None
        if drafting is None
        else replace(drafting, coefficients=_scaled(drafting.coefficients, factor))
    )
    return replace(
        step,
        coefficients=_scaled(step.coefficients, factor),
        drafting=drafted,
        response_s=step.response_s * factor,
    )


def _scaled(c: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """The array with all its durations, those of a table behind it included, times ``factor``."""
    scaled = c.copy()
    scaled[list(DURATIONS)] *= factor
    scaled[COEFFICIENTS + 1 :: 2] *= factor
    return scaled
