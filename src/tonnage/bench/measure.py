"""One run over the wire: a load sent, everything recorded, the client itself watched, and the run
shown while it lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tonnage.bench.client import Client
from tonnage.bench.conductor import Conductor, TalkConductor
from tonnage.bench.connection import Setup
from tonnage.bench.conversations import TurnLog
from tonnage.bench.endpoints import Endpoint
from tonnage.bench.load import Load
from tonnage.bench.recorder import Recorder, Tally, TokenTimes
from tonnage.bench.reply import COMPLETED, Exchange
from tonnage.bench.timer import Heartbeat
from tonnage.results.store import RunWriter


class Watcher(Protocol):
    """Observes a run while it lasts: a live view, or a scraper of the server's metrics."""

    def begin(self, conductor: Conductor | TalkConductor, client: Client) -> None:
        """The run is about to begin; ``conductor.start_ns`` is fixed."""

    def seen(self, exchange: Exchange, times: TokenTimes) -> None:
        """An exchange is over. Called between the stamps of others: it must take microseconds."""

    def end(self) -> None:
        """The run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The observations of a run that are not in its record."""

    load: Load  # what was to be sent
    sent: int
    tally: Tally  # counts over the run
    lateness_ns: Sequence[int]  # of the loop, every 10 ms
    # of each request, from its due moment to the client's turning to it
    begun_lateness_ns: Sequence[int]
    # of each row, when its reply was over, usage included; -1 where no reply came; none of imported
    # runs
    ends_ns: Sequence[int] = ()
    endpoint: Endpoint | None = None  # the endpoint that was measured; None of imported runs
    cpu: Sequence[float]  # share of a core that the client took, second by second
    cpu_share: float  # the same over the whole run
    cpu_s: float  # CPU seconds of the client process during the run, parsing and writing included
    seconds: float  # of the run, to the last reply
    start_ns: int  # when it began, on the monotonic clock
    started_unix_ns: int  # the same moment on the wall clock
    connections: int  # and retries: opened, and requests sent again on a new one
    retries: int
    interrupted: bool  # whether it was ended by Ctrl-C or SIGTERM
    held: int = 0  # requests that an open loop's cap on those in flight held back at the client
    waits: int = 0  # how often a closed loop's client waited because its request had failed at once
    # which turn of which conversation each request was; None where there were none
    turns: TurnLog | None = None


# Waits until everybody is ready, and gives the moment at which all begin, on the monotonic clock
Gate = Callable[[], int]


def measure(
    setup: Setup,
    load: Load,
    writer: RunWriter,
    *,
    watchers: Sequence[Watcher] = (),
    gate: Gate | None = None,
) -> Observed:
    """Run one load to its end; Ctrl-C or SIGTERM ends it early and keeps what was measured. A
    worker first waits for its ``gate``.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-4)  # the thread that writes must not hold up the loop for longer
    gc.collect()
    gc.freeze()
    try:
        return _run(_measure(setup, load, writer, watchers, gate))
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval)


def _run(measuring: Coroutine[Any, Any, Observed]) -> Observed:
    """Run it on a new loop; in a new thread where this one has a running loop, as in a notebook."""
    import uvloop

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return uvloop.run(measuring)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(uvloop.run, measuring).result()


async def _measure(
    setup: Setup, load: Load, writer: RunWriter, watchers: Sequence[Watcher], gate: Gate | None
) -> Observed:
    loop = asyncio.get_running_loop()
    if setup.warmup and not await _warm_up(loop, setup, load):
        due = None if load.due_ns is None else load.due_ns[:0]
        load = replace(load, isl=load.isl[:0], osl=load.osl[:0], due_ns=due)
    recorder = Recorder(
        writer, count=setup.prompts.counter.count if setup.prompts.counter else None
    )

    def taken(exchange: Exchange) -> None:
        times = recorder.take(exchange)
        for watcher in watchers:
            watcher.seen(exchange, times)

    talks = load.conversations is not None
    conductor = (
        TalkConductor(loop, load, setup.turn, taken)
        if talks
        else Conductor(loop, load, setup.exchange, taken)
    )
    client = _client(loop, setup, conductor)
    _on_interrupt(loop, conductor.stop)
    moment = None if gate is None else gate()
    began_cpu, began = time.process_time(), time.monotonic()
    recorder.begin(conductor.planned_start(moment))
    unix_ns = time.time_ns() + conductor.start_ns - time.monotonic_ns()
    for watcher in watchers:
        watcher.begin(conductor, client)
    heartbeat = Heartbeat(loop)
    await conductor.run(client)
    seconds = time.monotonic() - began
    share = heartbeat.stop()
    client.close()
    recorder.finish()
    for watcher in watchers:
        watcher.end()
    return Observed(
        load=load,
        sent=conductor.sent,
        tally=recorder.tally,
        lateness_ns=heartbeat.lateness_ns,
        begun_lateness_ns=recorder.begun_lateness_ns,
        ends_ns=recorder.ends_ns,
        endpoint=setup.endpoint,
        cpu=heartbeat.cpu,
        cpu_share=share,
        cpu_s=time.process_time() - began_cpu,
        seconds=seconds,
        start_ns=conductor.start_ns,
        started_unix_ns=unix_ns,
        connections=client.connections,
        retries=client.retries,
        interrupted=conductor.stopped,
        held=conductor.held,
        waits=conductor.waits,
        turns=conductor.log if isinstance(conductor, TalkConductor) else None,
    )


def _client(
    loop: asyncio.AbstractEventLoop, setup: Setup, conductor: Conductor | TalkConductor
) -> Client:
    return Client(
        loop,
        setup.target,
        done=conductor.done,
        fresh_reply=setup.reply,
        timeout_s=setup.timeout_s,
        tls=setup.tls,
        reuse=setup.reuse,
    )


async def _warm_up(loop: asyncio.AbstractEventLoop, setup: Setup, load: Load) -> bool:
    """Send the warm-up's requests, as many at once as the load has clients; False where Ctrl-C
    ended it.
    """
    few = load.warm_up(setup.warmup)
    conductor = Conductor(
        loop,
        few,
        lambda number, isl, osl: setup.exchange(-1 - number, isl, osl),
        lambda exchange: None,
    )
    client = _client(loop, setup, conductor)
    _on_interrupt(loop, conductor.stop)
    conductor.planned_start()
    await conductor.run(client)
    client.close()
    return not conductor.stopped


def _on_interrupt(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Let Ctrl-C and SIGTERM end the run; a thread that is not the main one cannot, and does
    without.
    """
    with contextlib.suppress(RuntimeError, ValueError):
        for number in ENDS:
            loop.add_signal_handler(number, stop)


ENDS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def sigterm_waits() -> Iterator[None]:
    """While it lasts, SIGTERM changes nothing: the run is written first, which ends the command
    anyway.
    """
    try:
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


KEPT = 1_000  # Requests that the percentiles are over: the latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A run at one moment; None where nothing is known yet."""

    sent: int  # and in_flight, failed: requests
    in_flight: int
    failed: int
    requests_per_second: float | None  # completed
    ttft_s: tuple[float, float] | None  # and tpot_s: p50 and p95 over the latest requests
    tpot_s: tuple[float, float] | None
    left_s: float | None  # seconds until the end, by the clock or by the share that is done


class Live:
    """Looks on at a run; the run's loop only adds numbers to it."""

    def __init__(self) -> None:
        self._ttft: deque[int] = deque(maxlen=KEPT)
        self._tpot: deque[float] = deque(maxlen=KEPT)
        self._ends: deque[int] = deque(maxlen=KEPT)
        self._failed = 0
        self._conductor: Conductor | TalkConductor | None = None

    def begin(self, conductor: Conductor | TalkConductor, client: Client) -> None:
        """Start watching the run."""
        self._conductor = conductor

    def seen(self, exchange: Exchange, times: TokenTimes) -> None:
        """Add one request."""
        if exchange.outcome != COMPLETED or not times.times_ns:
            self._failed += exchange.outcome != COMPLETED
            return
        first, last = times.times_ns[0], times.times_ns[-1]
        self._ttft.append(first - exchange.due_ns)
        if times.tokens > 1:
            self._tpot.append((last - first) / (times.tokens - 1))
        self._ends.append(last)

    def end(self) -> None:
        """The run is over."""

    def reading(self) -> Reading | None:
        """The run as it is now; None before it begins."""
        conductor = self._conductor
        if conductor is None:
            return None
        ends = list(self._ends)
        span = (ends[-1] - ends[0]) / 1e9 if len(ends) > 1 else 0.0
        gone = (time.monotonic_ns() - conductor.start_ns) / 1e9
        load = conductor.load
        remaining_s = max(load.seconds - gone, 0.0) if load.seconds != float("inf") else None
        if remaining_s is None and conductor.over:
            remaining_s = gone / conductor.over * (len(load) - conductor.over)
        return Reading(
            sent=conductor.sent,
            in_flight=conductor.sent - conductor.over,
            failed=self._failed,
            requests_per_second=(len(ends) - 1) / span if span > 0 else None,
            ttft_s=_percentiles(self._ttft),
            tpot_s=_percentiles(self._tpot),
            left_s=remaining_s,
        )


def _percentiles(values: deque[int] | deque[float]) -> tuple[float, float] | None:
    ordered = sorted(values)
    if not ordered:
        return None
    low, high = (ordered[int(share * (len(ordered) - 1))] / 1e9 for share in (0.5, 0.95))
    return low, high
