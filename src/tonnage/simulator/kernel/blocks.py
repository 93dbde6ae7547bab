"""KV blocks, compiled: what a request holds, needs next, and could never have."""

from __future__ import annotations

import numpy as np

from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.memory import NEVER


@part()
def blocks_of(tokens, block):
    """KV blocks that hold ``tokens``."""
    return (tokens + block - 1) // block


@part()
def windows_of(cfg, tokens):
    """KV blocks that a sequence which grows to ``tokens`` holds for its sliding windows."""
    if tokens >= cfg.window_tokens:
        return cfg.window_blocks
    return blocks_of(cfg.window_blocks * tokens, cfg.window_tokens)


@part()
def too_long(cfg, isl, osl):
    """Whether a request exceeds the context or all blocks of an idle engine, whatever its
    scheduler.
    """
    longest = isl + osl + cfg.drafted
    if longest > (cfg.kv_blocks - windows_of(cfg, longest)) * cfg.block_tokens:
        return True
    return cfg.max_context > 0 and isl + osl > cfg.max_context


@part()
def held(m, slot, generated):
    """Blocks of a request that decodes: those of its context and its windows, or those once
    taken.
    """
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
    """The blocks by which all decoding requests together grow."""
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
    """For how many of ``more`` rounds after the next one there are blocks for all who decode;
    ``step.grown`` has how many they take.
    """
    s, phases, block = m.state, m.tallies.phases, m.cfg.block_tokens
    rounds, grown = 0, 0
    if more >= block and s.decoding > 0:  # in so many rounds everyone needs one
        cycles = min(more // block, s.free // s.decoding)
        rounds, grown = cycles * block, cycles * s.decoding
    phase = s.countdown
    while rounds < more:
        phase = phase - 1 if phase > 0 else block - 1
        if grown + phases[phase] > s.free:
            break
        grown += phases[phase]
        rounds += 1
    m.step.grown = grown
    return rounds


# KV blocks by their names, compiled: a table of names, lists of blocks that nobody holds, and tiers
# below; ``Cache`` is what they are in. The rules are those of ``reference/prefix_cache.py``. A
# block of the cache or of a tier is a number; the blocks of the cache come first. Each list is a
# ring of blocks with its own entry at which it begins, behind those of all blocks: that of the
# cache has the blocks that nobody holds, the one to be taken next first, and that of a tier all of
# its blocks, the empty ones first.


PLACE_2, PIECE_2 = 23, 39
"""Bits of a place and of a piece in a name; one bit says whether it is the name of a whole block or
of one's beginning."""

LINE_2 = 3
"""Bits of a place that do not change the line of the table in which its name is: a prompt's blocks
are looked up in order."""

EMPTY = -1
FACTOR = 0x9E3779B97F4A7C15


@part()
def name_of(piece, place, begins):
    """Combine the parts of a name into one number."""
    return (piece << (PLACE_2 + 1)) | (place << 1) | begins


@part()
def home_of(c, name):
    """Where a name would like to be in the table: eight places in a row share a line of memory,
    which the highest bits of a product say.
    """
    line = (np.uint64(name >> (LINE_2 + 1) | (name & 1) << 60) * np.uint64(FACTOR)) >> np.uint64(
        c.note.shift
    )
    return np.int64(line) << LINE_2 | (name >> 1) & ((1 << LINE_2) - 1)


@part()
def seat_of(c, name):
    """The seat of a name in the table, or the empty one where it would be."""
    mask, i = c.names.size - 1, home_of(c, name)
    while c.names[i] != name and c.names[i] != EMPTY:
        i = (i + 1) & mask
    return i


@part()
def named(c, name):
    """The block of a name; EMPTY where there is none."""
    i = seat_of(c, name)
    return np.int64(c.blocks[i]) if c.names[i] == name else EMPTY


@part()
def put(c, name, block):
    """Let the name stand for the block."""
    i = seat_of(c, name)
    c.names[i] = name
    c.blocks[i] = block


@part()
def drop(c, name):
    """Forget a name; the names behind it move up."""
    mask, i = c.names.size - 1, seat_of(c, name)
    j = i
    while c.names[j] != EMPTY:
        j = (j + 1) & mask
        if c.names[j] != EMPTY and ((j - home_of(c, c.names[j])) & mask) >= ((j - i) & mask):
            c.names[i], c.blocks[i] = c.names[j], c.blocks[j]
            i = j
    c.names[i] = EMPTY


@part()
def unlink(c, block):
    """Take a block out of its ring."""
    c.after[c.before[block]] = c.after[block]
    c.before[c.after[block]] = c.before[block]


@part()
def link(c, before, block):
    """Put a block into a ring behind another one."""
    after = c.after[before]
    c.after[before], c.before[block], c.after[block], c.before[after] = block, before, after, block


@part()
def ring_of(c, block):
    """The entry at which the ring of a block of a tier begins."""
    tier = 0
    while block >= c.first[tier + 1]:
        tier += 1
    return c.name.size + 1 + tier


@part()
def descend(c, name):
    """What was in a block that is taken goes down, tier by tier, until one has room; else it is
    forgotten.
    """
    for tier in range(c.lasts.size):
        ring = c.name.size + 1 + tier
        block = c.after[ring]
        if block != ring:
            unlink(c, block)
            link(c, c.before[ring], block)
            lower = c.name[block]
            c.name[block] = name
            put(c, name, block)
            if lower == EMPTY:
                return
            name = lower
    drop(c, name)


@part()
def take(c):
    """Take a block that no request holds."""
    block = c.after[c.name.size]
    unlink(c, block)
    c.refs[block] = 1
    if c.begun[block] != EMPTY:
        drop(c, c.begun[block])
        c.begun[block] = EMPTY
    name = c.name[block]
    if name != EMPTY:
        c.name[block] = EMPTY
        descend(c, name)
    return block


@part()
def forget(c, block):
    """A block loses its name to another one; one of a tier is empty then."""
    c.name[block] = EMPTY
    if block >= c.refs.size:
        unlink(c, block)
        link(c, ring_of(c, block), block)


@part()
def give_name(c, block, name):
    """Give a block of the cache a name; the block that had it before loses it."""
    before = named(c, name)
    if 0 <= before != block:
        forget(c, before)
    c.name[block] = name
    put(c, name, block)


@part()
def let_begin(c, block, name, until):
    """Let a block of the cache, which has no other beginning since it was taken, be found by it, up
    to that token.
    """
    before = named(c, name)
    if 0 <= before != block:
        c.begun[before] = EMPTY
    c.begun[block] = name
    c.begun_until[block] = until
    put(c, name, block)


@part()
def let_go(c, block):
    """One holder less; whether nobody holds the block now. One in which nobody can find anything is
    the next to be taken.
    """
    c.refs[block] -= 1
    if c.refs[block] > 0:
        return 0
    useless = c.name[block] == EMPTY and c.begun[block] == EMPTY
    link(c, c.name.size if useless else c.before[c.name.size], block)
    return 1


@part()
def piece_at(c, row, token):
    """The entry of the piece that a token of a request belongs to."""
    p, last = c.starts[row], c.starts[row + 1] - 1
    if last > p and c.until[last - 1] <= token:
        return last
    while c.until[p] <= token:
        p += 1
    return p
