"""In-flight batching with one prompt at a time, compiled; the rules are those of
``reference/one_prefill.py``.
"""

from __future__ import annotations

from tonnage.simulator.kernel import tensorrt_llm
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.decoding import add_decoding, add_filling
from tonnage.simulator.kernel.shared import catch_up

GROWS, BUDGETED, GUESSES, NAMES, PARTIAL = (
    False,
    True,
    True,
    tensorrt_llm.NAMES,
    tensorrt_llm.PARTIAL,
)

never_fits, wait_for_more, admit_first = (
    tensorrt_llm.never_fits,
    tensorrt_llm.wait_for_more,
    tensorrt_llm.admit_first,
)
compute_all = tensorrt_llm.compute_all


@part()
def schedule(m):
    """Admit the first in line when nobody computes a prompt; decodes first, then the one prompt."""
    cfg, s, take = m.cfg, m.state, m.lists.take
    if s.filling == 0 and s.queued > 0 and s.running < cfg.slots:
        catch_up(m, 0)
        admit_first(m)
    add_decoding(m)
    if s.filling == 0:
        return
    slot, used = m.slots[m.lists.filling[0]], s.decoding * (cfg.drafted + 1)
    new, budget = slot.isl + slot.generated - slot.computed, cfg.max_tokens - used
    if new > budget:
        new = 0 if cfg.chunked == 0 else budget - budget % cfg.block_tokens
    take[0] = new
    if new > 0:
        add_filling(m, slot, new)
    if m.step.prefill_tokens > 0:
        wait_for_more(m, used + slot.isl)
        compute_all(m)
