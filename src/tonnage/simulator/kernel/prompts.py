"""Requests that compute their prompts, compiled: how they enter, and what they add to a step."""

from __future__ import annotations

from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.memory import NEVER


@small()
def enter(m, r):
    """Append a request to the running ones, and to those of them whose prompt is not computed yet."""
    s = m.state
    m.rows.until[r] = NEVER
    m.lists.running[s.running] = r
    s.running += 1
    m.lists.filling[s.filling] = r
    s.filling += 1


@small()
def first_in_line(m):
    """The row of the request at the head of the queue."""
    return m.lists.queue[m.state.head & (m.lists.queue.size - 1)]


@small()
def add_decoding(m):
    """Count the decoding requests into a step, one token each."""
    m.step.decode_sequences = m.state.decoding
    m.step.context_tokens = m.state.context


@small()
def add_prompt(m, r, new):
    """Count the next ``new`` tokens of a request into a step, as a prompt."""
    m.step.prefill_tokens += new
    m.step.prefill_sequences += 1
    m.step.pairs_2 += new * (2 * m.rows.computed[r] + new)


@part()
def add_filling(m, r, new):
    """Count the next ``new`` tokens of a filling request into a step; a last token computed again is a decode."""
    generated, tokens = m.rows.generated[r], m.rows.isl[r] + m.rows.generated[r]
    if generated > 0 and m.rows.computed[r] == tokens - 1:
        m.step.decode_sequences += 1
        m.step.context_tokens += tokens
    else:
        add_prompt(m, r, new)
