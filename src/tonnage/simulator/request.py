"""A request as an engine is given it, anyone who drives the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Raises:
        InputError: a length below one token, or a number or an instant below 0; a request that
            comes with its only token.
    """

    # its number, 0 or more; no two requests of an engine have the same one. With speculative
    # decoding it decides, together with the engine's seed, which guesses are right.
    id: int
    isl: int  # prompt tokens
    osl: int  # output tokens
    at: int  # when it is sent, in picoseconds; the engine has it ``frontend_s`` later
    # whether another engine computed its prompt. It comes with its KV cache and its first token, so
    # that it decodes as soon as it has a slot and its blocks; its client has that token with the
    # first one that is decoded.
    received: bool = False
    priority: int = 0  # its class; the lower, the sooner
    ttft_ps: int = -1  # the time to first token that it should have, in picoseconds; -1 for none

    def __post_init__(self) -> None:
        if self.isl < 1 or self.osl < 1:
            raise InputError(
                f"request {self.id}: a prompt and an output have one token or more, not {self.isl}"
                f" and {self.osl}"
            )
        if self.id < 0 or self.at < 0:
            raise InputError(
                f"request {self.id}, sent at {self.at} ps: its number and its instant are 0 or more"
            )
        if self.received and self.osl < 2:
            raise InputError(
                f"request {self.id}: was handed over after prefill with an output of 1 token; give"
                " at least 2 output tokens"
            )


RECEIVING = ("tensorrt-llm", "vllm", "one-prefill", "max-utilization")
"""Schedulers that can take requests whose prompts another engine computed; SGLang's decode workers
follow other rules than the rest of it, and are simulated by vLLM's."""


def check_received(request: Request, scheduler: str) -> None:
    """Refuse a request that comes with its cache where the scheduler knows no such. Raises
    InputError: it is such a request.
    """
    if request.received and scheduler not in RECEIVING:
        schedulers = ", ".join(RECEIVING)
        raise InputError(
            f"request {request.id}: comes with its KV cache, which the scheduler '{scheduler}' does"
            f" not take; {schedulers} do"
        )


# What happened in an engine between two instants, request by request.


CANCELLED = 4
"""The status of a request that nobody wants any more, next to those of ``results.requests``; a
record counts it as unfinished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One entry for each time a request got tokens or ended without one, in the order in which the
    engine came to it.

    A step's entries are together, in the order in which requests entered the engine.
    """

    ids: NDArray[np.int64]  # the requests
    # picoseconds: when the client has the tokens, which a slow front end may put later than the
    # instant up to which the engine was advanced; when the engine rejected the request; when it was
    # cancelled
    at: NDArray[np.int64]
    # output tokens; several at once only with speculative decoding, none where it was rejected or
    # cancelled
    tokens: NDArray[np.int64]
    # int64 of ``results.requests``, after these tokens: UNFINISHED, COMPLETED with the last token,
    # REJECTED; or CANCELLED
    status: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of entries."""
        return len(self.ids)


# The record of an engine's steps: what each computed, how long it took, and who waited.


# Columns of the record.
(
    START,
    DURATION,
    PREFILL_TOKENS,
    PREFILL_SEQUENCES,
    DECODE_SEQUENCES,
    PAIRS_2,
    CONTEXT_TOKENS,
    IN_ENGINE,
    WAITING,
    ALL_TOKENS,
) = range(10)
STEP_COLUMNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """The steps of a run, one row each, in order."""

    # int64 of shape (recorded steps, STEP_COLUMNS): START and DURATION in picoseconds,
    # PREFILL_TOKENS (P), PREFILL_SEQUENCES (n), DECODE_SEQUENCES (B), PAIRS_2 (2A), CONTEXT_TOKENS
    # (C), IN_ENGINE (requests admitted) and WAITING (requests queued) while it ran, ALL_TOKENS
    # (computed, with guesses and what fills up ranks). Columns 2 to 6 are the arguments of
    # ``step_seconds`` in its order; of attention ranks in lockstep they are those of the slowest
    # rank, and the last three are of all ranks. The engine was idle between the end of a row and
    # the start of the next one where the two differ.
    steps: NDArray[np.int64]
    count: int  # steps of the run, of which the first ``len(steps)`` were recorded
    # first_step, last_step: int64 per request: number of the step whose end was its first, its last
    # token; -1 if that did not happen. Empty where no steps were to be recorded.
    first_step: NDArray[np.int64]
    last_step: NDArray[np.int64]
