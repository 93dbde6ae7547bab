"""Static batching, compiled; the rules are those of ``reference/static.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of, too_long, windows_of
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.queue import enter

GROWS = False
"""A request has the blocks of the longest of its batch."""

BUDGETED, GUESSES, NAMES, PARTIAL = False, False, None, False


@part()
def never_fits(cfg, isl, osl):
    """Whether a request could not be served even by an idle engine."""
    return too_long(cfg, isl, osl)


@part()
def schedule(m):
    """A whole new batch when the last one is gone, else one more padded decode step of all its
    slots.
    """
    s = m.state
    if s.running > 0:
        m.step.decode_sequences = s.batch
        m.step.context_tokens = s.batch * (s.longest + s.round - m.slots[m.lists.running[0]].base)
        return
    prompt, output = 0, 0
    while s.queued > 0 and s.running < m.cfg.slots:
        r = s.head
        longer_prompt, longer_output = max(prompt, m.rows.isl[r]), max(output, m.rows.osl[r])
        longest = longer_prompt + longer_output
        if (s.running + 1) * (
            blocks_of(longest, m.cfg.block_tokens) + windows_of(m.cfg, longest)
        ) > m.cfg.kv_blocks:
            break
        prompt, output = longer_prompt, longer_output
        m.lists.take[s.filling] = m.rows.isl[r]
        enter(m)
    n, request_blocks = (
        s.running,
        blocks_of(prompt + output, m.cfg.block_tokens) + windows_of(m.cfg, prompt + output),
    )
    s.free -= n * request_blocks
    for k in range(n):
        m.slots[m.lists.running[k]].blocks = request_blocks
    s.batch = n
    s.longest = prompt
    m.step.prefill_tokens = n * prompt
    m.step.prefill_sequences = n
    m.step.pairs_2 = n * prompt * prompt
