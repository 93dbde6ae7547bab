"""KV blocks by what is in them: which ones a request finds, who holds them, and which are forgotten
first.

A block that is full of known tokens has a name, the piece of its last token and its place
(``spec/sessions.py``), under which later requests find it. It is held by every request that uses
it. When the last one lets go it stays where it is and keeps its name until its memory is needed: of
the blocks that nobody holds, the one that was let go longest ago is taken first, and of those let
go together by one request the last of its context, which nobody can use without those before it. A
block in which nobody can find anything when it is let go, such as the last one of a context, which
is not full, is taken before all of them. Where a block gets a name that another one has, the other
one loses it.

A request finds the unbroken run of named blocks from its beginning on, but never its last token,
which has to be computed.

Below the KV cache there may be tiers, such as host memory and disk. A named block that is taken
goes down to the first tier, the one of that tier that came longest ago, if it is full, to the next,
and from the last tier it is forgotten. A block that is found in a tier is moved up into a block of
the cache, which costs a transfer.

With ``partial``, the block after the run is compared token by token, and as much as it shares is
copied (TensorRT-LLM's ``enable_partial_reuse``): also the last block of a request that is not full
then has what it needs to be found.

Sources: vllm/v1/core/block_pool.py and kv_cache_manager.py of vLLM 0.32.0; mem_cache/radix_cache.py
of SGLang 0.5.23, whose tree of pages forgets its least recently used leaves; kvCacheManager.cpp of
TensorRT-LLM.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from tonnage.simulator.reference.job import Job
from tonnage.simulator.tiers import Tier
from tonnage.spec.sessions import Contents, piece_at

Key = tuple[int, int]
"""The name of a block: the piece of a token of it, and its place in the context."""


class Found(NamedTuple):
    """What a request finds."""

    # in order, the block of each place, or its name where it is in a tier
    blocks: tuple[int | Key, ...] = ()
    kept: int = 0  # how many of them are in the KV cache …
    idle: int = 0  # … and are held by nobody
    tokens: int = 0  # of the prompt that need not be computed
    # transfer_ps, overlap_ps: time of the transfers from tiers for which the step waits, and with
    # which it overlaps
    transfer_ps: int = 0
    overlap_ps: int = 0


NOTHING = Found()


class PrefixCache:
    """The blocks of one engine."""

    def __init__(
        self,
        blocks: int,
        size: int,
        contents: Contents,
        tiers: Sequence[Tier],
        *,
        partial: bool,
    ) -> None:
        """Start with all blocks of ``size`` tokens empty, above the tiers, nearest first;
        ``partial``: parts of a block are found too.
        """
        self.size = size
        self.contents = contents
        self.partial = partial
        self.refs = [0] * blocks
        self.idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))
        self.names: dict[Key, int] = {}
        self.named: list[Key | None] = [None] * blocks
        self.begins: dict[Key, int] = {}
        self.begun: dict[int, tuple[Key, int]] = {}
        self.tiers = tiers
        self.below: list[OrderedDict[Key, None]] = [OrderedDict() for _ in tiers]

    def find(self, job: Job) -> Found:
        """What is there of a request that is to compute its prompt, and its current output."""
        pieces, until = self.contents.of(job.id)
        blocks: list[int | Key] = []
        reached: dict[Tier, int] = {}
        for place in range((job.tokens - 1) // self.size):
            key = piece_at(pieces, until, (place + 1) * self.size - 1), place
            tier = next(
                (tier for tier, names in zip(self.tiers, self.below, strict=True) if key in names),
                None,
            )
            if key not in self.names and tier is None:
                break
            blocks.append(self.names.get(key, key))
            if tier is not None:
                reached[tier] = reached.get(tier, 0) + 1
        resident = [block for block in blocks if isinstance(block, int)]
        tokens = len(blocks) * self.size
        return Found(
            blocks=tuple(blocks),
            kept=len(resident),
            idle=sum(self.refs[block] == 0 for block in resident),
            tokens=tokens + self._part(pieces, until, tokens, job.tokens - 1),
            transfer_ps=sum(
                tier.latency_ps + count * tier.block_ps
                for tier, count in reached.items()
                if not tier.overlaps
            ),
            overlap_ps=sum(
                tier.latency_ps + count * tier.block_ps
                for tier, count in reached.items()
                if tier.overlaps
            ),
        )

    def hold(self, job: Job, cached: Found) -> None:
        """Let a request have what it found; what is in tiers is moved into blocks of the cache."""
        for block in cached.blocks:
            if isinstance(block, int):
                self.refs[block] += 1
                self.idle.pop(block, None)
        for key in cached.blocks:
            if not isinstance(key, int):
                for names in self.below:
                    names.pop(key, None)
        for block in cached.blocks:
            if isinstance(block, int):
                job.held.append(block)
            else:
                job.held.append(self._take())
                self._name(job.held[-1], block)
        job.named = len(job.held)

    def grow(self, job: Job, blocks: int, windows: int) -> None:
        """Let a request hold so many blocks for its context, and so many for its sliding windows,
        which nobody else can use.
        """
        while len(job.windows) < windows:
            job.windows.append(self._take())
        while len(job.held) < blocks:
            job.held.append(self._take())

    def name(self, job: Job, tokens: int) -> None:
        """Name the blocks of a request that are full by so many tokens."""
        pieces, until = self.contents.of(job.id)
        for place in range(job.named, tokens // self.size):
            last = (place + 1) * self.size
            self._name(job.held[place], (piece_at(pieces, until, last - 1), place))
            self._begin(job.held[place], place, pieces, until, last)
        job.named = max(job.named, tokens // self.size)

    def name_part(self, job: Job, tokens: int) -> None:
        """Let the block be found in part that is the last of so many tokens, and is not full."""
        pieces, until = self.contents.of(job.id)
        place = tokens // self.size
        if tokens % self.size:
            self._begin(job.held[place], place, pieces, until, tokens)

    def release(self, job: Job) -> int:
        """Let go of all blocks of a request; how many nobody holds now."""
        freed = 0
        for block in [*reversed(job.held), *job.windows]:
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.idle[block] = None
                if self.named[block] is None and block not in self.begun:
                    self.idle.move_to_end(block, last=False)
                freed += 1
        job.held.clear()
        job.windows.clear()
        job.named = 0
        return freed

    def _take(self) -> int:
        """A block that nobody holds; what was in it goes down to the tiers."""
        block, _ = self.idle.popitem(last=False)
        self.refs[block] = 1
        begun = self.begun.pop(block, None)
        if begun is not None:
            del self.begins[begun[0]]
        key, self.named[block] = self.named[block], None
        if key is not None:
            del self.names[key]
            self._descend(key)
        return block

    def _descend(self, key: Key) -> None:
        for tier, names in zip(self.tiers, self.below, strict=True):
            names[key] = None
            if len(names) <= tier.blocks:
                return
            key, _ = names.popitem(last=False)

    def _name(self, block: int, key: Key) -> None:
        """Give a block a name; the block that had it before loses it."""
        before = self.names.get(key)
        if before is not None:
            self.named[before] = None
        for names in self.below:
            names.pop(key, None)
        self.names[key], self.named[block] = block, key

    def _begin(
        self, block: int, place: int, pieces: Sequence[int], until: Sequence[int], last: int
    ) -> None:
        """Let a block that has known tokens up to ``last`` be found by those of them that belong to
        the piece of its first one.
        """
        if not self.partial:
            return
        first = place * self.size
        key = piece_at(pieces, until, first), place
        before = self.begins.get(key)
        if before is not None:
            del self.begun[before]
        if block in self.begun:
            del self.begins[self.begun[block][0]]
        self.begins[key], self.begun[block] = block, (key, min(_end(until, first), last))

    def _part(
        self, pieces: Sequence[int], until: Sequence[int], tokens: int, most_tokens: int
    ) -> int:
        """Tokens of the next block that another one shares, at most so many in all."""
        place = tokens // self.size
        block = self.begins.get((piece_at(pieces, until, tokens), place))
        return (
            0
            if block is None
            else max(min(self.begun[block][1], _end(until, tokens), most_tokens) - tokens, 0)
        )


def _end(until: Sequence[int], token: int) -> int:
    """The token up to which the piece of a token reaches."""
    return next(end for end in until if end > token)
