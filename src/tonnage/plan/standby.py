"""What stands by for failures, and how often enough of it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.typed_values import FORBID

Unit = Literal["system", "instance"]

HOURS_PER_YEAR = 8_760.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """Units that fail one by one, and how many of them there are beyond those that the peak needs.

    Attributes:
        unit: what fails at once: a whole system, or one instance.
        needed: units that carry the peak inside the limits.
        standing: units that there are.
        extra_systems: systems that were added for failures, beyond the spare ones that were asked for.
        mtbf_hours, repair_hours: mean time between failures of one unit, and until it works again; None where not given.
        repairers: repairs that go on at once; None for as many as there are failures.
        asked: probability that was asked for; None where none was.
        availability: probability that at least ``needed`` units work; None where no times are given.
    """

    __pydantic_config__ = FORBID

    unit: Unit
    needed: int
    standing: int
    extra_systems: int = 0
    mtbf_hours: float | None = None
    repair_hours: float | None = None
    repairers: int | None = None
    asked: float | None = None
    availability: float | None = None

    @property
    def short_hours_per_year(self) -> float | None:
        """Hours of a year in which fewer units work than the peak needs; None where no times are given."""
        return None if self.availability is None else (1 - self.availability) * HOURS_PER_YEAR
