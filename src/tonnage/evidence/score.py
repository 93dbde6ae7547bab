"""Predictions against a measured table: every row is predicted, and the errors are grouped.

A closed-loop row is not steady when requests/s × mean E2E / clients is below 0.95 (Little's law).
Such rows count in ``overall`` and once more by themselves.
"""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, UnknownName, in_python, option
from tonnage.evidence.predict import (
    Measured,
    MeasuredTable,
    Point,
    joules_per_token,
    measured_table,
    reported_metrics,
    simulated,
)
from tonnage.evidence.reasons import cache_group, reason
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import is_steady
from tonnage.formats.table import MEASURES, RATIO
from tonnage.notebook import Displayed
from tonnage.perf.measured_steps import check_source, reduction, source_mark
from tonnage.perf.prediction_error import intervals_of, regime_of
from tonnage.perf.residuals import Regime
from tonnage.perf.terms_file import calibration_mark
from tonnage.results.metrics import Attained, attained
from tonnage.results.store import read_run
from tonnage.spec.calibration import Calibration
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Slo
from tonnage.spec.step_times import StepSource, owner_of
from tonnage.spec.workload import MANY_CLIENTS

# How far predictions are off, in percent of the measured values, by metric.


SCORED = tuple(name for name in MEASURES if name not in ("request_rate", "burstiness", "window_s"))
"""The measured columns that are compared, in their order."""

Errors = dict[str, "ErrorOf"]  # By the name of the measured column


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorOf:
    """How far the predictions of one metric are off, in percent of the measured values."""

    mape: float  # mean of the sizes of the errors
    median_ape: float  # median of these sizes
    bias: float  # mean of the errors with their signs
    n: int  # how many errors there are


def errors_of(rows: Iterable[Mapping[str, float]]) -> Errors:
    """The errors over some rows (signed, relative, in percent) by metric, in the order of the
    columns, without metrics that no row has.
    """
    by_metric: dict[str, list[float]] = {}
    for row in rows:
        for name, error in row.items():
            by_metric.setdefault(name, []).append(error)
    return {name: _error_of(by_metric[name]) for name in SCORED if name in by_metric}


def _error_of(errors: Sequence[float]) -> ErrorOf:
    sizes = [abs(error) for error in errors]
    return ErrorOf(
        mape=statistics.fmean(sizes),
        median_ape=statistics.median(sizes),
        bias=statistics.fmean(errors),
        n=len(errors),
    )


def errors_json(errors: Errors) -> dict[str, dict[str, float | int]]:
    """The errors as JSON values."""
    return {name: asdict(error) for name, error in errors.items()}


# A measured row next to its prediction.


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """One row that was predicted."""

    line: int  # its number in the file, or its position, from 1
    point: Point  # the row with its names looked up
    # measured, predicted: values by column, for the columns that were measured
    measured: dict[str, float]
    predicted: dict[str, float]
    steady: bool  # False for a closed loop that was not steady
    # by column, the bounds between which the measurement was expected with a probability of 80 %
    intervals: dict[str, tuple[float, float]]
    # joint attainment, measured and predicted, by limit; empty without limits or single requests
    attained: tuple[tuple[Attained, Attained], ...] = ()

    @property
    def errors(self) -> dict[str, float]:
        """Signed relative error by column, in percent."""
        return {
            name: 100.0 * (self.predicted[name] / value - 1.0)
            for name, value in self.measured.items()
            if name in self.predicted
        }

    @property
    def group(self) -> dict[str, str]:
        """What the row belongs to, by kind of group."""
        d, p = self.point.deployment, self.point
        regime, cache = self.regime, cache_group(p)
        split = d.parallelism
        stages = f" pp{split.pp}" if split.pp > 1 else ""
        name = " × ".join((d.model.name, d.gpu.name, d.precision.name, f"{split.label}{stages}"))
        family = "mla" if d.model.has_latent_cache else "moe" if d.model.is_moe else "dense"
        return {
            "family": family,
            "model": d.model.name,
            "gpu": d.gpu.name,
            "precision": d.precision.name,
            "tp": str(d.parallelism.tp),
            "engine": d.engine,
            "load": p.load,
            "lengths": f"{p.isl}/{p.osl}",
            "regime": regime.load if regime.load == "open" else f"{regime.load}, {regime.mix}",
            **({"cache": cache} if cache else {}),
            "deployment": name,
        }

    @property
    def regime(self) -> Regime:
        """The regime of errors that the row belongs to."""
        p = self.point
        return regime_of(
            p.deployment,
            isl=p.isl,
            osl=p.osl,
            batch=p.batch,
            clients=p.concurrency,
            burst=p.at_once,
        )

    @property
    def worst_metric(self) -> str:
        """The metric with the largest error; empty where nothing was compared."""
        return max(self.errors, key=lambda name: abs(self.errors[name]), default="")

    @property
    def reason(self) -> str:
        """What decides that metric, and what of it was not fitted, in words."""
        return reason(self.point, self.worst_metric, steady=self.steady)

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values: its place, what was measured, and its numbers."""
        p = self.point
        load = {"batch": p.batch, "concurrency": p.concurrency, "request_rate": p.request_rate}
        where = {kind: self.group[kind] for kind in ("model", "gpu", "precision", "engine")}
        return {
            "line": self.line,
            **where,
            **p.deployment.parallelism.degrees,
            "isl": p.isl,
            "osl": p.osl,
            **{name: value for name, value in load.items() if value is not None},
            "steady": self.steady,
            "errors": self.errors,
            "measured": self.measured,
            "predicted": {name: self.predicted[name] for name in self.errors},
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            "reason": self.reason,
            **(
                {
                    "attained": [
                        {"measured": m.to_json(), "predicted": p.to_json()}
                        for m, p in self.attained
                    ]
                }
                if self.attained
                else {}
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that could not be predicted, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttainedErrors:
    """How far predicted shares of requests that meet joint limits are from the measured ones, over
    the rows with single requests.
    """

    limits: str  # in words
    n: int  # rows
    # measured, predicted: mean shares
    measured: float
    predicted: float
    off: float  # mean size of the differences of shares, in percentage points
    bias: float  # mean of the differences with their signs, in percentage points
    # percent of the rows whose predicted share is inside the 95 % interval of the measured one
    inside: float
    # errors of the requests per second that meet them; None where no row has any
    goodput: ErrorOf | None


def attained_errors(rows: Iterable[ScoredRow]) -> tuple[AttainedErrors, ...]:
    """The errors of joint attainment, by limit in the order of the question."""
    by_limit: dict[str, list[tuple[Attained, Attained]]] = {}
    for row in rows:
        for pair in row.attained:
            by_limit.setdefault(pair[0].limits, []).append(pair)
    limit_errors = []
    for limits, pairs in by_limit.items():
        points = [100 * (predicted.share - measured.share) for measured, predicted in pairs]
        rates = [
            100 * (p.requests_per_second / m.requests_per_second - 1)
            for m, p in pairs
            if m.requests_per_second > 0
        ]
        limit_errors.append(
            AttainedErrors(
                limits=limits,
                n=len(pairs),
                measured=statistics.fmean(measured.share for measured, _ in pairs),
                predicted=statistics.fmean(predicted.share for _, predicted in pairs),
                off=statistics.fmean(map(abs, points)),
                bias=statistics.fmean(points),
                inside=100 * statistics.fmean(m.low <= p.share <= m.high for m, p in pairs),
                goodput=_error_of(rates) if rates else None,
            )
        )
    return tuple(limit_errors)


# How good the predictions of a measured table are.


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreReport(Displayed):
    """How good the predictions of a measured table are."""

    # rows, predicted: how many rows the table has, and how many of them were predicted
    rows: int
    predicted: int
    overall: Errors  # errors over all predicted rows
    # steady, not_steady: the same over the steady rows and over the others
    steady: Errors
    not_steady: Errors
    # share of the measured values inside their 80 % intervals, in percent, by metric
    coverage: dict[str, float]
    # errors by kind of group (family, model, gpu, precision, tp, engine, load, lengths, regime,
    # cache, deployment) and name
    groups: dict[str, dict[str, Errors]]
    worst: tuple[ScoredRow, ...]  # the rows with the largest error of any metric, largest first
    # names that are in no catalog, by kind ("model", "GPU", …), with the number of rows that have
    # them
    unknown: dict[str, dict[str, int]]
    skipped: tuple[Skipped, ...]  # the rows that were not predicted
    # what was left out of account, one sentence each; options in them are not spelled yet
    remarks: tuple[str, ...] = ()
    # reports of rows of another kind, by the name of the kind; nothing above counts these rows
    apart: Mapping[str, ScoreReport] = field(default_factory=dict)
    # errors of joint attainment, where limits on it were given
    attained: tuple[AttainedErrors, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {
            "rows": self.rows,
            "predicted": self.predicted,
            "overall": errors_json(self.overall),
            "steady": errors_json(self.steady),
            "not_steady": errors_json(self.not_steady),
            "coverage": self.coverage,
            "groups": {
                kind: {name: errors_json(e) for name, e in named.items()}
                for kind, named in self.groups.items()
            },
            "worst": [row.to_json() for row in self.worst],
            "unknown": self.unknown,
            "skipped": [{"line": s.line, "reason": s.reason} for s in self.skipped],
            "remarks": list(map(in_python, self.remarks)),
            **(
                {"attained": [asdict(attained_errors) for attained_errors in self.attained]}
                if self.attained
                else {}
            ),
            **(
                {"apart": {kind: report.to_json() for kind, report in self.apart.items()}}
                if self.apart
                else {}
            ),
        }


# Takes the rows done, the rows in all, and what was predicted last
Progress = Callable[[int, int, str], None]


def score(
    measured: Measured,
    *,
    known_values: Mapping[str, str | int] | None = None,
    worst: int = 10,
    progress: Progress | None = None,
    workers: int | None = None,
    calibration: Calibration | None = None,
    step_source: StepSource | None = None,
    invalid: InvalidRuns | None = None,
    slo: Slo = (),
) -> ScoreReport:
    """Predict every row of a measured table and compare.

    Args:
        measured, given, invalid: as in ``measured_table``.
        worst: how many of the worst rows to keep.
        progress: called in the calling thread after each row.
        workers: threads; one per core if not given.
        step_source: whose step times the predictions use; the fitted terms if not given.
        slo: joint attainment that is compared too, of the rows that are run folders.

    Raises:
        InputError: the file cannot be read as such a table; the message names file, line and
            column.
    """
    table = replace(measured_table(measured, known_values, invalid=invalid), slo=slo)
    if slo and not any(row.get("run") for row in table.rows):
        raise InputError(
            f"{option('attain')}: no row has single requests; score run folders, which tonnage"
            " bench and import write"
        )
    return report_of(
        table,
        worst=worst,
        progress=progress,
        workers=workers,
        calibration=calibration,
        step_source=step_source,
    )[0]


def report_of(
    table: MeasuredTable,
    *,
    worst: int = 10,
    progress: Progress | None = None,
    workers: int | None = None,
    calibration: Calibration | None = None,
    step_source: StepSource | None = None,
) -> tuple[ScoreReport, list[ScoredRow]]:
    """Do the same as ``score`` for a table that was read before; also return every row that was
    predicted.
    """
    points, skipped, unknown = _look_up(table, calibration, step_source)
    check_source(
        step_source, calibration, len({owner_of(point.deployment) for point in points.values()})
    )
    scored, more = _predict_all(table, points, progress, workers or os.cpu_count() or 1)
    report = ScoreReport(
        rows=len(table.rows),
        predicted=len(scored),
        overall=errors_of(row.errors for row in scored),
        steady=errors_of(row.errors for row in scored if row.steady),
        not_steady=errors_of(row.errors for row in scored if not row.steady),
        coverage=_coverage(scored),
        groups=_groups(scored),
        worst=tuple(
            sorted(
                scored,
                key=lambda row: max(map(abs, row.errors.values()), default=0.0),
                reverse=True,
            )[: max(worst, 0)]
        ),
        unknown={kind: dict(names.most_common()) for kind, names in unknown.items()},
        skipped=tuple(sorted((*skipped, *more), key=lambda s: s.line)),
        remarks=(
            *table.remarks,
            *_calibrated(points.values()),
            *_reduced(scored),
            *_in_step(scored if table.by_lengths else ()),
        ),
        apart={
            kind: report_of(
                rows,
                worst=worst,
                progress=progress,
                workers=workers,
                calibration=calibration,
                step_source=step_source,
            )[0]
            for kind, rows in table.apart.items()
        },
        attained=attained_errors(scored),
    )
    return report, scored


def _in_step(rows: Iterable[ScoredRow]) -> tuple[str, ...]:
    """That requests of equal length may fall into step, in one sentence, where rows are predicted
    under a load of many of them.
    """
    points = [row.point for row in rows if row.point.drawn is None]
    in_step = [
        point
        for point in points
        if point.load == "open" or (point.concurrency or 0) >= MANY_CLIENTS
    ]
    if not in_step:
        return ()
    isl, osl = (f"{option(name)} {getattr(in_step[0], name)}+-20%" for name in ("isl", "osl"))
    count, verb = ("1 row", "is") if len(in_step) == 1 else (f"{len(in_step)} rows", "are")
    return (
        (
            f"{count} of open loops or of {MANY_CLIENTS} clients or more {verb} predicted for"
            " requests of exactly the stated lengths, which may end together and wait for one"
            f" another; where they were drawn, write isl as {in_step[0].isl}+-20%, or a column"
            f" {RATIO}; simulate with {isl} {osl} says how much that changes."
        ),
    )


def _reduced(scored: Iterable[ScoredRow]) -> tuple[str, ...]:
    """One sentence on how well the step times of another source were reduced; none for the fitted
    terms.
    """
    deployments = {
        owner_of(row.point.deployment): row.point.deployment
        for row in scored
        if row.point.deployment.step_source
    }
    if not deployments:
        return ()
    if len(deployments) == 1:
        return tuple(f"{source_mark(d)}." for d in deployments.values())
    reductions = [reduction(d) for d in deployments.values()]
    decode, prefill = (
        statistics.fmean(getattr(r, part) for r in reductions)
        for part in ("decode_mape", "prefill_mape")
    )
    name = next(d.step_source.name for d in deployments.values() if d.step_source is not None)
    return (
        (
            f"step times of {name}: those of {len(reductions)} deployments,"
            f" {sum(r.steps for r in reductions):,} steps, were reduced with an error of"
            f" {decode:.1f} % in decode steps and {prefill:.1f} % in steps with prefill; the front"
            " end is the preset's."
        ),
    )


def _calibrated(points: Iterable[Point]) -> tuple[str, ...]:
    """What a calibration does to the rows, in one sentence for each kind of effect."""
    deployments = [point.deployment for point in points]
    marks = Counter(calibration_mark(d, find_engine(d.engine).coefficients) for d in deployments)
    return tuple(f"{count} rows {mark}." for mark, count in marks.items() if mark)


def _look_up(
    table: MeasuredTable, calibration: Calibration | None, step_source: StepSource | None
) -> tuple[dict[int, Point], list[Skipped], dict[str, Counter[str]]]:
    points: dict[int, Point] = {}
    skipped: list[Skipped] = []
    unknown: dict[str, Counter[str]] = {}
    for index, row in enumerate(table.rows):
        try:
            point = table.point(index)
            deployment = replace(point.deployment, calibration=calibration, step_source=step_source)
            points[index] = replace(point, deployment=deployment)
        except UnknownName as error:
            unknown.setdefault(error.kind, Counter())[error.name] += 1
            skipped.append(Skipped(line=_line(row, index), reason=str(error)))
        except InputError as error:
            skipped.append(Skipped(line=_line(row, index), reason=str(error)))
    return points, skipped, unknown


def _line(row: Mapping[str, Any], index: int) -> int:
    return int(row.get("line") or index + 1)


def _predict_all(
    table: MeasuredTable, points: Mapping[int, Point], progress: Progress | None, workers: int
) -> tuple[list[ScoredRow], list[Skipped]]:
    """Predict the rows in threads, because the simulator holds no interpreter lock, and return them
    in order.
    """
    if any(point.load != "static" for point in points.values()):
        from tonnage.simulator.kernel import warm_up

        warm_up()
    scored_rows: dict[int, ScoredRow | Skipped] = {}
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = {pool.submit(_score_row, table, i, point): i for i, point in points.items()}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                scored_rows[futures[future]] = future.result()
                if progress is not None:
                    progress(done, len(futures), points[futures[future]].deployment.model.name)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    ordered = [scored_rows[i] for i in sorted(scored_rows)]
    return [r for r in ordered if isinstance(r, ScoredRow)], [
        r for r in ordered if isinstance(r, Skipped)
    ]


def _score_row(table: MeasuredTable, index: int, point: Point) -> ScoredRow | Skipped:
    row, line = table.rows[index], _line(table.rows[index], index)
    measured = {name: float(row[name]) for name in SCORED if row.get(name) is not None}
    try:
        record = simulated(point) if table.slo and row.get("run") and point.batch is None else None
        predicted = table.predict(index, point) if record is None else reported_metrics(record)
    except InputError as error:
        return Skipped(line=line, reason=str(error))
    if not predicted:
        return Skipped(
            line=line,
            reason=(
                "no request completes: the KV cache does not hold one, or the window ends before"
            ),
        )
    compared = {name: predicted[name] for name in measured if name in predicted}
    regime = regime_of(
        point.deployment,
        isl=point.isl,
        osl=point.osl,
        batch=point.batch,
        clients=point.concurrency,
        burst=point.at_once,
    )
    intervals = intervals_of(compared, regime)
    joules = (
        joules_per_token(point, {**predicted, **measured})
        if "joules_per_token" in measured
        else None
    )
    if joules is not None:
        compared["joules_per_token"], *bounds = joules
        intervals["joules_per_token"] = (bounds[0], bounds[1])
    both = () if record is None else (read_run(Path(row["run"])).requests, record)
    pairs = zip(*(attained(requests, table.slo) for requests in both), strict=True)
    return ScoredRow(
        line=line,
        point=point,
        measured=measured,
        predicted=compared,
        steady=is_steady(row),
        intervals=intervals,
        attained=tuple((ours, theirs) for ours, theirs in pairs),
    )


def _coverage(rows: Sequence[ScoredRow]) -> dict[str, float]:
    """The share of steady rows inside their intervals by metric, in percent; no other rows were
    held out.
    """
    covered: dict[str, list[bool]] = {}
    for row in rows:
        for name, (low, high) in row.intervals.items():
            if row.steady:
                covered.setdefault(name, []).append(low <= row.measured[name] <= high)
    return {name: 100.0 * statistics.fmean(covered[name]) for name in SCORED if name in covered}


def _groups(rows: Sequence[ScoredRow]) -> dict[str, dict[str, Errors]]:
    members: dict[str, dict[str, list[ScoredRow]]] = {}
    for row in rows:
        for kind, name in row.group.items():
            members.setdefault(kind, {}).setdefault(name, []).append(row)
    return {
        kind: {name: errors_of(row.errors for row in named[name]) for name in sorted(named)}
        for kind, named in members.items()
    }
