"""What a choice aims at and standby systems, read from the question."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import Many, listed, share_of
from tonnage.errors import InputError, option
from tonnage.plan.demand import AHEAD, ADay, Ahead, Growth, Region, Regions
from tonnage.plan.fleet import Unit
from tonnage.plan.limit import RACK_KW, Aim, BudgetOf
from tonnage.sizing.demand import WORKING_HOURS
from tonnage.sizing.fleet.standby import Failures, Reserve
from tonnage.spec.scenario import ChoiceAsked, DemandAsked, Scenario, StandbyAsked
from tonnage.spec.written_numbers import number_of
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.cost import Where
    from tonnage.plan.plan import Plan
    from tonnage.sizing.question import Question
    from tonnage.spec.prices import Prices


_TIME = re.compile(
    r"^(.*?)\s*(?:(?:/|per|a|p\.?)\s*(year|yr|y|a|annum|month|mo)\.?)$", re.IGNORECASE
)
MONTHS = 12
_NO_BUDGET: tuple[float | None, BudgetOf] = (None, "purchase")


def aim_of(choice: ChoiceAsked) -> Aim | None:
    """The aim of the choice; None without one. Raises InputError."""
    if choice == ChoiceAsked():
        return None
    usd, of = _NO_BUDGET if choice.budget is None else budget_of(choice.budget)
    return Aim(
        objective=choice.objective or "gpus",
        budget_usd=usd,
        budget_of=of,
        max_kw=choice.max_kw,
        max_racks=choice.max_racks,
        rack_kw=choice.rack_kw or RACK_KW,
    )


def budget_of(text: str) -> tuple[float, BudgetOf]:
    """Read "500k USD" as what may be spent to buy, "200k USD/year" or "20k USD/month" as what a
    year may cost. Raises InputError.
    """
    written = str(text).strip()
    match = _TIME.match(written)
    usd = number_of(match[1] if match else written, "usd")
    times = MONTHS if match is not None and match[2].lower().startswith("mo") else 1
    if usd is None or not 0 < usd <= 1e15:
        raise InputError(
            f"{option('budget')}: '{written[:40]}' is not a budget in US dollars; write for example"
            " 500k USD or 200k USD/year"
        )
    return usd * times, "purchase" if match is None else "year"


def reserve_of(standby: StandbyAsked) -> Reserve | None:
    """Standby systems; None where none are requested. Raises InputError."""
    if standby == StandbyAsked():
        return None
    share, written = (None, "") if standby.availability is None else share_of(standby.availability)
    if share is not None and not 0.5 <= share <= 0.999_999_999:
        raise InputError(
            f"{option('availability')}: '{written}' is not a probability; write 50% to 99.9999999%,"
            " such as 99.9%"
        )
    if (standby.mtbf is None) != (standby.repair_time is None):
        missing, partner = (
            ("mtbf", "repair_time") if standby.mtbf is None else ("repair_time", "mtbf")
        )
        raise InputError(
            f"{option(partner)}: goes with {option(missing)}; give both, such as {option('mtbf')}"
            f" 8000h {option('repair_time')} 24h"
        )
    if standby.mtbf is None and (
        share is not None or standby.repairers is not None or standby.failing is not None
    ):
        name = (
            "availability"
            if share is not None
            else "repairers"
            if standby.repairers is not None
            else "failing"
        )
        raise InputError(
            f"{option(name)}: goes with {option('mtbf')} and {option('repair_time')}, such as 8000h"
            " and 24h"
        )
    only_spare: Unit = (
        "instance" if standby.spare_instances is not None and standby.mtbf is None else "system"
    )
    return Reserve(
        unit=standby.failing or only_spare,
        asked=share,
        failures=_failures(standby),
        spare_instances=standby.spare_instances or 0,
    )


def _failures(standby: StandbyAsked) -> Failures | None:
    if standby.mtbf is None or standby.repair_time is None:
        return None
    hours = {
        name: parse_duration(getattr(standby, name), option(name)) / 3600
        for name in ("mtbf", "repair_time")
    }
    for name, value in hours.items():
        if not 1e-6 <= value <= 1e9:
            raise InputError(
                f"{option(name)}: '{getattr(standby, name)}' is not a time that failures take;"
                " write for example 8000h or 24h"
            )
    return Failures(
        mtbf_hours=hours["mtbf"], repair_hours=hours["repair_time"], repairers=standby.repairers
    )


SIZED_RPS = (1e-6, 1e9)  # least and largest load in requests per second that is looked at

_GROWTH = re.compile(
    r"^([+-]?\d+(?:\.\d*)?|\.\d+)\s*(%|percent|[x×])\s*(?:/|per|a|p\.?)?\s*(month|monthly|mo|m|year|yearly|annually|annum|yr|y|a)\.?$",
    re.IGNORECASE,
)


def growth_of(text: float | str | None) -> float:
    """Read "5%/month", "60% a year" or "2x/year" as the share by which a load grows in a month.
    Raises InputError.
    """
    written = str(text).strip()
    match = _GROWTH.match(written)
    share = (
        -1.0
        if match is None
        else float(match[1]) - 1
        if match[2].lower() in "x×"
        else float(match[1]) / 100
    )
    if match is None or not -1 < share <= 100:
        number = re.fullmatch(r"([+-]?\d+(?:\.\d*)?)\s*%", written)
        what, example = ("says no time", number[1]) if number else ("is not a growth", "5")
        raise InputError(
            f"{option('growth')}: '{written[:40]}' {what}; write for example {example}%/month or"
            f" {example}%/year"
        )
    return share if match[3].lower().startswith("m") else (1 + share) ** (1 / 12) - 1


def later(
    plan: Plan, question: Question, answered: Callable[[Question], Plan]
) -> Callable[[int], Candidate | None]:
    """The deployment of the choice at the load after so many months of growth; None where that
    load is beyond what can be sized, or no number of systems carries it.
    """
    from tonnage.sizing.search.search_space import narrowed
    from tonnage.sizing.sensitivity import changed_question

    best, growth, demand = plan.choice, question.growth_per_month or 0.0, question.demand
    if best is None:
        return lambda months: None
    alone = replace(narrowed(question, best), deepen=False, demand=replace(demand, percentile=None))

    def after(months: int) -> Candidate | None:
        times = (1 + growth) ** months
        if not SIZED_RPS[0] <= demand.sizing_requests_per_second * times <= SIZED_RPS[1]:
            return None
        candidates = answered(changed_question(alone, "rate", times - 1)).candidates
        same = (candidate for candidate in candidates if candidate.identity == best.identity)
        return next(same, None)

    return after


def with_growth(plan: Plan, question: Question, answered: Callable[[Question], Plan]) -> Plan:
    """The plan with the systems of its choice that the load takes later; as it is where no growth
    was requested, or nothing was chosen.
    """
    from tonnage.sizing.fleet.existing import months_left

    best, growth = plan.choice, question.growth_per_month
    if best is None or growth is None or question.have:
        return plan
    candidate_after = later(plan, question, answered)

    def after(months: int) -> Ahead | None:
        """The systems of the choice at the load after ``months``; None where that load is beyond
        what can be sized.
        """
        rate = question.demand.sizing_requests_per_second * (1 + growth) ** months
        if not SIZED_RPS[0] <= rate <= SIZED_RPS[1]:
            return None
        then = candidate_after(months)
        systems, exact = (None, None) if then is None else (then.systems, then.systems_exact)
        return Ahead(months=months, requests_per_second=rate, systems=systems, systems_exact=exact)

    def enough(months: int) -> bool:
        """Whether the systems of the plan are still enough then."""
        then = after(months)
        return then is not None and then.systems is not None and then.systems <= best.systems

    spare = question.spare + (0 if best.standby is None else best.standby.extra_systems)
    by_division = months_left(1.0, (best.systems - spare) / best.systems_exact, growth)
    remaining_months = by_division if by_division is None else _last(enough, by_division)
    ahead = tuple(then for months in AHEAD if (then := after(months)) is not None)
    return replace(plan, growth=Growth(per_month=growth, months_left=remaining_months, ahead=ahead))


def with_regions(plan: Plan, question: Question, answered: Callable[[Question], Plan]) -> Plan:
    """The plan with what its regions use and take alone; as it is where no profile names any, or
    nothing was chosen.
    """
    from tonnage.sizing.search.search_space import narrowed
    from tonnage.sizing.sensitivity import changed_question

    best = plan.choice
    if best is None or not question.regions or question.have:
        return plan
    whole = [sum(hour) for hour in zip(*(hours for _, hours in question.regions), strict=True)]
    busiest, total = whole.index(max(whole)), sum(whole)
    alone = replace(narrowed(question, best), deepen=False, regions=())

    def systems(peak: float) -> int | None:
        """Systems of the choice's deployment for the peak of one region."""
        if not peak:
            return 0
        candidates = answered(changed_question(alone, "rate", peak / whole[busiest] - 1)).candidates
        same = (again for again in candidates if again.identity == best.identity)
        return next((again.systems for again in same), None)

    regions = tuple(
        Region(
            name=name,
            peak_requests_per_second=max(hours),
            peak_hour=hours.index(max(hours)),
            mean_requests_per_second=sum(hours) / len(hours),
            at_peak=hours[busiest] / whole[busiest],
            over_year=sum(hours) / total,
            systems=systems(max(hours)),
        )
        for name, hours in question.regions
    )
    return replace(plan, regions=Regions(regions=regions, systems=best.systems))


def _last(enough: Callable[[int], bool], last_month: int) -> int:
    """The last month of 0 to ``last_month`` in which the systems are enough; the whole fleet,
    simulated, may ask for more than division.
    """
    if last_month <= 0 or enough(last_month):
        return max(0, last_month)
    low, high = 0, last_month
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def overrides_of(scenario: Scenario) -> tuple[dict[str, Any], str]:
    """The asker's own prices, and where they are. Raises InputError: a prices file that cannot be
    read.
    """
    from tonnage.spec.catalog.price_list import read_overrides

    if isinstance(scenario.prices, str):
        return read_overrides(scenario.prices), scenario.prices
    return dict(scenario.prices or {}), "prices"


def prices_of(scenario: Scenario) -> Prices:
    """The catalog's prices with the asker's own in their place. Raises InputError: prices that
    cannot be.
    """
    from tonnage.spec.catalog.price_list import catalog_prices

    overrides, where = overrides_of(scenario)
    return catalog_prices().with_overrides(overrides, where)


def places(values: Many | None) -> tuple[str, ...]:
    """Where the load may be served: some of on-prem, cloud, hybrid, api and hybrid-api. Raises
    InputError: another place.
    """
    from tonnage.plan.cost import WAYS

    names = () if values is None else listed(values, option("where"))
    canonical: dict[str, str] = dict(zip(WAYS, WAYS, strict=True)) | dict.fromkeys(
        ("onprem", "on-premise", "on-premises"), "on-prem"
    )
    plain = {name: name.lower().replace("_", "-").replace(" ", "-") for name in names}
    for name in names:
        if plain[name] not in canonical:
            raise InputError(
                f"{option('where')}: '{name}' is not a place; choose from {', '.join(WAYS)}"
            )
    return tuple(canonical[plain[name]] for name in names)


def places_of(scenario: Scenario) -> tuple[Where, ...]:
    """The ways of serving whose cost was requested, in the order in which they are shown; all if
    none was named.
    """
    from tonnage.plan.cost import WAYS

    return (
        WAYS
        if scenario.where is None
        else tuple(way for way in WAYS if way in places(scenario.where))
    )


def with_prices(prices: object, flags: list[str]) -> dict[str, Any]:
    """The prices of a file or of nested values, with single ones such as "systems.dgx-h100=250000"
    in their place. Raises InputError.
    """
    from tonnage.spec.catalog.price_list import parse_price_flags, read_overrides

    base = read_overrides(prices) if isinstance(prices, str) else prices or {}
    if not isinstance(base, Mapping):
        raise InputError(
            f"{option('prices')}: {prices!r} is not a list of prices; name a file, or write keys"
            " with values"
        )
    return _over(dict(base), parse_price_flags(flags))


def _over(base: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with others in their place."""
    merged = dict(base)
    for key, value in change.items():
        inner = merged.get(key)
        merged[key] = (
            _over(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
        )
    return merged


# the shape of a day without a load
OF_A_DAY = ("requests_per_user_day", "working_hours", "working_days", "peak_factor")


def says_no_load(demand: DemandAsked) -> bool:
    """Whether a demand says at most how a working day is, and no load."""
    return replace(demand, **dict.fromkeys(OF_A_DAY)) == DemandAsked()


def with_day(plan: Plan, demand: DemandAsked) -> Plan:
    """The plan of existing systems with a working day of what they carry; as it is where nothing
    exists or runs.
    """
    existing = plan.existing
    if existing is None or existing.requests_per_second <= 0 or plan.demand.offline:
        return plan
    hours, factor = demand.working_hours or float(WORKING_HOURS), demand.peak_factor or 1.0
    requests = existing.requests_per_second / factor * hours * 3_600
    requests_per_user = demand.requests_per_user_day
    day = ADay(
        hours=hours,
        peak_factor=factor,
        requests=requests,
        input_tokens=requests * plan.scenario.mean_isl,
        output_tokens=requests * plan.scenario.mean_osl,
        requests_per_user=requests_per_user,
        users=None if requests_per_user is None else requests / requests_per_user,
    )
    return replace(plan, existing=replace(existing, a_day=day))
