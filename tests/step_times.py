"""Tables of step times made from our own step model, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.question.deployment import deployment_of
from tonnage.perf.step import step_seconds
from tonnage.spec.deployment import Deployment
from tonnage.spec.step_times import TimedStep

if TYPE_CHECKING:
    import numpy as np

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 1000, 8000)
PROMPTS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)

HEADER = "prefill_tokens,prefill_sequences,decode_sequences,context_tokens,seconds"


def deployment(tp: int = 1, precision: str = "fp8", engine: str = "vllm") -> Deployment:
    """Llama 3.1 8B on H100."""
    return deployment_of(
        model="llama-3.1-8b", gpu="h100", precision=precision, tp=tp, engine=engine
    )


def timed(c: np.ndarray, batches: tuple[int, ...] = BATCHES) -> Iterator[TimedStep]:
    """Steps of decodes alone, of prompts alone and of both, with the seconds of a coefficient
    array."""
    shapes = [(0, 0, b, b * context) for b in batches for context in CONTEXTS]
    shapes += [
        (p * n, n, b, b * 1500)
        for p in PROMPTS
        for n in (1, 4)
        for b in (0, 8, 64)
        if p * n <= 16384
    ]
    for p, n, b, context in shapes:
        pairs = p * p // n if n else 0
        seconds = float(step_seconds(c, p, n, b, pairs, context))
        yield TimedStep(
            prefill_tokens=p,
            prefill_sequences=max(n, 1),
            past_tokens=0,
            decode_sequences=b,
            context_tokens=context,
            seconds=seconds,
        )


def written(c: np.ndarray, file: Path) -> Path:
    """The same as a file."""
    rows = (
        f"{s.prefill_tokens},{s.prefill_sequences},{s.decode_sequences},{s.context_tokens},{s.seconds!r}"
        for s in timed(c)
    )
    file.write_text("\n".join([HEADER, *rows, ""]))
    return file
