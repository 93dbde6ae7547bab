"""How often enough units work: the machine-repairman formula, and the fewest units for an availability.

``total`` equal units fail one by one at the rate 1/MTBF each, whether they carry load or stand by, and are repaired at the rate 1/MTTR
each, at most ``repairers`` at once. The number of units that are down is a birth-death process, and in its steady state

    p(n) = p(0) · (MTTR/MTBF)^n · Π_{i=1..n} (total − i + 1) / min(i, repairers)

(the machine interference or machine-repairman model: Palm 1947; Feller, An Introduction to Probability Theory and Its Applications I,
XVII.7). With as many repairers as units it is the binomial distribution, which then holds for any distribution of the two times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tonnage.errors import InputError, option

MOST_UNITS = 1_000_000
"""Most units that are looked at."""

SETTLED, NOTHING = 64, 1e-12
"""From so many extra units on, twice as many that change an availability by less than this will never reach what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How units fail.

    Attributes:
        mtbf_hours: mean time from a repair to the next failure of one unit.
        repair_hours: mean time from a failure until the unit works again, without waiting for a repairer.
        repairers: repairs that go on at once; None for as many as there are failures.
    """

    mtbf_hours: float
    repair_hours: float
    repairers: int | None = None

    def down(self, total: int) -> tuple[float, ...]:
        """The probability that 0, 1, … ``total`` units are down."""
        logs, level = [0.0], 0.0
        for n in range(1, total + 1):
            level += math.log(self.repair_hours / self.mtbf_hours) + math.log(total - n + 1) - math.log(min(n, self.repairers or total))
            logs.append(level)
        highest = max(logs)
        weights = [math.exp(each - highest) for each in logs]
        whole = math.fsum(weights)
        return tuple(weight / whole for weight in weights)

    def availability(self, total: int, needed: int) -> float:
        """The probability that at least ``needed`` of ``total`` units work."""
        if needed > total:
            return 0.0
        return min(1.0, max(0.0, 1.0 - math.fsum(self.down(total)[total - needed + 1 :])))

    def standing(self, needed: int, asked: float) -> int:
        """The fewest units of which ``needed`` work with the probability ``asked``.

        Raises:
            InputError: more units do not help, because the repairers cannot keep up.
        """
        if self.availability(needed, needed) >= asked:
            return needed
        low, extra, before = 0, 1, -1.0
        while needed + extra <= MOST_UNITS:
            reached = self.availability(needed + extra, needed)
            if reached >= asked:
                return needed + self._fewest(needed, asked, low, extra)
            if self.repairers is not None and extra >= SETTLED and reached - before < NOTHING:
                break
            low, extra, before = extra, 2 * extra, reached
        raise InputError(
            f"{option('availability')}: {100 * asked:.6g}% is never reached with {needed} in use: {self.repairers or 'all'} at once under "
            f"repair for {self.repair_hours:g} h and {self.mtbf_hours:g} h between failures; give more {option('repairers')}"
        )

    def _fewest(self, needed: int, asked: float, low: int, high: int) -> int:
        """The fewest extra units above ``low`` and up to ``high``, which do; more never work less often."""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.availability(needed + middle, needed) >= asked else (middle, high)
        return high
