"""In-flight batching of TensorRT-LLM, compiled; the rules are those of ``reference/tensorrt_llm.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of, too_long
from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.prompts import add_decoding, add_filling, enter, first_in_line

GROWS = False
"""A request has the blocks of its whole life from its entry."""

BUDGETED, GUESSES = True, True


@small()
def never_fits(cfg, isl, osl):
    """Also a prompt beyond the token budget that cannot be cut, or not even into one block."""
    return too_long(cfg, isl, osl) or (isl > cfg.max_tokens and (cfg.chunked == 0 or cfg.max_tokens < cfg.block_tokens))


@part()
def schedule(m):
    """Admit in order while slots and blocks to completion last; decodes first, then contexts."""
    cfg, s, rows, take = m.cfg, m.state, m.rows, m.lists.take
    while s.head < s.tail and s.running < cfg.slots:
        r = first_in_line(m)
        need = blocks_of(rows.isl[r] + rows.osl[r] + cfg.drafted, cfg.block_tokens) + rows.windows[r]
        if need > s.free:
            break
        s.head += 1
        s.free -= need
        rows.blocks[r] = need
        enter(m, r)
    add_decoding(m)
    budget = cfg.max_tokens - s.decoding * (cfg.drafted + 1)
    stopped = False
    tokens = cfg.max_tokens - budget
    for i in range(s.filling):
        r = m.lists.filling[i]
        new = rows.isl[r] - rows.computed[r]
        if new > budget:
            stopped = stopped or cfg.chunked == 0
            new = budget - budget % cfg.block_tokens
        take[i] = 0 if stopped else new
        if take[i] > 0:
            budget -= new
            tokens += rows.isl[r]
            add_filling(m, r, new)
    if m.step.prefill_tokens > 0:
        wait_for_more(m, tokens)


@part()
def wait_for_more(m, tokens):
    """Take a step's prompts out again while they wait beside decodes to be batched with others."""
    s, step = m.state, m.step
    if s.decoding == 0 or tokens >= m.cfg.wait_tokens or s.waited >= m.cfg.wait_steps:
        s.waited = 0
        return
    s.waited += 1
    for i in range(s.filling):
        m.lists.take[i] = 0
    step.prefill_tokens = 0
    step.prefill_sequences = 0
    step.pairs_2 = 0
