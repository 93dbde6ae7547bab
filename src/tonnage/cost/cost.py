"""What a year of serving costs: what is owned, and how a cost is spread over requests and tokens.

One year is 365 days. The cost of an owned system is linear depreciation plus what it takes to run:
price / years + hosting + GPUs × licence, and the electricity where hosting does not pay for it already.

A cost is split over tokens by one rule: an output token counts for as many input tokens as
``output_to_input_price_ratio`` says, so that USD = p · (input + ratio · output) and p is the price of
an input token.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tonnage.errors import UnknownName
from tonnage.spec.catalog import find_gpu, find_system
from tonnage.spec.prices import Figure, Prices, amount

if TYPE_CHECKING:
    from tonnage.plan.former_candidate import Candidate
    from tonnage.sizing.demand import Demand

HOURS_PER_YEAR = 8_760
SECONDS_PER_YEAR = 3_600 * HOURS_PER_YEAR

Where = Literal["on-prem", "cloud", "hybrid", "api"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """Hours of a year with one load.

    Attributes:
        hours_per_year: how many there are.
        requests_per_second: what arrives in them; None where only the peak is known.
        sized_requests_per_second: what is provided for in them: bursts within the hour included.
    """

    hours_per_year: float
    requests_per_second: float | None
    sized_requests_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A year's load.

    Attributes:
        peak_requests_per_second: what a fixed fleet is sized for.
        mean_requests_per_second: over the year; None where only the peak is known.
        input_tokens, output_tokens: mean of a request.
        profile: requests/s hour by hour, a day, a week or a year that repeats; empty where there is none.
    """

    peak_requests_per_second: float
    mean_requests_per_second: float | None
    input_tokens: float
    output_tokens: float
    profile: tuple[float, ...] = ()

    @property
    def requests_per_year(self) -> float | None:
        """Requests in 365 days; None where only the peak is known."""
        return None if self.mean_requests_per_second is None else self.mean_requests_per_second * SECONDS_PER_YEAR

    @property
    def hours(self) -> tuple[Hours, ...]:
        """The year's hours, those of one load together, the quietest first.

        The busiest hour of a profile is provided for at the peak; every other hour has the same
        room for bursts, peak over busiest hour. Without a profile the peak is provided for all year.
        """
        if not self.profile:
            return (
                Hours(
                    hours_per_year=HOURS_PER_YEAR,
                    requests_per_second=self.mean_requests_per_second,
                    sized_requests_per_second=self.peak_requests_per_second,
                ),
            )
        busiest = max(self.profile)
        room = max(1.0, self.peak_requests_per_second / busiest) if busiest else 1.0
        each = HOURS_PER_YEAR / len(self.profile)
        return tuple(
            Hours(hours_per_year=count * each, requests_per_second=rate, sized_requests_per_second=rate * room)
            for rate, count in sorted(Counter(self.profile).items())
        )

    def times(self, factor: float) -> Traffic:
        """The same day with ``factor`` times the load."""
        mean = self.mean_requests_per_second
        return replace(
            self,
            peak_requests_per_second=self.peak_requests_per_second * factor,
            mean_requests_per_second=None if mean is None else mean * factor,
            profile=tuple(rate * factor for rate in self.profile),
        )


def traffic_of(demand: Demand, input_tokens: float, output_tokens: float) -> Traffic:
    """The year's load behind a demand; the mean of its profile where it has one."""
    profile: tuple[float, ...] = tuple(getattr(demand, "profile", None) or ())
    mean = sum(profile) / len(profile) if profile else demand.mean_requests_per_second
    return Traffic(
        peak_requests_per_second=demand.sizing_requests_per_second,
        mean_requests_per_second=mean,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        profile=profile,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What carries the load, as far as a cost needs it.

    Attributes:
        gpu, system: catalog ids.
        gpus_per_instance, gpus_per_system: whole GPUs.
        requests_per_second_per_instance: highest load inside the limits.
        system_watts: highest power of one system; None where unknown.
        watts_from: where that comes from, in words.
        spare: systems owned on top of what the load needs.
        systems: the systems that a plan decided on, spare ones included: its simulation of the whole fleet may ask
            for more than the capacity of one instance says. None leaves the count to the capacity.
    """

    gpu: str
    system: str
    gpus_per_instance: int
    gpus_per_system: int
    requests_per_second_per_instance: float
    system_watts: float | None
    watts_from: str
    spare: int = 0
    systems: int | None = None


def serving_of(candidate: Candidate, spare: int = 0) -> Serving:
    """What a candidate of a plan is, for its cost."""
    watts, source = system_watts(candidate.gpu, candidate.system)
    return Serving(
        gpu=candidate.gpu,
        system=candidate.system,
        gpus_per_instance=candidate.parallelism.gpus,
        gpus_per_system=candidate.gpus_per_system,
        requests_per_second_per_instance=candidate.requests_per_second_per_instance,
        system_watts=watts,
        watts_from=source,
        spare=spare,
        systems=candidate.systems,
    )


def system_watts(gpu: str, system: str) -> tuple[float | None, str]:
    """Highest power of a system in watts and where it comes from: its own, else the TDP of its GPUs, without the rest of the server."""
    try:
        found = find_system(system)
        if found.max_power_w is not None:
            return found.max_power_w, f"highest power of {found.name}, {found.max_power_w:,.0f} W"
        tdp = find_gpu(gpu).tdp_w
    except UnknownName:
        tdp = None
    if tdp is None:
        return None, f"the power of {system} is not in the catalog"
    return found.gpus * tdp, f"TDP of {found.gpus} × {gpu}, {found.gpus * tdp:,.0f} W, without the rest of the server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """An estimate of the electricity of owned systems: highest power × utilisation × PUE.

    Attributes:
        kwh_per_year: at the meter of the building.
        usd_per_year: at the price of power; None where none is given.
        utilisation: mean over the year of load over what the systems carry inside the limits.
        added: whether it is part of the cost, or hosting pays for it.
        how: the arithmetic.
    """

    kwh_per_year: float
    usd_per_year: float | None
    utilisation: float
    added: bool
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPart:
    """One bar of a cost: ``kind`` is "capex" (written off) or "opex"."""

    name: str
    kind: Literal["capex", "opex"]
    usd_per_year: float
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionCost:
    """What one way of serving costs a year; USD everywhere.

    Attributes:
        where: which way.
        usd_per_year: all parts; None where a price is not known, and ``reason`` says which.
        usd_per_year_low, usd_per_year_high: with the ends of the cloud price in place of its middle.
        usd_per_year_exact: without rounding to whole systems and without spare; None where nothing is rounded.
        usd_per_1000_requests, usd_per_1000_requests_exact: over the requests of the year; None where they are not known.
        usd_per_million_input_tokens, usd_per_million_output_tokens: split by the price ratio.
        parts: what the cost consists of.
        purchase_usd: price of the systems on the day they are bought.
        systems, systems_exact, instances, gpus: what is owned; None or 0 where nothing is.
        cloud_gpu_hours_per_year, cloud_gpus_at_peak: what is rented.
        energy: of what is owned; None where nothing is, or its power is not known.
        how: the arithmetic, one line each.
        figures: every price that went into it.
        reason: why there is no cost; empty where there is one.
    """

    where: Where
    usd_per_year: float | None
    usd_per_year_low: float | None = None
    usd_per_year_high: float | None = None
    usd_per_year_exact: float | None = None
    usd_per_1000_requests: float | None = None
    usd_per_1000_requests_exact: float | None = None
    usd_per_million_input_tokens: float | None = None
    usd_per_million_output_tokens: float | None = None
    parts: tuple[CostPart, ...] = ()
    purchase_usd: float | None = None
    systems: int = 0
    systems_exact: float | None = None
    instances: int = 0
    gpus: int = 0
    cloud_gpu_hours_per_year: float = 0.0
    cloud_gpus_at_peak: int = 0
    energy: Energy | None = None
    how: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    reason: str = ""

    @property
    def capex_usd_per_year(self) -> float:
        """Written off in a year."""
        return sum(part.usd_per_year for part in self.parts if part.kind == "capex")

    @property
    def opex_usd_per_year(self) -> float:
        """Paid in a year."""
        return sum(part.usd_per_year for part in self.parts if part.kind == "opex")

    def to_json(self) -> dict[str, Any]:
        """The cost as JSON values."""
        return {**asdict(self), "capex_usd_per_year": self.capex_usd_per_year, "opex_usd_per_year": self.opex_usd_per_year}


def spread(cost: OptionCost, traffic: Traffic, prices: Prices) -> OptionCost:
    """The cost with its shares per request and per token, where the requests of the year are known."""
    requests, usd = traffic.requests_per_year, cost.usd_per_year
    if not requests or usd is None:
        return cost
    exact = cost.usd_per_year_exact
    ratio = prices.output_to_input_price_ratio.value
    per_token = usd / requests / (traffic.input_tokens + ratio * traffic.output_tokens)
    return replace(
        cost,
        usd_per_1000_requests=usd / requests * 1_000,
        usd_per_1000_requests_exact=None if exact is None else exact / requests * 1_000,
        usd_per_million_input_tokens=per_token * 1e6,
        usd_per_million_output_tokens=per_token * ratio * 1e6,
        figures=(*cost.figures, prices.output_to_input_price_ratio),
    )


def system_parts(serving: Serving, prices: Prices, count: float) -> tuple[CostPart, ...] | str:
    """A year of ``count`` owned systems, part by part and without electricity; a sentence where the price is not known."""
    price = prices.system_usd(serving.system)
    if price is None:
        return f"the price of {serving.system} is not known; give it as systems.{serving.system} (USD)"
    years, hosting, licence = prices.depreciation_years, prices.hosting_usd_per_system_year, prices.licence_usd_per_gpu_year
    shown = f"{count:,.4g} × "
    each = f"{shown}{price.value:,.0f} USD / {years.value:g} years"
    parts = [CostPart(name="systems", kind="capex", usd_per_year=count * price.value / years.value, how=each)]
    if hosting is not None:
        how = f"{shown}{amount(hosting)} USD"
        parts.append(CostPart(name="hosting", kind="opex", usd_per_year=count * hosting.value, how=how))
    if licence is not None:
        how = f"{shown}{serving.gpus_per_system} GPUs × {amount(licence)} USD"
        usd = count * serving.gpus_per_system * licence.value
        parts.append(CostPart(name="licences", kind="opex", usd_per_year=usd, how=how))
    return tuple(parts)


def owned_figures(serving: Serving, prices: Prices) -> tuple[Figure, ...]:
    """The prices that an owned system's cost rests on."""
    energy = (prices.power_usd_per_kwh, prices.pue) if prices.power_usd_per_kwh else (prices.pue,)
    found = (
        prices.system_usd(serving.system),
        prices.depreciation_years,
        prices.hosting_usd_per_system_year,
        prices.licence_usd_per_gpu_year,
        *energy,
    )
    return tuple(figure for figure in found if figure is not None)


def energy_of(serving: Serving, traffic: Traffic, prices: Prices, instances: int) -> Energy | None:
    """Electricity of ``instances`` owned instances, each with its share of a system; None where their power is not known.

    In an hour that needs more instances than are owned, these take their share. Where only the peak is
    known the systems are taken as busy all year: an upper bound.
    """
    if serving.system_watts is None or not instances:
        return None
    systems = instances * serving.gpus_per_instance / serving.gpus_per_system
    carried = instances * serving.requests_per_second_per_instance
    busy = 0.0
    for hours in traffic.hours:
        rate, sized = hours.requests_per_second, hours.sized_requests_per_second
        share = min(1.0, carried / sized) if sized else 1.0
        busy += hours.hours_per_year * (1.0 if rate is None else min(1.0, rate * share / carried))
    utilisation = busy / HOURS_PER_YEAR
    kwh = systems * serving.system_watts / 1_000 * busy * prices.pue.value
    power = prices.power_usd_per_kwh
    whole = "" if traffic.mean_requests_per_second is not None else " (only the peak is known: taken as busy all year)"
    how = (
        f"estimate: {systems:,.4g} × {serving.watts_from} × utilisation {utilisation:.0%}{whole} × {HOURS_PER_YEAR:,} h × PUE "
        f"{prices.pue.value:g}{f' × {amount(power)} USD/kWh' if power else ''}"
    )
    return Energy(
        kwh_per_year=kwh,
        usd_per_year=None if power is None else kwh * power.value,
        utilisation=utilisation,
        added=power is not None and not prices.power_in_hosting,
        how=how,
    )


def energy_part(energy: Energy | None) -> tuple[CostPart, ...]:
    """The electricity as a part of a cost; none where hosting pays for it or its price is not known."""
    if energy is None or energy.usd_per_year is None or not energy.added:
        return ()
    return (CostPart(name="power", kind="opex", usd_per_year=energy.usd_per_year, how=energy.how),)


def api_cost(traffic: Traffic, prices: Prices, name: str | None = None) -> OptionCost:
    """What an API asks for the year's tokens."""
    price = prices.api_price(name)
    if price is None:
        return OptionCost(
            where="api", usd_per_year=None, reason="no API price is known; give it as api (USD per million tokens in and out)"
        )
    each, how = api_request(traffic, prices, name)
    figures = (price.usd_per_million_input_tokens, price.usd_per_million_output_tokens)
    requests = traffic.requests_per_year
    if requests is None:
        reason = "only the peak is known; give a mean or a profile to know the tokens of a year"
        return OptionCost(where="api", usd_per_year=None, usd_per_1000_requests=each * 1_000, how=(how,), figures=figures, reason=reason)
    part = CostPart(name="tokens", kind="opex", usd_per_year=each * requests, how=f"{how}, × {requests:,.0f} requests")
    return OptionCost(
        where="api",
        usd_per_year=part.usd_per_year,
        usd_per_1000_requests=each * 1_000,
        usd_per_million_input_tokens=figures[0].value,
        usd_per_million_output_tokens=figures[1].value,
        parts=(part,),
        how=(part.how,),
        figures=figures,
    )


def api_request(traffic: Traffic, prices: Prices, name: str | None = None) -> tuple[float, str]:
    """USD that one request costs at an API, and the arithmetic; the API must be in the list."""
    price = prices.api_price(name)
    if price is None:
        raise UnknownName("API", str(name), [known.name for known in prices.api])
    into, out = price.usd_per_million_input_tokens, price.usd_per_million_output_tokens
    usd = (traffic.input_tokens * into.value + traffic.output_tokens * out.value) / 1e6
    how = (
        f"{price.name}: {traffic.input_tokens:,.6g} tokens in × {amount(into)} USD + {traffic.output_tokens:,.6g} out × "
        f"{amount(out)} USD per million = {usd * 1_000:,.4g} USD per 1,000 requests"
    )
    return usd, how
