"""Where a question leaves what was measured: one item for each part of the choice that has no measured row near it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tonnage.plan.document import Tagged
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """A part of the choice of which the fit had no row, or too few.

    Attributes:
        code: a "model", a "gpu" (in as many bits), an "engine" (on the GPU ``on``), a kind of "layers" in the engine ``on``, a "format" of
            weights, "step-times" from elsewhere, "ranks" of attention or of experts in the engine ``on``, a "pipeline", "speculation", or
            "prefix-caching".
        name: its name in the plan, such as "kimi-k3".
        on: the GPU or the engine with which it was not measured; "" where it was not measured at all.
        bits: the width of its arithmetic where the GPU was measured only in another width; None elsewhere.
        rows: the rows that there are, fewer than the fit needs.
        nearest: the nearest measured one; "" where nothing is near.
    """

    __pydantic_config__ = FORBID

    code: Literal["model", "gpu", "engine", "layers", "format", "step-times", "ranks", "pipeline", "speculation", "prefix-caching"]
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
        value: that of the question or the choice: the mean, or the 95th percentile where ``tail`` is true.
        least, most: the measured range; ``least`` is None where it has no lower end.
        tail: whether the mean is inside the range and the 95th percentile outside.
    """

    __pydantic_config__ = FORBID

    code: Literal["isl", "osl", "context", "in-flight", "gpus"]
    value: float
    least: int | None = None
    most: int
    tail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoopNearSaturation:
    """The peak is so near saturation that a typical error of step times makes queues grow.

    Attributes:
        share: load at the peak over the saturation of the instances.
        times: factor on p95 TTFT if steps take longer by the typical error.
        below: the share of saturation up to which that factor is at most ``times_below``.
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
    """The clients keep the instances so busy that the errors of predictions are larger.

    Attributes:
        share: load over the saturation of the instances.
        times: held-out errors of p95 TTFT there over those below the share ``below``.
        below: see ``times``.
    """

    __pydantic_config__ = FORBID

    share: float
    times: float
    below: float
    code: Literal["closed-loop-near-saturation"] = "closed-loop-near-saturation"


Beyond = Annotated[Unmeasured | OutOfRange | OpenLoopNearSaturation | ClosedLoopNearSaturation, Tagged("code")]
