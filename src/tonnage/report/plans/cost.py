"""What a plan costs a year, or a job that is run again and again: each way of running it, what that
is made of, what it comes to.
"""

from __future__ import annotations

import calendar
import math
from collections.abc import Iterator, Sequence

from tonnage.plan import notes
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import (
    HOURS_PER_YEAR,
    BreakEven,
    JobCost,
    PaysOff,
    WayCost,
    Where,
    YearlyCost,
)
from tonnage.plan.fleet import Footprint
from tonnage.plan.notes import NoCost
from tonnage.plan.plan import Plan
from tonnage.report.document import Block, Facts, Section, Table, items, section
from tonnage.report.numbers import ABSENT, counted, dollars, number, plain, sentence_of, usd, whole
from tonnage.spec.prices import Figure, amount

# What a way is called in the middle of a sentence
THE = {
    "on-prem": "on-prem",
    "cloud": "the cloud",
    "hybrid": "the hybrid",
    "api": "the API",
    "hybrid-api": "the hybrid with an API",
}
# By the key of the list that has one value for all
PRICE_NAMES = {
    "depreciation_years": "Years over which systems are written off",
    "hosting_usd_per_kw_month": "Hosting, USD per kW and month",
    "hosting_usd_per_system_year": "Hosting, USD per system and year",
    "licence_usd_per_gpu_year": "Licences, USD per GPU and year",
    "licence_usd_per_gpu_hour": "Cloud licences, USD per GPU and hour",
    "power_usd_per_kwh": "Electricity, USD per kWh",
    "grid_kg_co2_per_kwh": "Carbon intensity of the grid, kg per kWh",
    "pue": "Power of the site over that of its machines (PUE)",
    "output_to_input_price_ratio": "Price of an output token over that of an input token",
    "server_over_gpus": "Price of a server over that of its GPUs",
    "power_in_hosting": "Whether hosting pays for the electricity",
}
TOKENS = {
    "usd_per_million_input_tokens": "input tokens",
    "usd_per_million_output_tokens": "output tokens",
}


def price_name(path: str) -> str:
    """The name of a price by its path in a list ("cloud.h100-sxm-80gb.Civo on-demand"), with its
    unit; the path where it is not known.
    """
    if path in PRICE_NAMES:
        return PRICE_NAMES[path]
    kind, _, rest = path.partition(".")
    if kind == "systems" and rest:
        return f"{rest}, USD per system"
    if kind == "gpus" and rest:
        return f"{rest}, USD per GPU"
    if kind == "cloud" and "." in rest:
        gpu, _, offer = rest.partition(".")
        return f"{gpu} in the cloud, USD per GPU and hour: {offer}"
    name, _, tokens = rest.rpartition(".")
    if kind == "api" and tokens in TOKENS:
        return f"{name} through an API, USD per million {TOKENS[tokens]}"
    return path


def prices_table(figures: Sequence[Figure]) -> Table | None:
    """Every price that went into a cost: what, how much, of which day, from where, and by which key
    it is replaced.
    """
    rows = tuple(
        (
            price_name(f.path),
            f"{amount(f)}{', estimate' if f.estimate else ''}",
            f.date or ABSENT,
            f.source,
            f.path,
        )
        for f in figures
    )
    header = ("price", "value", "of", "source", "key")
    return (
        Table(
            caption="Prices, with source and date",
            header=header,
            rows=rows,
            folded=True,
            spare=("key",),
        )
        if rows
        else None
    )


def stale(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Prices that are older than a year, in one sentence."""
    names = "; ".join(price_name(figure.path) for figure in figures)
    return (
        (f"Prices older than a year, better replaced by your own (--price or --prices): {names}.",)
        if names
        else ()
    )


def no_cost_text(reason: notes.NoCost) -> str:
    """Why a way has no cost, and what would give it one."""
    match reason.code:
        case "system-price":
            return (
                f"the price of {reason.name} is not known; give it as systems.{reason.name} (USD)"
            )
        case "cloud-price":
            return (
                f"no cloud price of {reason.name} is known; give it as cloud.{reason.name} (USD per"
                " GPU and hour)"
            )
        case "api-price":
            of = f" of {reason.name}" if reason.name else ""
            return f"no API price{of} is known; give it as api (USD per million tokens in and out)"
        case "only-peak":
            return "only the peak is known; give a mean or a profile to know the tokens of a year"


def cost_note_texts(note: notes.CostNote) -> tuple[str, ...]:
    """One note, in a sentence or two."""
    match note:
        case notes.TokenPriceRatio():
            ratio = f"{amount(note.ratio)} times an input token ({note.ratio.source})"
            return (f"A cost is split over tokens as if an output token cost {ratio}.",)
        case notes.NoProfile():
            return (
                (
                    "No hourly profile is given: the cloud is rented for the peak all year, and an"
                    " API gets the most that mean and peak allow; a profile shows what scaling by"
                    " the hour saves."
                ),
            )
        case notes.OnlyPeakKnown():
            return (
                "Only the peak is known: costs per request and per token need a mean or a profile.",
            )
        case notes.SameAs():
            does = "owns everything" if note.same == "on-prem" else "owns nothing"
            return (
                sentence_of(
                    f"{THE[note.way]} is left out: its cheapest split {does}, which is"
                    f" {THE[note.same]}"
                ),
            )
        case notes.CourseWay():
            return (course_way_text(note),)
        case notes.OwnedElectricity():
            usd = "" if note.usd_per_year is None else f", {whole(note.usd_per_year)} USD"
            added = (
                "added as power"
                if note.added
                else "not added: hosting is taken to pay for it; give power_usd_per_kwh to add it"
            )
            first = (
                f"Electricity of the owned systems is an estimate, {whole(note.kwh_per_year)} kWh a"
                f" year{usd}; {added}."
            )
            if note.hosting_usd_per_year is None:
                return (first,)
            return (
                first,
                (
                    f"That is more than the whole hosting of {whole(note.hosting_usd_per_year)}"
                    " USD, which can then hardly hold it."
                ),
            )
        case notes.NotComparable():
            return (f"Not comparable: only one way has a price ({THE[note.way]}).",)
        case notes.EstimatedPrice():
            what = note.price.source.removeprefix("estimate: ")
            return (
                f"The price of {note.system} is an estimate, as no quotation was found: {what}.",
            )
        case notes.HostingLeftOut():
            unknown = (
                f"the power of {note.system} is not known; give hosting_usd_per_system_year to"
                " add it"
            )
            return (f"Hosting is not in the cost of the owned systems, as {unknown}.",)


def course_way_text(note: notes.CourseWay) -> str:
    """Our cost per 1,000 requests, and the course's."""
    systems = number(note.systems_exact, 4).removesuffix(".000")
    return (
        f"{note.usd_per_1000_requests:,.2f} USD per 1,000 requests is the cost of exactly {systems}"
        " systems over the fleet's requests. NVIDIA's course divides it by what one system would"
        f" carry if it were full all year ({HOURS_PER_YEAR:,} h,"
        f" {whole(note.one_system_requests_per_year)} requests):"
        f" {note.course_usd_per_1000_requests:,.2f}."
    )


NAMES: dict[Where, str] = {
    "on-prem": "on-prem",
    "cloud": "cloud GPUs",
    "hybrid": "hybrid",
    "api": "API",
    "hybrid-api": "hybrid with API",
}
# What the ways are called where there is room
TITLES: dict[Where, str] = {
    "on-prem": "On-prem, owned for the peak",
    "cloud": "Cloud GPUs by the hour",
    "hybrid": "Owned base, cloud burst",
    "api": "API by tokens",
    "hybrid-api": "Owned base, API overflow",
}
WAYS = (
    *("way", "USD a year", "written off", "paid", "USD per 1,000 requests", "USD per M tokens in"),
    *("USD per M tokens out", "what it takes"),
)
WHOLE = 1e-6  # systems that are this near to a whole number are whole

SPARED = ("paid", "written off", "USD per M tokens in", "USD per M tokens out")


def yearly(plan: Plan) -> YearlyCost | None:
    """The yearly cost of the plan; None for a job, and where nothing was chosen."""
    return plan.cost if isinstance(plan.cost, YearlyCost) else None


def ways(cost: YearlyCost | None) -> tuple[WayCost, ...]:
    """Every requested way, those with a cost first."""
    return (
        ()
        if cost is None
        else tuple(sorted(cost.ways, key=lambda way: way.total_usd_per_year is None))
    )


def priced(cost: YearlyCost | None) -> tuple[WayCost, ...]:
    """The ways whose cost is known."""
    return tuple(way for way in ways(cost) if way.total_usd_per_year is not None)


def owned(cost: YearlyCost | None) -> WayCost | None:
    """Owned systems for the peak, where their cost is known."""
    return next((way for way in priced(cost) if way.where == "on-prem"), None)


def cheapest(cost: YearlyCost | None) -> WayCost | None:
    """The cheapest of the ways whose cost is known; None where fewer than two are."""
    return next(
        (way for way in priced(cost) if cost is not None and way.where == cost.cheapest), None
    )


def owned_and_cheapest(cost: YearlyCost | None) -> tuple[WayCost, ...]:
    """The owned systems of the plan, and the cheapest way where that is another; the only way with
    a cost where there is but one.
    """
    way_costs = priced(cost)
    return (
        way_costs
        if len(way_costs) < 2
        else tuple(dict.fromkeys(way for way in (owned(cost), cheapest(cost)) if way is not None))
    )


def takes(way: WayCost) -> str:
    """What is owned, what is rented and what goes to an API, such as "3 systems + 42,000 GPU hours,
    up to 16 GPUs".
    """
    bought = counted(way.systems, "system") if way.systems else ""
    at_most = f", up to {counted(way.cloud_gpus_at_peak, 'GPU')}" if way.cloud_gpus_at_peak else ""
    rented = (
        f"{number(way.cloud_gpu_hours_per_year)} GPU hours{at_most}"
        if way.cloud_gpu_hours_per_year
        else ""
    )
    sent = (
        f"{number(way.api_requests_per_year)} requests to the API"
        if way.api_requests_per_year
        else ""
    )
    return " + ".join(filter(None, (bought, rented, sent)))


def spread(way: WayCost) -> tuple[float, float] | None:
    """The cost at both ends of a range of prices; None where there is none."""
    low, high = way.usd_per_year_low, way.usd_per_year_high
    return None if low is None or high is None or low >= high else (low, high)


def power_text(plan: Plan) -> str:
    """Watts of a GPU and joules of a token at the peak, kW of the systems and the kWh of a year, as
    far as power is predicted.
    """
    power = None if plan.choice is None else plan.choice.power
    if power is None:
        return limit_text(plan.choice).removeprefix("; ")
    between = f"{number(power.low)} to {number(power.high)}"
    text = (
        f"{number(power.watts)} W a GPU at the peak ({between}),"
        f" {number(power.joules_per_output_token)} J an output token"
    )
    owned = None if (cost := yearly(plan)) is None else cost.way("on-prem")
    energy = None if owned is None else owned.energy
    if energy is not None and energy.peak_kw is not None:
        co2 = "" if energy.kg_co2_per_year is None else f", {whole(energy.kg_co2_per_year)} kg CO2"
        text += (
            f"; the systems {number(energy.peak_kw)} kW at the peak, {whole(energy.kwh_per_year)}"
            f" kWh a year with the building{co2}"
        )
    return text + limit_text(plan.choice)


def limit_text(candidate: Candidate | None) -> str:
    """The power limit or the clock of the GPUs, and what it does to arithmetic, behind other words;
    "" without one.
    """
    limit = None if candidate is None else candidate.gpu_limit
    if limit is None:
        return ""
    cap = (
        "clocks locked"
        if limit.cap_watts is None
        else f"each GPU capped at {number(limit.cap_watts)} W of {number(limit.board_watts)} W"
    )
    return f"; {cap}, arithmetic at {limit.clock:.0%} of its rate (an estimate)"


def cost_text(plan: Plan) -> str:
    """State the cost in the cheapest way and owned, or why no way has a price."""
    job, cost = plan.cost, yearly(plan)
    if isinstance(job, JobCost):
        job_costs = (
            ("on cloud GPUs", job.cloud_usd_per_job),
            ("through an API", job.api_usd_per_job),
        )
        priced_ways = [
            f"{dollars(value)} USD a job {name}" for name, value in job_costs if value is not None
        ]
        if job.owned.total_usd_per_year is not None:
            priced_ways.append(f"owned {dollars(job.owned.total_usd_per_year)} USD a year")
        return "; ".join(priced_ways) or "no price is known"
    if cost is None:
        return ""
    shown, count = owned_and_cheapest(cost), len(priced(cost))
    if not shown:
        reason = next((way.reason for way in ways(cost) if way.reason is not None), None)
        return "no price is known" + ("" if reason is None else f": {no_cost_text(reason)}")
    if count == 1:
        return f"{_way_text(shown[0])}, the only way with a price"
    named = plan.asked is not None and bool(plan.asked.where)
    first, *rest = sorted(
        priced(cost) if named else shown, key=lambda way: way.where != cost.cheapest
    )
    other_ways = "".join(
        f"; {NAMES[way.where]} {dollars(way.total_usd_per_year)} USD" for way in rest
    )
    other_ways += "".join(_unpriced(cost)) if named else ""
    return f"{_way_text(first)}, cheapest of {count} priced ways{other_ways}"


def _unpriced(cost: YearlyCost) -> Iterator[str]:
    """The requested ways without a cost, each with its reason."""
    for way in ways(cost):
        if way.reason is not None:
            yield f"; {NAMES[way.where]}: {no_cost_text(way.reason)}"
    for note in cost.notes:
        if isinstance(note, notes.SameAs):
            yield f"; {NAMES[note.way]} comes to {NAMES[note.same]} alone"


def _way_text(way: WayCost) -> str:
    ends = spread(way)
    between = "" if ends is None else f" ({dollars(ends[0])} to {dollars(ends[1])})"
    return f"{NAMES[way.where]} {dollars(way.total_usd_per_year)} USD a year{between}"


def cost_section(cost: YearlyCost | None, drawn: Block | None = None) -> Section:
    """The section; empty where there is no cost. ``drawn`` is a figure that shows the table of the
    ways too.
    """
    if cost is None:
        return section("cost", "Cost")
    lines = (
        [f"This plan serves {whole(cost.requests_per_year)} requests a year."]
        if cost.requests_per_year and cost.break_evens
        else []
    )
    for break_even in cost.break_evens:
        lines += [
            sentence_of(
                f"{' or '.join(THE.get(way, way) for way in break_even.between)}:"
                f" {break_even_text(break_even)}"
            ),
            _bought(break_even, cost),
        ]
    unknown = (
        f"{TITLES[way.where]}: no cost, as {no_cost_text(way.reason)}."
        for way in ways(cost)
        if way.reason is not None
    )
    return section(
        "cost",
        "Cost",
        drawn or ways_table(cost),
        *outlook_blocks(cost),
        items((_exactly(cost), *unknown, *lines)),
        _parts(cost),
        prices_table(cost.figures),
        items(stale(cost.stale_prices), "warning"),
        items(tuple(text for note in cost.notes for text in cost_note_texts(note)), "note"),
    )


def ways_table(cost: YearlyCost) -> Table:
    """One row for each way, the cheapest marked; columns that hold nothing are left out."""
    way_costs = ways(cost)
    chosen = next(
        (
            i
            for i, way in enumerate(way_costs)
            if way.where == cost.cheapest and len(priced(cost)) > 1
        ),
        None,
    )
    caption, rows = "Cost of each way of running it", tuple(map(_way, way_costs))
    return Table(
        caption=caption, header=WAYS, rows=rows, chosen=chosen, mark="cheapest", spare=SPARED
    ).filled()


def _way(way: WayCost) -> tuple[str, ...]:
    """What it costs, and last what is owned and rented, and the cost at the ends of a range of
    prices.
    """
    parts = (
        (way.capex_usd_per_year, way.opex_usd_per_year)
        if way.total_usd_per_year is not None
        else (None, None)
    )
    shares = (
        way.usd_per_1000_requests,
        way.usd_per_million_input_tokens,
        way.usd_per_million_output_tokens,
    )
    between = spread(way)
    ends = "" if between is None else f"{usd(between[0])} to {usd(between[1])} USD"
    what = "; ".join(filter(None, (takes(way), ends)))
    return (TITLES[way.where], *map(usd, (way.total_usd_per_year, *parts, *shares)), what)


def _exactly(cost: YearlyCost) -> str:
    """State what the owned systems would cost if they could be bought in parts."""
    way = owned(cost)
    if way is None or way.usd_per_year_exact is None or way.systems_exact is None:
        return ""
    # so where the simulated fleet decides on the systems
    if abs(way.systems_exact - round(way.systems_exact)) < WHOLE:
        return ""
    per_thousand = (
        ""
        if way.usd_per_1000_requests_exact is None
        else f", {usd(way.usd_per_1000_requests_exact)} USD per 1,000 requests"
    )
    bought = (
        f"On-prem counts the {counted(way.systems, 'system')} that are bought"
        if way.systems != 1
        else "On-prem counts a whole system"
    )
    return (
        f"{bought}; exactly {number(way.systems_exact, 4)} systems would cost"
        f" {usd(way.usd_per_year_exact)} USD a year{per_thousand}."
    )


def _bought(break_even: BreakEven, cost: YearlyCost) -> str:
    """State the volume from which the fleet of the plan, once bought, is cheaper than the API."""
    way = owned(cost)
    if break_even.bought_fleet_requests_per_year is None or way is None:
        return ""
    fleet, cost_s = ("system", "costs") if way.systems == 1 else (f"{way.systems} systems", "cost")
    requests = whole(break_even.bought_fleet_requests_per_year)
    return (
        f"The {fleet} of this plan, once bought, {cost_s} what the API would ask for {requests}"
        " requests a year."
    )


def _parts(cost: YearlyCost) -> Table | None:
    again = owned(cost)
    rows = tuple(
        (NAMES[way.where], part.name, part.kind, usd(part.usd_per_year), part.how)
        for way in ways(cost)
        for part in way.parts
        if not (
            way.where in ("hybrid", "hybrid-api")
            and again is not None
            and _paid(way) == _paid(again)
        )
    )
    header = ("way", "part", "kind", "USD a year", "how")
    return (
        Table(
            caption="What each cost is made of",
            header=header,
            rows=rows,
            folded=True,
            spare=("kind",),
        )
        if rows
        else None
    )


def _paid(way: WayCost) -> list[tuple[str, float]]:
    """The parts of a way's cost, to the cent."""
    return [(part.name, round(part.usd_per_year, 2)) for part in way.parts]


def break_even_text(break_even: BreakEven) -> str:
    """The volumes at which each of two ways is the cheaper, in one clause."""
    below, above = (
        THE.get(way, way) for way in (break_even.cheaper_below, break_even.cheaper_above)
    )
    up_to = break_even.searched_to_requests_per_year
    first, last = break_even.first_requests_per_year, break_even.last_requests_per_year
    if first is None or last is None:
        return (
            f"{below} is cheaper at every volume up to {whole(up_to)} requests a year"
            if below
            else "they cost the same at every volume"
        )
    if break_even.changes == 1:
        return f"below {whole(first)} requests a year {below} is cheaper, above it {above}"
    return (
        f"below {whole(first)} requests a year {below} is cheaper; then the cheaper one changes"
        f" {break_even.changes} times, because systems are whole; from {whole(last)} up to"
        f" {whole(up_to)}, the largest volume compared, {above} is cheaper"
    )


def outlook_blocks(cost: YearlyCost) -> tuple[Block | None, ...]:
    """A table of the years, and a sentence each on when owning pays off and on racks, power and
    heat.
    """
    outlook = cost.outlook
    if outlook is None:
        return ()
    rows, users, titles = [], outlook.users is not None, dict[str, str](TITLES.items())
    for way in outlook.ways:
        rows.append(
            (
                titles[way.where],
                *map(usd, (*way.usd.values(), *((way.usd_per_user_month,) if users else ()))),
            )
        )
    years = tuple(outlook.ways[0].usd) if outlook.ways else ()
    header = (
        "way",
        *(f"USD in {year} years" for year in years),
        *(("USD per user and month",) if users else ()),
    )
    caption = "Over the years: the purchase on the first day, and what is paid in each year"
    pays_off = "" if outlook.pays_off is None else pays_off_text(outlook.pays_off)
    racks = "" if outlook.footprint is None else footprint_text(outlook.footprint)
    return (
        Table(caption=caption, header=header, rows=tuple(rows)) if rows else None,
        items((pays_off, racks)),
    )


def pays_off_text(pays_off: PaysOff) -> str:
    """The month in which bought systems have cost no more than the rented GPUs, in one sentence."""
    if pays_off.months is None:
        return (
            "Within ten years bought systems do not come to cost less than GPUs rented by the hour."
        )
    month = ""
    if pays_off.date:
        year, number_of = pays_off.date.split("-")
        month = f", in {calendar.month_name[int(number_of)]} {year} if they are bought today"
    after = f"after {counted(max(1, math.ceil(pays_off.months)), 'month')}"
    saved = f"they then save {dollars(pays_off.saved_usd_per_month)} USD a month"
    return f"Bought systems have cost less than GPUs rented by the hour {after}{month}; {saved}."


def footprint_text(footprint: Footprint) -> str:
    """Racks, power and heat in one sentence."""
    racks = (
        f"{counted(footprint.racks, 'rack')} of {plain(footprint.rack_kw)} kW"
        f" ({footprint.per_rack:,} in each)"
    )
    power = f"{number(footprint.kw)} kW, {number(footprint.building_kw)} kW with the building"
    heat = (
        f"{dollars(footprint.btu_per_hour)} BTU/h, {number(footprint.cooling_tons)} tons of"
        " refrigeration"
    )
    take = "takes" if footprint.systems == 1 else "take"
    return (
        f"{counted(footprint.systems, 'system')} {take} {racks} and at most {power}; their heat is"
        f" {heat} ({footprint.kw_from})."
    )


def job_section(plan: Plan) -> Section:
    """The section; empty where the plan is not of a job, or holds no cost of one."""
    job = plan.cost
    if not isinstance(job, JobCost):
        return section("job", "Cost")
    rows = [
        ("The job", f"{plain(job.requests)} requests within {plain(job.hours)} hours"),
        ("Owned", _owned(job)),
        ("On cloud GPUs", _by_job(job.cloud_usd_per_job, job.cloud_how, job.cloud_reason)),
        ("Through an API", _by_job(job.api_usd_per_job, job.api_how, job.api_reason)),
    ]
    against = (
        ("the cloud", job.jobs_per_year_against_cloud),
        ("the API", job.jobs_per_year_against_api),
    )
    rows += [
        (f"Cheaper than {name}", f"owning is, from {number(jobs)} jobs a year on")
        for name, jobs in against
        if jobs is not None
    ]
    if any(jobs is not None for _, jobs in against):
        rows.append(
            (
                "At most",
                (
                    f"{number(job.most_jobs_per_year)} jobs a year, for more of which a year has no"
                    " time"
                ),
            )
        )
    return section(
        "cost",
        "Cost of the job",
        Facts(tuple(rows)),
        items(tuple(map(sentence_of, job.owned.how)), "note"),
        prices_table(job.figures),
        items(stale(job.stale_prices), "warning"),
    )


def _owned(job: JobCost) -> str:
    owned = job.owned
    if owned.total_usd_per_year is None:
        return _by_job(None, "", owned.reason)
    power = (
        f", and {usd(job.power_usd_per_job)} USD of electricity a job (estimate)"
        if job.power_usd_per_job
        else ""
    )
    size = f" of {owned.gpus // owned.systems} GPUs" if owned.systems else ""
    return (
        f"{usd(owned.total_usd_per_year)} USD a year for"
        f" {counted(owned.systems, 'system')}{size}{power}"
    )


def _by_job(cost: float | None, how: str, reason: NoCost | None) -> str:
    if cost is None:
        return "no cost" + (f": {no_cost_text(reason)}" if reason is not None else "")
    return f"{usd(cost)} USD a job" + (f" ({how})" if how else "")
