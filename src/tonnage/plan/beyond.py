"""Where a question leaves what was measured: one item for each thing of the choice that no measured row is near."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tonnage.plan.document import Tagged
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """Something that the choice is made of, and of which the fit had no row, or too few to tell.

    Attributes:
        code: what it is: a "model", a "gpu" (in as many bits), an "engine" (on the GPU ``on``), a kind of "layers" in the engine ``on``, a
            "format" of weights, "step-times" from elsewhere, "ranks" of attention or of experts in the engine ``on``, a "pipeline", or
            "speculation".
        name: what the plan calls it, such as "kimi-k3".
        on: the GPU or the engine with which it was not measured; "" where it was not measured at all.
        bits: the width of its arithmetic where the GPU was measured in another one alone; None elsewhere.
        rows: how many rows there are all the same, fewer than the fit needs to tell.
        nearest: the nearest that was measured; "" where nothing is near.
    """

    __pydantic_config__ = FORBID

    code: Literal["model", "gpu", "engine", "layers", "format", "step-times", "ranks", "pipeline", "speculation"]
    name: str
    on: str = ""
    bits: int | None = None
    rows: int = 0
    nearest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfRange:
    """A length, a load or a size of an instance beyond those of the measured rows of this engine and kind of model.

    Attributes:
        code: "isl", "osl" and "context" in tokens, "in-flight" in requests that an attention rank holds at once, "gpus" of an instance.
        value: what the question or the choice has: the mean, or the 95th percentile where ``tail`` is true.
        least, most: what was measured; None for those where only more than was measured is beyond.
        tail: whether only the longest of twenty are beyond.
    """

    __pydantic_config__ = FORBID

    code: Literal["isl", "osl", "context", "in-flight", "gpus"]
    value: float
    least: int | None = None
    most: int
    tail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoopNearSaturation:
    """The peak is so near to saturation that a usual error of step times lets queues grow.

    Attributes:
        share: load at the peak over what the instances complete when always busy.
        times: how many times as long p95 TTFT becomes if steps take longer by the usual error.
        below: the share up to which it becomes ``times_below`` times as long at most.
        times_below: see ``below``.
    """

    __pydantic_config__ = FORBID

    share: float
    times: float
    below: float
    times_below: float
    code: Literal["open-loop-near-saturation"] = "open-loop-near-saturation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoopNearSaturation:
    """The clients keep an instance so busy that its measured errors are larger.

    Attributes:
        share: load over what the instances complete when always busy.
        times: errors of p95 TTFT there over those below the share ``below``.
        below: see ``times``.
    """

    __pydantic_config__ = FORBID

    share: float
    times: float
    below: float
    code: Literal["closed-loop-near-saturation"] = "closed-loop-near-saturation"


Beyond = Annotated[Unmeasured | OutOfRange | OpenLoopNearSaturation | ClosedLoopNearSaturation, Tagged("code")]
