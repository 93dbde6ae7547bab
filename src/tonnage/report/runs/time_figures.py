"""A run over its time: percentiles of latencies, requests in flight, and what happened to single requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.bench.steady import positions_of_gaps
from tonnage.report.document import Drawing, charted
from tonnage.report.drawing.figure import Axis, Cloud, Gantt, Lane, Plot, Point, Scatter, Series, Span
from tonnage.report.numbers import number
from tonnage.report.runs.latency_figures import Bin, binned, every_nth, straight_line
from tonnage.results.metrics import gap_percentile_ns
from tonnage.results.requests import COMPLETED, POSITION_BUCKETS, STATUS_NAMES, gap_edges_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.report.runs.shown_run import Readings, ShownRun


WINDOWS, WINDOW_REQUESTS = 24, 10  # windows of time at most, and requests in each on average at least
FEWEST = 2 * WINDOW_REQUESTS
LANES = 60
SECONDS = "seconds since the start of the run"
PERCENTILES = (("p50", 0), ("p95", 1), ("p99", 3))


def percentiles_over_time(run: ShownRun, key: str, name: str, values: NDArray[np.float64]) -> Drawing | None:
    """p50, p95 and p99 of a latency in windows of due time; None where there are too few requests."""
    if run.rows.size < FEWEST or run.due_s.max() <= run.due_s.min():
        return None
    count = min(WINDOWS, run.rows.size // WINDOW_REQUESTS)
    bounds = tuple(float(edge) for edge in np.linspace(run.due_s.min(), run.due_s.max(), count + 1))
    found = tuple(binned(run.due_s, values, bounds))
    series = tuple(Series(label, tuple(_point(b, name, label) for b in found), tone=tone, line=True) for label, tone in PERCENTILES)
    rows = tuple((_window(b), f"{b.spread.count:,}", *map(number, (b.spread.p50, b.spread.p95, b.spread.p99))) for b in found)
    title = f"{name} over the run"
    reading = "Requests by the moment at which they were due. Lines that rise to the right mean that the server did not keep up."
    plot, header = Plot(key, title, Axis(SECONDS), Axis(f"{name}, ms"), series), ("due, s", "requests", "p50, ms", "p95", "p99")
    return charted(plot, reading, f"{title} in numbers", header, rows)


def _window(window: Bin) -> str:
    return f"{number(window.low)}–{number(window.high)}"


def _point(window: Bin, name: str, label: str) -> Point:
    value = getattr(window.spread, label)
    tip = f"{name} {label} {number(value)} ms\n{window.spread.count:,} requests due at {_window(window)} s"
    return Point(window.middle, value, tip)


def in_flight(run: ShownRun) -> Drawing | None:
    """How many requests had been sent and not yet answered, at evenly spaced moments."""
    requests = run.requests
    whole = (requests.sent_ns >= 0) & (requests.last_token_ns >= 0)
    if whole.sum() < FEWEST:
        return None
    sent, ended = np.sort(requests.sent_ns[whole]) / 1e9, np.sort(requests.last_token_ns[whole]) / 1e9
    moments = np.linspace(sent[0], ended[-1], 2 * WINDOWS + 1)
    held = np.searchsorted(sent, moments, side="right") - np.searchsorted(ended, moments, side="right")
    points = tuple(Point(float(x), float(y), f"{int(y):,} in flight at {number(float(x))} s") for x, y in zip(moments, held, strict=True))
    rows = tuple((number(float(x)), f"{int(y):,}") for x, y in zip(moments, held, strict=True))
    line = (Series("in flight", points, tone=0, line=True),)
    plot = Plot("in-flight", "Requests in flight", Axis(SECONDS), Axis("requests sent and not yet answered"), line)
    return charted(plot, "", "Requests in flight in numbers", ("seconds", "in flight"), rows)


def request_gantt(run: ShownRun) -> Drawing | None:
    """Consecutive requests from the middle of the run: when each was due, sent, first answered and done."""
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
    gantt = Gantt("requests", "Requests one by one", Axis(SECONDS), start=float(requests.due_ns[chosen].min()) / 1e9, lanes=lanes)
    header = ("request", "due, s", "sent after, ms", "TTFT, ms", "E2E, ms", "tokens in", "tokens out", "status")
    return charted(gantt, f"{which}, in the order in which they were due.", "These requests in numbers", header, rows)


def _moments(run: ShownRun, row: int) -> tuple[int, int, int, int]:
    """Due, sent, first token and last token in nanoseconds; what did not happen is -1."""
    r = run.requests
    return int(r.due_ns[row]), int(r.sent_ns[row]), int(r.first_token_ns[row]), int(r.last_token_ns[row])


def _lane(run: ShownRun, row: int) -> Lane:
    due, sent, first, last = _moments(run, row)
    stretches = (("due, not yet sent", due, sent, 4), ("waits for its first token", sent, first, 0), ("receives tokens", first, last, 2))
    spans = tuple(Span(name, a / 1e9, b / 1e9, tone) for name, a, b, tone in stretches if 0 <= a < b)
    status = STATUS_NAMES[run.requests.status[row]]
    if run.requests.status[row] != COMPLETED and not spans:
        spans = (Span(status, due / 1e9, due / 1e9, 1),)
    _, due_s, after, ttft, e2e, isl, osl, _ = _row(run, row)
    tip = f"request {row}, {status}\ndue at {due_s} s, sent {after} ms later\nTTFT {ttft} ms, E2E {e2e} ms\n{isl} tokens in, {osl} out"
    return Lane(f"{row}", spans, tip)


def _row(run: ShownRun, row: int) -> tuple[str, ...]:
    due, sent, first, last = _moments(run, row)
    after, ttft, e2e = (number((moment - due) / 1e6) if moment >= 0 else number(None) for moment in (sent, first, last))
    r = run.requests
    return (f"{row}", number(due / 1e9, 4), after, ttft, e2e, f"{r.isl[row]:,}", f"{r.osl[row]:,}", STATUS_NAMES[r.status[row]])


REQUESTS, DOTS = 300, 2_000  # requests whose gaps are drawn, and dots, at most: an even share of all
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
    tips = {b: f"after token {_range(b)}\n{counts[b]:,} gaps\nmean {number(means[b])} ms\np99 {number(highs[b])} ms" for b in used}
    series = [
        Series(name, tuple(Point(places[b], of[b], tips[b]) for b in used), tone=tone, line=len(used) > 1)
        for name, of, tone in (("mean", means, 1), ("p99", highs, 3))
    ]
    series += straight_line(trends["itl_ms_per_1000_output_tokens"], 1.0, float(run.osl.max()))
    rows = tuple((_range(b), f"{counts[b]:,}", number(means[b]), number(highs[b])) for b in used)
    dots, x, y = _dots(run), Axis("position in the output, tokens"), Axis("token-to-token latency, ms")
    clouds = (Cloud("one gap", dots, 0),) if dots else ()
    plot = Scatter("gaps-by-position", "Token-to-token latency against output position", x, y, tuple(series), clouds=clouds)
    header = ("after token", "gaps", "mean, ms", "p99, ms")
    return charted(plot, READING, "Token-to-token latency by output position", header, rows)


def _range(bucket: int) -> str:
    return f"{2**bucket:,}" if bucket == 0 else f"{2**bucket:,}–{2 ** (bucket + 1) - 1:,}"


def _dots(run: ShownRun) -> tuple[tuple[float, float], ...]:
    """Position and latency of single gaps: of tokens that came in one event, the gap before it in equal parts."""
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


MOST = 120  # readings of a line at most; of a longer run an even share is drawn


@dataclass(frozen=True, slots=True)
class Gauge:
    """One line of a figure."""

    name: str  # what a reader sees
    series: tuple[str, ...]  # the names of Prometheus that say it, without labels, of whichever engine
    summed: bool = True  # whether several servers or GPUs are added up; otherwise their mean counts
    scale: float = 1.0  # by which a value is multiplied


# Names as vLLM, SGLang, TensorRT-LLM, Triton and the DCGM exporter write them
RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running")
WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting", "nv_inference_pending_request_count")
KV_CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization")
# By figure: key, title, unit and lines
GAUGES: tuple[tuple[str, str, str, tuple[Gauge, ...]], ...] = (
    ("server-requests", "Requests inside the server", "requests", (Gauge("running", RUNNING), Gauge("waiting", WAITING))),
    ("server-kv", "KV cache in use", "per cent", (Gauge("KV cache in use", KV_CACHE, summed=False, scale=100.0),)),
    ("server-power", "GPU power", "W", (Gauge("power of all GPUs", ("DCGM_FI_DEV_POWER_USAGE", "nv_gpu_power_usage")),)),
    ("server-gpu", "GPU use", "per cent", (Gauge("use of the GPUs, mean", ("DCGM_FI_DEV_GPU_UTIL",), summed=False),)),
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
    found = [(moment, sum(values) / (1 if gauge.summed else len(values))) for moment, values in sorted(by_moment.items())]
    step = -(-len(found) // MOST)
    return tuple(found[::step]) if len(found) > 1 else ()


def _drawing(key: str, title: str, unit: str, lines: Mapping[str, tuple[tuple[float, float], ...]]) -> Drawing:
    series = tuple(
        Series(name, tuple(Point(x, y, f"{name}: {number(y)} {unit}\nat {number(x)} s") for x, y in line), tone=tone, line=True)
        for tone, (name, line) in enumerate(lines.items())
    )
    rows = tuple(
        (name, number(min(v)), number(sum(v) / len(v)), number(max(v))) for name, line in lines.items() if (v := [y for _, y in line])
    )
    plot = Plot(key, title, Axis(SECONDS), Axis(unit), series)
    return charted(plot, "", f"{title} in numbers, {unit}", ("", "least", "mean", "most"), rows)
