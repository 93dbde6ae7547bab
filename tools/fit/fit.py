"""Measured rows to the terms that the package ships, with cross-validation.

All engines share one set of terms of the GPUs, and each generation of engines has its own. Static
batches and the steady rows of NIM are fitted together, and then the throughput of TensorRT-LLM 0.15
joins with its own engine terms (``fitting``). Dense models on current engines follow
(``silicon.dense``), and at last experts and latent attention (``silicon.moe``). The numbers go to
``terms.json``, with the held-out errors under ``report``, and the quantiles of these errors to
``residuals.json``. The solver is scipy's (``requirements/fit.txt``).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.errors import InputError, option
from tonnage.evidence.rows import Progress, Terms
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms_file import checked
from tonnage.simulator.kernel import warm_up
from tools.fit.data import CURVE, CURVE_SOURCE, FILES, curve_rows, measured_bits, read_data
from tools.fit.fitting import Figures, Fitting
from tools.fit.folds import Fold, held_out_folds
from tools.fit.formats import ORIGINS as FORMAT_ORIGINS
from tools.fit.free_terms import free_terms
from tools.fit.prior_widths import Learned
from tools.fit.processes import Processes
from tools.fit.residuals import HeldOut, carried_over, residual_table
from tools.fit.silicon.table import sample_file
from tools.fit.solving import rounded
from tools.fit.terms import DERIVED, NIM, ORIGINS, layout

DATE = "2026-11-21"

CALIBRATED = "NIM, the other five curves of a group that was left out, {} on each curve in turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitReport:
    """The result of a fit.

    Attributes:
        terms: the content of ``terms.json``.
        file: the file that it was written to.
        rows: how many rows of each data file were fitted.
        in_sample, held_out: MAPE in percent by title, by what was scored, and by metric.
    """

    terms: dict[str, Any]
    file: Path
    rows: dict[str, int]
    in_sample: dict[str, dict[str, Figures]]
    held_out: dict[str, dict[str, Figures]]

    def text(self) -> str:
        """The figures as lines of text."""
        lines = [f"{count:,} rows of {name}" for name, count in self.rows.items()]
        lines += [
            f"free terms: {count} {stage}"
            for stage, count in self.terms["report"]["free_terms"].items()
        ]
        for kind, tables in (("in sample", self.in_sample), ("held out", self.held_out)):
            for title, table in tables.items():
                lines.append(f"{kind}: {title}, MAPE in %")
                lines += [
                    f"  {name}: " + ", ".join(f"{m} {v:.1f}" for m, v in figures.items())
                    for name, figures in table.items()
                ]
        return "\n".join([*lines, f"written: {self.file}"])


def fit(
    data: Path | str,
    *,
    output: Path | str | None = None,
    progress: Progress | None = None,
    cross_validate: bool = True,
    silicon: Path | str | None = None,
    modern: Path | str | None = None,
    processes: int = 1,
) -> FitReport:
    """Fit the terms to the measured files of a folder, and write ``terms.json``, ``residuals.json``
    and ``ranges.json``.

    Args:
        data: the folder with the files of ``data.FILES``.
        output: the folder for what is written; the package's own ``perf/coefficients`` if not
            given.
        progress: called with (done, total, name).
        cross_validate: also fit without each of the parts that are held out, which takes most of
            the time.
        silicon: ``silicon_sample.csv``, for the terms of current engines; the file of the installed
            wheel aiconfigurator-core if not given. Where there is none, these terms stay as the
            package ships them.
        modern: ``agg.csv.gz``, for AMD and the kinds of layers of 2026; that of the folder's
            ``modern`` if not given, or none.
        processes: how many parts that are held out are fitted at once, each in a process of its
            own; the numbers are the same.

    Raises:
        InputError: a file is missing or damaged, or scipy is not installed.
    """
    _require_scipy()
    rows = read_data(Path(data))
    warm_up()
    fitting = Fitting(
        rows=rows,
        layout=layout(
            measured_bits([row for part in rows.values() for row in part] + curve_rows())
        ),
    )
    folds = list(held_out_folds(rows)) if cross_validate else []
    report = progress or (lambda done, total, name: None)
    report(0, len(folds) + 1, "all rows")
    final = fitting.everything()
    counts = {FILES[engine]: len(part) for engine, part in rows.items()} | {
        "NVIDIA course, one curve": len(CURVE)
    }
    terms = shipped_form(fitting.layout.terms(final), counts)
    with Processes(processes) as apart:
        held_out, residuals, taught = _left_out(fitting, folds, report, apart)
        terms["report"] = {
            "date": DATE,
            "rows": counts,
            "in_sample": fitting.in_sample(terms),
            "held_out": held_out,
        }
        terms = _with_current_engines(
            terms, silicon, progress, residuals if cross_validate else None, apart
        )
        of_2026 = Path(data) / "modern" / AGG if modern is None else Path(modern)
        more: dict[str, Any] = {
            "silicon": _sample(silicon),
            "earlier": rows,
            "progress": progress,
            "cross_validate": cross_validate,
            "processes": apart,
        }
        terms = _with_modern(terms, Path(data), of_2026, **more)
    terms["report"]["free_terms"] = count_of(terms, widths_of(taught))
    file = _write("terms.json", checked(terms, "terms.json"), output)
    sample = _sample(silicon)
    if sample is not None and of_2026.is_file():
        write_ranges(Path(data), sample, of_2026, output, origins=terms["origins"])
    if residuals:
        table_of_errors = carried_over(
            residual_table(residuals, DATE), shipped_residuals(), "current"
        )
        _write("residuals.json", table_of_errors | {"widths": widths_of(taught)}, output)
    kept = terms["report"]
    return FitReport(
        terms=terms,
        file=file,
        rows=kept["rows"],
        in_sample=kept["in_sample"],
        held_out=kept["held_out"],
    )


def _left_out(
    fitting: Fitting, folds: Sequence[Fold], report: Progress, processes: Processes
) -> tuple[dict[str, dict[str, Figures]], list[HeldOut], Learned | None]:
    """The errors of every fold of the first stage as figures and one by one, and what calibrating
    unseen groups teaches.
    """
    held_out: dict[str, dict[str, Figures]] = {}
    residuals: list[HeldOut] = []

    def say(place: int) -> None:
        report(place + 1, len(folds) + 1, f"{folds[place].title}: without {folds[place].name}")

    results = processes.map(fitting.held_out, folds, say)
    for fold, result in zip(folds, results, strict=True):
        held_out.setdefault(fold.title, {})[fold.name] = result.figures
        residuals += result.errors
    taught: Learned | None = None
    if folds:
        report(len(folds), len(folds) + 1, "NIM, calibrated on one curve")
        without = {
            fold.groups: result.x
            for fold, result in zip(folds, results, strict=True)
            if fold.groups
        }
        if (taught := fitting.calibrated(without, processes)) is not None:
            residuals += taught.errors
            held_out |= {CALIBRATED.format(kind): table for kind, table in taught.scores.items()}
    for title, table in held_out.items():
        table["mean"] = _mean(list(table.values()))
        held_out[title] = table
    return held_out, residuals, taught


def _require_scipy() -> None:
    """Refuse to begin without the solver.

    Raises:
        InputError: scipy is not installed.
    """
    try:
        importlib.import_module("scipy.optimize")
    except ImportError:
        raise InputError(
            "the fit needs scipy: run it by ./fit, or install what requirements/fit.txt names"
        ) from None


def count_of(terms: Terms, widths: Mapping[str, float]) -> dict[str, int]:
    """The number of free terms by stage, that of the shipped fit of memory among them."""
    memory = json.loads((package_folder() / "memory.json").read_text(encoding="utf-8"))
    return free_terms(terms, memory=memory, widths=widths)


def widths_of(taught: Learned | None) -> dict[str, float]:
    """The widths that were learned, or those that the package ships where the rows were too few."""
    return dict(shipped_residuals().widths) if taught is None else taught.widths


def _with_current_engines(
    terms: Terms,
    file_given: Path | str | None,
    progress: Progress | None,
    residuals: list[HeldOut] | None,
    processes: Processes,
) -> Terms:
    """Add the terms of current engines. Their held-out errors are appended to ``residuals``; None
    means that nothing is left out.
    """
    from tools.fit.silicon import dense as current
    from tools.fit.silicon import moe as experts

    file = _sample(file_given)
    if file is None:
        return experts.carried_over(current.carried_over(terms))
    folds: dict[str, Any] = {
        "cross_validate": residuals is not None,
        "residuals": residuals,
        "processes": processes,
    }
    return experts.refit(
        current.refit(terms, file, progress=progress, **folds), file, progress=progress, **folds
    )


def _sample(file_given: Path | str | None) -> Path | None:
    """The file of current engines that is given, or that of the installed wheel; None without
    either. Raises InputError: its name alone is given, and the wheel is not installed.
    """
    from tools.fit.silicon.sample import installed_sample

    return installed_sample() if file_given is None else sample_file(Path(file_given))


def write_ranges(
    data: Path,
    silicon: Path,
    modern: Path,
    output: Path | str | None,
    *,
    origins: Mapping[str, Any],
) -> Path:
    """Write ``ranges.json``: which lengths, loads and hardware the rows are of. Arguments as of
    ``ranges``.

    Raises:
        InputError: a file is missing or damaged, or the folder cannot be written.
    """
    from tools.fit.ranges import ranges

    return _write("ranges.json", ranges(data, silicon, modern, origins=origins), output)


def _with_modern(terms: Terms, data: Path, file: Path, **more: Any) -> Terms:
    """Add what the points of 2026 tell; without the file these terms stay as the package ships
    them.
    """
    from tools.fit.modern.fit import carried_over as kept
    from tools.fit.modern.fit import refit

    if not file.is_file():
        return kept(terms)
    submitted = data / SUBMITTED
    return refit(terms, file, submitted if submitted.is_file() else None, **more)


AGG, SUBMITTED = "agg.csv.gz", "mlperf_v61.csv"


def _mean(tables: Sequence[Figures]) -> Figures:
    return {name: round(float(np.mean([table[name] for table in tables])), 2) for name in tables[0]}


def shipped_form(terms: Terms, counts: dict[str, int]) -> dict[str, Any]:
    """The groups of terms rounded to four digits, with where each comes from under ``origins``."""
    rows = {engine: f"{counts[name]:,} rows of {name}" for engine, name in FILES.items()}
    rows[NIM] += f"; {len(CURVE)} points of {CURVE_SOURCE}"
    rows |= {
        name: f"none of its own; as {giver}, {rows[giver]}" for name, (giver, _) in DERIVED.items()
    }
    engines = {
        name: f"no row of this version; its terms are those of {giver}"
        for name, (giver, _) in DERIVED.items()
    }
    origins = {
        "date": DATE,
        "architectures": dict(ORIGINS),
        "engines": engines,
        "rows": rows,
        "formats": dict(FORMAT_ORIGINS),
    }
    return {**{group: rounded(values) for group, values in terms.items()}, "origins": origins}


def package_folder() -> Path:
    """The folder of the package from which predictions read their coefficients."""
    return Path(str(resources.files("tonnage.perf"))) / "coefficients"


def _write(name: str, document: dict[str, Any], output: Path | str | None) -> Path:
    folder = package_folder() if output is None else Path(output)
    file = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{option('output')}: {file} cannot be written ({error.strerror}); give a folder"
            " that can"
        ) from None
    return file
