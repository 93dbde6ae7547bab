"""A workload described: what recorded traffic says of lengths, arrivals and shared prefixes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tonnage.notebook import InNotebooks
from tonnage.spec.lengths import Lengths, parse_lengths
from tonnage.spec.workload import LEAST_CV, MOST_CV, OpenLoop, unit_gaps
from tonnage.units import NS_PER_S
from tonnage.workload.burstiness import Burstiness, Spread, burstiness, kolmogorov_smirnov, spread
from tonnage.workload.live_sessions import LiveSessions, live_sessions
from tonnage.workload.traffic import Sharing, Traffic, sharing

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The lengths that an engine has to be built or started for, and the KV memory that this gains over
# the model's whole context. An engine that reserves for the longest request that it admits, and any
# guarantee of how many requests run at once, pays for the context that it is started with. Most
# traffic never comes near a context of 128k tokens; the 99th percentiles say what it needs.


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Lengths at the 99th percentile."""

    # max_input_tokens, max_output_tokens: p99 of the prompts and of the outputs, rounded up
    max_input_tokens: int
    max_output_tokens: int
    beyond: float  # share of the requests that exceed one of them

    @property
    def max_sequence_tokens(self) -> int:
        """Tokens of the longest sequence that the limits admit: vLLM's max_model_len,
        TensorRT-LLM's max_seq_len.
        """
        return self.max_input_tokens + self.max_output_tokens

    def to_json(self) -> dict[str, Any]:
        """The limits in tokens."""
        return {**asdict(self), "max_sequence_tokens": self.max_sequence_tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGain:
    """The gain of the limits on one instance."""

    # model, gpu, precision, engine: the instance
    model: str
    gpu: str
    precision: str
    engine: str
    gpus: int  # GPUs of it
    context: int  # the model's longest sequence, in tokens
    limit: int  # the longest that the limits admit, which is no longer than the context
    # context_bytes, limit_bytes: KV memory of one such sequence, in bytes on each GPU
    context_bytes: int
    limit_bytes: int
    token_bytes: int  # KV memory of one token, in bytes on all of its GPUs together
    # context_requests, limit_requests: how many of them fit at once, at most the engine's slots
    context_requests: int
    limit_requests: int

    @property
    def saved_bytes(self) -> int:
        """KV memory that a sequence needs less, in bytes on each GPU."""
        return self.context_bytes - self.limit_bytes

    def to_json(self) -> dict[str, Any]:
        """Sizes in bytes on each GPU."""
        return {**asdict(self), "saved_bytes": self.saved_bytes}


def engine_limits(isl: Spread, osl: Spread, pairs: Sequence[tuple[int, int]]) -> EngineLimits:
    """The limits at the 99th percentile, and the share of the requests beyond them."""
    most_in, most_out = math.ceil(isl.p99), math.ceil(osl.p99)
    beyond = sum(prompt > most_in or output > most_out for prompt, output in pairs)
    return EngineLimits(
        max_input_tokens=most_in, max_output_tokens=most_out, beyond=beyond / len(pairs)
    )


# Finds the distribution, among a scenario's, that reproduces lengths which were seen. Every
# candidate is drawn from as the simulator draws (``Lengths.draw``), with a fixed seed, and what
# comes is held against what was seen: mean, p50, p90, p95 and p99, and the Kolmogorov-Smirnov
# distance. A candidate fits where none of these five is off by more than 10 %, and where its 99.9th
# percentile is not far beyond the longest length that was seen. Of several that fit, the one with
# the smallest distance is taken.


TOLERANCE = 0.10  # Relative error of a mean or percentile up to which a distribution fits

# Lengths that are drawn of a candidate; their own p99 then is within about 1 % of the
# distribution's
DRAWS = 100_000

SEED = 0

Z95 = 1.6449  # Standard deviations to the 95th percentile of a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLengths:
    """A distribution next to the lengths that it is to reproduce."""

    written: str  # as a scenario writes it, such as "lognormal:2000,500"
    # seen, drawn: mean and percentiles of the lengths that were seen and of the drawn ones, in
    # tokens
    seen: Spread
    drawn: Spread
    error: float  # the largest relative error of mean, p50, p90, p95 and p99
    distance: float  # Kolmogorov-Smirnov distance, from 0 (alike) to 1

    @property
    def fits(self) -> bool:
        """Whether mean and percentiles are reproduced within 10 %, and no lengths are drawn far
        beyond recorded ones.
        """
        return self.error <= TOLERANCE and not self.overshoots

    @property
    def overshoots(self) -> bool:
        """Whether its 99.9th percentile exceeds the longest length that was seen by more than 10 %:
        a model may not take such requests.
        """
        return self.lengths.longest > (1 + TOLERANCE) * self.seen.most

    @property
    def lengths(self) -> Lengths:
        """The distribution itself."""
        return parse_lengths(self.written, "the fitted lengths")

    def to_json(self) -> dict[str, Any]:
        """The distribution as a scenario writes it, and how well it fits."""
        return {
            "distribution": self.written,
            "fits": self.fits,
            "largest_error": self.error,
            "overshoots": self.overshoots,
            "ks_distance": self.distance,
        }


def fitted_lengths(values: NDArray[np.int64]) -> FittedLengths:
    """The candidate that comes nearest: the nearest fitting one, else the one with the smallest
    largest error.
    """
    measured = spread(values)
    candidates = [
        _compared(written, measured, values)
        for written in dict.fromkeys(_candidates(values, measured))
    ]
    fitting = [fitted_lengths for fitted_lengths in candidates if fitted_lengths.fits]
    return (
        min(fitting, key=lambda candidate: candidate.distance)
        if fitting
        else min(candidates, key=lambda candidate: (candidate.error, candidate.distance))
    )


def _compared(written: str, recorded: Spread, values: NDArray[np.int64]) -> FittedLengths:
    drawn = parse_lengths(written, "the fitted lengths").draw(DRAWS, np.random.default_rng(SEED))
    drawn_spread = spread(drawn)
    distance = kolmogorov_smirnov(values, drawn)
    return FittedLengths(
        written=written,
        seen=recorded,
        drawn=drawn_spread,
        error=recorded.farthest(drawn_spread),
        distance=distance,
    )


def _candidates(values: NDArray[np.int64], recorded: Spread) -> Iterator[str]:
    """Distributions whose parameters follow from the values: by likelihood, by moments, and by
    percentiles.
    """
    yield f"{max(1, round(recorded.mean))}"
    if recorded.least == recorded.most:
        return
    yield f"normal:{recorded.mean:.5g},{recorded.std:.5g}"
    yield f"uniform:{recorded.least:.0f}-{recorded.most:.0f}"
    for plus in dict.fromkeys((0, int(recorded.least) - 1, int(recorded.least) // 2)):
        yield from _lognormals(values, plus)


def _lognormals(values: NDArray[np.int64], plus: int) -> Iterator[str]:
    """Lognormal distributions on top of a fixed part of ``plus`` tokens, which is below the least
    length.
    """
    varying = values - plus
    logs = np.log(varying)
    yield from _lognormal(
        math.exp(float(logs.mean() + logs.var() / 2)),
        math.sqrt(math.expm1(float(logs.var()))),
        plus,
    )
    yield from _lognormal(float(varying.mean()), float(varying.std() / varying.mean()), plus)
    p50, p95 = (float(v) for v in np.percentile(varying, (50, 95)))
    sigma = math.log(p95 / p50) / Z95
    yield from _lognormal(
        p50 * math.exp(sigma * sigma / 2), math.sqrt(math.expm1(sigma * sigma)), plus
    )


def _lognormal(mean: float, cv: float, plus: int) -> Iterator[str]:
    """Mean and coefficient of variation as a scenario writes them; nothing where they are out of
    its range.
    """
    if mean >= 1 and cv > 1e-4 and mean * cv < 1e7:
        yield f"lognormal:{mean:.5g},{mean * cv:.5g}{f'+{plus}' if plus else ''}"


# Finds the arrival process, among a scenario's, that reproduces arrivals which were seen. Evenly
# spaced, Poisson and gamma arrivals are tried. One of them fits where mean, p50, p90, p95 and p99
# of its gaps are within 10 % of the recorded ones, and where its counts vary as much over 10 s and
# 60 s. The latter sets traffic with a drifting rate apart: its gaps may be those of Poisson
# arrivals, while its minutes vary many times more. Where none fits, the moments themselves are
# kept.


ARRIVAL_DRAWS = 200_000  # Gaps that are drawn of a candidate

# Gaps are compared relative to this share of the mean gap at least: shorter ones are alike
NOTHING = 0.001

SIGMAS = 3.0  # Standard errors of an index of dispersion, beyond the 10 %, up to which it agrees

EVEN = 0.01  # Coefficient of variation below which arrivals are evenly spaced


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedArrivals:
    """An arrival process next to the arrivals that it is to reproduce."""

    # "constant", "poisson", "gamma", or "trace" where none of them fits
    process: Literal["constant", "poisson", "gamma", "trace"]
    cv: float | None  # of gamma arrivals; None elsewhere
    rate: float  # mean requests per second
    # the largest relative error of mean and percentiles of the gaps; of the nearest process where
    # none fits
    error: float
    # seen over drawn index of dispersion, of the width at which they differ most; None where no
    # width was judged
    dispersion_error: float | None
    # why the nearest process does not fit, "gaps" or "counts"; empty where one fits
    disagreement: Literal["", "gaps", "counts"]
    nearest: str  # the process that ``error`` is of

    def to_json(self) -> dict[str, Any]:
        """The process and how well it, or the nearest one, fits."""
        return {
            "process": self.process,
            "cv": self.cv,
            "mean_rps": self.rate,
            "nearest": self.nearest,
            "largest_error": self.error,
            "dispersion_ratio": self.dispersion_error,
            "disagreement": self.disagreement or None,
        }


def fitted_arrivals(recorded: Burstiness) -> FittedArrivals:
    """The simplest process that fits: evenly spaced, then Poisson, then gamma; else the trace
    itself.
    """
    cv = min(max(recorded.cv, LEAST_CV), MOST_CV)
    rate = 1 / recorded.gaps.mean
    candidates = (
        *((OpenLoop(rate=rate, process="constant"),) if cv <= EVEN else ()),
        OpenLoop(rate=rate, process="poisson"),
        OpenLoop(rate=rate, process="gamma", cv=cv),
    )
    compared = [_compared_arrivals(candidate, recorded) for candidate in candidates]
    fitting = next(
        (fitted_arrivals for fitted_arrivals in compared if not fitted_arrivals.disagreement), None
    )
    if fitting is not None:
        return fitting
    nearest = min(
        compared, key=lambda candidate: (candidate.disagreement == "gaps", candidate.error)
    )
    return FittedArrivals(
        process="trace",
        cv=None,
        rate=rate,
        error=nearest.error,
        dispersion_error=nearest.dispersion_error,
        disagreement=nearest.disagreement,
        nearest=nearest.nearest,
    )


def _compared_arrivals(arrivals: OpenLoop, recorded: Burstiness) -> FittedArrivals:
    due: NDArray[np.float64] = (
        unit_gaps(arrivals, ARRIVAL_DRAWS, np.random.default_rng(SEED)) / arrivals.rate
    )
    drawn = burstiness(due.cumsum())
    error = recorded.gaps.farthest(drawn.gaps, NOTHING * recorded.gaps.mean)
    ratios = [
        (
            dispersion.index / drawn_dispersion.index,
            (
                TOLERANCE
                + SIGMAS * math.sqrt(2 / dispersion.intervals + 2 / drawn_dispersion.intervals)
            ),
        )
        for dispersion, drawn_dispersion in zip(recorded.dispersion, drawn.dispersion, strict=True)
        if dispersion.width_s > 1 and dispersion.index and drawn_dispersion.index
    ]
    off = max(ratios, key=lambda pair: abs(math.log(pair[0])), default=None)
    apart = (
        any(not 1 - allowed <= ratio <= 1 + allowed for ratio, allowed in ratios)
        and arrivals.process != "constant"
    )
    return FittedArrivals(
        process=arrivals.process,
        cv=arrivals.cv if arrivals.process == "gamma" else None,
        rate=arrivals.rate,
        error=error,
        dispersion_error=None if off is None else off[0],
        disagreement="gaps" if error > TOLERANCE else "counts" if apart else "",
        nearest=arrivals.process
        if arrivals.process != "gamma"
        else f"gamma arrivals with a CV of {arrivals.cv:.3g}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Description(InNotebooks):
    """The description of a recording."""

    traffic: Traffic  # what was described
    # isl, osl: lengths in tokens
    isl: Spread
    osl: Spread
    # Spearman's rank correlation of prompt and output lengths; None where all prompts or all
    # outputs are alike
    correlation: float | None
    burstiness: Burstiness  # of the arrivals
    # fitted_isl, fitted_osl: the nearest distribution of each
    fitted_isl: FittedLengths
    fitted_osl: FittedLengths
    fitted_arrivals: FittedArrivals  # the nearest process
    sharing: Sharing | None  # what prompts share; None where the file does not say
    limits: EngineLimits  # lengths at the 99th percentile
    # what its sessions are like; None where the file has none with what each request waited for
    live: LiveSessions | None = None
    gain: KvGain | None = None  # what these save on an instance; None where no model was named

    def to_json(self) -> dict[str, Any]:
        """Lengths in tokens, times in seconds, shares from 0 to 1; unknown values are null."""
        recording = self.traffic.recording
        return {
            "source": recording.source,
            "requests": len(recording),
            "failed_requests": recording.failed,
            "time_unit": recording.unit or None,
            "span_s": recording.due_ns[-1] / NS_PER_S,
            "mean_rps": recording.mean_rps,
            "isl": {**self.isl.to_json(), "fitted": self.fitted_isl.to_json()},
            "osl": {**self.osl.to_json(), "fitted": self.fitted_osl.to_json()},
            "rank_correlation": self.correlation,
            "arrivals": {**self.burstiness.to_json(), "fitted": self.fitted_arrivals.to_json()},
            "sharing": None if self.sharing is None else self.sharing.to_json(),
            "sessions": None if self.live is None else self.live.to_json(),
            "cached_tokens": self.traffic.cached_tokens,
            "engine_limits": self.limits.to_json(),
            "kv_gain": None if self.gain is None else self.gain.to_json(),
        }


def describe(traffic: Traffic) -> Description:
    """Describe a recording, without what needs a model's memory."""
    recording = traffic.recording
    isl, osl = np.array(recording.isl, dtype=np.int64), np.array(recording.osl, dtype=np.int64)
    arrivals = burstiness(np.array(recording.due_ns) / NS_PER_S)
    fitted_isl, fitted_osl = fitted_lengths(isl), fitted_lengths(osl)
    seen_isl, seen_osl = spread(isl), spread(osl)
    return Description(
        traffic=traffic,
        isl=seen_isl,
        osl=seen_osl,
        correlation=rank_correlation(isl, osl),
        burstiness=arrivals,
        fitted_isl=fitted_isl,
        fitted_osl=fitted_osl,
        fitted_arrivals=fitted_arrivals(arrivals),
        sharing=sharing(traffic),
        live=None if traffic.recorded is None else live_sessions(traffic.recorded),
        limits=engine_limits(
            seen_isl, seen_osl, list(zip(recording.isl, recording.osl, strict=True))
        ),
    )


def rank_correlation(first: NDArray[np.int64], second: NDArray[np.int64]) -> float | None:
    """Spearman's: Pearson's correlation of the ranks, where equal values share their mean rank;
    None where one has no variance.
    """
    if first.min() == first.max() or second.min() == second.max():
        return None
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = counts.cumsum() - (counts - 1) / 2
    return np.asarray(middle[places], dtype=np.float64)
