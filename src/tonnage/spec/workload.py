"""A workload is arrivals and lengths; a seed makes a trace of requests of it.

Every column of a trace has its own random stream, so that a change of the rate stretches the same
gaps and leaves the lengths alone (common random numbers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tonnage.errors import InputError, option
from tonnage.spec.arrivals import HourlyArrivals, ModulatedArrivals, TrafficClass, with_classes
from tonnage.spec.lengths import Lengths, Pairs, parse_lengths
from tonnage.spec.recording import Recording
from tonnage.spec.sessions import Contents, Drawn, Follows, Sessions, contents_of, draw
from tonnage.units import LONGEST_S, PS_PER_NS, PS_PER_S, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.recorded_sessions import RecordedSessions


# Of other modules
__all__ = [
    "HourlyArrivals",
    "Lengths",
    "ModulatedArrivals",
    "Pairs",
    "Recording",
    "TrafficClass",
    "parse_lengths",
]

Process = Literal["poisson", "constant", "gamma"]
Split = Literal["random", "round-robin"]

# Seconds of arrivals of a stretch of slow traffic (46 days); the rest of a simulated run is for a
# queue to be served
STRETCH_S = 4_000_000

STRETCH_REQUESTS = 100  # Fewest requests of such a stretch

MANY_CLIENTS = 16
"""Clients of a closed loop from which a remark says that requests of equal length fall into step:
they end, and are admitted, together."""

FAR_PS = 1e300  # Largest mean gap in picoseconds, which keeps products with it finite

LEAST_CV, MOST_CV = 1e-6, 1e6  # Least and largest coefficient of variation of gamma arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """Requests arrive on their own schedule, whether or not earlier ones have been answered."""

    rate: float  # mean requests per second
    # "poisson", "constant", or "gamma" with the coefficient of variation ``cv``
    process: Process = "poisson"
    cv: float = 1.0  # standard deviation of the gaps over their mean, for "gamma"
    # the most requests that the client has in flight: one that is due while so many are waits at
    # the client, in order; 0 for no cap
    in_flight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """A fixed number of clients, each with one request in flight: the way benchmarks are run."""

    concurrency: int  # clients; all start at time 0
    # serial time of the client program per request sent, in seconds: starts and the next requests
    # of a cohort that finished together leave one after another
    turnaround_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArrivals:
    """A share of recorded traffic, replayed as it came: one instance of several behind a router."""

    recording: Recording  # the requests, and when each came
    share: float = 1.0  # of the requests that come here, above 0 and at most 1: 1 / instances
    # "random" gives each request to this instance with probability ``share``, "round-robin" every
    # (1 / share)-th, from a place that the seed draws
    split: Split = "random"
    lengths: bool = True  # whether the lengths are replayed too; otherwise the workload's are drawn

    @property
    def rate(self) -> float:
        """Mean requests per second of the share."""
        return self.recording.mean_rps * self.share

    @property
    def process(self) -> str:
        """The kind of arrivals, in a word."""
        return "trace"

    def places(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """The requests of the recording that this instance gets, in order; at least one. Raises
        InputError: a share that is none.
        """
        if not 0 < self.share <= 1:
            raise InputError(
                f"share of a trace: {self.share:g} is not a share; write a number above 0, at"
                " most 1"
            )
        count = len(self.recording)
        if self.split == "round-robin":
            steps = np.arange(count) * self.share + rng.random()
            chosen = np.floor(steps + self.share) > np.floor(steps)
        else:
            chosen = rng.random(count) < self.share
        places = np.flatnonzero(chosen)
        return places if len(places) else np.zeros(1, dtype=np.int64)


Arrivals = OpenLoop | ClosedLoop | TraceArrivals

Simulated = Arrivals | HourlyArrivals | ModulatedArrivals
"""What a simulation takes; a measurement sends no hours of a profile and no states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Lengths and arrivals of ``requests`` requests."""

    # isl, osl: lengths in tokens, drawn apart
    isl: Lengths
    osl: Lengths
    arrivals: Simulated  # when requests come, or how many clients send them
    requests: int  # how many; of a recorded trace or a profile the most, from its beginning
    pairs: Pairs | None = None  # lengths that are drawn together instead; None where they are not
    # conversations that the requests are turns of, or prefixes that they share: lengths are then
    # those of what each turn adds, rates those of all turns together, and the clients of a closed
    # loop hold one conversation each; None without
    sessions: Sessions | None = None
    # sessions from a file that the requests are those of, with their own lengths; None without
    recorded: RecordedSessions | None = None
    classes: tuple[TrafficClass, ...] = ()  # of the requests; empty where all are alike

    @property
    def queued(self) -> bool:
        """Whether all requests are there at the start and no client waits for an answer: a job, not
        a service.
        """
        return isinstance(self.arrivals, ClosedLoop) and self.requests <= self.arrivals.concurrency

    @property
    def shares(self) -> bool:
        """Whether its requests have something in common that a prefix cache can use, or follow one
        another.
        """
        replayed = (
            self.arrivals.recording.blocks
            if isinstance(self.arrivals, TraceArrivals) and self.arrivals.lengths
            else ()
        )
        return self.sessions is not None or self.recorded is not None or bool(replayed)

    def trace(self, seed: int, *, stretch: bool = False) -> Trace:
        """The requests themselves; the same seed gives the same trace.

        ``stretch`` cuts an open loop that is too long to simulate to a stretch that fits, in place
        of refusing it.

        Raises InputError: no requests, a rate or concurrency that is not positive, or a run that is
        too long.
        """
        if self.recorded is not None:
            from tonnage.spec.recorded_sessions import recorded_trace

            return recorded_trace(self, self.recorded, seed)
        return with_classes(self._draw(seed, stretch), self.classes, seed)

    def _draw(self, seed: int, stretch: bool) -> Trace:
        """Draw the requests without their classes."""
        if self.requests < 1:
            raise InputError(
                f"{option('requests')}: {self.requests} is not a number of requests; write 1 or"
                " more"
            )
        if isinstance(self.arrivals, ClosedLoop) and self.arrivals.concurrency < 1:
            raise InputError(
                f"{option('concurrency')}: {self.arrivals.concurrency} is not a number of clients;"
                " write 1 or more"
            )
        if isinstance(self.arrivals, OpenLoop) and not self.arrivals.rate > 0:
            raise InputError(
                f"{option('request_rate')}: {self.arrivals.rate:g} is not a rate; write requests"
                " per second above 0"
            )
        gap_stream, isl_stream, osl_stream = (
            np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3)
        )
        arrivals = self.arrivals
        if isinstance(arrivals, TraceArrivals):
            return replace(self._replayed(arrivals, gap_stream, isl_stream, osl_stream), seed=seed)
        if self.sessions is not None:
            return session_trace(self, self.sessions, seed)
        if isinstance(arrivals, HourlyArrivals):
            due = arrivals.due_ps(gap_stream)[: self.requests]
            isl, osl = self._lengths(len(due), isl_stream, osl_stream)
            return Trace(due_ps=due, isl=isl, osl=osl, concurrency=0, turnaround_ps=0, seed=seed)
        isl, osl = self._lengths(self.requests, isl_stream, osl_stream)
        if isinstance(arrivals, ModulatedArrivals):
            moments = arrivals.due_ps(self.requests, gap_stream)
            if moments[-1] > LONGEST_S * PS_PER_S:
                raise self.too_long(arrivals.rate)
            return Trace(
                due_ps=np.rint(moments).astype(np.int64),
                isl=isl,
                osl=osl,
                concurrency=0,
                turnaround_ps=0,
                seed=seed,
            )
        if isinstance(arrivals, ClosedLoop):
            due = np.full(self.requests, -1, dtype=np.int64)
            turnaround_ps = to_ps(arrivals.turnaround_s)
            return Trace(
                due_ps=due,
                isl=isl,
                osl=osl,
                concurrency=arrivals.concurrency,
                turnaround_ps=turnaround_ps,
                seed=seed,
            )
        gaps = unit_gaps(arrivals, self.requests, gap_stream)
        gaps *= min(PS_PER_S / arrivals.rate, FAR_PS)
        np.rint(gaps, out=gaps)
        if gaps.sum() > LONGEST_S * PS_PER_S:
            if not stretch:
                raise self.too_long(arrivals.rate)
            gaps = _stretch(gaps)
        due = gaps.astype(np.int64)
        np.cumsum(due, out=due)
        return Trace(
            due_ps=due,
            isl=isl[: len(due)],
            osl=osl[: len(due)],
            concurrency=arrivals.in_flight,
            turnaround_ps=0,
            seed=seed,
        )

    def too_long(self, rate: float) -> InputError:
        """The remark on requests that come over more time than can be simulated."""
        return InputError(
            f"{option('requests')}: {self.requests:,} at {rate:g} a second come over more than"
            f" {LONGEST_S:,} s (104 days), the longest simulated run; ask for fewer requests, or"
            f" for a higher {option('request_rate')}"
        )

    def _lengths(
        self, count: int, isl_stream: np.random.Generator, osl_stream: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self.pairs is not None:
            return self.pairs.draw(count, isl_stream)
        return self.isl.draw(count, isl_stream), self.osl.draw(count, osl_stream)

    def _replayed(
        self,
        arrivals: TraceArrivals,
        chosen: np.random.Generator,
        isl_stream: np.random.Generator,
        osl_stream: np.random.Generator,
    ) -> Trace:
        """The share of a recording, its lengths replayed or the workload's own."""
        recording = arrivals.recording
        places = arrivals.places(chosen)[: self.requests]
        due = np.array(recording.due_ns, dtype=np.int64)[places] * PS_PER_NS
        if arrivals.lengths and recording.isl:
            isl, osl = (
                np.array(column, dtype=np.int64)[places]
                for column in (recording.isl, recording.osl)
            )
        else:
            isl, osl = self._lengths(len(places), isl_stream, osl_stream)
        contents = recording.contents(places.tolist()) if arrivals.lengths else None
        return Trace(
            due_ps=due - due[0], isl=isl, osl=osl, concurrency=0, turnaround_ps=0, contents=contents
        )


def _stretch(gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first gaps within ``STRETCH_S``, at least ``STRETCH_REQUESTS``, cut to an equal share of
    it where requests are days apart.
    """
    fitting = int(np.searchsorted(gaps.cumsum(), STRETCH_S * PS_PER_S, side="right"))
    if fitting >= min(STRETCH_REQUESTS, len(gaps)):
        return gaps[:fitting]
    return np.minimum(gaps[:STRETCH_REQUESTS], STRETCH_S * PS_PER_S / STRETCH_REQUESTS)


def unit_gaps(arrivals: OpenLoop, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """``count`` gaps of mean 1."""
    if arrivals.process == "constant":
        return np.ones(count)
    if arrivals.process == "poisson":
        return rng.standard_exponential(count)
    shape = 1 / checked_cv(arrivals.cv) ** 2
    return rng.standard_gamma(shape, count) / shape


def checked_cv(cv: float) -> float:
    """A coefficient of variation of gamma arrivals, refused where its square or the inverse of that
    is no usable number.

    Raises InputError: it is outside of ``LEAST_CV`` to ``MOST_CV``.
    """
    if not LEAST_CV <= cv <= MOST_CV:
        advice = (
            f"write a number above 0 (1 is Poisson), at least {LEAST_CV:g} and at most {MOST_CV:g}"
        )
        raise InputError(f"{option('cv')}: {cv:g} is not a coefficient of variation; {advice}")
    return cv


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests as columns; row number is the request id."""

    # when each request is due, in picoseconds; with clients the earliest at which one of them sends
    # it, -1 for any time
    due_ps: NDArray[np.int64]
    # isl, osl: int64, prompt and output tokens
    isl: NDArray[np.int64]
    osl: NDArray[np.int64]
    # clients of a closed loop, or the cap of an open one; 0 for an open loop without
    concurrency: int
    turnaround_ps: int  # serial client time per request sent in a closed loop
    seed: int = 0  # of what is drawn while they are served: which guesses of a drafter are right
    # what the requests have in common; None where they have nothing in common, or it is not known
    contents: Contents | None = None
    # of the further turns of conversations: the time from the end of the request in the row before
    # until this one is sent, whose ``due_ps`` counts for nothing; -1 of first turns, which come
    # before the others of their session. None where every request stands for itself. With it
    # ``contents`` are given too.
    pause_ps: NDArray[np.int64] | None = None
    # which requests others wait for where that is not the row before; None where it is
    follows: Follows | None = None
    # the class of each request: lower goes first where priorities count. None where all are alike.
    priority: NDArray[np.int64] | None = None
    # the time to first token that each should have, -1 for none; given with ``priority``
    ttft_ps: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.isl)

    def firsts(self) -> NDArray[np.int64]:
        """The rows that do not wait for another one."""
        return np.arange(len(self)) if self.pause_ps is None else np.flatnonzero(self.pause_ps < 0)

    def graph(self) -> Follows:
        """The requests that each request waits for."""
        if self.follows is not None:
            return self.follows
        waits = (
            np.zeros(len(self), np.int64)
            if self.pause_ps is None
            else (self.pause_ps >= 0).astype(np.int64)
        )
        return Follows(
            starts=np.append(0, np.append(waits[1:], 0)[: len(self)].cumsum()),
            rows=np.flatnonzero(waits),
            waits=waits,
        )

    def session(self) -> NDArray[np.int64]:
        """The number of each request's session; of a request by itself its own."""
        return np.arange(len(self)) if self.pause_ps is None else (self.pause_ps < 0).cumsum() - 1

    def part(self, rows: NDArray[np.int64], seed: int) -> Trace:
        """Select some requests with their shared contents, in order; of a session all or none."""
        columns = ((name, getattr(self, name)) for name in ("pause_ps", "priority", "ttft_ps"))
        selected: dict[str, Any] = {
            name: column if column is None else column[rows] for name, column in columns
        }
        return replace(
            self,
            due_ps=self.due_ps[rows],
            isl=self.isl[rows],
            osl=self.osl[rows],
            seed=seed,
            contents=None if self.contents is None else self.contents.part(rows),
            follows=None if self.follows is None else self.follows.part(rows),
            **selected,
        )


# The requests of sessions: when each session begins, and which turns of it a run has.


MOST_ROWS = 20_000_000  # Requests that are drawn at most for the sessions of a run


def session_trace(workload: Workload, sessions: Sessions, seed: int) -> Trace:
    """The requests of a workload's sessions.

    In an open loop sessions begin at a rate that makes all their turns together the requested rate,
    and have done so before the run begins, so that its first request may be a later turn, whose
    beginning no cache has yet. The run has the requests that would come first if every answer took
    no time. In a closed loop each client holds one session after another.

    Raises:
        InputError: pauses so long that the sessions which are under way at once are too many to
            draw, or recorded arrivals.
    """
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence([seed, 2]).spawn(7)]
    if isinstance(workload.arrivals, OpenLoop):
        drawn, due = _open(workload, workload.arrivals, sessions, streams)
        clients, turnaround_ps = 0, 0
    elif isinstance(workload.arrivals, ClosedLoop):
        count = math.ceil(1.2 * workload.requests / sessions.requests) + 20
        drawn = draw(sessions, count, workload.isl, workload.osl, streams)
        drawn = drawn.rows(np.arange(min(workload.requests, len(drawn.isl))))
        due = np.full(len(drawn.isl), -1)
        clients, turnaround_ps = (
            workload.arrivals.concurrency,
            to_ps(workload.arrivals.turnaround_s),
        )
    else:
        raise InputError(
            f"{option('turns')}, {option('shared_prefix')}: a recorded trace has its own; leave"
            " them out"
        )
    contents = contents_of(drawn, sessions.prefix_tokens)
    isl, osl, pauses = drawn.isl, drawn.osl, None if sessions.single else drawn.pause_ps
    return Trace(
        due_ps=due,
        isl=isl,
        osl=osl,
        concurrency=clients,
        turnaround_ps=turnaround_ps,
        seed=seed,
        contents=contents,
        pause_ps=pauses,
    )


def _open(
    workload: Workload, arrivals: OpenLoop, sessions: Sessions, streams: list[np.random.Generator]
) -> tuple[Drawn, NDArray[np.int64]]:
    """The requests of an open loop, and when first turns are due."""
    per_session, turns = sessions.requests, max(sessions.turns.longest, 1)
    longest_pause = (4 if sessions.think.exponential else 1) * sessions.think.mean_s
    lasts = (
        turns * longest_pause
        + turns
        * sessions.tool_calls
        * (4 if sessions.tool.exponential else 1)
        * sessions.tool.mean_s
    )
    under_way = lasts * arrivals.rate / per_session
    count = math.ceil(1.2 * workload.requests / per_session + min(under_way, MOST_ROWS)) + 20
    if not count * per_session <= MOST_ROWS:
        problem = (
            f"{under_way:,.0f} sessions are under way at once; ask for a lower rate, fewer turns or"
            " shorter pauses"
        )
        raise InputError(
            f"{option('think_time')}: at {arrivals.rate:g} requests a second {problem}"
        )
    drawn = draw(sessions, count, workload.isl, workload.osl, streams)
    begins = (
        unit_gaps(arrivals, count, streams[6]) * min(PS_PER_S * per_session / arrivals.rate, FAR_PS)
    ).cumsum() - lasts * PS_PER_S
    pauses, first = np.maximum(drawn.pause_ps, 0).astype(np.float64).cumsum(), drawn.pause_ps < 0
    due = np.rint(begins[drawn.session] + pauses - pauses[first][drawn.session])
    coming = np.flatnonzero(due >= 0)
    chosen = np.sort(coming[np.argsort(due[coming], kind="stable")][: workload.requests])
    if len(chosen) and due[chosen].max() > LONGEST_S * PS_PER_S:
        raise workload.too_long(arrivals.rate)
    drawn, due = drawn.rows(chosen), due[chosen]
    places = np.flatnonzero(drawn.pause_ps < 0)
    order = np.argsort(np.repeat(due[places], np.diff(np.append(places, len(due)))), kind="stable")
    ordered = Drawn(*(column[order] for column in drawn))
    return ordered, np.where(ordered.pause_ps < 0, due[order], -1).astype(np.int64)
