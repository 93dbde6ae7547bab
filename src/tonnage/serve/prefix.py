"""The simulator's prefix cache on live requests, and its KV events over ZeroMQ in the format of
vLLM 0.32, for routers that know prefixes.

A PUB socket sends a batch for every step that changed the cache: the topic, its number in eight
bytes, and in MessagePack the time, the events and the rank. A ROUTER socket sends those from a
number on again (vllm/distributed/kv_events.py, read 2026-11-25).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tonnage.errors import InputError, option
from tonnage.simulator.reference import Engine
from tonnage.simulator.reference.engine import Gaps
from tonnage.simulator.reference.job import Job
from tonnage.simulator.reference.prefix_cache import Found, Key, PrefixCache
from tonnage.simulator.request import Happened
from tonnage.simulator.spec import EngineSpec
from tonnage.spec.sessions import ENDLESS

if TYPE_CHECKING:
    import zmq
    from numpy.typing import NDArray


_MASK = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Blocks, one after another, that can be found from now on."""

    names: list[int]
    parent: int | None  # the name of the one before; None for the first of a context
    tokens: list[int]
    salt: str  # which keeps them apart; "" for none


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A block that has left the cache."""

    name: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The cache was emptied."""


Change = Stored | Removed | Cleared


class Content(NamedTuple):
    """The tokens of a request."""

    ids: Sequence[int]  # the tokens of its prompt
    salt: str  # keeps its blocks apart from those of others; "" for nothing
    later: Callable[[int], int]  # the token at a place of its output


@dataclass(slots=True, kw_only=True)
class _Row:
    """A request: its tokens as far as they are known, and the names of its full blocks."""

    ids: list[int]
    salt: str
    later: Callable[[int], int]
    isl: int
    pieces: list[int] = field(default_factory=list)
    until: list[int] = field(default_factory=list)


class LiveContents:
    """The contents of requests as they come; outputs follow as they are made."""

    def __init__(self, size: int) -> None:
        """Start empty, with blocks of ``size`` tokens."""
        self._size = size
        self._rows: dict[int, _Row] = {}
        self.jobs: dict[int, Job] = {}

    def add(self, number: int, content: Content) -> None:
        """Take a request."""
        ids = list(content.ids)
        row = _Row(
            ids=ids,
            salt=content.salt,
            later=content.later,
            isl=len(ids),
            pieces=[-number - 1],
            until=[ENDLESS],
        )
        self._rows[number] = row
        self._fill(row)

    def forget(self, number: int) -> None:
        """Let go of a request's tokens."""
        self._rows.pop(number, None)

    def of(self, number: int) -> tuple[list[int], list[int]]:
        """The names of a request's full blocks and the tokens up to which they reach; the last one
        is of what is not full.
        """
        row = self._rows[number]
        context_tokens = self.jobs[number].tokens if number in self.jobs else row.isl
        if len(row.pieces) * self._size <= context_tokens:
            while len(row.ids) < context_tokens:
                row.ids.append(row.later(len(row.ids) - row.isl))
            self._fill(row)
        return row.pieces, row.until

    def tokens(self, number: int, place: int) -> list[int]:
        """The tokens of a full block."""
        return self._rows[number].ids[place * self._size : (place + 1) * self._size]

    def salt(self, number: int) -> str:
        """The salt that keeps a request's blocks apart."""
        return self._rows[number].salt

    def _fill(self, row: _Row) -> None:
        tail, end, first = row.pieces.pop(), row.until.pop(), len(row.pieces)
        row.pieces += names_of(row.ids, self._size, row.salt, row.pieces)
        row.until += [(place + 1) * self._size for place in range(first, len(row.pieces))]
        row.pieces.append(tail)
        row.until.append(end)


def names_of(
    ids: Sequence[int], size: int, salt: str, earlier_names: Sequence[int] = ()
) -> list[int]:
    """The names of the full blocks of a context after the known ones."""
    names, before = (
        [],
        earlier_names[-1]
        if earlier_names
        else (int.from_bytes(salt.encode()[:512], "big") % _MASK),
    )
    for place in range(len(earlier_names), len(ids) // size):
        before = hash((before, *ids[place * size : (place + 1) * size])) & _MASK
        names.append(before)
    return names


class _Watched(PrefixCache):
    """The simulator's cache, which notes what can be found from now on, and what no longer."""

    changes: list[Change]
    _fresh: list[Key] | None = None

    def name(self, job: Job, tokens: int) -> None:
        """Name the blocks of a request that are full, and note the names that are new."""
        if tokens // self.size <= job.named:
            return
        self._fresh = []
        super().name(job, tokens)
        self._note(job)

    def hold(self, job: Job, prefix: Found) -> None:
        """Let a request have what it found, and note the names that come up from tiers."""
        self._fresh = []
        super().hold(job, prefix)
        self._note(job)

    def _note(self, job: Job) -> None:
        fresh, self._fresh = self._fresh, None
        contents: Any = self.contents
        pieces = contents.of(job.id)[0]
        for name, place in fresh or ():
            last = self.changes[-1] if self.changes else None
            parent = pieces[place - 1] if place else None
            block_tokens = contents.tokens(job.id, place)
            if isinstance(last, Stored) and last.names[-1] == parent:
                last.names.append(name)
                last.tokens.extend(block_tokens)
            else:
                self.changes.append(
                    Stored(
                        names=[name],
                        parent=parent,
                        tokens=list(block_tokens),
                        salt=contents.salt(job.id),
                    )
                )

    def _name(self, block: int, key: Key) -> None:
        if key not in self.names and self._fresh is not None:
            self._fresh.append(key)
        super()._name(block, key)

    def _take(self) -> int:
        block = next(iter(self.idle))
        key = self.named[block]
        if key is not None:
            self.changes.append(Removed(name=key[0]))
        return super()._take()


class _NoGaps(Gaps):
    """A server counts the gaps between tokens where they leave it."""

    def add(self, number: int, gap_ps: int) -> None:
        """Count none."""


class CachedEngine(Engine):
    """The plain engine with what a server asks of one."""

    def __init__(self, spec: EngineSpec) -> None:
        knobs = spec.knobs
        self.live = LiveContents(knobs.tokens_per_block)
        contents: Any = self.live
        super().__init__(
            spec.step,
            knobs,
            spec.blocks,
            windows=spec.windows,
            max_context=spec.max_context,
            contents=contents,
        )
        self.live.jobs = self.jobs
        self.gaps = _NoGaps()
        # what the prefix cache has begun and ceased to have; None where the scheduler has no such
        # cache
        self.watched: _Watched | None = None
        # takes the changes of the cache after every ``advance`` in which there were any; None for
        # nobody
        self.publish: Callable[[list[Change]], None] | None = None
        # takes the tokens of steps; None for nobody
        self.stepped: Callable[[Iterable[int]], None] | None = None
        self._preempted = self._seen = 0
        if self.batcher.cache is not None:
            self.watched = _Watched(
                spec.blocks,
                knobs.tokens_per_block,
                contents,
                spec.tiers,
                partial=self.batcher.PARTIAL,
            )
            self.watched.changes = []
            self.batcher.cache = self.watched

    @property
    def names(self) -> set[int]:
        """The blocks that can be found now, by their names."""
        return set() if self.watched is None else {name for name, _ in self.watched.names}

    def advance(self, until: int | None = None) -> Happened:
        """Advance as the simulator's engine does, and publish what has changed in the cache."""
        happened = super().advance(until)
        if len(self.steps) > 1:
            if self.stepped is not None:
                self.stepped(row[-1] for row in self.steps[self._seen :])
            del self.steps[:-1]
            self._seen = 1
        self._published()
        return happened

    def _published(self) -> None:
        if self.watched is not None and self.watched.changes:
            changes, self.watched.changes = self.watched.changes, []
            if self.publish is not None:
                self.publish(changes)

    def tokens(self, job: Job) -> int:
        """The tokens of a step, as the simulator counts them; one without speculation."""
        if self.drafted:
            return super().tokens(job)
        self.token(job)
        return 1

    def clear(self) -> bool:
        """Forget every block that no request holds (vLLM's ``reset_prefix_cache``, which leaves
        what is below); False while anything is held.
        """
        if self.watched is None:
            return True
        if any(self.watched.refs):
            return False
        self.watched.names.clear()
        self.watched.named = [None] * len(self.watched.refs)
        self.watched.changes.append(Cleared())
        self._published()
        return True

    def matched(self, pieces: Sequence[int]) -> int:
        """Tokens of the unbroken run of blocks from the beginning that the cache has, of those with
        these names.
        """
        if self.watched is None:
            return 0
        names, place = self.watched.names, 0
        while place < len(pieces) and (pieces[place], place) in names:
            place += 1
        return place * self.watched.size

    def cached(self, number: int) -> int:
        """Tokens of a prompt that the cache had when its request first entered."""
        job = self.jobs.get(number)
        return 0 if job is None else job.cached

    def preemptions(self, request: int | None = None) -> int:
        """The preemptions of a request; without one, those of all."""
        if request is not None:
            job = self.jobs.get(request)
            return 0 if job is None else job.preemptions
        return self._preempted + sum(job.preemptions for job in self.jobs.values())

    def forget(self, number: int) -> None:
        """Drop a request that has ended; its preemptions still count."""
        self._preempted += self.preemptions(number)
        self.jobs.pop(number, None)
        self.live.forget(number)

    @property
    def tokens_per_block(self) -> int:
        """Tokens of a KV block."""
        return self.batcher.knobs.tokens_per_block

    @property
    def queue(self) -> NDArray[np.int64]:
        """Requests without a slot: in the queue, and on their way to it."""
        return np.array([job.id for job in (*self.batcher.waiting, *self.coming)], np.int64)

    @property
    def queued(self) -> int:
        """The number of queued requests."""
        return len(self.batcher.waiting) + len(self.coming)


KEPT = 10_000  # Batches that can be sent again, as in vLLM
MOST_WAITING = 100_000  # Batches that a subscriber may be behind before it misses some

END = (-1).to_bytes(8, "big", signed=True)


def document_of(change: Change, block_tokens: int) -> dict[str, Any]:
    """Write an event as vLLM does."""
    if isinstance(change, Cleared):
        return {"type": "AllBlocksCleared"}
    if not isinstance(change, Stored):
        return {"type": "BlockRemoved", "block_hashes": [change.name], "medium": "GPU"}
    document: dict[str, Any] = {
        "type": "BlockStored",
        "block_hashes": change.names,
        "parent_block_hash": change.parent,
    }
    salt, _, adapter = change.salt.partition("\0")
    name, _, number = adapter.partition("\0")
    lora = (
        {"lora_id": int(number), "medium": "GPU", "lora_name": name}
        if name
        else {"lora_id": None, "medium": "GPU", "lora_name": None}
    )
    document |= {"token_ids": change.tokens, "block_size": block_tokens, **lora}
    if change.salt:
        first = [*([name] if name else []), *([salt] if salt else [])]
        rest = [name] if name else None
        document["extra_keys"] = [
            first if i == 0 and change.parent is None else rest for i in range(len(change.names))
        ]
    return document


class Publisher:
    """Sends the events of one engine."""

    def __init__(
        self, endpoint: str, replay: str = "", *, topic: str = "", rank: int = 0, block_tokens: int
    ) -> None:
        """Open the PUB socket, whose port is higher by the rank, and one that sends again. Raises
        InputError: no pyzmq, no such address.
        """
        try:
            import msgspec
            import zmq
        except ImportError:
            raise InputError(
                f"{option('kv_events')}: needs pyzmq and msgspec; pip install 'tonnage[events]'"
            ) from None
        self._encode = msgspec.msgpack.Encoder().encode
        self._topic, self._rank, self._size = topic.encode(), rank, block_tokens
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self.sent, self._open = 0, True  # sent: number of batches
        context: zmq.Context[Any] = zmq.Context.instance()
        self._socket = context.socket(zmq.PUB)
        self._socket.set_hwm(MOST_WAITING)
        # and replay: addresses of the sockets
        self.endpoint = _bound(self._socket, _with_rank(endpoint, rank))
        self.replay, self._thread = "", None
        if replay:
            router = context.socket(zmq.ROUTER)
            self.replay = _bound(router, _with_rank(replay, rank))
            self._thread = threading.Thread(
                target=self._again, args=(router,), daemon=True, name="kv events"
            )
            self._thread.start()

    def publish(self, changes: Sequence[Change]) -> None:
        """Send a batch."""
        documents = [document_of(change, self._size) for change in changes]
        payload = self._encode([time.time(), documents, self._rank])
        self._kept.append((self.sent, payload))
        self._socket.send_multipart((self._topic, self.sent.to_bytes(8, "big"), payload))
        self.sent += 1

    def close(self) -> None:
        """Close the sockets."""
        self._open = False
        if self._thread is not None:
            self._thread.join(timeout=2)
        self._socket.close(linger=0)

    def _again(self, router: zmq.Socket[bytes]) -> None:
        """Send batches again to a client that asks for them."""
        while self._open:
            if not router.poll(100):
                continue
            frames = router.recv_multipart()
            if len(frames) != 3:
                continue
            client, first = frames[0], int.from_bytes(frames[2], "big")
            for number, payload in list(self._kept):
                if number >= first:
                    router.send_multipart(
                        (client, b"", self._topic, number.to_bytes(8, "big"), payload)
                    )
            router.send_multipart((client, b"", b"", END, b""))
        router.close(linger=0)


def _with_rank(endpoint: str, rank: int) -> str:
    head, _, port = endpoint.rpartition(":")
    return f"{head}:{int(port) + rank}" if rank and port.isdigit() and int(port) else endpoint


def _bound(socket: zmq.Socket[bytes], endpoint: str) -> str:
    import zmq

    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise InputError(
            f"{option('kv_events')}: cannot bind {endpoint} ({error}); give an address such as tcp://*:5557"
        ) from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
