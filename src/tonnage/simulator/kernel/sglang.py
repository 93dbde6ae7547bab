"""The scheduler of SGLang, compiled; the rules are those of ``reference/sglang.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import (
    blocks_of,
    grow_all,
    growth_of_all,
    held,
    too_long,
    windows_of,
)
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.decoding import add_decoding, add_prompt, leave_decoding
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.prefix_cache import COMPUTED
from tonnage.simulator.kernel.queue import enter, lose, push_back
from tonnage.simulator.kernel.shared import catch_up, compute, find, hold, no_longer_free, released
from tonnage.simulator.rules import MOST_NEW, RATIO, RATIO_DECAY, RATIO_LEAST, RETRACT_STEPS

GROWS, BUDGETED, GUESSES, NAMES, PARTIAL = True, False, True, COMPUTED, False


@part()
def never_fits(cfg, isl, osl):
    """Also one that leaves no token in addition to itself and a block: it would not be admitted to
    an idle engine.
    """
    longest = isl + osl + cfg.drafted
    return (
        too_long(cfg, isl, osl)
        or longest + cfg.block_tokens
        >= (cfg.kv_blocks - windows_of(cfg, longest)) * cfg.block_tokens
    )


@part()
def schedule(m):
    """A step of prompts if any can be admitted, else one of decodes."""
    s = m.state
    if s.filling > 0 or s.decoding == 0:
        s.full = 0
    if (
        s.held == 0
        and s.full == 0
        and (s.filling > 0 or (s.queued > 0 and s.running < m.cfg.slots))
    ):
        admit(m)
    m.step.alone = s.held == 0 and s.filling > 0
    if m.step.alone == 0:
        for f in range(s.filling):
            m.lists.take[f] = 0
        decode(m)
        add_decoding(m)
    s.steady = 1 if s.held > 0 or s.full > 0 or s.queued == 0 or s.running == m.cfg.slots else 0


@part()
def still_to_come(m):
    """The tokens that decoding requests may still make, each up to MOST_NEW."""
    total = 0
    for k in range(m.state.running):
        if m.lists.ends[k] < NEVER:
            total += min(m.lists.ends[k] - m.state.round, MOST_NEW)
    return total


@part()
def admit(m):
    """One pass of admission: the prompt that was cut, then waiting ones; memory in tokens times
    RATIO.
    """
    s, rows, size, chunks = m.state, m.rows, m.cfg.block_tokens, m.cfg.chunked == 1
    budget = max(size, m.cfg.max_tokens - m.cfg.max_tokens % size) if chunks else m.cfg.max_tokens
    room = s.free * size * RATIO - s.ratio * still_to_come(m)
    decodes = 1 if s.decoding > 0 else 0
    catch_up(m, 0)
    if s.filling > 0:
        slot = m.slots[m.lists.filling[0]]
        lacks = slot.isl + slot.generated - slot.computed
        new = min(lacks, budget)
        m.lists.take[0] = new
        paged = take_prompt(m, m.lists.filling[0], new)
        budget -= paged
        room -= (paged + size + (min(slot.osl, MOST_NEW) if new == lacks else 0)) * RATIO
    while s.queued > 0 and budget > 0 and s.running < m.cfg.slots:
        r = s.head
        tokens = rows.isl[r] + rows.generated[r]
        tokens -= find(m, r, tokens)
        windows = (
            windows_of(m.cfg, rows.isl[r] + rows.osl[r] + m.cfg.drafted) + no_longer_free(m)
        ) * size
        if (
            tokens + min(rows.osl[r] - rows.generated[r], MOST_NEW) + size + windows
        ) * RATIO >= room:
            s.full = decodes
            break
        paged = blocks_of(tokens, size) * size
        if not chunks and s.filling > 0 and paged >= budget:
            break
        new = budget if chunks and paged > budget else tokens
        m.lists.take[s.filling] = new
        i = enter(m)
        hold(m, i)
        paged = take_prompt(m, i, new)
        budget -= paged
        room -= (
            paged + size + windows + (min(rows.osl[r], MOST_NEW) if new == tokens else 0)
        ) * RATIO
        if room <= 0:
            s.full = decodes
            break


@part()
def take_prompt(m, i, new):
    """Allocate for the next ``new`` tokens of a filling request and count them into the step; their
    whole blocks in tokens.
    """
    size, slot = m.cfg.block_tokens, m.slots[i]
    more = blocks_of(slot.computed + new, size) + slot.windows - slot.blocks
    m.state.free -= more
    slot.blocks += more
    compute(m, i, slot.computed + new)
    add_prompt(m, slot, new)
    return blocks_of(new, size) * size


@part()
def decode(m):
    """Blocks for the next round, after as many retractions as it takes; and the ratio."""
    s = m.state
    needed = growth_of_all(m)
    if needed <= s.free:
        s.ratio = max(s.ratio - RATIO_DECAY, RATIO_LEAST)
    else:
        while s.decoding > 1 and needed > s.free:
            retract(m)
            needed = growth_of_all(m)
        generated, total_output = 0, 0
        for k in range(s.running):
            slot = m.slots[m.lists.running[k]]
            generated += s.round - slot.base
            total_output += slot.osl
        s.ratio = min((generated + RETRACT_STEPS * s.decoding) * RATIO // (total_output + 1), RATIO)
    s.free -= needed
    grow_all(m)


@part()
def retract(m):
    """Send the request with the fewest output tokens, the longest prompt, the last that entered, to
    the end of the queue.
    """
    s, lists = m.state, m.lists
    least = 0
    for k in range(1, s.running):
        slot, best = m.slots[lists.running[k]], m.slots[lists.running[least]]
        fewer = slot.base - best.base
        if fewer > 0 or (fewer == 0 and slot.isl >= best.isl):
            least = k
    i = lists.running[least]
    catch_up(m, 0)
    leave_decoding(m, least)
    s.running -= 1
    for k in range(least, s.running):
        lists.running[k] = lists.running[k + 1]
        lists.ends[k] = lists.ends[k + 1]
        lists.crosses[k] = lists.crosses[k + 1]
    slot = m.slots[i]
    s.free += released(m, i, held(m, slot, slot.generated), slot.isl + slot.generated - 1, 0)
    last = max(m.slots[i].last, s.decoded if s.paused > 0 else s.seen)
    push_back(m, lose(m, i, last))
    s.full = 0
