"""Seconds of many steps at once: the twin of ``perf.step`` on numpy arrays.

Explanations, calibrations and fits estimate thousands of steps and cannot afford a scalar call for
each. Every formula of ``step`` therefore is written here once more, operation by operation, and in
smaller pieces, so that a caller can take a step apart (``parts``) or weigh its pieces apart
(``evidence.rows``). The two agree but for the last bits of powers, which numpy computes by
another routine: to a relative 1e-13 (``tests/perf/test_vectorised_step.py``).

Throughout, ``k`` holds coefficients by place: of shape (COEFFICIENTS,) where all steps are of one
deployment, or of shape (COEFFICIENTS, steps) where each step has its own deployment; both may be
longer by a table. The other arguments are float64 arrays of shape (steps,).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tonnage.perf import step_terms as at
from tonnage.perf.step_terms import COEFFICIENTS, PARTS, TERMS

if TYPE_CHECKING:
    from tonnage.perf.step import Drafting

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What many steps hold, as float64 columns of one length; the names are those of the arguments
    of ``step.step_seconds``.
    """

    prefill_tokens: Floats
    prefill_sequences: Floats
    decode_sequences: Floats
    attention_pairs_2: Floats
    context_tokens: Floats
    share: Floats | float = 1.0


def step_seconds(k: Floats, steps: Steps) -> Floats:
    """Seconds of each step, as ``step.step_seconds`` estimates them."""
    return _whole(k, steps, 0)


def drafted_step_seconds(k: Floats, steps: Steps, drafting: Drafting) -> Floats:
    """Seconds of each step in which every decode sequence has tokens guessed and verified, as
    ``step.drafted_step_seconds``.
    """
    seconds, draft, decodes = (
        _whole(k, steps, drafting.tokens),
        drafting.coefficients,
        steps.decode_sequences,
    )
    if drafting.passes > 0:
        seconds = seconds + step_seconds(draft, steps)
    if drafting.passes > 1:
        again = (
            batch_seconds(draft, decodes, decodes)
            + context_seconds(draft, decodes) * steps.context_tokens
        )
        seconds = seconds + np.where(decodes > 0, (drafting.passes - 1) * again, 0.0)
    return seconds


def _whole(k: Floats, steps: Steps, drafted: int) -> Floats:
    """Seconds of each step without the drafter's passes, with ``drafted`` guesses verified per
    decode sequence.
    """
    prefill, decodes = steps.prefill_tokens, steps.decode_sequences
    verified = (drafted + 1) * decodes
    tokens = prefill + verified
    seconds = (
        batch_seconds(k, tokens, steps.prefill_sequences + verified, steps.share)
        - (k[at.HOST_SEQUENCE] + k[at.BOUNDED]) * drafted * decodes
    )
    seconds = (
        seconds
        + attention_seconds(k, prefill, steps.attention_pairs_2)
        + context_seconds(k, decodes) * steps.context_tokens
    )
    seconds = seconds + prefill_seconds(k, prefill) + k[at.ENCODER] * prefill
    alone = launched_alone(k, prefill, tokens)
    return np.asarray(np.where(alone, np.maximum(seconds + k[at.EAGER], k[at.LAUNCHES]), seconds))


def parts(k: Floats, steps: Steps, drafting: Drafting | None = None) -> dict[str, Floats]:
    """Seconds of each step by the parts of ``step_terms.PARTS``; they add up to the step's, with
    drafts to what is not the drafter's.

    The p-norm that joins arithmetic and weight traffic is divided between the two in proportion to
    their p-th powers. What a step waits for its kernels to be launched one by one is the host's. A
    table behind the coefficients is a separate part.
    """
    prefill, starts, decodes = steps.prefill_tokens, steps.prefill_sequences, steps.decode_sequences
    verified = decodes if drafting is None else decodes * (drafting.tokens + 1)
    tokens, sequences = prefill + verified, starts + verified
    seconds_by_part: dict[str, Floats] = {part: np.zeros(len(tokens)) for part in PARTS}

    def add(place: int, seconds: Floats) -> None:
        seconds_by_part[str(TERMS[place].part)] += seconds

    for places, seconds in (
        (_LINEAR, linear_seconds(k, tokens)),
        (_EXPERTS, expert_seconds(k, tokens * steps.share)),
    ):
        for place, share in zip(places, _divided(*seconds, k[at.NORM]), strict=True):
            add(place, share)
    add(at.ACTIVATION, k[at.ACTIVATION] * tokens)
    add(at.ATTENTION, attention_seconds(k, prefill, steps.attention_pairs_2))
    add(at.CONTEXT, context_seconds(k, decodes) * steps.context_tokens)
    add(at.BOUNDED, k[at.BOUNDED] * (starts + decodes))
    add(at.ENCODER, k[at.ENCODER] * prefill + adapter_seconds(k, sequences))
    add(at.HEAD_BYTES, head_seconds(k, sequences))
    add(at.COMM_LARGE, communication_seconds(k, tokens))
    add(at.HOST_STEP, k[at.HOST_STEP] + k[at.HOST_SEQUENCE] * (starts + decodes))
    if (k[at.HOST_LEAST] > 0.0).any():
        add(
            at.HOST_LEAST,
            np.maximum(
                host_least(k, sequences) - _batch_work(k, tokens, sequences, steps.share), 0.0
            ),
        )
    add(at.HOST_PREFILL, prefill_seconds(k, prefill))
    if len(k) > COEFFICIENTS:
        seconds_by_part["table"] = tabulated_seconds(k, tokens)
    alone = launched_alone(k, prefill, tokens)
    add(at.EAGER, np.where(alone, k[at.EAGER], 0.0))
    add(
        at.LAUNCHES,
        np.maximum(np.where(alone, k[at.LAUNCHES], 0.0) - sum(seconds_by_part.values()), 0.0),
    )
    return seconds_by_part


_LINEAR = at.LINEAR_FLOPS, at.LINEAR_BYTES
_EXPERTS = at.EXPERT_FLOPS, at.EXPERT_BYTES


def batch_seconds(
    k: Floats, tokens: Floats, sequences: Floats, share: Floats | float = 1.0
) -> Floats:
    """Seconds that depend only on a step's number of tokens and sequences, as
    ``step.batch_seconds``.
    """
    return np.asarray(
        np.maximum(_batch_work(k, tokens, sequences, share), host_least(k, sequences))
    )


def host_least(k: Floats, sequences: Floats) -> Floats:
    """The least seconds of a step with ``sequences`` on a slow host; 0 on others."""
    return np.asarray(k[at.HOST_LEAST] + k[at.HOST_LEAST_SEQUENCE] * sequences)


def _batch_work(k: Floats, tokens: Floats, sequences: Floats, share: Floats | float) -> Floats:
    """What ``batch_seconds`` is where no slow host holds the step up."""
    p = k[at.NORM]
    linear = _joined(*linear_seconds(k, tokens), p)
    if (k[at.EXPERT_BYTES] > 0.0).any():
        linear = linear + np.where(
            k[at.EXPERT_BYTES] > 0.0, _joined(*expert_seconds(k, tokens * share), p), 0.0
        )
    seconds = (
        linear
        + head_seconds(k, sequences)
        + k[at.ACTIVATION] * tokens
        + communication_seconds(k, tokens)
    )
    seconds = (
        seconds
        + k[at.HOST_STEP]
        + (k[at.HOST_SEQUENCE] + k[at.BOUNDED]) * sequences
        + adapter_seconds(k, sequences)
    )
    return np.asarray(seconds + tabulated_seconds(k, tokens) if len(k) > COEFFICIENTS else seconds)


def linear_seconds(k: Floats, tokens: Floats) -> tuple[Floats, Floats]:
    """Arithmetic and weight traffic of the layers' matrices, before the two are joined."""
    return k[at.LINEAR_FLOPS] * tokens, np.full(len(tokens), k[at.LINEAR_BYTES])


def expert_seconds(k: Floats, tokens: Floats) -> tuple[Floats, Floats]:
    """Arithmetic and weight traffic of the routed experts, to which each rank brings ``tokens``,
    before the two are joined.
    """
    touched = 1.0 - k[at.EXPERT_REST] * k[at.EXPERT_MISS] ** tokens
    fullest = np.minimum(
        touched + k[at.EXPERT_UNEVEN] * np.sqrt(np.maximum(touched * (1.0 - touched), 0.0)), 1.0
    )
    return k[at.EXPERT_FLOPS] * tokens, k[at.EXPERT_BYTES] * fullest


def _joined(arithmetic: Floats, reading: Floats, p: Floats) -> Floats:
    """The p-norm of two durations."""
    return np.asarray((arithmetic**p + reading**p) ** (1.0 / p))


def _divided(arithmetic: Floats, reading: Floats, p: Floats) -> tuple[Floats, Floats]:
    """The p-norm of two durations, divided between them in proportion to their powers."""
    powers = arithmetic**p, reading**p
    both = np.maximum(powers[0] + powers[1], np.finfo(np.float64).tiny)
    joined = both ** (1.0 / p)
    return joined * powers[0] / both, joined * powers[1] / both


def head_seconds(k: Floats, sequences: Floats) -> Floats:
    """The output head: arithmetic or reading, whichever takes longer."""
    return np.asarray(np.maximum(k[at.HEAD_FLOPS] * sequences, k[at.HEAD_BYTES]))


def attention_seconds(k: Floats, prefill_tokens: Floats, attention_pairs_2: Floats) -> Floats:
    """Prefill attention, from new tokens and twice the number of pairs, as
    ``step.attention_seconds`` without the encoder.
    """
    bounded = np.minimum(0.5 * k[at.SPARSE] * attention_pairs_2, k[at.SPARSE_MOST] * prefill_tokens)
    return np.asarray(
        0.5 * k[at.ATTENTION] * attention_pairs_2 + bounded + k[at.SCAN] * prefill_tokens
    )


def adapter_seconds(k: Floats, sequences: Floats) -> Floats:
    """The pass over the LoRA adapters that ``sequences`` use."""
    return np.asarray(k[at.ADAPTERS] * (1.0 - k[at.ADAPTER_MISS] ** sequences))


def context_seconds(k: Floats, decode_sequences: Floats) -> Floats:
    """Seconds per context token, as ``step.context_seconds``."""
    b = np.maximum(decode_sequences, 1.0)
    walking = k[at.WALK] * np.ceil(k[at.WAVE] * b) / b
    arithmetic, walked = k[at.HEADS] * k[at.HEADS], walking * walking
    apart = np.sqrt(np.sqrt(arithmetic * arithmetic + walked * walked))
    per_token = np.where(b < k[at.GROUPED_FROM], apart, k[at.CONTEXT] + k[at.WALK] / b)
    return np.asarray(np.where(decode_sequences > 0, per_token, 0.0))


def communication_seconds(k: Floats, tokens: Floats) -> Floats:
    """Seconds of all messages between the GPUs of an instance."""
    small, large = (
        k[at.COMM_STEP] + k[at.COMM_SMALL] * tokens,
        k[at.COMM_LARGE] + k[at.COMM_TOKEN] * tokens,
    )
    large = large + np.where(tokens < k[at.SLOW_TO], k[at.COMM_SLOW] * tokens, 0.0)
    starved = np.where(
        (tokens > k[at.STARVED_FROM]) & (tokens <= k[at.STARVED_TO]), k[at.STARVED], 0.0
    )
    chosen = np.where(tokens <= k[at.SMALL_TOKENS], np.minimum(small, large), large + starved)
    return np.asarray(np.where(tokens <= k[at.ONE_SHOT_TO], small, chosen))


def prefill_seconds(k: Floats, prefill_tokens: Floats) -> Floats:
    """What the host does for a step with any prefill in it."""
    return np.asarray(np.where(prefill_tokens > 0, k[at.HOST_PREFILL], 0.0))


def launched_alone(k: Floats, prefill_tokens: Floats, tokens: Floats) -> NDArray[np.bool_]:
    """Whether a step's kernels are launched one by one: it has a prefill in it, and no CUDA graph
    holds it.
    """
    return np.asarray((prefill_tokens > 0) & (tokens > k[at.GRAPHED_TO]))


def tabulated_seconds(k: Floats, tokens: Floats) -> Floats:
    """Seconds that the table behind the coefficients gives each step, as
    ``step.tabulated_seconds``.
    """
    knots, seconds = (_by_step(k[COEFFICIENTS + i :: 2], len(tokens)) for i in (0, 1))
    low = np.clip((knots <= tokens).sum(axis=0) - 1, 0, len(knots) - 2)[None, :]
    (x0, x1), (y0, y1) = (
        [np.take_along_axis(of, low + i, axis=0)[0] for i in (0, 1)] for of in (knots, seconds)
    )
    return np.asarray(
        np.where(tokens <= knots[0], seconds[0], y0 + (y1 - y0) / (x1 - x0) * (tokens - x0))
    )


def _by_step(column: Floats, steps: int) -> Floats:
    """A column of the table for every step; shape (entries, steps)."""
    return np.broadcast_to(column.reshape(len(column), -1), (len(column), steps))
