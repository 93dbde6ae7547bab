"""What would change the answer: the systems at other inputs, and the cheapest limit to relax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.plan.identity import Identity
from tonnage.plan.limit import Limit
from tonnage.plan.reason import Reason
from tonnage.spec.typed_values import FORBID

Input = Literal["isl", "osl", "rate", "step_time"]
"""Input length, output length, requests per second, and the time of a step (an error of the model)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The answer with one input changed.

    Attributes:
        change: relative, such as −0.2.
        systems: bought then; None where nothing meets the limits.
        systems_exact: without rounding and spare; None as above.
        deployment: what is chosen then; None as above.
        gpus: of these systems; 0 as above.
        reason: why nothing meets the limits; otherwise None.
    """

    __pydantic_config__ = FORBID

    change: float
    systems: int | None
    systems_exact: float | None
    deployment: Identity | None
    gpus: int = 0
    reason: Reason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """One input, and the answers where it is lower and higher."""

    __pydantic_config__ = FORBID

    input: Input
    low: Changed
    high: Changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """The cheapest limit to relax: by the smallest factor that saves a system.

    Attributes:
        limit: as asked.
        to_ms: the limit as relaxed, in milliseconds.
        systems: needed then.
        saved: systems fewer.
        gpus: of these systems.
    """

    __pydantic_config__ = FORBID

    limit: Limit
    to_ms: float
    systems: int
    saved: int
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What would change the answer.

    Attributes:
        systems, systems_exact: of the plan itself.
        swings: one per input.
        relaxed: the cheapest relaxed limit that saves a system; None where none does.
    """

    __pydantic_config__ = FORBID

    systems: int
    systems_exact: float
    swings: tuple[Swing, ...]
    relaxed: Relaxed | None
