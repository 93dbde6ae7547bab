"""Box plots of a latency, one box a run, and latency against throughput over the loads of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tonnage.report.document import Drawing, Table
from tonnage.report.drawing.figure import Axis, Box, Boxes, Plot, Point, Series
from tonnage.report.numbers import number
from tonnage.report.runs.bins import Spread, spread
from tonnage.report.runs.words import load_words, verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.report.runs.shown_run import ShownRun

FAR_APART = 30
"""Ratio of the largest value to the smallest from which an axis is logarithmic."""
BOX = "The box holds the middle half of the requests, the line in it is the median, the diamond the mean; the whiskers end at p1 and p99."
SWEPT = (("TTFT mean", "ttft", "mean"), ("TTFT p95", "ttft", "p95"), ("ITL p99", "itl", "p99"), ("E2E mean", "e2e", "mean"))
HEADER = ("load", "requests/s", "output tokens/s", *(f"{name}, ms" for name, _, _ in SWEPT), "verdict")
CURVE = "More load means more requests in a batch: throughput grows until the server is full, and so does every latency."


def boxes(runs: Sequence[ShownRun], key: str, name: str, values: Callable[[ShownRun], NDArray[np.float64]]) -> Drawing | None:
    """One box for each run; None where no request completed."""
    found = [(load_words(run), spread(values(run))) for run in runs if run.rows.size]
    if not found:
        return None
    least, most = min(s.p1 for _, s in found), max(s.p99 for _, s in found)
    log = least > 0 and most > FAR_APART * least
    drawn = tuple(_box(load, name, s) for load, s in found)
    axis = Axis(title=f"{name}, ms{' (logarithmic)' if log else ''}", log=log)
    header = ("load", "requests", "mean, ms", "p1", "p25", "p50", "p75", "p99")
    rows = tuple((load, f"{s.count:,}", *map(number, (s.mean, s.p1, s.p25, s.p50, s.p75, s.p99))) for load, s in found)
    return Drawing(
        figure=Boxes(key=key, title=name, axis=axis, boxes=drawn),
        reading=BOX,
        numbers=Table(caption=f"{name} in numbers", header=header, rows=rows, folded=True),
    )


def _box(load: str, name: str, s: Spread) -> Box:
    values = (("p1", s.p1), ("p25", s.p25), ("p50", s.p50), ("p75", s.p75), ("p99", s.p99), ("mean", s.mean))
    tip = "\n".join([f"{name}, {load}", f"{s.count:,} requests", *(f"{label} {number(value)} ms" for label, value in values)])
    return Box(name=load, p1=s.p1, p25=s.p25, p50=s.p50, p75=s.p75, p99=s.p99, mean=s.mean, tip=tip)


def swept(runs: Sequence[ShownRun]) -> Drawing:
    """Latency against throughput, one point a load, joined in the order of the loads."""
    series = tuple(_swept(runs, *each, tone=tone) for tone, each in enumerate(SWEPT))
    plot = Plot(
        key="sweep",
        title="Latency against throughput",
        x=Axis(title="completed requests per second"),
        y=Axis(title="latency, ms (logarithmic)", log=True),
        series=tuple(one for one in series if one.points),
    )
    return Drawing(figure=plot, reading=CURVE, numbers=loads_table(runs))


def _swept(runs: Sequence[ShownRun], name: str, metric: str, statistic: str, *, tone: int) -> Series:
    points = []
    for run in runs:
        value, rate = getattr(getattr(run.summary, f"{metric}_ms"), statistic), run.summary.requests_per_second
        if value is not None and value > 0 and rate > 0:
            tip = f"{load_words(run)}\n{name} {number(value)} ms\n{number(rate)} requests/s\n{verdict(run)}"
            points.append(Point(x=rate, y=value, tip=tip))
    return Series(name=name, points=tuple(points), tone=tone, line=True)


def loads_table(runs: Sequence[ShownRun]) -> Table:
    """One row for each load."""
    rows = []
    for run in runs:
        s = run.summary
        values = (getattr(getattr(s, f"{metric}_ms"), statistic) for _, metric, statistic in SWEPT)
        rows.append(
            (load_words(run), number(s.requests_per_second), number(s.output_tokens_per_second), *map(number, values), verdict(run))
        )
    return Table(caption="The loads in numbers", header=HEADER, rows=tuple(rows), spare=("output tokens/s", "TTFT mean, ms"))
