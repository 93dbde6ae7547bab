"""Terms that a user's own loads have fitted, in place of the shipped ones.

On hardware that no shipped term speaks for, factors on transferred terms keep what was transferred. These terms take nothing from them:
four shares of the datasheet's rates, and the host's seconds. What a sweep of loads cannot tell apart is one term here: launching
layers is part of ``step_s``, and streaming tokens is part of ``sequence_s``. All terms of the shipped presets that these stand for are
cleared, so that nothing is counted twice. What remains shipped is the form of the step, the exponent of its norm, the
activations, all-reduces where one GPU was measured, and how a number format relates to 16 or 8 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARES = {
    "compute": "share of the datasheet's matrix rate that matrices reach",
    "memory": "share of the memory bandwidth that reading weights reaches",
    "attention": "share of the 16-bit matrix rate that prefill attention reaches",
    "kv_bandwidth": "share of the memory bandwidth in decode attention",
}
"""Terms without a unit. They may be above 1 where the datasheet says too little."""

SECONDS = {
    "allreduce_s": "latency of a small all-reduce of two GPUs",
    "step_s": "seconds of every step, with the launching of its layers",
    "sequence_s": "seconds per sequence of a step, with the streaming of its token",
    "prefill_s": "further seconds of a step with prefill",
    "frontend_s": "front end, once per request",
    "turnaround_s": "client and front end, from an answer to the next request, one request after another",
}
"""Terms in seconds."""

NEEDED = {"head_arithmetic": 0.0, "kv_8bit": 1.0, "kv_single": 1.0, "walk_s": 0.0, "layer_s": 0.0, "stream_s": 0.0}
"""Terms that every preset has, at the values that mean nothing."""

CLEARED = ("compute", "memory", "compute_blocks", "attention", "kv_8bit", "kv_single")
"""Corrections of an engine to the shares that are fitted here; those with further words behind an underscore too."""


def with_own_terms(terms: Mapping[str, Any], own: Mapping[str, float], preset: str) -> dict[str, Any]:
    """The groups of ``terms.json`` for one GPU and one engine preset, with terms of their own; the given groups are not changed.

    Args:
        terms: the shipped groups.
        own: by name of ``OWN_TERMS``; an absent ``allreduce_s`` stays as shipped.
        preset: the engine preset that they replace.
    """
    shipped: dict[str, float] = terms["engines"][preset]
    kept = {name: value for name, value in shipped.items() if not _cleared(name)}
    engine = {**kept, **NEEDED, **{name: own[name] for name in (*SECONDS, "kv_bandwidth") if name in own}}
    every = terms["architectures"]["*"]
    rates = {f"{kind}_{bits}": own[kind] for kind in ("compute", "memory") for bits in ("8", "16")}
    return {
        **terms,
        "shared": {**terms["shared"], "attention": own["attention"], "power_compute": 0.0, "power_memory": 0.0},
        "architectures": {"*": {**every, **rates, "attention": 1.0}},
        "gpus": {},
        "siblings": {},
        "engines": {**terms["engines"], preset: engine},
    }


def _cleared(name: str) -> bool:
    """Whether a shipped term of an engine is among those that the own terms stand for."""
    return (name.endswith("_s") and name != "allreduce_s") or any(name == term or name.startswith(f"{term}_") for term in CLEARED)
