"""How sure a number of systems is."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure the number of systems is.

    Attributes:
        meets: probability that the chosen number of systems carries the peak inside the limits.
        systems: systems (spare ones included) that do with 50, 80 and 95 % confidence, by percent; None where none does.
        step_factors: the factors on step times that stand for these.
        metric: the metric whose held-out prediction errors these are: "ttft_ms", "itl_ms", "e2e_ms" or "requests_s".
    """

    __pydantic_config__ = FORBID

    meets: float
    systems: dict[str, int | None]
    step_factors: dict[str, float]
    metric: str
