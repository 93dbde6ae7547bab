"""Token-to-token latency against the position in the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tonnage.bench.trends import positions_of_gaps
from tonnage.report.document import Drawing, Table
from tonnage.report.drawing.figure import Axis, Cloud, Point, Scatter, Series
from tonnage.report.numbers import ABSENT, number
from tonnage.report.runs.bins import every_nth
from tonnage.results.metrics import gap_percentile_ns
from tonnage.results.requests import POSITION_BUCKETS, gap_edges_ns

if TYPE_CHECKING:
    from tonnage.report.runs.shown_run import ShownRun

REQUESTS, DOTS = 300, 2_000
"""Requests whose gaps are drawn, and dots, at most: an even share of all."""
READING = "How long each token came after the one before it. The lines are the mean and the 99th percentile of all gaps around a position."


def gaps_by_position(run: ShownRun, trends: Mapping[str, Any]) -> Drawing | None:
    """The gaps of a run by output position; None where the record holds none."""
    gaps, places = run.requests.gaps, [float(place) for place in positions_of_gaps(run.osl)]
    used = [b for b in range(POSITION_BUCKETS) if gaps[b].any()]
    if not used:
        return None
    middles = gap_edges_ns() * 1.005 / 1e6
    means = {b: float((gaps[b] * middles).sum() / gaps[b].sum()) for b in used}
    highs = {b: gap_percentile_ns(gaps[b : b + 1], 99.0) / 1e6 for b in used}
    counts = {b: int(gaps[b].sum()) for b in used}
    tips = {b: _tip(b, counts[b], means[b], highs[b]) for b in used}
    series = [
        Series(name=name, points=tuple(Point(x=places[b], y=of[b], tip=tips[b]) for b in used), tone=tone, line=len(used) > 1)
        for name, of, tone in (("mean", means, 1), ("p99", highs, 3))
    ]
    line = trends["itl_ms_per_1000_output_tokens"]
    if line is not None:
        ends = (1.0, float(run.osl.max()))
        points = tuple(Point(x=x, y=line["at_zero"] + line["slope"] * x / 1e3, tip="") for x in ends)
        series.append(
            Series(name=f"straight line, {number(line['slope'])} ms per 1,000 tokens", points=points, tone=5, line=True, marks=False)
        )
    rows = tuple((_range(b), f"{counts[b]:,}", number(means[b]), number(highs[b])) for b in used)
    dots = _dots(run)
    return Drawing(
        figure=Scatter(
            key="gaps-by-position",
            title="Token-to-token latency against output position",
            x=Axis(title="position in the output, tokens"),
            y=Axis(title="token-to-token latency, ms"),
            series=tuple(series),
            clouds=(Cloud(name="one gap", dots=dots, tone=0),) if dots else (),
        ),
        reading=READING,
        numbers=Table(
            caption="Token-to-token latency by output position",
            header=("after token", "gaps", "mean, ms", "p99, ms"),
            rows=rows,
            folded=True,
        ),
    )


def _range(bucket: int) -> str:
    return f"{2**bucket:,}" if bucket == 0 else f"{2**bucket:,}–{2 ** (bucket + 1) - 1:,}"


def _tip(bucket: int, count: int, mean: float, high: float) -> str:
    gaps = f"{count:,} gaps" if count else ABSENT
    return f"after token {_range(bucket)}\n{gaps}\nmean {number(mean)} ms\np99 {number(high)} ms"


def _dots(run: ShownRun) -> tuple[tuple[float, float], ...]:
    """Position and latency of single gaps: of tokens that came in one event, the gap before it in equal parts."""
    import numpy as np

    if run.tokens is None:
        return ()
    starts = np.concatenate([[0], np.cumsum(run.tokens.lengths)])
    positions, gaps = [np.zeros(0, np.int64)], [np.zeros(0)]
    for row in every_nth(run.rows, REQUESTS):
        moments, held = np.unique(run.tokens.offsets_ns[starts[row] : starts[row + 1]], return_counts=True)
        positions.append(np.cumsum(held)[:-1])
        gaps.append(np.diff(moments) / held[1:] / 1e6)
    places, values = np.concatenate(positions), np.concatenate(gaps)
    chosen = every_nth(np.arange(places.size), DOTS)
    return tuple((float(x), float(y)) for x, y in zip(places[chosen], values[chosen], strict=True))
