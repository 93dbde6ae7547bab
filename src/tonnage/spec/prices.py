"""Prices in US dollars without tax, each with its source and its date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

GIVEN = "given by the user"
DEFAULT_OFFER = "hyperscaler on-demand"
"""The cloud offer that is used where a GPU has several: one that every buyer can get and give back by the hour."""

STALE_DAYS = 365

RULES = ("depreciation_years", "output_to_input_price_ratio")
"""Figures that are a choice of how to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One price, or another number that enters a cost.

    Attributes:
        path: where it stands in a price list, with its unit: "hosting_usd_per_system_year".
        low, high: the range; the same number where there is none.
        source: where it was read.
        date: when, as YYYY, YYYY-MM or YYYY-MM-DD; empty where the user gave it without one.
    """

    path: str
    low: float
    high: float
    source: str
    date: str

    @property
    def value(self) -> float:
        """The middle of the range, which is what costs are computed with."""
        return (self.low + self.high) / 2

    @property
    def given(self) -> bool:
        """Whether the user set it."""
        return self.source.startswith(GIVEN)


def first_day(text: str) -> date:
    """The first day of "2024", "2024-11" or "2024-11-30".

    Raises:
        ValueError: none of these.
    """
    parts = text.split("-")
    try:
        if [len(part) for part in parts] not in ([4], [4, 2], [4, 2, 2]):
            raise ValueError
        year, month, day = (*(int(part) for part in parts), 1, 1)[:3]
        return date(year, month, day)
    except ValueError:
        raise ValueError(f"'{text}' is not a date") from None


def stale(figures: Iterable[Figure], today: date) -> tuple[Figure, ...]:
    """The prices that are older than a year on the day ``today``, each once; rules of counting do not age."""
    old = (figure for figure in figures if figure.path not in RULES and figure.date)
    return tuple(dict.fromkeys(figure for figure in old if (today - first_day(figure.date)).days > STALE_DAYS))


def amount(figure: Figure) -> str:
    """The number or the range, for people."""
    return f"{figure.low:,.10g}" if figure.low == figure.high else f"{figure.low:,.10g} to {figure.high:,.10g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrice:
    """What a whole system (catalog id) costs to buy, in USD."""

    system: str
    usd: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudOffer:
    """What an hour of one GPU (catalog id) costs in the cloud under an offer such as "hyperscaler on-demand", in USD."""

    gpu: str
    offer: str
    usd_per_gpu_hour: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPrice:
    """What an API asks for a million tokens, in USD."""

    name: str
    usd_per_million_input_tokens: Figure
    usd_per_million_output_tokens: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A price list.

    Attributes:
        depreciation_years: over how many years a system is written off, linearly, to nothing.
        hosting_usd_per_system_year: place, network, people; None leaves it out.
        licence_usd_per_gpu_year, licence_usd_per_gpu_hour: software on owned GPUs and on cloud GPUs; None leaves it out.
        power_usd_per_kwh: electricity; None leaves it out.
        pue: power of the building over power of the computers.
        output_to_input_price_ratio: what one output token counts for in input tokens when a cost
            is split over them.
        power_in_hosting: whether hosting already pays for the electricity (it then is shown and not added).
        systems, cloud, api: by catalog id and offer; the user's own stand first.
        cloud_offer: the offer to count with where a GPU has several.
    """

    depreciation_years: Figure
    hosting_usd_per_system_year: Figure | None
    licence_usd_per_gpu_year: Figure | None
    licence_usd_per_gpu_hour: Figure | None
    power_usd_per_kwh: Figure | None
    pue: Figure
    output_to_input_price_ratio: Figure
    power_in_hosting: bool = True
    systems: tuple[SystemPrice, ...] = ()
    cloud: tuple[CloudOffer, ...] = ()
    api: tuple[ApiPrice, ...] = ()
    cloud_offer: str = DEFAULT_OFFER

    def system_usd(self, system: str) -> Figure | None:
        """The price of a system; None where it is not known."""
        return next((price.usd for price in self.systems if price.system == system), None)

    def cloud_price(self, gpu: str) -> CloudOffer | None:
        """The offer to count with for a GPU: the user's own, else ``cloud_offer``, else the first listed; None where there is none."""
        offers = [offer for offer in self.cloud if offer.gpu == gpu]
        own = (offer for offer in offers if offer.usd_per_gpu_hour.given)
        named = (offer for offer in offers if offer.offer.startswith(self.cloud_offer))
        return next(own, None) or next(named, None) or next(iter(offers), None)

    def api_price(self, name: str | None = None) -> ApiPrice | None:
        """The API of that name, the first listed if none is named; None where there is none."""
        return next((price for price in self.api if name is None or price.name == name), None)

    def with_overrides(self, overrides: Mapping[str, Any], where: str = "prices") -> Prices:
        """This list with the user's prices in place of its own (``docs/cost.md`` has the keys).

        Raises:
            InputErrors: unknown keys, prices that are zero, negative or no numbers: all of them, each with its path.
        """
        from tonnage.spec.catalog.price_list import apply

        return apply(self, overrides, where)

    def to_json(self) -> dict[str, Any]:
        """The list as JSON values."""
        return asdict(self)
