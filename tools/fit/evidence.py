"""What is known about the lines of a file that the fit does not use: each with the class of the
evidence against it.

A line may be left out because its source says that it is something else, because the same was
measured twice, or because no machine can have done it. What is left are lines that only contradict
the predictions. Nobody can rule out that they are right, so that they are predicted and counted all
the same, as a stratum of their own ("unexplained"), and only the fit does without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

Evidence = Literal[
    "stated-by-source", "measured-twice", "physically-impossible", "only-contradicts-us"
]
"""Why a line is left out of the fit: the line or its source says that it is something else or does
not say enough; the same measurement is in the file twice; no machine can have measured it; or
nothing is known but that predictions lie elsewhere."""

STATED: Evidence = "stated-by-source"
TWICE: Evidence = "measured-twice"
IMPOSSIBLE: Evidence = "physically-impossible"
CONTRADICTS: Evidence = "only-contradicts-us"
CLASSES = (STATED, TWICE, IMPOSSIBLE, CONTRADICTS)

UNEXPLAINED = "unexplained"
"""The name of the stratum of lines that only contradict the predictions."""


class LeftOutLines:
    """The lines that a selection did not use, counted by reason and by class of evidence, and the
    rows of the last class.

    Attributes:
        reasons, classes: how many lines.
        unexplained: rows of lines that only contradict the predictions, each measurement once.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.reasons: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.unexplained: dict[Any, dict[str, Any]] = {}

    def count(self, reason: str, evidence: Evidence) -> None:
        """Count a line."""
        self.reasons[reason] += 1
        self.classes[evidence] += 1

    def keep(self, measurement: Any, row: Mapping[str, Any], reason: str) -> None:
        """Count a line that only contradicts the predictions, and keep its row, unless the
        measurement is there already.
        """
        if measurement in self.unexplained:
            self.count("same measurement in another dump", TWICE)
        else:
            self.count(reason, CONTRADICTS)
            self.unexplained[measurement] = {**row, "why": reason}
