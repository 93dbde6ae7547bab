"""An engine as a router in front of it sees it: what was sent there, what came back, and what is
still to come.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tonnage.results.requests import UNFINISHED
from tonnage.simulator.request import Request
from tonnage.simulator.router import View
from tonnage.spec.sessions import Contents, piece_at

if TYPE_CHECKING:
    from tonnage.simulator.engine import Engine


class Delivery(NamedTuple):
    """A delivery to a client at an instant: tokens, or the end of a request without one."""

    at: int  # picoseconds
    number: int  # of the request
    tokens: int  # output tokens
    status: int  # of ``results.requests`` after them


@dataclass(slots=True, eq=False, kw_only=True)
class Live:
    """Tokens of a request that are still to come: its prompt until the first token has come back,
    and its output.
    """

    prompt: int
    output: int


class Member:
    """One engine of a fleet.

    Attributes:
        engine: the engine; anyone who drives the fleet advances it through the member.
        live: requests that have not ended as far as their clients know, by number.
        tokens: tokens of these that are still to come.
    """

    def __init__(self, engine: Engine) -> None:
        """Take an idle engine."""
        self.engine = engine
        self.live: dict[int, Live] = {}
        self.tokens = 0
        self._coming: list[tuple[int, int, Delivery]] = []
        self._entries = 0

    @property
    def requests(self) -> int:
        """Requests that have not ended as far as their clients know."""
        return len(self.live)

    @property
    def kv_used(self) -> float:
        """Share of the KV blocks in use, from 0 to 1."""
        used, free = self.engine.kv_blocks_used, self.engine.kv_blocks_free
        return used / (used + free)

    def submit(
        self,
        number: int,
        *,
        isl: int,
        osl: int,
        at: int,
        received: bool = False,
        priority: int = 0,
    ) -> None:
        """Send a request at an instant in picoseconds, not before ``now``; ``received`` brings KV
        cache and first token with it.
        """
        self.engine.submit(
            Request(id=number, isl=isl, osl=osl, at=at, received=received, priority=priority)
        )
        self.live[number] = Live(prompt=isl, output=osl)
        self.tokens += isl + osl

    def cancel(self, number: int) -> bool:
        """Let go of a request whose client has left; False if it had ended."""
        live = self.live.pop(number, None)
        if live is None:
            return False
        self.tokens -= live.prompt + live.output
        self.engine.cancel(number)
        return True

    def advance(self, until: int) -> list[Delivery]:
        """Advance the engine, and return what clients have got up to and including ``until``, in
        the order of time.
        """
        happened = self.engine.advance(until)
        if len(happened):
            columns = (
                happened.at.tolist(),
                happened.ids.tolist(),
                happened.tokens.tolist(),
                happened.status.tolist(),
            )
            for entry in zip(*columns, strict=True):
                self._entries += 1
                heapq.heappush(self._coming, (entry[0], self._entries, Delivery(*entry)))
        due = []
        while self._coming and self._coming[0][0] <= until:
            delivery = heapq.heappop(self._coming)[2]
            if delivery.number in self.live:
                self._book(delivery)
                due.append(delivery)
        return due

    def next_event(self) -> int | None:
        """The instant of the next step or delivery in picoseconds; None where nothing is under
        way.
        """
        instants = [
            at
            for at in (self.engine.next_event(), self._coming[0][0] if self._coming else None)
            if at is not None
        ]
        return min(instants, default=None)

    def _book(self, delivery: Delivery) -> None:
        live = self.live[delivery.number]
        self.tokens -= live.prompt + delivery.tokens
        live.prompt, live.output = 0, live.output - delivery.tokens
        if delivery.status != UNFINISHED:
            self.tokens -= live.output
            del self.live[delivery.number]


def view_of_groups(groups: Sequence[Sequence[Member]]) -> View:
    """What a router sees of instances of several attention ranks each: what their ranks hold
    together, and the mean of their KV use.
    """
    if all(len(group) == 1 for group in groups):
        return view_of([group[0] for group in groups])
    return View(
        available=[1] * len(groups),
        requests=[sum(member.requests for member in group) for group in groups],
        tokens=[sum(member.tokens for member in group) for group in groups],
        kv_used=[sum(member.kv_used for member in group) / len(group) for group in groups],
        matched=[0] * len(groups),
        weight=[1.0] * len(groups),
    )


def view_of(members: Sequence[Member], weight: Sequence[float] | None = None) -> View:
    """What a router sees of a fleet whose instances are all available, and of whose prefixes it
    remembers none.
    """
    return View(
        available=[1] * len(members),
        requests=[member.requests for member in members],
        tokens=[member.tokens for member in members],
        kv_used=[member.kv_used for member in members],
        matched=[0] * len(members),
        weight=[1.0] * len(members) if weight is None else weight,
    )


# What a router remembers of the prompts that it sent where, as the gateway does
# (``gateway/balancer.py``): whole blocks of 64 tokens. It sees neither what an engine has evicted
# nor what it has generated; what was not seen for longest is forgotten first.


BLOCK_TOKENS = 64
"""Tokens of a block: 256 bytes of text at 4 bytes a token."""

MOST_BLOCKS = 200_000
"""Blocks that are remembered."""


class PrefixIndex:
    """The blocks of prompts, and the instances to which each was sent."""

    def __init__(self, contents: Contents, instances: int) -> None:
        """Remember nothing of the requests with these contents."""
        self._contents, self._instances = contents, instances
        self._sent: OrderedDict[tuple[int, int], int] = OrderedDict()

    def matched(self, request: int, isl: int) -> list[int]:
        """For each instance, how many tokens of a prompt were sent there before, as an unbroken
        prefix.
        """
        matched_tokens, candidates = [0] * self._instances, (1 << self._instances) - 1
        for place, block in enumerate(self._blocks(request, isl), start=1):
            candidates &= self._sent.get(block, 0)
            if not candidates:
                break
            for i in range(self._instances):
                if candidates >> i & 1:
                    matched_tokens[i] = place * BLOCK_TOKENS
        return matched_tokens

    def sent(self, request: int, isl: int, instance: int) -> None:
        """Remember that a prompt was sent to an instance."""
        for block in self._blocks(request, isl):
            self._sent[block] = self._sent.get(block, 0) | 1 << instance
            self._sent.move_to_end(block)
        while len(self._sent) > MOST_BLOCKS:
            self._sent.popitem(last=False)

    def _blocks(self, request: int, isl: int) -> Iterator[tuple[int, int]]:
        pieces, until = self._contents.of(request)
        for place in range(isl // BLOCK_TOKENS):
            yield piece_at(pieces, until, (place + 1) * BLOCK_TOKENS - 1), place
