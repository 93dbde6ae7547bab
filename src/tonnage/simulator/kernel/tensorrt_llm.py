"""In-flight batching of TensorRT-LLM, compiled; the rules are those of
``reference/tensorrt_llm.py``.
"""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of, too_long, windows_of
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.decoding import add_decoding, add_filling
from tonnage.simulator.kernel.prefix_cache import COMPLETE
from tonnage.simulator.kernel.queue import enter
from tonnage.simulator.kernel.shared import (
    catch_up,
    compute,
    find,
    found_blocks,
    hold,
    no_longer_free,
)

GROWS = False
"""A request has the blocks of its whole life from its entry."""

BUDGETED, GUESSES, NAMES, PARTIAL = True, True, COMPLETE, True


@part()
def never_fits(cfg, isl, osl):
    """Also a prompt beyond the token budget that cannot be cut, or not even into one block."""
    return too_long(cfg, isl, osl) or (
        isl > cfg.max_tokens and (cfg.chunked == 0 or cfg.max_tokens < cfg.block_tokens)
    )


@part()
def admit_first(m):
    """Let the first of the queue in if there are blocks for all that it may become; whether there
    are.
    """
    cfg, s = m.cfg, m.state
    longest = m.rows.isl[s.head] + m.rows.osl[s.head] + cfg.drafted
    need = blocks_of(longest, cfg.block_tokens) + windows_of(cfg, longest)
    find(m, s.head, m.rows.isl[s.head])
    if need - found_blocks(m) + no_longer_free(m) > s.free:
        return False
    i = enter(m)
    hold(m, i)
    s.free -= need - m.slots[i].blocks
    m.slots[i].blocks = need
    return True


@part()
def schedule(m):
    """Admit in order while slots and blocks to completion last; decodes first, then contexts."""
    cfg, s, take = m.cfg, m.state, m.lists.take
    if s.queued > 0:
        catch_up(m, 0)
    while s.queued > 0 and s.running < cfg.slots:
        if not admit_first(m):
            break
    add_decoding(m)
    budget = cfg.max_tokens - s.decoding * (cfg.drafted + 1)
    stopped = False
    tokens = cfg.max_tokens - budget
    for f in range(s.filling):
        slot = m.slots[m.lists.filling[f]]
        new = slot.isl + slot.generated - slot.computed
        if new > budget:
            stopped = stopped or cfg.chunked == 0
            new = budget - budget % cfg.block_tokens
        take[f] = 0 if stopped else new
        if take[f] > 0:
            budget -= new
            tokens += slot.isl
            add_filling(m, slot, new)
    if m.step.prefill_tokens > 0:
        wait_for_more(m, tokens)
        compute_all(m)


@part()
def compute_all(m):
    """Take the blocks of the prompts that the step computes."""
    for f in range(m.state.filling):
        if m.lists.take[f] > 0:
            compute(m, m.lists.filling[f], m.slots[m.lists.filling[f]].computed + m.lists.take[f])


@part()
def wait_for_more(m, tokens):
    """Take a step's prompts out again while they are held, or wait, and others decode, to be
    batched with others.
    """
    s, step = m.state, m.step
    if s.held == 0:
        if s.decoding == 0 or tokens >= m.cfg.wait_tokens or s.waited >= m.cfg.wait_steps:
            s.waited = 0
            return
        s.waited += 1
    for f in range(s.filling):
        m.lists.take[f] = 0
    step.prefill_tokens = 0
    step.prefill_sequences = 0
    step.pairs_2 = 0
