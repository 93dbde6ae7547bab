"""Rules that the reference and the kernel share: right guesses, SGLang's new-token ratio, and what
only the reference simulates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.spec.deployment import EngineKnobs


# Which guesses of a drafter are right is drawn by a hash of seed, request and output position. So
# it does not matter when a guess is made or in what company: the same seed gives the same outputs
# in the reference and the kernel, under any load. A position is judged at most
# once: the token after a wrong guess is the model's own. Source of the mixing: splitmix64 (Steele,
# Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).

ONE = 1 << 53
"""A probability of 1, in the units of the draws."""

MASK = (1 << 64) - 1


def threshold(acceptance: float) -> int:
    """Draws below this are right guesses."""
    return round(acceptance * ONE)


def mixed(bits: int) -> int:
    """64 bits, thoroughly mixed."""
    bits = (bits + 0x9E3779B97F4A7C15) & MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)


def draw(seed: int, request: int, position: int) -> int:
    """A whole number from 0 to ONE − 1 for that output token of that request, counted from 1."""
    return mixed(mixed(mixed(seed & MASK) ^ request) ^ position) >> 11


def accepted(seed: int, request: int, generated: int, drafted: int, below: int) -> int:
    """How many of the guesses for the output tokens ``generated`` + 1 … + ``drafted`` are right
    before the first wrong one.
    """
    count = 0
    while count < drafted and draw(seed, request, generated + count + 1) < below:
        count += 1
    return count


# SGLang's new-token ratio: the share of the outputs still to come that its admission reckons with.
# Source: managers/schedule_policy.py and schedule_batch.py of SGLang 0.5.23; the names in brackets
# are its environment variables.

RATIO = 3_000_000
"""Units of the ratio, so that all that is done with it is exact in whole numbers."""

RATIO_START = RATIO * 7 // 10
"""What a request is taken to generate of what it still may (``SGLANG_INIT_NEW_TOKEN_RATIO`` 0.7,
conservativeness 1)."""

RATIO_LEAST = RATIO_START * 14 // 100
"""To which the ratio falls (``SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`` 0.14) …"""

RATIO_DECAY = (RATIO_START - RATIO_LEAST) // 600
"""… over 600 decode steps (``SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS``)."""

FOURTHS = 3
"""Of four parts of a step, those for which its tokens put off the requests that enter at most: an
event loop comes to its requests between the messages, however many they are (an assumption)."""

RETRACT_STEPS = 20
"""Further tokens of each request that the ratio must cover after a retraction
(``SGLANG_RETRACT_DECODE_STEPS``)."""

MOST_NEW = 4096
"""Longest output that admission reckons with (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``)."""


def is_for_reference(knobs: EngineKnobs, *, drafted: bool, shares: bool) -> bool:
    """Whether an engine looks at classes or deadlines in a way that is not compiled; the reference
    simulates all of them.

    That is so with prompts that have something in common, whose blocks others could find before
    their owner is pre-empted, and in vLLM with guesses, where a pre-emption leaves out a step of
    requests that have theirs.
    """
    pre_empts = knobs.scheduler == "vllm" and knobs.queue_order in ("priority", "deadline")
    return knobs.ranks and (shares or (pre_empts and drafted))
