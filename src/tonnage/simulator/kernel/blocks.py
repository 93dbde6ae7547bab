"""KV blocks, compiled: what a request holds, needs next, and could never have."""

from __future__ import annotations

from tonnage.simulator.kernel.inlined import part
from tonnage.simulator.kernel.memory import NEVER


@part()
def blocks_of(tokens, block):
    """KV blocks that hold so many tokens."""
    return (tokens + block - 1) // block


@part()
def windows_of(cfg, tokens):
    """KV blocks that a sequence which grows to so many tokens holds for its sliding windows."""
    if tokens >= cfg.window_tokens:
        return cfg.window_blocks
    return blocks_of(cfg.window_blocks * tokens, cfg.window_tokens)


@part()
def too_long(cfg, isl, osl):
    """Whether a request exceeds the context or all blocks of an idle engine, whatever its scheduler."""
    longest = isl + osl + cfg.drafted
    if longest > (cfg.kv_blocks - windows_of(cfg, longest)) * cfg.block_tokens:
        return True
    return cfg.max_context > 0 and isl + osl > cfg.max_context


@part()
def held(m, slot, generated):
    """Blocks of a request that decodes: those of its context and its windows, or those once taken."""
    if m.cfg.grows == 0:
        return slot.blocks
    return blocks_of(slot.isl + generated - 1, m.cfg.block_tokens) + slot.windows


@part()
def growth(m, slot):
    """Blocks that a decoding request needs for its next token and guesses."""
    context = slot.isl + m.state.round - slot.base
    if m.cfg.drafted > 0:
        return blocks_of(context + m.cfg.drafted, m.cfg.block_tokens) + slot.windows - slot.blocks
    return 1 if (context - 1) % m.cfg.block_tokens == 0 else 0


@part()
def growth_of_all(m):
    """The same of all decoding requests together."""
    if m.cfg.drafted == 0:
        return m.tallies.phases[m.state.countdown]
    total = 0
    for k in range(m.state.running):
        if m.lists.ends[k] < NEVER:
            total += growth(m, m.slots[m.lists.running[k]])
    return total


@part()
def grow_all(m):
    """Note who has the blocks for guesses; without guesses the context tells."""
    if m.cfg.drafted > 0:
        for k in range(m.state.running):
            if m.lists.ends[k] < NEVER:
                slot = m.slots[m.lists.running[k]]
                slot.blocks += growth(m, slot)


@part()
def rounds_with_blocks(m, more):
    """For how many of ``more`` rounds after the next one there are blocks for all who decode; ``step.grown`` has how many they take."""
    s, phases, block = m.state, m.tallies.phases, m.cfg.block_tokens
    rounds, taken = 0, 0
    if more >= block and s.decoding > 0:  # in so many rounds everyone needs one
        cycles = min(more // block, s.free // s.decoding)
        rounds, taken = cycles * block, cycles * s.decoding
    phase = s.countdown
    while rounds < more:
        phase = phase - 1 if phase > 0 else block - 1
        if taken + phases[phase] > s.free:
            break
        taken += phases[phase]
        rounds += 1
    m.step.grown = taken
    return rounds
