"""KV blocks, compiled: what a request holds, needs next, and could never have."""

from __future__ import annotations

from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.memory import NEVER


@small()
def blocks_of(tokens, block):
    """KV blocks that hold so many tokens."""
    return (tokens + block - 1) // block


@small()
def windows_of(cfg, tokens):
    """KV blocks that a sequence which grows to so many tokens holds for its sliding windows."""
    if tokens >= cfg.window_tokens:
        return cfg.window_blocks
    return blocks_of(cfg.window_blocks * tokens, cfg.window_tokens)


@small()
def too_long(cfg, isl, osl):
    """Whether a request exceeds the context or all blocks of an idle engine, whatever its scheduler."""
    longest = isl + osl + cfg.drafted
    if blocks_of(longest, cfg.block_tokens) + windows_of(cfg, longest) > cfg.kv_blocks:
        return True
    return cfg.max_context > 0 and isl + osl > cfg.max_context


@small()
def held(m, r, generated):
    """Blocks of a request that decodes: those of its context and its windows, or those once taken."""
    if m.cfg.grows == 0:
        return m.rows.blocks[r]
    return blocks_of(m.rows.isl[r] + generated - 1, m.cfg.block_tokens) + m.rows.windows[r]


@small()
def growth(m, r):
    """Blocks that a decoding request needs for its next token and guesses."""
    context = m.rows.isl[r] + m.state.round - m.rows.base[r]
    if m.cfg.drafted > 0:
        return blocks_of(context + m.cfg.drafted, m.cfg.block_tokens) + m.rows.windows[r] - m.rows.blocks[r]
    return 1 if (context - 1) % m.cfg.block_tokens == 0 else 0


@part()
def growth_of_all(m):
    """The same of all decoding requests together."""
    if m.cfg.drafted == 0:
        return m.tallies.phases[m.state.countdown]
    total = 0
    for i in range(m.state.running):
        if m.rows.until[m.lists.running[i]] < NEVER:
            total += growth(m, m.lists.running[i])
    return total


@part()
def grow_all(m):
    """Note who has the blocks for guesses; without guesses the context tells."""
    if m.cfg.drafted > 0:
        for i in range(m.state.running):
            r = m.lists.running[i]
            if m.rows.until[r] < NEVER:
                m.rows.blocks[r] += growth(m, r)
