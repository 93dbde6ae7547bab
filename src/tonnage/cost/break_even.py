"""Where two costs cross as the volume of requests grows.

Each cost is a curve over requests per year: a base, a slope, and a jump wherever one more instance
or system is needed. Between jumps both are straight lines, so the crossings are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from tonnage.cost.cost import api_request, system_parts
from tonnage.cost.options import Rent, instances_on, needed, on_prem, peak_of, rents_of, systems_for
from tonnage.plan.cost import BreakEven, Serving, Traffic
from tonnage.plan.notes import NoCost
from tonnage.spec.prices import Prices

LOOK_AHEAD = 10.0  # break-evens are looked for up to so many times the volume of the plan …

MOST_JUMPS = 200_000  # … or up to fewer, where more jumps than these would have to be looked at

TIE = 1e-12  # two costs that differ by less than this share of the larger are the same

# two volumes that differ by less than this share are the same: the share at which a rate still
# divides evenly
SAME_VOLUME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """USD a year over requests a year."""

    base: float  # USD at the smallest volume
    slope: float  # USD per request
    # (volume, USD): what more is paid at every volume above ``volume``, in any order
    jumps: tuple[tuple[float, float], ...] = ()

    def at(self, volume: float) -> float:
        """USD a year at that volume."""
        return (
            self.base
            + self.slope * volume
            + sum(usd for where, usd in self.jumps if where < volume)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A volume where the cheaper of two changes: ``first_cheaper_above`` says whether the first
    curve is the cheaper above it.
    """

    volume: float
    first_cheaper_above: bool


def crossings(
    first: Curve, second: Curve, up_to: float
) -> tuple[bool | None, tuple[Crossing, ...]]:
    """Whether the first is the cheaper at small volumes (None where they never differ), and every
    change up to a volume.

    At a jump the dearer cost begins just above the volume of the jump.
    """
    steps = _steps(first, second, up_to)
    edges = list(steps)
    gap, slope = first.base - second.base, first.slope - second.slope
    scale = max(
        abs(first.base),
        abs(second.base),
        abs(first.slope * up_to),
        abs(second.slope * up_to),
        1e-300,
    )
    at_start: bool | None = None
    cheaper: bool | None = None
    crossings: list[Crossing] = []
    for begin, end in zip(edges, [*edges[1:], up_to], strict=True):
        gap += steps[begin]
        for volume, side in _sides(gap, slope, begin, end, TIE * scale):
            if side != cheaper:
                if cheaper is None:
                    at_start = side
                else:
                    crossings.append(Crossing(volume=volume, first_cheaper_above=side))
                cheaper = side
    return at_start, tuple(crossings)


def _steps(first: Curve, second: Curve, up_to: float) -> dict[float, float]:
    """What the difference changes by at each volume from 0, in order; volumes that differ by
    rounding alone are one.
    """
    signed = [
        (volume, sign * usd)
        for curve, sign in ((first, 1.0), (second, -1.0))
        for volume, usd in curve.jumps
        if volume < up_to
    ]
    steps = {0.0: 0.0}
    last = 0.0
    for volume, usd in sorted(signed):
        if volume > last * (1 + SAME_VOLUME):
            last = volume
        steps[last] = steps.get(last, 0.0) + usd
    return steps


def _sides(
    gap: float, slope: float, begin: float, end: float, tie: float
) -> Iterable[tuple[float, bool]]:
    """(from which volume, whether the difference is below zero) on a straight piece; ties say
    nothing.
    """
    at_begin, at_end = gap + slope * begin, gap + slope * end
    if abs(at_begin) > tie:
        yield begin, at_begin < 0
        if abs(at_end) > tie and (at_begin < 0) != (at_end < 0):
            yield -gap / slope, at_end < 0
    elif abs(at_end) > tie:
        yield begin, at_end < 0


def break_even(
    names: tuple[str, str], curves: tuple[Curve, Curve], up_to: float, bought: float | None = None
) -> BreakEven:
    """The break-even of two curves, up to a volume; ``bought`` is passed on."""
    start, crossing_points = crossings(*curves, up_to)
    end = crossing_points[-1].first_cheaper_above if crossing_points else start
    below, above = (
        ("" if side is None else names[0] if side else names[1]) for side in (start, end)
    )
    return BreakEven(
        between=names,
        cheaper_below=below,
        cheaper_above=above,
        first_requests_per_year=crossing_points[0].volume if crossing_points else None,
        last_requests_per_year=crossing_points[-1].volume if crossing_points else None,
        changes=len(crossing_points),
        bought_fleet_requests_per_year=bought,
        searched_to_requests_per_year=up_to,
    )


def break_evens(
    traffic: Traffic,
    serving: Serving,
    prices: Prices,
    min_instances: int = 1,
    model: str | None = None,
) -> tuple[BreakEven, ...]:
    """For each two of on-prem, cloud and API: the volumes, of the same day, at which the cheaper
    changes.

    None where the requests of a year, or a price, are not known.
    """
    volume = traffic.requests_per_year
    if not volume:
        return ()
    jumps = sum(needed(hours.sized_requests_per_second, serving) + 1 for hours in traffic.hours)
    up_to = volume * min(LOOK_AHEAD, MOST_JUMPS / jumps)
    curves: dict[str, Curve] = {}
    owned = _owned_curve(traffic, serving, prices, min_instances, up_to)
    rented = _rented_curve(traffic, serving, prices, min_instances, up_to)
    curves |= {"on-prem": owned} if owned else {}
    curves |= {"cloud": rented} if rented else {}
    curves |= (
        {"api": Curve(base=0.0, slope=api_request(traffic, prices, model)[0])}
        if prices.api_price(model)
        else {}
    )
    fleet = _bought(traffic, serving, prices, min_instances, owned=owned, api=curves.get("api"))
    return tuple(
        break_even(
            names,
            (curves[names[0]], curves[names[1]]),
            up_to,
            fleet if names == ("on-prem", "api") else None,
        )
        for names in combinations(curves, 2)
    )


def power_per_request(serving: Serving, prices: Prices) -> float:
    """USD of electricity that one request costs on owned systems, where hosting does not pay for
    it.
    """
    power = prices.power_usd_per_kwh
    if serving.system_watts is None or power is None or prices.power_in_hosting:
        return 0.0
    watts = serving.system_watts * serving.gpus_per_instance / serving.gpus_per_system
    watts *= (
        1.0
        if serving.power is None
        else serving.power.share_at(serving.requests_per_second_per_instance)
    )
    seconds = 1 / serving.requests_per_second_per_instance
    return watts / 1_000 * seconds / 3_600 * prices.pue.value * power.value


def _owned_curve(
    traffic: Traffic, serving: Serving, prices: Prices, min_instances: int, up_to: float
) -> Curve | None:
    """The cost of owned systems at every volume; it jumps wherever they are full."""
    parts = system_parts(serving, prices, 1)
    volume = traffic.requests_per_year
    if isinstance(parts, NoCost) or not volume:
        return None
    usd_per_system = sum(part.usd_per_year for part in parts)
    per_instance = volume * serving.requests_per_second_per_instance / peak_of(traffic)
    step = serving.fleet.systems_per_instance
    count = max(step, systems_for(min_instances, serving))
    base = (count + serving.spare) * usd_per_system
    jumps = []
    while (full := instances_on(count, serving) * per_instance) < up_to:
        jumps.append((full, step * usd_per_system))
        count += step
    return Curve(base=base, slope=power_per_request(serving, prices), jumps=tuple(jumps))


def _rented_curve(
    traffic: Traffic, serving: Serving, prices: Prices, min_instances: int, up_to: float
) -> Curve | None:
    """The cost of the cheapest rented machines at every volume; it jumps wherever an hour needs one
    more of them.
    """
    rents = rents_of(serving, prices)
    if isinstance(rents, NoCost) or not traffic.requests_per_year:
        return None
    return _lowest([_rent_curve(traffic, serving, rent, min_instances, up_to) for rent in rents])


def _rent_curve(
    traffic: Traffic, serving: Serving, rent: Rent, min_instances: int, up_to: float
) -> Curve:
    """A jump at every volume where an hour needs to rent once more."""
    base = 0.0
    jumps: list[tuple[float, float]] = []
    for hours in traffic.hours:
        usd = hours.hours_per_year * rent.usd
        busy = hours.sized_requests_per_second > 0
        fewest = max(min_instances, int(busy))
        base += usd * rent.holding(fewest)
        if busy:
            per_instance = (
                (traffic.requests_per_year or 0.0)
                * serving.requests_per_second_per_instance
                / hours.sized_requests_per_second
            )
            last = math.ceil(round(up_to / per_instance, 9))
            full = rent.holding(fewest) * rent.instances
            jumps += [(count * per_instance, usd) for count in range(full, last, rent.instances)]
    return Curve(base=base, slope=0.0, jumps=tuple(jumps))


def _lowest(curves: Sequence[Curve]) -> Curve:
    """The lowest of several curves without a slope at every volume."""
    if len(curves) == 1:
        return curves[0]
    now = [curve.base for curve in curves]
    base = last = min(now)
    jumps = []
    for volume, place, usd in sorted(
        (volume, place, usd) for place, curve in enumerate(curves) for volume, usd in curve.jumps
    ):
        now[place] += usd
        if min(now) != last:
            jumps.append((volume, min(now) - last))
            last = min(now)
    return Curve(base=base, slope=0.0, jumps=tuple(jumps))


def _bought(
    traffic: Traffic,
    serving: Serving,
    prices: Prices,
    min_instances: int,
    *,
    owned: Curve | None,
    api: Curve | None,
) -> float | None:
    """Requests a year at which the plan's systems, once bought, cost what an API asks; None where
    that is beyond what they carry.
    """
    volume = traffic.requests_per_year
    if owned is None or api is None or not volume or api.slope <= owned.slope:
        return None
    cost = on_prem(traffic, serving, prices, min_instances)
    fixed = sum(part.usd_per_year for part in cost.parts if part.name != "power")
    break_even_volume = fixed / (api.slope - owned.slope)
    capacity = volume * cost.instances * serving.requests_per_second_per_instance / peak_of(traffic)
    return break_even_volume if break_even_volume <= capacity else None
