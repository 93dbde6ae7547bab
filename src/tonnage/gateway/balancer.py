"""The backends of a gateway, and the policy between them: the simulator's routers over what a
gateway knows.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Collection, MutableSequence, Sequence
from dataclasses import dataclass

from tonnage.bench.connection import Target
from tonnage.simulator.router import ROUTERS, View, memory_of, session_number
from tonnage.simulator.router import Request as Seen

BYTES_PER_TOKEN = 4  # Bytes of a body that count as one prompt token; the gateway has no tokenizer
DEFAULT_OUTPUT = 256  # Output tokens that are assumed of a request that sets no limit
MOST_OUTPUT = 1_000_000

BLOCK = 256  # Bytes of a block; a prefix is remembered in whole blocks
MOST_BLOCKS = 200_000  # Blocks that are remembered; those not seen for longest are forgotten first
MOST_PER_REQUEST = 1_024  # Blocks of one request that are looked at: 256 KiB of its prompt

_OUTPUT = re.compile(rb'"max_(?:completion_|output_)?tokens"\s*:\s*(\d{1,9})')
_USER = re.compile(rb'"user"\s*:\s*"((?:[^"\\]|\\.){1,512})"')
_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.){0,512}")')


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a policy reads off a request."""

    body: bytes
    session_id: bytes = b""  # the header ``x-session-id``

    @property
    def prompt_tokens(self) -> int:
        """An estimate: the body's length over 4."""
        return len(self.body) // BYTES_PER_TOKEN

    @property
    def output_tokens(self) -> int:
        """The limit that the body names, wherever it is in it; 256 without one, 0 without a
        body.
        """
        if not self.body:
            return 0
        limit = _OUTPUT.search(self.body)
        return min(int(limit[1]), MOST_OUTPUT) if limit else DEFAULT_OUTPUT

    @property
    def session(self) -> int:
        """The number of the header, else of the body's ``user``; -1 without either."""
        if self.session_id:
            return session_number(self.session_id)
        user = _USER.search(self.body)
        return session_number(user[1]) if user else -1

    @property
    def model(self) -> str:
        """The model that the body of a POST names at its top, "" for none; parsed only where the
        word occurs more than once.
        """
        names = _MODEL.findall(self.body)
        try:
            model = (
                json.loads(names[0])
                if len(names) == 1
                else json.loads(self.body).get("model", "")
                if names
                else ""
            )
        except (ValueError, AttributeError, RecursionError):
            return ""
        return model if isinstance(model, str) else ""


@dataclass(slots=True, kw_only=True, eq=False)
class Backend:
    """One instance, as the gateway knows it."""

    target: Target
    weight: float  # relative capacity
    up: bool = False  # whether the last health checks passed
    fault: str = ""  # what was wrong at the last check that failed; "" where it passed
    failures: int = 0  # checks that failed, in a row
    requests: int = 0  # that have not ended
    tokens: int = 0  # an estimate of their tokens still to come
    kv_used: float = 0.0  # the share of its KV cache in use, as last read
    # its list of models by name, each as the backend gives it; None until it has given one: it may
    # serve any
    models: dict[str, object] | None = None

    @property
    def name(self) -> str:
        """Host and port."""
        return self.target.authority

    def serves(self, model: str) -> bool:
        """Whether it serves a model by that name; "" is any."""
        return not model or self.models is None or model in self.models


class Prefixes:
    """A memory of block hashes; each hash covers everything from the prompt's beginning to the
    block's end.
    """

    def __init__(self) -> None:
        self._sent: OrderedDict[int, int] = OrderedDict()

    def blocks(self, body: bytes) -> list[int]:
        """The hashes of a body's whole blocks, from its prompt on; the model and other fields
        before it say nothing.
        """
        start = max(body.find(b'"messages"'), body.find(b'"prompt"'), 0)
        hashes, chained = [], 0
        whole = min((len(body) - start) // BLOCK, MOST_PER_REQUEST)
        for place in range(start, start + whole * BLOCK, BLOCK):
            chained = hash((chained, body[place : place + BLOCK]))
            hashes.append(chained)
        return hashes

    def match(self, blocks: list[int], matched: MutableSequence[int]) -> None:
        """Write down, for each backend, how many tokens of these blocks were sent there before, as
        an unbroken prefix.
        """
        remaining = (1 << len(matched)) - 1
        for i in range(len(matched)):
            matched[i] = 0
        for number, block in enumerate(blocks, start=1):
            remaining &= self._sent.get(block, 0)
            if not remaining:
                return
            for i in range(len(matched)):
                if remaining >> i & 1:
                    matched[i] = number * BLOCK // BYTES_PER_TOKEN

    def sent(self, blocks: list[int], backend: int) -> None:
        """Remember that they were sent to a backend."""
        for block in blocks:
            self._sent[block] = self._sent.get(block, 0) | 1 << backend
            self._sent.move_to_end(block)
        while len(self._sent) > MOST_BLOCKS:
            self._sent.popitem(last=False)


class Balancer:
    """A policy, and the lists that it reads."""

    def __init__(self, backends: Sequence[Backend], policy: str, seed: int = 0) -> None:
        count = len(backends)
        self.policy = policy  # its name in ``ROUTERS``
        self._backends = backends
        self._route = ROUTERS[policy]
        self._memory = memory_of(count, seed)
        self._memory.last[0] = count - 1
        self._prefixes = Prefixes() if policy == "prefix-aware" else None
        self._number = 0
        self._available, self._matched = [0] * count, [0] * count
        self._requests, self._tokens, self._kv_used = [0] * count, [0] * count, [0.0] * count
        weights = [backend.weight for backend in backends]
        self._view = View(
            self._available, self._requests, self._tokens, self._kv_used, self._matched, weights
        )

    def choose(
        self, request: Asked, tried: Collection[Backend] = (), model: str = ""
    ) -> Backend | None:
        """The backend that gets a request; None where none takes any."""
        for i, backend in enumerate(self._backends):
            self._requests[i], self._tokens[i], self._kv_used[i] = (
                backend.requests,
                backend.tokens,
                backend.kv_used,
            )
            self._available[i] = backend.up and backend not in tried and backend.serves(model)
        blocks = self._prefixes.blocks(request.body) if self._prefixes else []
        if self._prefixes:
            self._prefixes.match(blocks, self._matched)
        visible = Seen(
            self._number, request.session if self.policy == "session" else -1, request.prompt_tokens
        )
        place = self._route(self._view, visible, self._memory)
        self._number += 1
        if place < 0:
            return None
        if self._prefixes:
            self._prefixes.sent(blocks, place)
        return self._backends[place]
