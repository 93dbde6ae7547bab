"""The record of an engine's steps: what each computed, how long it took, and who waited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Columns of the record.
(START, DURATION, PREFILL_TOKENS, PREFILL_SEQUENCES, DECODE_SEQUENCES, PAIRS_2, CONTEXT_TOKENS, IN_ENGINE, WAITING, ALL_TOKENS) = range(10)
STEP_COLUMNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """The steps of a run, one row each, in order.

    Attributes:
        steps: int64 of shape (recorded steps, STEP_COLUMNS): START and DURATION in picoseconds,
            PREFILL_TOKENS (P), PREFILL_SEQUENCES (n), DECODE_SEQUENCES (B), PAIRS_2 (2A),
            CONTEXT_TOKENS (C), IN_ENGINE (requests admitted) and WAITING (requests queued) while it ran, ALL_TOKENS (computed, with
            guesses). Columns 2 to 6 are the arguments of ``step_seconds`` in its order; of attention ranks in lockstep they are those
            of the slowest rank, and the last three are of all ranks. The engine was idle between
            the end of a row and the start of the next one where the two differ.
        count: steps of the run, of which the first ``len(steps)`` were recorded.
        first_step, last_step: int64 per request: number of the step whose end was its first, its last
            token; -1 if that did not happen. Empty where no steps were to be recorded.
    """

    steps: NDArray[np.int64]
    count: int
    first_step: NDArray[np.int64]
    last_step: NDArray[np.int64]
