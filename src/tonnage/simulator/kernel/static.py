"""Static batching, compiled; the rules are those of ``reference/static.py``."""

from __future__ import annotations

from tonnage.simulator.kernel.blocks import blocks_of, too_long, windows_of
from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.prompts import enter, first_in_line

GROWS = False
"""A request has the blocks of the longest of its batch."""

BUDGETED, GUESSES = False, False


@small()
def never_fits(cfg, isl, osl):
    """Whether a request could not be served even by an idle engine."""
    return too_long(cfg, isl, osl)


@part()
def schedule(m):
    """A whole new batch when the last one is gone, else one more padded decode step of all its slots."""
    s, rows = m.state, m.rows
    if s.running > 0:
        m.step.decode_sequences = s.batch
        m.step.context_tokens = s.batch * (s.longest + s.round - rows.base[m.lists.running[0]])
        return
    prompt, output = 0, 0
    while s.head < s.tail and s.running < m.cfg.slots:
        r = first_in_line(m)
        longer_prompt, longer_output = max(prompt, rows.isl[r]), max(output, rows.osl[r])
        longest = longer_prompt + longer_output
        if (s.running + 1) * (blocks_of(longest, m.cfg.block_tokens) + windows_of(m.cfg, longest)) > m.cfg.kv_blocks:
            break
        prompt, output = longer_prompt, longer_output
        s.head += 1
        m.lists.take[s.filling] = rows.isl[r]
        enter(m, r)
    n, each = s.running, blocks_of(prompt + output, m.cfg.block_tokens) + windows_of(m.cfg, prompt + output)
    s.free -= n * each
    for i in range(n):
        rows.blocks[m.lists.running[i]] = each
    s.batch = n
    s.longest = prompt
    m.step.prefill_tokens = n * prompt
    m.step.prefill_sequences = n
    m.step.pairs_2 = n * prompt * prompt
