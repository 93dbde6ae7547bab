"""The highest load inside the limits, searched where one answer may be wrong: bisection with
probabilities.

What is believed of the threshold is a probability for each load of a fine grid. Each run at a load
answers "passes" or "fails" with the probability that this is right, which makes the loads above or
below it more likely by Bayes' rule; the next run is made at the median (Horstein, "Sequential
transmission using noiseless feedback", IEEE Transactions on Information Theory 9, 1963).

A wrong answer is likely near the threshold and rare far from it, which is what makes the interval
narrow: a run that fails says little of the loads just below it, and nearly rules out those well
above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tonnage.bench.benchmark import Measured
from tonnage.bench.intervals import intervals, rank_interval
from tonnage.bench.steady import ttft_rise_ms
from tonnage.results.requests import COMPLETED
from tonnage.spec.deployment import Limit, Slo

GROWTH = 2.0  # Factor between two loads while none has failed

CELLS = 2_000
CONFIDENCE = 0.9
# However clear an answer looks, at another time the same load may have given the other one
SUREST = 0.98

NEAR = 0.02
"""Standard deviation by which the threshold differs from run to run, as a share; of an answer that
is not sure it counts for more."""

ODD = 0.005  # Probability of a wrong answer far from the threshold: the run was an odd one
# Answers after which an end of the interval that is farther from the median than this share is
# looked at
SETTLED, TAIL = 7, 0.08
LOGISTIC = 1.702  # Makes the logistic function nearly the normal distribution's
LEAST_SURE = 0.05  # By which an answer is surer than a coin, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The verdict of one run."""

    load: float
    passed: bool  # whether it met the limits
    sure: float  # probability that this is right, from 0.5 to 1


class Threshold:
    """The load at which runs begin to fail, as far as the verdicts tell."""

    def __init__(self, start: float, *, whole: bool = False, precision: float = 0.05) -> None:
        """Start from a load that may pass or fail; ``precision`` is the width of the interval over
        its middle at which the search may end.
        """
        self._whole = whole
        self._precision = precision
        self._next = start
        self._passed: float | None = None
        self._failed: float | None = None
        self._loads: np.typing.NDArray[np.float64] | None = None
        self._weights: np.typing.NDArray[np.float64] | None = None
        self.answers: list[Answer] = []

    @property
    def load(self) -> float:
        """The load of the next run."""
        return float(max(1, round(self._next))) if self._whole else self._next

    def tell(self, *, passed: bool, sure: float) -> None:
        """Take the answer of the run at ``load``."""
        answer = Answer(load=self.load, passed=passed, sure=min(max(sure, 0.5), SUREST))
        self.answers.append(answer)
        if self._loads is None:
            self._bracket(answer)
        else:
            self._weigh(answer)
        if self._loads is not None:
            # the median, or once that is settled, what is between it and the far end: a run there
            # cuts off the tail of an odd answer
            low, middle, high = (
                self._quantile(share) for share in ((1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2)
            )
            far = high if high / middle > middle / low else low
            tail = abs(math.log(far / middle))
            settled = len(self.answers) >= SETTLED and tail > TAIL
            self._next = math.sqrt(middle * far) if settled else middle

    def _bracket(self, answer: Answer) -> None:
        """Double or halve until one load has passed and one has failed; then weigh every answer on
        the grid between.
        """
        if answer.passed:
            self._passed = answer.load
        else:
            self._failed = answer.load
        if self._passed is None:
            self._next = answer.load / GROWTH
        elif self._failed is None:
            self._next = answer.load * GROWTH
        else:
            # One step beyond either end, in case an answer there was wrong.
            low, high = self._passed / GROWTH, self._failed * GROWTH
            self._loads = np.geomspace(low, high, CELLS)
            self._weights = np.full(CELLS, 1 / CELLS)
            for earlier_answer in self.answers:
                self._weigh(earlier_answer)

    def _weigh(self, answer: Answer) -> None:
        if self._loads is None or self._weights is None:
            return
        scale = NEAR / max(2 * answer.sure - 1, LEAST_SURE)
        passes = ODD + (1 - 2 * ODD) / (
            1 + np.exp(-LOGISTIC * np.log(self._loads / answer.load) / scale)
        )
        weights = self._weights * (passes if answer.passed else 1 - passes)
        self._weights = weights / weights.sum()

    def _quantile(self, share: float) -> float:
        if self._loads is None or self._weights is None:
            return math.nan
        place = int(np.searchsorted(np.cumsum(self._weights), share))
        return float(self._loads[min(place, CELLS - 1)])

    @property
    def middle(self) -> float:
        """The median of what is believed; the highest load that passed, or NaN, while none has
        failed or none has passed.
        """
        if self._loads is None:
            return self._passed if self._passed is not None else math.nan
        return self._quantile(0.5)

    @property
    def interval(self) -> tuple[float, float]:
        """Between which loads the threshold is with a confidence of 0.9."""
        if self._loads is None:
            return (self._passed or 0.0, self._failed if self._failed is not None else math.inf)
        return self._quantile((1 - CONFIDENCE) / 2), self._quantile((1 + CONFIDENCE) / 2)

    @property
    def found(self) -> bool:
        """Whether the interval is narrow enough, or holds no further whole number."""
        low, high = self.interval
        if self._loads is None or not low:
            return self._whole and self._failed == 1
        if self._whole and math.floor(high) - math.ceil(low) < 1:
            return True
        return (high - low) / self.middle <= self._precision


MOST_RUNS = 12
CLEAR = 0.98
SAME = 0.02
"""Share by which the interval is widened either way: a server carries a little more or less from
run to run, and runs that begin with an empty server look a little better than the steady state. Of
20 searches with random arrivals in runs of 20 s, 19 then hold the true load
(tests/bench/test_find_max.py)."""

QUEUED = ("ttft", "e2e")  # Metrics that a queue before the server lengthens
# The most that the room of a limit is taken to hide: more rises within the run and fails it
MOST_ROOM = 0.05

SPREAD = 1.96
# Rise of TTFT over a run, as a share of the tightest limit, that shows a queue that grows
RISE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a search."""

    load: float  # clients, or requests per second
    passed: bool  # whether it met every limit in a steady state, without errors
    sure: float  # probability that this is right
    why: str  # what failed, in words; "" where it passed
    measured: Measured

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name, without the run."""
        summary = self.measured.summary
        return {
            "load": self.load,
            "passed": self.passed,
            "sure": self.sure,
            "why": self.why,
            "verdict": self.measured.validity.verdict,
            "ttft_p95_ms": summary.ttft_ms.p95,
            "tpot_mean_ms": summary.tpot_ms.mean,
            "requests_per_second": summary.requests_per_second,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Maximum:
    """The result of a search."""

    load: float  # the highest load inside the limits; NaN where none was
    # between which loads it is with a confidence of 0.9; wider than what the search believes by
    # what its runs cannot tell (``_widened``)
    interval: tuple[float, float]
    precise: bool  # whether the interval is as narrow as requested
    # whether the client was too slow before the server was: then the server can do more
    client_limited: bool
    unit: str  # "requests/s" or "clients"
    limits: tuple[str, ...]  # in words
    trials: tuple[Trial, ...]  # every run, in order

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return {
            "find_max": {
                "load": self.load,
                "interval": list(self.interval),
                "confidence": 0.9,
                "precise": self.precise,
                "client_limited": self.client_limited,
                "unit": self.unit,
                "limits": list(self.limits),
            },
            "runs": [trial.to_json() for trial in self.trials],
        }


def find_max(
    run: Callable[[float], Measured],
    slo: Slo,
    *,
    start: float,
    whole: bool,
    most_runs: int = MOST_RUNS,
) -> Maximum:
    """Search the highest load inside ``slo``, in ``most_runs`` at most; loads are ``whole`` numbers
    of clients, or requests per second.
    """
    search = Threshold(start, whole=whole)
    trials: list[Trial] = []
    client_limited = False
    while len(trials) < most_runs and not search.found:
        load = search.load
        measured = run(load)
        if measured.observed.interrupted:
            break
        trial = judged(load, measured, slo, whole=whole)
        trials.append(trial)
        if measured.validity.client_limited and not trial.passed:
            client_limited = True
            break
        search.tell(passed=trial.passed, sure=trial.sure)
    return Maximum(
        load=search.middle,
        interval=_widened(search.interval, trials, slo, whole=whole),
        precise=search.found and not client_limited,
        client_limited=client_limited,
        unit="clients" if whole else "requests/s",
        limits=tuple(str(limit) for limit in slo),
        trials=tuple(trials),
    )


def _widened(
    interval: tuple[float, float], trials: Sequence[Trial], slo: Slo, *, whole: bool
) -> tuple[float, float]:
    """The interval of the search, widened by what finite runs on a real server cannot tell.

    The server carries a little more or less from run to run. And in an open loop above capacity by
    a share e, the queue of a run of T seconds grows to e·T seconds of work: where the limit leaves
    room for that, the run passes. So the true capacity may lie lower than any load that failed, by
    the room over the length of the run.
    """
    low, high = interval
    room = 0.0
    passed = [trial for trial in trials if trial.passed]
    if passed and not whole:
        last = max(passed, key=lambda trial: trial.load)
        spare = min(
            (limit.seconds for limit in _single(slo) if limit.metric in QUEUED), default=0.0
        )
        seconds = last.measured.observed.seconds
        room = min(spare / seconds, MOST_ROOM) if seconds > 0 else 0.0
    return low / (1 + SAME + room), high * (1 + SAME)


def judged(load: float, measured: Measured, slo: Slo, *, whole: bool = False) -> Trial:
    """Whether a run met the limits, and how sure that is.

    A run without a steady state, with too many errors, or whose rate was not reached, has failed
    whatever its latencies: the server did not carry the load. So has an open loop whose TTFT was
    still rising at its end.
    """
    server = [
        reason
        for reason in measured.validity.reasons
        if reason not in measured.validity.client_reasons
    ]
    if server:
        return Trial(load=load, passed=False, sure=CLEAR, why=server[0], measured=measured)
    rise, least = (
        ttft_rise_ms(measured.requests),
        RISE * min(limit.seconds for limit in _single(slo)) * 1e3,
    )
    if not whole and rise > least:
        return Trial(
            load=load,
            passed=False,
            sure=CLEAR,
            why=f"TTFT still rose by {rise:.3g} ms over the run",
            measured=measured,
        )
    margins = [_margin(limit, measured) for limit in slo]
    value, spread, limit = min(
        margins, key=lambda m: (m[2].seconds * 1e3 - m[0]) / m[1] if m[1] > 0 else math.inf
    )
    room = limit.seconds * 1e3 - value
    passed = room >= 0
    sure = 0.5 * (1 + math.erf(abs(room) / spread / math.sqrt(2))) if spread > 0 else CLEAR
    why = (
        ""
        if passed
        else (
            f"{limit.metric.upper()} {limit.statistic} was {value:.4g} ms, the limit is"
            f" {limit.seconds * 1e3:g} ms"
        )
    )
    if not passed and limit.share is not None:
        why = f"{100 * limit.share:g}% of the requests took up to {value / 1e3:.4g} times {limit}"
    return Trial(load=load, passed=passed, sure=min(sure, CLEAR), why=why, measured=measured)


def _single(slo: Slo) -> Slo:
    """The limits, each part of joint attainment as a separate one."""
    parts = tuple(
        replace(limit, metric=metric, seconds=seconds)
        for limit in slo
        for metric, seconds in limit.parts
    )
    return (*(limit for limit in slo if limit.share is None), *parts)


def _margin(limit: Limit, measured: Measured) -> tuple[float, float, Limit]:
    """The value that is limited, and its standard error, both in milliseconds."""
    value = 1e3 * measured.summary.limit_s(limit)
    low, high = (
        intervals(measured.requests)
        .get(f"{limit.metric}_ms", {})
        .get(limit.statistic, (math.nan, math.nan))
    )
    if math.isnan(low):
        low, high = _by_ranks(limit, measured)
    spread = (high - low) / (2 * SPREAD)
    return value, spread if math.isfinite(spread) and spread > 0 else 0.02 * value, limit


def _by_ranks(limit: Limit, measured: Measured) -> tuple[float, float]:
    """The interval of a percentile from the ranks of the samples, where there are too few for
    blocks.
    """
    requests = measured.requests
    rows = np.flatnonzero(requests.status == COMPLETED)
    if limit.statistic == "mean" or limit.metric not in ("ttft", "e2e"):
        return math.nan, math.nan
    ends = requests.first_token_ns if limit.metric == "ttft" else requests.last_token_ns
    values = np.sort(ends[rows] - requests.due_ns[rows]) / 1e6
    ranks = rank_interval(len(values), float(limit.statistic[1:]), 0.95)
    return (float(values[ranks[0]]), float(values[ranks[1]])) if ranks else (math.nan, math.nan)
