"""The same load on systems of one's own, in the cloud by the hour, on both, or at an API: what each costs a year.

- On-prem: whole systems for the peak, owned all year.
- Cloud: in every hour of the profile as many instances as it needs, at least ``min_instances``, each hour paid in full.
- Hybrid: some systems owned, the number that costs least of all; what an hour needs beyond them is rented.
- API: tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from tonnage.cost.break_even import BreakEven, break_evens
from tonnage.cost.cost import HOURS_PER_YEAR, SECONDS_PER_YEAR, OptionCost, Serving, Traffic, Where, api_cost
from tonnage.cost.options import as_planned, cloud, hybrid, on_prem
from tonnage.errors import InputError, option
from tonnage.sizing.systems import instances_per_system
from tonnage.spec.prices import Figure, Prices, amount, stale

WAYS: tuple[Where, ...] = ("on-prem", "cloud", "hybrid", "api")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostComparison:
    """Four ways of serving one load, and where the cheaper changes.

    Attributes:
        traffic, serving: the load, and what carries it.
        on_prem, cloud, hybrid, api: what each costs.
        cheapest: of those whose cost is known; None where none is.
        break_evens: for each two of on-prem, cloud and API.
        notes: what a reader must know, one sentence each.
        warnings: prices older than a year.
        asked: the ways that were asked for.
    """

    traffic: Traffic
    serving: Serving
    on_prem: OptionCost
    cloud: OptionCost
    hybrid: OptionCost
    api: OptionCost
    cheapest: Where | None
    break_evens: tuple[BreakEven, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    asked: tuple[Where, ...] = WAYS

    @property
    def options(self) -> tuple[OptionCost, ...]:
        """Those that were asked for, all four if none was named."""
        return tuple(option for option in (self.on_prem, self.cloud, self.hybrid, self.api) if option.where in self.asked)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every price that any of them rests on, once."""
        return tuple(dict.fromkeys(figure for option in self.options for figure in option.figures))

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values; keys in ``docs/cost.md``."""
        return {
            "requests_per_year": self.traffic.requests_per_year,
            "traffic": {key: value for key, value in asdict(self.traffic).items() if key != "profile"},
            "profile_requests_per_second": list(self.traffic.profile),
            "serving": asdict(self.serving),
            "options": {option.where: option.to_json() for option in self.options},
            "cheapest": self.cheapest,
            "break_evens": [each.to_json() for each in self.break_evens],
            "figures": [asdict(figure) for figure in self.figures],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def compare(
    traffic: Traffic,
    serving: Serving,
    prices: Prices,
    *,
    today: date | None = None,
    min_instances: int = 1,
    api: str | None = None,
    where: tuple[Where, ...] = WAYS,
) -> CostComparison:
    """The costs of a load.

    Args:
        traffic: the year's load.
        serving: the instance that carries it, and the system that it stands in.
        prices: the price list.
        today: the day on which prices older than a year are warned about; none are if not given.
        min_instances: cloud instances kept in the quietest hour; 0 lets the fleet go to nothing.
        api: name of the API in the price list; the first there if not given.
        where: the ways to show, and to choose the cheapest from.

    Raises:
        InputError: a negative number of instances, or no such API.
    """
    if min_instances < 0:
        raise InputError(f"{option('min_instances')}: {min_instances} is negative; write how many instances stay on, 0 or more")
    serving = as_planned(serving, traffic)
    owned = on_prem(traffic, serving, prices, min_instances)
    rented = cloud(traffic, serving, prices, min_instances)
    both = hybrid(traffic, serving, prices, min_instances)
    tokens = api_cost(traffic, prices, api)
    shown = [option for option in (owned, rented, both, tokens) if option.where in where]
    known = [(option.usd_per_year, option.where) for option in shown if option.usd_per_year is not None]
    figures = dict.fromkeys(figure for option in shown for figure in option.figures)
    return CostComparison(
        traffic=traffic,
        serving=serving,
        on_prem=owned,
        cloud=rented,
        hybrid=both,
        api=tokens,
        cheapest=min(known, key=lambda pair: pair[0])[1] if known else None,
        break_evens=tuple(each for each in break_evens(traffic, serving, prices, min_instances, api) if set(each.between) <= set(where)),
        notes=tuple(_notes(traffic, serving, owned, prices, where)),
        warnings=stale(figures, today) if today else (),
        asked=where,
    )


def _notes(traffic: Traffic, serving: Serving, owned: OptionCost, prices: Prices, where: tuple[Where, ...]) -> Iterable[str]:
    """What a reader must know about the ways that are shown."""
    ratio = prices.output_to_input_price_ratio
    yield f"A cost is split over tokens as if an output token cost {amount(ratio)} times an input token ({ratio.source})."
    if not traffic.profile and {"cloud", "hybrid"} & set(where):
        yield "No hourly profile is given: the cloud is rented for the peak all year; a profile shows what scaling by the hour saves."
    if traffic.requests_per_year is None:
        yield "Only the peak is known: costs per request and per token need a mean or a profile."
    if "on-prem" not in where:
        return
    if owned.usd_per_1000_requests_exact is not None and owned.usd_per_year_exact is not None:
        yield _course_way(serving, owned.usd_per_year_exact, owned.usd_per_1000_requests_exact)
    energy = owned.energy
    if energy is not None:
        usd = "" if energy.usd_per_year is None else f", {energy.usd_per_year:,.0f} USD"
        added = "added as power" if energy.added else "not added: hosting is taken to pay for it; give power_usd_per_kwh to add it"
        yield f"Electricity of the owned systems is an estimate, {energy.kwh_per_year:,.0f} kWh a year{usd}; {added}."
        hosting = next((part.usd_per_year for part in owned.parts if part.name == "hosting"), 0.0)
        if not energy.added and (energy.usd_per_year or 0.0) > hosting:
            yield f"That is more than the whole hosting of {hosting:,.0f} USD, which can then hardly hold it."


def _course_way(serving: Serving, usd: float, ours: float) -> str:
    each, span = instances_per_system(serving.gpus_per_instance, serving.gpus_per_system)
    one_system = each / span * serving.requests_per_second_per_instance * SECONDS_PER_YEAR
    theirs = usd / one_system * 1_000
    return (
        f"{ours:,.2f} USD per 1,000 requests is the fleet's cost over the fleet's requests. NVIDIA's course divides the fleet's cost "
        f"by what one system would carry if it were full all year ({HOURS_PER_YEAR:,} h, {one_system:,.0f} requests): {theirs:,.2f}."
    )
