"""The time that a user takes between an answer and the next question, or a tool between a call and its result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.units import format_duration, parse_duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The time that a user takes to read an answer and to write the next question.

    Attributes:
        mean_s: in seconds.
        exponential: whether it is drawn from an exponential distribution; otherwise it is always the mean.
    """

    mean_s: float = 0.0
    exponential: bool = False

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """So many pauses in nanoseconds."""
        import numpy as np

        scale = self.mean_s * 1e9
        return np.rint(rng.exponential(scale, count) if self.exponential else np.full(count, scale)).astype(np.int64)

    def within(self, seconds: float) -> float:
        """The share of such pauses that are no longer than that."""
        if self.exponential and self.mean_s > 0:
            return 1.0 - math.exp(-seconds / self.mean_s)
        return float(seconds >= self.mean_s)

    def __str__(self) -> str:
        """Such as "30 s", or "30 s on average" where it is drawn."""
        return f"{format_duration(self.mean_s)}{' on average' if self.exponential else ''}"


def parse_pause(text: str, where: str) -> Pause:
    """Read "2s" or "exponential:2s".

    Raises:
        InputError: anything else.
    """
    kind, colon, rest = text.strip().partition(":")
    if colon and kind.strip().lower() != "exponential":
        raise InputError(f"{where}: '{text}' is no pause; write for example 2s or exponential:2s")
    return Pause(mean_s=parse_duration(rest if colon else kind, where), exponential=bool(colon))
