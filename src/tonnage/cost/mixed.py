"""What systems that are added to a fleet cost, and whether old ones are worth their upkeep."""

from __future__ import annotations

from dataclasses import replace

from tonnage.cost.cost import (
    energy_of,
    energy_part,
    serving_of,
    system_parts,
    system_watts,
    traffic_of,
)
from tonnage.cost.options import as_planned, on_prem
from tonnage.errors import UnknownName
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import Serving, Traffic
from tonnage.plan.mixed import Mixed, Retirement
from tonnage.plan.plan import Plan
from tonnage.spec.catalog import find_system
from tonnage.spec.hardware import System
from tonnage.spec.prices import Prices


def owned_usd(system: System, prices: Prices, systems: int = 1) -> float | None:
    """USD a year of so many owned systems before electricity; None where a price is not known."""
    parts = system_parts(_serving(system, 1.0), prices, systems)
    return sum(part.usd_per_year for part in parts) if isinstance(parts, tuple) else None


def year_usd(
    candidate: Candidate, traffic: Traffic, prices: Prices, spare: int = 0
) -> float | None:
    """USD a year of a candidate's systems, owned, as the cost of a plan has it on-prem: with their
    electricity. None where a price is not known.
    """
    serving = as_planned(serving_of(candidate, spare), traffic)
    return on_prem(traffic, serving, prices).total_usd_per_year


def with_usd(mixed: Mixed, plan: Plan, prices: Prices) -> Mixed:
    """The fleet with what its systems cost."""
    traffic = traffic_of(plan)

    def usd(name: str, systems: int) -> float | None:
        system = _system(name)
        return None if system is None else owned_usd(system, prices, systems)

    added = [usd(name, systems) for name, systems in mixed.added.items()]
    return replace(
        mixed,
        usd_per_year=None if None in added else sum(filter(None, added)),
        instead=tuple(
            replace(kind, usd_per_year=usd(kind.system, kind.systems)) for kind in mixed.instead
        ),
        retirements=tuple(
            _priced(retirement, mixed, traffic, prices) for retirement in mixed.retirements
        ),
    )


def _priced(retirement: Retirement, mixed: Mixed, traffic: Traffic, prices: Prices) -> Retirement:
    """The upkeep of systems that exist, and the cost of others for the same requests, each with its
    electricity.
    """
    servings = {group.system: serving_of(group.candidate) for group in mixed.groups}
    group = next((group for group in mixed.groups if group.system == retirement.system), None)
    retired, replacing = _system(retirement.system), _system(retirement.instead_system)
    if retired is None or replacing is None:
        return retirement
    parts = (
        system_parts(_serving(retired, 1.0), prices, retirement.systems),
        system_parts(_serving(replacing, 1.0), prices, retirement.instead_systems),
    )
    if not isinstance(parts[0], tuple) or not isinstance(parts[1], tuple):
        return retirement
    upkeep = sum(part.usd_per_year for part in parts[0] if part.kind == "opex")
    instead = sum(part.usd_per_year for part in parts[1])
    if group is None:  # nothing runs on them
        return replace(retirement, upkeep_usd_per_year=upkeep, instead_usd_per_year=instead)
    share, serving = traffic.times(group.share), servings[retirement.system]
    whole = servings.get(replacing.name) or _serving(
        replacing, retirement.instead_requests_per_second
    )
    per_system = whole.fleet.of(1).instances or 1
    upkeep += _electricity(serving, share, prices, serving.fleet.of(retirement.systems).instances)
    instead += _electricity(whole, share, prices, per_system * max(1, retirement.instead_systems))
    return replace(retirement, upkeep_usd_per_year=upkeep, instead_usd_per_year=instead)


def _electricity(serving: Serving, traffic: Traffic, prices: Prices, instances: int) -> float:
    """USD a year where it is paid next to hosting."""
    return sum(
        part.usd_per_year for part in energy_part(energy_of(serving, traffic, prices, instances))
    )


def _system(name: str) -> System | None:
    """The system of a name; None where it is one of the user's own, which has no price."""
    try:
        return find_system(name)
    except UnknownName:
        return None


def _serving(system: System, requests_per_second: float) -> Serving:
    """A whole system as one instance that carries so much."""
    watts, source = system_watts(system.gpu, system.name)
    return Serving(
        gpu=system.gpu,
        system=system.name,
        gpus_per_instance=system.gpus,
        gpus_per_system=system.gpus,
        requests_per_second_per_instance=requests_per_second,
        system_watts=watts,
        watts_from=source,
    )
