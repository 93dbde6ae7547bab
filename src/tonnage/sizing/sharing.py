"""What the prompts of a question have in common, and what closed forms make of it before anything is simulated.

Prompts share a system prompt, the earlier turns of their conversation, or the blocks that a recording names. How much of that an instance
finds in its cache is simulated; here stands only the best that a cache without end could do, which bounds what an instance carries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tonnage.simulator.tiers import Tier
from tonnage.spec.lengths import Lengths
from tonnage.spec.recording import Recording
from tonnage.spec.sessions import Sessions, draw
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.perf.memory import MemoryPlan
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.workload import Trace

SAMPLED = 4_000
"""Sessions that are drawn to know how long their prompts are."""

MOST_BLOCK, LOST = 512, 0.06
"""Largest block of a simulation in tokens, and the share of what a prompt has to compute that larger blocks may add, which shorter
questions make up for. A simulated request takes as long as it has blocks: with blocks of 64 tokens in place of 16, a fifth of the time."""

RECORDED = 512
"""Tokens of a block of recorded prompts, in the traces that name them (Mooncake)."""

GROUPS = 100
"""Lengths of prompts that stand for all of them."""

AFFINE = ("session", "prefix-aware")
"""Routers that send what belongs together to the same instance."""

BLIND = ("random", "round-robin")
"""Routers that look at nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What prompts share.

    Attributes:
        sessions: conversations, or prefixes of single requests; None for a recording.
        new: what each turn of a session adds to the prompt, in tokens; None for a recording.
        recording: traffic whose prompts name their blocks; None for sessions.
        tiers: bytes, and bytes per second, of each memory below the KV cache of an instance.
        fleet_rate: requests per second of the whole fleet, of which an instance sees its part.
    """

    sessions: Sessions | None = None
    new: Lengths | None = None
    recording: Recording | None = None
    tiers: tuple[tuple[int, int], ...] = ()
    fleet_rate: float = 0.0

    @property
    def follows(self) -> bool:
        """Whether requests follow one another, as the turns of a conversation do."""
        return self.sessions is not None and not self.sessions.single

    def balanced(self, router: str) -> bool:
        """Whether a router gives requests out by the load of the instances, wherever what they share was computed."""
        return router not in (*AFFINE, *BLIND)

    def common_tokens(self, trace: Trace) -> NDArray[np.int64]:
        """Tokens of each prompt that every instance holds once it is warm: those of a prefix that single requests share."""
        import numpy as np

        if self.sessions is None or not self.sessions.single or trace.contents is None:
            return np.zeros(len(trace), np.int64)
        return np.where(np.diff(trace.contents.starts) > 1, self.sessions.prefix_tokens, 0)

    def best(self, osl: Lengths) -> AtBest:
        """How long prompts are, and what of them a cache without end would leave to compute."""
        if self.recording is not None:
            return _of_recording(self.recording.blocks, self.recording.isl)
        if self.sessions is None or self.new is None:
            raise ValueError("sharing: neither sessions nor a recording")
        return _of_sessions(self.sessions, self.new, osl)

    def scaled(self, factor: float) -> Sharing:
        """With every part of a prompt ``factor`` times as long; answers stay as they are."""
        if self.sessions is None or self.new is None:
            return self
        asked = self.sessions
        tools = None if asked.tool_tokens is None else asked.tool_tokens.scaled(factor)
        longer = replace(asked, prefix_tokens=round(asked.prefix_tokens * factor), tool_tokens=tools)
        return replace(self, new=self.new.scaled(factor), sessions=longer)

    def kept(self, seconds: float) -> float:
        """Share of the pauses within sessions that are no longer than that: what further turns then find is still there."""
        asked = self.sessions
        if asked is None or asked.single:
            return 1.0
        calls = asked.tool_calls / (1 + asked.tool_calls)
        return (1 - calls) * asked.think.within(seconds) + calls * asked.tool.within(seconds)

    def block_tokens(self, own: int, computed: float) -> int:
        """Tokens of a KV block in simulations: the engine's own times the largest power of two that hardly changes what is found.

        Of a session that goes on, half a block is computed again on average; of a shared prefix or a recorded prompt, what fills no block.
        """
        block = own
        while 2 * block <= MOST_BLOCK and self._lost(2 * block) - self._lost(own) <= LOST * computed:
            block *= 2
        return block

    def shorter(self, own: int, block: int) -> Sharing:
        """With questions as much shorter as larger blocks make prompts that have to be computed longer."""
        lost = self._lost(block) - self._lost(own)
        if self.new is None or lost <= 0 or self.new.mean <= 2 * lost:
            return self
        return replace(self, new=self.new.longer(-lost))

    def _lost(self, block: int) -> float:
        """Tokens of a prompt that could be found and fill no block, on average."""
        if self.recording is not None:
            return 0.0 if RECORDED % block == 0 else float(block)
        if self.sessions is None or self.sessions.single:
            return float(0 if self.sessions is None else self.sessions.prefix_tokens % block) * (self.sessions or Sessions()).prefix_share
        return block / 2

    def tiers_of(self, deployment: Deployment, memory: MemoryPlan, block_tokens: int) -> tuple[Tier, ...]:
        """The memory below the KV cache of an instance, in blocks of all its GPUs together."""
        block = memory.kv_bytes_per_token * block_tokens * deployment.parallelism.gpus
        return tuple(Tier(blocks=int(size // block), block_ps=-int(-block * PS_PER_S // speed)) for size, speed in self.tiers)


class AtBest(NamedTuple):
    """Prompts, and what a cache without end would do for them.

    Attributes:
        isl: lengths of whole prompts, in tokens.
        computed: tokens of a prompt that have to be computed, on average.
        common: tokens of a prompt whose blocks all those that run hold together, on average.
    """

    isl: Lengths
    computed: float
    common: float


@lru_cache(maxsize=64)
def _of_sessions(asked: Sessions, new: Lengths, osl: Lengths) -> AtBest:
    import numpy as np

    common = asked.prefix_tokens * asked.prefix_share
    if asked.single and asked.prefix_share == 1:
        longer = replace(new.longer(asked.prefix_tokens), written="")
        return AtBest(isl=longer, computed=new.mean, common=common)
    streams = [np.random.default_rng(one) for one in np.random.SeedSequence(0).spawn(7)]
    drawn = draw(asked, SAMPLED, new, osl, streams)
    first = drawn.pause_ps < 0
    found = np.where(first, np.where(drawn.prefix >= 0, asked.prefix_tokens, 0), np.roll(drawn.isl + drawn.osl, 1))
    groups = [float(group.mean()) for group in np.array_split(np.sort(drawn.isl), GROUPS)]
    longest = float(max(asked.longest(new, osl) - osl.longest, int(drawn.isl.max())))
    bins = (*((tokens, 1 / GROUPS) for tokens in groups), (longest, 1e-12))
    isl = Lengths(kind="histogram", mean=float(drawn.isl.mean()), std=float(drawn.isl.std()), bins=bins)
    return AtBest(isl=isl, computed=float((drawn.isl - found).mean()), common=common if asked.single else 0.0)


@lru_cache(maxsize=8)
def _of_recording(blocks: tuple[tuple[int, ...], ...], isl: tuple[int, ...]) -> AtBest:
    """Of a recording, from the blocks that an earlier prompt had at the same place behind the same blocks."""
    pairs = Recording(due_ns=(0,) * len(isl), isl=isl, osl=(1,) * len(isl), blocks=blocks).pairs()
    if pairs is None:
        raise ValueError("sharing: a recording without lengths")
    return AtBest(isl=pairs.lengths()[0], computed=sum(isl) / len(isl) - found_tokens(blocks, isl) / len(isl), common=0.0)


def found_tokens(blocks: tuple[tuple[int, ...], ...], isl: tuple[int, ...]) -> float:
    """Prompt tokens of a recording that a cache without end would find, in all."""
    tree: dict[tuple[int, int], int] = {}
    found = 0.0
    for ids, tokens in zip(blocks, isl, strict=True):
        prefix, known = -1, 0
        for place, one in enumerate(ids):
            if (prefix, one) in tree and known == place:
                known += 1
            prefix = tree.setdefault((prefix, one), len(tree))
        found += tokens * known / max(len(ids), 1)
    return found
