"""The highest load that passes, searched where one answer may be wrong: bisection with probabilities.

What is believed of the threshold is a probability for each load of a fine grid. Each run at a load answers "passes" or
"fails" and how sure that is, which makes the loads above or below it more likely by Bayes' rule; the next run is made at
the median (Horstein, "Sequential transmission using noiseless feedback", IEEE Transactions on Information Theory 9, 1963).

A wrong answer is likely near the threshold and rare far from it, which is what makes the interval narrow: a run that fails says little
of the loads just below it, and nearly rules out those that lie well above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GROWTH = 2.0
"""Factor between two loads while none has failed."""

CELLS = 2_000
CONFIDENCE = 0.9
SUREST = 0.98
"""However clear an answer looks, at another time the same load may have given the other one."""

NEAR = 0.02
"""Standard deviation by which the threshold differs from run to run, as a share; of an answer that is not sure it counts for more."""

ODD = 0.005
"""Probability of a wrong answer far from the threshold: the run was an odd one."""

SETTLED, TAIL = 7, 0.08
"""Answers after which an end of the interval that is farther from the median than this share is looked at."""

LOGISTIC = 1.702
"""Makes the logistic function nearly the normal distribution's."""

LEAST_SURE = 0.05
"""By which an answer is surer than a coin, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one run said.

    Attributes:
        load: of the run.
        passed: whether it met the limits.
        sure: probability that this is right, from 0.5 to 1.
    """

    load: float
    passed: bool
    sure: float


class Threshold:
    """Where loads begin to fail, as far as the answers so far tell."""

    def __init__(self, start: float, *, whole: bool = False, precision: float = 0.05) -> None:
        """Begin at a load that may pass or fail.

        Args:
            start: the first load.
            whole: whether loads are whole numbers.
            precision: width of the interval over its middle at which the search may end.
        """
        self._whole = whole
        self._precision = precision
        self._next = start
        self._passed: float | None = None
        self._failed: float | None = None
        self._loads: NDArray[np.float64] | None = None
        self._weights: NDArray[np.float64] | None = None
        self.answers: list[Answer] = []

    @property
    def load(self) -> float:
        """The load of the next run."""
        return float(max(1, round(self._next))) if self._whole else self._next

    def tell(self, *, passed: bool, sure: float) -> None:
        """Take the answer of the run at ``load``."""
        answer = Answer(load=self.load, passed=passed, sure=min(max(sure, 0.5), SUREST))
        self.answers.append(answer)
        if self._loads is None:
            self._bracket(answer)
        else:
            self._weigh(answer)
        if self._loads is not None:
            self._next = self._following()

    def _following(self) -> float:
        """The load of the next run: the median, or what lies between it and an end of the interval that is far away.

        Once the median is settled, further runs there say little: a tail that an odd answer has left is cut off by a run inside it.
        """
        low, middle, high = (self._quantile(share) for share in ((1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2))
        far = high if high / middle > middle / low else low
        tail = abs(math.log(far / middle))
        settled = len(self.answers) >= SETTLED and tail > TAIL
        return math.sqrt(middle * far) if settled else middle

    def _bracket(self, answer: Answer) -> None:
        """Double or halve until one load has passed and one has failed; then weigh every answer on the grid between."""
        import numpy as np

        if answer.passed:
            self._passed = answer.load
        else:
            self._failed = answer.load
        if self._passed is None:
            self._next = answer.load / GROWTH
        elif self._failed is None:
            self._next = answer.load * GROWTH
        else:
            # One step beyond either end, in case an answer there was wrong.
            low, high = self._passed / GROWTH, self._failed * GROWTH
            self._loads = np.geomspace(low, high, CELLS)
            self._weights = np.full(CELLS, 1 / CELLS)
            for known in self.answers:
                self._weigh(known)

    def _weigh(self, answer: Answer) -> None:
        import numpy as np

        if self._loads is None or self._weights is None:
            return
        scale = NEAR / max(2 * answer.sure - 1, LEAST_SURE)
        passes = ODD + (1 - 2 * ODD) / (1 + np.exp(-LOGISTIC * np.log(self._loads / answer.load) / scale))
        weights = self._weights * (passes if answer.passed else 1 - passes)
        self._weights = weights / weights.sum()

    def _quantile(self, share: float) -> float:
        import numpy as np

        if self._loads is None or self._weights is None:
            return math.nan
        place = int(np.searchsorted(np.cumsum(self._weights), share))
        return float(self._loads[min(place, CELLS - 1)])

    @property
    def middle(self) -> float:
        """The median of what is believed; the highest load that passed, or NaN, while none has failed or none has passed."""
        if self._loads is None:
            return self._passed if self._passed is not None else math.nan
        return self._quantile(0.5)

    @property
    def interval(self) -> tuple[float, float]:
        """Between which loads the threshold lies with a confidence of 0.9."""
        if self._loads is None:
            return (self._passed or 0.0, self._failed if self._failed is not None else math.inf)
        return self._quantile((1 - CONFIDENCE) / 2), self._quantile((1 + CONFIDENCE) / 2)

    @property
    def found(self) -> bool:
        """Whether the interval is narrow enough, or holds no further whole number."""
        low, high = self.interval
        if self._loads is None or not low:
            return self._whole and self._failed == 1
        if self._whole and math.floor(high) - math.ceil(low) < 1:
            return True
        return (high - low) / self.middle <= self._precision
