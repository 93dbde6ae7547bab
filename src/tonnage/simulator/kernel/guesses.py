"""Right guesses of a drafter, compiled; ``acceptance.py`` says the same in plain numbers."""

from __future__ import annotations

import numpy as np

from tonnage.simulator.kernel.decoding import bin_of, bucket_of
from tonnage.simulator.kernel.inlined import called, small
from tonnage.simulator.kernel.memory import NEVER


@small()
def mixed(bits):
    """``acceptance.mixed`` on 64 bits that wrap by themselves."""
    bits += np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@small()
def accepted(cfg, request, generated, most):
    """How many of at most so many guesses after ``generated`` tokens are right before the first wrong one."""
    stream, below = mixed(np.uint64(cfg.seed) ^ np.uint64(request)), cfg.below
    count = 0
    while count < most and np.int64(mixed(stream ^ np.uint64(generated + count + 1)) >> np.uint64(11)) < below:
        count += 1
    return count


@called()
def hand_out_guesses(cfg, state, rows, running, tallies):
    """The right guesses of a round, ahead of the token that every request gets; gaps after the first token are 0."""
    gaps, edges, now, seen = tallies.gaps, tallies.edges, state.round, state.seen
    soonest, handed_out, place = state.next_event, 0, bin_of(edges, state.gap)
    for i in range(state.running):
        r = running[i]
        if rows.until[r] == NEVER:
            continue
        generated = now - rows.base[r]
        if state.paused > 0:
            place = bin_of(edges, seen - max(rows.last[r], state.decoded))
        gaps[bucket_of(generated), place] += 1
        right = accepted(cfg, rows.id[r], generated, min(cfg.drafted, rows.osl[r] - generated - 1))
        for position in range(generated + 1, generated + right + 1):
            gaps[bucket_of(position), 0] += 1
        rows.base[r] -= right
        rows.until[r] -= right
        handed_out += right
        soonest = min(soonest, rows.until[r])
    state.context += handed_out
    state.next_event = soonest
