"""Buying and renting over months: which way costs least, a row and a line of a picture for each,
and where each figure comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tonnage.errors import option
from tonnage.plan.horizon import Horizon, HorizonWay, Purchasing, WhyNoMonths
from tonnage.plan.plan import Plan
from tonnage.report.document import Drawing, Section, Table, Text, charted, items, section
from tonnage.report.drawing.figure import Axis, Plot, Point, Series
from tonnage.report.numbers import ABSENT, counted, dollars, number, percent, sentence_of, usd
from tonnage.report.plans.cost import no_cost_text, prices_table

TITLE = "Buying and renting over the months"
NAMES: dict[Purchasing, str] = {
    "now": "buying all now",
    "steps": "buying each system when it is needed",
    "hour": "renting all by the hour",
    "reserved": "renting, reserved for years where that pays",
    "both": "buying what pays off and renting the rest by the hour",
}
SHORT: dict[Purchasing, str] = {
    "now": "buy all now",
    "steps": "buy when needed",
    "hour": "rent by the hour",
    "reserved": "rent, reserved where it pays",
    "both": "buy what pays, rent the rest",
}
WHY_NOT: dict[WhyNoMonths, str] = {
    "fleet": "not known, as the systems to add to what exists are not known",
    "many": "not known: no number of systems carries the load of some month",
}
SHOWN, FEW = 36, 4  # purchases that the list of the ways names, and that the line does
EVERY = 3  # months between two points of the picture where nothing is bought
READING = (
    "Each line is one way: the money paid by the end of each month. A jump is a purchase; where"
    " two lines cross, the cheaper way changes."
)


def horizon_text(horizon: Horizon) -> str:
    """The way that costs least and by how much, what the others cost, and what was assumed of
    prices and load.
    """
    if horizon.reason is not None:
        return WHY_NOT[horizon.reason]
    priced = sorted(
        (way for way in horizon.ways if way.total_usd is not None),
        key=lambda way: way.way != horizon.cheapest,
    )
    if not priced:
        reasons = (no_cost_text(way.reason) for way in horizon.ways if way.reason is not None)
        return next(reasons, "no way to own or to rent was requested")
    months = counted(horizon.months, "month")
    if not any(need.systems for need in horizon.needs):
        return f"what exists is enough for {months}; nothing is to be bought or rented"
    first, *rest = priced
    of = ", in addition to what exists" if horizon.existing else ""
    text = f"{NAMES[first.way]}, {dollars(first.total_usd)} USD in {months}{of}"
    if rest:
        second, *dearer = sorted(rest, key=lambda way: way.total_usd or 0.0)
        text += f", {_less(first, second)}"
        text += "".join(f", {NAMES[way.way]} {dollars(way.total_usd)}" for way in dearer)
    else:
        text += ", the only way with a price"
    steps = what(first, horizon, FEW)
    return "; ".join((text, *((steps,) if steps else ()), *assumed(horizon)))


def _less(first: HorizonWay, second: HorizonWay) -> str:
    saved = (second.total_usd or 0.0) - (first.total_usd or 0.0)
    name = f"{NAMES[second.way]} ({dollars(second.total_usd)})"
    if saved <= 0:
        return f"as much as {name}"
    return f"{percent(saved / (second.total_usd or 1.0))} less than {name}"


def what(way: HorizonWay, horizon: Horizon, shown: int = SHOWN) -> str:
    """The purchases by their months, and the most that is rented."""
    steps = [
        f"{count:,} × {horizon.system} {_when(month)}"
        if place == 0
        else f"{count:,} {_when(month)}"
        for place, (month, count) in enumerate(way.purchases)
    ]
    more = (f"… {counted(way.systems[-1], 'system')} in all",) if len(steps) > shown else ()
    rented = (
        (max(way.reserved_gpus, default=0), "reserved"),
        (max(way.hourly_gpus, default=0), "by the hour"),
    )
    return ", ".join(
        (
            *steps[:shown],
            *more,
            *(f"up to {counted(gpus, 'GPU')} {how}" for gpus, how in rented if gpus),
        )
    )


def _when(month: int) -> str:
    return "today" if month == 0 else f"in month {month}"


def assumed(horizon: Horizon) -> Iterator[str]:
    """The assumptions on load and prices, such as "the load stays, as no growth is given"."""
    if horizon.growth_per_month is None:
        yield f"the load stays as it is, as no {option('growth')} is given"
    if horizon.lead_months >= horizon.months:
        lead = counted(horizon.lead_months, "month")
        yield f"nothing bought today is delivered within them, at a lead time of {lead}"
    decays = (("systems", horizon.systems_decay), ("rented GPUs", horizon.rents_decay))
    changes: dict[str, list[str]] = {}
    for name, decay in decays:
        changes.setdefault(_change(decay), []).append(name)
    texts = []
    for change, names in changes.items():
        of = "" if len(names) == len(decays) else f" of {names[0]}"
        texts.append(f"prices{of} {change}")
    yield " and ".join(texts)


def _change(decay: float | None) -> str:
    """How a price changes over the years."""
    if decay is None:
        return f"stay, as no {option('price_decay')} is given"
    if not decay:
        return "stay, as given"
    return f"{'fall' if decay > 0 else 'rise'} by {percent(abs(decay))} a year"


def horizon_section(plan: Plan) -> Section:
    """The picture and the table of the ways, then where each figure is from; empty where no months
    are requested.
    """
    horizon = plan.horizon
    if horizon is None:
        return section("horizon", TITLE)
    if horizon.reason is not None or not any(way.reason is None for way in horizon.ways):
        return section("horizon", TITLE, Text(sentence_of(horizon_text(horizon))))
    return section(
        "horizon",
        TITLE,
        _ways_table(horizon),
        items(tuple(_steps(way, horizon) for way in horizon.ways)),
        _picture(horizon),
        items(origins(horizon)),
        prices_table(horizon.figures),
    )


def _ways_table(horizon: Horizon) -> Table:
    header = (
        "way",
        f"USD in {horizon.months} months",
        "purchases",
        "upkeep",
        "rent",
        "most in a month",
        "idle",
        "below hourly rent from month",
        "value left",
    )
    chosen = next(
        (place for place, way in enumerate(horizon.ways) if way.way == horizon.cheapest), None
    )
    return Table(
        caption="Each way over the months: all that is paid, and the share of it that is idle",
        header=header,
        rows=tuple(_row(way, horizon) for way in horizon.ways),
        chosen=chosen,
        mark="cheapest",
        spare=("upkeep", "rent", "most in a month", "purchases", "value left"),
    )


def _row(way: HorizonWay, horizon: Horizon) -> tuple[str, ...]:
    name = SHORT[way.way]
    if way.reason is not None:
        return (name, *(ABSENT,) * 8)
    crossing = "" if way.way == "hour" else ABSENT
    return (
        name,
        usd(way.total_usd),
        usd(way.purchase_usd),
        usd(way.running_usd),
        usd(way.rent_usd),
        usd(max(way.usd_by_month)),
        percent(way.idle),
        crossing if way.cheaper_from is None else str(way.cheaper_from),
        usd(way.left_usd) if way.purchases else ABSENT,
    )


def _steps(way: HorizonWay, horizon: Horizon) -> str:
    """The purchases and rents of a way, or why it has no cost."""
    if way.reason is not None:
        return sentence_of(f"{SHORT[way.way]}: no cost, as {no_cost_text(way.reason)}")
    return sentence_of(f"{SHORT[way.way]}: {what(way, horizon) or 'nothing'}")


def spent(horizon: Horizon) -> Plot:
    """The money paid by each way by the end of each month."""
    series = tuple(
        Series(SHORT[way.way], _points(way, horizon), tone=tone, line=True)
        for tone, way in enumerate(horizon.ways)
        if way.reason is None
    )
    step = max(1, round(horizon.months / 6))
    ticks = tuple(float(month) for month in range(0, horizon.months + step, step))
    return Plot(
        "horizon",
        "Money paid by the end of each month",
        Axis("month from today, which is 0", ticks=ticks),
        Axis("USD paid by the end of the month"),
        series,
    )


def _points(way: HorizonWay, horizon: Horizon) -> tuple[Point, ...]:
    bought = dict(way.purchases)
    shown = {0, horizon.months - 1, *range(0, horizon.months, EVERY)}
    shown |= {place for month in bought for place in (month - 1, month) if place >= 0}
    points = []
    for month in sorted(shown):
        lines = [
            f"{SHORT[way.way]}, month {month}",
            f"{usd(way.spent_usd[month])} USD paid by its end",
        ]
        if month in bought:
            lines.append(f"{bought[month]:,} × {horizon.system} delivered")
        points.append(Point(float(month), way.spent_usd[month], "\n".join(lines)))
    return tuple(points)


def _picture(horizon: Horizon) -> Drawing:
    priced = [way for way in horizon.ways if way.reason is None]
    rows = (
        (
            str(need.month),
            number(need.requests_per_second),
            f"{need.systems:,}{'' if need.simulated else ' (by division)'}",
            *(usd(way.usd_by_month[need.month]) for way in priced),
        )
        for need in horizon.needs
    )
    more = " more" if horizon.existing else ""
    header = (
        "month",
        "requests/s",
        f"{horizon.system}{more} needed",
        *(f"{SHORT[way.way]}, USD" for way in priced),
    )
    return charted(spent(horizon), READING, "Payments of each month", header, rows)


def origins(horizon: Horizon) -> tuple[str, ...]:
    """Where each figure is from, and what is not counted."""
    divided = sum(not need.simulated for need in horizon.needs)
    by_division = (
        f" {divided} of the {horizon.months} months, with large fleets, are counted by division"
        " between months that are simulated."
        if divided
        else ""
    )
    systems = (
        "The lines Add and Buy name the systems of a month"
        if horizon.existing
        else "The systems of a month are the answer for its load, on the deployment of this answer"
    )
    growth = horizon.growth_per_month
    load = "" if growth is None else f" The load grows by {growth:.1%} a month from month 0, today."
    lead = (
        f"Systems are ordered {counted(horizon.lead_months, 'month')} before they are delivered and"
        " paid with the order; until the first delivery GPUs are rented by the hour."
        if horizon.lead_months
        else "Systems are there, and paid, in the month in which they are needed; a delivery time"
        f" is {option('lead_time')}."
    )
    upkeep = (
        "Hosting, licences and electricity are a twelfth of their year at the load of the month, as"
        " under Cost, and their prices stay; systems, once bought, are kept."
    )
    exists = (
        "What exists serves first, its upkeep is the same in every way, and it is not counted."
        if horizon.existing
        else ""
    )
    hourly = [offer for offer in horizon.offers if " reserved " not in offer]
    reserved = [offer for offer in horizon.offers if " reserved " in offer]
    return (
        f"{systems}.{load}{by_division}",
        f"{_sentence(assumed(horizon))} {lead}",
        upkeep,
        exists,
        f"Rented by the hour, as many as each hour needs: {' or '.join(hourly)}." if hourly else "",
        f"Reserved, paid in every hour of the term: {'; '.join(reserved)}. No term goes beyond the"
        " last month."
        if reserved
        else "",
        "Not counted: what systems are worth at the end (the column names it, by depreciation),"
        " discounting, taxes, people and moving.",
    )


def _sentence(texts: Iterator[str] | Sequence[str]) -> str:
    return sentence_of("; ".join(texts))
