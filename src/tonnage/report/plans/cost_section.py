"""What a plan costs a year: each way of running it, what that is made of, and the prices that went in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Block, Section, Table
from tonnage.report.numbers import ABSENT, counted, number, sentence_of, usd, whole
from tonnage.report.plans.costs import NAMES, TITLES, owned, priced, spread, takes, ways
from tonnage.report.plans.outlook import outlook_blocks
from tonnage.report.wording.cost import THE, break_even_text, cost_note_texts, no_cost_text
from tonnage.report.wording.price_names import price_name
from tonnage.spec.prices import amount

if TYPE_CHECKING:
    from tonnage.plan.cost import BreakEven, WayCost, YearlyCost
    from tonnage.spec.prices import Figure

WAYS = (
    *("way", "USD a year", "written off", "paid", "USD per 1,000 requests", "USD per M tokens in"),
    *("USD per M tokens out", "what it takes"),
)
WHOLE = 1e-6
"""Systems that are this near to a whole number are whole."""

SPARED = ("paid", "written off", "USD per M tokens in", "USD per M tokens out")


def cost_section(cost: YearlyCost | None, drawn: Block | None = None) -> Section:
    """The section; empty where there is no cost. ``drawn`` is a figure that shows the table of the ways too."""
    if cost is None:
        return section("cost", "Cost")
    return section(
        "cost",
        "Cost",
        drawn or ways_table(cost),
        *outlook_blocks(cost),
        items((_exactly(cost), *map(_unknown, ways(cost)), *_break_evens(cost))),
        _parts(cost),
        prices_table(cost.figures),
        items(stale(cost.stale_prices), "warning"),
        items(tuple(text for note in cost.notes for text in cost_note_texts(note)), "note"),
    )


def ways_table(cost: YearlyCost) -> Table:
    """One row for each way, the cheapest marked; columns that hold nothing are left out."""
    found = ways(cost)
    chosen = next((i for i, way in enumerate(found) if way.where == cost.cheapest and len(priced(cost)) > 1), None)
    table = Table(
        caption="Cost of each way of running it", header=WAYS, rows=tuple(map(_way, found)), chosen=chosen, mark="cheapest", spare=SPARED
    )
    kept = [i for i in range(len(WAYS)) if any(row[i] not in ("", ABSENT) for row in table.rows)]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return replace(table, header=tuple(WAYS[i] for i in kept), rows=rows)


def _way(way: WayCost) -> tuple[str, ...]:
    known = way.total_usd_per_year is not None
    shares = (way.usd_per_1000_requests, way.usd_per_million_input_tokens, way.usd_per_million_output_tokens)
    written_off, paid = (usd(value) if known else ABSENT for value in (way.capex_usd_per_year, way.opex_usd_per_year))
    return (TITLES[way.where], usd(way.total_usd_per_year), written_off, paid, *map(usd, shares), _what(way))


def _what(way: WayCost) -> str:
    """What is owned and rented, and what it costs at the ends of a range of prices."""
    between = spread(way)
    ends = "" if between is None else f"{usd(between[0])} to {usd(between[1])} USD"
    return "; ".join(filter(None, (takes(way), ends)))


def _exactly(cost: YearlyCost) -> str:
    """What the owned systems would cost if they could be bought in parts."""
    way = owned(cost)
    if way is None or way.usd_per_year_exact is None or way.systems_exact is None or _is_whole(way.systems_exact):
        return ""
    each = "" if way.usd_per_1000_requests_exact is None else f", {usd(way.usd_per_1000_requests_exact)} USD per 1,000 requests"
    bought = f"On-prem counts the {counted(way.systems, 'system')} that are bought" if way.systems != 1 else "On-prem counts a whole system"
    return f"{bought}; exactly {number(way.systems_exact, 4)} systems would cost {usd(way.usd_per_year_exact)} USD a year{each}."


def _is_whole(systems: float) -> bool:
    """Whether nothing is rounded: so where the simulated fleet decides on the systems."""
    return abs(systems - round(systems)) < WHOLE


def _unknown(way: WayCost) -> str:
    return "" if way.reason is None else f"{TITLES[way.where]}: no cost, as {no_cost_text(way.reason)}."


def _break_evens(cost: YearlyCost) -> tuple[str, ...]:
    lines = [f"This plan serves {whole(cost.requests_per_year)} requests a year."] if cost.requests_per_year and cost.break_evens else []
    for each in cost.break_evens:
        lines += [sentence_of(f"{' or '.join(THE.get(way, way) for way in each.between)}: {break_even_text(each)}"), _bought(each, cost)]
    return tuple(lines)


def _bought(each: BreakEven, cost: YearlyCost) -> str:
    """From which volume the fleet of the plan, once bought, is cheaper than the API."""
    way = owned(cost)
    if each.bought_fleet_requests_per_year is None or way is None:
        return ""
    several = (
        f"The {way.systems} systems of this plan, once bought, cost" if way.systems != 1 else "The system of this plan, once bought, costs"
    )
    return f"{several} what the API would ask for {whole(each.bought_fleet_requests_per_year)} requests a year."


def _parts(cost: YearlyCost) -> Table | None:
    again = owned(cost)
    rows = tuple(
        (NAMES[way.where], part.name, part.kind, usd(part.usd_per_year), part.how)
        for way in ways(cost)
        for part in way.parts
        if not (way.where in ("hybrid", "hybrid-api") and again is not None and _paid(way) == _paid(again))
    )
    header = ("way", "part", "kind", "USD a year", "how")
    return Table(caption="What each cost is made of", header=header, rows=rows, folded=True, spare=("kind",)) if rows else None


def _paid(way: WayCost) -> list[tuple[str, float]]:
    """What a way is paid for, to the cent."""
    return [(part.name, round(part.usd_per_year, 2)) for part in way.parts]


def prices_table(figures: Sequence[Figure]) -> Table | None:
    """Every price that went into a cost: what, how much, of which day, from where, and by which key it is replaced."""
    rows = tuple((price_name(f.path), _amount(f), f.date or ABSENT, f.source, f.path) for f in figures)
    header = ("price", "value", "of", "source", "key")
    return Table(caption="Prices, with source and date", header=header, rows=rows, folded=True, spare=("key",)) if rows else None


def _amount(figure: Figure) -> str:
    return f"{amount(figure)}{', estimate' if figure.estimate else ''}"


def stale(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Prices that are older than a year, in one sentence."""
    names = "; ".join(price_name(figure.path) for figure in figures)
    return (f"Prices older than a year, better replaced by your own (--price or --prices): {names}.",) if names else ()
