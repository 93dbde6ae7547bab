"""Why the chosen point is where it is: what takes the time of a step, and how far each limit is used."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.limit import Bound, LimitUse
from tonnage.spec.typed_values import FORBID

TERMS = {
    "compute": "arithmetic of the layers' matrices, and activations",
    "bandwidth": "reading the weights",
    "attention": "attention of the prompts",
    "kv": "reading the KV cache",
    "head": "output head",
    "link": "all-reduces and hops between GPUs",
    "host": "scheduling and launching on the host",
    "drafter": "guessing ahead (speculative decoding)",
    "table": "step times of another step model that depend on the tokens of a step alone",
}
"""What the time of an engine step goes into, by the name of the term."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTerm:
    """One term of the mean engine step.

    Attributes:
        term: one of ``TERMS``.
        seconds: of a step, mean.
        share: of the step.
    """

    __pydantic_config__ = FORBID

    term: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The chosen deployment at its highest load inside the limits.

    Attributes:
        requests_per_second_per_instance: that load.
        step_seconds: mean engine step.
        prefill_tokens, decode_sequences, context_tokens: means of a step.
        terms: parts of the mean step, largest first.
        binds: the term that takes most.
        limits: every limit there.
        binding_limit: what ends the load.
        front_end_busy: share of its time that the front end streams tokens; 0 for a job, which has none.
    """

    __pydantic_config__ = FORBID

    requests_per_second_per_instance: float
    step_seconds: float
    prefill_tokens: float
    decode_sequences: float
    context_tokens: float
    terms: tuple[StepTerm, ...]
    binds: str
    limits: tuple[LimitUse, ...]
    binding_limit: Bound
    front_end_busy: float
