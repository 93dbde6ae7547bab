"""Computes the summary of a run from its requests; simulated and measured runs share these
definitions.

Only completed requests count. Percentiles of TTFT, TPOT and E2E are taken over one value per
request with linear interpolation between order statistics (numpy's default, Hyndman & Fan type 7).
Percentiles of ITL come from the histogram of all single gaps: the middle of the bin that holds the
percentile, so they are known to the width of a bin, 1 %. Means are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tonnage.results.requests import (
    COMPLETED,
    GAP_BIN_WIDTH,
    STATUS_NAMES,
    Requests,
    Turns,
    gap_edges_ns,
)
from tonnage.spec.deployment import METRICS, Limit, LimitMetric, Slo, Statistic
from tonnage.spec.typed_values import strict

if TYPE_CHECKING:
    from numpy.typing import NDArray


@strict
class Latencies:
    """Mean and percentiles of one metric, in milliseconds; None where a value is undefined or was
    not measured.
    """

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None

    def value(self, statistic: Statistic) -> float | None:
        """Look a latency up by its name."""
        value: float | None = getattr(self, statistic)
        return value


def latencies(*, mean: float, p50: float, p90: float, p95: float, p99: float) -> Latencies:
    """The latencies of values in milliseconds that may be NaN: those become None."""
    values = {"mean": mean, "p50": p50, "p90": p90, "p95": p95, "p99": p99}
    return Latencies(
        **{name: value if math.isfinite(value) else None for name, value in values.items()}
    )


@strict
class TtftParts:
    """The parts of a TTFT in milliseconds; those before ``saved_ms`` sum to it."""

    # the mean of the parts, or that of the requests around the 95th percentile
    statistic: Literal["mean", "p95"]
    # from sending a request until the engine has it, behind earlier ones, and back
    front_end_ms: float
    # until the first step with its prompt: for streamed tokens, a step that was under way, a slot
    # and KV blocks
    queue_ms: float
    prefill_ms: float  # the steps of its prompt, as long as they are on an idle instance
    shared_ms: float  # what other requests in these steps, and steps between them, add
    # of two pools: the transfer of the KV cache, and the decode pool's queue and first step
    handover_ms: float
    # by how much the steps of its prompt would be longer without what a prefix cache had
    saved_ms: float


Window = Literal["run", "steady"]

# Share of the requests, in order of their due times, between which a run counts as steady
STEADY = (0.1, 0.9)

DEFINITIONS: dict[str, str] = {
    "requests_per_second": "completed requests over the window",
    "output_tokens_per_second": "output tokens of the completed requests over the window",
    "input_tokens_per_second": (
        "prompt tokens of the completed requests over the window, those found in a prefix cache"
        " included"
    ),
    "ttft_ms": (
        "first output token minus the moment the request was due (queueing and connection"
        " included), one value per request"
    ),
    "ttft_from_send_ms": (
        "first output token minus the moment the request was sent, one value per request"
    ),
    "itl_ms": (
        "every single gap between consecutive output tokens, pooled over all requests; percentiles"
        " to 1 %"
    ),
    "tpot_ms": "(E2E − TTFT) / (output tokens − 1), one value per request of two tokens or more",
    "e2e_ms": "last output token minus the moment the request was due, one value per request",
    "concurrency": "mean requests in flight by Little's law: requests per second × mean E2E",
    "preemptions": (
        "how often a completed request lost its KV blocks and was computed again, summed"
    ),
    "goodput": (
        "requests per second that met every limit at once, a request's ITL being the mean of its"
        " gaps"
    ),
    "attainment": (
        "share of all requests that were due in the run and met every limit at once; those not"
        " completed met none"
    ),
    "percentiles": "linear interpolation between order statistics (numpy's default)",
}


_NEVER_NS = 2**63 - 1
_PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The metrics of a run; ``DEFINITIONS`` has a line for each."""

    # requests_per_second, output_tokens_per_second, input_tokens_per_second: over the window; NaN
    # where it has no length
    requests_per_second: float
    output_tokens_per_second: float
    # ttft_ms, itl_ms, tpot_ms, e2e_ms, ttft_from_send_ms: in milliseconds
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
    ttft_from_send_ms: Latencies
    requests: dict[str, int]  # how many by status (``STATUS_NAMES``), over the whole run
    counted: int  # completed requests that the latencies are over
    window_s: float  # length of the window of the rates, in seconds
    window: str  # which window that is and which requests count in it, in words
    concurrency: float  # mean requests in flight
    preemptions: int  # of the counted requests
    input_tokens_per_second: float
    itl_relative_error: float = GAP_BIN_WIDTH  # width of a bin of the gap histogram
    # latencies of single requests, for joint attainment; None where they were not kept, and never
    # in JSON
    by_request: ByRequest | None = None
    # of recorded sessions; None, and not in JSON, elsewhere
    sessions: SessionLatencies | None = None

    def statistic_ms(self, metric: LimitMetric, statistic: Statistic) -> float:
        """One statistic of one latency in milliseconds; NaN where it is undefined."""
        whose: Any = self if metric in METRICS else self.sessions
        value: float | None = (
            None if whose is None else getattr(whose, f"{metric}_ms").value(statistic)
        )
        return math.nan if value is None else value

    def limit_s(self, limit: Limit) -> float:
        """The value that a limit is on, in the unit of its ``seconds``; NaN where it is
        undefined.
        """
        if limit.share is None:
            return self.statistic_ms(limit.metric, limit.statistic) / 1e3
        if self.by_request is None:
            raise ValueError("joint attainment: the latencies of single requests were not kept")
        return self.by_request.ratio_of(limit.share, limit.parts)

    def to_json(self) -> dict[str, object]:
        """The summary as JSON values; None where undefined."""
        values = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("by_request", "sessions")
        }
        values |= (
            {}
            if self.sessions is None
            else {f.name: getattr(self.sessions, f.name) for f in fields(self.sessions)}
        )
        values = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        return {
            name: asdict(value) if isinstance(value, Latencies) else value
            for name, value in values.items()
        }


def summarize(requests: Requests, *, window: Window = "run", by_request: bool = False) -> Summary:
    """The metrics of a run.

    Args:
        requests: the record.
        window: "run" counts every completed request, over the time from the first due request to
            the last token of all; a record with ``window_ns`` of 0 or more (a benchmark with a
            fixed measuring time) counts the requests completed in [0, window_ns], over that time.
            "steady" leaves out ramp and drain: latencies are over the requests due between the
            10th and the 90th percentile of the due times, rates over the requests completed between
            those two moments. Gap percentiles are always those of the whole run.
        by_request: whether the latencies of single requests are kept, for joint attainment.
    """
    counted, completed, seconds, words = _window(requests, window)
    # a slice copies nothing
    rows, done = (
        (slice(None), slice(None)) if counted.size == len(requests) else (counted, completed)
    )
    columns = (
        requests.due_ns,
        requests.sent_ns,
        requests.first_token_ns,
        requests.last_token_ns,
        requests.osl,
    )
    due, sent, first, last, osl = (column[rows] for column in columns)
    e2e = _statistics(last - due)
    # completed requests whose first token nobody saw have no TTFT and no TPOT
    if first.size and first.min() < 0:
        streamed = first >= 0
        due, sent, first, last, osl = (
            due[streamed],
            sent[streamed],
            first[streamed],
            last[streamed],
            osl[streamed],
        )
    ttft = _statistics(first - due)
    decode, gaps = last - first, osl - 1
    if not (gaps > 0).all():
        decode, gaps = decode[gaps > 0], gaps[gaps > 0]
    rate = completed.size / seconds if seconds > 0 else math.nan
    counts = np.bincount(requests.status, minlength=len(STATUS_NAMES))
    return Summary(
        requests_per_second=rate,
        output_tokens_per_second=(
            int(requests.osl[done].sum()) / seconds if seconds > 0 else math.nan
        ),
        ttft_ms=ttft,
        itl_ms=_gap_statistics(requests.gaps, int(decode.sum()), int(gaps.sum())),
        tpot_ms=_statistics(decode / gaps),
        e2e_ms=e2e,
        ttft_from_send_ms=(
            ttft
            if requests.sent_ns is requests.due_ns or (sent == due).all()
            else _statistics(first - sent)
        ),
        requests={name: int(count) for name, count in zip(STATUS_NAMES, counts, strict=True)},
        counted=int(counted.size),
        window_s=seconds,
        window=words,
        concurrency=math.nan if e2e.mean is None else rate * e2e.mean / 1e3,
        preemptions=int(requests.preemptions[rows].sum()),
        input_tokens_per_second=(
            int(requests.isl[done].sum()) / seconds if seconds > 0 else math.nan
        ),
        by_request=latencies_by_request(requests) if by_request else None,
        sessions=(
            None if requests.turns is None else session_latencies(requests, requests.turns, counted)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLatencies:
    """Latencies of the requests of sessions."""

    # first_ttft_ms, further_ttft_ms: TTFT of the first request of a session, and of all others
    first_ttft_ms: Latencies
    further_ttft_ms: Latencies
    # how many thousandths of the time that its answers take alone those of a session took, in all
    slowdown_ms: Latencies


FEWEST_ANSWERS = 5  # Answers from which on those of a session are compared with the same ones alone


def session_latencies(
    requests: Requests, turns: Turns, rows: NDArray[np.int64]
) -> SessionLatencies:
    """The latencies of some completed requests by their places in sessions."""
    ttft, first = (requests.first_token_ns - requests.due_ns)[rows], turns.first[rows]
    alone, session = turns.alone_ns[rows], turns.session[rows]
    e2e, compared = (requests.last_token_ns - requests.due_ns)[rows], alone > 0
    counts, took, least = (
        np.bincount(session[compared], weights)
        for weights in (None, e2e[compared], alone[compared])
    )
    enough = counts >= FEWEST_ANSWERS
    ratios = took[enough] / least[enough]
    return SessionLatencies(
        first_ttft_ms=_statistics(ttft[first]),
        further_ttft_ms=_statistics(ttft[~first]),
        slowdown_ms=_statistics(1e9 * ratios),
    )


def of_rows(requests: Requests, rows: NDArray[np.int64]) -> tuple[Latencies, Latencies, Latencies]:
    """TTFT, TPOT and E2E of some completed requests, by their rows."""
    due, first, last, osl = (
        requests.due_ns[rows],
        requests.first_token_ns[rows],
        requests.last_token_ns[rows],
        requests.osl[rows],
    )
    streamed = first >= 0
    several = (osl > 1) & streamed
    return (
        _statistics((first - due)[streamed]),
        _statistics((last - first)[several] / (osl[several] - 1)),
        _statistics(last - due),
    )


def reported_rates(requests: Requests) -> tuple[float, float]:
    """Requests/s and output tokens/s as a benchmark reports them; NaN where no request was
    completed in time.

    GenAI-Perf and others divide by the time from the start to the last answer that they count, not
    by the nominal window.
    """
    rows, _, _, _ = _window(requests, "run")
    if not rows.size:
        return math.nan, math.nan
    seconds = (
        int(requests.last_token_ns[rows].max()) - max(int(requests.due_ns[rows].min()), 0)
    ) / 1e9
    return rows.size / seconds, int(requests.osl[rows].sum()) / seconds


def counted_rows(requests: Requests) -> NDArray[np.int64]:
    """Row numbers of the requests that ``summarize`` counts: the completed ones, inside the
    record's window if it has one.
    """
    return _window(requests, "run")[0]


def _window(
    requests: Requests, window: Window
) -> tuple[NDArray[np.int64], NDArray[np.int64], float, str]:
    """Rows whose latencies count, rows whose completion counts, seconds of the window, and words
    for it.
    """
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
        return (
            rows,
            done,
            seconds,
            (
                f"steady state: the {seconds:.6g} s between 10 % and 90 % of the requests in order"
                " of due time"
            ),
        )
    if requests.window_ns >= 0:
        rows = np.flatnonzero(completed & (ends <= requests.window_ns))
        seconds = requests.window_ns / 1e9
        return (
            rows,
            rows,
            seconds,
            f"requests completed in the first {seconds:.6g} s, over that time",
        )
    rows = np.flatnonzero(completed)
    started, ended = int(due.min(where=due >= 0, initial=_NEVER_NS)), int(ends.max(initial=-1))
    seconds = (ended - started) / 1e9 if started < _NEVER_NS and ended >= 0 else math.nan
    return (
        rows,
        rows,
        seconds,
        f"whole run: {seconds:.6g} s from the first due request to the last token of all",
    )


def _statistics(nanoseconds: NDArray[np.int64] | NDArray[np.float64]) -> Latencies:
    if not nanoseconds.size:
        return Latencies()
    mean = float(nanoseconds.mean()) / 1e6
    # of an array made for this
    p50, p90, p95, p99 = (value / 1e6 for value in percentiles(nanoseconds, _PERCENTILES))
    return latencies(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99)


def percentiles(
    values: NDArray[np.int64] | NDArray[np.float64], numbers: Sequence[float]
) -> list[float]:
    """The numbers of ``numpy.percentile`` in a fraction of its time, of integers below 2**53; the
    values change their order.
    """
    last = values.size - 1
    places = [last * (percentile / 100) for percentile in numbers]
    values.partition([min(int(place) + further, last) for place in places for further in (0, 1)])
    quantiles = []
    for place in places:
        below = min(int(place), last)
        low, high, share = values[below].item(), values[min(below + 1, last)].item(), place - below
        quantiles.append(
            float(low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share))
        )
    return quantiles


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
    """The gap at a percentile, from the number of gaps up to each bin."""
    count = int(cumulated[-1])
    if not count:
        return math.nan
    rank = max(1, math.ceil(round(percentile / 100 * count, 6)))
    index = int(cumulated.searchsorted(rank))
    edges = gap_edges_ns()
    return float(edges[index] * (1 + GAP_BIN_WIDTH / 2)) if index else float(edges[1] / 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ByRequest:
    """Seconds of every request of a record: infinite where it was not completed in the window; a
    request of one token has a TPOT of 0.
    """

    ttft: NDArray[np.float64]
    tpot: NDArray[np.float64]
    e2e: NDArray[np.float64]

    def ratios(self, parts: Sequence[tuple[LimitMetric, float]]) -> NDArray[np.float64]:
        """How many times the tightest of its limits each request takes: at most 1 where it meets
        them all.
        """
        columns = {"ttft": self.ttft, "tpot": self.tpot, "itl": self.tpot, "e2e": self.e2e}
        tightest: NDArray[np.float64] = np.max(
            [columns[metric] / seconds for metric, seconds in parts], axis=0
        )
        return tightest

    def ratio_of(self, share: float, parts: Sequence[tuple[LimitMetric, float]]) -> float:
        """The least ratio that so large a share of the requests does not exceed: at most 1 where
        that share meets the limits.
        """
        ratios = self.ratios(parts)
        if not ratios.size:
            return math.nan
        rank = max(1, math.ceil(round(share * ratios.size, 6)))
        return float(np.partition(ratios, rank - 1)[rank - 1])


def latencies_by_request(requests: Requests, counted: NDArray[np.bool_] | None = None) -> ByRequest:
    """The latencies of each of the given requests, where None of those counted by ``summarize``;
    the ITL of a request is its TPOT.
    """
    due, first, last, gaps = (
        requests.due_ns,
        requests.first_token_ns,
        requests.last_token_ns,
        requests.osl - 1,
    )
    counts = (
        np.isin(np.arange(len(requests)), counted_rows(requests)) if counted is None else counted
    )
    values = (
        first - due,
        np.where(gaps > 0, (last - first) / np.maximum(gaps, 1), 0.0),
        last - due,
    )
    ttft, tpot, e2e = (np.where(counts, value / 1e9, math.inf) for value in values)
    return ByRequest(ttft=ttft, tpot=tpot, e2e=e2e)


@strict
class Attained:
    """Requests that met every one of some limits."""

    limits: str  # in words
    requests_per_second: float  # goodput, over the window
    share: float  # of all requests that were due in the run
    # low, high: between which the share is with a confidence of 95 %, by its scatter over blocks of
    # the run
    low: float
    high: float
    asked: float | None = None  # the share that a limit wants; None for goodput alone

    @property
    def holds(self) -> bool | None:
        """Whether the wanted share met the limits; None for goodput alone."""
        return None if self.asked is None else self.share >= self.asked - 1e-9

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self) | {"holds": self.holds}


# Blocks of a run whose shares are compared, and the 97.5th percentile of Student's t with one
# degree of freedom fewer
BLOCKS, STUDENT = 20, 2.093


def student_t(p: float, degrees: int) -> float:
    """The quantile of Student's t by its expansion around the normal one (Abramowitz and Stegun
    26.7.5).

    From five degrees of freedom on it is within 2 % between the 2.5th and the 97.5th percentile.
    """
    z, n = NormalDist().inv_cdf(min(max(p, 1e-6), 1 - 1e-6)), float(max(degrees, 1))
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def attained(
    requests: Requests, slo: Slo, place: NDArray[np.bool_] | None = None
) -> tuple[Attained, ...]:
    """Joint attainment of each limit on it, and the goodput of all other limits together, whatever
    statistic they are on.
    """
    return attained_of(latencies_by_request(requests), _window(requests, "run")[2], slo, place)


def attained_of(
    values: ByRequest, seconds: float, slo: Slo, place: NDArray[np.bool_] | None = None
) -> tuple[Attained, ...]:
    """The same of the latencies of requests in the order of their due times, over a window of so
    many seconds.

    The interval is Wilson's, of as many independent requests as explain how much the share differs
    between ``BLOCKS`` blocks of the run.
    """
    single = tuple((limit.metric, limit.seconds) for limit in slo if limit.share is None)
    words = " & ".join(str(limit) for limit in slo if limit.share is None)
    conditions: list[tuple[str, float | None, tuple[tuple[LimitMetric, float], ...]]] = (
        [(words, None, single)] if single else []
    )
    conditions += [
        (str(limit), limit.share, limit.parts) for limit in slo if limit.share is not None
    ]
    attainments = []
    for words, target_share, parts in conditions:
        met = values.ratios(parts) <= 1.0
        met = met if place is None else met[place]
        if met.size:
            low, high = _share_interval(met)
            rate = float(np.count_nonzero(met)) / seconds if seconds > 0 else math.nan
            attainments.append(
                Attained(
                    limits=words,
                    requests_per_second=rate,
                    share=float(met.mean()),
                    low=low,
                    high=high,
                    asked=target_share,
                )
            )
    return tuple(attainments)


def _share_interval(met: NDArray[np.bool_]) -> tuple[float, float]:
    """Wilson's interval of a share, of fewer requests where neighbours in time are alike."""
    count, share = met.size, float(met.mean())
    blocks = np.array_split(met, BLOCKS) if count >= 2 * BLOCKS else []
    expected_variance = share * (1 - share) * BLOCKS / count
    alike = (
        max(1.0, float(np.var([block.mean() for block in blocks], ddof=1)) / expected_variance)
        if blocks and expected_variance > 0
        else 1.0
    )
    n, z = count / alike, STUDENT
    middle, half = share + z * z / 2 / n, z * math.sqrt(share * (1 - share) / n + z * z / 4 / n / n)
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))
