"""The prices that an asker counts with, and the ways of serving whose cost was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tonnage.api.asked.arguments import Many, listed
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.plan.cost import Where
    from tonnage.spec.prices import Prices
    from tonnage.spec.scenario import Scenario


def overrides_of(scenario: Scenario) -> tuple[dict[str, Any], str]:
    """The asker's own prices, and where they stand.

    Raises:
        InputError: a prices file that cannot be read.
    """
    from tonnage.spec.catalog.price_list import read_overrides

    if isinstance(scenario.prices, str):
        return read_overrides(scenario.prices), scenario.prices
    return dict(scenario.prices or {}), "prices"


def prices_of(scenario: Scenario) -> Prices:
    """The catalog's prices with the asker's own in their place.

    Raises:
        InputError: prices that cannot be.
    """
    from tonnage.spec.catalog.price_list import catalog_prices

    overrides, where = overrides_of(scenario)
    return catalog_prices().with_overrides(overrides, where)


def places(values: Many | None) -> tuple[str, ...]:
    """Where the load may be served: some of on-prem, cloud, hybrid, api and hybrid-api.

    Raises:
        InputError: another place.
    """
    from tonnage.plan.cost import WAYS

    found = () if values is None else listed(values, option("where"))
    known: dict[str, str] = dict(zip(WAYS, WAYS, strict=True)) | dict.fromkeys(("onprem", "on-premise", "on-premises"), "on-prem")
    plain = {name: name.lower().replace("_", "-").replace(" ", "-") for name in found}
    for name in found:
        if plain[name] not in known:
            raise InputError(f"{option('where')}: '{name}' is not a place; choose from {', '.join(WAYS)}")
    return tuple(known[plain[name]] for name in found)


def places_of(scenario: Scenario) -> tuple[Where, ...]:
    """The ways of serving whose cost was asked for, in the order in which they are shown; all if none was named."""
    from tonnage.plan.cost import WAYS

    return WAYS if scenario.where is None else tuple(way for way in WAYS if way in places(scenario.where))


def with_prices(prices: object, flags: list[str]) -> dict[str, Any]:
    """The prices of a file or of nested values, with single ones such as "systems.dgx-h100=250000" in their place.

    Raises:
        InputError: a flag that is none, or prices that cannot be read.
    """
    from tonnage.spec.catalog.price_list import parse_price_flags, read_overrides

    base = read_overrides(prices) if isinstance(prices, str) else prices or {}
    if not isinstance(base, Mapping):
        raise InputError(f"{option('prices')}: {prices!r} is not a list of prices; name a file, or write keys with values")
    return _over(dict(base), parse_price_flags(flags))


def _over(base: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with others in their place."""
    found = dict(base)
    for key, value in change.items():
        inner = found.get(key)
        found[key] = _over(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return found
