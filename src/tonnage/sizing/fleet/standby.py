"""The units on standby for failures, added to what a candidate needs for its peak."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tonnage.errors import InputError, option
from tonnage.plan.candidate import Candidate, Confidence
from tonnage.plan.fleet import Standby, Unit
from tonnage.plan.sensitivity import Changed, Sensitivity

# How often enough units work: the machine-repairman formula, and the fewest units for an
# availability. ``total`` equal units fail one by one at the rate 1/MTBF each, whether they carry
# load or are on standby, and are repaired at the rate 1/MTTR each, at most ``repairers`` at once.
# The number of units that are down is a birth-death process, and in its steady state p(n) = p(0) ·
# (MTTR/MTBF)^n · Π_{i=1..n} (total − i + 1) / min(i, repairers) (the machine interference or
# machine-repairman model: Palm 1947; Feller, An Introduction to Probability Theory and Its
# Applications I, XVII.7). With as many repairers as units it is the binomial distribution, which
# then holds for any distribution of the two times.


MOST_UNITS = 1_000_000
"""Most units that are looked at."""

SETTLED, NOTHING = 64, 1e-12
"""From so many extra units on, twice as many that change an availability by less than this will
never reach what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How units fail.

    Attributes:
        mtbf_hours: mean time from a repair to the next failure of one unit.
        repair_hours: mean time from a failure until the unit works again, without waiting for a
            repairer.
        repairers: repairs that go on at once; None for as many as there are failures.
    """

    mtbf_hours: float
    repair_hours: float
    repairers: int | None = None

    def down(self, total: int) -> tuple[float, ...]:
        """The probability that 0, 1, … ``total`` units are down."""
        logs, level = [0.0], 0.0
        for n in range(1, total + 1):
            level += (
                math.log(self.repair_hours / self.mtbf_hours)
                + math.log(total - n + 1)
                - math.log(min(n, self.repairers or total))
            )
            logs.append(level)
        highest = max(logs)
        weights = [math.exp(log - highest) for log in logs]
        whole = math.fsum(weights)
        return tuple(weight / whole for weight in weights)

    def availability(self, total: int, needed: int) -> float:
        """The probability that at least ``needed`` of ``total`` units work."""
        if needed > total:
            return 0.0
        return min(1.0, max(0.0, 1.0 - math.fsum(self.down(total)[total - needed + 1 :])))

    def standing(self, needed: int, availability: float) -> int:
        """The fewest units of which ``needed`` work with the probability ``availability``.

        Raises:
            InputError: more units do not help, because the repairers cannot keep up.
        """
        if self.availability(needed, needed) >= availability:
            return needed
        low, extra, before = 0, 1, -1.0
        while needed + extra <= MOST_UNITS:
            reached = self.availability(needed + extra, needed)
            if reached >= availability:
                return needed + self._fewest(needed, availability, low, extra)
            if self.repairers is not None and extra >= SETTLED and reached - before < NOTHING:
                break
            low, extra, before = extra, 2 * extra, reached
        raise InputError(
            f"{option('availability')}: {100 * availability:.6g}% is never reached with {needed}"
            " in use:"
            f" {self.repairers or 'all'} at once under repair for {self.repair_hours:g} h and"
            f" {self.mtbf_hours:g} h between failures; give more {option('repairers')}"
        )

    def _fewest(self, needed: int, availability: float, low: int, high: int) -> int:
        """The fewest extra units above ``low`` and up to ``high``, which do; more never work less
        often.
        """
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (low, middle)
                if self.availability(needed + middle, needed) >= availability
                else (middle, high)
            )
        return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Standby systems for failures, as requested.

    Attributes:
        unit: what fails at once.
        asked: probability that enough units work; None where none was requested.
        failures: how units fail; None where it was not given.
        spare_instances: beyond the need of the load.
    """

    unit: Unit = "system"
    asked: float | None = None
    failures: Failures | None = None
    spare_instances: int = 0


def with_standby(
    candidate: Candidate,
    *,
    load: float,
    spare: int,
    unit: Unit = "system",
    availability: float | None = None,
    failures: Failures | None = None,
    spare_instances: int = 0,
) -> Candidate:
    """The candidate with as many systems more as failures ask for.

    Args:
        candidate: of one pool; its number of systems holds ``spare`` systems already.
        load: requests per second at the peak.
        spare: systems beyond the need of the load.
        unit: what fails at once. An instance that spans several systems is down when one of them
            is.
        availability: probability that enough units work; None to add none for it.
        failures: how units fail; None where that is not known.
        spare_instances: instances beyond the need of the load.

    Raises:
        InputError: the repairers cannot keep up with the failures.
    """
    if len(candidate.pools) != 1:
        return candidate
    fleet = candidate.pool.fleet
    unit = "instance" if fleet.systems_per_instance > 1 else unit
    serving = fleet.of(candidate.systems - spare)
    instances = min(serving.instances, math.ceil(round(load / candidate.sized_rate, 9)))
    needed = serving.systems if unit == "system" else instances
    systems = max(candidate.systems, fleet.holding(instances + spare_instances).systems)
    if failures is not None and availability is not None:
        units = failures.standing(needed, availability)
        systems = max(systems, units if unit == "system" else fleet.holding(units).systems)
    whole = fleet.of(systems)
    standing = systems if unit == "system" else whole.instances
    standby = Standby(
        unit=unit,
        needed=needed,
        standing=standing,
        extra_systems=systems - candidate.systems,
        mtbf_hours=None if failures is None else failures.mtbf_hours,
        repair_hours=None if failures is None else failures.repair_hours,
        repairers=None if failures is None else failures.repairers,
        asked=availability,
        availability=None if failures is None else failures.availability(standing, needed),
    )
    more = (candidate.headroom_to_saturation + 1) * whole.instances / candidate.instances - 1
    grown = replace(
        candidate.on(systems=systems, instances=whole.instances),
        standby=standby,
        headroom_to_saturation=more,
    )
    return replace(grown, confidence=_confidence(candidate.confidence, standby, spare, failures))


def standing_by(
    needed: int, unit: Unit, reserve: Reserve, availability: float | None, extra: int = 0
) -> Standby:
    """The units of a fleet, such as the systems of one kind, with standby ones for failures, and
    ``extra`` in any case.

    ``needed`` carry the peak; enough work with the probability ``availability``. Raises InputError:
    the repairers cannot keep up.
    """
    failures = reserve.failures
    standing = needed + extra
    if failures is not None and availability is not None:
        standing = max(standing, failures.standing(needed, availability))
    return Standby(
        unit=unit,
        needed=needed,
        standing=standing,
        mtbf_hours=None if failures is None else failures.mtbf_hours,
        repair_hours=None if failures is None else failures.repair_hours,
        repairers=None if failures is None else failures.repairers,
        asked=reserve.asked,
        availability=None if failures is None else failures.availability(standing, needed),
    )


def _confidence(
    sure: Confidence | None, standby: Standby, spare: int, failures: Failures | None
) -> Confidence | None:
    """The systems at each confidence, with standby systems for each of these numbers."""
    if sure is None:
        return None

    def grown(count: int) -> int:
        if standby.unit == "system" and failures is not None and standby.asked is not None:
            return max(count, failures.standing(count - spare, standby.asked))
        return count + standby.extra_systems

    return replace(
        sure,
        systems={
            level: None if count is None else grown(count) for level, count in sure.systems.items()
        },
    )


def shifted(sensitivity: Sensitivity | None, extra: int) -> Sensitivity | None:
    """The sensitivity with standby systems added to every number of systems: as many as of the plan
    itself.
    """
    if sensitivity is None or not extra:
        return sensitivity

    def more(changed: Changed) -> Changed:
        return (
            changed
            if changed.systems is None
            else replace(changed, systems=changed.systems + extra)
        )

    swings = tuple(
        replace(swing, low=more(swing.low), high=more(swing.high)) for swing in sensitivity.swings
    )
    relaxed = (
        None
        if sensitivity.relaxed is None
        else replace(sensitivity.relaxed, systems=sensitivity.relaxed.systems + extra)
    )
    spreads = tuple(replace(spread, answer=more(spread.answer)) for spread in sensitivity.spreads)
    return replace(
        sensitivity,
        systems=sensitivity.systems + extra,
        swings=swings,
        relaxed=relaxed,
        spreads=spreads,
    )
