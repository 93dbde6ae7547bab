"""A fleet of two kinds of systems."""

from __future__ import annotations

from dataclasses import replace

from tonnage.cost.mixed import owned_usd
from tonnage.sizing.fleet.mixed import Kind
from tonnage.sizing.question import Question
from tonnage.sizing.search.search_space import system_for
from tonnage.spec.catalog.price_list import catalog_prices


def kinds_of(asked: Question) -> tuple[Kind, ...]:
    """What exists, and what may be added at its price."""
    prices = catalog_prices()
    kinds: dict[str, Kind] = {
        owned.system.name: Kind(system=owned.system, owned=owned.count) for owned in asked.have
    }
    for gpu in asked.gpus:
        system = system_for(asked, gpu)
        kind = kinds.get(system.name, Kind(system=system))
        if gpu.name in asked.addable:
            kinds[system.name] = replace(kind, price=owned_usd(system, prices))
    return tuple(kinds.values())
