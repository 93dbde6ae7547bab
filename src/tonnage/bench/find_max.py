"""The highest load inside the limits: runs at loads that ``Threshold`` asks for, each judged with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tonnage.bench.benchmark import Measured
from tonnage.bench.intervals import intervals
from tonnage.bench.samples import rank_interval
from tonnage.bench.steady import ttft_rise_ms
from tonnage.bench.threshold import Threshold
from tonnage.results.requests import COMPLETED
from tonnage.spec.deployment import Limit, Slo

MOST_RUNS = 12
CLEAR = 0.98
SAME = 0.02
"""Share by which the interval is widened either way: a server carries a little more or less from run to run, and runs that begin with an
empty server look a little better than the steady state. Of 20 searches with random arrivals in runs of 20 s, 19 then hold the true
load (tests/bench/test_find_max.py)."""

QUEUED = ("ttft", "e2e")
"""Metrics that a queue before the server lengthens."""

MOST_ROOM = 0.05
"""The most that the room of a limit is taken to hide: more rises within the run and fails it."""

SPREAD = 1.96
RISE = 0.02
"""Rise of TTFT over a run, as a share of the tightest limit, that shows a queue that grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of a search.

    Attributes:
        load: clients, or requests per second.
        passed: whether it met every limit in a steady state, without errors.
        sure: probability that this is right.
        why: what failed, in words; "" where it passed.
        measured: the run.
    """

    load: float
    passed: bool
    sure: float
    why: str
    measured: Measured

    def to_json(self) -> dict[str, Any]:
        """By name, without the run."""
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
    """What a search found.

    Attributes:
        load: the highest load inside the limits; NaN where none was.
        interval: between which loads it lies with a confidence of 0.9; wider than what the search believes by what its runs cannot tell
            (``_told``).
        precise: whether the interval is as narrow as was asked.
        client_limited: whether the client was too slow before the server was: then the server can do more.
        unit: "requests/s" or "clients".
        limits: in words.
        trials: every run, in order.
    """

    load: float
    interval: tuple[float, float]
    precise: bool
    client_limited: bool
    unit: str
    limits: tuple[str, ...]
    trials: tuple[Trial, ...]

    def to_json(self) -> dict[str, Any]:
        """By name."""
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


def find_max(run: Callable[[float], Measured], slo: Slo, *, start: float, whole: bool, most_runs: int = MOST_RUNS) -> Maximum:
    """Search the highest load inside ``slo``.

    Args:
        run: measures one load.
        slo: every limit that must be met.
        start: the first load.
        whole: whether loads are numbers of clients; otherwise requests per second.
        most_runs: runs at most.
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
        interval=_told(search.interval, trials, slo, whole=whole),
        precise=search.found and not client_limited,
        client_limited=client_limited,
        unit="clients" if whole else "requests/s",
        limits=tuple(str(limit) for limit in slo),
        trials=tuple(trials),
    )


def _told(interval: tuple[float, float], trials: Sequence[Trial], slo: Slo, *, whole: bool) -> tuple[float, float]:
    """The interval of the search, widened by what finite runs on a real server cannot tell.

    The server carries a little more or less from run to run. And in an open loop above capacity by a share e, the queue of a run of T
    seconds grows to e·T seconds of work: where the limit leaves room for that, the run passes. So the true capacity may lie lower than
    any load that failed, by the room over the length of the run.
    """
    low, high = interval
    room = 0.0
    passed = [trial for trial in trials if trial.passed]
    if passed and not whole:
        last = max(passed, key=lambda trial: trial.load)
        spare = min((limit.seconds for limit in slo if limit.metric in QUEUED), default=0.0)
        seconds = last.measured.observed.seconds
        room = min(spare / seconds, MOST_ROOM) if seconds > 0 else 0.0
    return low / (1 + SAME + room), high * (1 + SAME)


def judged(load: float, measured: Measured, slo: Slo, *, whole: bool = False) -> Trial:
    """Whether a run met the limits, and how sure that is.

    A run without a steady state, with too many errors, or whose rate was not reached, has failed whatever its latencies:
    the server did not carry the load. So has an open loop whose TTFT was still rising at its end.
    """
    server = [reason for reason in measured.validity.reasons if reason not in measured.validity.client_reasons]
    if server:
        return Trial(load=load, passed=False, sure=CLEAR, why=server[0], measured=measured)
    rise, least = ttft_rise_ms(measured.requests), RISE * min(limit.seconds for limit in slo) * 1e3
    if not whole and rise > least:
        return Trial(load=load, passed=False, sure=CLEAR, why=f"TTFT still rose by {rise:.3g} ms over the run", measured=measured)
    margins = [_margin(limit, measured) for limit in slo]
    value, spread, limit = min(margins, key=lambda m: (m[2].seconds * 1e3 - m[0]) / m[1] if m[1] > 0 else math.inf)
    room = limit.seconds * 1e3 - value
    passed = room >= 0
    sure = 0.5 * (1 + math.erf(abs(room) / spread / math.sqrt(2))) if spread > 0 else CLEAR
    why = "" if passed else f"{limit.metric.upper()} {limit.statistic} was {value:.4g} ms, the limit is {limit.seconds * 1e3:g} ms"
    return Trial(load=load, passed=passed, sure=min(sure, CLEAR), why=why, measured=measured)


def _margin(limit: Limit, measured: Measured) -> tuple[float, float, Limit]:
    """The value that is limited, and its standard error, both in milliseconds."""
    value = measured.summary.statistic_ms(limit.metric, limit.statistic)
    low, high = intervals(measured.requests).get(f"{limit.metric}_ms", {}).get(limit.statistic, (math.nan, math.nan))
    if math.isnan(low):
        low, high = _by_ranks(limit, measured)
    spread = (high - low) / (2 * SPREAD)
    return value, spread if math.isfinite(spread) and spread > 0 else 0.02 * value, limit


def _by_ranks(limit: Limit, measured: Measured) -> tuple[float, float]:
    """The interval of a percentile from the ranks of the samples, where there are too few for blocks."""
    import numpy as np

    requests = measured.requests
    rows = np.flatnonzero(requests.status == COMPLETED)
    if limit.statistic == "mean" or limit.metric not in ("ttft", "e2e"):
        return math.nan, math.nan
    ends = requests.first_token_ns if limit.metric == "ttft" else requests.last_token_ns
    values = np.sort(ends[rows] - requests.due_ns[rows]) / 1e6
    ranks = rank_interval(len(values), float(limit.statistic[1:]), 0.95)
    return (float(values[ranks[0]]), float(values[ranks[1]])) if ranks else (math.nan, math.nan)
