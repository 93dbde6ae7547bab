"""A run over its time: percentiles of latencies, requests in flight, and what happened to single requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.bench.steady import positions_of_gaps
from tonnage.report.document import Drawing, Table
from tonnage.report.drawing.figure import Axis, Cloud, Gantt, Lane, Plot, Point, Scatter, Series, Span
from tonnage.report.numbers import ABSENT, number
from tonnage.report.runs.latency_figures import Bin, binned, every_nth
from tonnage.results.metrics import gap_percentile_ns
from tonnage.results.requests import COMPLETED, POSITION_BUCKETS, STATUS_NAMES, gap_edges_ns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.report.runs.shown_run import Readings, ShownRun


WINDOWS, WINDOW_REQUESTS = 24, 10
"""Windows of time at most, and requests in each on average at least."""
FEWEST = 2 * WINDOW_REQUESTS
LANES = 60
SECONDS = "seconds since the start of the run"
PERCENTILES = (("p50", 0), ("p95", 1), ("p99", 3))


def percentiles_over_time(run: ShownRun, key: str, name: str, values: NDArray[np.float64]) -> Drawing | None:
    """p50, p95 and p99 of a latency in windows of due time; None where there are too few requests."""
    import numpy as np

    if run.rows.size < FEWEST or run.due_s.max() <= run.due_s.min():
        return None
    count = min(WINDOWS, run.rows.size // WINDOW_REQUESTS)
    bounds = tuple(float(edge) for edge in np.linspace(run.due_s.min(), run.due_s.max(), count + 1))
    found = tuple(binned(run.due_s, values, bounds))
    series = tuple(
        Series(name=label, points=tuple(_point(b, name, label) for b in found), tone=tone, line=True) for label, tone in PERCENTILES
    )
    rows = tuple((_window(b), f"{b.spread.count:,}", *map(number, (b.spread.p50, b.spread.p95, b.spread.p99))) for b in found)
    title = f"{name} over the run"
    reading = "Requests by the moment at which they were due. Lines that rise to the right mean that the server did not keep up."
    return Drawing(
        figure=Plot(key=key, title=title, x=Axis(title=SECONDS), y=Axis(title=f"{name}, ms"), series=series),
        reading=reading,
        numbers=Table(caption=f"{title} in numbers", header=("due, s", "requests", "p50, ms", "p95", "p99"), rows=rows, folded=True),
    )


def _window(window: Bin) -> str:
    return f"{number(window.low)}–{number(window.high)}"


def _point(window: Bin, name: str, label: str) -> Point:
    value = getattr(window.spread, label)
    tip = f"{name} {label} {number(value)} ms\n{window.spread.count:,} requests due at {_window(window)} s"
    return Point(x=window.middle, y=value, tip=tip)


def in_flight(run: ShownRun) -> Drawing | None:
    """How many requests had been sent and not yet answered, at evenly spaced moments."""
    import numpy as np

    requests = run.requests
    whole = (requests.sent_ns >= 0) & (requests.last_token_ns >= 0)
    if whole.sum() < FEWEST:
        return None
    sent, ended = np.sort(requests.sent_ns[whole]) / 1e9, np.sort(requests.last_token_ns[whole]) / 1e9
    moments = np.linspace(sent[0], ended[-1], 2 * WINDOWS + 1)
    held = np.searchsorted(sent, moments, side="right") - np.searchsorted(ended, moments, side="right")
    points = tuple(
        Point(x=float(x), y=float(y), tip=f"{int(y):,} in flight at {number(float(x))} s") for x, y in zip(moments, held, strict=True)
    )
    rows = tuple((number(float(x)), f"{int(y):,}") for x, y in zip(moments, held, strict=True))
    return Drawing(
        figure=Plot(
            key="in-flight",
            title="Requests in flight",
            x=Axis(title=SECONDS),
            y=Axis(title="requests sent and not yet answered"),
            series=(Series(name="in flight", points=points, tone=0, line=True),),
        ),
        reading="",
        numbers=Table(caption="Requests in flight in numbers", header=("seconds", "in flight"), rows=rows, folded=True),
    )


def request_gantt(run: ShownRun) -> Drawing | None:
    """Consecutive requests from the middle of the run: when each was due, sent, first answered and done."""
    import numpy as np

    requests = run.requests
    order = np.argsort(requests.due_ns, kind="stable")
    order = order[requests.due_ns[order] >= 0]
    if not order.size:
        return None
    first = max(0, (order.size - LANES) // 2)
    chosen = order[first : first + LANES]
    lanes = tuple(_lane(run, int(row)) for row in chosen)
    which = "All requests" if order.size <= LANES else f"{LANES} consecutive requests from the middle of the run"
    rows = tuple(_row(run, int(row)) for row in chosen)
    return Drawing(
        figure=Gantt(
            key="requests",
            title="Requests one by one",
            axis=Axis(title=SECONDS),
            start=float(requests.due_ns[chosen].min()) / 1e9,
            lanes=lanes,
        ),
        reading=f"{which}, in the order in which they were due.",
        numbers=Table(
            caption="These requests in numbers",
            header=("request", "due, s", "sent after, ms", "TTFT, ms", "E2E, ms", "tokens in", "tokens out", "status"),
            rows=rows,
            folded=True,
        ),
    )


def _moments(run: ShownRun, row: int) -> tuple[int, int, int, int]:
    """Due, sent, first token and last token in nanoseconds; what did not happen is -1."""
    r = run.requests
    return int(r.due_ns[row]), int(r.sent_ns[row]), int(r.first_token_ns[row]), int(r.last_token_ns[row])


def _lane(run: ShownRun, row: int) -> Lane:
    due, sent, first, last = _moments(run, row)
    stretches = (("due, not yet sent", due, sent, 4), ("waits for its first token", sent, first, 0), ("receives tokens", first, last, 2))
    spans = tuple(Span(name=name, start=a / 1e9, end=b / 1e9, tone=tone) for name, a, b, tone in stretches if 0 <= a < b)
    status = STATUS_NAMES[run.requests.status[row]]
    if run.requests.status[row] != COMPLETED and not spans:
        spans = (Span(name=status, start=due / 1e9, end=due / 1e9, tone=1),)
    number_, due_s, after, ttft, e2e, isl, osl, _ = _row(run, row)
    tip = f"request {number_}, {status}\ndue at {due_s} s, sent {after} ms later\nTTFT {ttft} ms, E2E {e2e} ms\n{isl} tokens in, {osl} out"
    return Lane(name=f"{row}", spans=spans, tip=tip)


def _row(run: ShownRun, row: int) -> tuple[str, ...]:
    due, sent, first, last = _moments(run, row)
    after, ttft, e2e = (number((moment - due) / 1e6) if moment >= 0 else number(None) for moment in (sent, first, last))
    r = run.requests
    return (f"{row}", number(due / 1e9, 4), after, ttft, e2e, f"{r.isl[row]:,}", f"{r.osl[row]:,}", STATUS_NAMES[r.status[row]])


# Token-to-token latency against the position in the output.


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


# What the server said of itself while a run lasted: requests running and waiting, KV cache, GPU, over the time of the run.


MOST = 120
"""Readings of a line at most; of a longer run an even share is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One line of a figure."""

    name: str  # what a reader sees
    series: tuple[str, ...]  # the names of Prometheus that say it, without labels, of whichever engine
    summed: bool = True  # whether several servers or GPUs are added up; otherwise their mean counts
    scale: float = 1.0  # by which a value is multiplied


GAUGES: tuple[tuple[str, str, str, tuple[Gauge, ...]], ...] = (
    (
        "server-requests",
        "Requests inside the server",
        "requests",
        (
            Gauge(name="running", series=("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running")),
            Gauge(
                name="waiting",
                series=(
                    "vllm:num_requests_waiting",
                    "sglang:num_queue_reqs",
                    "trtllm_num_requests_waiting",
                    "nv_inference_pending_request_count",
                ),
            ),
        ),
    ),
    (
        "server-kv",
        "KV cache in use",
        "per cent",
        (
            Gauge(
                name="KV cache in use",
                series=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization"),
                summed=False,
                scale=100.0,
            ),
        ),
    ),
    ("server-power", "GPU power", "W", (Gauge(name="power of all GPUs", series=("DCGM_FI_DEV_POWER_USAGE", "nv_gpu_power_usage")),)),
    ("server-gpu", "GPU use", "per cent", (Gauge(name="use of the GPUs, mean", series=("DCGM_FI_DEV_GPU_UTIL",), summed=False),)),
)
"""By figure: key, title, unit and lines. Names as vLLM, SGLang, TensorRT-LLM, Triton and the DCGM exporter write them."""


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
    found = [(moment, sum(values) / (1 if gauge.summed else len(values))) for moment, values in sorted(by_moment.items())]
    step = -(-len(found) // MOST)
    return tuple(found[::step]) if len(found) > 1 else ()


def _drawing(key: str, title: str, unit: str, lines: Mapping[str, tuple[tuple[float, float], ...]]) -> Drawing:
    series = tuple(
        Series(
            name=name,
            points=tuple(Point(x=x, y=y, tip=f"{name}: {number(y)} {unit}\nat {number(x)} s") for x, y in line),
            tone=tone,
            line=True,
        )
        for tone, (name, line) in enumerate(lines.items())
    )
    rows = tuple(
        (name, number(min(v)), number(sum(v) / len(v)), number(max(v))) for name, line in lines.items() if (v := [y for _, y in line])
    )
    return Drawing(
        figure=Plot(key=key, title=title, x=Axis(title=SECONDS), y=Axis(title=unit), series=series),
        reading="",
        numbers=Table(caption=f"{title} in numbers, {unit}", header=("", "least", "mean", "most"), rows=rows, folded=True),
    )
