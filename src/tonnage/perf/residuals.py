"""The table of held-out errors: ``perf/coefficients/residuals.json``, which ``tools.fit`` writes.

It holds quantiles of log(predicted / measured) over rows that the fit had not seen. They are
grouped by regime: the kind of load, whether prompt or output is the longer, and whether the model
is dense or has experts. Intervals are wider for a GPU that nobody measured, by what leaving whole
GPUs out of the fit did to static batches, and for an engine whose terms are not fitted, by what the
fourth study found for presets without own rows (docs/intervals.md). A calibrated deployment has its
own errors: those of curves of NIM groups that were calibrated on another curve of the group, drawn
towards the errors that the calibration's own points showed when they were left out. Terms that a
deployment's own loads have fitted have the errors of these loads alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import NormalDist
from typing import Any

from tonnage.errors import DataErrors
from tonnage.perf import shipped_json
from tonnage.results.metrics import student_t
from tonnage.spec.calibration import MULTIPLIERS, OWN_METRICS
from tonnage.spec.typed_values import read_as, strict

# The regime of a prediction: what kind of load and model it is of, and how near measurements were
# to it.


REGIME_WORDS = {
    "static",
    "small batch",
    "large batch",
    "loaded",
    "current",
    "calibrated",
    "light",
    "middle",
    "heavy",
    "open",
} | {
    "prompt",
    "output",
    "dense",
    "moe",
}
"""What the names of regimes in the table are made of (``Regime.names``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What a prediction is of."""

    load: str  # "small batch", "large batch", "light", "middle", "heavy" or "open"
    mix: str  # "prompt" where it is the longer part by at least two, "output" otherwise
    family: str  # "dense" or "moe"
    known_gpu: bool = True  # whether rows of this GPU, in as many bits, were in the fit
    few_of_vendor: bool = False  # whether its vendor's rows are of few GPUs: any but NVIDIA's
    known_generation: bool = True  # whether anything is known of GPUs of its generation
    known_model: bool = True  # whether rows of this model, or of one of the same sizes, were
    # whether the model has indexers, compressed entries or states (``spec.layers``)
    newer_kinds: bool = False
    # whether its architecture is known, not read from the fields of a file alone
    known_layout: bool = True
    # whether rows of this engine generation were; never where step times come from elsewhere
    known_engine: bool = True
    # whether the engine is older than every one that has rows, so that it has the terms of a later
    # one
    before_rows: bool = False
    known_format: bool = True  # whether weights of this format were
    known_family: bool = True  # whether experts or latent attention in this engine were
    # whether all that was measured of it is of images before a release
    # (``perf.ranges.first_support``)
    first_support: bool = False
    # the ratio of two step models' times per token where they differ (``perf.ranges.differs``); 1
    # elsewhere
    differs: float = 1.0
    # in what the deployment differs from the measured ones (keys of ``ELSEWHERE``)
    apart: frozenset[str] = frozenset()
    # the engine is one of those in ``silicon_sample.csv``, measured one system at a time
    current: bool = False
    # whether measurements of this deployment on this GPU shifted its terms
    calibrated: bool = False
    own_terms: bool = False  # whether these are terms that this deployment's own loads have fitted
    # by metric, root mean square and count of the calibration's own left-out errors; by_curve as it
    # says
    own: tuple[tuple[str, float, int], ...] = ()
    by_curve: bool = False

    @property
    def kind(self) -> str:
        """One of "static", for a single batch, and for requests that come and go "calibrated",
        "current" or "loaded".
        """
        if self.load in ("small batch", "large batch"):
            return "static"
        return "calibrated" if self.calibrated else "current" if self.current else "loaded"

    @property
    def on_unknown_gpu(self) -> Regime:
        """The same on a GPU of which there is no row, of any engine."""
        return replace(self, known_gpu=False, known_engine=False)

    @property
    def causes(self) -> frozenset[str]:
        """What of ``apart`` widens the interval: not what the engine's rows of experts tell.

        These rows have layers of experts that the host launches, and experts in four bits. Of a
        dense model that reads few weights its own rows on the GPU tell.
        """
        experts = self.family == "moe" and self.known_family
        light = experts or (self.known_family and self.known_model and self.known_engine)
        names = (("light weights", light), ("four bits", experts))
        return self.apart - {cause for cause, measured in names if measured}

    def names(self) -> tuple[str, ...]:
        """Names of the regime in the table, from wide to narrow."""
        load = f"{self.kind}, {self.load}" if self.kind in ("calibrated", "current") else self.load
        return (self.kind, load, f"{load}, {self.mix}", f"{load}, {self.mix}, {self.family}")


LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
"""Quantiles that the table holds; between them, and beyond, the normal scale of probability is
used."""

SCALE = tuple(NormalDist().inv_cdf(level) for level in LEVELS)
"""The same on the normal scale."""

SHARE = 0.8
"""The share of measured points that an interval is made to hold."""

LEAST_UNSEEN = 1.1
"""Least widening for anything that was not measured, which is never as sure as what was."""

UNSEEN_ENGINE = 2.2
"""Widening for an engine whose terms are not fitted: held-out over joint error of presets refitted
on none of their rows, median of four sets (TPOT of static batches 8.3 / 4.4, of NIM 18 / 4.3, of
silicon_sample 12.6 / 6.4, tokens/s of 0.15 10.5 / 4.6). It does not apply after a calibration: ten
points of a deployment of 2026 calibrate the terms of another engine nearly as well as its own. Of
the deployment's other times per token 70 and 74 % were inside the 80 % interval of a known engine
(``./benchmark measurement --points``)."""

OLDER_ENGINE = 4.3
"""The same for an engine older than any with rows: errors of the engines of 2024 with the terms of
each later one of their maker, over the width of an engine with rows; median of both metrics
(``./benchmark engine_age``, 2026-11-25)."""

UNSEEN_MODEL, UNSEEN_KINDS = 1.3, 2.0
"""The same for a model that no row is of, and for one with indexers, compressed entries or states,
on the side on which it is slower than predicted."""

UNSEEN_MODEL_OF = {
    (False, False): (UNSEEN_MODEL, LEAST_UNSEEN),
    (False, True): (UNSEEN_KINDS, LEAST_UNSEEN),
    (True, False): (2.2, 2.1),
    (True, True): (4.0, 1.3),
}
"""The same by whether few GPUs of the vendor have rows and whether the model has such layers, on
the slower and on the faster side: an engine's first kernels for a model lack tuning, and seldom
beat those of the others. Of 3,017 released points of 2026 with their model left out 88 % are
inside, and 10 % of the decisions promise over 10 % too much at a plan's usual confidence, on NVIDIA
and on AMD alike (docs/accuracy.md, 2026-11-28). Narrower ones, with 84 to 86 % inside, promise too
much in 11 to 13 %."""

UNSEEN_GENERATION = 4.0
"""The same for hardware of a generation that nothing is known of, such as a CPU: vLLM on one core,
predicted with what is transferred to it, was off by 30 % in E2E and by 100 % in TTFT
(benchmarks/engine_loop.py, November 2026), where the table's intervals reach to 10 and 25 %. One
machine gives the order of magnitude, and no more."""

UNSEEN_OF_VENDOR = 3.0
"""The same for a GPU without rows of a vendor of which few GPUs have some: MI300X and MI355X left
out (docs/accuracy.md)."""

UNSEEN_FORMAT = 1.5
"""The same for a format of weights that no row is in: errors of static batches with all FP8, or all
16-bit rows left out of the fit (TTFT 7.3 and 13.4, TPOT 9.3 and 8.0 %), over those of models left
out (6.4, 6.5 %)."""

UNSEEN_FAMILY = 2.1
"""The same for experts or latent attention in an engine that no such row is of: Mixtral left out of
the static batches (13.3, 13.6 %) over the mean of models left out."""

FORMATS = ("bf16", "fp16", "fp8")
"""Formats of weights that rows are in, where the table does not say."""

ELSEWHERE: Mapping[str, Mapping[str, float]] = {
    "host": {"ttft_ms": 2.3, "itl_ms": 1.0, "requests_s": 1.0},
    "pcie": {"ttft_ms": 3.5, "itl_ms": 3.5, "requests_s": 3.5},
    "burst": {"ttft_ms": 3.8, "itl_ms": 5.7, "requests_s": 1.0},
    "light weights": {"ttft_ms": 1.0, "itl_ms": 4.1, "requests_s": 4.3},
    "four bits": {"ttft_ms": 3.0, "itl_ms": 3.0, "requests_s": 3.0},
    "ranks": {"ttft_ms": 2.0, "itl_ms": 2.0, "requests_s": 2.0},
}
"""The same, by metric, for what sets a deployment apart from the measured ones where no calibration
says better (``Regime.causes``): the host of another owner, sums over PCIe, prompts that come all at
once, small steps of less than ``perf.prediction_error.LIGHT_S``, which the host decides, weights of
four bits that no row of experts or of the format tells about, and attention ranks.

Each is read off those of 200 points of users that have no other cause but the host. With each
source left out, and both its terms and the factors by the others, 79 to 85 % are inside
(``./benchmark field``, 2026-11-28). Over PCIe hosts differ by 40 % to a factor of two, so that half
the width is the logarithm of two; of dense models in AWQ and GPTQ 17 other rows had none inside
without the factor 3; with ranks 89 % of NVIDIA's and 79 % of AMD's points of 2026 are inside with
their model left out."""

CALIBRATED_CURRENT = 1.2
"""Widening after a calibration on an engine of today. The table's calibrated errors are of NIM; ten
points of each deployment of 2026 left 70 to 76 % of its other times per token inside without it
(``./benchmark measurement --points``, 2026-11-25)."""

OWN_PULL = {True: 20.0, False: 60.0}
"""How many left-out points of a calibration the table counts for, where whole curves (True) or
single points were left out."""

FEWEST_OWN = 6
"""Fewer left-out points of a calibration than this say nothing."""

LEAST_OWN = 0.01
"""The least root mean square of the errors of left-out loads that is believed: latencies of two
equal runs differ by as much."""

LIKE = {"tpot": "itl_ms", "itl": "itl_ms", "e2e": "e2e_ms", "output_tok_s": "requests_s"}
"""The metric whose errors are used for a column that has its own none."""

STANDS_IN = {
    "ttft_p95_ms": "ttft_ms",
    "e2e_ms": "itl_ms",
    "requests_s": "itl_ms",
    "output_tok_s": "itl_ms",
}
"""The metric whose errors are used in regimes where a metric was not measured; rates err the other
way."""


@strict
class Residuals:
    """The table of held-out errors."""

    # by metric and regime key, log(predicted / measured) at ``LEVELS``, shrunk towards the wider
    # regime
    quantiles: Mapping[str, Mapping[str, tuple[float, ...]]]
    # by metric and load or kind of load, how much wider intervals must be for groups of rows that
    # the table has not seen
    stretch: Mapping[str, Mapping[str, float]]
    # by metric and kind of load, how much wider for a GPU that the fit has not seen
    unseen_gpu: Mapping[str, Mapping[str, float]]
    # how the table was made, and its coverage
    report: Mapping[str, Any] = field(default_factory=dict)
    # by metric and kind of load, how much wider for an engine on hardware that its terms were not
    # fitted on
    unseen_engine: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    formats: tuple[str, ...] = FORMATS  # of weights, that the rows are in
    # by term of a calibration, the width of the logarithm of its factor among groups that the fit
    # had not seen
    widths: Mapping[str, float] = field(default_factory=dict)

    def knows(self, metric: str) -> bool:
        """Whether there are errors of this metric, or of one that stands for it."""
        return like(metric, self.quantiles) is not None

    def log_error(self, metric: str, regime: Regime, p: float) -> float:
        """The quantile of log(predicted / measured) in that regime."""
        return self.quantile_function(metric, regime)(p)

    def quantile_function(
        self, metric: str, regime: Regime, elsewhere: str = ""
    ) -> Callable[[float], float]:
        """``log_error`` of one metric in one regime, as a function of the probability: what does
        not depend on it is looked up once.

        ``elsewhere`` is the column of ``ELSEWHERE`` of a metric that has this one's errors.
        """
        tabulated = like(metric, self.quantiles)
        if tabulated is None:
            return lambda _: math.nan
        if (own_spread := _own_loads(tabulated, regime)) is not None:
            return lambda p: own_spread[0] * student_t(p, own_spread[1])
        table = self.quantiles[tabulated]
        if regime.kind == "calibrated" and "calibrated" not in table:
            regime = replace(regime, calibrated=False)
        stand_in = STANDS_IN.get(tabulated, "")
        if regime.kind not in table and regime.kind in self.quantiles.get(stand_in, {}):
            theirs = self.quantile_function(
                stand_in, regime, elsewhere or metric_elsewhere(tabulated)
            )
            return (lambda p: -theirs(1 - p)) if tabulated == "requests_s" else theirs
        kind = (
            regime.kind
            if regime.kind in table
            else "loaded"
            if "loaded" in table
            else next(iter(table))
        )
        values = next(table[key] for key in (*reversed(regime.names()), kind) if key in table)
        middle = values[LEVELS.index(0.5)]
        stretch = self.stretch.get(tabulated, {})
        stretched = stretch.get(regime.names()[1], stretch.get(kind, 1.0))
        column = elsewhere or metric_elsewhere(tabulated)

        def wider(*, slower: bool) -> float:
            factor = stretched * self.unseen(tabulated, regime, kind, column, slower=slower)
            factor = _with_own(factor, tabulated, regime, values)
            if not tabulated.startswith("ttft"):  # of a TTFT two step models were not compared
                factor = _wider(factor, OPINION * math.log(regime.differs), values)
            factor *= CALIBRATED_CURRENT if regime.kind == "calibrated" and regime.current else 1.0
            first = slower and regime.first_support
            return _wider(factor, FIRST_SUPPORT[regime.few_of_vendor], values) if first else factor

        factors = wider(slower=False), wider(slower=True)
        rate = tabulated == "requests_s"  # the slower side of a rate is the other one
        return lambda p: middle + factors[(p < 0.5) != rate] * (interpolated(values, p) - middle)

    def unseen(
        self, metric: str, regime: Regime, kind: str, elsewhere: str, *, slower: bool
    ) -> float:
        """How much wider one side of an interval is for all that was not measured.

        The causes are independent, so their squares add. ``elsewhere`` is a column of
        ``ELSEWHERE``; ``slower`` is the side on which things take longer than predicted.
        """
        gpus = self.unseen_gpu.get(metric, {})
        engine = self.unseen_engine.get(metric, {}).get(kind, UNSEEN_ENGINE)
        causes = (
            (
                regime.known_gpu,
                UNSEEN_OF_VENDOR
                if regime.few_of_vendor
                else gpus.get(kind, gpus.get("static", 1.0)),
            ),
            (regime.known_generation, UNSEEN_GENERATION),
            (
                regime.known_model,
                UNSEEN_MODEL_OF[regime.few_of_vendor, regime.newer_kinds][not slower],
            ),
            (regime.kind == "calibrated" or (regime.known_engine and kind == regime.kind), engine),
            (not regime.before_rows, OLDER_ENGINE),
            (regime.known_format, UNSEEN_FORMAT),
            (regime.known_family, UNSEEN_FAMILY),
            # what its layers do may be as far from the nearest known one
            (regime.known_layout, UNSEEN_FAMILY),
        )
        wider = sum(
            max(factor, LEAST_UNSEEN) ** 2 - 1.0 for measured, factor in causes if not measured
        )
        wider += sum(ELSEWHERE[cause][elsewhere] ** 2 - 1.0 for cause in regime.causes)
        return math.sqrt(1.0 + wider)

    def interval(
        self, metric: str, value: float, regime: Regime, *, share: float = SHARE, noise: float = 0.0
    ) -> tuple[float, float]:
        """Where a measurement is with probability ``share``, for a predicted value of a column such
        as "ttft_ms".

        ``noise`` is the standard error of the prediction itself as a share of it: that of a finite
        run.
        """
        tail = (1 - share) / 2
        high, low = self.log_error(metric, regime, tail), self.log_error(metric, regime, 1 - tail)
        middle = self.log_error(metric, regime, 0.5)
        z = NormalDist().inv_cdf(1 - tail)
        below, above = math.hypot(low - middle, z * noise), math.hypot(middle - high, z * noise)
        return value * math.exp(-middle - below), value * math.exp(-middle + above)


def metric_elsewhere(metric: str) -> str:
    """The column of ``ELSEWHERE`` for a metric of the table."""
    return (
        "ttft_ms"
        if metric.startswith("ttft")
        else "requests_s"
        if metric == "requests_s"
        else "itl_ms"
    )


def _own_loads(metric: str, regime: Regime) -> tuple[float, int] | None:
    """What own terms err by where a load was left out: the root mean square of the metric's
    logarithms, and their number.

    A metric that was not measured has the largest of the others'. The prediction of a load that was
    not used is as uncertain as that of one that was left out, and so is the root mean square of a
    few: hence Student's t.
    """
    if not regime.own_terms or not regime.own:
        return None
    mine = [(rms, n) for name, rms, n in regime.own if name == metric]
    rms, n = mine[0] if mine else max((rms, n) for _, rms, n in regime.own)
    return max(rms, LEAST_OWN), n


def _with_own(factor: float, metric: str, regime: Regime, values: tuple[float, ...]) -> float:
    """The widening, drawn towards what a calibration's own left-out points ask for: the more of
    them, the closer.
    """
    own_error = next(
        ((rms, n) for name, rms, n in regime.own if name == metric and n >= FEWEST_OWN), None
    )
    usual = (values[LEVELS.index(0.9)] - values[LEVELS.index(0.1)]) / (
        2 * NormalDist().inv_cdf(0.9)
    )
    if own_error is None or regime.kind != "calibrated" or usual <= 0:
        return factor
    rms, n = own_error
    pull = OWN_PULL[regime.by_curve]
    return math.sqrt((pull * factor**2 + n * (rms / usual) ** 2) / (pull + n))


OPINION = 0.6
"""The standard deviation that two step models which differ add to a prediction, as a share of the
logarithm of their ratio: where they differ by 20 % or more the root mean square of errors is 0.21
instead of 0.14, with a model left out and in sample alike (docs/fit.md)."""


FIRST_SUPPORT = {False: 0.2, True: 0.46}
"""The same of first support, on the slower side alone, by whether few GPUs of the vendor have rows:
with their model left out 87 % of 177 such points of NVIDIA and 84 % of 157 of AMD are inside
(docs/accuracy.md, 2026-11-28)."""


def _wider(factor: float, more: float, values: tuple[float, ...]) -> float:
    """The widening with a further, independent standard deviation of the logarithm."""
    usual = (values[LEVELS.index(0.9)] - values[LEVELS.index(0.1)]) / (
        2 * NormalDist().inv_cdf(0.9)
    )
    return math.hypot(factor, more / usual) if usual > 0 else factor


def like(metric: str, quantiles: Mapping[str, Any]) -> str | None:
    """The metric of the table that speaks for a column: the column itself, its mean, or a related
    metric.
    """
    quantity = metric.partition("_")[0]
    for name in (metric, f"{quantity}_ms", LIKE.get(quantity, ""), LIKE.get(metric, "")):
        if name in quantiles:
            return name
    return None


def interpolated(values: tuple[float, ...], p: float) -> float:
    """A quantile between or beyond those at ``LEVELS``, linear on the normal scale."""
    z = NormalDist().inv_cdf(min(max(p, 1e-6), 1 - 1e-6))
    place = min(max(bisect_right(SCALE, z) - 1, 0), len(SCALE) - 2)
    share = (z - SCALE[place]) / (SCALE[place + 1] - SCALE[place])
    return values[place] + share * (values[place + 1] - values[place])


@cache
def shipped_residuals() -> Residuals:
    """The table that the package ships.

    Raises DataError: the file is missing, is no JSON, or holds what it may not; one line for each
    fault.
    """
    return residuals_of(
        shipped_json("residuals.json", "reinstall, or write it again with ./fit"),
        "perf/coefficients/residuals.json",
    )


def residuals_of(document: Mapping[str, Any], where: str = "residuals.json") -> Residuals:
    """The table of a document as ``tools.fit`` writes it.

    Raises DataErrors: unknown keys, metrics, regimes or terms, and values of another kind; one line
    each.
    """
    residuals = read_as(Residuals, document, where)
    faults = []
    for group in ("quantiles", "stretch", "unseen_gpu", "unseen_engine"):
        for metric, table in getattr(residuals, group).items():
            unknown = [] if metric in OWN_METRICS else [metric]
            unknown += [
                f"{metric}.{key}" for key in table if not {*key.split(", ")} <= REGIME_WORDS
            ]
            faults += [f"{where}: {group}.{key}: unknown key" for key in unknown]
    for metric, quantiles in residuals.quantiles.items():
        wrong = [key for key, values in quantiles.items() if len(values) != len(LEVELS)]
        faults += [
            f"{where}: quantiles.{metric}.{key}: holds no {len(LEVELS)} quantiles" for key in wrong
        ]
    faults += [
        f"{where}: widths.{name}: unknown key; known here: {', '.join(MULTIPLIERS)}"
        for name in residuals.widths
        if name not in MULTIPLIERS
    ]
    DataErrors.raise_if(faults)
    return residuals
