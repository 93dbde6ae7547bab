"""The token budget where single gaps are limited, set before anything is simulated.

By closed form: the largest with which a step full of prompt tokens still keeps the limit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.sizing.loads.instance import Instance
    from tonnage.spec.deployment import EngineKnobs, Slo

TOKENS = (8_192, 4_096, 2_048, 1_024, 512, 16_384, 32_768)
"""Token budgets that are tried: below, prefill starves; above, no engine is run."""

BESIDE = 32
"""Decode sequences that are assumed to share the step with the prompt tokens when the budget is set by closed form."""

KEPT_SHARE = 0.95
"""Share of a limit on single gaps that such a step may take: their percentiles are known to 1 %, and batches vary."""


def fitted(instance: Instance, slo: Slo) -> EngineKnobs:
    """The knobs with a token budget whose full step keeps every limit on high percentiles of single gaps.

    The engine's own where they keep it, where prompts cannot be chunked, or where no budget does.
    """
    knobs = instance.deployment.knobs
    limits = [limit.seconds for limit in slo if limit.metric == "itl" and limit.statistic in ("p90", "p95", "p99")]
    if not limits or not knobs.chunked_prefill:
        return knobs
    most = KEPT_SHARE * min(limits)
    for tokens in sorted({knobs.max_num_tokens, *(t for t in TOKENS if t < knobs.max_num_tokens)}, reverse=True):
        if _full_step_s(instance, tokens) <= most:
            return replace(knobs, max_num_tokens=tokens)
    return knobs


def _full_step_s(instance: Instance, tokens: int) -> float:
    """Seconds of a step that a prompt fills up to the token budget, beside ``BESIDE`` decoding sequences."""
    isl = round(instance.traffic.isl.mean)
    decodes = min(BESIDE, instance.batch)
    new = min(isl, max(1, tokens - decodes))
    context = round(decodes * (isl + instance.traffic.osl.mean / 2))
    return instance.step.seconds(new, 1, decodes, new * (2 * isl - new), context)
