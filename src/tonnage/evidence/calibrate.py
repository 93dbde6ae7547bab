"""``tonnage calibrate``: factors on the shipped terms from a user's own measurements, kept only
where they predict better.

Hardware of the user's own, which a file describes, gets its own terms from eight loads or more,
under the same rule.

How far the factors may go is chosen by how well they predict points that they have not seen. Each
point in turn (or each curve of equal lengths, where there are several) is left out, the others are
fitted, and the one that was left out is simulated. A strength that makes any metric of these points
worse on average is not taken. If none remains, the terms stay as shipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tonnage.errors import InputError, in_python, option
from tonnage.evidence.predict import read_point
from tonnage.formats.measured_files import STEADY, is_steady
from tonnage.notebook import Displayed
from tonnage.perf.terms_file import SECONDS, shipped
from tonnage.spec.calibration import OWN_METRICS, SCHEMA, Calibration, deployment_key
from tonnage.spec.catalog import find_engine
from tonnage.spec.hardware import is_hardware_file
from tonnage.units import format_duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.evidence.sample import Fitted, Sample
    from tonnage.results.metrics import TtftParts

    Errors = dict[str, NDArray[np.float64]]


# What a calibration found, and the file that predictions read.


# Posterior over prior width below which the data determined a term, or did so in part
DETERMINED, PARTLY = 0.6, 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport(Displayed):
    """What a calibration found."""

    # what predictions use; it has no factors where the shipped terms predict better
    calibration: Calibration
    kept: bool  # whether it has factors
    own: bool = False  # whether own terms were fitted, not factors on the shipped ones
    # the multiple of the prior's widths that was chosen; 0 where the shipped terms stay
    strength: float
    # the fitted factor of every term, or its value where it is a new one, whether kept or not
    factors: dict[str, float]
    # the width that is left of each, as a share of the prior's: 1 where the points say nothing
    # about it
    shrinkage: dict[str, float]
    # before, after: MAPE in percent by metric over the points that were used, without and with the
    # factors
    before: dict[str, float]
    after: dict[str, float]
    # left_out_before, left_out: the same over points that the factors had not seen
    left_out_before: dict[str, float]
    left_out: dict[str, float]
    units: str  # what was left out in turn: "point", "curve" or, for own terms, "load"
    # points, not_steady: how many points were used, and how many were set aside because they are
    # not steady
    points: int
    not_steady: int
    # the line, load, lengths and errors of each point that was used
    rows: tuple[dict[str, Any], ...]
    # by which of its parts the mean TTFT is off with the shipped terms
    ttft: tuple[TtftError, ...] = ()
    # on what was left out because its own client called it INVALID, or was taken all the same, one
    # sentence each whose options are not spelled yet
    remarks: tuple[str, ...] = ()

    def to_json(self, date: str) -> dict[str, Any]:
        """The content of the file that ``coefficients`` names."""
        c = self.calibration
        return {
            "schema": SCHEMA,
            "preset": c.preset,
            "gpu": c.gpu,
            "multipliers": dict(c.multipliers),
            **({"terms": dict(c.terms)} if self.own else {}),
            "deployments": list(c.deployments),
            "left_out_by": self.units,
            "left_out_errors": {name: {"rms": rms, "points": n} for name, rms, n in c.left_out},
            "data": c.data,
            "date": date,
            "points": self.points,
            "not_steady": self.not_steady,
            "verdict": self.verdict(),
            "remarks": list(map(in_python, self.remarks)),
            "fitted": {
                name: {self._kind: self.factors[name], "posterior_over_prior": self.shrinkage[name]}
                for name in self.shrinkage
            },
            "ttft": {
                ttft_error.part: {
                    name: getattr(ttft_error, name)
                    for name in ("seconds", "predicted", "width", "off")
                }
                for ttft_error in self.ttft
            },
            "residuals": {
                "mape_before": self.before,
                "mape_after": self.after,
                "rows": list(self.rows),
            },
            "loo": {
                "left_out": self.units,
                "strength": self.strength,
                "mape_before": self.left_out_before,
                "mape_after": self.left_out,
            },
        }

    @property
    def _kind(self) -> str:
        """What the numbers of ``factors`` are called."""
        return "value" if self.own else "factor"

    def shown(self, name: str) -> str:
        """The factor or the value of a term for people, such as "×1.03" or "2.07 ms"."""
        value = self.factors[name]
        if not self.own:
            return f"×{value:.3g}"
        return format_duration(value) if name in SECONDS else f"{value:.3g}"

    def verdict(self) -> list[str]:
        """Whether the fit helps, and which terms the data could and could not determine, in
        words.
        """
        lines = []
        if self.kept:
            what = "terms of its own" if self.own else "calibrated"
            lines.append(
                f"{what}: each {self.units} predicted without itself,"
                f" {_change(self.left_out_before, self.left_out)}"
            )
        else:
            old, new = ("transferred", "terms") if self.own else ("shipped", "factors")
            lines.append(
                f"the {old} terms stay: fitted {new} did not predict a left-out {self.units}"
                f" better, {_change(self.left_out_before, self.left_out)}"
            )
        for words, low, high in (
            ("determined", 0.0, DETERMINED),
            ("in part", DETERMINED, PARTLY),
            ("not determined", PARTLY, 1e9),
        ):
            names = [
                f"{n} {self.shown(n)}" if high <= PARTLY else n
                for n in self.shrinkage
                if low <= self.shrinkage[n] < high
            ]
            if names:
                lines.append(f"{words}: {', '.join(names)}")
        return [*lines, *(ttft_error.text for ttft_error in self.ttft if ttft_error.off)]


def _change(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {before[name]:.1f} → {after[name]:.1f} %" for name in after)


# Which part of a measured TTFT is off. The front end takes as long for every request, the steps of
# a prompt grow with its length, and what others cost it grows with the load: so the errors of rows
# at several lengths and loads tell them apart. Least squares on the errors of the mean TTFT, with a
# prior on each part, says by how much.


TtftPart = Literal["front end", "prefill", "queue"]

PRIORS: dict[TtftPart, float] = {"front end": 1.0, "prefill": 0.5, "queue": 0.5}
"""Widths of the priors: of the front end in seconds, of the others as a share: of the steps of
prompts, and of the queue with what other requests in these steps cost."""

WORDS: dict[TtftPart, str] = {
    "front end": "the same for every request, and fitted as frontend_s",
    "prefill": "it grows with the length of prompts",
    "queue": "with what other requests cost, it grows with the load, and with slower steps",
}

SURELY = 2.0  # Standard errors from which on a part is off

FELT = 0.1  # Share of the mean TTFT of some row from which on it is

FRONT_END_WIDTH = 3.0
"""Width of the prior of the front end's factor where the rows say that it is off: the learned one
is that of builds of one engine, and an API server, a proxy or a tokeniser may take a hundred times
as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftError:
    """How far a part of the mean TTFT is off with the shipped terms."""

    part: TtftPart
    seconds: float  # in the mean of the rows; negative where the part is shorter than predicted
    predicted: float  # seconds of it, likewise
    width: float  # standard error of ``seconds``
    off: bool  # whether that is sure, and felt in any row

    @property
    def text(self) -> str:
        """Such as "TTFT: the front end is off, by +148 ms (±3) of a predicted 1.44 in the mean of
        the points; …".
        """
        deviation = (
            f"{1e3 * self.seconds:+.3g} ms (±{1e3 * self.width:.2g}) of a predicted"
            f" {1e3 * self.predicted:.3g}"
        )
        return (
            f"TTFT: the {self.part} is off, by {deviation} in the mean of the points;"
            f" {WORDS[self.part]}"
        )


def ttft_errors(measured: Sequence[float], parts: Sequence[TtftParts]) -> tuple[TtftError, ...]:
    """What the errors of mean TTFTs in ms consist of; ``parts`` are the predicted ones of the same
    rows.
    """
    from tonnage.evidence.rows import SIGMA

    if len(measured) < FEWEST:
        return ()
    ttft = np.array(measured) / 1e3
    component_s = (
        np.array(
            [(part.front_end_ms, part.prefill_ms, part.queue_ms + part.shared_ms) for part in parts]
        )
        / 1e3
    )
    shape = np.column_stack([np.ones(len(ttft)), component_s[:, 1:]])
    weight = 1 / (SIGMA["ttft_ms"] * ttft)
    scaled, error = shape * weight[:, None], (ttft - component_s.sum(axis=1)) * weight
    prior = np.diag([width**-2 for width in PRIORS.values()])
    normal = scaled.T @ scaled + prior
    solution = np.linalg.solve(normal, scaled.T @ error)
    residual = error - scaled @ solution
    scatter = max(1.0, float(residual @ residual) / max(len(ttft) - len(solution), 1))
    widths = np.sqrt(scatter * np.diag(np.linalg.inv(normal))) * shape.mean(axis=0)
    seconds, planned = solution * shape.mean(axis=0), component_s.mean(axis=0)
    sure = (
        (np.abs(seconds) > SURELY * widths)
        & (seconds > -planned)
        & np.any(np.abs(solution * shape) > FELT * ttft[:, None], axis=0)
    )
    return tuple(
        TtftError(
            part=part, seconds=float(more), predicted=float(of), width=float(width), off=bool(off)
        )
        for part, more, of, width, off in zip(PRIORS, seconds, planned, widths, sure, strict=True)
    )


STRENGTHS = (0.5, 1.0)  # The multiples of the prior's widths that are tried, from careful to free

TOLERANCE = 1.0
"""By how many standard errors of the paired differences a metric of the left-out points may be
worse while their sum is better."""

OWN_STRENGTHS, OWN_ROUNDS = (1.0,), 8
"""The same for own terms, whose prior is wide as it is, and how often all rows are simulated on the
way to them."""

FEWEST = 3  # The number of points below which leaving one out says nothing

Progress = Callable[[int, int, str], None]
Row = Mapping[str, Any]


def calibrate(
    rows: Sequence[Row],
    *,
    terms: dict[str, Any] | None = None,
    widths: Mapping[str, float] | None = None,
    data: str,
    own: bool | None = None,
    remarks: Sequence[str] = (),
    progress: Progress | None = None,
) -> CalibrationReport:
    """Fit factors on the shipped terms, or own terms, to measured rows of one engine on one GPU.

    Args:
        rows: as ``formats.measured_files.read_measured`` gives them.
        terms: the groups of ``terms.json`` that are calibrated; the shipped ones if not given.
        widths: the prior's width of the logarithm of each factor; the learned ones of the fit if
            not given.
        data: says in words what the rows are.
        own: whether to fit own terms instead of factors; where the hardware is described by a file
            if not given.
        remarks: on what was left out of the rows, one sentence each, for the report.
        progress: called with (done, total, name).

    Raises:
        InputError: the rows are of several engines or GPUs, or there are too few of them.
    """
    from tonnage.evidence.sample import OwnSample, Sample
    from tonnage.simulator.kernel import warm_up

    # a run folder is simulated with its ramp and its end
    steady = [dict(row) for row in rows if row.get("run") or is_steady(row)]
    count = len(rows) - len(steady)
    too_long = [row for row in steady if not (row.get("run") or _fits(row))]
    if too_long:
        remarks = (
            *remarks,
            (
                f"{len(too_long)} points are left out, because the KV cache holds no request of"
                " their lengths"
            ),
        )
        steady = [row for row in steady if row not in too_long]
    preset, gpu = _one_of_each(steady, len(steady) + count, remarks)
    own = any(is_hardware_file(str(row["gpu"])) for row in steady) if own is None else own
    if own:
        _check_loads(steady)
    warm_up()
    sample: Sample = (
        OwnSample(steady, terms or shipped(), preset=preset, gpu=gpu)
        if own
        else Sample(steady, terms or shipped(), preset=preset, gpu=gpu, widths=widths)
    )
    calibration_report = calibrated(
        sample, data=f"{len(steady)} points of {data}", set_aside=count, progress=progress
    )
    return replace(calibration_report, remarks=tuple(remarks))


def calibrated(
    sample: Sample, *, data: str, set_aside: int = 0, progress: Progress | None = None
) -> CalibrationReport:
    """The same of rows that are checked and read; ``set_aside`` others are not steady."""
    return _Calibrating(sample, data=data, set_aside=set_aside, progress=progress).report()


def _one_of_each(rows: Sequence[Row], rows_before: int, remarks: Sequence[str]) -> tuple[str, str]:
    """The preset and the GPU of the rows. Raises InputError: there are too few rows, or they have
    several presets or GPUs.
    """
    if len(rows) < FEWEST:
        aside = (
            f" ({rows_before - len(rows)} of {rows_before} are not steady: requests/s × E2E /"
            f" clients below {STEADY})"
            if rows_before > len(rows)
            else ""
        )
        out = "".join(f"; {remark.removesuffix('.')}" for remark in remarks)
        raise InputError(
            f"calibrate: {len(rows)} usable points{aside}; give at least {FEWEST} of one"
            f" deployment, better 8 to 10 loads{out}"
        )
    deployments = [read_point(row).deployment for row in rows]
    presets = sorted({find_engine(d.engine).coefficients for d in deployments})
    gpus = sorted({d.gpu.name for d in deployments})
    for kind, names in (("engines", presets), ("GPUs", gpus)):
        if len(names) > 1:
            raise InputError(
                f"calibrate: the points are of several {kind} ({', '.join(names)}); calibrate each"
                " apart"
            )
    return presets[0], gpus[0]


def _fits(row: Row) -> bool:
    """Whether the KV cache holds a request of the row's lengths; a static batch was measured as it
    is.
    """
    from tonnage.perf.memory import memory_plan

    point = read_point(row)
    return (
        point.batch is not None
        or memory_plan(point.deployment).concurrent_requests(point.isl, point.osl) > 0
    )


def _check_loads(rows: Sequence[Row]) -> None:
    """Refuse rows that own terms cannot be fitted to."""
    from tonnage.evidence.sample import FEWEST_LOADS

    if any(row.get("batch") is not None for row in rows):
        raise InputError(
            "calibrate: terms of one's own are fitted to loads, not to static batches; leave out"
            f" {option('own_terms')}"
        )
    if any(row.get(name) is None for row in rows for name in ("ttft_ms", "itl_ms")):
        raise InputError(
            "calibrate: terms of one's own need a mean TTFT and a mean TPOT of every load"
        )
    loads = {
        (row["isl"], row["osl"], row.get("concurrency"), row.get("request_rate")) for row in rows
    }
    if len(loads) < FEWEST_LOADS:
        raise InputError(
            f"calibrate: {len(loads)} different loads; terms of one's own need at least"
            f" {FEWEST_LOADS}, from one client to saturation and better of several lengths"
        )


class _Calibrating:
    """One calibration: the fit of all points, and the fits without each of them."""

    def __init__(
        self, sample: Sample, *, data: str, set_aside: int, progress: Progress | None
    ) -> None:
        from tonnage.evidence.sample import OwnSample

        self.sample, self.data, self.set_aside = sample, data, set_aside
        self.progress = progress or (lambda done, total, name: None)
        self.all = np.ones(len(sample.rows), dtype=bool)
        curves = [
            (row["model"], row["precision"], row["tp"], row["isl"], row["osl"])
            for row in sample.rows
        ]
        several = len(set(curves)) > 1
        self.own = isinstance(sample, OwnSample)
        self.strengths = OWN_STRENGTHS if self.own else STRENGTHS
        self.units = "load" if self.own else "curve" if several else "point"
        labels: list[Any] = curves if self.units == "curve" else list(range(len(curves)))
        self.folds = [np.array([label == out for label in labels]) for out in dict.fromkeys(labels)]
        self.total = len(self.strengths) * (len(self.folds) + 1)
        self.done = 0
        self.ttft = () if self.own else _ttft_errors_of(sample)
        if (
            any(ttft_error.part == "front end" and ttft_error.off for ttft_error in self.ttft)
            and "frontend_s" in sample.names
        ):
            sample.widths[sample.names.index("frontend_s")] = FRONT_END_WIDTH

    def report(self) -> CalibrationReport:
        sample = self.sample
        before = sample.shipped_errors(self.all)
        best, chosen, fits = float("inf"), 0.0, []
        for strength in self.strengths:
            fitted, left_out = self._without_each(strength)
            fits.append((strength, fitted, left_out))
            if _no_metric_worse(before, left_out) and _distance(left_out) < min(
                best, _distance(before)
            ):
                best, chosen = _distance(left_out), strength
        strength, fitted, left_out = next(
            (f for f in fits if f[0] == chosen), min(fits, key=lambda f: _distance(f[2]))
        )
        helps = chosen > 0
        factors = sample.values(fitted.x)
        after = sample.errors(sample.vector(factors), self.all) if helps else before
        errors = (left_out if helps else before).items()
        measured_errors = {
            name: values[np.isfinite(values)] for name, values in errors if name in OWN_METRICS
        }
        deployments = [read_point(row).deployment for row in sample.rows]
        return CalibrationReport(
            calibration=Calibration(
                preset=sample.preset,
                gpu=sample.gpu,
                multipliers=tuple(factors.items()) if helps and not self.own else (),
                terms=tuple(factors.items()) if helps and self.own else (),
                data=self.data,
                deployments=tuple(
                    sorted(
                        {
                            deployment_key(d.model.name, d.precision.name, d.parallelism.tp)
                            for d in deployments
                        }
                    )
                ),
                left_out=tuple(
                    (n, round(float(np.sqrt(np.mean(v**2))), 4), len(v))
                    for n, v in sorted(measured_errors.items())
                    if len(v)
                ),
                by_curve=self.units == "curve",
            ),
            kept=helps,
            own=self.own,
            strength=chosen,
            factors=factors,
            shrinkage={
                name: round(float(value), 3)
                for name, value in zip(fitted.names, fitted.shrinkage, strict=True)
            },
            before=_mape(before),
            after=_mape(after),
            left_out_before=_mape(before),
            left_out=_mape(left_out),
            ttft=self.ttft,
            units=self.units,
            points=len(sample.rows),
            not_steady=self.set_aside,
            rows=tuple(_row(row, i, before, after) for i, row in enumerate(sample.rows)),
        )

    def _without_each(self, strength: float) -> tuple[Fitted, Errors]:
        """The fit of all points, and the errors of each point or curve under the fit without it."""
        from tonnage.evidence.sample import ROUNDS, fit_sample

        rounds = OWN_ROUNDS if self.own else ROUNDS
        fitted = fit_sample(self.sample, self.all, strength=strength, rounds=rounds)
        self._tick()
        errors: Errors = {}
        for out in self.folds:
            without = fit_sample(self.sample, ~out, strength=strength, rounds=0, start=fitted.x)
            for name, values in self.sample.errors(without.x, out).items():
                merged = errors.setdefault(name, np.full(len(self.all), np.nan))
                merged[out] = values[out]
            self._tick()
        return fitted, errors

    def _tick(self) -> None:
        self.done += 1
        self.progress(self.done, self.total, f"without each {self.units}")


def _ttft_errors_of(sample: Sample) -> tuple[TtftError, ...]:
    """The errors of the rows under load that have a mean TTFT."""
    from tonnage.evidence.rows import LoadedRows

    loaded = [
        part.rows
        for part in sample.parts
        if isinstance(part.rows, LoadedRows) and "ttft_ms" in part.rows.measured
    ]
    if not loaded:
        return ()
    measured, parts = loaded[0].measured["ttft_ms"], loaded[0].ttft_parts(sample.terms)
    with_ttft = np.flatnonzero(np.isfinite(measured))
    return ttft_errors(measured[with_ttft].tolist(), [parts[i] for i in with_ttft])


def _mape(errors: Errors) -> dict[str, float]:
    """The mean absolute error of each metric in percent, over the points that have it."""
    return {
        name: round(float(100 * np.nanmean(np.abs(np.expm1(values)))), 3)
        for name, values in errors.items()
    }


def _no_metric_worse(before: Errors, after: Errors) -> bool:
    """Whether no metric's mean error grows by more than its standard error: waves change the TTFT
    of single points by 20 % either way.
    """
    for name, values in before.items():
        finite = np.isfinite(values)
        growth = np.abs(after[name][finite]) - np.abs(values[finite])
        if growth.mean() > growth.std(ddof=1) / np.sqrt(finite.sum()) * TOLERANCE:
            return False
    return True


def _distance(errors: Errors) -> float:
    """The mean error over all metrics, each in units of its believed scatter."""
    from tonnage.evidence.rows import SIGMA

    return float(
        np.mean([np.nanmean(np.abs(values)) / SIGMA[name] for name, values in errors.items()])
    )


def _row(row: Row, place: int, before: Errors, after: Errors) -> dict[str, Any]:
    load = {
        name: row[name]
        for name in ("batch", "concurrency", "request_rate")
        if row.get(name) is not None
    }
    percent = {
        kind: {
            name: round(float(100 * np.expm1(values[place])), 2)
            for name, values in errors.items()
            if np.isfinite(values[place])
        }
        for kind, errors in (("before", before), ("after", after))
    }
    return {
        "line": row.get("line"),
        "model": row["model"],
        "tp": row["tp"],
        "isl": row["isl"],
        "osl": row["osl"],
        **load,
        **percent,
    }
