"""Two pools of engines: one computes prompts, the other decodes, and the KV cache goes from the
first to the second over a link.

Each pool has its own router (``router.py``), which sees the requests that were sent to its engines
and have not come back. A request goes to a prefill engine, which computes the prompt and makes the
first token. Then its cache is sent to a decode engine, which lets the request in by its own rules:
a slot and blocks. The client is answered by the decode engine alone, as behind Dynamo, llm-d and
SGLang's router: it has the first token together with the first one that is decoded, after the
transfer and after the wait for a slot. The source keeps its blocks until the transfer has ended. An
engine sends one cache after another; with ``overlap`` the layers that are computed are sent while
the others still are.

The pools are driven from outside by ``submit``, ``next_event`` and ``advance``, so that no
scheduler knows of them, and the compiled engine and the reference give the same record. An engine
whose blocks are held by transfers goes round in empty steps until some come back, as a real one
does; so prefill engines are advanced step by step, and only decode engines take steps that are
alike at once. In an open loop ``kernel/pools.py`` gives the same record in a small part of the
time, unless transfers leave a prefill engine short of blocks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tonnage.errors import InputError, option
from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED, Requests
from tonnage.simulator.request import Happened, Request
from tonnage.simulator.router import DEFAULT_ROUTER, ROUTERS, View, memory_of
from tonnage.simulator.router import Request as Routed
from tonnage.units import PS_PER_NS, PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.workload import Trace

ENDED, COME, HANDED, RELEASED = range(4)
"""What happens between engines: an answer is back at the router, a request is sent, its cache has
arrived, its source is free of it."""

COUNTING = ("least-outstanding", "round-robin", "random", "power-of-two", "weighted")
"""Routers that a pool may have: they look at nothing but requests."""


class PooledEngine(Protocol):
    """The interface of an engine in a pool; ``Engine`` and ``reference.Engine`` have it."""

    now: int

    def submit(self, request: Request) -> None:
        """Send a request."""

    def next_event(self) -> int | None:
        """The instant of the engine's next event."""

    def advance(self, until: int | None = None) -> Happened:
        """Do all that happens up to an instant."""

    def hold(self, blocks: int) -> int:
        """Keep free blocks from others."""

    def release(self, blocks: int) -> None:
        """Give them back."""

    @property
    def last_step_ps(self) -> int:
        """The duration of the last step, in picoseconds."""

    def requests(self) -> Requests:
        """The record until now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLink:
    """The way of a KV cache from one engine to another."""

    # of one token, in the layers that keep all of them, per GPU of the side that has more
    bytes_per_token: int
    bytes_s: float  # bytes per second that each GPU sends
    layers: int  # that are sent one after another
    # of one of the last ``window_tokens`` tokens, in the layers with a sliding window
    window_bytes_per_token: int = 0
    window_tokens: int = 0  # tokens that those keep
    state_bytes: int = 0  # of a sequence, however long, in the layers that keep a state
    latency_s: float = 0.0  # from the end of the prompt to the first byte
    overlap: bool = False  # whether a layer is sent as soon as it is computed
    block_tokens: int = 16  # tokens of a block of the source

    def bytes_of(self, tokens: Any) -> Any:
        """Bytes of the cache of a prompt, per GPU; of each prompt where ``tokens`` is an array."""
        return (
            tokens * self.bytes_per_token
            + np.minimum(tokens, self.window_tokens) * self.window_bytes_per_token
            + self.state_bytes
        )

    def takes_ps(self, tokens: Any, computed_ps: Any) -> Any:
        """How long the cache of a prompt, or of each of several, is on its way once it is computed
        and the link is free, in picoseconds.

        In ``computed_ps``, the time of its last step, earlier layers may have been sent.
        """
        whole = self.bytes_of(tokens) / self.bytes_s * PS_PER_S
        if self.overlap:
            whole = np.maximum(
                whole - computed_ps * (self.layers - 1) / self.layers, whole / self.layers
            )
        return np.ceil(whole + self.latency_s * PS_PER_S).astype(np.int64)


@dataclass(slots=True, eq=False, kw_only=True)
class _Member:
    engine: PooledEngine
    link_free: int = 0
    numbers: list[int] = field(default_factory=list)


class _Router:
    """Gives requests to the engines of one pool."""

    def __init__(self, name: str, count: int, seed: int) -> None:
        self.choose, self.memory, self.requests, self.sent = (
            ROUTERS[name],
            memory_of(count, seed),
            [0] * count,
            0,
        )
        ones, zeros = [1] * count, [0] * count
        self.view = View(
            available=ones,
            requests=self.requests,
            tokens=zeros,
            kv_used=zeros,
            matched=zeros,
            weight=ones,
        )

    def next(self, isl: int) -> int:
        """The engine of the next request."""
        place = self.choose(self.view, Routed(number=self.sent, session=-1, isl=isl), self.memory)
        self.sent += 1
        self.requests[place] += 1
        return place


class Pools:
    """A run of both pools."""

    def __init__(
        self,
        trace: Trace,
        prefill: Sequence[PooledEngine],
        decode: Sequence[PooledEngine],
        link: KvLink,
        *,
        router: str,
        seed: int,
    ) -> None:
        """Put the requests of an open loop, or the first of each client, on their way."""
        self.trace, self.link = trace, link
        self.to_prefill, self.to_decode = (
            _Router(router, len(prefill), seed),
            _Router(router, len(decode), seed),
        )
        self.prefill = [_Member(engine=engine) for engine in prefill]
        self.decode = [_Member(engine=engine) for engine in decode]
        self.members = [*self.prefill, *self.decode]
        self.events: list[tuple[int, int, int, Any]] = []
        self.sent = self.program_free = 0
        count = len(trace)
        self.due, self.first, self.last, self.prefilled = (
            np.full(count, -1, np.int64) for _ in range(4)
        )
        self.status = np.full(count, UNFINISHED, np.int8)
        self.place = np.full(count, -1, np.int32)
        self.isl, self.osl = trace.isl.tolist(), trace.osl.tolist()
        if trace.concurrency:
            for _ in range(min(trace.concurrency, count)):
                self.answer(0)
        else:
            for due in trace.due_ps.tolist():
                self.send(due)

    def push(self, at: int, kind: int, number: int, what: Any = None) -> None:
        """Note what happens to a request outside of the engines; at one instant, the lowest number
        goes first.
        """
        heapq.heappush(self.events, (at, kind, number, what))

    def send(self, due: int) -> None:
        """Put the next request on its way."""
        self.due[self.sent] = due
        self.push(due, COME, self.sent)
        self.sent += 1

    def answer(self, now: int) -> None:
        """A client of a closed loop is free, and sends the next request if there is one."""
        if self.trace.concurrency and self.sent < len(self.trace):
            self.program_free = max(now, self.program_free) + self.trace.turnaround_ps
            self.send(self.program_free)

    def go(self) -> None:
        """Run from the first request to the last token."""
        waits = [math.inf] * len(self.members)
        while True:
            outside = self.events[0][0] if self.events else math.inf
            now = min(outside, *waits)
            if now == math.inf:
                return
            for i, member in enumerate(self.members):
                if waits[i] <= now:
                    self.read(i, member.engine.advance(int(now)), int(now))
                    waits[i] = self.next_of(member)
            while self.events and self.events[0][0] <= now:
                _, kind, number, what = heapq.heappop(self.events)
                touched = (self.ended, self.come, self.handed, self.released)[kind](
                    int(now), number, what
                )
                waits[touched] = self.next_of(self.members[touched])

    def next_of(self, member: _Member) -> float:
        """When something may happen in an engine."""
        at = member.engine.next_event()
        return math.inf if at is None else max(at, member.engine.now)

    def ended(self, now: int, number: int, i: int) -> int:
        """An answer is back at the router, so that its engine has one request less."""
        if i < len(self.prefill):
            self.to_prefill.requests[i] -= 1
        else:
            self.to_decode.requests[i - len(self.prefill)] -= 1
        return i

    def come(self, now: int, number: int, what: None) -> int:
        """A request goes to a prefill engine: to make one token."""
        place = self.to_prefill.next(self.isl[number])
        self.prefill[place].numbers.append(number)
        self.prefill[place].engine.submit(Request(id=number, isl=self.isl[number], osl=1, at=now))
        self.place[number] = place
        return place

    def read(self, i: int, happened: Happened, now: int) -> None:
        """Take note of what an engine did; an answer may be back later than its last step has
        ended.
        """
        ended = np.flatnonzero(happened.status != UNFINISHED)
        columns = (
            column[ended].tolist() for column in (happened.ids, happened.at, happened.status)
        )
        for number, at, status in zip(*columns, strict=True):
            if at > now:
                self.push(at, ENDED, number, i)
            else:
                self.ended(now, number, i)
            if i < len(self.prefill):
                self.computed(i, number, at, status)
            else:
                self.end(number, at, status)

    def computed(self, i: int, number: int, at: int, status: int) -> None:
        """A prompt is computed, and with it the only token of some requests; or the engine could
        never hold it.
        """
        self.prefilled[number] = at if status == COMPLETED else -1
        if status == COMPLETED and self.osl[number] > 1:
            member = self.members[i]
            blocks = member.engine.hold(-(-self.isl[number] // self.link.block_tokens))
            starts = max(at, member.link_free)
            member.link_free = starts + int(
                self.link.takes_ps(self.isl[number], member.engine.last_step_ps)
            )
            self.push(member.link_free, HANDED, number, (i, blocks))
            return
        self.first[number] = at if status == COMPLETED else -1
        self.end(number, at, status)

    def handed(self, now: int, number: int, what: tuple[int, int]) -> int:
        """A cache has arrived: the request goes to the decode engine that it was sent to."""
        place = self.to_decode.next(self.isl[number])
        member = self.decode[place]
        member.numbers.append(number)
        at = max(now, member.engine.now)
        member.engine.submit(
            Request(id=number, isl=self.isl[number], osl=self.osl[number], at=at, received=True)
        )
        self.place[number] = place
        self.push(now, RELEASED, number, what)
        return len(self.prefill) + place

    def released(self, now: int, number: int, what: tuple[int, int]) -> int:
        """The source gives up its blocks."""
        source, blocks = what
        engine = self.members[source].engine
        if engine.now < now:
            self.read(source, engine.advance(now), now)
        engine.release(blocks)
        return source

    def end(self, number: int, at: int, status: int) -> None:
        """A request has ended."""
        self.status[number] = status
        if status == COMPLETED:
            self.last[number] = at
        self.answer(at)


def simulate_pools(
    trace: Trace,
    prefill: Sequence[PooledEngine],
    decode: Sequence[PooledEngine],
    link: KvLink,
    router: str = DEFAULT_ROUTER,
    *,
    seed: int = 0,
) -> Requests:
    """Simulate requests on a prefill pool and a decode pool.

    Args:
        trace: the requests, of an open or a closed loop.
        prefill, decode: idle engines at time 0.
        link: between any two of them.
        router: of each pool, one of ``COUNTING``.
        seed: of the routers' random choices.

    Returns:
        The record in the order of the trace; ``instance`` is the decode engine, or the prefill
        engine of a request of one token. Gaps are those of all tokens; the one between the first
        token and the second is 0.

    Raises:
        InputError: a pool without engines, a link without bandwidth, or a router that looks at more
            than requests.
    """
    check_pools(prefill, decode, link, router)
    run = Pools(trace, prefill, decode, link, router=router, seed=seed)
    run.go()
    sent = run.sent
    parts = [engine.requests() for engine in (*prefill, *decode)]
    first_ns, admitted_ns, preemptions = _of_engines(run)
    done = run.status[:sent] == COMPLETED
    due = run.due[:sent] // PS_PER_NS
    return Requests(
        due_ns=due,
        sent_ns=due,
        first_token_ns=first_ns[:sent],
        last_token_ns=_ns(run.last[:sent]),
        isl=trace.isl[:sent],
        osl=np.where(done, trace.osl[:sent], 0),
        cached_tokens=np.zeros(sent, np.int64),
        instance=np.where(run.status[:sent] == REJECTED, -1, run.place[:sent]).astype(np.int32),
        status=run.status[:sent],
        preemptions=preemptions[:sent],
        gaps=np.sum([part.gaps for part in parts], axis=0),
        admitted_ns=admitted_ns[:sent],
        prefilled_ns=_ns(run.prefilled[:sent]),
    )


def check_pools(prefill: Sequence[Any], decode: Sequence[Any], link: KvLink, router: str) -> None:
    """Refuse what cannot be two pools.

    Raises:
        InputError: a pool without engines, a link without bandwidth, or a router that looks at more
            than requests.
    """
    if not prefill or not decode:
        raise InputError("pools: each has one engine at least")
    if not link.bytes_s > 0:
        raise InputError("pools: the link between them has a bandwidth above 0")
    if router not in COUNTING:
        raise InputError(
            f"{option('router')}: two pools are simulated behind routers that count requests;"
            f" choose from {', '.join(COUNTING)}"
        )


def _ns(at: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(at >= 0, at // PS_PER_NS, -1)


def _of_engines(run: Pools) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """When each request had its first token and its slot in the prefill pool, and how often it lost
    its blocks in the decode pool.
    """
    first, admitted, preemptions = (
        _ns(run.first),
        np.full(len(run.first), -1),
        np.zeros(len(run.first), np.int32),
    )
    for member in run.prefill:
        admitted[member.numbers] = member.engine.requests().admitted_ns
    for member in run.decode:
        record = member.engine.requests()
        first[member.numbers] = record.first_token_ns
        preemptions[member.numbers] = record.preemptions
    return first, admitted, preemptions
