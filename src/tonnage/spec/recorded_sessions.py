"""Sessions that were recorded: which requests they sent, what each of these waited for, and what
their prompts have in common.

A session is a graph: a request is sent a pause after the last of the ones it waits for has ended.
The pause is the time of a tool, or of a person. A sub-agent is a chain of requests that begins
behind one of its parent's and runs next to it. A replay keeps the pauses, and not the recorded
moments: a service that answers faster has the next request sooner.

Of prompts whose blocks have ids (``hash_ids``) a radix tree finds what they share. Each of its
paths is one piece of ``Contents``: a prompt that goes on where the one before ended adds nothing
but a length, so that 21 million blocks become some thousand pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError, option
from tonnage.spec.recording import Recording
from tonnage.spec.sessions import ENDLESS, Contents, Follows, follows_of, gathered, of_rows
from tonnage.units import NS_PER_S, PS_PER_NS, PS_PER_S, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.workload import Trace, Workload

    Ints = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Call:
    """One request of a session, as a file says it."""

    # isl, osl: tokens
    isl: int
    osl: int
    # at_ns, took_ns: when it was sent, since the session began, and how long its answer took
    at_ns: int = 0
    took_ns: int = 0
    # places, in the session, of the requests that it waits for; none of the first
    waits: tuple[int, ...] = ()
    pause_ns: int = 0  # from the end of the last of these until it is sent
    tool: bool = False  # whether that is a tool's time, and not a person's
    agent: int = 0  # 0 of the session itself, else the number of a sub-agent
    ids: Ints | None = None  # of its prompt's blocks; None where the file names none
    # place of the request whose prompt and answer its own prompt begins with; -1 for none. Without
    # ``ids`` alone.
    continues: int = -1
    shared: int = 0  # tokens that it has in common with that one's prompt and answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session of a file: when it began, if it does, and its requests in the order in which they
    were sent.
    """

    calls: list[Call]
    begins_ns: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedSessions:
    """Sessions in columns, a row for each request, those of a session one after another in the
    order in which they were sent.
    """

    source: str  # the file
    starts: Ints  # int64 (sessions + 1,), the first row of each session
    # isl, osl: int64, tokens
    isl: Ints
    osl: Ints
    # at_ns, took_ns: int64, when each was sent since its session began, and how long its answer
    # took then
    at_ns: Ints
    took_ns: Ints
    # int64, from the end of the last that it waits for until it is sent; -1 of a session's first
    pause_ns: Ints
    tool: NDArray[np.bool_]  # whether that is a tool's time
    agent: NDArray[np.int32]  # int32, 0 of the session itself, else the number of a sub-agent
    follows: Follows  # who waits for whom
    contents: Contents  # what prompts have in common
    common: int = 0  # pieces below this number belong to several sessions; the others to one alone
    # int64, when each session began, since the first; None where the file does not say
    begins_ns: Ints | None = None
    block_tokens: int = 0  # of a recorded block; 0 where the file names none
    change: str = field(default="")  # words for a change that was made to them
    began_ns: int = 0  # when the first session began, by the file's own clock

    def __len__(self) -> int:
        """Number of sessions."""
        return len(self.starts) - 1

    @property
    def requests(self) -> float:
        """Requests of a session, on average."""
        return len(self.isl) / len(self)

    @cached_property
    def session(self) -> Ints:
        """The session of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def begun_ns(self) -> Ints:
        """When each request is sent where every answer takes as long as it did, since its session
        began.
        """
        begun, waits = np.zeros(len(self.isl), np.int64), np.zeros(len(self.isl), np.int64)
        starts, rows = self.follows.starts.tolist(), self.follows.rows.tolist()
        for row in range(len(begun)):
            begun[row] = waits[row] + max(int(self.pause_ns[row]), 0)
            for following in rows[starts[row] : starts[row + 1]]:
                waits[following] = max(waits[following], begun[row] + self.took_ns[row])
        return begun

    @cached_property
    def lasts_s(self) -> NDArray[np.float64]:
        """The duration of each session with that model's times, in seconds."""
        return np.asarray(
            np.maximum.reduceat(self.begun_ns + np.maximum(self.took_ns, 1), self.starts[:-1])
            / NS_PER_S
        )

    @property
    def pace(self) -> float:
        """Requests per second of a session while it lasts, on average over the time of all."""
        return len(self.isl) / float(self.lasts_s.sum())

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """The recorded duration of each session, to its last answer, in seconds."""
        return np.asarray(
            np.maximum.reduceat(self.at_ns + self.took_ns, self.starts[:-1]) / NS_PER_S
        )

    @cached_property
    def recording(self) -> Recording:
        """The requests at the moments at which they were sent; where the file does not say when
        sessions began, all began together.
        """
        begins = np.zeros(len(self), np.int64) if self.begins_ns is None else self.begins_ns
        due = begins[self.session] + self.at_ns
        order = np.argsort(due, kind="stable")
        columns = (
            tuple(column[order].tolist())
            for column in (due - due.min(initial=0), self.isl, self.osl)
        )
        moments, isl, osl = columns
        return Recording(
            due_ns=moments,
            isl=isl,
            osl=osl,
            source=self.source,
            change=self.change,
            began_ns=self.began_ns,
        )

    def found_tokens(self, block: int = 0) -> Ints:
        """Prompt tokens of each request that a cache without end would find, if all came in the
        order of the rows, in whole blocks.

        ``block`` has the tokens of one; 0 takes the recorded ones, or single tokens. The last token
        of a prompt is always computed.
        """
        size = block or self.block_tokens or 1
        reached: dict[int, int] = {}
        cached_tokens = np.zeros(len(self.isl), np.int64)
        starts, piece, until = (
            self.contents.starts.tolist(),
            self.contents.piece.tolist(),
            self.contents.until.tolist(),
        )
        for row, (isl, osl) in enumerate(zip(self.isl.tolist(), self.osl.tolist(), strict=True)):
            common, unbroken = 0, True
            for place in range(starts[row], starts[row + 1]):
                identifier, end = piece[place], min(until[place], isl + osl - 1)
                there = reached.get(identifier, 0)
                if unbroken:
                    common, unbroken = max(common, min(there, end)), there >= end
                reached[identifier] = max(there, end)
            cached_tokens[row] = min(common, isl - 1) // size * size
        return cached_tokens

    def within(self, longest: int) -> RecordedSessions:
        """Without the requests that are longer than a model's context: the next ones wait for those
        before them.
        """
        fits = self.isl + self.osl <= longest
        return self if fits.all() else self._with_requests(fits)

    def some(self, sessions: Ints) -> RecordedSessions:
        """Some of the sessions, in their order."""
        return replace(self._with_requests(np.isin(self.session, sessions)), change=self.change)

    def _with_requests(self, fits: NDArray[np.bool_]) -> RecordedSessions:
        """Some of the requests: who waited for one that is left out waits for the ones it waited
        for, and as much longer.
        """
        rows = np.flatnonzero(fits)
        number = np.full(len(fits), -1)
        number[rows] = np.arange(len(rows))
        before: list[list[int]] = [[] for _ in fits]
        owner = np.repeat(np.arange(len(fits)), np.diff(self.follows.starts))
        for predecessor, row in zip(owner.tolist(), self.follows.rows.tolist(), strict=True):
            before[row].append(predecessor)
        pause, waits = self.pause_ns.copy(), []
        for row in range(len(fits)):
            gone = [earlier for earlier in before[row] if not fits[earlier]]
            pause[row] += max((pause[missing] for missing in gone), default=0)
            before[row] = sorted(
                {
                    *(earlier for earlier in before[row] if fits[earlier]),
                    *(ancestor for missing in gone for ancestor in before[missing]),
                }
            )
        session, first = self.session[rows], np.zeros(len(rows), bool)
        first[np.flatnonzero(np.diff(session, prepend=-1))] = True
        begin = np.flatnonzero(first)[np.cumsum(first) - 1]
        for place, row in enumerate(rows.tolist()):
            mine = [int(number[earlier]) for earlier in before[row]]
            waits.append([] if first[place] else mine or [int(begin[place])])
        columns = {
            name: getattr(self, name)[rows]
            for name in ("isl", "osl", "at_ns", "took_ns", "tool", "agent")
        }
        sessions = np.unique(session)
        return replace(
            self,
            **columns,
            starts=np.append(np.flatnonzero(first), len(rows)),
            pause_ns=np.where(first, -1, np.maximum(pause[rows], 0)),
            follows=follows_of(waits),
            contents=self.contents.part(rows),
            begins_ns=None if self.begins_ns is None else self.begins_ns[sessions],
            change=f"{self.change}, without {int((~fits).sum())} requests that exceed the context",
        )

    def paused_at_most(self, seconds: float) -> RecordedSessions:
        """Cut longer pauses."""
        longest = round(seconds * NS_PER_S)
        return replace(
            self,
            pause_ns=np.minimum(self.pause_ns, longest),
            change=f"{self.change}, pauses cut to {seconds:g} s",
        )

    def under_way(
        self, clients: int, further: int, seed: int, turnaround_ps: int = 0
    ) -> tuple[Trace, Ints]:
        """A closed loop that begins in the midst of its sessions, and the row here of each of its
        requests.

        At a moment of a service that has long run, a session is met in proportion to the time that
        it lasts, anywhere in it. The rest of it follows, from the next request of the session's
        agent on. ``further`` whole sessions come after those of the clients.
        """
        rng = np.random.default_rng([seed, 13])
        ends = self.lasts_s.cumsum()
        chosen: list[int] = []
        rows: list[Ints] = []
        due: list[int] = []
        while len(chosen) < clients:
            at = float(rng.random() * ends[-1])
            session = int(np.searchsorted(ends, at, side="right"))
            since = round((at - (ends[session] - self.lasts_s[session])) * NS_PER_S)
            remaining, wait = self._from(session, since)
            if len(remaining):
                chosen.append(session)
                rows.append(remaining)
                due.append(wait * PS_PER_NS)
        drawn = np.concatenate(
            [rng.permutation(len(self)) for _ in range(-(-further // len(self)))]
        )[:further]
        whole = [np.arange(self.starts[number], self.starts[number + 1]) for number in drawn]
        trace = self.chosen(
            np.array([*chosen, *drawn]), concurrency=clients, turnaround_ps=turnaround_ps, seed=seed
        )
        begins = np.append(0, np.cumsum(np.diff(self.starts)[[*chosen, *drawn]]))
        places = [
            begins[i] + part - self.starts[number]
            for i, (number, part) in enumerate(zip(chosen, rows, strict=True))
        ]
        trace_rows = np.concatenate([*places, np.arange(begins[len(chosen)], begins[-1])]).astype(
            np.int64
        )
        return _begun(trace, trace_rows, np.array(due)), np.concatenate([*rows, *whole])

    def _from(self, session: int, since_ns: int) -> tuple[Ints, int]:
        """The rows of a session that follow from the next request of the session's agent after a
        time, and how long until that is sent.
        """
        first, last = int(self.starts[session]), int(self.starts[session + 1])
        coming = [
            row
            for row in range(first, last)
            if self.agent[row] == self.agent[first] and self.begun_ns[row] >= since_ns
        ]
        if not coming:
            return np.zeros(0, np.int64), 0
        reached, starts = {coming[0]}, self.follows.starts
        for row in range(coming[0], last):
            if row in reached:
                reached.update(self.follows.rows[starts[row] : starts[row + 1]].tolist())
        return np.array(sorted(reached), np.int64), int(self.begun_ns[coming[0]] - since_ns)

    def chosen(
        self,
        sessions: Ints,
        *,
        concurrency: int = 0,
        turnaround_ps: int = 0,
        due_ps: Ints | None = None,
        seed: int = 0,
    ) -> Trace:
        """The requests of some of the sessions, in order; of one that is chosen again a copy, which
        shares nothing with the first.

        ``due_ps`` says when each of these sessions begins, in an open loop.
        """
        from tonnage.spec.workload import Trace

        owner, rows = gathered(self.starts, sessions)
        lengths = np.diff(owner)
        pieces = int(self.contents.piece.max(initial=0)) + 1
        copies = np.repeat(_copies(sessions), lengths)
        contents = self.contents.part(rows)
        offset = np.repeat(copies * pieces, np.diff(contents.starts))
        piece = np.where(contents.piece < self.common, contents.piece, contents.piece + offset)
        waiting, places = gathered(self.follows.starts, rows)
        moved = np.repeat(np.repeat(owner[:-1] - self.starts[sessions], lengths), np.diff(waiting))
        due = np.full(len(rows), -1)
        if due_ps is not None:
            due[owner[:-1]] = due_ps
        pause = self.pause_ns[rows]
        return Trace(
            due_ps=due,
            isl=self.isl[rows],
            osl=self.osl[rows],
            concurrency=concurrency,
            turnaround_ps=turnaround_ps,
            seed=seed,
            contents=replace(contents, piece=piece),
            pause_ps=np.where(pause < 0, -1, pause * PS_PER_NS),
            follows=Follows(
                starts=waiting,
                rows=self.follows.rows[places] + moved,
                waits=self.follows.waits[rows],
            ),
        )


def _begun(trace: Trace, places: Ints, due_ps: Ints) -> Trace:
    """A closed loop without the requests that its first sessions have sent already; ``due_ps`` is
    when each of them sends the next one.
    """
    pause = np.full(len(trace), -1) if trace.pause_ps is None else trace.pause_ps.copy()
    session, graph = trace.session(), trace.graph()
    firsts = places[np.flatnonzero(np.diff(session[places], prepend=-1))]
    pause[firsts] = -1
    there, number = np.zeros(len(trace), bool), np.full(len(trace), -1)
    there[places], number[places] = True, np.arange(len(places))
    owner = np.repeat(np.arange(len(trace)), np.diff(graph.starts))
    both = there[owner] & there[graph.rows]
    pairs = np.column_stack([number[owner[both]], number[graph.rows[both]]])
    counts = np.bincount(pairs[:, 0], minlength=len(places))
    follows = Follows(
        starts=np.append(0, counts.cumsum()),
        rows=pairs[:, 1].copy(),
        waits=np.bincount(pairs[:, 1], minlength=len(places)).astype(np.int64),
    )
    due = np.full(len(places), -1)
    due[number[firsts[: len(due_ps)]]] = due_ps
    part = replace(trace, follows=None).part(places, trace.seed)
    return replace(part, due_ps=due, pause_ps=pause[places], follows=follows)


def _copies(sessions: Ints) -> Ints:
    """The number of times that each session was chosen before."""
    counts: dict[int, int] = {}
    copies = np.zeros(len(sessions), np.int64)
    for place, session in enumerate(sessions.tolist()):
        copies[place] = counts.get(session, 0)
        counts[session] = copies[place] + 1
    return copies


def recorded_trace(workload: Workload, recorded: RecordedSessions, seed: int) -> Trace:
    """The requests of a workload of recorded sessions: whole sessions until there are as many as
    asked.

    In a closed loop each client holds one session after another, in the order of the file; when all
    have been taken, copies follow in an order that the seed draws. In an open loop they begin at a
    rate that makes their requests together the requested rate, in such an order too. Replayed as
    they came, each begins when it did.

    Raises:
        InputError: a replay of a file that does not say when its sessions began, or arrivals that
            no session has.
    """
    from tonnage.spec.workload import ClosedLoop, OpenLoop, TraceArrivals, unit_gaps

    rng = np.random.default_rng([seed, 11])
    arrivals = workload.arrivals
    if isinstance(arrivals, ClosedLoop):
        sessions = _enough(recorded, workload.requests, np.arange(len(recorded)), rng)
        turnaround = to_ps(arrivals.turnaround_s)
        return recorded.chosen(
            sessions, concurrency=arrivals.concurrency, turnaround_ps=turnaround, seed=seed
        )
    if isinstance(arrivals, OpenLoop):
        sessions = _enough(recorded, workload.requests, rng.permutation(len(recorded)), rng)
        gaps = unit_gaps(arrivals, len(sessions), rng) * (
            PS_PER_S * recorded.requests / arrivals.rate
        )
        return recorded.chosen(sessions, due_ps=np.rint(gaps.cumsum()).astype(np.int64), seed=seed)
    if not isinstance(arrivals, TraceArrivals) or recorded.begins_ns is None:
        raise InputError(
            f"{option('trace')}: {recorded.source} does not say when its sessions began; give"
            f" {option('concurrency')} for so many sessions at once, or {option('request_rate')}"
        )
    order = np.argsort(recorded.begins_ns, kind="stable")
    return recorded.chosen(order, due_ps=recorded.begins_ns[order] * PS_PER_NS, seed=seed)


def _enough(
    recorded: RecordedSessions, requests: int, first: Ints, rng: np.random.Generator
) -> Ints:
    """Sessions that have so many requests together."""
    lengths = np.diff(recorded.starts)
    order = [first]
    while sum(int(lengths[batch].sum()) for batch in order) < requests:
        order.append(rng.permutation(len(recorded)))
    sessions = np.concatenate(order)
    return sessions[: int(np.searchsorted(lengths[sessions].cumsum(), requests)) + 1]


class PrefixTree:
    """A radix tree of prompts by the ids of their blocks; each path of it is a piece, which grows
    where a prompt goes on at its end.
    """

    def __init__(self, numbers: Iterator[int]) -> None:
        """Start empty; ``numbers`` are given to its pieces."""
        self.numbers = numbers
        self.ids: dict[int, Ints] = {}
        self.branches: dict[tuple[int, int, int], int] = {}

    def path(self, ids: Ints) -> list[tuple[int, int]]:
        """The pieces of a prompt, and the blocks up to which each reaches; unknown pieces of it are
        added.
        """
        pieces: list[tuple[int, int]] = []
        piece, depth = -1, 0
        while depth < len(ids):
            key = (piece, depth, int(ids[depth]))
            piece = self.branches.setdefault(key, -1)
            if piece < 0:
                piece = self.branches[key] = next(self.numbers)
                self.ids[piece] = ids
            piece_ids = self.ids[piece]
            depth += same_beginning(piece_ids[depth:], ids[depth:])
            if depth == len(piece_ids) < len(ids):
                self.ids[piece], depth = ids, len(ids)
            pieces.append((piece, depth))
        return pieces


def same_beginning(first: NDArray[Any], second: NDArray[Any]) -> int:
    """The number of values that two columns begin with together."""
    shorter = min(len(first), len(second))
    differ = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(differ[0]) if len(differ) else shorter


def behind(order: Iterable[int], waits: Callable[[int], Iterable[int]]) -> list[int]:
    """Places in order, each behind all that it waits for; of several that wait for one another in a
    circle one goes first.
    """
    ordered: dict[int, None] = {}
    for place in order:
        pending, met = [place], {place}
        while pending:
            missing = next(
                (wait for wait in waits(pending[-1]) if wait not in met and wait not in ordered),
                None,
            )
            if missing is None:
                ordered[pending.pop()] = None
            else:
                met.add(missing)
                pending.append(missing)
    return list(ordered)


def recorded_of(
    source: str, sessions: Iterable[Session], block: int, *, common: bool
) -> RecordedSessions:
    """The sessions of a file in columns.

    ``block`` has the tokens of a block, 0 where none has ids; ``common`` says whether equal ids in
    two sessions are equal blocks.
    """
    columns: dict[str, list[Any]] = {
        name: [] for name in ("isl", "osl", "at_ns", "took_ns", "pause_ns", "tool", "agent")
    }
    rows: list[list[tuple[int, int]]] = []
    waits: list[list[int]] = []
    numbers = count()
    starts, begins, tree = [0], [], PrefixTree(numbers)
    for session in sessions:
        if not common:
            tree = PrefixTree(numbers)
        first = len(rows)
        for place, call in enumerate(session.calls):
            for name, column in columns.items():
                column.append(getattr(call, name) if name != "pause_ns" or place else -1)
            waits.append([first + wait for wait in call.waits] if place else [])
            rows.append(_row(call, rows[first:], tree, block))
        starts.append(len(rows))
        begins.append(session.begins_ns)
    contents = of_rows(rows)
    session_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    contents, shared = _common_first(contents, session_of) if common else (contents, 0)
    moments = [begin for begin in begins if begin is not None]
    kinds = {"tool": np.bool_, "agent": np.int32}
    arrays: dict[str, Any] = {
        name: np.array(column, kinds.get(name, np.int64)) for name, column in columns.items()
    }
    return RecordedSessions(
        source=source,
        starts=np.array(starts, np.int64),
        **arrays,
        follows=follows_of(waits),
        contents=contents,
        common=shared,
        begins_ns=(
            np.array(moments, np.int64) - min(moments)
            if moments and len(moments) == len(begins)
            else None
        ),
        block_tokens=block,
        began_ns=min(moments, default=0),
    )


def _row(
    call: Call, before: Sequence[list[tuple[int, int]]], tree: PrefixTree, block: int
) -> list[tuple[int, int]]:
    """The pieces of a request; what follows the blocks that have ids is its own."""
    if call.ids is not None:
        path = [(piece, min(depth * block, call.isl)) for piece, depth in tree.path(call.ids)]
        return [*path, (next(tree.numbers), ENDLESS)]
    if call.continues < 0 or call.shared <= 0:
        return [(next(tree.numbers), ENDLESS)]
    base = before[call.continues]
    if call.shared >= ENDLESS:
        return base
    shared_pieces = [pair for pair in base if pair[1] < call.shared]
    return [
        *shared_pieces,
        (base[len(shared_pieces)][0], call.shared),
        (next(tree.numbers), ENDLESS),
    ]


def _common_first(contents: Contents, session: Ints) -> tuple[Contents, int]:
    """The pieces numbered again, those of several sessions first; and how many these are."""
    pieces = int(contents.piece.max(initial=-1)) + 1
    owner = np.repeat(session, np.diff(contents.starts))
    first, last = np.full(pieces, len(session)), np.full(pieces, -1)
    np.minimum.at(first, contents.piece, owner)
    np.maximum.at(last, contents.piece, owner)
    several = first < last
    number = np.empty(pieces, np.int64)
    number[np.argsort(~several, kind="stable")] = np.arange(pieces)
    return replace(contents, piece=number[contents.piece]), int(several.sum())
