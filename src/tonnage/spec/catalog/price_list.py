"""Reads price lists: the catalog's own, a user's file, and single prices such as
"systems.dgx-h100=250000".

All of them have the same keys (``docs/cost.md``); an unknown key is refused, and every fault is
reported at once with its path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tonnage.csv_file import read_text
from tonnage.errors import DataErrors, InputError, InputErrors, UnknownName, option
from tonnage.spec.catalog import find_gpu, find_system, systems
from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.prices import (
    GIVEN,
    ApiPrice,
    CloudOffer,
    Figure,
    GpuPrice,
    Prices,
    SystemPrice,
    first_day,
)
from tonnage.spec.typed_values import parse_yaml

FIGURES = ("depreciation_years", "pue", "output_to_input_price_ratio", "server_over_gpus")
HOSTING = ("hosting_usd_per_kw_month", "hosting_usd_per_system_year")
OPTIONAL = (
    *HOSTING,
    "licence_usd_per_gpu_year",
    "licence_usd_per_gpu_hour",
    "power_usd_per_kwh",
    "grid_kg_co2_per_kwh",
)
TABLES = ("systems", "gpus", "cloud", "api")
CHOICES = ("power_in_hosting", "cloud_offer")
KEYS = (*FIGURES, *OPTIONAL, *TABLES, *CHOICES)
API_KEYS = ("usd_per_million_input_tokens", "usd_per_million_output_tokens")
PARTS = ("value", "low", "high", "source", "date")
OFFER_PARTS = ("provider", "gpus", "terms")
MOST = 1e12


@cache
def catalog_prices() -> Prices:
    """The prices that Tonnage ships: ``prices.yaml``, ``cloud_prices.yaml`` and
    ``api_prices.yaml``.

    Raises DataErrors: unknown keys, prices that cannot be, or a price without a source or a date.
    """
    nothing = {key: Figure(path=key, low=1, high=1, source="", date="") for key in FIGURES}
    empty = Prices(**nothing, **dict.fromkeys(OPTIONAL))  # type: ignore[arg-type]
    try:
        tables = {
            "cloud": shipped_yaml("cloud_prices.yaml"),
            "api": shipped_yaml("api_prices.yaml"),
        }
        return _read(empty, shipped_yaml("prices.yaml") | tables, "", catalog=True)
    except InputErrors as errors:
        raise DataErrors(f"catalog/prices.yaml: {line}" for line in errors.lines) from None


def read_overrides(path: str | Path) -> dict[str, Any]:
    """A user's prices file (YAML), as ``Prices.with_overrides`` takes it. Raises InputError: it
    cannot be read, or is no mapping.
    """
    where = f"{option('prices')} {path}"
    loaded = parse_yaml(read_text(path, option("prices"), give="a YAML file of prices"), where)
    if not isinstance(loaded, dict):
        raise InputError(
            f"{where}: holds no keys; write for example 'systems: {{dgx-h100: 250000}}'"
        )
    return loaded


def parse_price_flags(flags: Iterable[str]) -> dict[str, Any]:
    """Single prices such as "systems.dgx-h100=250000", as ``Prices.with_overrides`` takes them.

    Raises InputError: no "=", or one key twice.
    """
    import yaml

    overrides: dict[str, Any] = {}
    for flag in flags:
        key, sign, text = flag.partition("=")
        names = [name.strip() for name in key.split(".")]
        if not sign or not all(names):
            raise InputError(
                f"{option('price')}: '{flag}' is not a key and a value; write for example"
                " systems.dgx-h100=250000"
            )
        if len(names) > 3:
            names = [names[0], ".".join(names[1:-1]), names[-1]]
        inner = overrides
        for name in names[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise InputError(
                    f"{option('price')}: {key}: '{name}' has a value already; give one of the two"
                )
        if names[-1] in inner:
            raise InputError(f"{option('price')}: {key} is given twice; keep one of them")
        try:
            inner[names[-1]] = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError):
            inner[names[-1]] = text
    return overrides


def apply(base: Prices, overrides: Mapping[str, Any], where: str) -> Prices:
    """``base`` with the user's prices in its own place; see ``Prices.with_overrides``."""
    return _read(base, overrides, where, catalog=False)


def problems(overrides: Mapping[str, Any], where: str = "prices") -> list[str]:
    """The faults of the user's prices, one line each with its path; empty where there is none."""
    reading = _Reading(catalog=False)
    reading.changes(catalog_prices(), overrides, where)
    return reading.problems


def _read(base: Prices, raw: Mapping[str, Any], where: str, *, catalog: bool) -> Prices:
    reading = _Reading(catalog=catalog)
    changes = reading.changes(base, raw, where)
    InputErrors.raise_if(reading.problems)
    return replace(base, **changes)


def _none(raw: object) -> bool:
    return raw is None or (isinstance(raw, str) and raw.strip().lower() == "none")


class _Reading:
    """One pass over a price list, which goes on after a fault so that all of them are found."""

    def __init__(self, *, catalog: bool) -> None:
        self.catalog = catalog
        self.problems: list[str] = []

    def changes(self, base: Prices, raw: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The prices that the list sets, by field of ``Prices``."""
        changes: dict[str, Any] = {}
        self._check_keys(raw, KEYS, where)
        for key in (*FIGURES, *OPTIONAL):
            if key in raw:
                changes[key] = self._general(raw[key], key, _joined(where, key))

        for key in TABLES:
            if key in raw and self._is_mapping(raw[key], _joined(where, key)):
                changes[key] = getattr(self, f"_{key}")(
                    getattr(base, key), raw[key], _joined(where, key)
                )
        self._hosting(raw, changes, where)
        self._choices(raw, changes, where)
        named = changes.get("cloud_offer")
        if isinstance(named, str) and not any(
            offer.offer.startswith(named) for offer in changes.get("cloud", base.cloud)
        ):
            self.problems.append(
                f"{_joined(where, 'cloud_offer')}: no offer begins with '{named}'; `tonnage catalog"
                " prices` lists them, such as AWS"
            )
        return changes

    def _hosting(self, raw: Mapping[str, Any], prices: dict[str, Any], where: str) -> None:
        """One price of hosting takes the place of the other, and a sum for a system is taken to
        hold the electricity.
        """
        hosting_keys = [key for key in HOSTING if key in raw]
        if len([key for key in hosting_keys if prices.get(key) is not None]) > 1:
            self.problems.append(
                f"{_joined(where, hosting_keys[0])}: {hosting_keys[1]} is given too; give hosting"
                " once"
            )
        if hosting_keys:
            prices.update({key: None for key in HOSTING if key not in raw})
        if prices.get("hosting_usd_per_system_year") is not None and not self.catalog:
            prices["power_in_hosting"] = True

    def _general(self, raw: object, key: str, path: str) -> Figure | None:
        if _none(raw):
            if key in FIGURES:
                self.problems.append(f"{path}: cannot be left out; write a number above 0")
            return None
        figure = self.figure(raw, path)
        if figure is not None and key == "pue" and figure.low < 1:
            self.problems.append(
                f"{path}: {figure.low:g} is below 1; the building draws at least what the computers"
                " draw"
            )
        return figure

    def _choices(self, raw: Mapping[str, Any], prices: dict[str, Any], where: str) -> None:
        if prices.get("power_usd_per_kwh") is not None and not self.catalog:
            prices["power_in_hosting"] = False  # a price for power is given to be paid
        if "power_in_hosting" in raw:
            prices["power_in_hosting"] = raw["power_in_hosting"]
            if not isinstance(raw["power_in_hosting"], bool):
                self.problems.append(
                    f"{_joined(where, 'power_in_hosting')}: '{raw['power_in_hosting']}' is neither"
                    " true nor false"
                )
        if "cloud_offer" in raw:
            if isinstance(raw["cloud_offer"], str) and raw["cloud_offer"].strip():
                prices["cloud_offer"] = raw["cloud_offer"]
            else:
                self.problems.append(
                    f"{_joined(where, 'cloud_offer')}: '{raw['cloud_offer']}' is not the name of an"
                    " offer, such as AWS"
                )

    def _by_name(
        self, find: Callable[[str], str], raw: Mapping[str, Any], where: str
    ) -> dict[str, Figure | None]:
        """The price of each thing that is known; None where the user wants it left out."""
        figures: dict[str, Figure | None] = {}
        for name, value in raw.items():
            canonical = self._name(find, name, _joined(where, name))
            figure = None if _none(value) else self.figure(value, _joined(where, name))
            figures |= {} if canonical is None else {canonical: figure}
        return figures

    def _systems(
        self, old: tuple[SystemPrice, ...], raw: Mapping[str, Any], where: str
    ) -> tuple[SystemPrice, ...]:
        new = self._by_name(lambda name: find_system(name).name, raw, where)
        return (
            *(SystemPrice(system=name, usd=usd) for name, usd in new.items()),
            *(price for price in old if price.system not in new),
        )

    def _gpus(
        self, old: tuple[GpuPrice, ...], raw: Mapping[str, Any], where: str
    ) -> tuple[GpuPrice, ...]:
        new = self._by_name(lambda name: find_gpu(name).name, raw, where)
        bought = (GpuPrice(gpu=name, usd=usd) for name, usd in new.items() if usd is not None)
        return (*bought, *(price for price in old if price.gpu not in new))

    def _cloud(
        self, old: tuple[CloudOffer, ...], raw: Mapping[str, Any], where: str
    ) -> tuple[CloudOffer, ...]:
        new = []
        gone = set()
        for name, value in raw.items():
            path = _joined(where, name)
            gpu = self._name(lambda n: find_gpu(n).name, name, path)
            if gpu is None:
                continue
            if _none(value):
                gone.add(gpu)
                continue
            plain = not isinstance(value, dict) or set(value) <= {*PARTS, *OFFER_PARTS}
            for offer, price in {"given": value}.items() if plain else value.items():
                cloud_offer = self._cloud_offer(
                    gpu, str(offer), price, path if plain else _joined(path, offer)
                )
                new += [cloud_offer] if cloud_offer is not None else []
        replaced = {(offer.gpu, offer.offer) for offer in new}
        return (*new, *(o for o in old if (o.gpu, o.offer) not in replaced and o.gpu not in gone))

    def _cloud_offer(self, gpu: str, name: str, raw: object, path: str) -> CloudOffer | None:
        details = (
            {key: raw[key] for key in OFFER_PARTS if key in raw} if isinstance(raw, dict) else {}
        )
        figure = self.figure(
            (
                {key: value for key, value in raw.items() if key not in details}
                if isinstance(raw, dict)
                else raw
            ),
            path,
        )
        sizes = details.get("gpus")
        machines = () if sizes is None else tuple(sizes) if isinstance(sizes, list) else (sizes,)
        wrong = next(
            (
                size
                for size in machines
                if isinstance(size, bool) or not isinstance(size, int) or size < 1
            ),
            None,
        )
        if wrong is not None:
            self.problems.append(
                f"{path}.gpus: '{wrong}' is not a number of GPUs of a machine; write whole numbers"
                " such as 8 or [1, 8]"
            )
        if figure is None or wrong is not None:
            return None
        provider, terms = (str(details.get(key) or "") for key in ("provider", "terms"))
        machines = tuple(sorted(set(machines)))
        return CloudOffer(
            gpu=gpu,
            offer=name,
            usd_per_gpu_hour=figure,
            provider=provider,
            machine_gpus=machines,
            terms=terms,
        )

    def _api(
        self, old: tuple[ApiPrice, ...], raw: Mapping[str, Any], where: str
    ) -> tuple[ApiPrice, ...]:
        plain = bool(set(raw) & set(API_KEYS))
        new = []
        for name, value in {"given": raw}.items() if plain else raw.items():
            path = where if plain else _joined(where, name)
            if not self._is_mapping(value, path):
                continue
            like = str(value["like"]) if self.catalog and "like" in value else None
            row = (
                value
                if like is None
                else {
                    **raw[like],
                    "source": f"estimate: the price of {like}; {raw[like]['source']}",
                }
            )
            self._check_keys(row, (*API_KEYS, "hosts", "source", "date"), path)
            both = [self._token_price(row, key, path) for key in API_KEYS]
            if both[0] and both[1]:
                into, out = (
                    replace(figure, estimate=like is not None) for figure in both if figure
                )
                price = ApiPrice(
                    name=str(name),
                    usd_per_million_input_tokens=into,
                    usd_per_million_output_tokens=out,
                )
                new.append(replace(price, hosts=row.get("hosts") if self.catalog else None))
        replaced = {price.name for price in new}
        return (*new, *(price for price in old if price.name not in replaced))

    def _token_price(self, raw: Mapping[str, Any], key: str, path: str) -> Figure | None:
        if key not in raw:
            self.problems.append(
                f"{_joined(path, key)}: missing; an API has a price for input and one for output"
            )
            return None
        value = raw[key]
        origin = {part: raw[part] for part in ("source", "date") if part in raw}
        value = {**origin, **value} if isinstance(value, dict) else {"value": value, **origin}
        return self.figure(value, _joined(path, key))

    def figure(self, raw: object, path: str) -> Figure | None:
        """A number, or ``{value | low, high, source, date}``; None and a problem where it is
        neither.
        """
        parts = raw if isinstance(raw, dict) else {"value": raw}
        self._check_keys(parts, PARTS, path)
        middle = parts.get("value")
        ends = [parts.get("low", middle), parts.get("high", middle)]
        numbers = {
            end: self._number(end, path)
            for end in dict.fromkeys(map(_hashable, [*ends, *([] if middle is None else [middle])]))
        }
        day = self._day(parts.get("date"), path)
        source = str(parts.get("source") or "").strip()
        if self.catalog and not (source and day):
            self.problems.append(f"{path}: has no source or no date")
        low, high = (numbers[_hashable(end)] for end in ends)
        typical = None if middle is None else numbers[_hashable(middle)]
        if low is None or high is None or (typical is None) != (middle is None):
            return None
        if not low <= (low if typical is None else typical) <= high:
            self.problems.append(f"{path}: {_turned(low, typical, high)}")
            return None
        if not self.catalog:
            source = f"{GIVEN}: {source}" if source else GIVEN
        return Figure(
            path=path.removeprefix("prices."),
            low=low,
            high=high,
            source=source,
            date=day,
            typical=typical if low < high else None,
        )

    def _number(self, raw: object, path: str) -> float | None:
        if (
            isinstance(raw, bool)
            or not isinstance(raw, int | float)
            or (isinstance(raw, float) and not math.isfinite(raw))
        ):
            self.problems.append(f"{path}: '{raw}' is not a number; write one above 0")
            return None
        if raw <= 0:
            self.problems.append(
                f"{path}: {_number_text(raw)} is zero or less; write a number above 0, or none to"
                " leave it out"
            )
            return None
        if raw > MOST:
            self.problems.append(
                f"{path}: {_number_text(raw)} is above {MOST:g}; write the price in USD"
            )
            return None
        return float(raw)

    def _day(self, raw: object, path: str) -> str:
        text = "" if raw is None else str(raw)
        try:
            if text:
                first_day(text)
        except ValueError:
            self.problems.append(
                f"{_joined(path, 'date')}: '{text}' is not a date; write YYYY-MM-DD, YYYY-MM or"
                " YYYY"
            )
        return text

    def _name(self, find: Callable[[str], str], name: object, path: str) -> str | None:
        try:
            return find(str(name))
        except UnknownName as error:
            self.problems.append(f"{path}: {error}")
            return None

    def _check_keys(self, raw: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
        self.problems += [
            f"{_joined(where, key)}: unknown key; one of: {', '.join(keys)}"
            for key in raw
            if key not in keys
        ]

    def _is_mapping(self, raw: object, path: str) -> bool:
        if isinstance(raw, dict):
            return True
        self.problems.append(
            f"{path}: '{raw}' is not a list of prices by name; write for example '{path}: {{NAME:"
            " PRICE}'"
        )
        return False


def _turned(low: float, typical: float | None, high: float) -> str:
    """Say what is wrong with a range that does not rise."""
    if high < low:
        return f"ends at {high:g}, below its beginning of {low:g}; write the lower price as low"
    return f"{typical:g} is outside {low:g} to {high:g}; write a value within the range"


def _number_text(number: float) -> str:
    """Write a number for a message; a whole number may have more digits than a float can hold."""
    return f"{number:g}" if abs(number) < 10**300 else "a number of more than 300 digits"


def _hashable(raw: object) -> object:
    return str(raw) if isinstance(raw, list | dict) else raw


def _joined(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


# The catalog's prices as a list: what, how much, of which day, from where.


Kind = Literal["general", "system", "gpu", "cloud", "api"]

UNITS = {
    "depreciation_years": "years",
    "hosting_usd_per_kw_month": "USD per kW and month",
    "hosting_usd_per_system_year": "USD per system and year",
    "licence_usd_per_gpu_year": "USD per GPU and year",
    "licence_usd_per_gpu_hour": "USD per GPU and hour",
    "power_usd_per_kwh": "USD per kWh",
    "grid_kg_co2_per_kwh": "kg of CO2 per kWh",
    "pue": "kW in the building per kW of computers",
    "output_to_input_price_ratio": "input tokens per output token",
    "server_over_gpus": "price of a server over its GPUs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """One price of the catalog."""

    # "system" and "gpu" to buy one, "cloud" by the hour, "api" by tokens, "general" for the rest
    kind: Kind
    name: str  # what it is of: its key in a price list, or an id of the catalog
    offer: str  # whose offer it is, such as "AWS p5.48xlarge on-demand us-east-1"; empty elsewhere
    # low, value, high: the range, and what costs are computed with
    low: float
    value: float
    high: float
    unit: str  # what the price is for
    estimate: bool  # whether it is computed from other prices rather than quoted
    # source, date: where it was read, and of which day it is
    source: str
    date: str


def listed_prices(text: str = "") -> tuple[ListedPrice, ...]:
    """The prices whose name or unit holds all words of a text; all of them for an empty one."""
    words = _level(text).split("-")
    return tuple(
        price
        for price in _all(catalog_prices())
        if all(word in _level(f"{price.kind} {price.name} {price.offer}") for word in words)
    )


def _level(text: str) -> str:
    return re.sub(r"[\s_-]+", "-", text.strip().lower())


def _all(prices: Prices) -> Iterator[ListedPrice]:
    """General prices, systems with the estimated ones, GPUs, clouds and APIs."""
    for key in (*FIGURES, *OPTIONAL):
        figure = getattr(prices, key)
        if figure is not None:
            yield _listed("general", key, figure, UNITS[key])
    for system in systems():
        figure = prices.system_usd(system.name)
        if figure is not None:
            yield _listed("system", system.name, figure, "USD to buy one")
    for gpu in prices.gpus:
        yield _listed("gpu", gpu.gpu, gpu.usd, "USD to buy one without a server")
    for offer in prices.cloud:
        yield _listed(
            "cloud", offer.gpu, offer.usd_per_gpu_hour, "USD per GPU and hour", offer.offer
        )
    for api in prices.api:
        yield _listed(
            "api", api.name, api.usd_per_million_input_tokens, "USD per million tokens in"
        )
        yield _listed(
            "api", api.name, api.usd_per_million_output_tokens, "USD per million tokens out"
        )


def _listed(kind: Kind, name: str, figure: Figure, unit: str, offer: str = "") -> ListedPrice:
    same = {
        key: getattr(figure, key) for key in ("low", "value", "high", "estimate", "source", "date")
    }
    return ListedPrice(kind=kind, name=name, offer=offer, unit=unit, **same)
