"""Right guesses of a drafter, compiled; ``acceptance.py`` says the same in plain numbers."""

from __future__ import annotations

import numpy as np

from tonnage.simulator.kernel.decoding import bin_of, bucket_of
from tonnage.simulator.kernel.inlined import part
from tonnage.simulator.kernel.memory import NEVER


@part()
def mixed(bits):
    """``acceptance.mixed`` on 64 bits that wrap by themselves."""
    bits += np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@part()
def accepted(cfg, request, generated, most):
    """How many of at most so many guesses after ``generated`` tokens are right before the first wrong one."""
    stream, below = mixed(np.uint64(cfg.seed) ^ np.uint64(request)), cfg.below
    count = 0
    while count < most and np.int64(mixed(stream ^ np.uint64(generated + count + 1)) >> np.uint64(11)) < below:
        count += 1
    return count


@part()
def hand_out_guesses(m):
    """The right guesses of a round, ahead of the token that every request gets; gaps after the first token are 0."""
    cfg, state, lists, gaps = m.cfg, m.state, m.lists, m.tallies.gaps
    now, seen = state.round, state.seen
    soonest, handed_out, place = state.next_end, 0, bin_of(m.tallies, state.gap)
    for k in range(state.running):
        if lists.ends[k] == NEVER:
            continue
        slot = m.slots[lists.running[k]]
        generated = now - slot.base
        if state.paused > 0:
            place = bin_of(m.tallies, seen - max(slot.last, state.decoded))
        gaps[bucket_of(generated), place] += 1
        right = accepted(cfg, m.rows.id[slot.row], generated, min(cfg.drafted, slot.osl - generated - 1))
        for position in range(generated + 1, generated + right + 1):
            gaps[bucket_of(position), 0] += 1
        slot.base -= right
        lists.ends[k] -= right
        handed_out += right
        soonest = min(soonest, lists.ends[k])
    state.context += handed_out
    state.next_end = soonest
    m.step.returned += handed_out
