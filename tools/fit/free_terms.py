"""How many numbers the data chose: the free terms of every stage of the fit, counted from its
layouts.

A number counts once, where a fit may move it; what follows from others (ties, derived presets,
values taken over from a relative) and what is published or assumed does not. All but the last two
stages decide step times. Quantiles of held-out errors do not count: they describe predictions and
move none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.evidence.rows import Terms
from tools.fit.modern.layout import ENGINE, modern_layout
from tools.fit.silicon.dense import MEASURED_GPU
from tools.fit.silicon.dense_terms import EARLIER, silicon_layout
from tools.fit.silicon.moe import moe_layout
from tools.fit.terms import layout

FIRST = "GPUs, links and engines up to TensorRT-LLM 0.15"
DENSE = "dense models on current engines, Blackwell and NVFP4"
FRONT_END = "front end of current engines"
EXPERTS = "experts and latent attention on current engines"
MODERN = "accelerators of AMD, and kinds of layers of 2026"
MEMORY = "GPU memory beyond weights and KV cache"
WIDTHS = "widths of a calibration's factors"

BITS = ("8", "16")
DESCRIBES_MEMORY = ("rows", "mape_percent", "mape_percent_by_model")
"""Numbers of ``memory.json`` that say how it was fitted."""


def free_terms(
    terms: Terms, *, memory: Mapping[str, Any], widths: Mapping[str, float]
) -> dict[str, int]:
    """The number of free terms by stage, and of all under ``total``.

    Args:
        terms: the content of ``terms.json``.
        memory: the content of ``memory.json``.
        widths: the widths of a calibration's factors, as ``residuals.json`` holds them.
    """
    measured = {
        (gpu, bits)
        for gpu, own in terms["gpus"].items()
        for bits in BITS
        if f"compute_{bits}" in own and gpu != MEASURED_GPU
    }
    of_experts = [
        engine
        for engine in terms["origins"].get("experts", {})
        if engine not in EARLIER and engine != ENGINE
    ]
    found = {
        FIRST: len(layout(measured).names),
        DENSE: len(silicon_layout(terms).names),
        FRONT_END: len(terms["origins"].get("front_end", ())),
        EXPERTS: len(moe_layout(terms, of_experts).names),
        MODERN: len(modern_layout(terms).names),
        MEMORY: _numbers(
            {name: value for name, value in memory.items() if name not in DESCRIBES_MEMORY}
        ),
        WIDTHS: len(widths),
    }
    return found | {"total": sum(found.values())}


def _numbers(value: Any) -> int:
    """How many numbers a nested value holds."""
    if isinstance(value, Mapping):
        return sum(map(_numbers, value.values()))
    return isinstance(value, int | float)
