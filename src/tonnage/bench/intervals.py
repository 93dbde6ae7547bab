"""How sure a statistic is: a bootstrap over blocks of time, since neighbouring requests share the
server's state.

The run is cut into blocks of neighbouring requests, blocks are drawn with replacement until there
are as many, and the statistic is taken again; the interval is between quantiles of what comes out
(Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics
17, 1989: here with blocks that do not overlap).

The number of samples above the true p-quantile is binomial. A percentile can be bounded from above
at a confidence c only if the chance that all n samples are below it is at most 1 − c: pⁿ ≤ 1 − c.
For p99 at 0.99 that is 459 samples, the count that MLPerf LoadGen's early stopping asks for
(``loadgen/early_stopping.cc``, tolerance 0).

Of single gaps, an event that carries k tokens counts as k gaps of a k-th of the time since the
event before it, as in the record; the tokens of the first event have no gap. ``other_definitions``
computes what other clients define otherwise from this run's own record: GenAI-Perf 0.0.16, AIPerf
0.13, GuideLLM 0.8.1 and vLLM 0.33, as their code computes it.

``compare`` lays two runs side by side: the ratio of every latency with its interval, and quantile
against quantile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import in_python
from tonnage.notebook import InNotebooks
from tonnage.results.metrics import Attained, attained, student_t, summarize
from tonnage.results.requests import COMPLETED, GAP_BINS, Requests, gap_edges_ns
from tonnage.spec.deployment import Slo

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


CONFIDENCE = 0.95
BLOCKS = 30
FEWEST_BLOCKS = 8
BLOCK_REQUESTS = 5  # Requests of a block at least

DRAWS = 200

STATISTICS = ("mean", "p50", "p95", "p99")


def block_draws(values: NDArray[np.float64], *, seed: int) -> NDArray[np.float64] | None:
    """Mean, p50, p95 and p99 of each draw of blocks, float64 of shape (DRAWS, 4); None where there
    are too few values.

    ``values`` are one for each request, in the order of time. The draws are spread about the
    statistics of the values themselves as widely as Student's t asks for, since the spread of B
    block means is known from B values only.
    """
    count = min(BLOCKS, values.size // BLOCK_REQUESTS)
    if count < FEWEST_BLOCKS:
        return None
    blocks = np.array_split(values, count)
    rng = np.random.default_rng(seed)
    draws = np.array(
        [
            statistics(np.concatenate([blocks[i] for i in places]))
            for places in rng.integers(0, count, (DRAWS, count))
        ]
    )
    return widened(draws, statistics(values), count)


def widened(
    draws: NDArray[np.float64], middle: NDArray[np.float64], blocks: int
) -> NDArray[np.float64]:
    """Draws (float64 of (draws, statistics)) spread about the statistics of all values as widely as
    Student's t asks for.
    """
    widened_draws: NDArray[np.float64] = middle + (draws - middle) * (
        student_t(0.975, blocks - 1) / _NORMAL
    )
    return widened_draws


def block_intervals(values: NDArray[np.float64], *, seed: int) -> dict[str, tuple[float, float]]:
    """Between which values mean, p50, p95 and p99 lie with a confidence of 0.95; NaN where there
    are too few values for blocks.
    """
    draws = block_draws(values, seed=seed)
    if draws is None:
        return dict.fromkeys(STATISTICS, (math.nan, math.nan))
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return {name: (float(low[k]), float(high[k])) for k, name in enumerate(STATISTICS)}


def statistics(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean, p50, p95 and p99, in the order of ``STATISTICS``."""
    return np.array([values.mean(), *np.percentile(values, (50, 95, 99))])


_NORMAL = 1.959964


def completed_rows(requests: Requests) -> Integers:
    """Rows of the completed requests, in the order of their due times."""
    rows = np.flatnonzero(requests.status == COMPLETED)
    return rows[np.argsort(requests.due_ns[rows], kind="stable")]


def latencies_ms(requests: Requests, rows: Integers) -> dict[str, Floats]:
    """TTFT, TPOT and E2E of these rows in milliseconds; TPOT of those with several tokens only, and
    neither without a first token.
    """
    due, first, last, osl = (
        requests.due_ns[rows],
        requests.first_token_ns[rows],
        requests.last_token_ns[rows],
        requests.osl[rows],
    )
    streamed = first >= 0
    several = (osl > 1) & streamed
    return {
        "ttft_ms": (first - due)[streamed] / 1e6,
        "tpot_ms": (last - first)[several] / np.maximum(osl[several] - 1, 1) / 1e6,
        "e2e_ms": (last - due) / 1e6,
    }


def intervals(requests: Requests, *, seed: int = 0) -> dict[str, dict[str, tuple[float, float]]]:
    """Intervals of the mean, p50, p95 and p99 of TTFT, TPOT and E2E in milliseconds, at a
    confidence of 0.95.
    """
    return {
        metric: block_intervals(values, seed=seed)
        for metric, values in latencies_ms(requests, completed_rows(requests)).items()
    }


SAMPLES_CONFIDENCE = 0.99


def needed(percentile: float, confidence: float = SAMPLES_CONFIDENCE) -> int:
    """Samples that a percentile (above 0, below 100) needs at a confidence (above 0, below 1), such
    as 459 for 99.
    """
    share = max(percentile, 100 - percentile) / 100
    return math.ceil(math.log(1 - confidence) / math.log(share))


def rank_interval(
    count: int, percentile: float, confidence: float = SAMPLES_CONFIDENCE
) -> tuple[int, int] | None:
    """Ranks (from 0) of the two sorted samples that hold the true percentile, at most (1 − c) / 2
    on either side; None for too few.
    """
    if not count:
        return None
    p, tail = percentile / 100, (1 - confidence) / 2
    k = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    pmf = np.exp(
        logs[-1] - logs[k] - logs[count - k] + k * math.log(p) + (count - k) * math.log1p(-p)
    )
    below = np.cumsum(pmf)
    low = int(np.searchsorted(below, tail, side="right")) - 1
    high = int(np.searchsorted(below, 1 - tail, side="left"))
    return (low, high) if low >= 0 and high < count else None


PERCENTILES = (50, 90, 95, 99)


def percentiles(values: NDArray[Any], unit: float = 1.0) -> dict[str, float | None]:
    """Mean, p50, p90, p95 and p99 over a unit; None where there are no values."""
    if not values.size:
        return dict.fromkeys(("mean", *(f"p{p}" for p in PERCENTILES)))
    quantiles = np.percentile(values, PERCENTILES)
    return {
        "mean": float(values.mean()) / unit,
        **{f"p{p}": float(v) / unit for p, v in zip(PERCENTILES, quantiles, strict=True)},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleGaps:
    """The gaps of a run, one row for each event after the first of its request."""

    ms: Floats  # each gap, in milliseconds
    count: Integers  # how many tokens the event carried, so how often the gap counts
    request: Integers  # whose it is, by row of the record

    def of(self, rows: NDArray[np.bool_]) -> SingleGaps:
        """Select the gaps of some requests, given as a bool per row of the record."""
        mask = rows[self.request]
        return SingleGaps(ms=self.ms[mask], count=self.count[mask], request=self.request[mask])

    def statistics(self) -> dict[str, float | None]:
        """Mean, p50, p90, p95 and p99 in milliseconds; None where there is no gap."""
        total = int(self.count.sum())
        if not total:
            return dict.fromkeys(("mean", *(f"p{p}" for p in PERCENTILES)))
        order = np.argsort(self.ms)
        below = np.cumsum(self.count[order])
        places = np.searchsorted(below, [p / 100 * total for p in PERCENTILES])
        quantiles = self.ms[order][np.minimum(places, len(order) - 1)]
        return {
            "mean": float((self.ms * self.count).sum() / total),
            **{f"p{p}": float(v) for p, v in zip(PERCENTILES, quantiles, strict=True)},
        }


def single_gaps(offsets_ns: Integers, lengths: Integers) -> SingleGaps:
    """The gaps of every request, of the moments of all tokens and how many belong to each request
    (``read_tokens``).
    """
    owner = np.repeat(np.arange(len(lengths)), lengths)
    begins = np.ones(len(offsets_ns), dtype=bool)
    begins[1:] = (np.diff(offsets_ns) != 0) | (np.diff(owner) != 0)
    places = np.flatnonzero(begins)
    count, request, moment = (
        np.diff(np.append(places, len(offsets_ns))),
        owner[places],
        offsets_ns[places],
    )
    later = np.flatnonzero(np.diff(request) == 0) + 1
    return SingleGaps(
        ms=(moment[later] - moment[later - 1]) / count[later] / 1e6,
        count=count[later],
        request=request[later],
    )


def gap_intervals(
    gaps: SingleGaps, requests: Requests, *, seed: int
) -> dict[str, tuple[float, float]]:
    """Between which values mean, p50, p95 and p99 of the gaps lie with a confidence of 0.95, in
    milliseconds; NaN where there are too few.

    The bootstrap is that of ``intervals``: blocks are of neighbouring requests. Percentiles of a
    draw come from bins 1 % wide.
    """
    rows = completed_rows(requests)
    blocks = min(BLOCKS, rows.size // BLOCK_REQUESTS)
    if blocks < FEWEST_BLOCKS or not gaps.ms.size:
        return dict.fromkeys(STATISTICS, (math.nan, math.nan))
    block = np.full(len(requests), -1)
    for number, part in enumerate(np.array_split(rows, blocks)):
        block[part] = number
    gaps = gaps.of(block >= 0)
    mine = block[gaps.request]
    bins = np.clip(
        np.searchsorted(gap_edges_ns(), gaps.ms * 1e6, side="right") - 1, 0, GAP_BINS - 1
    )
    histogram = np.bincount(
        mine * GAP_BINS + bins, weights=gaps.count, minlength=blocks * GAP_BINS
    ).reshape(blocks, GAP_BINS)
    sums = np.bincount(mine, weights=gaps.ms * gaps.count, minlength=blocks)
    drawn = np.random.default_rng(seed).integers(0, blocks, (DRAWS, blocks))
    often = np.vstack(
        [np.ones(blocks), np.array([np.bincount(draw, minlength=blocks) for draw in drawn])]
    )
    values = _of_histograms(often @ histogram, often @ sums)
    draws = widened(values[1:], values[0], blocks)
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return {name: (float(low[k]), float(high[k])) for k, name in enumerate(STATISTICS)}


def _of_histograms(counts: Floats, sums: Floats) -> Floats:
    """Mean, p50, p95 and p99 of each histogram, in milliseconds: float64 of (histograms, 4)."""
    total, middles = counts.sum(axis=1), gap_edges_ns() * 1.005 / 1e6
    below = np.cumsum(counts, axis=1)
    columns = [sums / total]
    columns += [
        middles[np.minimum((below < share * total[:, None]).sum(axis=1), GAP_BINS - 1)]
        for share in (0.50, 0.95, 0.99)
    ]
    return np.array(columns).T


WORDS = {
    "gap_by_event_ms": (
        "every gap between two events of different moments, pooled (vLLM's itl, AIPerf's inter"
        " chunk latency)"
    ),
    "tpot_by_event_ms": (
        "(last token − first) / (tokens − tokens of the first event), one value per request"
    ),
    "tpot_with_ttft_ms": (
        "(last token − sent) / tokens, one value per request (GuideLLM's time per output token,"
        " llmperf's ITL)"
    ),
    "inter_token_latency_ms": (
        "(last token − first) / (tokens − 1), one value per request (GenAI-Perf, AIPerf): our TPOT"
    ),
    "request_latency_ms": "last token − sent, one value per request (GenAI-Perf, AIPerf, vLLM)",
}


def other_definitions(
    requests: Requests, offsets_ns: NDArray[np.int64], lengths: NDArray[np.int64]
) -> dict[str, Any]:
    """Mean and percentiles of each, in milliseconds, with its definition; arguments as of
    ``single_gaps``, and the record.
    """
    good = (requests.status == COMPLETED) & (lengths > 0)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    first, last = starts[good], (starts + lengths - 1)[good]
    n = lengths[good]
    owner = np.repeat(np.arange(len(lengths)), lengths)
    first_ns = offsets_ns[starts[lengths > 0]]
    with_first = np.bincount(
        owner[offsets_ns == np.repeat(first_ns, lengths[lengths > 0])], minlength=len(lengths)
    )[good]
    decode = (offsets_ns[last] - offsets_ns[first]).astype(np.float64)
    steps = np.diff(offsets_ns)
    inside = np.ones(max(len(offsets_ns) - 1, 0), dtype=bool)
    inside[starts[1:][(starts[1:] > 0) & (starts[1:] <= len(inside))] - 1] = False
    inside &= good[owner[:-1]] if len(owner) else inside
    several, later = n > 1, n > with_first
    values = {
        "gap_by_event_ms": steps[inside & (steps > 0)],
        "tpot_by_event_ms": decode[later] / (n - with_first)[later],
        "tpot_with_ttft_ms": offsets_ns[last] / n,
        "inter_token_latency_ms": decode[several] / (n - 1)[several],
        "request_latency_ms": offsets_ns[last],
    }
    return {
        name: {**percentiles(durations_ns, 1e6), "definition": WORDS[name]}
        for name, durations_ns in values.items()
    }


QUANTILES = tuple(range(1, 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One statistic of two runs."""

    metric: str  # and statistic: the compared values
    statistic: str
    first: float  # and second: its value in either run
    second: float
    # and high: between which their ratio is with a confidence of 0.95; NaN where the runs are too
    # short for that
    low: float = math.nan
    high: float = math.nan

    @property
    def ratio(self) -> float:
        """The second over the first; NaN where there is none."""
        return self.second / self.first if self.first else math.nan

    @property
    def differs(self) -> bool | None:
        """Whether the interval leaves out 1; None where there is no interval."""
        return None if math.isnan(self.low) else not self.low <= 1 <= self.high

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        names = ("metric", "statistic", "first", "second", "ratio", "low", "high", "differs")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(InNotebooks):
    """Two runs."""

    ratios: tuple[Ratio, ...]  # every statistic that is compared
    # by metric, the quantiles from 1 % to 99 % of either run
    quantiles_ms: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]
    # what makes the runs hard to compare, in words; options in them are not spelled yet
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return {
            "ratios": [ratio.to_json() for ratio in self.ratios],
            "confidence": CONFIDENCE,
            "quantiles_ms": {
                name: {"first": first, "second": second}
                for name, (first, second) in self.quantiles_ms.items()
            },
            "notes": list(map(in_python, self.notes)),
        }


def compare(first: Requests, second: Requests, *, slo: Slo = (), seed: int = 0) -> Comparison:
    """Compare two runs by their records alone, and the goodput of their joint attainment of
    ``slo``; a prediction's record will do too.
    """
    ours, theirs = (latencies_ms(run, completed_rows(run)) for run in (first, second))
    ratios = []
    for place, metric in enumerate(ours):
        ratios += _ratios(metric, ours[metric], theirs[metric], seed=seed + 2 * place)
    summary, second_summary = summarize(first), summarize(second)
    ratios += [
        Ratio(
            metric="itl_ms",
            statistic=s,
            first=getattr(summary.itl_ms, s),
            second=getattr(second_summary.itl_ms, s),
        )
        for s in STATISTICS
    ]
    for name in ("requests_per_second", "output_tokens_per_second"):
        ratios.append(
            Ratio(
                metric=name,
                statistic="mean",
                first=getattr(summary, name),
                second=getattr(second_summary, name),
            )
        )
    for ours_met, theirs_met in zip(attained(first, slo), attained(second, slo), strict=True):
        ratios.append(share_ratio(ours_met, theirs_met))
        rates = (ours_met.requests_per_second, theirs_met.requests_per_second)
        ratios.append(
            Ratio(
                metric=f"goodput {ours_met.limits}",
                statistic="mean",
                first=rates[0],
                second=rates[1],
            )
        )
    quantiles = {
        metric: tuple(
            tuple(float(v) for v in np.percentile(x, QUANTILES))
            for x in (ours[metric], theirs[metric])
        )
        for metric in ours
        if ours[metric].size and theirs[metric].size
    }
    pairs = {metric: (pair[0], pair[1]) for metric, pair in quantiles.items()}
    return Comparison(ratios=tuple(ratios), quantiles_ms=pairs, notes=_notes(first, second))


def share_ratio(first: Attained, second: Attained) -> Ratio:
    """The ratio of two shares, with an interval from those of both (Donner and Zou, MOVER for
    ratios); none where the first may be 0.
    """
    first_share, second_share, product = first.share, second.share, first.share * second.share
    low = high = math.nan
    if first.low > 0 and 2 * first_share > first.high:
        below = (
            second.low * (2 * second_share - second.low),
            first.high * (2 * first_share - first.high),
        )
        above = (
            second.high * (2 * second_share - second.high),
            first.low * (2 * first_share - first.low),
        )
        low = (product - math.sqrt(max(0.0, product**2 - below[0] * below[1]))) / below[1]
        high = (product + math.sqrt(max(0.0, product**2 - above[0] * above[1]))) / above[1]
    return Ratio(
        metric=f"share {first.limits}",
        statistic="mean",
        first=first_share,
        second=second_share,
        low=low,
        high=high,
    )


def _ratios(
    metric: str, first: NDArray[np.float64], second: NDArray[np.float64], *, seed: int
) -> list[Ratio]:
    """The ratios of one latency; both runs are drawn again independently."""
    if not first.size or not second.size:
        return []
    values = zip(STATISTICS, statistics(first), statistics(second), strict=True)
    draws = block_draws(first, seed=seed), block_draws(second, seed=seed + 1)
    if draws[0] is None or draws[1] is None:
        return [
            Ratio(metric=metric, statistic=name, first=float(a), second=float(b))
            for name, a, b in values
        ]
    tails = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws[1] / np.maximum(draws[0], 1e-9), [tails, 1 - tails], axis=0)
    return [
        Ratio(
            metric=metric,
            statistic=name,
            first=float(a),
            second=float(b),
            low=float(low[k]),
            high=float(high[k]),
        )
        for k, (name, a, b) in enumerate(values)
    ]


def _notes(first: Requests, second: Requests) -> tuple[str, ...]:
    """The arguments in which the two runs differ."""
    notes = []
    for name, column in (("prompts", "isl"), ("outputs", "osl")):
        a, b = (
            (
                float(getattr(run, column)[run.status == 0].mean())
                if (run.status == 0).any()
                else math.nan
            )
            for run in (first, second)
        )
        if not math.isclose(a, b, rel_tol=0.02):
            notes.append(
                f"{name} are {a:.0f} tokens on average in the first run, {b:.0f} in the second"
            )
    shares = [float((run.status != 0).mean()) if len(run) else 0.0 for run in (first, second)]
    if max(shares) > 0.01:
        notes.append(
            f"{shares[0]:.1%} of the requests did not complete in the first run, {shares[1]:.1%} in"
            " the second"
        )
    return tuple(notes)
