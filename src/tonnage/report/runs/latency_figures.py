"""Box plots of a latency, one box a run, and latency against throughput over the loads of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.report.document import Drawing, Table, charted
from tonnage.report.drawing.figure import Axis, Box, Boxes, Cell, Cloud, HeatMap, Plot, Point, Scatter, Series, log_ticks, nice_ticks
from tonnage.report.numbers import number, plain
from tonnage.report.runs.shown_run import load_words, verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.report.runs.shown_run import ShownRun

    Lengths = NDArray[np.int64] | NDArray[np.float64]


FAR_APART = 50  # ratio of the largest value to the smallest from which bins grow with the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How values are spread; all in their own unit."""

    count: int
    mean: float
    p1: float
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Values whose place lies from ``low`` on and below ``high``; in the last bin ``high`` is included."""

    # low, high: edges
    low: float
    high: float
    middle: float  # the mean place of what is in it
    spread: Spread

    @property
    def words(self) -> str:
        """Such as "1,000–1,200"."""
        return between_edges(self.low, self.high)


def between_edges(low: float, high: float) -> str:
    """A bin in words; one value alone where nothing else fits into it."""
    return plain(low) if high - low <= 1 and low == round(low) else f"{plain(low)}–{plain(high)}"


def edges(values: NDArray[np.float64] | NDArray[np.int64], most: int) -> tuple[float, ...]:
    """Round edges that hold all values, about ``most`` bins; values of 1 and more that are far apart get bins that grow."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return (low, low + 1)
    return log_ticks(low, high, most) if low >= 1 and high > FAR_APART * low else nice_ticks(low, high, most)


def spread(values: NDArray[np.float64]) -> Spread:
    """Mean and percentiles of at least one value."""
    p1, p25, p50, p75, p95, p99 = (float(v) for v in np.percentile(values, (1, 25, 50, 75, 95, 99)))
    return Spread(count=int(values.size), mean=float(values.mean()), p1=p1, p25=p25, p50=p50, p75=p75, p95=p95, p99=p99)


def binned(places: NDArray[np.float64] | NDArray[np.int64], values: NDArray[np.float64], bounds: tuple[float, ...]) -> Iterator[Bin]:
    """The bins that hold anything, in order."""
    which = np.clip(np.searchsorted(bounds, places, side="right") - 1, 0, len(bounds) - 2)
    for place in range(len(bounds) - 1):
        inside = which == place
        if inside.any():
            middle = float(places[inside].mean())
            yield Bin(low=bounds[place], high=bounds[place + 1], middle=middle, spread=spread(values[inside]))


def every_nth(values: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of the values, evenly taken."""
    return values if values.size <= most else values[np.linspace(0, values.size - 1, most).astype(np.int64)]


LOADS_FAR_APART = 30  # ratio of the largest value to the smallest from which an axis is logarithmic
BOX = "The box holds the middle half of the requests, the line in it is the median, the diamond the mean; the whiskers end at p1 and p99."
SWEPT = (("TTFT mean", "ttft", "mean"), ("TTFT p95", "ttft", "p95"), ("ITL p99", "itl", "p99"), ("E2E mean", "e2e", "mean"))
HEADER = ("load", "requests/s", "output tokens/s", *(f"{name}, ms" for name, _, _ in SWEPT), "verdict")
CURVE = "More load means more requests in a batch: throughput grows until the server is full, and so does every latency."


def boxes(runs: Sequence[ShownRun], key: str, name: str, latency: str) -> Drawing | None:
    """One box for each run of its "ttft_ms" or "e2e_ms"; None where no request completed."""
    found = [(load_words(run), spread(getattr(run, latency))) for run in runs if run.rows.size]
    if not found:
        return None
    least, most = min(s.p1 for _, s in found), max(s.p99 for _, s in found)
    log = least > 0 and most > LOADS_FAR_APART * least
    drawn = tuple(_box(load, name, s) for load, s in found)
    axis = Axis(f"{name}, ms{' (logarithmic)' if log else ''}", log=log)
    header = ("load", "requests", "mean, ms", "p1", "p25", "p50", "p75", "p99")
    rows = tuple((load, f"{s.count:,}", *map(number, (s.mean, s.p1, s.p25, s.p50, s.p75, s.p99))) for load, s in found)
    return charted(Boxes(key, name, axis, drawn), BOX, f"{name} in numbers", header, rows)


def _box(load: str, name: str, s: Spread) -> Box:
    values = (("p1", s.p1), ("p25", s.p25), ("p50", s.p50), ("p75", s.p75), ("p99", s.p99), ("mean", s.mean))
    tip = "\n".join([f"{name}, {load}", f"{s.count:,} requests", *(f"{label} {number(value)} ms" for label, value in values)])
    return Box(name=load, p1=s.p1, p25=s.p25, p50=s.p50, p75=s.p75, p99=s.p99, mean=s.mean, tip=tip)


def swept(runs: Sequence[ShownRun]) -> Drawing:
    """Latency against throughput, one point a load, joined in the order of the loads."""
    series = tuple(one for tone, each in enumerate(SWEPT) if (one := _swept(runs, *each, tone=tone)).points)
    x, y = Axis("completed requests per second"), Axis("latency, ms (logarithmic)", log=True)
    return Drawing(Plot("sweep", "Latency against throughput", x, y, series), CURVE, loads_table(runs))


def _swept(runs: Sequence[ShownRun], name: str, metric: str, statistic: str, *, tone: int) -> Series:
    points = []
    for run in runs:
        value, rate = getattr(getattr(run.summary, f"{metric}_ms"), statistic), run.summary.requests_per_second
        if value is not None and value > 0 and rate > 0:
            tip = f"{load_words(run)}\n{name} {number(value)} ms\n{number(rate)} requests/s\n{verdict(run)}"
            points.append(Point(rate, value, tip))
    return Series(name, tuple(points), tone=tone, line=True)


def loads_table(runs: Sequence[ShownRun]) -> Table:
    """One row for each load."""
    rows = []
    for run in runs:
        s = run.summary
        values = (getattr(getattr(s, f"{metric}_ms"), statistic) for _, metric, statistic in SWEPT)
        rows.append((load_words(run), *map(number, (s.requests_per_second, s.output_tokens_per_second, *values)), verdict(run)))
    return Table(caption="The loads in numbers", header=HEADER, rows=tuple(rows), spare=("output tokens/s", "TTFT mean, ms"))


BINS = 12
DOTS = 2_000  # dots of a scatter plot at most; of more requests an even share is drawn
SCATTER = "Each dot is a request; the line joins the means of prompts of like length."


def heat_map(run: ShownRun) -> Drawing | None:
    """How many requests have which lengths; None where none completed."""
    return heat_map_of(run.isl, run.osl) if run.rows.size else None


def heat_map_of(isl: Lengths, osl: Lengths) -> Drawing:
    """How many of the pairs have which lengths; there is one pair at least."""
    columns, rows = edges(isl, BINS), edges(osl, BINS)
    counts, _, _ = np.histogram2d(isl, osl, bins=(columns, rows))
    cells = tuple(_cell(int(i), int(j), int(counts[i, j]), columns, rows) for i, j in np.argwhere(counts > 0))
    x, y = "prompt length, tokens", "output length, tokens"
    header = (f"{x} ↓, {y} →", *(between_edges(a, b) for a, b in itertools.pairwise(rows)))
    table = tuple(
        (between_edges(columns[i], columns[i + 1]), *(f"{int(count):,}" if count else "" for count in counts[i]))
        for i in range(len(columns) - 1)
        if counts[i].any()
    )
    heat = HeatMap("lengths", "Prompt lengths and output lengths", Axis(x), Axis(y), columns=columns, rows=rows, cells=cells)
    return charted(heat, "Darker cells hold more requests.", "Requests by their lengths", header, table)


def _cell(column: int, row: int, count: int, columns: tuple[float, ...], rows: tuple[float, ...]) -> Cell:
    prompt, output = between_edges(columns[column], columns[column + 1]), between_edges(rows[row], rows[row + 1])
    share = f"{count:,} request{'s' if count != 1 else ''}"
    return Cell(column=column, row=row, count=count, tip=f"{share}\nprompts of {prompt} tokens\noutputs of {output} tokens")


def ttft_by_prompt(run: ShownRun, trends: Mapping[str, Any]) -> Drawing | None:
    """TTFT against prompt length, with the straight line whose slope is its ms per 1,000 prompt tokens."""
    if not run.rows.size:
        return None
    chosen = every_nth(np.arange(run.rows.size), DOTS)
    ttft, isl = run.ttft_ms, run.isl
    dots = tuple((float(x), float(y)) for x, y in zip(isl[chosen], ttft[chosen], strict=True))
    found = tuple(binned(isl, ttft, edges(isl, BINS)))
    tip = "prompts of {} tokens\n{:,} requests\nTTFT mean {} ms\np95 {} ms"
    tips = (tip.format(b.words, b.spread.count, number(b.spread.mean), number(b.spread.p95)) for b in found)
    means = tuple(Point(b.middle, b.spread.mean, words) for b, words in zip(found, tips, strict=True))
    trend = straight_line(trends["ttft_ms_per_1000_prompt_tokens"], float(isl.min()), float(isl.max()))
    series = (Series("mean of like prompts", means, tone=1, line=len(means) > 1), *trend)
    rows = tuple((b.words, f"{b.spread.count:,}", *map(number, (b.spread.mean, b.spread.p50, b.spread.p95))) for b in found)
    x, y, clouds = Axis("prompt length, tokens"), Axis("time to first token, ms"), (Cloud("one request", dots, 0),)
    plot = Scatter("ttft-by-prompt", "Time to first token against prompt length", x, y, series, clouds=clouds)
    header = ("prompt tokens", "requests", "TTFT mean, ms", "p50", "p95")
    return charted(plot, SCATTER, "Time to first token by prompt length", header, rows)


def straight_line(trend: Mapping[str, float] | None, low: float, high: float) -> tuple[Series, ...]:
    """The line of a trend from ``low`` to ``high`` tokens; none without one."""
    if trend is None:
        return ()
    points = tuple(Point(x, trend["at_zero"] + trend["slope"] * x / 1e3, "") for x in (low, high))
    return (Series(f"straight line, {number(trend['slope'])} ms per 1,000 tokens", points, tone=5, line=True, marks=False),)
