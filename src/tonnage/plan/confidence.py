"""How sure a number of systems is."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.spec.typed_values import FORBID

CONFIDENCE = 0.8
"""The confidence that decides where none is asked for."""

CONFIDENCES = (0.5, 0.99)
"""The lowest and the highest that can be asked for: beyond, no held-out error says anything."""

BESIDE = (0.5, 0.8, 0.95)
"""Those that a plan always names, beside the one that was asked for."""

MOST_TIMES = 2
"""A confidence above the asked one that takes more than this many times the systems is not reached: nobody would buy them."""


def percent_key(share: float) -> str:
    """A confidence as ``Confidence.systems`` names it: "80"."""
    return f"{100 * share:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure the number of systems is.

    Attributes:
        asked: the confidence that was asked for, as a share; the number of systems is the smallest that reaches it.
        meets: probability that this number of systems carries the peak inside the limits; None where it was not looked for, as of
            deployments beside the choice.
        systems: systems (spare ones included) that do with 50, 80 and 95 % confidence and with the asked one, by percent; None where no
            number does, or only one that is more than ``MOST_TIMES`` the plan's. Of deployments beside the choice only the one that
            decided is known.
        step_factors: the factors on step times that stand for these.
        metric: the metric whose held-out prediction errors these are: "ttft_ms", "itl_ms", "e2e_ms" or "requests_s".
    """

    __pydantic_config__ = FORBID

    asked: float = CONFIDENCE
    meets: float | None
    systems: dict[str, int | None]
    step_factors: dict[str, float]
    metric: str

    @property
    def reached(self) -> bool:
        """Whether some number of systems reaches the asked confidence."""
        return self.systems.get(percent_key(self.asked)) is not None

    @property
    def counted(self) -> float | None:
        """The confidence that the systems are counted for: the asked one, else the highest below it that is reached; None without any."""
        below = (float(level) / 100 for level, count in self.systems.items() if count is not None and float(level) < 100 * self.asked)
        return self.asked if self.reached else max(below, default=None)
