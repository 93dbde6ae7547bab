"""Two runs side by side as a document: the ratio of every latency and rate with its interval, then quantile against quantile.

The page draws the quantiles; the terminal prints some of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.report.document import Document, Drawing, Table, Text, items, section
from tonnage.report.drawing.figure import Axis, Plot, Point, Series
from tonnage.report.numbers import ABSENT, between, counted, number, sentence_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.bench.intervals import Comparison, Ratio
    from tonnage.evidence.replay import MetricBeside, RunBesidePlan


LABELS = {"requests_per_second": "requests/s", "output_tokens_per_second": "tokens/s"}
READING = "Each dot is a quantile of both runs. On the line they are alike; above it the second run is slower, and a bend shows where."
FAR_APART = 30
"""Ratio of the largest value to the smallest from which the axes are logarithmic."""
SHOWN = (5, 25, 50, 75, 95, 99)
VERDICTS = {None: ABSENT, True: "differs", False: "alike"}


def two_runs(found: Comparison, first: str, second: str) -> Document:
    """The comparison of the second run with the first, by their names."""
    return Document(
        title="",
        subtitle="",
        sections=(
            section("ratios", "", _ratios(found, first, second)),
            section("quantiles", "", _quantiles(found)),
            section("notes", "", items(tuple(found.notes), "note")),
        ),
    )


def two_runs_page(found: Comparison, first: str, second: str) -> Document:
    """The same as a page, with a quantile–quantile plot for each latency."""
    drawings = (_plot(metric, *pair, first, second) for metric, pair in found.quantiles_ms.items())
    return Document(
        title=f"{second} beside {first}",
        subtitle=f"Ratios are of {second} to {first}.",
        sections=(
            section("ratios", "Ratios", _ratios(found, first, second), items(tuple(found.notes), "note")),
            section("quantiles", "Quantile against quantile", *drawings),
        ),
    )


def _plot(metric: str, ours: Sequence[float], theirs: Sequence[float], first: str, second: str) -> Drawing:
    """The quantiles from 1 % to 99 % of both runs against each other."""
    name, least, most = metric.removesuffix("_ms").upper(), min(ours[0], theirs[0]), max(ours[-1], theirs[-1])
    log = least > 0 and most > FAR_APART * least
    pairs = [(f"p{p}", a, b) for p, (a, b) in enumerate(zip(ours, theirs, strict=True), start=1)]
    points = tuple(Point(x=a, y=b, tip=f"{p} of {name}\n{first} {number(a)} ms\n{second} {number(b)} ms") for p, a, b in pairs)
    alike = tuple(Point(x=value, y=value, tip="") for value in (least, most))
    scale = ", ms (logarithmic)" if log else ", ms"
    rows = tuple((p, number(a), number(b), f"{b / a:.3f}" if a else ABSENT) for p, a, b in pairs)
    return Drawing(
        figure=Plot(
            key=f"quantiles-{name.lower()}",
            title=name,
            x=Axis(title=f"{first}{scale}", log=log),
            y=Axis(title=f"{second}{scale}", log=log),
            series=(
                Series(name="p1 to p99", points=points, tone=0),
                Series(name="alike", points=alike, tone=5, line=True, marks=False),
            ),
        ),
        reading=READING,
        numbers=Table(caption=f"{name} in numbers", header=("quantile", f"{first}, ms", f"{second}, ms", "ratio"), rows=rows, folded=True),
    )


def _ratios(found: Comparison, first: str, second: str) -> Table:
    rows = []
    for ratio in found.ratios:
        label = _label(ratio)
        between = ABSENT if math.isnan(ratio.low) else f"{ratio.low:.3f} to {ratio.high:.3f}"
        rows.append(
            (
                label,
                number(ratio.first),
                number(ratio.second),
                f"{ratio.ratio:.3f}" if math.isfinite(ratio.ratio) else ABSENT,
                between,
                VERDICTS[ratio.differs],
            )
        )
    return Table(caption="", header=("", first, second, "ratio", "0.95", ""), rows=tuple(rows))


def _label(each: Ratio | MetricBeside) -> str:
    """Such as "TTFT p95 ms"; rates and shares have their names."""
    name, latency = each.metric, each.metric.endswith("_ms")
    return f"{name.removesuffix('_ms').upper()} {each.statistic} ms" if latency else LABELS.get(name, name)


def _quantiles(found: Comparison) -> Table:
    rows = []
    for metric, (ours, theirs) in found.quantiles_ms.items():
        pairs = ((ours[p - 1], theirs[p - 1]) for p in SHOWN)
        rows.append((f"{metric.removesuffix('_ms').upper()} ms", *(f"{number(a)} → {number(b)}" for a, b in pairs)))
    return Table(caption="", header=("quantiles", *(f"p{p}" for p in SHOWN)), rows=tuple(rows), spare=("p25", "p75", "p5"))


# A run next to its plan as a document: every metric measured and predicted, then a verdict for each.


LEGEND = (
    "The ratio is predicted / measured. The interval is where a measurement was expected with a probability of 80 %; percentiles other "
    "than TTFT's p95 have that of the errors of the mean (docs/intervals.md). Single gaps (ITL) have none, nor have rates, which are "
    "those that the run sent."
)


def run_and_plan(found: RunBesidePlan, run: str) -> Document:
    """The comparison of a run, by its name, with the plan that it was laid next to."""
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
    label = _label(each)
    ratio = f"{each.ratio:.3f}" if math.isfinite(each.ratio) else ABSENT
    bounds = (each.low, each.high) if math.isfinite(each.low) else None
    return (label, number(each.measured), number(each.predicted), ratio, between(bounds), ABSENT if each.inside is None else _place(each))


def _place(each: MetricBeside) -> str:
    """Where the measurement is: "inside", "below" or "above" the interval."""
    return "inside" if each.inside else "below" if each.measured < each.low else "above"
