"""How sure a prediction is: intervals from the step model's held-out errors, and from the noise of a finite run.

``perf/coefficients/residuals.json``, which ``tools.fit`` writes, holds quantiles of log(predicted / measured) over rows that
the fit had not seen. They are grouped by regime: the kind of load, whether prompt or output is the longer, and whether the
model is dense or has experts. Intervals are wider for a GPU that nobody measured, by what leaving whole GPUs out of the fit did
to static batches, and for an engine whose terms are not fitted, by what the fourth study found for presets without rows of their
own (docs/intervals.md). A calibrated deployment has errors of its own: those of curves of NIM groups that were calibrated on
another curve of the group, drawn towards the errors that the calibration's own points showed when they were left out.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataErrors
from tonnage.perf.calibrated_terms import calibrated_for
from tonnage.perf.coefficient_files import content
from tonnage.perf.formats import fitted_bits
from tonnage.perf.provenance import fitted_engine
from tonnage.perf.terms_file import shipped
from tonnage.spec.calibration import MULTIPLIERS, OWN_METRICS
from tonnage.spec.catalog import find_engine
from tonnage.spec.typed_values import FORBID, read_as

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.model import Model

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
"""Quantiles that the table holds; between them, and beyond, the normal scale of probability is used."""

SHARE = 0.8
"""The share of measured points that an interval is made to hold."""

UNSEEN_ENGINE = 2.2
"""Widening for an engine whose terms are not fitted: held-out over joint error of presets refitted on none of their rows, median
of four sets (TPOT of static batches 8.3 / 4.4, of NIM 18 / 4.3, of silicon_sample 12.6 / 6.4, tokens/s of 0.15 10.5 / 4.6)."""

LEAST_UNSEEN = 1.1
"""Least widening for anything that was not measured, which is never as sure as what was."""

UNSEEN_FORMAT = 1.5
"""The same for a format of weights that no row is in: errors of static batches with all FP8, or all 16-bit rows left out of the fit
(TTFT 7.3 and 13.4, TPOT 9.3 and 8.0 %), over those of models left out (6.4, 6.5 %)."""

UNSEEN_FAMILY = 2.1
"""The same for experts or latent attention in an engine that no such row is of: Mixtral left out of the static batches
(13.3, 13.6 %) over the mean of models left out."""

FORMATS = ("bf16", "fp16", "fp8")
"""Formats of weights with rows, where the table does not say."""

WITH_EXPERTS = ("tensorrt-llm-0.9", "tensorrt-llm-0.15")
"""Presets whose rows of the project's own files hold a mixture of experts."""

SMALL_BATCH, FEW_CLIENTS, MANY_CLIENTS = 8, 8, 64
"""Static batches and closed loops up to which a load is small or light, and from which a closed loop is heavy."""

OWN_PULL = {True: 20.0, False: 60.0}
"""How many left-out points of a calibration the table counts for, where whole curves (True) or single points were left out."""

FEWEST_OWN = 6
"""Fewer left-out points of a calibration than this say nothing."""

BLOCKS = 10
"""Number of parts of a run, in order of arrival, whose scatter tells the noise of the whole."""

LIKE = {"tpot": "itl_ms", "itl": "itl_ms", "e2e": "e2e_ms", "output_tok_s": "requests_s"}
"""The metric whose errors stand for one that has none of its own."""


STANDS_IN = {"ttft_p95_ms": "ttft_ms", "e2e_ms": "itl_ms", "requests_s": "itl_ms", "output_tok_s": "itl_ms"}
"""The metric whose errors stand for another's where that was not measured; rates err the other way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What a prediction is of.

    Attributes:
        load: "small batch", "large batch", "light", "middle", "heavy" or "open".
        mix: "prompt" where it is the longer part by at least two, "output" otherwise.
        family: "dense" or "moe".
        known_gpu: whether rows of this GPU, in as many bits, were in the fit.
        known_engine: whether rows of this engine generation were; never where step times come from elsewhere.
        known_format: whether weights of this format were.
        known_family: whether experts or latent attention in this engine were.
        current: whether the engine is of a generation whose steps were measured one system at a time (``silicon_sample.csv``).
        calibrated: whether measurements of this deployment on this GPU shifted its terms.
        own: by metric, root mean square and count of the calibration's own left-out errors; by_curve as it says.
    """

    load: str
    mix: str
    family: str
    known_gpu: bool = True
    known_engine: bool = True
    known_format: bool = True
    known_family: bool = True
    current: bool = False
    calibrated: bool = False
    own: tuple[tuple[str, float, int], ...] = ()
    by_curve: bool = False

    @property
    def kind(self) -> str:
        """One of "static", for a single batch, and for requests that come and go "calibrated", "current" or "loaded"."""
        if self.load in ("small batch", "large batch"):
            return "static"
        return "calibrated" if self.calibrated else "current" if self.current else "loaded"

    def names(self) -> tuple[str, ...]:
        """Names of the regime in the table, from wide to narrow."""
        load = f"{self.kind}, {self.load}" if self.kind in ("calibrated", "current") else self.load
        return (self.kind, load, f"{load}, {self.mix}", f"{load}, {self.mix}, {self.family}")


def regime_of(deployment: Deployment, *, isl: float, osl: float, batch: int | None = None, clients: float | None = None) -> Regime:
    """The regime of a prediction; an open loop has neither ``batch`` nor ``clients``."""
    if batch is not None:
        load = "small batch" if batch <= SMALL_BATCH else "large batch"
    elif clients is not None:
        load = "light" if clients <= FEW_CLIENTS else "heavy" if clients >= MANY_CLIENTS else "middle"
    else:
        load = "open"
    terms, gpu, preset = shipped(), deployment.gpu.name, find_engine(deployment.engine).coefficients
    calibration = deployment.calibration if calibrated_for(deployment, preset) else None
    bits = fitted_bits(deployment.gpu.executes(deployment.precision))
    return Regime(
        load=load,
        mix="prompt" if isl >= 2 * osl else "output",
        family="moe" if deployment.model.is_moe else "dense",
        known_gpu=f"compute_{bits}" in terms["gpus"].get(gpu, {}),
        known_engine=deployment.step_source is None and fitted_engine(preset, gpu),
        known_format=deployment.precision.weight_format in shipped_residuals().formats and not deployment.precision.sparse,
        known_family=_known_family(deployment.model, preset, terms["origins"]),
        current=preset in terms["origins"].get("engine_rows", {}),
        calibrated=calibration is not None,
        own=() if calibration is None else calibration.left_out,
        by_curve=calibration is not None and calibration.by_curve,
    )


def _known_family(model: Model, preset: str, origins: Mapping[str, Any]) -> bool:
    """Whether rows of an engine have what the model has beyond dense layers; TensorRT-LLM's of 2024 have Mixtral's experts."""
    if model.latent is not None:
        return preset in origins.get("latent", ())
    return not model.is_moe or preset in WITH_EXPERTS or preset in origins.get("experts", {})


REGIME_WORDS = {"static", "small batch", "large batch", "loaded", "current", "calibrated", "light", "middle", "heavy", "open"} | {
    "prompt",
    "output",
    "dense",
    "moe",
}
"""What the names of regimes in the table are made of (``Regime.names``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """The table of held-out errors.

    Attributes:
        quantiles: by metric and regime key, log(predicted / measured) at ``LEVELS``, shrunk towards the wider regime.
        stretch: by metric and load or kind of load, how much wider intervals must be for groups of rows that the table has not seen.
        unseen_gpu: by metric and kind of load, how much wider for a GPU that the fit has not seen.
        report: how the table was made, and its coverage.
        unseen_engine: by metric and kind of load, how much wider for an engine on hardware that its terms were not fitted on.
        formats: of weights, that the rows are in.
        widths: by term of a calibration, the width of the logarithm of its factor among groups that the fit had not seen.
    """

    __pydantic_config__ = FORBID

    quantiles: Mapping[str, Mapping[str, tuple[float, ...]]]
    stretch: Mapping[str, Mapping[str, float]]
    unseen_gpu: Mapping[str, Mapping[str, float]]
    report: Mapping[str, Any] = field(default_factory=dict)
    unseen_engine: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    formats: tuple[str, ...] = FORMATS
    widths: Mapping[str, float] = field(default_factory=dict)

    def knows(self, metric: str) -> bool:
        """Whether there are errors of this metric, or of one that stands for it."""
        return _like(metric, self.quantiles) is not None

    def log_error(self, metric: str, regime: Regime, p: float) -> float:
        """The quantile of log(predicted / measured) in that regime."""
        found = _like(metric, self.quantiles)
        if found is None:
            return math.nan
        table = self.quantiles[found]
        if regime.kind == "calibrated" and "calibrated" not in table:
            regime = replace(regime, calibrated=False)
        other = STANDS_IN.get(found, "")
        if regime.kind not in table and regime.kind in self.quantiles.get(other, {}):
            return -self.log_error(other, regime, 1 - p) if found == "requests_s" else self.log_error(other, regime, p)
        kind = regime.kind if regime.kind in table else "loaded" if "loaded" in table else next(iter(table))
        values = next(table[key] for key in (*reversed(regime.names()), kind) if key in table)
        middle = values[LEVELS.index(0.5)]
        stretch = self.stretch.get(found, {})
        factor = stretch.get(regime.names()[1], stretch.get(kind, 1.0)) * self._unseen(found, regime, kind)
        factor = _with_own(factor, found, regime, values)
        return middle + factor * (interpolated(values, p) - middle)

    def _unseen(self, metric: str, regime: Regime, kind: str) -> float:
        """How much wider intervals are for all that was not measured; the causes are independent, so their squares add."""
        gpus = self.unseen_gpu.get(metric, {})
        engine = self.unseen_engine.get(metric, {}).get(kind, UNSEEN_ENGINE)
        causes = (
            (regime.known_gpu, gpus.get(kind, gpus.get("static", 1.0))),
            (regime.known_engine and kind == regime.kind, engine),
            (regime.known_format, UNSEEN_FORMAT),
            (regime.known_family, UNSEEN_FAMILY),
        )
        return math.sqrt(1.0 + sum(max(factor, LEAST_UNSEEN) ** 2 - 1.0 for known, factor in causes if not known))

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


def _with_own(factor: float, metric: str, regime: Regime, values: tuple[float, ...]) -> float:
    """The widening, drawn towards what a calibration's own left-out points ask for: the more of them, the closer."""
    own = next(((rms, n) for name, rms, n in regime.own if name == metric and n >= FEWEST_OWN), None)
    usual = (values[LEVELS.index(0.9)] - values[LEVELS.index(0.1)]) / (2 * NormalDist().inv_cdf(0.9))
    if own is None or regime.kind != "calibrated" or usual <= 0:
        return factor
    rms, n = own
    pull = OWN_PULL[regime.by_curve]
    return math.sqrt((pull * factor**2 + n * (rms / usual) ** 2) / (pull + n))


def _like(metric: str, quantiles: Mapping[str, Any]) -> str | None:
    """The metric of the table that speaks for a column: the column itself, its mean, or a related metric."""
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
        DataError: the file is missing, is no JSON, or holds what it may not; one line for each fault.
    """
    return residuals_of(content("residuals.json", "reinstall, or write it again with ./fit"), "perf/coefficients/residuals.json")


def residuals_of(document: Mapping[str, Any], where: str = "residuals.json") -> Residuals:
    """The table of a document as ``tools.fit`` writes it.

    Raises:
        DataErrors: unknown keys, metrics, regimes or terms, and values of another kind; one line each.
    """
    found = read_as(Residuals, document, where)
    faults = []
    for group in ("quantiles", "stretch", "unseen_gpu", "unseen_engine"):
        for metric, table in getattr(found, group).items():
            unknown = [] if metric in OWN_METRICS else [metric]
            unknown += [f"{metric}.{key}" for key in table if not {*key.split(", ")} <= REGIME_WORDS]
            faults += [f"{where}: {group}.{key}: unknown key" for key in unknown]
    for metric, quantiles in found.quantiles.items():
        wrong = [key for key, values in quantiles.items() if len(values) != len(LEVELS)]
        faults += [f"{where}: quantiles.{metric}.{key}: holds no {len(LEVELS)} quantiles" for key in wrong]
    faults += [
        f"{where}: widths.{name}: unknown key; known here: {', '.join(MULTIPLIERS)}" for name in found.widths if name not in MULTIPLIERS
    ]
    DataErrors.raise_if(faults)
    return found


def intervals_of(values: Mapping[str, float], regime: Regime, noise: Mapping[str, float] | None = None) -> dict[str, tuple[float, float]]:
    """The interval of each predicted value whose errors are known. Rates of an open loop have none, for they are what it sends.

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

    values = _by_arrival(requests)
    found = {f"{name}_ms": _standard_error(values[name]) for name in ("ttft", "itl", "e2e") if name in values}
    if found:
        found["requests_s"] = _standard_error(np.diff(np.sort(values["last"])))
    return found


def statistic_noise(requests: Requests, metric: str, statistic: str) -> float:
    """Standard error of a statistic such as "ttft" "p95", as a share of it; that of gaps is of each request's mean gap. 0 if unknown."""
    values = _by_arrival(requests).get("itl" if metric == "tpot" else metric)
    return 0.0 if values is None else _standard_error(values, statistic)


def _by_arrival(requests: Requests) -> dict[str, NDArray[np.float64]]:
    """Latencies of the completed requests in order of arrival, and when they ended, in ns; empty where too few completed."""
    import numpy as np

    from tonnage.results.requests import COMPLETED

    done = np.flatnonzero(requests.status == COMPLETED)
    if done.size < 4 * BLOCKS:
        return {}
    ordered = done[np.argsort(requests.due_ns[done], kind="stable")]
    due, first, last = (column[ordered].astype(float) for column in (requests.due_ns, requests.first_token_ns, requests.last_token_ns))
    per_token = (last - first) / np.maximum(requests.osl[ordered] - 1, 1)
    return {"ttft": first - due, "itl": per_token, "e2e": last - due, "last": last}


def _standard_error(values: NDArray[np.float64], statistic: str = "mean") -> float:
    import numpy as np

    blocks = np.array_split(values, BLOCKS)
    percentile = statistic.removeprefix("p")
    of_each = np.array([np.percentile(b, float(percentile)) if percentile != statistic else b.mean() for b in blocks])
    whole = float(of_each.mean())
    return float(of_each.std(ddof=1) / math.sqrt(BLOCKS) / whole) if whole > 0 else 0.0
