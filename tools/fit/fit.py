"""``python -m tools.fit``: measured rows to the terms that the package ships, with cross-validation.

One set of GPU terms for everything, engine terms per generation (``terms``). Static batches and
NIM's steady rows are fitted together, then the throughput of TensorRT-LLM 0.15 joins with its own
engine terms. What is left out is chosen here, before anything is scored: whole NIM groups, whole
models and whole GPUs of the static file, half of the models of the throughput file. The numbers go
to ``terms.json``, the held-out errors with them under ``report``, their quantiles to ``residuals.json``.

Rows: all of ``trtllm_static_batch.csv`` and ``trtllm_throughput.csv``, the steady rows of
``nim_inflight.csv``, and the ten points of ``CURVE``. It needs scipy (``requirements/fit.txt``).
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.calibration.loaded_rows import LoadedRows
from tonnage.calibration.residuals import Terms
from tonnage.calibration.rows import Progress, Rows, errors
from tonnage.calibration.static_rows import StaticRows
from tonnage.errors import InputError, option
from tonnage.perf.formats import fitted_bits
from tonnage.perf.prediction_error import shipped_residuals
from tonnage.results.measured_rows import read_measured
from tonnage.results.points import is_steady
from tonnage.simulator.kernel import warm_up
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.precision import find_precision
from tools.fit.formats import ORIGINS as FORMAT_ORIGINS
from tools.fit.free_terms import free_terms
from tools.fit.prior_widths import Learned, learned
from tools.fit.residuals import HeldOut, carried_over, held_out_rows, residual_table
from tools.fit.solving import rounded, solve
from tools.fit.terms import CURRENT, DERIVED, NIM, ORIGINS, STATIC, Layout, layout

DATE = "2026-11-21"

FILES = {STATIC: "trtllm_static_batch.csv", NIM: "nim_inflight.csv", CURRENT: "trtllm_throughput.csv"}

WEIGHTS = {STATIC: 0.35, NIM: 1.0, CURRENT: 1.0}
"""Of a residual: the many static rows are strongly alike."""


CURVE_SOURCE = "NVIDIA course Sizing LLM Inference Systems, NIM benchmarks: Llama-3-8B, H100, FP8, TP 1, 2000 in, 200 out"
CURVE = (
    (1, 34.683, 0.838544, 216),
    (2, 48.783, 1.617597, 216),
    (5, 125.293, 3.274742, 216),
    (10, 220.845, 5.195428, 216),
    (25, 489.486, 8.843420, 216),
    (50, 702.891, 11.132425, 216),
    (100, 883.644, 12.990076, 216),
    (150, 975.301, 13.314868, 288),
    (200, 1136.807, 13.367180, 288),
    (250, 1163.412, 13.827163, 288),
)
"""Clients, mean TTFT in ms, requests/s, and the window in seconds (inferred, as in the NIM file)."""

CALIBRATED = "NIM, the other five curves of a group that was left out, {} on each curve in turn"

Row = dict[str, Any]
Figures = dict[str, float]
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport:
    """What a fit gave.

    Attributes:
        terms: the content of ``terms.json``.
        file: where it was written.
        rows: rows per data file that were fitted.
        in_sample, held_out: MAPE in percent by title, by what was scored, by metric.
    """

    terms: dict[str, Any]
    file: Path
    rows: dict[str, int]
    in_sample: dict[str, dict[str, Figures]]
    held_out: dict[str, dict[str, Figures]]

    def text(self) -> str:
        """The figures as lines."""
        lines = [f"{count:,} rows of {name}" for name, count in self.rows.items()]
        lines += [f"free terms: {count} {stage}" for stage, count in self.terms["report"]["free_terms"].items()]
        for kind, tables in (("in sample", self.in_sample), ("held out", self.held_out)):
            for title, table in tables.items():
                lines.append(f"{kind}: {title}, MAPE in %")
                lines += [f"  {name}: " + ", ".join(f"{m} {v:.1f}" for m, v in figures.items()) for name, figures in table.items()]
        return "\n".join([*lines, f"written: {self.file}"])


def fit(
    data: Path | str,
    *,
    output: Path | str | None = None,
    progress: Progress | None = None,
    cross_validate: bool = True,
    silicon: Path | str | None = None,
) -> FitReport:
    """Fit the terms to the measured files of a folder and write ``terms.json``.

    Args:
        data: folder with the files of ``FILES``.
        output: folder for ``terms.json``; the package's own ``perf/coefficients`` if not given.
        progress: called with (done, total, name).
        cross_validate: also fit without each of the parts that are held out; takes most of the time.
        silicon: ``silicon_sample.csv``, for the terms of current engines; that of the installed wheel aiconfigurator-core
            if not given, and the terms that the package ships where there is none.

    Raises:
        InputError: a file is missing or damaged, or scipy is not installed.
    """
    _require_scipy()
    rows = {engine: read_measured(Path(data) / name) for engine, name in FILES.items()}
    rows[NIM] = [row for row in rows[NIM] if is_steady(row)]
    warm_up()
    fitting = Fitting(rows=rows, layout=layout(_measured([row for part in rows.values() for row in part] + curve_rows())))
    folds = list(held_out_folds(rows)) if cross_validate else []
    report = progress or (lambda done, total, name: None)
    report(0, len(folds) + 1, "all rows")
    final = fitting.everything()
    held_out: dict[str, dict[str, Figures]] = {}
    residuals: list[HeldOut] = []
    for number, fold in enumerate(folds, start=1):
        report(number, len(folds) + 1, f"{fold.title}: without {fold.name}")
        found, found_errors = fitting.held_out(fold)
        held_out.setdefault(fold.title, {})[fold.name] = mape_of(found_errors)
        residuals += held_out_rows(found.points, found_errors, unseen_gpu=fold.title.endswith("a GPU left out"))
    taught: Learned | None = None
    if folds:
        report(len(folds), len(folds) + 1, "NIM, calibrated on one curve")
        if (taught := fitting.calibrated()) is not None:
            residuals += taught.errors
            held_out |= {CALIBRATED.format(kind): table for kind, table in taught.scores.items()}
    for title, table in held_out.items():
        table["mean"] = _mean(list(table.values()))
        held_out[title] = table
    counts = {FILES[engine]: len(part) for engine, part in rows.items()} | {"NVIDIA course, one curve": len(CURVE)}
    terms = shipped_form(fitting.layout.terms(final), counts)
    in_sample = fitting.in_sample(terms)
    terms["report"] = {"date": DATE, "rows": counts, "in_sample": in_sample, "held_out": held_out}
    terms = _with_current_engines(terms, silicon, progress, residuals if cross_validate else None)
    terms["report"]["free_terms"] = count_of(terms, widths_of(taught))
    file = _write("terms.json", terms, output)
    if residuals:
        table_of_errors = carried_over(residual_table(residuals, DATE), shipped_residuals(), "current")
        _write("residuals.json", table_of_errors | {"widths": widths_of(taught)}, output)
    kept = terms["report"]
    return FitReport(terms=terms, file=file, rows=kept["rows"], in_sample=kept["in_sample"], held_out=kept["held_out"])


def _require_scipy() -> None:
    """Refuse to begin without the solver.

    Raises:
        InputError: scipy is not installed.
    """
    try:
        importlib.import_module("scipy.optimize")
    except ImportError:
        raise InputError("the fit needs scipy: run it by ./fit, or install what requirements/fit.txt names") from None


def count_of(terms: Terms, widths: Mapping[str, float]) -> dict[str, int]:
    """The number of free terms by stage (``free_terms``), with the shipped fit of memory."""
    memory = json.loads((package_folder() / "memory.json").read_text(encoding="utf-8"))
    return free_terms(terms, memory=memory, widths=widths)


def widths_of(taught: Learned | None) -> dict[str, float]:
    """The widths that were learned; those that the package ships where the rows were too few."""
    return dict(shipped_residuals().widths) if taught is None else taught.widths


def _with_current_engines(terms: Terms, file_given: Path | str | None, progress: Progress | None, residuals: list[HeldOut] | None) -> Terms:
    """The terms with those of current engines; their held-out errors are appended to ``residuals``, None for no folds."""
    from tools.fit.silicon import dense as current
    from tools.fit.silicon import moe as experts
    from tools.fit.silicon.sample import installed_sample

    file = installed_sample() if file_given is None else Path(file_given)
    if file is None:
        return experts.carried_over(current.carried_over(terms))
    folds: dict[str, Any] = {"cross_validate": residuals is not None, "residuals": residuals}
    return experts.refit(current.refit(terms, file, progress=progress, **folds), file, progress=progress, **folds)


def curve_rows() -> list[Row]:
    """``CURVE`` as rows of a measured table."""
    what = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1, "isl": 2000, "osl": 200, "engine": "nim"}
    names = ("concurrency", "ttft_ms", "requests_s", "window_s")
    return [{**what, **dict(zip(names, point, strict=True))} for point in CURVE]


def _bits(row: Row) -> str:
    return fitted_bits(find_gpu(row["gpu"]).executes(find_precision(row["precision"])))


def _measured(rows: Iterable[Row]) -> set[tuple[str, str]]:
    return {(find_gpu(row["gpu"]).name, _bits(row)) for row in rows}


def _group(row: Row) -> tuple[str, str, str, int]:
    return row["model"], row["gpu"], row["precision"], row["tp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One part left out: fitted on ``train`` by engine, scored on ``test`` of one engine."""

    title: str
    name: str
    engine: str
    train: dict[str, list[Row]]
    test: list[Row]


def held_out_folds(rows: dict[str, list[Row]]) -> Iterable[Fold]:
    """What is left out, in turn; the ten points of ``CURVE`` are in no training part."""
    groups = sorted({_group(row) for row in rows[NIM]})
    for k, title in ((1, "NIM, one group left out"), (2, "NIM, two of four groups left out")):
        for out in itertools.combinations(groups, k):
            name = " + ".join(f"{m} {g.split('-')[0]} {p} tp{tp}" for m, g, p, tp in out)
            train = {STATIC: rows[STATIC], NIM: [row for row in rows[NIM] if _group(row) not in out]}
            yield Fold(title=title, name=name, engine=NIM, train=train, test=[row for row in rows[NIM] if _group(row) in out])
    yield Fold(
        title="NIM, a curve that no row of its precision and TP was fitted to",
        name="llama-3-8b h100 fp8 tp1",
        engine=NIM,
        train={STATIC: rows[STATIC], NIM: rows[NIM]},
        test=curve_rows(),
    )
    for column, title in (("model", "static batches, a model left out"), ("gpu", "static batches, a GPU left out")):
        for name in sorted({row[column] for row in rows[STATIC]}):
            train = {STATIC: [row for row in rows[STATIC] if row[column] != name]}
            yield Fold(title=title, name=name, engine=STATIC, train=train, test=[row for row in rows[STATIC] if row[column] == name])
    models = sorted({row["model"] for row in rows[CURRENT]})
    for half in (models[::2], models[1::2]):
        train = {CURRENT: [row for row in rows[CURRENT] if row["model"] not in half]}
        test = [row for row in rows[CURRENT] if row["model"] in half]
        yield Fold(
            title="throughput, engine terms fitted on the other models", name=" + ".join(half), engine=CURRENT, train=train, test=test
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The rows of a fit and the terms it moves."""

    rows: dict[str, list[Row]]
    layout: Layout

    def everything(self) -> Vector:
        """The final vector: all rows of all engines, at last with the throughput's."""
        parts = _parts(self.rows)
        parts.append((WEIGHTS[NIM], LoadedRows(curve_rows())))
        return solve(self.layout, parts, self.layout.start, self.layout.free(FILES))

    def held_out(self, fold: Fold) -> tuple[Rows, dict[str, Vector]]:
        """What a fold leaves out, and the signed relative errors of every metric of it."""
        if fold.engine == CURRENT:
            without = {engine: part for engine, part in self.rows.items() if engine != CURRENT}
            start = solve(self.layout, _parts(without), self.layout.start, self.layout.free((STATIC, NIM)))
            x = solve(self.layout, _parts(fold.train), start, self.layout.only(CURRENT))
        else:
            x = solve(self.layout, _parts(fold.train), self.layout.start, self.layout.free(fold.train))
        rows = rows_of(fold.engine, fold.test)
        return rows, errors(rows, self.layout.terms(x))

    def calibrated(self) -> Learned | None:
        """What calibrating NIM groups that the terms have not seen teaches."""

        @cache
        def terms_without(out: tuple[tuple[Any, ...], ...]) -> Terms:
            train = {STATIC: self.rows[STATIC], NIM: [row for row in self.rows[NIM] if _group(row) not in out]}
            return self.layout.terms(solve(self.layout, _parts(train), self.layout.start, self.layout.free(train)))

        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows[NIM]:
            groups.setdefault(_group(row), []).append(row)
        return learned(groups, terms_without)

    def in_sample(self, terms: Terms) -> dict[str, dict[str, Figures]]:
        """MAPE in percent with the final terms, dense and experts apart where a file has both."""
        found: dict[str, dict[str, Figures]] = {}
        for engine, rows in self.rows.items():
            families = {"all": rows}
            families |= {name: [r for r in rows if find_model(r["model"]).is_moe == moe] for name, moe in (("dense", False), ("moe", True))}
            found[FILES[engine]] = {name: mape(rows_of(engine, part), terms) for name, part in families.items() if part}
        return found


def rows_of(engine: str, rows: Sequence[Row]) -> Rows:
    """Rows of one engine as residuals."""
    return StaticRows(rows) if engine == STATIC else LoadedRows(rows)


def _parts(rows: dict[str, list[Row]]) -> list[tuple[float, Rows]]:
    return [(WEIGHTS[engine], rows_of(engine, part)) for engine, part in rows.items()]


def mape(rows: Rows, terms: Terms) -> Figures:
    """Mean absolute error of every measured metric, in percent."""
    return mape_of(errors(rows, terms))


def mape_of(found: dict[str, Vector]) -> Figures:
    """The same of signed relative errors."""
    return {name: round(float(100 * np.nanmean(np.abs(values))), 2) for name, values in found.items()}


def _mean(tables: Sequence[Figures]) -> Figures:
    return {name: round(float(np.mean([table[name] for table in tables])), 2) for name in tables[0]}


def shipped_form(terms: Terms, counts: dict[str, int]) -> dict[str, Any]:
    """The groups rounded to four digits, with where they come from."""
    rows = {engine: f"{counts[name]:,} rows of {name}" for engine, name in FILES.items()}
    rows[NIM] += f"; {len(CURVE)} points of {CURVE_SOURCE}"
    rows |= {name: f"none of its own; as {giver}, {rows[giver]}" for name, (giver, _) in DERIVED.items()}
    engines = {name: f"no row of this version; its terms are those of {giver}" for name, (giver, _) in DERIVED.items()}
    origins = {"date": DATE, "architectures": dict(ORIGINS), "engines": engines, "rows": rows, "formats": dict(FORMAT_ORIGINS)}
    return {**{group: rounded(values) for group, values in terms.items()}, "origins": origins}


def package_folder() -> Path:
    """Where the package keeps what it ships: the folder that ``perf.terms`` reads."""
    return Path(str(resources.files("tonnage.perf"))) / "coefficients"


def _write(name: str, document: dict[str, Any], output: Path | str | None) -> Path:
    folder = package_folder() if output is None else Path(output)
    file = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{option('output')}: {file} cannot be written ({error.strerror}); give a folder that can") from None
    return file
