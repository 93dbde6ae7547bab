"""Computes the summary of a run from its requests; simulated and measured runs share these definitions.

Only completed requests count. Percentiles of TTFT, TPOT and E2E are taken over one value per
request with linear interpolation between order statistics (numpy's default, Hyndman & Fan type 7).
Percentiles of ITL come from the histogram of all single gaps: the middle of the bin that holds the
percentile, so they are known to the width of a bin, 1 %. Means are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from tonnage.results.requests import COMPLETED, GAP_BIN_WIDTH, REJECTED, STATUS_NAMES, Requests, gap_edges_ns
from tonnage.spec.deployment import Statistic
from tonnage.spec.typed_values import strict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Limit, LimitMetric, Slo, TrafficClass


# Mean and percentiles of one latency: the one definition, for candidates, curves and checks.


@strict
class Latencies:
    """Mean and percentiles of one metric, in milliseconds; None where a value is undefined or was not measured."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None

    def value(self, statistic: Statistic) -> float | None:
        """One of them by its name."""
        found: float | None = getattr(self, statistic)
        return found


def latencies(*, mean: float, p50: float, p90: float, p95: float, p99: float) -> Latencies:
    """The latencies of values in milliseconds that may be NaN: those become None."""
    values = {"mean": mean, "p50": p50, "p90": p90, "p95": p95, "p99": p99}
    return Latencies(**{name: value if math.isfinite(value) else None for name, value in values.items()})


Window = Literal["run", "steady"]

STEADY = (0.1, 0.9)
"""Share of the requests, in order of their due times, between which a run counts as steady."""

DEFINITIONS: dict[str, str] = {
    "requests_per_second": "completed requests over the window",
    "output_tokens_per_second": "output tokens of the completed requests over the window",
    "input_tokens_per_second": "prompt tokens of the completed requests over the window, those found in a prefix cache included",
    "ttft_ms": "first output token minus the moment the request was due (queueing and connection included), one value per request",
    "ttft_from_send_ms": "first output token minus the moment the request was sent, one value per request",
    "itl_ms": "every single gap between consecutive output tokens, pooled over all requests; percentiles to 1 %",
    "tpot_ms": "(E2E − TTFT) / (output tokens − 1), one value per request of two tokens or more",
    "e2e_ms": "last output token minus the moment the request was due, one value per request",
    "concurrency": "mean requests in flight by Little's law: requests per second × mean E2E",
    "preemptions": "how often a completed request lost its KV blocks and was computed again, summed",
    "goodput": "requests per second that met every limit, a request's ITL being the mean of its gaps",
    "percentiles": "linear interpolation between order statistics (numpy's default)",
}


_PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The metrics of a run; ``DEFINITIONS`` has a line for each.

    Attributes:
        requests_per_second, output_tokens_per_second, input_tokens_per_second: over the window; NaN where it has no length.
        ttft_ms, itl_ms, tpot_ms, e2e_ms, ttft_from_send_ms: in milliseconds.
        requests: how many by status (``STATUS_NAMES``), over the whole run.
        counted: completed requests that the latencies are over.
        window_s: length of the window of the rates, in seconds.
        window: which window that is and which requests count in it, in words.
        concurrency: mean requests in flight.
        preemptions: of the counted requests.
        itl_relative_error: width of a bin of the gap histogram.
    """

    requests_per_second: float
    output_tokens_per_second: float
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
    ttft_from_send_ms: Latencies
    requests: dict[str, int]
    counted: int
    window_s: float
    window: str
    concurrency: float
    preemptions: int
    input_tokens_per_second: float
    itl_relative_error: float = GAP_BIN_WIDTH

    def statistic_ms(self, metric: LimitMetric, statistic: Statistic) -> float:
        """One statistic of one latency in milliseconds; NaN where it is undefined."""
        value: float | None = getattr(self, f"{metric}_ms").value(statistic)
        return math.nan if value is None else value

    def to_json(self) -> dict[str, object]:
        """The summary as JSON values; None where undefined."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()}
        return {name: asdict(value) if isinstance(value, Latencies) else value for name, value in values.items()}


def summarize(requests: Requests, *, window: Window = "run") -> Summary:
    """The metrics of a run.

    Args:
        requests: the record.
        window: "run" counts every completed request, over the time from the first due request to the
            last token of all; a record with ``window_ns`` of 0 or more (a benchmark with a fixed
            measuring time) counts the requests completed in [0, window_ns], over that time.
            "steady" leaves out ramp and drain: latencies are over the requests due between the
            10th and the 90th percentile of the due times, rates over the requests completed between
            those two moments. Gap percentiles are always those of the whole run.
    """
    rows, done, seconds, words = _window(requests, window)
    whole = rows.size == len(requests)
    columns = (requests.due_ns, requests.sent_ns, requests.first_token_ns, requests.last_token_ns, requests.osl)
    due, sent, first, last, osl = columns if whole else (column[rows] for column in columns)
    e2e, ttft = _statistics(last - due), _statistics(first - due)
    decode, gaps = last - first, osl - 1
    if not (gaps > 0).all():
        decode, gaps = decode[gaps > 0], gaps[gaps > 0]
    rate = done.size / seconds if seconds > 0 else math.nan
    return Summary(
        requests_per_second=rate,
        output_tokens_per_second=int(requests.osl[done].sum()) / seconds if seconds > 0 else math.nan,
        ttft_ms=ttft,
        itl_ms=_gap_statistics(requests.gaps, int(decode.sum()), int(gaps.sum())),
        tpot_ms=_statistics(decode / gaps),
        e2e_ms=e2e,
        ttft_from_send_ms=ttft if (sent == due).all() else _statistics(first - sent),
        requests=_by_status(requests),
        counted=int(rows.size),
        window_s=seconds,
        window=words,
        concurrency=math.nan if e2e.mean is None else rate * e2e.mean / 1e3,
        preemptions=int(requests.preemptions[rows].sum()),
        input_tokens_per_second=int(requests.isl[done].sum()) / seconds if seconds > 0 else math.nan,
    )


def of_rows(requests: Requests, rows: NDArray[np.int64]) -> tuple[Latencies, Latencies, Latencies]:
    """TTFT, TPOT and E2E of some completed requests, by their rows."""
    due, first, last, osl = requests.due_ns[rows], requests.first_token_ns[rows], requests.last_token_ns[rows], requests.osl[rows]
    several = osl > 1
    return _statistics(first - due), _statistics((last - first)[several] / (osl[several] - 1)), _statistics(last - due)


def reported_rates(requests: Requests) -> tuple[float, float]:
    """Requests/s and output tokens/s as a benchmark reports them; NaN where no request was completed in time.

    GenAI-Perf and others divide by the time from the start to the last answer that they count, not by the nominal window.
    """
    rows, _, _, _ = _window(requests, "run")
    if not rows.size:
        return math.nan, math.nan
    seconds = (int(requests.last_token_ns[rows].max()) - max(int(requests.due_ns[rows].min()), 0)) / 1e9
    return rows.size / seconds, int(requests.osl[rows].sum()) / seconds


def counted_rows(requests: Requests) -> NDArray[np.int64]:
    """Row numbers of the requests that ``summarize`` counts: the completed ones, inside the record's window if it has one."""
    return _window(requests, "run")[0]


def _by_status(requests: Requests) -> dict[str, int]:
    import numpy as np

    counts = np.bincount(requests.status, minlength=len(STATUS_NAMES))
    return {name: int(count) for name, count in zip(STATUS_NAMES, counts, strict=True)}


def _window(requests: Requests, window: Window) -> tuple[NDArray[np.int64], NDArray[np.int64], float, str]:
    """Rows whose latencies count, rows whose completion counts, seconds of the window, and words for it."""
    import numpy as np

    completed = requests.status == COMPLETED
    due, ends = requests.due_ns, requests.last_token_ns
    if window == "steady":
        sent = np.sort(due[due >= 0])
        if not sent.size:
            nobody = np.zeros(0, dtype=np.int64)
            return nobody, nobody, math.nan, "steady state: no request was due"
        start, stop = (int(sent[min(int(share * sent.size), sent.size - 1)]) for share in STEADY)
        rows = np.flatnonzero(completed & (due >= start) & (due < stop))
        done = np.flatnonzero(completed & (ends >= start) & (ends < stop))
        seconds = (stop - start) / 1e9
        return rows, done, seconds, f"steady state: the {seconds:.6g} s between 10 % and 90 % of the requests in order of due time"
    if requests.window_ns >= 0:
        rows = np.flatnonzero(completed & (ends <= requests.window_ns))
        seconds = requests.window_ns / 1e9
        return rows, rows, seconds, f"requests completed in the first {seconds:.6g} s, over that time"
    rows = np.flatnonzero(completed)
    started, ended = due[due >= 0], ends[ends >= 0]
    seconds = (int(ended.max()) - int(started.min())) / 1e9 if started.size and ended.size else math.nan
    return rows, rows, seconds, f"whole run: {seconds:.6g} s from the first due request to the last token of all"


def _statistics(nanoseconds: NDArray[np.int64] | NDArray[np.float64]) -> Latencies:
    if not nanoseconds.size:
        return Latencies()
    mean = float(nanoseconds.mean()) / 1e6
    nanoseconds.sort()  # an array of its own, made for this
    p50, p90, p95, p99 = (percentile_of_sorted(nanoseconds, p) / 1e6 for p in _PERCENTILES)
    return latencies(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99)


def percentile_of_sorted(values: NDArray[np.int64] | NDArray[np.float64], percentile: float) -> float:
    """The percentile of values in rising order, the same number as ``numpy.percentile`` in a fraction of its time.

    Args:
        values: one or more; integers below 2**53.
        percentile: from 0 to 100.
    """
    place = (values.size - 1) * (percentile / 100)
    below = min(int(place), values.size - 1)
    low, high, share = values[below].item(), values[min(below + 1, values.size - 1)].item(), place - below
    return float(low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share))


def _gap_statistics(gaps: NDArray[np.int64], total_ns: int, count: int) -> Latencies:
    """Exact mean from the rows, percentiles from the histogram summed over output positions."""
    mean = total_ns / count / 1e6 if count else math.nan
    cumulated = gaps.sum(axis=0).cumsum()
    p50, p90, p95, p99 = (_gap_at(cumulated, p) / 1e6 for p in _PERCENTILES)
    return latencies(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99)


def gap_percentile_ns(gaps: NDArray[np.int64], percentile: float) -> float:
    """Middle of the bin that holds the percentile of all gaps, in nanoseconds; NaN without gaps.

    Args:
        gaps: counts of shape (POSITION_BUCKETS, GAP_BINS), or any number of buckets.
        percentile: from 0 to 100; the smallest gap that at least this share of all do not exceed.
    """
    return _gap_at(gaps.sum(axis=0).cumsum(), percentile)


def _gap_at(cumulated: NDArray[np.int64], percentile: float) -> float:
    """The same of the number of gaps up to each bin."""
    count = int(cumulated[-1])
    if not count:
        return math.nan
    rank = max(1, math.ceil(round(percentile / 100 * count, 6)))
    index = int(cumulated.searchsorted(rank))
    edges = gap_edges_ns()
    return float(edges[index] * (1 + GAP_BIN_WIDTH / 2)) if index else float(edges[1] / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Requests that met every limit: per second of the window, and as a share of all that were due in the run."""

    requests_per_second: float
    share: float


def goodput(requests: Requests, slo: Slo) -> Goodput:
    """Requests per second that met every limit of ``slo``, whatever statistic the limit is on.

    A request has one TTFT, TPOT and E2E; its ITL is the mean of its gaps. A request of one token has no
    gap and meets any limit on them.
    """
    import numpy as np

    rows, _, seconds, _ = _window(requests, "run")
    due, first, last, osl = requests.due_ns[rows], requests.first_token_ns[rows], requests.last_token_ns[rows], requests.osl[rows]
    per_token = np.where(osl > 1, (last - first) / np.maximum(osl - 1, 1), 0.0)
    values = {"ttft": first - due, "itl": per_token, "tpot": per_token, "e2e": last - due}
    good = np.ones(rows.size, dtype=bool)
    for limit in slo:
        good &= values[limit.metric] <= limit.seconds * 1e9
    met, total = int(good.sum()), len(requests)
    return Goodput(requests_per_second=met / seconds if seconds > 0 else math.nan, share=met / total if total else math.nan)


# How often limits were broken in a run: by how many requests, and in how many hours.


HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What became of one limit.

    Attributes:
        limit: such as "TTFT p95 ≤ 500 ms".
        share: of all requests, those that took longer than the limit's time, or were not completed.
        broken_hours: hours of the run in which the limit's statistic, over the requests that were due in them, was above it.
        hours: those in which a request was due.
        worst_hour: the hour with the largest share of such requests, counted from 0.
        worst_share: that share.
    """

    limit: str
    share: float
    broken_hours: int
    hours: int
    worst_hour: int
    worst_share: float


def violations(requests: Requests, slo: Slo) -> tuple[Violation, ...]:
    """One for each limit on TTFT, TPOT or E2E; single gaps are not known by request, so that limits on ITL are left out."""
    import numpy as np

    hour = requests.due_ns // HOUR_NS
    cuts = np.append(np.flatnonzero(np.diff(hour, prepend=-1)), len(hour))
    return tuple(_violation(requests, limit, cuts) for limit in slo if limit.metric != "itl")


def _violation(requests: Requests, limit: Limit, cuts: NDArray[np.int64]) -> Violation:
    import numpy as np

    done, values, most = requests.status == COMPLETED, _values(requests, limit), limit.seconds * 1e9
    late = ~done | (values > most)
    broken, worst, worst_share = 0, 0, 0.0
    for first, last in pairwise(cuts.tolist()):
        share = float(late[first:last].mean())
        if share > worst_share:
            worst, worst_share = int(requests.due_ns[first] // HOUR_NS), share
        mine = values[first:last][done[first:last]]
        if len(mine):
            found = mine.mean() if limit.statistic == "mean" else np.percentile(mine, float(limit.statistic[1:]))
            broken += bool(found > most)
    return Violation(
        limit=str(limit),
        share=float(late.mean()) if len(late) else 0.0,
        broken_hours=broken,
        hours=len(cuts) - 1,
        worst_hour=worst,
        worst_share=worst_share,
    )


def _values(requests: Requests, limit: Limit) -> NDArray[np.float64]:
    """Nanoseconds of each request; 0 for the pace of a request of one token."""
    import numpy as np

    first, last, due = requests.first_token_ns, requests.last_token_ns, requests.due_ns
    if limit.metric == "ttft":
        return (first - due).astype(np.float64)
    if limit.metric == "e2e":
        return (last - due).astype(np.float64)
    return np.where(requests.osl > 1, (last - first) / np.maximum(requests.osl - 1, 1), 0.0)


# What the requests of each class of a run saw.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassResult:
    """Of one class.

    Attributes:
        name, share: as they were requested.
        ttft_limit_s: the time to first token that its requests should have, in seconds; None where none was given.
        requests: all that were sent …
        completed, rejected: … of these; what was shed is rejected.
        preemptions: times that one of them lost its KV blocks.
        within: share of all that were sent whose first token came within the limit, 0 to 1; None without a limit.
        ttft_ms, tpot_ms, e2e_ms: of the completed ones.
    """

    name: str
    share: float
    ttft_limit_s: float | None
    requests: int
    completed: int
    rejected: int
    preemptions: int
    within: float | None
    ttft_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        from dataclasses import asdict

        return asdict(self)


def by_class(requests: Requests, place: NDArray[np.int64], classes: Sequence[TrafficClass]) -> tuple[ClassResult, ...]:
    """The results of each class; ``place`` says which one each row of the record is of."""
    import numpy as np

    found = []
    for number, one in enumerate(classes):
        own = place[: len(requests)] == number
        status, count = requests.status[own], int(own.sum())
        ttft, tpot, e2e = of_rows(requests, np.flatnonzero(own & (requests.status == COMPLETED)))
        first = requests.first_token_ns[own]
        within = None
        if one.ttft_s is not None:
            in_time = (first >= 0) & (first - requests.due_ns[own] <= one.ttft_s * 1e9)
            within = int(in_time.sum()) / count if count else math.nan
        found.append(
            ClassResult(
                name=one.name,
                share=one.share,
                ttft_limit_s=one.ttft_s,
                requests=count,
                completed=int((status == COMPLETED).sum()),
                rejected=int((status == REJECTED).sum()),
                preemptions=int(requests.preemptions[own].sum()),
                within=within,
                ttft_ms=ttft,
                tpot_ms=tpot,
                e2e_ms=e2e,
            )
        )
    return tuple(found)
