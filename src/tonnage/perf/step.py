"""Seconds of one engine step, as a roofline with fitted efficiencies.

A deployment is reduced once to an array of coefficients (``perf.step_terms`` describes each); a
step's duration is then a dozen multiplications. The reference simulator calls these functions
unchanged and the kernel compiles them, so that both get the same float. ``perf.vectorised_step``
repeats them for many steps at once.

The form is that of docs/fit.md; the p-norm of arithmetic and weight traffic, the activation traffic
and the host terms were compared against measurements (docs/accuracy.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.perf.step_terms import (
    ACTIVATION,
    ADAPTER_MISS,
    ADAPTERS,
    ATTENTION,
    BOUNDED,
    COEFFICIENTS,
    COMM_LARGE,
    COMM_SLOW,
    COMM_SMALL,
    COMM_STEP,
    COMM_TOKEN,
    CONTEXT,
    EAGER,
    ENCODER,
    EXPERT_BYTES,
    EXPERT_FLOPS,
    EXPERT_MISS,
    EXPERT_REST,
    EXPERT_UNEVEN,
    GRAPHED_TO,
    GROUPED_FROM,
    HEAD_BYTES,
    HEAD_FLOPS,
    HEADS,
    HOST_LEAST,
    HOST_LEAST_SEQUENCE,
    HOST_PREFILL,
    HOST_SEQUENCE,
    HOST_STEP,
    LAUNCHES,
    LINEAR_BYTES,
    LINEAR_FLOPS,
    NORM,
    ONE_SHOT_TO,
    SCAN,
    SLOW_TO,
    SMALL_TOKENS,
    SPARSE,
    SPARSE_MOST,
    STARVED,
    STARVED_FROM,
    STARVED_TO,
    WALK,
    WAVE,
)
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def step_seconds(
    c: NDArray[np.float64],
    prefill_tokens: int,
    prefill_sequences: int,
    decode_sequences: int,
    attention_pairs_2: int,
    context_tokens: int,
    share: float = 1.0,
) -> float:
    """Seconds of one step.

    Args:
        c: coefficient array of shape (COEFFICIENTS,), or longer by a table.
        prefill_tokens: new prompt tokens in the step (P).
        prefill_sequences: sequences that those belong to (n).
        decode_sequences: sequences that decode one token each (B).
        attention_pairs_2: twice the attention pairs of the prefill chunks, Σ new·(2·past + new)
            (2A), an integer.
        context_tokens: Σ context lengths of the decode sequences (C).
        share: mean tokens of all attention ranks over those of this one, which decides what the
            experts compute; 1 where ranks are alike.
    """
    seconds: float = (
        batch_seconds(
            c, prefill_tokens + decode_sequences, prefill_sequences + decode_sequences, share
        )
        + attention_seconds(c, prefill_tokens, attention_pairs_2)
        + context_seconds(c, decode_sequences) * context_tokens
        + (c[HOST_PREFILL] if prefill_tokens > 0 else 0.0)
    )
    return (
        launched(c, seconds, prefill_tokens + decode_sequences) if prefill_tokens > 0 else seconds
    )


def launched(c: NDArray[np.float64], seconds: float, tokens: int) -> float:
    """Seconds of a step with a prefill in it and ``tokens`` in all; ``seconds`` is what it takes
    where a CUDA graph holds it.
    """
    whole: float = seconds if tokens <= c[GRAPHED_TO] else max(seconds + c[EAGER], c[LAUNCHES])
    return whole


def attention_seconds(c: NDArray[np.float64], prefill_tokens: int, attention_pairs_2: int) -> float:
    """Seconds of prefill attention, by pairs, by pairs up to a bound per token and by tokens, and
    those of an image encoder.
    """
    bounded = min(0.5 * c[SPARSE] * attention_pairs_2, c[SPARSE_MOST] * prefill_tokens)
    seconds: float = (
        0.5 * c[ATTENTION] * attention_pairs_2
        + bounded
        + c[SCAN] * prefill_tokens
        + c[ENCODER] * prefill_tokens
    )
    return seconds


def batch_seconds(c: NDArray[np.float64], tokens: int, sequences: int, share: float = 1.0) -> float:
    """Seconds of a step that depend only on its numbers of tokens and sequences; for a pure decode
    step this is its a(B).

    ``share`` is that of ``step_seconds``.
    """
    arithmetic = c[LINEAR_FLOPS] * tokens
    p = c[NORM]
    linear = (arithmetic**p + c[LINEAR_BYTES] ** p) ** (1.0 / p)
    if c[EXPERT_BYTES] > 0.0:
        routed = tokens * share
        touched = 1.0 - c[EXPERT_REST] * c[EXPERT_MISS] ** routed
        fullest = min(
            touched + c[EXPERT_UNEVEN] * math.sqrt(max(touched * (1.0 - touched), 0.0)), 1.0
        )
        linear += ((c[EXPERT_FLOPS] * routed) ** p + (c[EXPERT_BYTES] * fullest) ** p) ** (1.0 / p)
    head = max(c[HEAD_FLOPS] * sequences, c[HEAD_BYTES])
    communication = c[COMM_LARGE] + c[COMM_TOKEN] * tokens
    if tokens < c[SLOW_TO]:
        communication += c[COMM_SLOW] * tokens
    if tokens <= max(c[SMALL_TOKENS], c[ONE_SHOT_TO]):
        small = c[COMM_STEP] + c[COMM_SMALL] * tokens
        communication = small if tokens <= c[ONE_SHOT_TO] else min(communication, small)
    elif c[STARVED_FROM] < tokens <= c[STARVED_TO]:
        communication += c[STARVED]
    seconds: float = (
        linear
        + head
        + c[ACTIVATION] * tokens
        + communication
        + c[HOST_STEP]
        + (c[HOST_SEQUENCE] + c[BOUNDED]) * sequences
    )
    if c[ADAPTERS] > 0.0:
        seconds += c[ADAPTERS] * (1.0 - c[ADAPTER_MISS] ** sequences)
    if len(c) > COEFFICIENTS:
        seconds += tabulated_seconds(c, tokens)
    return (
        max(seconds, c[HOST_LEAST] + c[HOST_LEAST_SEQUENCE] * sequences)
        if c[HOST_LEAST] > 0.0
        else seconds
    )


def tabulated_seconds(c: NDArray[np.float64], tokens: int) -> float:
    """Seconds that the table behind the coefficients gives a step; it is linear between its entries
    and beyond the last.
    """
    low, high = COEFFICIENTS, len(c) - 2
    seconds: float = c[low + 1]
    if tokens <= c[low]:
        return seconds
    while high - low > 2:
        middle = low + (high - low) // 4 * 2
        if c[middle] <= tokens:
            low = middle
        else:
            high = middle
    seconds = c[low + 1]
    seconds += (c[high + 1] - c[low + 1]) / (c[high] - c[low]) * (tokens - c[low])
    return seconds


def context_seconds(c: NDArray[np.float64], decode_sequences: int) -> float:
    """Seconds per context token of a decode step, its c(B)."""
    if decode_sequences == 0:
        return 0.0
    seconds: float = c[CONTEXT] + c[WALK] / decode_sequences
    if decode_sequences < c[GROUPED_FROM]:
        walking = c[WALK] * math.ceil(c[WAVE] * decode_sequences) / decode_sequences
        arithmetic, walked = c[HEADS] * c[HEADS], walking * walking
        # a smooth maximum
        seconds = math.sqrt(math.sqrt(arithmetic * arithmetic + walked * walked))
    return seconds


def drafted_step_seconds(
    c: NDArray[np.float64],
    draft: NDArray[np.float64],
    drafted: int,
    passes: int,
    prefill_tokens: int,
    prefill_sequences: int,
    decode_sequences: int,
    attention_pairs_2: int,
    context_tokens: int,
    share: float = 1.0,
) -> float:
    """Seconds of one step in which every decode sequence has ``drafted`` tokens guessed and
    verified.

    Prompts go through the drafter in its first pass.

    Args:
        c: coefficient array of the model.
        draft: coefficient array of one pass of the drafter.
        drafted: tokens guessed per decode sequence (k).
        passes: passes of the drafter, one after the other.
        prefill_tokens, prefill_sequences, decode_sequences, attention_pairs_2, context_tokens,
        share: as in ``step_seconds``.
    """
    seconds: float = (
        verify_seconds(c, drafted, prefill_tokens, prefill_sequences, decode_sequences, share)
        + attention_seconds(c, prefill_tokens, attention_pairs_2)
        + context_seconds(c, decode_sequences) * context_tokens
        + (c[HOST_PREFILL] if prefill_tokens > 0 else 0.0)
    )
    if prefill_tokens > 0:
        seconds = launched(c, seconds, prefill_tokens + (drafted + 1) * decode_sequences)
    if passes > 0:
        seconds += step_seconds(
            draft,
            prefill_tokens,
            prefill_sequences,
            decode_sequences,
            attention_pairs_2,
            context_tokens,
        )
    if passes > 1 and decode_sequences > 0:
        again = (
            batch_seconds(draft, decode_sequences, decode_sequences)
            + context_seconds(draft, decode_sequences) * context_tokens
        )
        seconds += (passes - 1) * again
    return seconds


def verify_seconds(
    c: NDArray[np.float64],
    drafted: int,
    prefill_tokens: int,
    prefill_sequences: int,
    decode_sequences: int,
    share: float = 1.0,
) -> float:
    """``batch_seconds`` of a step that verifies k guesses: k + 1 tokens and logits of each decode
    sequence, handled once by the host.

    Windows, chosen entries and states are read once for all guesses of a sequence.
    """
    tokens = (drafted + 1) * decode_sequences
    whole = batch_seconds(c, prefill_tokens + tokens, prefill_sequences + tokens, share)
    seconds: float = whole - (c[HOST_SEQUENCE] + c[BOUNDED]) * drafted * decode_sequences
    return seconds


def drafted_batch_seconds(
    c: NDArray[np.float64],
    draft: NDArray[np.float64],
    drafted: int,
    passes: int,
    decode_sequences: int,
    share: float = 1.0,
) -> float:
    """The a(B) of a decode step with guesses."""
    seconds = verify_seconds(c, drafted, 0, 0, decode_sequences, share)
    if passes > 0:
        seconds += passes * batch_seconds(draft, decode_sequences, decode_sequences)
    return seconds


def drafted_context_seconds(
    c: NDArray[np.float64], draft: NDArray[np.float64], passes: int, decode_sequences: int
) -> float:
    """The c(B) of a decode step with guesses: the model's cache is read once, the drafter's in
    every pass.
    """
    return context_seconds(c, decode_sequences) + passes * context_seconds(draft, decode_sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """Speculative decoding, as far as it decides how long steps take."""

    tokens: int  # guesses per decode sequence and step (k)
    acceptance: float  # probability that a guess is right when the guesses before it were
    passes: int  # passes of the drafter in a step
    # float64 of shape (COEFFICIENTS,), of one pass of the drafter
    coefficients: NDArray[np.float64]

    @property
    def tokens_per_step(self) -> float:
        """Expected output tokens of a sequence and step: 1 + a + … + a^k = (1 − a^(k+1)) / (1 −
        a).
        """
        return sum(self.acceptance**i for i in range(self.tokens + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """How long the steps of a deployment take, and what its front end adds."""

    # float64 of shape (COEFFICIENTS,), longer where a table of two or more entries is behind them
    coefficients: NDArray[np.float64]
    # seconds from sending a request until the engine has it, plus those from the engine's token
    # until the client has it; the simulator counts them all before the engine
    frontend_s: float
    drafting: Drafting | None = None  # speculative decoding, or None
    # seconds in which the front end turns a sequence's tokens of a step into text and streams it,
    # one sequence after another; this holds up clients, not the engine
    stream_s: float = 0.0
    # seconds per sequence and step in which the engine hands tokens to the front end;
    # ``coefficients`` include them
    response_s: float = 0.0
    # seconds in which the front end takes up the tokens of a step, before it streams those of the
    # first sequence; steps that wait for it are taken up together
    stream_step_s: float = 0.0
    # enter_s, enter_token_s: seconds in which the front end is busy with a request that enters, and
    # with each token of its prompt
    enter_s: float = 0.0
    enter_token_s: float = 0.0

    def entering_s(self, isl: int) -> float:
        """Seconds until a request with so long a prompt is in the engine, when it enters alone."""
        return max(self.frontend_s, self.enter_s + isl * self.enter_token_s)

    def front_end_busy(self, rate: float, isl: float, osl: float, steps_per_s: float) -> float:
        """Share of its time that the front end works for requests per second of mean lengths, and
        for steps per second.

        Steps for which it has no time are taken up with others.
        """
        busy = rate * (
            self.enter_s + isl * self.enter_token_s + osl / self.tokens_per_step * self.stream_s
        )
        return busy + min(steps_per_s * self.stream_step_s, max(1.0 - busy, 0.0))

    @property
    def in_process(self) -> StepModel:
        """The same engine called from its own process, which returns whole answers and streams
        nothing.
        """
        c = self.coefficients.copy()
        c[HOST_SEQUENCE] -= self.response_s
        return replace(
            self,
            coefficients=c,
            stream_s=0.0,
            stream_step_s=0.0,
            response_s=0.0,
            enter_s=0.0,
            enter_token_s=0.0,
        )

    @property
    def inside(self) -> StepModel:
        """The same engine where requests come from another engine: no front end lets them in, and
        their tokens are streamed as before.
        """
        return replace(self, frontend_s=0.0, enter_s=0.0, enter_token_s=0.0)

    def seconds(
        self,
        prefill_tokens: int,
        prefill_sequences: int,
        decode_sequences: int,
        attention_pairs_2: int,
        context_tokens: int,
        share: float = 1.0,
    ) -> float:
        """Seconds of one step; the arguments are those of ``step_seconds``."""
        step_shape = (
            prefill_tokens,
            prefill_sequences,
            decode_sequences,
            attention_pairs_2,
            context_tokens,
            share,
        )
        d = self.drafting
        if d is None:
            return step_seconds(self.coefficients, *step_shape)
        return drafted_step_seconds(
            self.coefficients, d.coefficients, d.tokens, d.passes, *step_shape
        )

    @property
    def tokens_per_step(self) -> float:
        """Expected output tokens of a decode sequence in a step; 1 without speculative decoding."""
        return 1.0 if self.drafting is None else self.drafting.tokens_per_step

    def decode_ps(self, decode_sequences: int, share: float = 1.0) -> int:
        """The whole picoseconds a(B) of a pure decode step; ``share`` is that of
        ``step_seconds``.
        """
        d = self.drafting
        if d is None:
            return round(
                batch_seconds(self.coefficients, decode_sequences, decode_sequences, share)
                * PS_PER_S
            )
        return round(
            drafted_batch_seconds(
                self.coefficients, d.coefficients, d.tokens, d.passes, decode_sequences, share
            )
            * PS_PER_S
        )

    def decode_line(self, max_batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Whole picoseconds a(B) and c(B) of pure decode steps, a(B) + c(B)·C, for B = 0 …
        max_batch_size.

        Returns:
            Two int64 arrays of shape (max_batch_size + 1,).
        """
        import numpy as np

        sizes, d = range(max_batch_size + 1), self.drafting
        if d is None:
            c = [context_seconds(self.coefficients, b) for b in sizes]
        else:
            c = [
                drafted_context_seconds(self.coefficients, d.coefficients, d.passes, b)
                for b in sizes
            ]
        whole = [self.decode_ps(b) for b in sizes], [round(seconds * PS_PER_S) for seconds in c]
        return np.array(whole[0], dtype=np.int64), np.array(whole[1], dtype=np.int64)
