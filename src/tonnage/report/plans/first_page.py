"""The page that stands alone: the answer, what could go wrong with it, what it costs, and one figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.cost import JobCost
from tonnage.report.blocks import items, section
from tonnage.report.document import Block, Drawing, Facts, Items, Panel, Panels, Section, Text
from tonnage.report.numbers import ABSENT, dollars, percent, sentence_of, span, usd
from tonnage.report.plans import figures
from tonnage.report.plans.answer import sentence
from tonnage.report.plans.beyond import beyond_text
from tonnage.report.plans.costs import NAMES, TITLES, owned_and_cheapest, spread, ways, yearly
from tonnage.report.plans.existing import existing_glance
from tonnage.report.plans.headline import glance_rows
from tonnage.report.plans.sensitivity import widest_text
from tonnage.report.wording.at_peak import used_share
from tonnage.report.wording.confidence import confidence_text
from tonnage.report.wording.fleet_check import fleet_check_text
from tonnage.report.wording.warnings import warning_text

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.report.drawing.figure import Figure

WARNED = 4
"""Warnings that the first page shows; the others stand with what the plan rests on."""
CURVE = "As the load grows, so do throughput and every latency. Dashed lines across are the limits; the numbers are under {title}."
OTHER = "The numbers are under {title}."
PARTS = {"curve": "Latency and throughput", "cost": "Cost", "sensitivity": "What would change the answer"}
"""The sections that hold the numbers of the figures that the first page may show, in the order in which they are wanted."""


def first_page(plan: Plan) -> Section:
    """The section; what a plan does not hold is left out."""
    cards, panels = first_glance(plan), _panels(plan)
    return section(
        "answer",
        "Answer",
        Text(text=sentence(plan), tone="answer"),
        Facts(rows=cards, big=True) if cards else None,
        Panels(panels=panels) if panels else None,
        _chart(plan),
    )


def first_glance(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The numbers to see first."""
    choice, exists = plan.choice, existing_glance(plan)
    if choice is None or exists:
        return exists
    rows = [("systems to buy", f"{choice.systems:,}"), ("GPUs", f"{choice.gpus:,}")]
    rows += glance_rows(plan, choice)
    if plan.job is None:
        rows += [("of capacity, used at the peak", used_share(choice.utilisation))]
    else:
        rows.insert(0, ("until the job is done", span(plan.job.finish_seconds)))
        rows.append(("of the time allowed, used", percent(plan.job.finish_seconds / plan.job.allowed_seconds)))
    way = next(iter(owned_and_cheapest(yearly(plan))), None)
    if way is not None:
        rows += [
            (f"USD a year, {NAMES[way.where]}", dollars(way.total_usd_per_year)),
            ("USD per 1,000 requests", usd(way.usd_per_1000_requests)),
        ]
    return tuple(row for row in rows if row[1] != ABSENT)


def _panels(plan: Plan) -> tuple[Panel, ...]:
    made = (("Risk", _risk(plan)), ("Cost" if isinstance(plan.cost, JobCost) else "Cost a year", _cost(plan)))
    return tuple(Panel(title=name, blocks=blocks) for name, blocks in made if blocks)


def _risk(plan: Plan) -> tuple[Items, ...]:
    """How sure the answer is, what the check showed, what moves it most, where it leaves what was measured, and the warnings."""
    sure = None if plan.choice is None else plan.choice.confidence
    facts = (
        "" if sure is None else sentence_of(confidence_text(sure)),
        "" if plan.fleet_check is None else sentence_of(f"simulated: {fleet_check_text(plan.fleet_check)}"),
        widest_text(plan.sensitivity),
        sentence_of(beyond_text(plan.beyond)),
    )
    found = (items(warned(plan)[:WARNED], "warning"), items(facts))
    return tuple(one for one in found if one is not None)


def warned(plan: Plan) -> tuple[str, ...]:
    """The warnings as sentences."""
    return tuple(sentence_of(warning_text(warning)) for warning in plan.warnings)


def _cost(plan: Plan) -> tuple[Facts | Text, ...]:
    """What each way costs a year, or a job of its own."""
    job = plan.cost
    if isinstance(job, JobCost):
        each = (("On cloud GPUs, a job", job.cloud_usd_per_job), ("Through an API, a job", job.api_usd_per_job))
        rows = [("Owned, a year", _dollars(job.owned.total_usd_per_year)), *((name, _dollars(value)) for name, value in each)]
        return (Facts(rows=tuple(rows)),)
    rows = []
    for way in ways(yearly(plan)):
        between = spread(way)
        ends = "" if between is None else f" ({dollars(between[0])} to {dollars(between[1])})"
        rows.append((TITLES[way.where], _dollars(way.total_usd_per_year) + ends))
    note = Text(text="In brackets: over the range of prices.", tone="note")
    return (Facts(rows=tuple(rows)), *((note,) if any("(" in value for _, value in rows) else ())) if rows else ()


def _dollars(value: float | None) -> str:
    return "no price" if value is None else f"{dollars(value)} USD"


def figure_of(plan: Plan) -> tuple[str, Figure] | None:
    """The figure that the first page shows, by the key of the section that holds its numbers."""
    makers = {"curve": figures.curve, "cost": figures.cost, "sensitivity": figures.tornado}
    for key, make in makers.items():
        figure = make(plan)
        if figure is not None:
            return key, figure
    return None


def _chart(plan: Plan) -> Block | None:
    found = figure_of(plan)
    if found is None:
        return None
    key, figure = found
    reading = (CURVE if key == "curve" else OTHER).format(title=PARTS[key])
    return Drawing(figure=figure, reading=reading, numbers=None)
