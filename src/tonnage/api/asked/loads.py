"""Makes the loads that an engine is simulated under: closed loops of clients, or open loops of requests per second."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tonnage.api.asked.arguments import Many, rates, whole_numbers
from tonnage.api.asked.lengths import LengthsFound
from tonnage.errors import InputError, option
from tonnage.spec.workload import (
    Arrivals,
    ClosedLoop,
    HourlyArrivals,
    ModulatedArrivals,
    OpenLoop,
    Process,
    Simulated,
    TraceArrivals,
    Workload,
    checked_cv,
)
from tonnage.units import LONGEST_S, parse_duration

DEFAULT_REQUESTS = 1_000
WINDOW_REQUESTS = 1_000_000
MOST_TOKENS = 2e10
MOST_REQUESTS = 5_000_000
MOST_RATE = 1e9
_STATE = re.compile(r"^\s*(\d+(?:\.\d*)?|\.\d+)\s*/\s*s\s+for\s+(\S.*?)\s*$", re.IGNORECASE)
"""A state, such as "2/s for 60s"."""

Rates = str | float | Iterable[float]


def loads_of(concurrency: Many | None, request_rate: Rates | None, process: Process, cv: float, turnaround_s: float) -> list[Arrivals]:
    """One load for every number of clients, or for every rate.

    Args:
        concurrency: clients of a closed loop; or
        request_rate: requests per second of an open loop.
        process, cv: how an open loop's requests arrive.
        turnaround_s: a client's own seconds per request.

    Raises:
        InputError: neither or both are given, or one is no such number.
    """
    if (concurrency is None) == (request_rate is None):
        what = "neither" if concurrency is None else "both"
        raise InputError(
            f"{option('concurrency')}, {option('request_rate')}: {what} given; "
            f"give one of them, for example {option('concurrency')} 1,10,100"
        )
    if concurrency is not None:
        clients = whole_numbers(concurrency, option("concurrency"))
        return [ClosedLoop(concurrency=n, turnaround_s=turnaround_s) for n in clients]
    if process == "gamma":
        checked_cv(cv)
    return [OpenLoop(rate=rate, process=process, cv=cv) for rate in rates(request_rate or "", option("request_rate"))]


def modulated_loads(text: str | None, own: Mapping[str, Any]) -> list[Simulated]:
    """Traffic of two states, as it is or with each mean that is given.

    Raises:
        InputError: no such states, or a closed loop.
    """
    where, form = option("mmpp"), "2/s for 60s, 20/s for 10s"
    if text is None or own.get("concurrency") is not None:
        raise InputError(f"{option('arrivals')}: mmpp needs the two states of {where}, such as '{form}', and an open loop")
    matches = [_STATE.match(part) for part in text.split(",")]
    states = [(float(match[1]), parse_duration(match[2], where)) for match in matches if match]
    if len(matches) != 2 or len(states) != 2:
        raise InputError(f"{where}: '{text}' is not two states; write rates and mean stays such as '{form}'")
    (calm, first), (busy, second) = states
    if max(calm, busy) <= 0 or max(calm, busy) > MOST_RATE or not 0 < min(first, second) <= max(first, second) <= LONGEST_S:
        raise InputError(f"{where}: '{text}' has no requests or no time in a state; write such as '{form}'")
    once, rate = ModulatedArrivals(rates=(calm, busy), stays_s=(first, second)), own.get("request_rate")
    return [once] if rate is None else [once.at_mean(each) for each in rates(rate, option("request_rate"))]


def window_of(text: str | None, loads: Sequence[Simulated]) -> float | None:
    """Seconds of the window in which completions count; None without one.

    Raises:
        InputError: it is no duration, or the load is an open loop.
    """
    if text is None:
        return None
    seconds = parse_duration(text, option("window"))
    if seconds <= 0:
        raise InputError(f"{option('window')}: '{text}' is empty; write for example 216s")
    if seconds > LONGEST_S:
        raise InputError(f"{option('window')}: '{text}' is longer than a simulated run may be; write at most {LONGEST_S:,.0f}s (104 days)")
    if not isinstance(loads[0], ClosedLoop):
        raise InputError(
            f"{option('window')}: belongs to a closed loop; give {option('concurrency')}, or {option('requests')} for an open loop"
        )
    return seconds


def workload_of(lengths: LengthsFound, load: Simulated, requests: int | None, window_s: float | None) -> Workload:
    """The requests of one load.

    Args:
        lengths: of prompts and outputs.
        load: when requests come.
        requests: how many; if not given 1,000, in a closed loop at least 10 per client, of a trace all, and without end in a window.
        window_s: the window, in seconds.

    Raises:
        InputError: more requests or tokens than a run may have.
    """
    count = requests
    if count is None:
        count = max(DEFAULT_REQUESTS, 10 * load.concurrency) if isinstance(load, ClosedLoop) else DEFAULT_REQUESTS
        count = len(load.recording) if isinstance(load, TraceArrivals) else load.most if isinstance(load, HourlyArrivals) else count
        count = WINDOW_REQUESTS if window_s is not None else count
    if not 1 <= count <= MOST_REQUESTS:
        raise InputError(f"{option('requests')}: {count} is not possible; write 1 to {MOST_REQUESTS:,}")
    if count * lengths.osl.mean > MOST_TOKENS and window_s is None:
        raise InputError(
            f"{option('requests')}: {count:,} × {lengths.osl.mean:,.0f} output tokens are more than the {MOST_TOKENS:.0e} "
            "that a run may have; ask for fewer"
        )
    return Workload(isl=lengths.isl, osl=lengths.osl, pairs=lengths.pairs, arrivals=load, requests=count)
