"""Values in a notebook: the sections of their report as a piece of HTML, their figures, and their
rows as a table.

``tonnage.notebook`` loads this file by its name when a notebook asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tonnage.report.document import Document, Drawing
from tonnage.report.drawing.figure import Axis, Figure, Plot, Point, Rule, Series
from tonnage.report.numbers import number

if TYPE_CHECKING:
    import pyarrow as pa

    from tonnage.bench.benchmark import Measured
    from tonnage.plan.plan import Plan
    from tonnage.results.requests import Requests
    from tonnage.workload.description import Description


def html_of(value: Any) -> str:
    """A value as HTML that brings its own style, which holds inside of it alone."""
    from tonnage.report.writers.html import drawn, piece

    if isinstance(value, Figure):
        return drawn(_drawing(value))
    return piece(_document(value))


def figures(value: Any) -> dict[str, Figure]:
    """The figures of a value's report by their keys, such as "curve"; a notebook draws each as
    SVG.
    """
    blocks = (block for section in _document(value).sections for block in section.blocks)
    return {block.figure.key: block.figure for block in blocks if isinstance(block, Drawing)}


def plot(
    title: str,
    *,
    x: str,
    y: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    limits: Mapping[str, float] | None = None,
    log: bool = False,
) -> Plot:
    """A user's figure in the form of the report's, such as two measured curves next to each other.

    Args:
        title: above the figure.
        x, y: what the axes show, with the unit.
        lines: the points of each, as (x, y), by its name.
        limits: lines across, by their names.
        log: whether y is logarithmic.
    """
    series = tuple(
        Series(
            name,
            tuple(Point(a, b, f"{name}\n{number(a)} {x}\n{number(b)} {y}") for a, b in points),
            tone=tone,
            line=True,
        )
        for tone, (name, points) in enumerate(lines.items())
    )
    rules = tuple(Rule("y", value, name) for name, value in (limits or {}).items())
    return Plot("plot", title, Axis(x), Axis(y, log=log), series, rules=rules)


def _drawing(figure: Figure) -> Drawing:
    """A figure by itself; of a plot with its numbers, since no other section has them."""
    from tonnage.report.plans.plan_document import points_table

    numbers = (
        points_table(figure, "In numbers")
        if isinstance(figure, Plot) and len(figure.series) <= MOST_COLUMNS
        else None
    )
    return Drawing(figure, "", numbers)


MOST_COLUMNS = 6  # lines of a plot of which a table can be read


# The document of each class, by the class's name: so a notebook that shows a plan loads nothing of
# measurements.


def _document(value: Any) -> Document:
    module, function, *names = DOCUMENTS[type(value).__name__]
    document: Document = getattr(import_module(f"tonnage.report.{module}"), function)(value, *names)
    return document


def _simulated(run: Any) -> Document:
    from tonnage.report.runs.run_document import run_report
    from tonnage.report.runs.shown_run import shown

    return run_report((shown("", run.requests, run.scenario()),))


def _swept(runs: Any) -> Document:
    from tonnage.report.simulated import simulated

    return simulated(runs, drawn=True)


def _point(run: Any) -> dict[str, Any]:
    """A point of a sweep as a row: its settings and load, rates, means and p95."""
    values = run.to_json()
    row = {**run.settings, **{name: values.get(name) for name in ("concurrency", "request_rate")}}
    row |= {name: values[name] for name in ("requests_per_second", "output_tokens_per_second")}
    for name in ("ttft", "tpot", "e2e"):
        row |= {
            f"{name}_ms_{which}": run.summary.statistic_ms(name, which) for which in ("mean", "p95")
        }
    return row


def _measured(run: Measured) -> Document:
    from tonnage.report.runs.run_document import run_report
    from tonnage.report.runs.shown_run import shown

    load = run.load
    arrivals = (
        {"concurrency": load.concurrency}
        if load.concurrency
        else {"rate": load.rate, "process": load.pattern}
    )
    return run_report((shown("", run.requests, {"arrivals": arrivals}, run.run_json),))


# The module and the function that make the document of a value, and what else it takes
DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    "Plan": ("plans.plan_document", "report"),
    "UseCases": ("plans.use_cases", "use_cases_report"),
    "SimulatedRun": ("notebook", "_simulated"),
    "SimulatedSweep": ("notebook", "_swept"),
    "Measured": ("notebook", "_measured"),
    "Comparison": ("measured", "two_runs_page", "the first run", "the second run"),
    "RunBesidePlan": ("measured", "run_and_plan", "the run"),
    "Description": ("workload", "described"),
    "LessonResult": ("simulated", "lesson_page"),
    "ScoreReport": ("scored", "scored"),
    "CalibrationReport": ("scored", "calibrated"),
}


def table_of(value: Any) -> pa.Table:
    """The rows of a value as an Arrow table."""
    return TABLES[type(value).__name__](value)


def _rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(list(map(dict, rows)))


def _deployments(plan: Plan) -> pa.Table:
    """The lines of ``size --csv``: a row for each deployment, the chosen one first."""
    import pyarrow as pa
    from pyarrow import csv

    from tonnage.report.plans.plan_document import plan_csv

    return csv.read_csv(
        pa.BufferReader(plan_csv([plan]).encode()),
        convert_options=csv.ConvertOptions(strings_can_be_null=True),
    )


def _requests(run: Any) -> pa.Table:
    """A row for each request: the columns of requests.parquet, and its latencies, null where it has
    none.
    """
    import numpy as np
    import pyarrow as pa

    from tonnage.results.metrics import counted_rows
    from tonnage.results.store import requests_table

    record: Requests = run.requests
    table, counted = requests_table(record), np.zeros(len(record), dtype=bool)
    counted[counted_rows(record)] = True
    first, last = record.first_token_ns - record.due_ns, record.last_token_ns - record.due_ns
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = (last - first) / (record.osl - 1)
    for name, values, valid in (
        ("ttft_ms", first, counted),
        ("tpot_ms", tpot, counted & (record.osl > 1)),
        ("e2e_ms", last, counted),
    ):
        table = table.append_column(
            name, pa.array(np.where(valid, values / 1e6, np.nan), mask=~valid)
        )
    return table


def _recorded(description: Description) -> pa.Table:
    """A row for each recorded request: seconds since the first, and lengths."""
    import pyarrow as pa

    recording = description.traffic.recording
    return pa.table(
        {
            "due_s": [due / 1e9 for due in recording.due_ns],
            "isl": list(recording.isl),
            "osl": list(recording.osl),
        }
    )


TABLES: Mapping[str, Callable[[Any], pa.Table]] = {
    "Plan": _deployments,
    "SimulatedRun": _requests,
    "SimulatedSweep": lambda runs: _rows(list(map(_point, runs))),
    "Measured": _requests,
    "Comparison": lambda comparison: _rows([ratio.to_json() for ratio in comparison.ratios]),
    "RunBesidePlan": lambda comparison: _rows([metric.to_json() for metric in comparison.metrics]),
    "Description": _recorded,
    "LessonResult": lambda lesson: _rows([asdict(step) for step in lesson.steps]),
}
