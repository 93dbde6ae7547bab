"""What a router remembers of the prompts that it sent where, as the gateway does (``gateway/prefixes.py``): whole blocks of 64 tokens.

It sees neither what an engine has evicted nor what it has generated; what was not seen for longest is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from tonnage.spec.sessions import Contents, piece_at

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
        """For each instance, how many tokens of a prompt were sent there before, as an unbroken prefix."""
        found, left = [0] * self._instances, (1 << self._instances) - 1
        for place, block in enumerate(self._blocks(request, isl), start=1):
            left &= self._sent.get(block, 0)
            if not left:
                break
            for i in range(self._instances):
                if left >> i & 1:
                    found[i] = place * BLOCK_TOKENS
        return found

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
