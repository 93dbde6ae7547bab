"""The requests that an instance, or a fleet, gets of a workload whose prompts share something.

An instance behind a router that keeps conversations together gets whole ones, whose turns follow
one another as in ``tonnage simulate``. Behind a router that looks at no content it gets every turn
of the fleet with the same small chance: a prompt then finds only what was computed here of its
conversation. Such turns come on a schedule, with ``ANSWER`` times the time of a lone answer between
them.

A run begins with an empty cache. Its first requests, until conversations have run once and every
prefix was seen, are left out of the statistics.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tonnage.simulator.router import Request as Routable
from tonnage.simulator.router import View, memory_of, prefix_aware
from tonnage.sizing.question import AFFINE, Sharing
from tonnage.spec.recording import Recording
from tonnage.spec.sessions import Contents, Drawn, Sessions, contents_of, draw
from tonnage.spec.workload import (
    OpenLoop,
    Process,
    Trace,
    TraceArrivals,
    Workload,
    session_trace,
    unit_gaps,
)
from tonnage.units import LONGEST_S, NS_PER_S, PS_PER_S, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.spec.lengths import Lengths, Pairs

    Ints = NDArray[np.int64]


# Arrivals and lengths of a simulated run whose sums are exact, so that a short run says as much as
# a far longer one. Draws of a few thousand requests miss the requested rate, and the mean length,
# by 2 % or so, and the load that an instance is found to carry by as much. Here the gaps of a run
# add up to the requests over the rate, and the lengths are every sixteenth of sixteen times as many
# in order of size, or evenly apart where all of a range are as likely; then they are shuffled. Gaps
# and lengths of a run come from its seed and number of requests alone: at another rate the same
# gaps are stretched.


OVERDRAWN = 16
"""Lengths that are drawn for each that is used."""

KEPT = 64
"""Runs whose draws are kept."""


def balanced_trace(workload: Workload, arrivals: OpenLoop, seed: int) -> Trace:
    """The requests of an open loop; one that lasts longer than a simulated run may is cut to a
    stretch that fits, and not balanced.
    """
    import numpy as np

    count, picoseconds = workload.requests, PS_PER_S / arrivals.rate
    if count * picoseconds > LONGEST_S * PS_PER_S:
        return workload.trace(seed, stretch=True)
    due = np.rint(_unit_arrivals(arrivals.process, arrivals.cv, count, seed) * picoseconds).astype(
        np.int64
    )
    isl, osl = _lengths(workload.isl, workload.osl, workload.pairs, count, seed)
    return Trace(due_ps=due, isl=isl, osl=osl, concurrency=0, turnaround_ps=0, seed=seed)


@lru_cache(maxsize=KEPT)
def _unit_arrivals(process: str, cv: float, count: int, seed: int) -> NDArray[np.float64]:
    """When each request comes at one a second; the last comes after ``count`` seconds."""
    import numpy as np

    gaps = unit_gaps(
        OpenLoop(rate=1.0, process=process, cv=cv),  # type: ignore[arg-type]
        count,
        np.random.default_rng([seed, 0]),
    )
    at = gaps.cumsum()
    return np.asarray(at * (count / at[-1]))


@lru_cache(maxsize=KEPT)
def _lengths(
    isl: Lengths, osl: Lengths, pairs: Pairs | None, count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Prompts and outputs, in columns."""
    import numpy as np

    order = np.random.default_rng([seed, 1])
    if pairs is not None:
        drawn = pairs.draw(OVERDRAWN * count, np.random.default_rng([seed, 2]))
        chosen = order.permutation(_every(np.argsort(drawn[0] + drawn[1], kind="stable")))
        return drawn[0][chosen], drawn[1][chosen]
    columns = (
        _in_order(lengths, count, np.random.default_rng([seed, 2 + i]))
        for i, lengths in enumerate((isl, osl))
    )
    prompts, outputs = (order.permutation(column) for column in columns)
    return prompts, outputs


def _in_order(lengths: Lengths, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``count`` lengths from the shortest to the longest; those of a range are evenly apart, and
    need no draws.
    """
    import numpy as np

    if lengths.kind != "uniform":
        return _every(np.sort(lengths.draw(OVERDRAWN * count, rng)))
    half = lengths.std * 3.0**0.5
    apart = lengths.mean + half * ((2 * np.arange(count) + 1) / count - 1)
    return np.asarray(np.maximum(np.rint(apart), 1).astype(np.int64))


def _every(column: NDArray[np.int64]) -> NDArray[np.int64]:
    return column[OVERDRAWN // 2 :: OVERDRAWN]


ANSWER = 1.5
"""Time of an answer under load over that of a lone one, where the turns of a conversation come on a
schedule."""

MOST_WARM = 40_000
"""Most requests before the statistics begin; where a cache takes more to fill, it is found colder
than it would be."""

SEEN = 3
"""Requests for each shared prefix after which all but 5 % of them were seen."""

MOST_DILUTED = 64
"""Of more instances than these, a conversation's turns all but never come to the same one."""

WITHIN_S = 0.5 * LONGEST_S
"""Longest time over which the requests of a run come, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLoad:
    """What comes to an instance, or to a fleet of it, whatever the rate.

    Attributes:
        sharing: what prompts share.
        osl: lengths of outputs.
        process, cv: arrivals of requests that follow no other.
        router: what gives requests to the instances.
        answer_s: seconds that an answer takes, where the turns of a conversation come on a
            schedule.
        caches: whether a cache keeps anything; otherwise none has to fill.
    """

    sharing: Sharing
    osl: Lengths
    process: Process
    cv: float
    router: str
    answer_s: float
    caches: bool = True

    def warm(self, rate: float) -> int:
        """Requests at ``rate`` after which a cache is as full as it gets: conversations have run
        once, prefixes were seen.
        """
        sessions = self.sharing.sessions
        if sessions is None:
            return 0
        prefixes = SEEN * sessions.prefixes if sessions.prefix_tokens and self.caches else 0
        pauses = max(sessions.turns.mean, 1.0) * (
            sessions.think.mean_s + sessions.tool_calls * sessions.tool.mean_s
        )
        lasts = 0.0 if sessions.single else pauses + sessions.requests * self.answer_s
        return round(min(prefixes + rate * lasts, MOST_WARM))

    def trace(
        self, rate: float, requests: int, seed: int, *, router: str = "", whole: bool = False
    ) -> Trace:
        """``requests`` of an open loop at ``rate``, or fewer where they take too long to simulate;
        a recording is repeated, whole.

        ``whole``: they are those of several instances, which are still to be shared out.
        """
        sharing, sessions = self.sharing, self.sharing.sessions
        if sessions is None or sharing.new is None:
            return replayed(sharing, rate, seed, requests)
        arrivals = OpenLoop(rate=rate, process=self.process, cv=self.cv)
        requests = max(1, min(requests, round(rate * WITHIN_S)))
        workload = Workload(
            isl=sharing.new, osl=self.osl, arrivals=arrivals, requests=requests, sessions=sessions
        )
        if sessions.single:
            return _single(workload, arrivals, sessions, seed)
        if (router or self.router) in AFFINE or (not whole and rate >= sharing.fleet_rate):
            return session_trace(workload, sessions, seed)
        share = min(1.0, max(rate / sharing.fleet_rate, 1 / MOST_DILUTED))
        return _scheduled(
            workload, replace(arrivals, rate=rate / share), seed, share, to_ps(self.answer_s)
        )

    def counted(self, record: Requests, rate: float, warm: int, requests: int) -> Requests:
        """The requests of a run that count: those after the ``warm`` ones that arrived while new
        conversations did.

        Turns that wait for answers come later than the run's last conversation begins, when there
        is less and less to do.
        """
        if not self.sharing.follows:
            return after(record, warm)
        ends = (warm + requests) / rate * NS_PER_S
        return after(record, warm, int(np.searchsorted(record.due_ns, ends, side="right")))


def replayed(sharing: Sharing, rate: float, seed: int, requests: int = 0) -> Trace:
    """A recording, stretched to ``rate`` requests per second and repeated until it has so many.
    Raises ValueError: there is none.
    """
    if sharing.recording is None:
        raise ValueError("sharing: no recording")
    recording = sharing.recording.at_mean(rate).repeated(requests)
    whole = TraceArrivals(recording=replace(recording, blocks=()))
    return replace(
        whole_trace(whole, seed), contents=_contents_of_blocks(recording.blocks, recording.isl)
    )


def whole_trace(arrivals: TraceArrivals, seed: int) -> Trace:
    """All requests of a recording, with their own lengths."""
    pairs = arrivals.recording.pairs()
    if pairs is None:
        raise ValueError("sharing: a recording without lengths")
    isl, osl = pairs.lengths()
    return Workload(isl=isl, osl=osl, arrivals=arrivals, requests=len(arrivals.recording)).trace(
        seed
    )


@lru_cache(maxsize=8)
def _contents_of_blocks(
    blocks: tuple[tuple[int, ...], ...], isl: tuple[int, ...]
) -> Contents | None:
    recording = Recording(due_ns=(0,) * len(isl), isl=isl, osl=(1,) * len(isl), blocks=blocks)
    return recording.contents(range(len(isl)))


def _single(workload: Workload, arrivals: OpenLoop, sessions: Sessions, seed: int) -> Trace:
    """Requests that follow no other, in exactly the asked share of which a shared prefix is
    first.
    """
    base = balanced_trace(replace(workload, sessions=None), arrivals, seed)
    rng, count = np.random.default_rng([seed, 5]), len(base)
    prefix = rng.integers(0, sessions.prefixes, count)
    prefix[rng.permutation(count)[round(sessions.prefix_share * count) :]] = -1
    isl = base.isl + np.where(prefix >= 0, sessions.prefix_tokens, 0)
    nobody = np.full(count, -1)
    drawn = Drawn(session=np.arange(count), isl=isl, osl=base.osl, pause_ps=nobody, prefix=prefix)
    return replace(base, isl=isl, contents=contents_of(drawn, sessions.prefix_tokens))


def _scheduled(
    workload: Workload, fleet: OpenLoop, seed: int, share: float, answer_ps: int
) -> Trace:
    """A share of all turns, each drawn apart, at the times at which they come if every answer takes
    equally long.

    Sessions began before the run does, so that from its beginning on it has turns of every place in
    a conversation.
    """
    streams = [np.random.default_rng(stem) for stem in np.random.SeedSequence([seed, 3]).spawn(8)]
    pattern = workload.sessions or Sessions()
    longest = max(pattern.turns.longest, 1) * (1 + pattern.tool_calls)
    pause_s = (
        4
        * (pattern.think.mean_s + pattern.tool_calls * pattern.tool.mean_s)
        * max(pattern.turns.longest, 1)
    )
    lasts = pause_s + longest * answer_ps / PS_PER_S
    sessions = (
        math.ceil((1.2 * workload.requests / share + lasts * fleet.rate) / pattern.requests) + 20
    )
    drawn = draw(pattern, sessions, workload.isl, workload.osl, streams)
    begins = (
        unit_gaps(fleet, sessions, streams[6]).cumsum() * (PS_PER_S * pattern.requests / fleet.rate)
        - lasts * PS_PER_S
    )
    first = drawn.pause_ps < 0
    waits = (drawn.pause_ps + answer_ps).astype(np.float64).cumsum()
    due = begins[drawn.session] + waits - waits[first][drawn.session]
    here = np.flatnonzero((due >= 0) & (streams[7].random(len(due)) < share))
    rows = here[np.argsort(due[here], kind="stable")][: workload.requests]
    selected = Drawn(*(column[rows] for column in drawn))
    when = np.rint(due[rows]).astype(np.int64)
    contents = contents_of(selected, pattern.prefix_tokens)
    return Trace(
        due_ps=when,
        isl=selected.isl,
        osl=selected.osl,
        concurrency=0,
        turnaround_ps=0,
        seed=seed,
        contents=contents,
    )


def parts_of(trace: Trace, owner: Ints, parts: int) -> list[Trace]:
    """The requests of each owner, from 0 to ``parts``, with what they have in common; owners of
    none are left out.

    A turn that follows another goes where its conversation began.
    """
    if trace.pause_ps is not None:
        owner = owner[trace.firsts()][trace.session()]
    rows = [np.flatnonzero(owner == part) for part in range(parts)]
    return [
        trace.part(chosen, trace.seed * parts + part)
        for part, chosen in enumerate(rows)
        if chosen.size
    ]


def shared_out_as(sharing: Sharing, router: str) -> str:
    """The router whose rule stands for a router: it does not look at the load, and finds as much of
    the prompts or less.
    """
    if router == "prefix-aware" and sharing.recording is None:
        return "session" if sharing.follows else "random"
    return router if router in ("round-robin", "prefix-aware", "session") else "random"


def owners(
    trace: Trace, instances: int, router: str, seed: int, answers: Answers | None = None
) -> Ints:
    """The instance of each request by the rule of ``shared_out_as``: in turn, by its prefix and the
    load, or drawn at random.

    The turns of a conversation are drawn together where they follow one another. ``answers`` is
    what prefix-aware routing counts on.
    """
    if router == "round-robin":
        return np.arange(len(trace)) % instances
    if (
        router == "prefix-aware"
        and trace.pause_ps is None
        and trace.contents is not None
        and answers is not None
    ):
        return _by_prefix(trace, trace.contents, instances, answers)
    return np.random.default_rng([seed, instances, 7]).integers(0, instances, len(trace))


class Answers(NamedTuple):
    """When an instance answers, as far as closed forms know it."""

    answer_ps: int  # from a request to the end of its answer, in picoseconds
    # least time between the ends of two answers of one instance: one over what it completes when
    # always busy
    apart_ps: int


def _by_prefix(trace: Trace, contents: Contents, instances: int, answers: Answers) -> Ints:
    """The choices of the router ``prefix_aware``, whose outstanding requests end when ``answers``
    says.
    """
    holders: dict[int, set[int]] = {}
    outstanding, last_end = [0] * instances, [0] * instances
    ends: list[tuple[int, int]] = []
    owner = np.empty(len(trace), np.int64)
    idle = View(
        available=[1] * instances,
        requests=outstanding,
        tokens=outstanding,
        kv_used=[0.0] * instances,
        matched=[],
        weight=[1.0] * instances,
    )
    memory = memory_of(instances)
    for row, (at, isl) in enumerate(zip(trace.due_ps.tolist(), trace.isl.tolist(), strict=True)):
        while ends and ends[0][0] <= at:
            outstanding[heapq.heappop(ends)[1]] -= 1
        pieces, until = contents.of(row)
        matched = _matched(pieces, until, isl, holders, instances)
        place = prefix_aware(
            idle._replace(matched=matched), Routable(number=row, session=-1, isl=isl), memory
        )
        for piece in pieces:
            holders.setdefault(piece, set()).add(place)
        last_end[place] = max(at + answers.answer_ps, last_end[place] + answers.apart_ps)
        heapq.heappush(ends, (last_end[place], place))
        outstanding[place] += 1
        owner[row] = place
    return owner


def _matched(
    pieces: list[int], until: list[int], isl: int, holders: dict[int, set[int]], instances: int
) -> list[int]:
    """For each instance, how many tokens of a prompt were sent there before, as an unbroken
    prefix.
    """
    tokens = [0] * instances
    remaining: set[int] | None = None
    for piece, end in zip(pieces, until, strict=True):
        there = holders.get(piece, set())
        remaining = there if remaining is None else remaining & there
        if not remaining:
            break
        for place in remaining:
            tokens[place] = min(end, isl)
    return tokens


def after(requests: Requests, first: int, last: int | None = None) -> Requests:
    """The requests from a place on, up to another, in order of arrival; the gaps stay those of the
    whole run.
    """
    if first <= 0 and last is None:
        return requests
    return requests.some(slice(first, last))


def hit_rate(requests: Requests) -> float:
    """Share of the prompt tokens that were found in a cache."""
    return float(requests.cached_tokens.sum()) / max(int(requests.isl.sum()), 1)
