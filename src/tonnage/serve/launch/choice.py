"""Which profile is taken where nobody names one: by the order that NVIDIA documents for NIM."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.errors import InputError, option
from tonnage.serve.launch.profile import Profile

ENGINES = ("tensorrt-llm", "vllm", "sglang")
"""The engines, the one that is preferred first."""

RULE = (
    "those that do not run here are left out; then TensorRT-LLM before vLLM before SGLang, fewer bits before more, latency before "
    "throughput, more GPUs before fewer"
)
"""NVIDIA NIM for LLMs, "Automatic Profile Selection" (read 2026-11-22; that more GPUs come first among equals is recalled, and where SGLang
stands is ours)."""


def ordered(found: Sequence[Profile]) -> tuple[Profile, ...]:
    """Profiles by kind, and the one that is taken first within a kind."""
    kinds = ("runnable", "low memory", "incompatible")
    return tuple(sorted(found, key=lambda one: (kinds.index(one.kind), ENGINES.index(one.family), one.bits, one.aim != "latency", -one.tp)))


def chosen(found: Sequence[Profile], name: str | None = None) -> Profile:
    """The profile of that name, or the first runnable one whose checkpoint is known.

    Raises:
        InputError: there is none; the message says what the nearest one needs.
    """
    where = option("profile")
    if name is not None:
        named = next((one for one in found if one.name == name), None)
        if named is None:
            raise InputError(f"{where}: there is no '{name}'; {option('list_profiles')} shows those that there are")
        if named.kind != "runnable":
            told = f"; say {option('max_model_len')} {named.context} to shorten it" if named.kind == "low memory" else ""
            raise InputError(f"{where}: {name} does not run here: {named.why}{told}")
        return _with_checkpoint(named)
    first = ordered(found)
    taken = next((one for one in first if one.kind == "runnable" and one.checkpoint), None)
    if taken is not None:
        return taken
    if first[0].kind == "runnable":
        return _with_checkpoint(first[0])
    nearest = first[0]
    told = f"; {option('max_model_len')} {nearest.context} would fit" if nearest.kind == "low memory" else ""
    raise InputError(f"{option('model')}: no profile runs on this machine; the nearest, {nearest.name}, does not: {nearest.why}{told}")


def _with_checkpoint(one: Profile) -> Profile:
    if not one.checkpoint:
        raise InputError(
            f"{option('checkpoint')}: {one.name} needs the model in {one.precision}, and no checkpoint in that format is known; name one"
        )
    return one
