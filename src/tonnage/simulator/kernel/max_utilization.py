"""In-flight batching of TensorRT-LLM under MAX_UTILIZATION, compiled; the rules are those of
``reference/max_utilization.py``.
"""

from __future__ import annotations

from tonnage.simulator.kernel import tensorrt_llm
from tonnage.simulator.kernel.blocks import blocks_of, grow_all, growth, growth_of_all, windows_of
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.decoding import add_decoding, add_filling
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.queue import enter
from tonnage.simulator.kernel.vllm import preempt_last

GROWS, BUDGETED, GUESSES, NAMES, PARTIAL = True, True, True, None, False

fits_no_step = tensorrt_llm.never_fits


@part()
def never_fits(cfg, isl, osl):
    """Also prompt and output beyond a budget that cannot be cut."""
    return fits_no_step(cfg, isl, osl) or (
        isl + osl > cfg.max_tokens and (cfg.chunked == 0 or cfg.max_tokens < cfg.block_tokens)
    )


@part()
def schedule(m):
    """Blocks for decoding requests, then admission unless a request was paused, then decodes and
    prompts.
    """
    cfg, s, rows = m.cfg, m.state, m.rows
    paused = grow_running(m)
    s.steady = 0 if paused else 1
    while not paused and s.queued > 0 and s.running < cfg.slots:
        r = s.head
        need = blocks_of(rows.isl[r] + rows.generated[r], cfg.block_tokens) + windows_of(
            cfg, rows.isl[r] + rows.osl[r] + cfg.drafted
        )
        if need > s.free:
            break
        m.slots[enter(m)].blocks = need
        s.free -= need
    add_decoding(m)
    budget = cfg.max_tokens - s.decoding * (cfg.drafted + 1)
    for f in range(s.filling):
        slot = m.slots[m.lists.filling[f]]
        new = slot.isl + slot.generated - slot.computed
        if new > budget:
            new = budget - budget % cfg.block_tokens if cfg.chunked == 1 else 0
            budget = budget if cfg.chunked == 1 else 0
        m.lists.take[f] = new
        if new > 0:
            budget -= new
            add_filling(m, slot, new)


@part()
def grow_running(m):
    """Blocks for the next tokens of all who decode; whether anyone was paused."""
    s, lists = m.state, m.lists
    needed = growth_of_all(m)
    if needed <= s.free:
        s.free -= needed
        grow_all(m)
        return False
    k = 0
    while k < s.running:
        if lists.ends[k] < NEVER:
            slot = m.slots[lists.running[k]]
            more = max(growth(m, slot), 0)
            while more > s.free and k < s.running:
                preempt_last(m, k)
            if k == s.running:
                break
            s.free -= more
            if m.cfg.drafted > 0:
                slot.blocks += more
        k += 1
    return True
