"""In-flight batching with one prompt at a time, compiled; the rules are those of ``reference/one_prefill.py``."""

from __future__ import annotations

from tonnage.simulator.kernel import tensorrt_llm
from tonnage.simulator.kernel.blocks import blocks_of
from tonnage.simulator.kernel.inlined import part
from tonnage.simulator.kernel.prompts import add_decoding, add_filling, enter, first_in_line

GROWS, BUDGETED, GUESSES = False, True, True

never_fits, wait_for_more = tensorrt_llm.never_fits, tensorrt_llm.wait_for_more


@part()
def schedule(m):
    """Admit the first in line when nobody computes a prompt; decodes first, then the one prompt."""
    cfg, s, rows, take = m.cfg, m.state, m.rows, m.lists.take
    if s.filling == 0 and s.head < s.tail and s.running < cfg.slots:
        r = first_in_line(m)
        need = blocks_of(rows.isl[r] + rows.osl[r] + cfg.drafted, cfg.block_tokens) + rows.windows[r]
        if need <= s.free:
            s.head += 1
            s.free -= need
            rows.blocks[r] = need
            enter(m, r)
    add_decoding(m)
    if s.filling == 0:
        return
    r, used = m.lists.filling[0], s.decoding * (cfg.drafted + 1)
    new, budget = rows.isl[r] - rows.computed[r], cfg.max_tokens - used
    if new > budget:
        new = 0 if cfg.chunked == 0 else budget - budget % cfg.block_tokens
    take[0] = new
    if new > 0:
        add_filling(m, r, new)
        wait_for_more(m, used + rows.isl[r])
