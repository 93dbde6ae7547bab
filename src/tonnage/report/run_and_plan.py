"""A run beside its plan as a document: every metric measured and predicted, then a verdict for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Table, Text
from tonnage.report.numbers import ABSENT, between, counted, number, sentence_of

if TYPE_CHECKING:
    from tonnage.validation.replay import MetricBeside, RunBesidePlan

LABELS = {"requests_per_second": "requests/s", "output_tokens_per_second": "tokens/s"}
LEGEND = (
    "The ratio is predicted / measured. The interval is where a measurement was expected with a probability of 80 %; percentiles other "
    "than TTFT's p95 have that of the errors of the mean (docs/intervals.md). Single gaps (ITL) have none, nor have rates, which are "
    "those that the run sent."
)


def run_and_plan(found: RunBesidePlan, run: str) -> Document:
    """The comparison of a run, by its name, with the plan that it was laid beside."""
    verdicts = tuple(verdict(found, metric) for metric in ("ttft_ms", "tpot_ms", "e2e_ms"))
    notes = (*map(sentence_of, found.notes), *map(sentence_of, found.marks), LEGEND)
    return Document(
        title="",
        subtitle="",
        sections=(
            section("replayed", "", Text(text=_replayed(found, run))),
            section("metrics", "", _table(found)),
            section("verdicts", "", items(verdicts)),
            section("notes", "", items(notes, "note")),
        ),
    )


def verdict(found: RunBesidePlan, metric: str) -> str:
    """Where the measurements of a metric lie, in one line; "" where no interval is known."""
    by_place: dict[str, list[str]] = {}
    for each in found.metrics:
        if each.metric == metric and each.inside is not None:
            by_place.setdefault(_place(each), []).append(each.statistic)
    name = metric.removesuffix("_ms").upper()
    if not by_place:
        return ""
    if set(by_place) == {"inside"}:
        return f"{name} is inside the interval of its prediction: {', '.join(by_place['inside'])}."
    outside = "; ".join(f"{place}: {', '.join(statistics)}" for place, statistics in by_place.items())
    return f"{name} is outside the interval of its prediction ({outside})."


def _replayed(found: RunBesidePlan, run: str) -> str:
    d = found.deployment
    stages = f" pp{d.parallelism.pp}" if d.parallelism.pp > 1 else ""
    instance = f"{d.model.name} {d.precision.name} on {d.gpu.name} {d.parallelism.label}{stages}, {d.engine}"
    fleet = f"{found.instances} instances behind {found.router}" if found.router else "1 instance"
    return f"{counted(found.requests, 'request')} of {run}, replayed on {fleet} of {instance}"


def _table(found: RunBesidePlan) -> Table:
    header = ("", "measured", "predicted", "ratio", "80 % interval", "")
    return Table(caption="", header=header, rows=tuple(map(_row, found.metrics)))


def _row(each: MetricBeside) -> tuple[str, ...]:
    label = LABELS.get(each.metric, f"{each.metric.removesuffix('_ms').upper()} {each.statistic} ms")
    ratio = f"{each.ratio:.3f}" if math.isfinite(each.ratio) else ABSENT
    bounds = (each.low, each.high) if math.isfinite(each.low) else None
    return (label, number(each.measured), number(each.predicted), ratio, between(bounds), ABSENT if each.inside is None else _place(each))


def _place(each: MetricBeside) -> str:
    """Where the measurement lies: "inside", "below" or "above" the interval."""
    return "inside" if each.inside else "below" if each.measured < each.low else "above"
