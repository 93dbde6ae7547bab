"""Which prompts were sent where: what lets a gateway send a conversation back to the instance that still holds its KV cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableSequence

from tonnage.gateway.request import BYTES_PER_TOKEN

BLOCK = 256
"""Bytes of a block; a prefix is remembered in whole blocks."""

MOST_BLOCKS = 200_000
"""Blocks that are remembered; those not seen for longest are forgotten first."""

MOST_PER_REQUEST = 1_024
"""Blocks of one request that are looked at: 256 KiB of its prompt."""


class Prefixes:
    """A memory of block hashes; each hash covers everything from the prompt's beginning to the block's end."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._sent: OrderedDict[int, int] = OrderedDict()

    def blocks(self, body: bytes) -> list[int]:
        """The hashes of a body's whole blocks, from its prompt on: what stands before it, such as the model, says nothing."""
        start = max(body.find(b'"messages"'), body.find(b'"prompt"'), 0)
        found, chained = [], 0
        for place in range(start, min(len(body) - BLOCK, start + MOST_PER_REQUEST * BLOCK) + 1, BLOCK):
            chained = hash((chained, body[place : place + BLOCK]))
            found.append(chained)
        return found

    def match(self, blocks: list[int], matched: MutableSequence[int]) -> None:
        """Write down, for each backend, how many tokens of these blocks were sent there before, as an unbroken prefix."""
        left = (1 << len(matched)) - 1
        for i in range(len(matched)):
            matched[i] = 0
        for number, block in enumerate(blocks, start=1):
            left &= self._sent.get(block, 0)
            if not left:
                return
            for i in range(len(matched)):
                if left >> i & 1:
                    matched[i] = number * BLOCK // BYTES_PER_TOKEN

    def sent(self, blocks: list[int], backend: int) -> None:
        """Remember that they were sent to a backend."""
        for block in blocks:
            self._sent[block] = self._sent.get(block, 0) | 1 << backend
            self._sent.move_to_end(block)
        while len(self._sent) > MOST_BLOCKS:
            self._sent.popitem(last=False)
