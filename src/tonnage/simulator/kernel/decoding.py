"""Requests that decode, compiled: how they begin to, how they cease, and how the gaps between their
tokens are counted.

The gap histogram has a bucket for the output positions from each power of two to the next. All who
decode get a token in the same round and so have the same gap; it is not added to the histogram
round by round but when it changes its bin. Until then it is known how many decode in each bucket
(``positions``) and since which round (``state.counted``). anyone who enters a bucket later or
leaves it earlier than that corrects the product of the two by the rounds between (``moved``), which
may be done in any order.
"""

from __future__ import annotations

import numpy as np

from tonnage.results.requests import POSITION_BUCKETS
from tonnage.simulator.kernel.blocks import blocks_of
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.memory import NEVER

CELLS_2 = 7
"""128 cells of ``Tallies.coarse`` for a factor of two: finer than the bins, so that the right bin
is never far."""


@part()
def cell_of(number, cells_2):
    """Place of a number of 1 or more among 2 to the power of ``cells_2`` cells for each factor of
    two: the first bits of its float.
    """
    return (np.float64(number).view(np.int64) >> (52 - cells_2)) - (1023 << cells_2)


@part()
def bucket_of(position):
    """Bucket of the gap after that output token, counted from 1."""
    return min(cell_of(position, 0), POSITION_BUCKETS - 1)


@part()
def bin_of(tallies, gap):
    """Bin of a gap: no cell begins above the gap, also where its float is rounded up."""
    edges = tallies.edges
    if gap < edges[1]:
        return 0
    place = tallies.coarse[cell_of(gap, CELLS_2)]
    while edges[place + 1] <= gap:
        place += 1
    return place


@part()
def crossing(base, bucket):
    """The round at which a request leaves a bucket for the next."""
    return base + (2 << bucket) if bucket < POSITION_BUCKETS - 1 else NEVER


@part()
def join_decoding(m, i, generated):
    """Let a request decode from now on, which has its next token from the computation of its
    prompt.
    """
    s, lists, slot = m.state, m.lists, m.slots[i]
    k = s.running - 1
    while lists.running[k] != i:
        k -= 1
    bucket = bucket_of(generated)
    slot.base = s.round - generated
    slot.bucket = bucket
    lists.ends[k] = slot.base + slot.osl
    lists.crosses[k] = crossing(slot.base, bucket) if m.cfg.drafted == 0 else NEVER
    s.next_end = min(s.next_end, lists.ends[k])
    s.next_cross = min(s.next_cross, lists.crosses[k])
    while 2 << s.highest <= slot.osl and s.highest < POSITION_BUCKETS - 1:
        s.highest += 1
    s.decoding += 1
    s.context += slot.isl + generated
    m.tallies.positions[bucket] += 1
    m.tallies.moved[bucket] -= s.round - s.counted
    if m.cfg.grows > 0:
        m.tallies.phases[(slot.isl - 1 - slot.base) % m.cfg.block_tokens] += 1


@part()
def leave_decoding(m, k):
    """The ``k``-th that runs decodes no more; what it has generated is kept in its slot."""
    s, slot = m.state, m.slots[m.lists.running[k]]
    cross(m, k)
    slot.generated = s.round - slot.base
    s.decoding -= 1
    s.context -= slot.isl + slot.generated
    m.tallies.positions[slot.bucket] -= 1
    m.tallies.moved[slot.bucket] += s.round - s.counted
    if m.cfg.grows > 0:
        m.tallies.phases[(slot.isl - 1 - slot.base) % m.cfg.block_tokens] -= 1


@part()
def cross(m, k):
    """Take the ``k``-th that runs through the buckets that it has left by now."""
    s, positions, moved = m.state, m.tallies.positions, m.tallies.moved
    at = m.lists.crosses[k]
    if at > s.round:
        return
    slot = m.slots[m.lists.running[k]]
    bucket = slot.bucket
    positions[bucket] -= 1
    while at <= s.round:
        moved[bucket] += at - s.counted
        bucket += 1
        moved[bucket] -= at - s.counted
        at = crossing(slot.base, bucket)
    positions[bucket] += 1
    slot.bucket = bucket
    m.lists.crosses[k] = at


@part()
def count_gaps(m):
    """Add the gaps of all rounds that are not counted yet to their bin."""
    s, positions, moved = m.state, m.tallies.positions, m.tallies.moved
    rounds = s.round - s.counted
    if m.cfg.drafted > 0:
        return
    if s.next_cross <= s.round:
        soonest = NEVER
        for k in range(s.running):
            cross(m, k)
            soonest = min(soonest, m.lists.crosses[k])
        s.next_cross = soonest
    if rounds == 0:
        return
    for bucket in range(s.highest + 1):
        m.tallies.gaps[bucket, s.last_bin] += positions[bucket] * rounds + moved[bucket]
        moved[bucket] = 0
    s.counted = s.round


@part()
def see_gap(m, gap):
    """The gap of the rounds from now on; those before are counted if it is in another bin."""
    s, edges = m.state, m.tallies.edges
    if gap < edges[s.last_bin] or gap >= edges[s.last_bin + 1]:
        count_gaps(m)
        s.last_bin = bin_of(m.tallies, gap)


# Right guesses of a drafter, compiled; ``rules.py`` says the same in plain numbers.


@part()
def mixed(bits):
    """``rules.mixed`` on 64 bits that wrap by themselves."""
    bits += np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@part()
def accepted(cfg, request, generated, guesses):
    """How many of at most ``guesses`` guesses after ``generated`` tokens are right before the first
    wrong one.
    """
    stream, below = mixed(np.uint64(cfg.seed) ^ np.uint64(request)), cfg.below
    count = 0
    while (
        count < guesses
        and np.int64(mixed(stream ^ np.uint64(generated + count + 1)) >> np.uint64(11)) < below
    ):
        count += 1
    return count


@part()
def hand_out_guesses(m):
    """The right guesses of a round, ahead of the token that every request gets; gaps after the
    first token are 0.
    """
    cfg, state, lists, gaps = m.cfg, m.state, m.lists, m.tallies.gaps
    now, last_seen = state.round, state.seen
    soonest, handed_out, place = state.next_end, 0, bin_of(m.tallies, state.gap)
    for k in range(state.running):
        if lists.ends[k] == NEVER:
            continue
        slot = m.slots[lists.running[k]]
        generated = now - slot.base
        if state.paused > 0:
            place = bin_of(m.tallies, last_seen - max(slot.last, state.decoded))
        gaps[bucket_of(generated), place] += 1
        right = accepted(
            cfg, m.rows.id[slot.row], generated, min(cfg.drafted, slot.osl - generated - 1)
        )
        for position in range(generated + 1, generated + right + 1):
            gaps[bucket_of(position), 0] += 1
        slot.base -= right
        lists.ends[k] -= right
        handed_out += right
        soonest = min(soonest, lists.ends[k])
    state.context += handed_out
    state.next_end = soonest
    m.step.returned += handed_out


# Requests that compute their prompts, compiled: what they add to a step.


@part()
def add_decoding(m):
    """Count the decoding requests into a step, one token each."""
    m.step.decode_sequences = m.state.decoding
    m.step.context_tokens = m.state.context


@part()
def add_prompt(m, slot, new):
    """Count the next ``new`` tokens of a request into a step, as a prompt."""
    m.step.prefill_tokens += new
    m.step.prefill_sequences += 1
    m.step.pairs_2 += new * (2 * slot.computed + new)


@part()
def add_filling(m, slot, new):
    """Count the next ``new`` tokens of a filling request into a step; a last token computed again
    is a decode.
    """
    generated, tokens = slot.generated, slot.isl + slot.generated
    if generated > 0 and slot.computed == tokens - 1:
        m.step.decode_sequences += 1
        m.step.context_tokens += tokens
    else:
        add_prompt(m, slot, new)


@part()
def cut(m, tokens):
    """New tokens of a request that still lacks ``tokens`` of its prompt: a long prompt is cut into
    chunks while others are there.
    """
    if 0 < m.cfg.longest_chunk < tokens and m.state.running + m.state.queued > 1:
        return m.cfg.longest_chunk
    return tokens


@part()
def chunk(m, i, budget):
    """New tokens of a request in prefill, in a step with ``budget`` left, and the blocks that they
    need.
    """
    slot = m.slots[i]
    new = min(cut(m, slot.isl + slot.generated - slot.computed), budget)
    return new, max(
        blocks_of(slot.computed + new, m.cfg.block_tokens) + slot.windows - slot.blocks, 0
    )
