"""What steps cost, in whole picoseconds."""

from __future__ import annotations

from tonnage.perf.step import StepModel
from tonnage.simulator.reference.job import Step
from tonnage.units import to_ps


class Prices:
    """Picoseconds of steps."""

    def __init__(self, step: StepModel, max_batch_size: int) -> None:
        """Round the decode line once."""
        self.step = step
        a, c = step.decode_line(max_batch_size)
        self.a, self.c = [int(v) for v in a], [int(v) for v in c]

    def of(self, step: Step) -> int:
        """What a step costs."""
        p, n, b = step.prefill_tokens, step.prefill_sequences, step.decode_sequences
        if p == 0:
            return self.a[b] + self.c[b] * step.context_tokens + step.transfer_ps
        return to_ps(float(self.step.seconds(p, n, b, step.pairs_2, step.context_tokens))) + step.transfer_ps
