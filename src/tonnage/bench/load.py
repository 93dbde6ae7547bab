"""What is sent and when: a closed loop of clients, or requests on their own schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tonnage.bench.conversations import ConversationFile, Conversations, drawn, recorded
from tonnage.errors import InputError, option
from tonnage.spec.recorded_sessions import RecordedSessions, recorded_trace
from tonnage.spec.sessions import Pause
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Pairs, TraceArrivals, Workload
from tonnage.units import PS_PER_NS

Pattern = Literal["poisson", "constant", "gamma", "burst"]
PATTERNS: tuple[Pattern, ...] = ("poisson", "constant", "gamma", "burst")

# Conversations drawn for a run that a time ends; one that gets through them ends early
MOST_TALKS = 20_000
# Requests drawn for a closed loop that runs for a time; one that gets through them ends early
MOST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load, with every request drawn."""

    isl: np.typing.NDArray[np.int64]  # and osl: int64, tokens by request
    osl: np.typing.NDArray[np.int64]
    # int64, when each request is due after the start; None in a closed loop
    due_ns: np.typing.NDArray[np.int64] | None = None
    concurrency: int = 0  # clients of a closed loop; 0 for an open one
    rate: float = 0.0  # requests per second of an open loop; 0 for a closed one
    # most requests of an open loop in flight at once, while further ones wait at the client; 0 for
    # no such cap
    in_flight: int = 0
    pattern: str = "closed"  # of the arrivals, in a word; "closed" for a closed loop
    # after so long nothing more is sent; infinite where a count ends the run
    seconds: float = float("inf")
    ramp_s: float = 0.0  # a closed loop's clients begin one after another over so long
    # what is in flight when ``seconds`` are over is waited for so long
    grace_s: float = float("inf")
    # of several turns, whose turns the lengths are then of; ``rate`` counts conversations
    conversations: Conversations | None = None

    def __len__(self) -> int:
        return len(self.isl)

    def warm_up(self, requests: int) -> Load:
        """The first requests again, by as many clients as the load has, or as an open loop at the
        same rate.
        """
        places = [k % len(self) for k in range(requests)] if len(self) else []
        due = None if self.due_ns is None else self.due_ns[: len(places)]
        if due is not None and len(due) < len(places):
            places = places[: len(due)]
        return replace(
            self,
            isl=self.isl[places],
            osl=self.osl[places],
            due_ns=due,
            seconds=float("inf"),
            ramp_s=0.0,
            conversations=None,
        )

    def of_worker(self, worker: int, workers: int) -> Load:
        """What one of several client processes sends: every n-th request, and its share of the
        clients or of the rate.
        """
        mine = slice(worker, None, workers)
        due = None if self.due_ns is None else self.due_ns[mine]
        clients, cap = (
            count // workers + (worker < count % workers)
            for count in (self.concurrency, self.in_flight)
        )
        return replace(
            self,
            isl=self.isl[mine],
            osl=self.osl[mine],
            due_ns=due,
            concurrency=clients,
            rate=self.rate / workers,
            in_flight=cap,
        )

    @property
    def words(self) -> str:
        """Such as "64 clients" or "100 requests/s, poisson"."""
        if self.conversations is not None and not self.concurrency:
            return f"{self.rate:g} conversations/s, {self.pattern}"
        if self.due_ns is None:
            return f"{self.concurrency} client{'s'[: self.concurrency != 1]}"
        capped = f", at most {self.in_flight} in flight" if self.in_flight else ""
        return f"{self.rate:g} requests/s, {self.pattern}{capped}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """Conversations as they were requested, before anything is drawn."""

    turns: Lengths  # of each, or
    file: ConversationFile | None = None  # the conversations themselves, or
    sessions: RecordedSessions | None = None  # recorded ones, again and again
    pause: Pause  # between an answer and the next turn
    count: int | None = None  # how many; None where a time ends the run, or the file does
    pinned: bool = True  # whether the outputs' lengths are those asked for, in place of the file's

    def drawn(self, count: int, isl: Lengths, osl: Lengths, seed: int) -> Conversations:
        """The conversations; the same seed draws the same."""
        if self.file is None:
            return drawn(
                count=count, turns=self.turns, isl=isl, osl=osl, pause=self.pause, seed=seed
            )
        chosen = (
            osl.draw(len(self.file.isl), np.random.default_rng(seed)).astype(np.int64).tolist()
            if self.pinned
            else None
        )
        return self.file.drawn(pause=self.pause, osl=chosen, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A load before any of its requests is drawn."""

    isl: Lengths  # and osl: lengths in tokens, or
    osl: Lengths
    pairs: Pairs | None = None  # lengths that belong together, or
    # lengths of prompts and outputs one after another, from the beginning again where there are
    # more requests
    listed: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    # a closed loop, an open one, or recorded traffic
    arrivals: ClosedLoop | OpenLoop | TraceArrivals
    # requests that come at the same moment, where an open loop comes in bursts; 0 otherwise
    burst: int = 0
    requests: int | None  # how many; None where ``seconds`` ends the run
    # after so long nothing more is sent; None where a count ends the run
    seconds: float | None = None
    ramp_s: float = 0.0  # a closed loop's clients begin one after another over so long
    # what is in flight when ``seconds`` are over is waited for so long
    grace_s: float = float("inf")
    seed: int = 0  # of every draw
    # conversations of several turns in place of single requests; None without
    talk: Talk | None = None

    def at(self, value: float) -> Question:
        """The same question at another concurrency or rate. Raises InputError: recorded traffic,
        which has the rate that it has.
        """
        if isinstance(self.arrivals, ClosedLoop):
            return replace(self, arrivals=replace(self.arrivals, concurrency=int(value)))
        if isinstance(self.arrivals, OpenLoop):
            return replace(self, arrivals=replace(self.arrivals, rate=float(value)))
        raise InputError(f"{option('trace')}: recorded traffic has one rate; leave out the sweep")

    def draw(self) -> Load:
        """Every request of it; the same seed draws the same. Raises InputError: neither a count nor
        a time ends the run.
        """
        if self.talk is not None:
            return self._conversations(self.talk)
        if self.requests is None and self.seconds is None:
            raise InputError(
                f"{option('request_count')}: missing; give how many requests, or a"
                f" {option('benchmark_duration')} such as 60s"
            )
        count = self.requests if self.requests is not None else self._enough()
        workload = Workload(
            isl=self.isl, osl=self.osl, pairs=self.pairs, arrivals=self.arrivals, requests=count
        )
        trace = workload.trace(self.seed)
        if self.listed is not None:
            isl, osl = (
                np.resize(np.array(column, dtype=np.int64), len(trace)) for column in self.listed
            )
            trace = replace(trace, isl=isl, osl=osl)
        seconds = float("inf") if self.seconds is None else self.seconds
        if isinstance(self.arrivals, ClosedLoop):
            clients = self.arrivals.concurrency
            return Load(
                isl=trace.isl,
                osl=trace.osl,
                concurrency=clients,
                seconds=seconds,
                ramp_s=self.ramp_s,
                grace_s=self.grace_s,
            )
        due = trace.due_ps // PS_PER_NS
        if self.burst > 1:
            due = (
                np.arange(len(due)) // self.burst * round(self.burst / self.arrivals.rate * 1e9)
            ).astype(np.int64)
        in_time = due <= seconds * 1e9
        pattern = "burst" if self.burst > 1 else self.arrivals.process
        return Load(
            isl=trace.isl[in_time],
            osl=trace.osl[in_time],
            due_ns=due[in_time],
            rate=self.arrivals.rate,
            in_flight=self.arrivals.in_flight if isinstance(self.arrivals, OpenLoop) else 0,
            pattern=pattern,
            seconds=seconds,
            grace_s=self.grace_s,
        )

    def _conversations(self, talk: Talk) -> Load:
        """The conversations of it; in an open loop they come as requests would."""
        if isinstance(self.arrivals, TraceArrivals):
            raise InputError(
                f"{option('trace')}: recorded traffic has no conversations; leave out one of"
                " the two"
            )
        count = talk.count if talk.count is not None else min(self._enough(), MOST_TALKS)
        seconds = float("inf") if self.seconds is None else self.seconds
        arrivals = self.arrivals
        clients = arrivals.concurrency if isinstance(arrivals, ClosedLoop) else 0
        sessions = talk.sessions
        talks = (
            talk.drawn(count, self.isl, self.osl, self.seed)
            if sessions is None
            else self._sessions(sessions, talk.count)
        )
        if isinstance(arrivals, OpenLoop):
            workload = Workload(isl=self.isl, osl=self.osl, arrivals=arrivals, requests=len(talks))
            talks = replace(talks, due_ns=workload.trace(self.seed).due_ps // PS_PER_NS)
        return Load(
            isl=talks.isl,
            osl=talks.osl,
            concurrency=clients,
            rate=0.0 if isinstance(arrivals, ClosedLoop) else arrivals.rate,
            pattern="closed" if isinstance(arrivals, ClosedLoop) else arrivals.process,
            seconds=seconds,
            ramp_s=self.ramp_s,
            grace_s=self.grace_s,
            conversations=talks,
        )

    def _sessions(self, sessions: RecordedSessions, count: int | None) -> Conversations:
        """The first ``count`` recorded sessions in the order of the file, then copies of them;
        without a count, more than the clients can finish.
        """
        if count is None and isinstance(self.arrivals, ClosedLoop):
            # a session's pauses, which no server shortens
            waits = sessions.pause_ns.clip(min=0).sum() / 1e9 / len(sessions)
            count = len(sessions) + self.arrivals.concurrency * (
                1 + math.ceil((self.seconds or 0.0) / max(waits, 1.0))
            )
        elif count is None:
            count = self._enough()
        lengths = sessions.starts[1:] - sessions.starts[:-1]
        times, rest = divmod(min(count, MOST_TALKS), len(lengths))
        requests = times * int(lengths.sum()) + int(lengths[:rest].sum())
        clients = (
            self.arrivals if isinstance(self.arrivals, ClosedLoop) else ClosedLoop(concurrency=1)
        )
        trace = recorded_trace(
            Workload(isl=self.isl, osl=self.osl, arrivals=clients, requests=requests),
            sessions,
            self.seed,
        )
        return recorded(trace)

    def _enough(self) -> int:
        """More requests than can come in the time."""
        seconds = self.seconds or 0.0
        if isinstance(self.arrivals, ClosedLoop):
            return MOST
        mean = self.arrivals.rate * seconds
        spread = self.arrivals.cv if isinstance(self.arrivals, OpenLoop) else 1.0
        return min(MOST, int(mean + 8 * max(spread, 1.0) * mean**0.5 + 64))
