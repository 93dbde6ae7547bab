"""What the tests of confidence share with others."""

from __future__ import annotations

from tonnage.perf.residuals import LEVELS, Regime, Residuals
from tonnage.sizing.loads.confidence import StepErrors

REGIME = Regime(load="light", mix="prompt", family="dense")


def table(sigma: float, bias: float = 0.0) -> Residuals:
    from statistics import NormalDist

    values = tuple(bias + sigma * NormalDist().inv_cdf(level) for level in LEVELS)
    metrics = ("ttft_ms", "itl_ms", "e2e_ms", "requests_s")
    return Residuals(
        quantiles={m: {"loaded": values} for m in metrics}, stretch={}, unseen_gpu={}, report={}
    )


def errors(metric: str, sigma: float, bias: float = 0.0) -> StepErrors:
    return StepErrors(metric=metric, regime=REGIME, residuals=table(sigma, bias))
