"""What each number format brings one model on one GPU: predicted gain over 16 bits, next to what is
published of it.

Two gains, for two questions. While generating, a small batch waits for the weights: the gain of an
output token says what fewer bytes bring. Whole requests of a served batch are prompts too, which
are arithmetic: their gain says what is left of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tonnage.errors import InputError
from tonnage.perf.links import check_split
from tonnage.perf.memory import memory_plan, weight_bytes
from tonnage.perf.ranges import marks, unfitted_formats_of
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_engine, gpus
from tonnage.spec.catalog.accuracy import TradeOff, trade_offs
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import PRECISIONS, Precision, find_precision

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model

Band = Literal["none", "medium", "high"]

ISL, OSL = 2048, 128
"""Lengths of the requests: NVIDIA's own for its published speed-ups (Model Optimizer,
examples/benchmark.md)."""

SMALL, LARGE = (1, 4), (16, 64)
"""Batches of the two columns of the published table: at most 4, and 16 or more."""

NONE_BELOW = 1.2
"""Gain below which the word is "none"."""

HIGH_FROM = 1.03
"""The word is "high" from this many times the gain of 8-bit weights and activations on the same
GPU: visibly more than they bring."""

EIGHT_BITS = ("fp8", "int8-sq")
SPARSE = "fp8+2:4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An output token and whole requests by batch, and a prompt: seconds of them, or gains."""

    token: dict[int, float]
    run: dict[int, float]
    prompt: float

    def over(self, base: Work) -> Work:
        """The ratio of each to the other's."""
        token = {b: self.token[b] / base.token[b] for b in self.token}
        run = {b: self.run[b] / base.run[b] for b in self.run}
        return Work(token=token, run=run, prompt=self.prompt / base.prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatGain:
    """One format on one model, GPU and engine.

    Attributes:
        precision: the format.
        lacks: what the hardware or the engine does not have for it; empty where it runs, and the
            rest holds only then.
        weight_gb: decimal gigabytes of weights on each GPU.
        gain: over 16 bits of an output token at contexts of ``ISL``, of whole requests of ``ISL``
            and ``OSL`` tokens, and of a prompt.
        small, large: the gain of a token at batch 1 and 4, and of whole requests at 16 and 64, in
            the words of the published table.
        published: what that table says; with sparsity a second entry.
        native: whether the model's own checkpoint is published in it, so that it costs neither
            accuracy nor calibration.
        generations: GPU generations of the catalog that can do it.
        marks: what the prediction rests on that was not measured here.
        unfitted: parts of the format whose terms were not fitted, each with where they come from.
    """

    precision: Precision
    lacks: str
    weight_gb: float
    gain: Work | None
    small: Band | None
    large: Band | None
    published: tuple[TradeOff, ...]
    native: bool
    generations: tuple[str, ...]
    marks: tuple[str, ...]
    unfitted: tuple[tuple[str, str], ...]


def format_gains(
    model: Model, gpu: Gpu, engine: str, tp: int | None = None
) -> tuple[Deployment, tuple[FormatGain, ...]]:
    """Every format, and FP8 with 2:4 sparsity, on a model and a GPU.

    Args:
        tp: GPUs of an instance; the fewest that hold 64 such requests in 16 bits if not given, at
            most 8.

    Returns:
        The deployment in 16 bits that the others are compared with, and the formats in the order of
        ``PRECISIONS``.

    Raises:
        InputError: the heads cannot be split over ``tp`` GPUs.
    """
    base = _deployment(model, gpu, engine, "fp16", tp or 1)
    if tp is None:
        base = _fewest(base)
    check_split(base)
    tp = base.parallelism.tp
    slow = _seconds(base)
    can = (
        _deployment(model, gpu, engine, name, tp)
        for name in EIGHT_BITS
        if gpu.supports(find_precision(name))
    )
    eight = next((slow.over(_seconds(deployment)) for deployment in can), None)
    names = [name for name in (*PRECISIONS, SPARSE) if name not in {"fp16", "bf16"}]
    return base, tuple(
        _gain(_deployment(model, gpu, engine, name, tp), slow, eight) for name in names
    )


def _deployment(model: Model, gpu: Gpu, engine: str, precision: str, tp: int) -> Deployment:
    spec = find_engine(engine)
    return Deployment(
        model=model,
        gpu=gpu,
        precision=spec.runs(find_precision(precision), gpu),
        parallelism=Parallelism(tp=tp),
        engine=spec.name,
        knobs=default_knobs(spec, gpu, ranks=1),
    )


def _fewest(base: Deployment) -> Deployment:
    """The deployment on the fewest GPUs that hold the largest batch; on the most where none do."""
    deployment = base
    for tp in (1, 2, 4, 8):
        wider = _deployment(base.model, base.gpu, base.engine, base.precision.name, tp)
        try:
            check_split(wider)
            deployment = wider
            if memory_plan(wider).concurrent_requests(ISL, OSL) >= LARGE[-1]:
                return wider
        except InputError:
            continue
    return deployment


def _seconds(deployment: Deployment) -> Work:
    c = step_model(deployment).coefficients
    batches = (*SMALL, *LARGE)
    return Work(
        token={b: float(step_seconds(c, 0, 0, b, 0, b * ISL)) for b in batches},
        run={b: _run_seconds(c, b, deployment.knobs.max_num_tokens) for b in batches},
        prompt=float(step_seconds(c, ISL, 1, 0, ISL * ISL, 0)),
    )


def _run_seconds(c: NDArray[np.float64], batch: int, budget: int) -> float:
    """All prompts in steps of at most ``budget`` tokens, then all outputs together."""
    together, remaining, seconds = max(1, budget // ISL), batch, 0.0
    while remaining > 0:
        n = min(together, remaining)
        seconds += step_seconds(c, n * ISL, n, 0, n * ISL * ISL, 0)
        remaining -= n
    return float(
        seconds + sum(step_seconds(c, 0, 0, batch, 0, batch * (ISL + i)) for i in range(1, OSL))
    )


def _gain(deployment: Deployment, slow: Work, eight: Work | None) -> FormatGain:
    precision, lacks = deployment.precision, lacking(deployment)
    work = None if lacks else slow.over(_seconds(deployment))
    reference = work if eight is None else eight
    return FormatGain(
        precision=precision,
        lacks=lacks,
        weight_gb=weight_bytes(deployment) / 1e9,
        gain=work,
        small=None
        if work is None or reference is None
        else band(_mean(work.token, SMALL), _mean(reference.token, SMALL)),
        large=None
        if work is None or reference is None
        else band(_mean(work.run, LARGE), _mean(reference.run, LARGE)),
        published=trade_offs(precision),
        native=not precision.sparse
        and precision.weight_format == deployment.model.released.partition("+")[0],
        generations=tuple(dict.fromkeys(gpu.arch for gpu in gpus() if gpu.supports(precision))),
        marks=() if lacks else marks(deployment),
        unfitted=() if lacks else unfitted_formats_of(deployment),
    )


def lacking(deployment: Deployment) -> str:
    """What the hardware or the engine does not have for the precision, in words; empty where both
    do.
    """
    gpu = deployment.gpu.lacks(deployment.precision)
    return (
        f"{deployment.gpu.arch} has {gpu}"
        if gpu
        else find_engine(deployment.engine).lacks(deployment.precision)
    )


def _mean(values: dict[int, float], batches: tuple[int, ...]) -> float:
    return math.exp(sum(math.log(values[b]) for b in batches) / len(batches))


def band(gain: float, eight_bits: float) -> Band:
    """A gain in the words of the published table, next to that of 8-bit weights and activations on
    the same GPU.
    """
    if gain < NONE_BELOW:
        return "none"
    return "high" if gain >= HIGH_FROM * eight_bits else "medium"
