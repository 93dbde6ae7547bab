"""KV events of a simulated engine over ZeroMQ, in the format of vLLM 0.32: what a router that knows prefixes reads.

A PUB socket sends a batch for every step that changed the cache: the topic, its number in eight bytes, and in MessagePack the time, the
events and the rank. A ROUTER socket sends those from a number on again (vllm/distributed/kv_events.py, read 2026-11-25).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.serve.prefix import Change, Cleared, Stored

if TYPE_CHECKING:
    import zmq

KEPT = 10_000
"""Batches that can be sent again, as in vLLM."""

MOST_WAITING = 100_000
"""Batches that a subscriber may be behind before it misses some."""

END = (-1).to_bytes(8, "big", signed=True)


def document_of(change: Change, block_tokens: int) -> dict[str, Any]:
    """An event as vLLM writes it."""
    if isinstance(change, Cleared):
        return {"type": "AllBlocksCleared"}
    if not isinstance(change, Stored):
        return {"type": "BlockRemoved", "block_hashes": [change.name], "medium": "GPU"}
    found: dict[str, Any] = {"type": "BlockStored", "block_hashes": change.names, "parent_block_hash": change.parent}
    salt, _, adapter = change.salt.partition("\0")
    name, _, number = adapter.partition("\0")
    lora = {"lora_id": int(number), "medium": "GPU", "lora_name": name} if name else {"lora_id": None, "medium": "GPU", "lora_name": None}
    found |= {"token_ids": change.tokens, "block_size": block_tokens, **lora}
    if change.salt:
        first = [*([name] if name else []), *([salt] if salt else [])]
        rest = [name] if name else None
        found["extra_keys"] = [first if i == 0 and change.parent is None else rest for i in range(len(change.names))]
    return found


class Publisher:
    """Sends the events of one engine.

    Attributes:
        endpoint, replay: addresses of the sockets.
        sent: batches so far.
    """

    def __init__(self, endpoint: str, replay: str = "", *, topic: str = "", rank: int = 0, block_tokens: int) -> None:
        """Open the PUB socket, whose port is higher by the rank, and the ROUTER socket that sends again, if there is one.

        Raises InputError: pyzmq or msgspec is not installed, or an address cannot be bound.
        """
        try:
            import msgspec
            import zmq
        except ImportError:
            raise InputError(f"{option('kv_events')}: needs pyzmq and msgspec; pip install 'tonnage[events]'") from None
        self._encode = msgspec.msgpack.Encoder().encode
        self._topic, self._rank, self._size = topic.encode(), rank, block_tokens
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self.sent, self._open = 0, True
        context: zmq.Context[Any] = zmq.Context.instance()
        self._socket = context.socket(zmq.PUB)
        self._socket.set_hwm(MOST_WAITING)
        self.endpoint = _bound(self._socket, _with_rank(endpoint, rank))
        self.replay, self._thread = "", None
        if replay:
            router = context.socket(zmq.ROUTER)
            self.replay = _bound(router, _with_rank(replay, rank))
            self._thread = threading.Thread(target=self._again, args=(router,), daemon=True, name="kv events")
            self._thread.start()

    def publish(self, changes: Sequence[Change]) -> None:
        """Send a batch."""
        documents = [document_of(one, self._size) for one in changes]
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
                    router.send_multipart((client, b"", self._topic, number.to_bytes(8, "big"), payload))
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
        raise InputError(f"{option('kv_events')}: cannot bind {endpoint} ({error}); give an address such as tcp://*:5557") from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
