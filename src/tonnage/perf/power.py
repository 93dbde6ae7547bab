"""Watts of a GPU by what its steps do: idle, memory traffic, arithmetic, and experts whose weights
are scaled by blocks.

A step reads weights and KV cache for some of its time and computes for some of it
(``perf.step_terms`` has both in seconds, before they are joined). The shares of a step, traffic u
and arithmetic a, give the watts of one of its GPUs:

    P = idle + TDP · (traffic · √u + arithmetic · √a + blocks),   at most TDP.

The root says that a unit that is busy for a tenth of a step still draws a third of its watts:
clocks and voltage stay up between kernels. The term ``blocks`` is of mixtures of experts in FP8
with a scale per block of weights, whose kernels draw more on every engine that was measured. The
fit gives links no watts. The three numbers and the errors of models that were left out are fitted
by ``./fit energy`` (docs/cost.md); idle watts are read off nvidia-smi.

A power limit makes arithmetic slower: its rate follows the watts to a power that published sweeps
give (``clocks`` of ``power.json``). Reading keeps its rate, since the clock of the memory does not
change, and a step that draws less than the limit draws what it did. Locked clocks lower the watts
of every step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tonnage.perf import shipped_json
from tonnage.perf import step_terms as at
from tonnage.perf.matrices import scaled_by_blocks
from tonnage.perf.step import attention_seconds, context_seconds, step_seconds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Deployment
    from tonnage.spec.hardware import Gpu

AGAIN = "write it with ./fit energy"
TERMS = ("traffic", "arithmetic", "blocks")
"""The fitted numbers, as shares of the TDP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What a mean step of one attention rank holds, and how long it takes."""

    sequences: float  # that decode, at least 1 while there is a step
    prompt_tokens: float  # new prompt tokens in it
    isl: float  # tokens of a prompt, which the new ones attend to
    context: float  # mean tokens of a sequence that decodes
    seconds: float  # of the step


def shares(
    deployment: Deployment, c: NDArray[np.float64], load: StepLoad
) -> tuple[float, float, float]:
    """What the terms are multiplied with: the roots of the shares of a step in which it reads and
    computes, and 1 with block scales.
    """
    tokens = load.sequences + load.prompt_tokens
    touched = 1.0 - float(c[at.EXPERT_REST]) * float(c[at.EXPERT_MISS]) ** tokens
    contexts = context_seconds(c, max(1, round(load.sequences))) * load.sequences * load.context
    reading = (
        c[at.LINEAR_BYTES]
        + c[at.EXPERT_BYTES] * touched
        + c[at.HEAD_BYTES]
        + c[at.ACTIVATION] * tokens
    )
    reading += contexts + c[at.BOUNDED] * load.sequences
    computing = (c[at.LINEAR_FLOPS] + c[at.EXPERT_FLOPS]) * tokens + c[
        at.HEAD_FLOPS
    ] * load.sequences
    computing += attention_seconds(c, load.prompt_tokens, load.prompt_tokens * load.isl)  # type: ignore[arg-type]
    model, precision = deployment.model, deployment.gpu.executes(deployment.precision)
    roots = (math.sqrt(min(1.0, float(seconds) / load.seconds)) for seconds in (reading, computing))
    return (*roots, 1.0 if model.is_moe and scaled_by_blocks(model, precision) else 0.0)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The power of one GPU."""

    watts: float  # mean, the time without a step included
    idle_watts: float  # without any step
    busy: float  # share of the time in which there is a step
    # low, high: factors on the watts between which a measurement is expected with a probability of
    # 80 %
    low: float
    high: float


def idle_watts(gpu: Gpu) -> float | None:
    """Watts of a GPU without work: read off for its kind, else the share of the TDP that those
    have; None where its TDP is unknown.
    """
    return None if gpu.tdp_w is None else _idle(gpu.name, gpu.tdp_w)


def _idle(name: str, tdp_w: float) -> float:
    idle = _shipped()["idle_watts"]
    measured = idle.get(name)
    return float(measured["watts"] if measured else idle["share_of_tdp"] * tdp_w)


def clock(gpu: Gpu) -> float:
    """Share of its rate that arithmetic keeps under the GPU's power limit, or with its clocks
    locked; 1 without either.
    """
    if gpu.power_cap_w is None or gpu.tdp_w is None:
        return gpu.clock
    return float((gpu.power_cap_w / gpu.tdp_w) ** _shipped()["clocks"]["rate_exponent"])


def limit_mark(gpu: Gpu) -> str:
    """What a prediction for a GPU with a power limit or locked clocks is marked with; "" for
    others.
    """
    rate = clock(gpu)
    if rate == 1.0:
        return ""
    if gpu.power_cap_w is None:
        return (
            f"{gpu.name}: clocks locked to {rate:.0%}; times and watts are estimated from published"
            " runs of other GPUs"
        )
    what = f"power cap {gpu.power_cap_w:g} W of {gpu.tdp_w:g} W"
    return (
        f"{gpu.name}: {what}; arithmetic at {rate:.0%} of its rate, estimated from published sweeps"
        " of other GPUs"
    )


def draw(
    deployment: Deployment, c: NDArray[np.float64], load: StepLoad, *, busy: float = 1.0
) -> Draw | None:
    """The power of each GPU of an instance in its mean step, ``busy`` a share of the time; None
    where the TDP of its GPU is not known.
    """
    gpu, fitted = deployment.gpu, _shipped()
    if gpu.tdp_w is None:
        return None
    idle = _idle(gpu.name, gpu.tdp_w)
    exponents = fitted["clocks"]
    slower = (
        gpu.clock ** exponents["traffic_exponent"],
        *2 * (gpu.clock ** (1 / exponents["rate_exponent"]),),
    )
    of_terms = zip(TERMS, shares(deployment, c, load), slower, strict=True)
    working = idle + gpu.tdp_w * sum(
        fitted["terms"][name] * share * clock_factor for name, share, clock_factor in of_terms
    )
    working = min(working, gpu.tdp_w if gpu.power_cap_w is None else gpu.power_cap_w)
    errors = fitted["errors"].get(gpu.name, fitted["errors"])
    low, high = (math.exp(errors[name]) for name in ("q10", "q90"))
    return Draw(
        watts=idle + busy * (working - idle), idle_watts=idle, busy=busy, low=low, high=high
    )


def steady_load(
    deployment: Deployment,
    c: NDArray[np.float64],
    *,
    requests_per_second: float,
    isl: float,
    osl: float,
    computed: float,
) -> tuple[StepLoad, float]:
    """The mean step of an instance under a load, by closed form, and the share of the time in which
    there is one.

    Every sequence is there for as many steps as it has output tokens, so that n = rate · output
    tokens · seconds of a step with n sequences and their share of prompts. Poisson arrivals leave
    the instance empty for exp(−n) of the time (an M/G/∞ queue); the steps of the rest hold more
    than n.

    Args:
        deployment, c: the instance and its coefficients.
        requests_per_second: of the instance, all of its attention ranks together.
        isl, osl: mean tokens of a prompt and of an output.
        computed: tokens of a prompt that no cache holds.
    """
    rate = requests_per_second / deployment.parallelism.dp
    slots = float(deployment.knobs.max_batch_size)
    load = StepLoad(
        sequences=1.0, prompt_tokens=computed / osl, isl=isl, context=isl + osl / 2, seconds=1.0
    )

    def step(sequences: float) -> StepLoad:
        prompts = sequences * computed / osl
        pairs, contexts = prompts * (2 * isl - computed), sequences * load.context
        seconds = step_seconds(c, prompts, sequences / osl, max(1.0, sequences), pairs, contexts)  # type: ignore[arg-type]
        return replace(load, sequences=sequences, prompt_tokens=prompts, seconds=float(seconds))

    low, high = 0.0, slots
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if rate * osl * step(max(1.0, middle)).seconds > middle
            else (low, middle)
        )
    busy = -math.expm1(-high * deployment.parallelism.dp)
    return step(min(slots, max(1.0, high / busy))), busy


def seen_load(
    *, sequences: float, tokens_per_second: float, isl: float, osl: float, ranks: int = 1
) -> tuple[StepLoad, float]:
    """The mean step of an instance that was seen, and the share of the time in which there was one.

    Args:
        sequences: that decode at once, of all attention ranks; below one a rank there is not always
            a step.
        tokens_per_second: output tokens, of all of them.
        isl, osl: mean tokens of a prompt and of an output.
        ranks: attention ranks.
    """
    per_rank = max(1.0, sequences / ranks)
    seconds = sequences / tokens_per_second
    return StepLoad(
        sequences=per_rank,
        prompt_tokens=per_rank * isl / osl,
        isl=isl,
        context=isl + osl / 2,
        seconds=seconds,
    ), min(1.0, sequences / ranks)


@cache
def _shipped() -> dict[str, Any]:
    """The fitted terms, the idle watts with their sources, and the errors of models that were left
    out.
    """
    return shipped_json("power.json", AGAIN)
