"""Prices in US dollars without tax, each with its source and its date."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

GIVEN = "given by the user"
# The terms of a cloud offer that every buyer can get and give back by the hour
ON_DEMAND = "on-demand"

STALE_DAYS = 365

# Figures that are a choice of how to count
RULES = ("depreciation_years", "output_to_input_price_ratio", "server_over_gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One price, or another number that enters a cost."""

    path: str  # where it is in a price list, with its unit: "hosting_usd_per_system_year"
    # low, high: the range; the same number where there is none
    low: float
    high: float
    source: str  # where it was read
    date: str  # when, as YYYY, YYYY-MM or YYYY-MM-DD; empty where the user gave it without one
    # the usual price within the range; None where the source names none
    typical: float | None = None
    estimate: bool = False  # whether it is computed from other prices rather than quoted

    @property
    def value(self) -> float:
        """The value that costs are computed with: the usual price, or the middle of the range."""
        return (self.low + self.high) / 2 if self.typical is None else self.typical

    @property
    def given(self) -> bool:
        """Whether the user set it."""
        return self.source.startswith(GIVEN)


def first_day(text: str) -> date:
    """The first day of "2024", "2024-11" or "2024-11-30". Raises ValueError: none of these."""
    parts = text.split("-")
    try:
        if [len(part) for part in parts] not in ([4], [4, 2], [4, 2, 2]):
            raise ValueError
        year, month, day = (*(int(part) for part in parts), 1, 1)[:3]
        return date(year, month, day)
    except ValueError:
        raise ValueError(f"'{text}' is not a date") from None


def stale(figures: Iterable[Figure], today: date) -> tuple[Figure, ...]:
    """The prices that are older than a year on the day ``today``, each once; rules of counting do
    not age.
    """
    old = (figure for figure in figures if figure.path not in RULES and figure.date)
    return tuple(
        dict.fromkeys(
            figure for figure in old if (today - first_day(figure.date)).days > STALE_DAYS
        )
    )


def amount(figure: Figure) -> str:
    """The number, the range, or the usual price with its range, for people."""
    ends = f"{figure.low:,.10g} to {figure.high:,.10g}"
    if figure.low == figure.high:
        return f"{figure.low:,.10g}"
    return ends if figure.typical is None else f"{figure.typical:,.10g} ({ends})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrice:
    """The price of a whole system (catalog id), in USD; None where the user wants it left out."""

    system: str
    usd: Figure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """The price of one GPU (catalog id) without a server, in USD."""

    gpu: str
    usd: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudOffer:
    """The price of an hour of one GPU in the cloud."""

    gpu: str  # catalog id
    # its name, which begins with the provider, such as "AWS p5.48xlarge on-demand us-east-1"
    offer: str
    # for each GPU; its range is that over regions or over the provider's offers
    usd_per_gpu_hour: Figure
    provider: str = ""  # who rents it out; empty where several do, or the user did not say
    # GPUs of the machines that can be rented at this price, the smallest first; empty where it is
    # not known
    machine_gpus: tuple[int, ...] = ()
    # such as "on-demand", "spot" and "reserved 1 year"; empty where the user did not say
    terms: str = ""

    @property
    def years(self) -> int:
        """The years for which the GPU is reserved; 0 where the terms name none."""
        match = re.fullmatch(r"(?:reserved|committed) (\d{1,2}) years?", self.terms)
        return 0 if match is None else int(match[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudTier:
    """The providers that rent out machines of one size: offers that can be compared."""

    # GPUs of a machine; None where that is not known, so that as many GPUs are rented as an
    # instance takes
    machine_gpus: int | None
    offers: tuple[CloudOffer, ...]  # of each provider the cheapest, the cheapest provider first
    # of each provider that has no machine of this size the cheapest of its others, the cheapest
    # provider first
    elsewhere: tuple[CloudOffer, ...] = ()

    @property
    def offer(self) -> CloudOffer:
        """The one that counts: the middle one of the providers, the cheaper of two."""
        return self.offers[(len(self.offers) - 1) // 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPrice:
    """The price of a million tokens at APIs, in USD."""

    name: str  # the model (catalog id), or the name that the user gave to an API
    # usd_per_million_input_tokens, usd_per_million_output_tokens: the cheapest, the usual and the
    # dearest host
    usd_per_million_input_tokens: Figure
    usd_per_million_output_tokens: Figure
    # how many hosts they are of; None where the source does not count them
    hosts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A price list."""

    depreciation_years: Figure  # over how many years a system is written off, linearly, to nothing
    # place in a data centre, for each kW of a system's highest power; None leaves it out
    hosting_usd_per_kw_month: Figure | None
    # place, network, people for a system, in place of the price per kW; None where that one counts
    hosting_usd_per_system_year: Figure | None
    # licence_usd_per_gpu_year, licence_usd_per_gpu_hour: software on owned GPUs and on cloud GPUs;
    # None leaves it out
    licence_usd_per_gpu_year: Figure | None
    licence_usd_per_gpu_hour: Figure | None
    power_usd_per_kwh: Figure | None  # electricity; None leaves it out
    pue: Figure  # power of the building over power of the computers
    # what one output token counts for in input tokens when a cost is split over them
    output_to_input_price_ratio: Figure
    # price of a server over the price of its GPUs alone, which estimates a system that nobody
    # quotes
    server_over_gpus: Figure
    # carbon intensity of the electricity, which only the user knows; None leaves it out
    grid_kg_co2_per_kwh: Figure | None = None
    # whether hosting already pays for the electricity (it then is shown and not added)
    power_in_hosting: bool = True
    # systems, gpus, cloud, api: by catalog id and offer; the user's own are first
    systems: tuple[SystemPrice, ...] = ()
    gpus: tuple[GpuPrice, ...] = ()
    cloud: tuple[CloudOffer, ...] = ()
    api: tuple[ApiPrice, ...] = ()
    # the beginning of the offers' names to count with where a GPU has several; empty leaves it to
    # ``cloud_tiers``
    cloud_offer: str = ""

    def system_usd(self, system: str) -> Figure | None:
        """The price of a system, else an estimate from the price of its GPUs; None where neither is
        known.
        """
        listed = next((price for price in self.systems if price.system == system), None)
        return self._estimated(system) if listed is None else listed.usd

    def _estimated(self, system: str) -> Figure | None:
        """The GPUs of a system and the server around them, both at each end of their range."""
        from tonnage.errors import InputError
        from tonnage.spec.catalog import find_system

        try:
            server = find_system(system)
        except InputError:
            return None
        if server.usd is not None:
            return Figure(
                path=f"systems.{system}",
                low=server.usd,
                high=server.usd,
                source=f"{GIVEN} in {server.source}",
                date="",
            )
        figure = next((price.usd for price in self.gpus if price.gpu == server.gpu), None)
        if figure is None:
            return None
        around, count = self.server_over_gpus, server.gpus
        how = (
            f"{count} × {amount(figure)} USD for each {server.gpu} × {amount(around)} for the"
            " server around them"
        )
        return Figure(
            path=f"systems.{system}",
            low=count * figure.low * around.low,
            typical=count * figure.value * around.value,
            high=count * figure.high * around.high,
            source=f"estimate: {how}; {figure.source}",
            date=figure.date,
            estimate=True,
        )

    def cloud_tiers(self, gpu: str, gpus: int = 1) -> tuple[CloudTier, ...]:
        """The offers that a cost may be computed with, by the size of their machines, the smallest
        first; none where no price is known.

        The user's own offers count alone, and so do those whose names begin with ``cloud_offer``,
        each size with the first of them. Otherwise every provider counts with the cheapest of its
        on-demand offers. Machines with fewer GPUs than an instance takes (``gpus``) are left out
        where larger ones are offered; where an instance takes several, they are the largest.
        """
        gpu_offers = [offer for offer in self.cloud if offer.gpu == gpu]
        cloud_offers = [offer for offer in gpu_offers if offer.usd_per_gpu_hour.given]
        cloud_offers = [offer for offer in cloud_offers if not offer.years] or cloud_offers
        named = [
            offer
            for offer in gpu_offers
            if self.cloud_offer and offer.offer.startswith(self.cloud_offer)
        ]
        alone = cloud_offers or _on_demand(named) or named
        if alone:
            return tuple(
                CloudTier(machine_gpus=size, offers=offers[:1])
                for size, offers in _by_size(alone, gpus).items()
            )
        by_size = _by_size(sorted(_on_demand(gpu_offers) or gpu_offers, key=_usual), gpus)
        return tuple(_tier(size, by_size) for size in by_size)

    def reserved_tiers(self, gpu: str, gpus: int, years: int) -> tuple[CloudTier, ...]:
        """The offers of machines that are reserved for so many years, as of ``cloud_tiers``; none
        where none is known, or the user's own offers are for the hour.
        """
        gpu_offers = [offer for offer in self.cloud if offer.gpu == gpu]
        reserved = [offer for offer in gpu_offers if offer.years == years]
        if any(offer.usd_per_gpu_hour.given for offer in gpu_offers):
            reserved = [offer for offer in reserved if offer.usd_per_gpu_hour.given]
        elif self.cloud_offer:
            reserved = [offer for offer in reserved if offer.offer.startswith(self.cloud_offer)]
        by_size = _by_size(sorted(reserved, key=_usual), gpus)
        return tuple(_tier(size, by_size) for size in by_size)

    def api_price(self, model: str | None = None) -> ApiPrice | None:
        """The price of a model at APIs; None where it is not known.

        The user's own price of the model comes first, then a price of the user's that bears no
        model's name and so is for any.
        """
        api_prices = [price for price in self.api if price.usd_per_million_input_tokens.given]
        named = next((price for price in (*api_prices, *self.api) if price.name == model), None)
        return (
            named
            if named in api_prices
            else next((price for price in api_prices if not _is_model(price.name)), named)
        )

    def with_overrides(self, overrides: Mapping[str, Any], where: str = "prices") -> Prices:
        """This list with the user's prices in its own place (``docs/cost.md`` has the keys).

        Raises InputErrors: unknown keys, prices that are zero, negative or no numbers: all of them,
        each with its path.
        """
        from tonnage.spec.catalog.price_list import apply

        return apply(self, overrides, where)

    def to_json(self) -> dict[str, Any]:
        """The list as JSON values."""
        return asdict(self)


def _on_demand(offers: Sequence[CloudOffer]) -> list[CloudOffer]:
    return [offer for offer in offers if offer.terms == ON_DEMAND]


def _by_size(offers: Sequence[CloudOffer], gpus: int) -> dict[int | None, tuple[CloudOffer, ...]]:
    """The offers by the size of their machines, without too small ones; only the largest counts
    where none will do, as links are few.
    """
    by_size: dict[int | None, tuple[CloudOffer, ...]] = {}
    for size in sorted({size for offer in offers for size in offer.machine_gpus}):
        by_size[size] = tuple(offer for offer in offers if size in offer.machine_gpus)
    enough = min(gpus, max((size for size in by_size if size), default=gpus))
    by_size = {size: those for size, those in by_size.items() if size and size >= enough}
    unknown = tuple(offer for offer in offers if not offer.machine_gpus)
    return {**by_size, None: unknown} if unknown else by_size


def _tier(size: int | None, offers: Mapping[int | None, tuple[CloudOffer, ...]]) -> CloudTier:
    """The tier of one size: of every provider the first offer, as the offers are sorted by
    price.
    """
    here = _each_provider(offers[size])
    providers = {_provider(offer) for offer in here}
    cloud_offers = sorted((offer for those in offers.values() for offer in those), key=_usual)
    elsewhere = _each_provider(offer for offer in cloud_offers if _provider(offer) not in providers)
    return CloudTier(machine_gpus=size, offers=here, elsewhere=elsewhere)


def _each_provider(offers: Iterable[CloudOffer]) -> tuple[CloudOffer, ...]:
    first: dict[str, CloudOffer] = {}
    for offer in offers:
        first.setdefault(_provider(offer), offer)
    return tuple(first.values())


def _provider(offer: CloudOffer) -> str:
    return offer.provider or offer.offer


def _is_model(name: str) -> bool:
    from tonnage.errors import InputError
    from tonnage.spec.catalog import find_model

    try:
        return bool(find_model(name))
    except InputError:
        return False


def _usual(offer: CloudOffer) -> float:
    return offer.usd_per_gpu_hour.value
