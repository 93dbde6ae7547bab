"""Which engines the compiled loop simulates with priorities, deadlines and shedding; the reference simulates all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.spec.deployment import EngineKnobs


def is_for_reference(knobs: EngineKnobs, *, drafted: bool, shares: bool) -> bool:
    """Whether an engine looks at classes or deadlines in a way that is not compiled.

    That is so with prompts that have something in common, whose blocks others could find before their owner is pre-empted, and in vLLM
    with guesses, where a pre-emption leaves out a step of requests that have theirs.
    """
    pre_empts = knobs.scheduler == "vllm" and knobs.queue_order in ("priority", "deadline")
    return knobs.ranks and (shares or (pre_empts and drafted))
