"""The part of docs/accuracy.md that compares with AIConfigurator, on the rows that it can predict.

Each row has three predictions: ours, AIConfigurator's step times under our scheduler, memory plan
and client, and its own estimate of the whole (``own_estimates.py``). Where a part was left out of
the fit, ours is the held-out error in the fit's report.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.own_estimates import estimate
from tonnage.evidence.predict import MeasuredTable, measured_table
from tonnage.evidence.reasons import HOLDS
from tonnage.evidence.score import ScoredRow, report_of
from tonnage.perf.aiconfigurator import PACKAGE, installed_version
from tonnage.perf.terms_file import shipped
from tonnage.report.measured import METRIC_TITLES as NAMES
from tonnage.spec.catalog import find_engine
from tonnage.spec.step_times import AICONFIGURATOR, StepSource
from tools.fit.silicon.sample import installed_sample
from tools.fit.silicon.table import silicon_table

SILICON = "silicon_sample.csv"
TITLES = {
    "NIM": "nim_inflight.csv",
    "static": "trtllm_static_batch.csv",
    "throughput": "trtllm_throughput.csv",
    "current engines": SILICON,
}
"""The file of the folds whose titles begin with a word."""

WAYS = ("ours", "AIConfigurator's steps, our scheduler", "AIConfigurator's own estimate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row, and what each way predicts by column."""

    row: ScoredRow
    predicted: tuple[dict[str, float], ...]

    def errors(self, metric: str) -> list[float | None]:
        """The size of each way's relative error in percent; None where it predicts nothing."""
        measured = self.row.measured[metric]
        return [
            100 * abs(found[metric] / measured - 1) if metric in found else None
            for found in self.predicted
        ]


def comparison(data: Path, files: Sequence[str]) -> Iterator[str]:
    """The lines of this part of the page."""
    yield ""
    yield "## Beside AIConfigurator"
    yield ""
    version = installed_version()
    if version is None:
        yield (
            f"Not compared: {PACKAGE} is not installed where this page was made; `pip install"
            " 'tonnage[aiconfigurator]'`."
        )
        return
    yield (
        f"{PACKAGE} {version}, with the engine versions that its tables hold today: newer ones than"
        " most rows were measured on."
    )
    yield (
        "Tonnage asks for its step times on a grid and reduces them to its array; under our"
        " scheduler, memory plan and client they"
    )
    yield (
        "predict what the second column of figures says. Its own estimate is `run_static` for"
        " static batches and `run_agg` for closed"
    )
    yield "loops. It infers the formats from the checkpoints itself."
    yield (
        "Only rows count that all of the ways shown predict; peak memory is ours in each and left"
        " out."
    )
    tables = {
        **{name: measured_table(data / name) for name in files},
        SILICON: silicon_table(_sample()),
    }
    compared = {name: list(_compared(table)) for name, table in tables.items()}
    apart = {
        f"{SILICON}, {kind}": list(_compared(table, own=False))
        for kind, table in tables[SILICON].apart.items()
    }
    yield ""
    yield f"| file | rows | metric | {' | '.join(WAYS)} | n |"
    yield "|---" * (len(WAYS) + 4) + "|"
    for name, rows in (compared | apart).items():
        for kind, part in _parts(rows):
            yield from _lines(f"| {name} | {kind}", part)
    yield from _held_out(compared)


def _sample() -> Path:
    sample = installed_sample()
    if sample is None:
        raise SystemExit(f"{SILICON} is not in the installed wheel")
    return sample


def _compared(table: MeasuredTable, *, own: bool = True) -> Iterator[Compared]:
    """Every row that we predict; ``own`` is False where its own estimate does not apply to such
    rows.
    """
    table = replace(table, apart={})
    _, ours = report_of(table)
    _, theirs = report_of(table, step_source=StepSource(name=AICONFIGURATOR))
    steps = {row.line: row.predicted for row in theirs}
    for row in ours:
        yield Compared(
            row=row,
            predicted=(row.predicted, steps.get(row.line, {}), estimate(row.point) if own else {}),
        )


def _parts(rows: Sequence[Compared]) -> list[tuple[str, list[Compared]]]:
    parts: dict[str, list[Compared]] = {"all": list(rows)}
    if any(not c.row.steady for c in rows):
        parts = {"steady": [c for c in rows if c.row.steady]}
    families = {
        family: [c for c in rows if c.row.group["family"] == family]
        for family in ("dense", "moe", "mla")
    }
    found = {family: part for family, part in families.items() if part}
    return [*parts.items(), *(found.items() if len(found) > 1 else ())]


def _metrics(rows: Sequence[Compared]) -> list[str]:
    """The columns that are compared; peak memory does not depend on step times."""
    return [
        m for m in NAMES if m != "peak_gpu_memory_gb" and any(m in c.row.measured for c in rows)
    ]


def _lines(begin: str, rows: Sequence[Compared]) -> Iterator[str]:
    for metric in _metrics(rows):
        errors = [c.errors(metric) for c in rows if metric in c.row.measured and c.predicted[1]]
        ways = [i for i in range(len(WAYS)) if any(e[i] is not None for e in errors)]
        same = [e for e in errors if all(e[i] is not None for i in ways)]
        cells = [
            f"{statistics.fmean(e[i] or 0.0 for e in same):.1f}" if i in ways else "–"
            for i in range(len(WAYS))
        ]
        yield f"{begin} | {NAMES[metric]} | {' | '.join(cells)} | {len(same)} |"


def _held_out(compared: dict[str, list[Compared]]) -> Iterator[str]:
    yield ""
    yield "### Held out, beside AIConfigurator on the same rows"
    yield ""
    yield (
        "MAPE in percent as ours / its steps under our scheduler / its own estimate. Ours was"
        " fitted without these rows;"
    )
    yield (
        "its are over those of them that it can predict, n of all: where it cannot predict all, the"
        " rows are not quite the same."
    )
    yield (
        "Ratio: ours over its own estimate, or over its steps where it has none, of the means; the"
        " target is 0.5 at most."
    )
    for title, folds in shipped().get("report", {}).get("held_out", {}).items():
        file = next((name for begin, name in TITLES.items() if title.startswith(begin)), None)
        if file is not None:
            yield from _table(title, folds, compared[file])


Cell = tuple[float, float | None, float | None]
"""Our error, that by its steps, and that of its own estimate."""


def _table(
    title: str, folds: dict[str, dict[str, float]], rows: Sequence[Compared]
) -> Iterator[str]:
    cells = {
        name: _cells(title, name, ours, rows) for name, ours in folds.items() if name != "mean"
    }
    cells = {name: found for name, found in cells.items() if found}
    if not cells:
        return
    metrics = [m for m in next(iter(folds.values())) if m in NAMES]
    yield ""
    yield f"| {title} | {' | '.join(NAMES[m] for m in metrics)} | n |"
    yield "|---" * (len(metrics) + 2) + "|"
    for name, found in cells.items():
        of = [c for c in rows if _in_fold(c.row, title, name)]
        priced = sum(bool(c.predicted[1]) for c in of)
        yield (
            f"| {name} | {' | '.join(_shown(found.get(m)) for m in metrics)} | {priced} of"
            f" {len(of)} |"
        )
    means = {m: _means([found[m] for found in cells.values() if m in found]) for m in metrics}
    yield f"| mean of these | {' | '.join(_shown(means[m]) for m in metrics)} | |"
    yield f"| ratio | {' | '.join(_ratio(means[m]) for m in metrics)} | |"


def _cells(
    title: str, name: str, ours: dict[str, float], rows: Sequence[Compared]
) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for metric, error in ours.items():
        fits_only = title.startswith("current engines") and metric == "ttft_ms"
        used = [c for c in rows if _in_fold(c.row, title, name) and metric in c.row.measured]
        errors = [c.errors(metric) for c in used if _fits(c.row) or not fits_only]
        steps, own = (_mean([e[i] for e in errors]) for i in (1, 2))
        if steps is not None:
            found[metric] = (error, steps, own)
    return found


def _means(cells: Sequence[Cell]) -> Cell | None:
    if not cells:
        return None
    own = [cell[2] for cell in cells]
    return (
        statistics.fmean(c[0] for c in cells),
        _mean([c[1] for c in cells]),
        None if None in own else _mean(own),
    )


def _shown(cell: Cell | None) -> str:
    return (
        "–"
        if cell is None
        else " / ".join("–" if value is None else f"{value:.1f}" for value in cell)
    )


def _ratio(cell: Cell | None) -> str:
    theirs = None if cell is None else cell[2] if cell[2] is not None else cell[1]
    return "–" if cell is None or not theirs else f"{cell[0] / theirs:.2f}"


def _mean(errors: Sequence[float | None]) -> float | None:
    known = [e for e in errors if e is not None]
    return statistics.fmean(known) if known else None


def _fits(row: ScoredRow) -> bool:
    return row.group.get("cache", HOLDS) == HOLDS


def _in_fold(row: ScoredRow, title: str, name: str) -> bool:
    """Whether a fold of that name leaves the row out: all words of one of its groups are the row's;
    of current engines, of its family.
    """
    group: dict[str, Any] = row.group
    if title.startswith("current engines") and ("MoE" in title) == (group["family"] == "dense"):
        return False
    family = find_engine(group["engine"]).family
    if "vLLM alone" in title and family != "vllm":
        return False
    gpu = group["gpu"]
    words = {
        group["model"],
        gpu,
        gpu.split("-")[0],
        group["precision"],
        f"tp{group['tp']}",
        group["engine"],
        family,
    }
    return row.steady and any(set(part.split()) <= words for part in name.split(" + "))
