"""How sure a prediction is: intervals from the step model's held-out errors, and from the noise of a finite run.

``perf/coefficients/residuals.json``, which ``fit`` writes, holds quantiles of log(predicted / measured) over rows that
the fit had not seen, by regime: kind of load, which of prompt and output is the longer, dense or experts. A GPU that
nobody measured widens them by what leaving whole GPUs out of the fit did to static batches; an engine whose terms are
not fitted by what the fourth study found for presets on no rows of their own (docs/intervals.md).
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataError
from tonnage.perf.formats import fitted_bits, format_mark
from tonnage.perf.terms import fitted_engine, shipped
from tonnage.spec.catalog import find_engine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import Deployment

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
"""Quantiles that the table holds; between them, and beyond, the normal scale of probability is used."""

SHARE = 0.8
"""Of measured points that an interval is made to hold."""

STRANGE_ENGINE = 2.2
"""Widening for an engine whose terms are not fitted: held-out over joint error of presets refitted on none of their rows, median
of four sets (TPOT of static batches 8.3 / 4.4, of NIM 18 / 4.3, of silicon_sample 12.6 / 6.4, tokens/s of 0.15 10.5 / 4.6)."""

SMALL_BATCH, FEW_CLIENTS, MANY_CLIENTS = 8, 8, 64
"""Static batches and closed loops up to which a load is small or light, and from which a closed loop is heavy."""

BLOCKS = 10
"""Parts of a run, in order of arrival, whose scatter tells the noise of the whole."""

LIKE = {"tpot": "itl_ms", "itl": "itl_ms", "e2e": "e2e_ms", "output_tok_s": "requests_s"}
"""The metric whose errors stand for one that has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What a prediction is of.

    Attributes:
        load: "small batch", "large batch", "light", "middle", "heavy" or "open".
        mix: "prompt" where it is the longer part by at least two, "output" otherwise.
        family: "dense" or "moe".
        known_gpu: rows of this GPU, in as many bits and no format that rests on a prior, were in the fit.
        known_engine: so were rows of this engine generation; never where the step times are not the fitted terms'.
    """

    load: str
    mix: str
    family: str
    known_gpu: bool = True
    known_engine: bool = True

    @property
    def kind(self) -> str:
        """One of "static", for a single batch, and "loaded", for requests that come and go."""
        return "static" if self.load in ("small batch", "large batch") else "loaded"

    def names(self) -> tuple[str, ...]:
        """Names in the table from wide to narrow."""
        return (self.kind, self.load, f"{self.load}, {self.mix}", f"{self.load}, {self.mix}, {self.family}")


def regime_of(deployment: Deployment, *, isl: float, osl: float, batch: int | None = None, clients: float | None = None) -> Regime:
    """The regime of a prediction; an open loop has neither ``batch`` nor ``clients``."""
    if batch is not None:
        load = "small batch" if batch <= SMALL_BATCH else "large batch"
    elif clients is not None:
        load = "light" if clients <= FEW_CLIENTS else "heavy" if clients >= MANY_CLIENTS else "middle"
    else:
        load = "open"
    terms, gpu = shipped(), deployment.gpu.name
    precision = deployment.gpu.executes(deployment.precision)
    measured = f"compute_{fitted_bits(precision)}" in terms["gpus"].get(gpu, {})
    return Regime(
        load=load,
        mix="prompt" if isl >= 2 * osl else "output",
        family="moe" if deployment.model.is_moe else "dense",
        known_gpu=measured and not format_mark(precision, deployment.gpu, terms["origins"]["formats"]),
        known_engine=deployment.step_source is None and fitted_engine(find_engine(deployment.engine).coefficients, gpu),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """The table of held-out errors.

    Attributes:
        quantiles: by metric and regime key, log(predicted / measured) at ``LEVELS``, shrunk towards the wider regime.
        stretch: by metric and kind of load, how much wider intervals must be for groups of rows that the table has not seen.
        strange_gpu: by metric, how much wider for a GPU that the fit has not seen.
        report: how the table was made, and its coverage.
    """

    quantiles: Mapping[str, Mapping[str, tuple[float, ...]]]
    stretch: Mapping[str, Mapping[str, float]]
    strange_gpu: Mapping[str, float]
    report: Mapping[str, Any]

    def knows(self, metric: str) -> bool:
        """Whether there are errors of this metric, or of one that stands for it."""
        return _like(metric, self.quantiles) is not None

    def log_error(self, metric: str, regime: Regime, p: float) -> float:
        """The quantile of log(predicted / measured) in that regime."""
        found = _like(metric, self.quantiles)
        if found is None:
            return math.nan
        table = self.quantiles[found]
        kind = regime.kind if regime.kind in table else next(iter(table))
        values = next(table[key] for key in (*reversed(regime.names()), kind) if key in table)
        middle = values[LEVELS.index(0.5)]
        factor = self.stretch.get(found, {}).get(kind, 1.0)
        factor *= 1.0 if regime.known_gpu else self.strange_gpu.get(found, 1.0)
        factor *= 1.0 if regime.known_engine else STRANGE_ENGINE
        return middle + factor * (interpolated(values, p) - middle)

    def interval(self, metric: str, value: float, regime: Regime, *, share: float = SHARE, noise: float = 0.0) -> tuple[float, float]:
        """Where a measurement lies with probability ``share``, for a predicted value.

        Args:
            metric: a column such as "ttft_ms".
            value: the prediction.
            regime: what it is of.
            share: of measurements inside.
            noise: standard error of the prediction itself as a share of it: that of a finite run.
        """
        tail = (1 - share) / 2
        high, low = self.log_error(metric, regime, tail), self.log_error(metric, regime, 1 - tail)
        middle = self.log_error(metric, regime, 0.5)
        z = NormalDist().inv_cdf(1 - tail)
        below, above = math.hypot(low - middle, z * noise), math.hypot(middle - high, z * noise)
        return value * math.exp(-middle - below), value * math.exp(-middle + above)


def _like(metric: str, quantiles: Mapping[str, Any]) -> str | None:
    """The metric of the table that speaks for a column: itself, its mean, or a near relation's."""
    quantity = metric.partition("_")[0]
    for name in (metric, f"{quantity}_ms", LIKE.get(quantity, ""), LIKE.get(metric, "")):
        if name in quantiles:
            return name
    return None


def interpolated(values: tuple[float, ...], p: float) -> float:
    """A quantile between or beyond those at ``LEVELS``, linear on the normal scale."""
    normal = NormalDist()
    scale = [normal.inv_cdf(level) for level in LEVELS]
    z = normal.inv_cdf(min(max(p, 1e-6), 1 - 1e-6))
    place = min(max(bisect_right(scale, z) - 1, 0), len(scale) - 2)
    share = (z - scale[place]) / (scale[place + 1] - scale[place])
    return values[place] + share * (values[place + 1] - values[place])


@cache
def shipped_residuals() -> Residuals:
    """The table that the package ships.

    Raises:
        DataError: the file is missing or damaged.
    """
    file = resources.files("tonnage.perf") / "coefficients" / "residuals.json"
    try:
        return residuals_of(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"perf/coefficients/residuals.json: {error}; reinstall, or write it again with `tonnage fit`") from None


def residuals_of(document: Mapping[str, Any]) -> Residuals:
    """The table of a document as ``fit`` writes it."""
    quantiles = {
        metric: {key: tuple(float(v) for v in values) for key, values in table.items()} for metric, table in document["quantiles"].items()
    }
    return Residuals(
        quantiles=quantiles, stretch=document["stretch"], strange_gpu=document["strange_gpu"], report=document.get("report", {})
    )


def intervals_of(values: Mapping[str, float], regime: Regime, noise: Mapping[str, float] | None = None) -> dict[str, tuple[float, float]]:
    """The interval of each predicted value whose errors are known; the rates of an open loop are those that it sends.

    Args:
        values: by column, such as "ttft_ms".
        regime: what they are of.
        noise: standard error of the run's own means, as ``run_noise`` gives it.
    """
    table = shipped_residuals()
    found = {}
    for name, value in values.items():
        own = _like(name, noise) if noise else None
        given = regime.load == "open" and not name.endswith("_ms")
        if table.knows(name) and not given and value > 0 and math.isfinite(value):
            found[name] = table.interval(name, value, regime, noise=noise[own] if noise and own else 0.0)
    return found


def run_noise(requests: Requests) -> dict[str, float]:
    """Standard error of a run's means and rates as a share of them, from ``BLOCKS`` blocks in order of arrival.

    Blocks of an open loop hardly depend on each other once each is several latencies long; where waves of a closed
    loop repeat, the error is that of where the run was cut.

    Returns:
        By column: "ttft_ms", "itl_ms", "e2e_ms", "requests_s"; empty where too few requests completed.
    """
    import numpy as np

    from tonnage.results.requests import COMPLETED

    done = np.flatnonzero(requests.status == COMPLETED)
    if done.size < 4 * BLOCKS:
        return {}
    ordered = done[np.argsort(requests.due_ns[done], kind="stable")]
    due, first, last = (column[ordered].astype(float) for column in (requests.due_ns, requests.first_token_ns, requests.last_token_ns))
    per_token = (last - first) / np.maximum(requests.osl[ordered] - 1, 1)
    found = {name: _standard_error(values) for name, values in (("ttft_ms", first - due), ("itl_ms", per_token), ("e2e_ms", last - due))}
    ends = np.sort(last)
    found["requests_s"] = _standard_error(np.diff(ends))
    return found


def _standard_error(values: NDArray[np.float64]) -> float:
    import numpy as np

    means = np.array([block.mean() for block in np.array_split(values, BLOCKS)])
    whole = float(means.mean())
    return float(means.std(ddof=1) / math.sqrt(BLOCKS) / whole) if whole > 0 else 0.0
