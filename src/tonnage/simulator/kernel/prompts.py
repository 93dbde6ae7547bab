"""Requests that compute their prompts, compiled: what they add to a step."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of
from tonnage.simulator.kernel.inlined import part


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
    """Count the next ``new`` tokens of a filling request into a step; a last token computed again is a decode."""
    generated, tokens = slot.generated, slot.isl + slot.generated
    if generated > 0 and slot.computed == tokens - 1:
        m.step.decode_sequences += 1
        m.step.context_tokens += tokens
    else:
        add_prompt(m, slot, new)


@part()
def cut(m, tokens):
    """New tokens of a request in a step that lacks so many: a long prompt is cut into chunks while others are there."""
    if 0 < m.cfg.longest_chunk < tokens and m.state.running + m.state.queued > 1:
        return m.cfg.longest_chunk
    return tokens


@part()
def chunk(m, i, budget):
    """New tokens of a filling request in a step with so many left, and the blocks that they need."""
    slot = m.slots[i]
    new = min(cut(m, slot.isl + slot.generated - slot.computed), budget)
    return new, max(blocks_of(slot.computed + new, m.cfg.block_tokens) + slot.windows - slot.blocks, 0)
