"""The figures of runs: latencies as boxes, over loads, lengths and the time of a run; single
requests; what the server said of itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.bench.steady import positions_of_gaps
from tonnage.report.document import Drawing, Table, charted
from tonnage.report.drawing.figure import (
    Axis,
    Box,
    Boxes,
    Cell,
    Cloud,
    Gantt,
    HeatMap,
    Lane,
    Plot,
    Point,
    Scatter,
    Series,
    Span,
    log_ticks,
    nice_ticks,
)
from tonnage.report.numbers import number, plain
from tonnage.report.runs.shown_run import Readings, ShownRun, load_words, verdict
from tonnage.results.metrics import gap_percentile_ns
from tonnage.results.requests import COMPLETED, POSITION_BUCKETS, STATUS_NAMES, gap_edges_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Lengths = NDArray[np.int64] | NDArray[np.float64]


FAR_APART = 50  # ratio of the largest value to the smallest from which bins grow with the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The spread of some values, in their own unit."""

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
    """Values whose place is from ``low`` on and below ``high``; in the last bin ``high`` is
    included.
    """

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


def edges(values: NDArray[np.float64] | NDArray[np.int64], bins: int) -> tuple[float, ...]:
    """Round edges that hold all values, about ``bins`` bins; values of 1 and more that are far
    apart get bins that grow.
    """
    low, high = float(values.min()), float(values.max())
    if low == high:
        return (low, low + 1)
    return (
        log_ticks(low, high, bins)
        if low >= 1 and high > FAR_APART * low
        else nice_ticks(low, high, bins)
    )


def spread(values: NDArray[np.float64]) -> Spread:
    """Mean and percentiles of at least one value."""
    p1, p25, p50, p75, p95, p99 = (float(v) for v in np.percentile(values, (1, 25, 50, 75, 95, 99)))
    return Spread(
        count=int(values.size),
        mean=float(values.mean()),
        p1=p1,
        p25=p25,
        p50=p50,
        p75=p75,
        p95=p95,
        p99=p99,
    )


def binned(
    places: NDArray[np.float64] | NDArray[np.int64],
    values: NDArray[np.float64],
    bounds: tuple[float, ...],
) -> Iterator[Bin]:
    """The bins that hold anything, in order."""
    which = np.clip(np.searchsorted(bounds, places, side="right") - 1, 0, len(bounds) - 2)
    for place in range(len(bounds) - 1):
        inside = which == place
        if inside.any():
            middle = float(places[inside].mean())
            yield Bin(
                low=bounds[place],
                high=bounds[place + 1],
                middle=middle,
                spread=spread(values[inside]),
            )


def every_nth(values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most ``count`` of the values, evenly spaced."""
    return (
        values
        if values.size <= count
        else values[np.linspace(0, values.size - 1, count).astype(np.int64)]
    )


LOADS_FAR_APART = 30  # ratio of the largest value to the smallest from which an axis is logarithmic
BOX = (
    "The box holds the middle half of the requests, the line in it is the median, the diamond the"
    " mean; the whiskers end at p1 and p99."
)
SWEPT = (
    ("TTFT mean", "ttft", "mean"),
    ("TTFT p95", "ttft", "p95"),
    ("ITL p99", "itl", "p99"),
    ("E2E mean", "e2e", "mean"),
)
HEADER = (
    "load",
    "requests/s",
    "output tokens/s",
    *(f"{name}, ms" for name, _, _ in SWEPT),
    "verdict",
)
CURVE = (
    "More load means more requests in a batch: throughput grows until the server is full, and so"
    " does every latency."
)


def boxes(runs: Sequence[ShownRun], key: str, name: str, latency: str) -> Drawing | None:
    """One box for each run of its "ttft_ms" or "e2e_ms"; None where no request completed."""
    spreads = [(load_words(run), spread(getattr(run, latency))) for run in runs if run.rows.size]
    if not spreads:
        return None
    least, greatest = min(s.p1 for _, s in spreads), max(s.p99 for _, s in spreads)
    log = least > 0 and greatest > LOADS_FAR_APART * least
    drawn = tuple(_box(load, name, s) for load, s in spreads)
    axis = Axis(f"{name}, ms{' (logarithmic)' if log else ''}", log=log)
    header = ("load", "requests", "mean, ms", "p1", "p25", "p50", "p75", "p99")
    rows = tuple(
        (load, f"{s.count:,}", *map(number, (s.mean, s.p1, s.p25, s.p50, s.p75, s.p99)))
        for load, s in spreads
    )
    return charted(Boxes(key, name, axis, drawn), BOX, f"{name} in numbers", header, rows)


def _box(load: str, name: str, s: Spread) -> Box:
    values = (
        ("p1", s.p1),
        ("p25", s.p25),
        ("p50", s.p50),
        ("p75", s.p75),
        ("p99", s.p99),
        ("mean", s.mean),
    )
    tip = "\n".join(
        [
            f"{name}, {load}",
            f"{s.count:,} requests",
            *(f"{label} {number(value)} ms" for label, value in values),
        ]
    )
    return Box(name=load, p1=s.p1, p25=s.p25, p50=s.p50, p75=s.p75, p99=s.p99, mean=s.mean, tip=tip)


def swept(runs: Sequence[ShownRun]) -> Drawing:
    """Latency against throughput, one point a load, joined in the order of the loads."""
    series = tuple(
        line
        for tone, arguments in enumerate(SWEPT)
        if (line := _swept(runs, *arguments, tone=tone)).points
    )
    x, y = Axis("completed requests per second"), Axis("latency, ms (logarithmic)", log=True)
    return Drawing(
        Plot("sweep", "Latency against throughput", x, y, series), CURVE, loads_table(runs)
    )


def _swept(
    runs: Sequence[ShownRun], name: str, metric: str, statistic: str, *, tone: int
) -> Series:
    points = []
    for run in runs:
        value, rate = (
            getattr(getattr(run.summary, f"{metric}_ms"), statistic),
            run.summary.requests_per_second,
        )
        if value is not None and value > 0 and rate > 0:
            tip = (
                f"{load_words(run)}\n{name} {number(value)} ms\n{number(rate)}"
                f" requests/s\n{verdict(run)}"
            )
            points.append(Point(rate, value, tip))
    return Series(name, tuple(points), tone=tone, line=True)


def loads_table(runs: Sequence[ShownRun]) -> Table:
    """One row for each load."""
    rows = []
    for run in runs:
        s = run.summary
        values = (getattr(getattr(s, f"{metric}_ms"), statistic) for _, metric, statistic in SWEPT)
        rows.append(
            (
                load_words(run),
                *map(number, (s.requests_per_second, s.output_tokens_per_second, *values)),
                verdict(run),
            )
        )
    return Table(
        caption="The loads in numbers",
        header=HEADER,
        rows=tuple(rows),
        spare=("output tokens/s", "TTFT mean, ms"),
    )


BINS = 12
DOTS = 2_000  # dots of a scatter plot at most; of more requests an even share is drawn
SCATTER = "Each dot is a request; the line joins the means of prompts of like length."


def heat_map(isl: Lengths, osl: Lengths) -> Drawing:
    """Draw how many pairs have which lengths; there is one pair at least."""
    columns, rows = edges(isl, BINS), edges(osl, BINS)
    counts, _, _ = np.histogram2d(isl, osl, bins=(columns, rows))
    cells = tuple(
        _cell(int(i), int(j), int(counts[i, j]), columns, rows) for i, j in np.argwhere(counts > 0)
    )
    x, y = "prompt length, tokens", "output length, tokens"
    header = (f"{x} ↓, {y} →", *(between_edges(a, b) for a, b in itertools.pairwise(rows)))
    table = tuple(
        (
            between_edges(columns[i], columns[i + 1]),
            *(f"{int(count):,}" if count else "" for count in counts[i]),
        )
        for i in range(len(columns) - 1)
        if counts[i].any()
    )
    heat = HeatMap(
        "lengths",
        "Prompt lengths and output lengths",
        Axis(x),
        Axis(y),
        columns=columns,
        rows=rows,
        cells=cells,
    )
    return charted(
        heat, "Darker cells hold more requests.", "Requests by their lengths", header, table
    )


def _cell(
    column: int, row: int, count: int, columns: tuple[float, ...], rows: tuple[float, ...]
) -> Cell:
    prompt, output = (
        between_edges(columns[column], columns[column + 1]),
        between_edges(rows[row], rows[row + 1]),
    )
    share = f"{count:,} request{'s' if count != 1 else ''}"
    return Cell(
        column=column,
        row=row,
        count=count,
        tip=f"{share}\nprompts of {prompt} tokens\noutputs of {output} tokens",
    )


def ttft_by_prompt(run: ShownRun, trends: Mapping[str, Any]) -> Drawing | None:
    """TTFT against prompt length, with the straight line whose slope is its ms per 1,000 prompt
    tokens; None of no request, and of prompts of one length.
    """
    if not run.rows.size or run.isl.min() == run.isl.max():
        return None
    chosen = every_nth(np.arange(run.rows.size), DOTS)
    ttft, isl = run.ttft_ms, run.isl
    dots = tuple((float(x), float(y)) for x, y in zip(isl[chosen], ttft[chosen], strict=True))
    bins = tuple(binned(isl, ttft, edges(isl, BINS)))
    tip = "prompts of {} tokens\n{:,} requests\nTTFT mean {} ms\np95 {} ms"
    tips = (
        tip.format(b.words, b.spread.count, number(b.spread.mean), number(b.spread.p95))
        for b in bins
    )
    means = tuple(
        Point(b.middle, b.spread.mean, words) for b, words in zip(bins, tips, strict=True)
    )
    trend = straight_line(
        trends["ttft_ms_per_1000_prompt_tokens"], float(isl.min()), float(isl.max())
    )
    series = (Series("mean of like prompts", means, tone=1, line=len(means) > 1), *trend)
    rows = tuple(
        (b.words, f"{b.spread.count:,}", *map(number, (b.spread.mean, b.spread.p50, b.spread.p95)))
        for b in bins
    )
    x, y, clouds = (
        Axis("prompt length, tokens"),
        Axis("time to first token, ms"),
        (Cloud("one request", dots, 0),),
    )
    plot = Scatter(
        "ttft-by-prompt", "Time to first token against prompt length", x, y, series, clouds=clouds
    )
    header = ("prompt tokens", "requests", "TTFT mean, ms", "p50", "p95")
    return charted(plot, SCATTER, "Time to first token by prompt length", header, rows)


def straight_line(trend: Mapping[str, float] | None, low: float, high: float) -> tuple[Series, ...]:
    """The line of a trend from ``low`` to ``high`` tokens; none without one."""
    if trend is None:
        return ()
    points = tuple(Point(x, trend["at_zero"] + trend["slope"] * x / 1e3, "") for x in (low, high))
    return (
        Series(
            f"straight line, {number(trend['slope'])} ms per 1,000 tokens",
            points,
            tone=5,
            line=True,
            marks=False,
        ),
    )


# windows of time at most, and requests in each on average at least
WINDOWS, WINDOW_REQUESTS = 24, 10
FEWEST = 2 * WINDOW_REQUESTS
LANES = 60
SECONDS = "seconds since the start of the run"
PERCENTILES = (("p50", 0), ("p95", 1), ("p99", 3))


def percentiles_over_time(
    run: ShownRun, key: str, name: str, values: NDArray[np.float64]
) -> Drawing | None:
    """p50, p95 and p99 of a latency in windows of due time; None where there are too few
    requests.
    """
    if run.rows.size < FEWEST or run.due_s.max() <= run.due_s.min():
        return None
    count = min(WINDOWS, run.rows.size // WINDOW_REQUESTS)
    bounds = tuple(float(edge) for edge in np.linspace(run.due_s.min(), run.due_s.max(), count + 1))
    bins = tuple(binned(run.due_s, values, bounds))
    series = tuple(
        Series(label, tuple(_point(b, name, label) for b in bins), tone=tone, line=True)
        for label, tone in PERCENTILES
    )
    rows = tuple(
        (
            _window(b),
            f"{b.spread.count:,}",
            *map(number, (b.spread.p50, b.spread.p95, b.spread.p99)),
        )
        for b in bins
    )
    title = f"{name} over the run"
    reading = (
        "Requests by the moment at which they were due. Lines that rise to the right mean that the"
        " server did not keep up."
    )
    plot, header = (
        Plot(key, title, Axis(SECONDS), Axis(f"{name}, ms"), series),
        ("due, s", "requests", "p50, ms", "p95", "p99"),
    )
    return charted(plot, reading, f"{title} in numbers", header, rows)


def _window(window: Bin) -> str:
    return f"{number(window.low)}–{number(window.high)}"


def _point(window: Bin, name: str, label: str) -> Point:
    value = getattr(window.spread, label)
    tip = (
        f"{name} {label} {number(value)} ms\n{window.spread.count:,} requests due at"
        f" {_window(window)} s"
    )
    return Point(window.middle, value, tip)


def in_flight(run: ShownRun) -> Drawing | None:
    """Count the requests in flight at evenly spaced moments."""
    requests = run.requests
    whole = (requests.sent_ns >= 0) & (requests.last_token_ns >= 0)
    if whole.sum() < FEWEST:
        return None
    sent, ended = (
        np.sort(requests.sent_ns[whole]) / 1e9,
        np.sort(requests.last_token_ns[whole]) / 1e9,
    )
    moments = np.linspace(sent[0], ended[-1], 2 * WINDOWS + 1)
    open_requests = np.searchsorted(sent, moments, side="right") - np.searchsorted(
        ended, moments, side="right"
    )
    points = tuple(
        Point(float(x), float(y), f"{int(y):,} in flight at {number(float(x))} s")
        for x, y in zip(moments, open_requests, strict=True)
    )
    rows = tuple(
        (number(float(x)), f"{int(y):,}") for x, y in zip(moments, open_requests, strict=True)
    )
    line = (Series("in flight", points, tone=0, line=True),)
    plot = Plot(
        "in-flight",
        "Requests in flight",
        Axis(SECONDS),
        Axis("requests sent and not yet answered"),
        line,
    )
    return charted(plot, "", "Requests in flight in numbers", ("seconds", "in flight"), rows)


def request_gantt(run: ShownRun) -> Drawing | None:
    """Consecutive requests from the middle of the run: when each was due, sent, first answered and
    done.
    """
    requests = run.requests
    order = np.argsort(requests.due_ns, kind="stable")
    order = order[requests.due_ns[order] >= 0]
    if not order.size:
        return None
    first = max(0, (order.size - LANES) // 2)
    chosen = order[first : first + LANES]
    lanes = tuple(_lane(run, int(row)) for row in chosen)
    which = (
        "All requests"
        if order.size <= LANES
        else f"{LANES} consecutive requests from the middle of the run"
    )
    rows = tuple(_row(run, int(row)) for row in chosen)
    gantt = Gantt(
        "requests",
        "Requests one by one",
        Axis(SECONDS),
        start=float(requests.due_ns[chosen].min()) / 1e9,
        lanes=lanes,
    )
    header = (
        "request",
        "due, s",
        "sent after, ms",
        "TTFT, ms",
        "E2E, ms",
        "tokens in",
        "tokens out",
        "status",
    )
    return charted(
        gantt,
        f"{which}, in the order in which they were due.",
        "These requests in numbers",
        header,
        rows,
    )


def _moments(run: ShownRun, row: int) -> tuple[int, int, int, int]:
    """Due, sent, first token and last token in nanoseconds; what did not happen is -1."""
    r = run.requests
    return (
        int(r.due_ns[row]),
        int(r.sent_ns[row]),
        int(r.first_token_ns[row]),
        int(r.last_token_ns[row]),
    )


def _lane(run: ShownRun, row: int) -> Lane:
    due, sent, first, last = _moments(run, row)
    stretches = (
        ("due, not yet sent", due, sent, 4),
        ("waits for its first token", sent, first, 0),
        ("receives tokens", first, last, 2),
    )
    spans = tuple(
        Span(name, a / 1e9, b / 1e9, tone) for name, a, b, tone in stretches if 0 <= a < b
    )
    status = STATUS_NAMES[run.requests.status[row]]
    if run.requests.status[row] != COMPLETED and not spans:
        spans = (Span(status, due / 1e9, due / 1e9, 1),)
    _, due_s, after, ttft, e2e, isl, osl, _ = _row(run, row)
    tip = (
        f"request {row}, {status}\ndue at {due_s} s, sent {after} ms later\nTTFT {ttft} ms, E2E"
        f" {e2e} ms\n{isl} tokens in, {osl} out"
    )
    return Lane(f"{row}", spans, tip)


def _row(run: ShownRun, row: int) -> tuple[str, ...]:
    due, sent, first, last = _moments(run, row)
    after, ttft, e2e = (
        number((moment - due) / 1e6) if moment >= 0 else number(None)
        for moment in (sent, first, last)
    )
    r = run.requests
    return (
        f"{row}",
        number(due / 1e9, 4),
        after,
        ttft,
        e2e,
        f"{r.isl[row]:,}",
        f"{r.osl[row]:,}",
        STATUS_NAMES[r.status[row]],
    )


REQUESTS = 300  # requests whose gaps are drawn at most: an even share of all
READING = (
    "How long each token came after the one before it. The lines are the mean and the 99th"
    " percentile of all gaps around a position."
)


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
    tips = {
        b: (
            f"after token {_range(b)}\n{counts[b]:,} gaps\nmean {number(means[b])} ms\np99"
            f" {number(highs[b])} ms"
        )
        for b in used
    }
    series = [
        Series(
            name,
            tuple(Point(places[b], of[b], tips[b]) for b in used),
            tone=tone,
            line=len(used) > 1,
        )
        for name, of, tone in (("mean", means, 1), ("p99", highs, 3))
    ]
    series += straight_line(trends["itl_ms_per_1000_output_tokens"], 1.0, float(run.osl.max()))
    rows = tuple((_range(b), f"{counts[b]:,}", number(means[b]), number(highs[b])) for b in used)
    dots, x, y = (
        _dots(run),
        Axis("position in the output, tokens"),
        Axis("token-to-token latency, ms"),
    )
    clouds = (Cloud("one gap", dots, 0),) if dots else ()
    plot = Scatter(
        "gaps-by-position",
        "Token-to-token latency against output position",
        x,
        y,
        tuple(series),
        clouds=clouds,
    )
    header = ("after token", "gaps", "mean, ms", "p99, ms")
    return charted(plot, READING, "Token-to-token latency by output position", header, rows)


def _range(bucket: int) -> str:
    return f"{2**bucket:,}" if bucket == 0 else f"{2**bucket:,}–{2 ** (bucket + 1) - 1:,}"


def _dots(run: ShownRun) -> tuple[tuple[float, float], ...]:
    """Position and latency of single gaps: of tokens that came in one event, the gap before it in
    equal parts.
    """
    if run.tokens is None:
        return ()
    starts = np.concatenate([[0], np.cumsum(run.tokens.lengths)])
    positions, gaps = [np.zeros(0, np.int64)], [np.zeros(0)]
    for row in every_nth(run.rows, REQUESTS):
        moments, counts = np.unique(
            run.tokens.offsets_ns[starts[row] : starts[row + 1]], return_counts=True
        )
        positions.append(np.cumsum(counts)[:-1])
        gaps.append(np.diff(moments) / counts[1:] / 1e6)
    places, values = np.concatenate(positions), np.concatenate(gaps)
    chosen = every_nth(np.arange(places.size), DOTS)
    return tuple((float(x), float(y)) for x, y in zip(places[chosen], values[chosen], strict=True))


MOST = 120  # readings of a line at most; of a longer run an even share is drawn


@dataclass(frozen=True, slots=True)
class Gauge:
    """One line of a figure."""

    name: str  # what a reader sees
    # the names of Prometheus that say it, without labels, of whichever engine
    series: tuple[str, ...]
    summed: bool = True  # whether several servers or GPUs are added up; otherwise their mean counts
    scale: float = 1.0  # by which a value is multiplied


# Names as vLLM, SGLang, TensorRT-LLM, Triton and the DCGM exporter write them
RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running")
WAITING = (
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "trtllm_num_requests_waiting",
    "nv_inference_pending_request_count",
)
KV_CACHE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "trtllm_kv_cache_utilization",
)
# By figure: key, title, unit and lines
GAUGES: tuple[tuple[str, str, str, tuple[Gauge, ...]], ...] = (
    (
        "server-requests",
        "Requests inside the server",
        "requests",
        (Gauge("running", RUNNING), Gauge("waiting", WAITING)),
    ),
    (
        "server-kv",
        "KV cache in use",
        "per cent",
        (Gauge("KV cache in use", KV_CACHE, summed=False, scale=100.0),),
    ),
    (
        "server-power",
        "GPU power",
        "W",
        (Gauge("power of all GPUs", ("DCGM_FI_DEV_POWER_USAGE", "nv_gpu_power_usage")),),
    ),
    (
        "server-gpu",
        "GPU use",
        "per cent",
        (Gauge("use of the GPUs, mean", ("DCGM_FI_DEV_GPU_UTIL",), summed=False),),
    ),
)


def server_figures(run: ShownRun) -> Iterator[Drawing]:
    """A figure for each group of gauges that the server had."""
    for key, title, unit, gauges in GAUGES:
        lines = {gauge.name: line for gauge in gauges if (line := _line(run.server, gauge))}
        if lines:
            yield _drawing(key, title, unit, lines)


def _line(server: Readings, gauge: Gauge) -> tuple[tuple[float, float], ...]:
    """Seconds and value, all labels of a moment together; empty where nothing was read twice."""
    rows = next((server[name] for name in gauge.series if name in server), ())
    by_moment: dict[float, list[float]] = {}
    for moment, value in rows:
        by_moment.setdefault(moment, []).append(value * gauge.scale)
    points = [
        (moment, sum(values) / (1 if gauge.summed else len(values)))
        for moment, values in sorted(by_moment.items())
    ]
    step = -(-len(points) // MOST)
    return tuple(points[::step]) if len(points) > 1 else ()


def _drawing(
    key: str, title: str, unit: str, lines: Mapping[str, tuple[tuple[float, float], ...]]
) -> Drawing:
    series = tuple(
        Series(
            name,
            tuple(Point(x, y, f"{name}: {number(y)} {unit}\nat {number(x)} s") for x, y in line),
            tone=tone,
            line=True,
        )
        for tone, (name, line) in enumerate(lines.items())
    )
    rows = tuple(
        (name, number(min(v)), number(sum(v) / len(v)), number(max(v)))
        for name, line in lines.items()
        if (v := [y for _, y in line])
    )
    plot = Plot(key, title, Axis(SECONDS), Axis(unit), series)
    return charted(plot, "", f"{title} in numbers, {unit}", ("", "least", "mean", "most"), rows)
