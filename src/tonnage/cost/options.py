"""One load, or several use cases together, served by owned systems, by cloud GPUs by the hour, and
by both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tonnage.cost.cost import (
    api_request,
    divided,
    ends,
    energy_of,
    energy_part,
    licence_of,
    owned_figures,
    ranged_part,
    serving_of,
    spread,
    system_parts,
    system_watts,
    token_part,
    traffic_of,
)
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import WAYS, CostPart, Energy, Hours, Serving, Traffic, WayCost, Where
from tonnage.plan.notes import NoCost
from tonnage.plan.use_cases import Arrangement, CostShare, PoolSystems, UseCasePool, UseCases
from tonnage.spec.prices import ApiPrice, CloudOffer, CloudTier, Figure, Prices, amount

MOST_SPLITS = 1_000  # numbers of owned systems that are looked at one by one


def needed(requests_per_second: float, serving: Serving) -> int:
    """Instances that a rate needs; what divides evenly is not rounded up."""
    return math.ceil(round(requests_per_second / serving.requests_per_second_per_instance, 9))


def instances_on(systems: int, serving: Serving) -> int:
    """Instances that ``systems`` whole systems hold."""
    return serving.fleet.of(systems).instances


def systems_for(instances: int, serving: Serving) -> int:
    """The fewest whole systems that hold ``instances``."""
    return serving.fleet.holding(instances).systems


def as_planned(serving: Serving, traffic: Traffic) -> Serving:
    """The instance at the load that it carries in the plan's fleet, where its simulation asks for
    more or fewer systems than division.
    """
    if serving.systems is None:
        return serving
    instances = instances_on(serving.systems - serving.spare, serving)
    if instances == instances_on(
        systems_for(max(1, needed(peak_of(traffic), serving)), serving), serving
    ):
        return serving
    return replace(serving, requests_per_second_per_instance=peak_of(traffic) / instances)


def peak_of(traffic: Traffic) -> float:
    """The load that the busiest hour is provided for, in requests/s."""
    return max(hours.sized_requests_per_second for hours in traffic.hours)


def on_prem(traffic: Traffic, serving: Serving, prices: Prices, min_instances: int = 0) -> WayCost:
    """The cost of whole systems for the peak and the spare ones, owned all year."""
    peak = peak_of(traffic)
    instances = max(1, min_instances, needed(peak, serving))
    systems = systems_for(instances, serving) + serving.spare
    exact = serving.fleet.exactly(peak, serving.requests_per_second_per_instance)
    parts, exact_parts = (system_parts(serving, prices, count) for count in (systems, exact))
    if isinstance(parts, NoCost) or isinstance(exact_parts, NoCost):
        reason = parts if isinstance(parts, NoCost) else None
        return WayCost(
            where="on-prem",
            total_usd_per_year=None,
            systems=systems,
            systems_exact=exact,
            reason=reason,
        )
    energy = energy_of(serving, traffic, prices, instances_on(systems, serving))
    exactly = sum(part.usd_per_year for part in (*exact_parts, *energy_part(energy)))
    more: dict[str, Any] = {"systems_exact": exact, "usd_per_year_exact": exactly}
    return _year(
        "on-prem", traffic, serving, prices, bought=systems, owned=parts, energy=energy, **more
    )


def _year(
    where: Where,
    traffic: Traffic,
    serving: Serving,
    prices: Prices,
    *,
    bought: int,
    owned: tuple[CostPart, ...],
    energy: Energy | None,
    rest: tuple[CostPart, ...] = (),
    figures: tuple[Figure, ...] = (),
    **more: Any,
) -> WayCost:
    """The cost of a year of ``bought`` systems, their electricity, and the other costs."""
    parts = (*owned, *energy_part(energy), *rest)
    low, high = ends(parts)
    cost = WayCost(
        where=where,
        total_usd_per_year=sum(part.usd_per_year for part in parts),
        usd_per_year_low=low,
        usd_per_year_high=high,
        parts=parts,
        purchase_usd=bought * value_of(prices.system_usd(serving.system)) if bought else None,
        systems=bought,
        instances=instances_on(bought, serving),
        gpus=bought * serving.gpus_per_system,
        energy=energy,
        how=tuple(f"{part.name}: {part.how}" for part in parts),
        figures=(*(owned_figures(serving, prices) if bought else ()), *figures),
        **more,
    )
    return spread(cost, traffic, prices)


def value_of(figure: Figure | None) -> float:
    """Its value; 0 where it is left out."""
    return 0.0 if figure is None else figure.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """The smallest unit that a cloud rents out, and its price an hour in USD."""

    # GPUs that are rented at once: those of a machine, of as many machines as an instance takes,
    # or, where the size of the machine is not known, those of an instance
    gpus: int
    instances: int  # instances that these hold
    hour: float  # an hour of them at the price that counts
    # low, high: at the cheapest and at the dearest provider of such machines, or at the ends of the
    # one offer's range
    low: float
    high: float
    licence: float  # an hour of the software on them
    offer: str
    figures: tuple[Figure, ...]

    @property
    def usd(self) -> float:
        """GPUs and licence."""
        return self.hour + self.licence

    def holding(self, instances: int) -> int:
        """The number of machines to rent for ``instances``."""
        return -(-instances // self.instances)

    def outdoes(self, rent: Rent) -> bool:
        """Whether it holds any number of instances for no more than the other."""
        times, rest = divmod(rent.instances, self.instances)
        return not rest and times * self.usd <= rent.usd


def rents_of(serving: Serving, prices: Prices, years: int = 0) -> tuple[Rent, ...] | NoCost:
    """What may be rented for an instance by the hour, or for so many years, by the size of the
    machine, the smallest first; why nothing is where no price is known.

    Which of them costs least depends on how many instances are needed; others are left out.
    """
    gpu, gpus = serving.gpu, serving.gpus_per_instance
    tiers = prices.reserved_tiers(gpu, gpus, years) if years else prices.cloud_tiers(gpu, gpus)
    if not tiers:
        return NoCost(code="cloud-price", name=serving.gpu)
    rents: list[Rent] = []
    for rent in (_rent(tier, serving, prices) for tier in tiers):
        if not any(earlier.outdoes(rent) for earlier in rents):
            rents.append(rent)
    return tuple(rents)


def _rent(tier: CloudTier, serving: Serving, prices: Prices) -> Rent:
    price, licence = (
        tier.offer.usd_per_gpu_hour,
        licence_of(serving, prices.licence_usd_per_gpu_hour),
    )
    single_offer = len(tier.offers) == 1
    cheapest, dearest = tier.offers[0].usd_per_gpu_hour, tier.offers[-1].usd_per_gpu_hour
    machine = tier.machine_gpus or serving.gpus_per_instance
    gpus = machine * math.ceil(serving.gpus_per_instance / machine)
    return Rent(
        gpus=gpus,
        instances=gpus // serving.gpus_per_instance,
        hour=price.value * gpus,
        low=(price.low if single_offer else cheapest.value) * gpus,
        high=(price.high if single_offer else dearest.value) * gpus,
        licence=value_of(licence) * gpus,
        offer=_offer_text(tier),
        figures=tuple(
            dict.fromkeys(
                figure for figure in (price, cheapest, dearest, licence) if figure is not None
            )
        ),
    )


def _offer_text(tier: CloudTier) -> str:
    """The offer that counts, the cheapest and the dearest of machines of that size, and those of
    the other providers.
    """
    words = f"{tier.offer.offer}, {amount(tier.offer.usd_per_gpu_hour)} USD per GPU and hour"
    if tier.machine_gpus is None or (len(tier.offers) == 1 and not tier.elsewhere):
        return words
    machines = f"machines of {tier.machine_gpus} GPU{'' if tier.machine_gpus == 1 else 's'}"
    if len(tier.offers) > 1:
        words += (
            f": the middle one of {len(tier.offers)} providers of {machines},"
            f" {_between(tier.offers)}"
        )
    else:
        words += f": the only provider of {machines}"
    return (
        f"{words}; {len(tier.elsewhere)} more rent other sizes, {_between(tier.elsewhere)}"
        if tier.elsewhere
        else words
    )


def _between(offers: Sequence[CloudOffer]) -> str:
    """The cheapest and the dearest, with their providers."""
    first, last = (
        f"{offer.usd_per_gpu_hour.value:g} ({offer.provider or offer.offer})"
        for offer in (offers[0], offers[-1])
    )
    return first if len(offers) == 1 else f"{first} to {last}"


def instances_in(hours: Hours, serving: Serving, min_instances: int) -> int:
    """Instances that are on in such an hour."""
    return max(min_instances, needed(hours.sized_requests_per_second, serving))


def _rental(rent: Rent, rented_hours: float) -> tuple[CostPart, ...]:
    gpu_hours = rented_hours * rent.gpus
    shown = f"{gpu_hours:,.0f} GPU-hours × "
    usd = (rented_hours * rent.hour, rented_hours * rent.low, rented_hours * rent.high)
    gpus = ranged_part("cloud GPUs", "opex", shown + rent.offer, usd, ranges=rent.low < rent.high)
    if not rent.licence:
        return (gpus,)
    how = f"{shown}{rent.licence / rent.gpus:g} USD"
    return (
        gpus,
        CostPart(
            name="cloud licences", kind="opex", usd_per_year=rented_hours * rent.licence, how=how
        ),
    )


def cloud(traffic: Traffic, serving: Serving, prices: Prices, min_instances: int = 1) -> WayCost:
    """Instances rented by the hour, as many as each hour needs, on the machines that cost least for
    them.
    """
    rents = rents_of(serving, prices)
    if isinstance(rents, NoCost):
        return WayCost(where="cloud", total_usd_per_year=None, reason=rents)
    return cheapest_split(
        [
            _mixed(
                "cloud", traffic, serving, prices, rent=rent, min_instances=min_instances, systems=0
            )
            for rent in rents
        ]
    )


def hybrid(traffic: Traffic, serving: Serving, prices: Prices, min_instances: int = 1) -> WayCost:
    """The cheapest number of owned systems, from none to all, with the rest rented by the hour.

    Where systems are owned, the spare ones are owned next to them. Of equal costs the one with
    fewer systems wins.
    """
    rents = rents_of(serving, prices)
    if isinstance(rents, NoCost):
        return WayCost(where="hybrid", total_usd_per_year=None, reason=rents)
    splits = [
        _mixed(
            "hybrid",
            traffic,
            serving,
            prices,
            rent=rent,
            min_instances=min_instances,
            systems=count,
        )
        for rent in rents
        for count in _corners(traffic, serving, rent, min_instances)
    ]
    return cheapest_split(splits)


def cheapest_split(splits: Sequence[WayCost]) -> WayCost:
    """The cheapest of several numbers of owned systems; the first without a cost where a price is
    not known.
    """
    unknown = next((split for split in splits if split.total_usd_per_year is None), None)
    return unknown or min(splits, key=lambda split: split.total_usd_per_year or 0.0)


def _corners(traffic: Traffic, serving: Serving, rent: Rent, min_instances: int) -> Sequence[int]:
    """Numbers of owned systems of which one is the cheapest of all: none, and those around which
    some hour needs no rent any more.

    Between them the rent is a straight line over the number of systems, ownership too, and
    electricity bends downwards only: the least is at an end. Where the instances of a system are no
    whole number of what is rented at once, the rent is a staircase between them, and every number
    is looked at, up to ``MOST_SPLITS`` of them: beyond these one machine makes no difference.
    """
    per_system, span = serving.fleet.instances_per_system, serving.fleet.systems_per_instance
    needs = [instances_in(hours, serving, min_instances) for hours in traffic.hours]
    if per_system % rent.instances and max(needs) <= MOST_SPLITS * per_system:
        return range(0, math.ceil(max(needs) / per_system) * span + 1, span)
    return _around((rent.holding(need) * rent.instances / per_system for need in needs), span)


def _around(groups: Iterable[float], span: int) -> list[int]:
    """Zero systems, and the whole numbers of groups on either side of each value."""
    return sorted(
        {whole(count) * span for count in (0, *groups) for whole in (math.floor, math.ceil)}
    )


def with_spare(systems: int, serving: Serving) -> int:
    """The systems to buy for ``systems`` that carry load: spare ones too, where any are bought."""
    return systems + serving.spare if systems else 0


def hours_by_need(traffic: Traffic, serving: Serving, min_instances: int) -> dict[int, float]:
    """Hours of a year by the number of instances that they need."""
    needs: dict[int, float] = {}
    for hours in traffic.hours:
        instances = instances_in(hours, serving, min_instances)
        needs[instances] = needs.get(instances, 0.0) + hours.hours_per_year
    return needs


def rented_hours(rent: Rent, needs: Mapping[int, float], owned_instances: int) -> float:
    """Hours a year for which machines are rented for what so many owned instances leave over."""
    return sum(
        hours * rent.holding(max(0, instances - owned_instances))
        for instances, hours in needs.items()
    )


def _mixed(
    where: Where,
    traffic: Traffic,
    serving: Serving,
    prices: Prices,
    *,
    rent: Rent,
    min_instances: int,
    systems: int,
) -> WayCost:
    """The cost of a year with some owned systems, their spare ones, and the rest rented."""
    bought = with_spare(systems, serving)
    owned = system_parts(serving, prices, bought) if systems else ()
    if isinstance(owned, NoCost):
        return WayCost(where=where, total_usd_per_year=None, reason=owned)
    owned_instances = instances_on(systems, serving)
    needs = hours_by_need(traffic, serving, min_instances)
    rented = rented_hours(rent, needs, owned_instances)
    energy = energy_of(serving, traffic, prices, owned_instances)
    at_peak = max(0, max(needs) - owned_instances)
    rest, figures = (_rental(rent, rented), rent.figures) if rented or not systems else ((), ())
    more: dict[str, Any] = {
        "cloud_gpu_hours_per_year": rented * rent.gpus,
        "cloud_gpus_at_peak": rent.holding(at_peak) * rent.gpus,
    }
    return _year(
        where,
        traffic,
        serving,
        prices,
        bought=bought,
        owned=owned,
        energy=energy,
        rest=rest,
        figures=figures,
        **more,
    )


def yearly_owned(
    candidates: Sequence[Candidate], traffic: Traffic, prices: Prices, spare: int = 0
) -> dict[int, float]:
    """USD a year of each candidate's systems, owned for the peak, by its place; those whose price
    is not known are left out.
    """
    usd_by_place = {}
    for place, candidate in enumerate(candidates):
        serving = as_planned(serving_of(candidate, spare), traffic)
        usd = on_prem(traffic, serving, prices).total_usd_per_year
        if usd is not None:
            usd_by_place[place] = usd
    return usd_by_place


def overflow(
    traffic: Traffic, serving: Serving, prices: Prices, model: str | None = None
) -> WayCost:
    """The cheapest number of owned systems, from none to all, with the requests beyond them sent to
    an API.

    Where systems are owned, the spare ones are owned next to them. Of equal costs the one with
    fewer systems wins.
    """
    price = prices.api_price(model)
    if price is None:
        return WayCost(
            where="hybrid-api",
            total_usd_per_year=None,
            reason=NoCost(code="api-price", name=model or ""),
        )
    if traffic.requests_per_year is None:
        return WayCost(where="hybrid-api", total_usd_per_year=None, reason=NoCost(code="only-peak"))
    how = api_request(traffic, prices, model)[1]
    return cheapest_split(
        [
            _split(traffic, serving, prices, price, how, systems=count)
            for count in _corners_beyond(traffic, serving)
        ]
    )


def beyond(traffic: Traffic, serving: Serving, systems: int) -> float:
    """Requests a year that so many owned systems leave to the API.

    Of an hour that is provided for at a peak P and whose owned instances carry C, the share 1 - C /
    P is sent on. That is the most that its mean and its peak allow: it is exact for an hour that is
    now at its peak and now idle, and less goes beyond where the load is in between.
    """
    carried = instances_on(systems, serving) * serving.requests_per_second_per_instance
    return sum(
        hours.hours_per_year
        * 3_600
        * (hours.requests_per_second or 0.0)
        * max(0.0, 1 - carried / hours.sized_requests_per_second)
        for hours in traffic.hours
        if hours.sized_requests_per_second
    )


def _corners_beyond(traffic: Traffic, serving: Serving) -> list[int]:
    """Numbers of owned systems of which one is the cheapest: none, and those around which some hour
    sends nothing on any more.
    """
    group = serving.fleet.instances_per_system * serving.requests_per_second_per_instance
    exact = {round(hours.sized_requests_per_second / group, 9) for hours in traffic.hours}
    return _around(exact, serving.fleet.systems_per_instance)


def _split(
    traffic: Traffic, serving: Serving, prices: Prices, price: ApiPrice, how: str, *, systems: int
) -> WayCost:
    """The cost of a year with some owned systems that carry load, their spare ones, and the rest at
    the API.
    """
    bought = with_spare(systems, serving)
    owned = system_parts(serving, prices, bought)
    if isinstance(owned, NoCost):
        return WayCost(where="hybrid-api", total_usd_per_year=None, reason=owned)
    requests = beyond(traffic, serving, systems)
    energy = energy_of(serving, traffic, prices, instances_on(systems, serving))
    rest = (token_part(traffic, price, requests, how),) if requests else ()
    figures = (
        (price.usd_per_million_input_tokens, price.usd_per_million_output_tokens)
        if requests
        else ()
    )
    more: dict[str, Any] = {
        "owned": owned if systems else (),
        "rest": rest,
        "figures": figures,
        "api_requests_per_year": requests,
    }
    return _year("hybrid-api", traffic, serving, prices, bought=bought, energy=energy, **more)


def with_cost_together(
    use_cases: UseCases, prices: Prices, where: tuple[Where, ...] = WAYS
) -> UseCases:
    """Use cases with the yearly cost of every arrangement: systems owned for the peak, and
    instances rented as each hour needs them.
    """
    traffic = dict(zip(use_cases.names, map(traffic_of, use_cases.plans), strict=True))

    def priced(arrangement: Arrangement | None) -> Arrangement | None:
        if arrangement is None:
            return None
        loads = [
            summed([traffic[name] for name in use_cases.served(arrangement, place)])
            for place in range(len(arrangement.pools))
        ]
        pools = [
            (_pool_serving(pool, peak_of(load)), load, pool.instances)
            for pool, load in zip(arrangement.pools, loads, strict=True)
        ]
        rented = [cloud(load, serving, prices).total_usd_per_year for serving, load, _ in pools]
        owned = [
            _owned_systems(
                system, [pool for pool in pools if pool[0].system == system.system], prices
            )
            for system in arrangement.systems
        ]
        whole = _total([None if part is None else part[0] for part in owned])
        energy = _total([None if part is None else part[1] for part in owned])
        whole, energy = (whole, energy) if "on-prem" in where else (None, None)
        return replace(
            arrangement,
            owned_usd_per_year=whole,
            rented_usd_per_year=_total(rented) if "cloud" in where else None,
            shares=_shares(arrangement, use_cases, traffic, whole, energy),
        )

    return replace(
        use_cases,
        shared=priced(use_cases.shared),
        separate=priced(use_cases.separate),
        first_come=priced(use_cases.first_come),
        alone=priced(use_cases.alone),
    )


def summed(traffics: Sequence[Traffic]) -> Traffic:
    """Several loads as one, with all peaks at once; its hours are known where all profiles are
    equally long.
    """
    peaks = [traffic.peak_requests_per_second for traffic in traffics]
    means = [traffic.mean_requests_per_second for traffic in traffics]
    mean = math.fsum(rate for rate in means if rate is not None) if None not in means else None
    weights = [
        traffic.mean_requests_per_second or traffic.peak_requests_per_second for traffic in traffics
    ]
    alike = len({len(traffic.profile) for traffic in traffics}) == 1
    return Traffic(
        peak_requests_per_second=math.fsum(peaks),
        mean_requests_per_second=mean,
        input_tokens=math.fsum(
            traffic.input_tokens * weight for traffic, weight in zip(traffics, weights, strict=True)
        )
        / math.fsum(weights),
        output_tokens=math.fsum(
            traffic.output_tokens * weight
            for traffic, weight in zip(traffics, weights, strict=True)
        )
        / math.fsum(weights),
        profile=(
            tuple(map(math.fsum, zip(*(traffic.profile for traffic in traffics), strict=True)))
            if alike
            else ()
        ),
    )


def _pool_serving(pool: UseCasePool, peak: float) -> Serving:
    watts, source = system_watts(pool.gpu, pool.system)
    return Serving(
        gpu=pool.gpu,
        system=pool.system,
        gpus_per_instance=pool.parallelism.gpus,
        gpus_per_system=pool.gpus_per_system,
        requests_per_second_per_instance=peak / pool.instances,
        system_watts=watts,
        watts_from=source,
    )


def _shares(
    arrangement: Arrangement,
    use_cases: UseCases,
    traffic: Mapping[str, Traffic],
    whole: float | None,
    energy: float | None,
) -> tuple[CostShare, ...]:
    """What each use case uses of an arrangement, in GPUs at the peak and over the year, and its
    share of the cost; none where an old file does not say it.
    """
    at_peak, over_year = dict[str, float](), dict[str, float]()
    for place, pool in enumerate(arrangement.pools):
        exact = [(case.name, case.instances_exact) for case in pool.cases] or [
            (use_cases.served(arrangement, place)[0], pool.instances_exact)
        ]
        if any(instances is None for _, instances in exact):
            return ()
        total = math.fsum(instances or 0.0 for _, instances in exact)
        for case, instances in exact:
            load, used = traffic[case], (instances or 0.0) / total
            mean = load.mean_requests_per_second
            at_peak[case] = pool.gpus * used
            even = 1.0 if mean is None else mean / load.peak_requests_per_second
            over_year[case] = (instances or 0.0) * pool.parallelism.gpus * even
    if (job := use_cases.background) is not None and arrangement is use_cases.shared:
        at_peak[job.name] = 0.0
        over_year[job.name] = job.instances_exact * arrangement.pools[0].parallelism.gpus
    peaks, years = list(at_peak.values()), list(over_year.values())
    usd: Sequence[float | None] = [None] * len(peaks)
    if whole is not None and energy is not None:
        usd = divided(whole, energy, at_peak=peaks, over_year=years)
    return tuple(
        CostShare(
            name=name,
            at_peak=at_peak[name] / math.fsum(peaks),
            over_year=over_year[name] / math.fsum(years),
            usd_per_year=part,
        )
        for name, part in zip(at_peak, usd, strict=True)
    )


def _owned_systems(
    pool_systems: PoolSystems, pools: Sequence[tuple[Serving, Traffic, int]], prices: Prices
) -> tuple[float, float] | None:
    """USD a year of the systems of one kind with the electricity of their pools, and the latter
    alone; None without a price.
    """
    parts = system_parts(pools[0][0], prices, pool_systems.systems)
    if isinstance(parts, NoCost):
        return None
    powers = (
        energy_part(energy_of(serving, load, prices, instances))
        for serving, load, instances in pools
    )
    energy = math.fsum(part.usd_per_year for power in powers for part in power)
    return math.fsum((*(part.usd_per_year for part in parts), energy)), energy


def _total(usd: Sequence[float | None]) -> float | None:
    return None if None in usd else math.fsum(yearly for yearly in usd if yearly is not None)
