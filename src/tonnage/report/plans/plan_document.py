"""A plan as a whole report: the answer first, then what it rests on, then how to repeat it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.report.blocks import drawing, items, section
from tonnage.report.document import Block, Command, Document, Facts, Section, Table
from tonnage.report.drawing.figure import Plot
from tonnage.report.numbers import number, plain
from tonnage.report.plans import figures
from tonnage.report.plans.answer import title
from tonnage.report.plans.assumptions import assumptions_section
from tonnage.report.plans.autoscaling_section import autoscaling_section
from tonnage.report.plans.candidates import candidates_section, candidates_table, rejected_section
from tonnage.report.plans.chosen import chosen_section
from tonnage.report.plans.compared import compared
from tonnage.report.plans.cost_section import cost_section, ways_table
from tonnage.report.plans.costs import yearly
from tonnage.report.plans.existing import existing_section
from tonnage.report.plans.explained import TITLE as EXPLAINED
from tonnage.report.plans.explained import explained_items, limits_table, memory_table, step_table
from tonnage.report.plans.first_page import WARNED, figure_of, first_page, warned
from tonnage.report.plans.job_section import job_section
from tonnage.report.plans.measured_comparison import beside
from tonnage.report.plans.measurement import measurement_section
from tonnage.report.plans.sensitivity import sensitivity_section, sensitivity_table
from tonnage.report.wording.aim import aim_text
from tonnage.report.wording.demand import demand_text
from tonnage.report.wording.lengths import length_text
from tonnage.report.wording.limits import limit_text

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan

FOLDED = ("explain", "rejected", "assumptions", "repeat")
"""Sections that a page shows closed: who wants them opens them, and print holds them all."""


def report(*plans: Plan) -> Document:
    """The whole report of a plan; parts that the plan does not hold are left out. Of several plans, side by side first."""
    first = plans[0]
    day, version = first.provenance.date, first.provenance.tonnage
    about = "" if first.asked is None else first.asked.title or ""
    by = (f"{about} – sized" if about else "Sized") + f" by Tonnage {version}".rstrip() + (f", {day}" if day else "")
    if len(plans) == 1:
        return Document(title=title(first), subtitle=by, sections=_sections(first))
    parts = [_of_several(one, i, plan) for i, plan in enumerate(plans, 1) for one in _sections(plan)]
    return Document(title=f"{len(plans)} models compared", subtitle=by, sections=(compared(plans), *parts))


def named_sections(plan: Plan, name: str, place: int) -> tuple[Section, ...]:
    """The sections of one plan among several, under a name; ``place`` counts from 1."""
    return tuple(
        replace(one, key=f"{one.key}-{place}", title=f"{name}: {one.title}", listed=one.key == "answer") for one in _sections(plan)
    )


def made_by(plan: Plan) -> str:
    """Who sized it and when, such as "Sized by Tonnage 0.1.0, 2026-11-22"."""
    source = plan.provenance
    return f"Sized by Tonnage {source.tonnage}".rstrip() + (f", {source.date}" if source.date else "")


def _of_several(one: Section, place: int, plan: Plan) -> Section:
    """A section of one plan of several: under its model's name, and only the first of each in the list of parts."""
    return replace(one, key=f"{one.key}-{place}", title=f"{plan.scenario.model}: {one.title}", listed=one.key == "answer")


def _sections(plan: Plan) -> tuple[Section, ...]:
    made = (
        first_page(plan),
        _question(plan),
        existing_section(plan),
        chosen_section(plan),
        beside(plan),
        _curve(plan),
        _cost(plan),
        job_section(plan),
        autoscaling_section(plan),
        sensitivity_section(plan, _sensitivity(plan)),
        measurement_section(plan),
        candidates_section(plan, _candidates(plan)),
        _where_it_goes(plan),
        rejected_section(plan),
        _assumptions(plan),
        _repeat(plan),
    )
    folded = FOLDED if plan.candidates else tuple(key for key in FOLDED if key != "rejected")  # then the reasons are the answer
    return tuple(replace(one, folded=one.key in folded) for one in made if one.blocks)


def _shown(plan: Plan) -> str:
    """Key of the section whose figure the first page shows."""
    found = figure_of(plan)
    return "" if found is None else found[0]


def _assumptions(plan: Plan) -> Section:
    """What the plan rests on, after the warnings for which the first page has no room."""
    made, rest = assumptions_section(plan), items(warned(plan)[WARNED:], "warning")
    return made if rest is None else replace(made, blocks=(rest, *made.blocks))


def _question(plan: Plan) -> Section:
    asked = plan.scenario
    tried = " × ".join(", ".join(names) for names in (asked.gpus, asked.precisions, asked.engines) if names)
    tps = ", ".join(map(str, asked.tps))
    rows = (
        ("Model", asked.model),
        ("Lengths", f"{length_text(asked.isl)} in, {length_text(asked.osl)} out"),
        ("Demand", demand_text(plan.demand)),
        ("Limits", "; ".join(map(limit_text, asked.limits)) or "none"),
        ("Aim", "" if plan.aim is None else aim_text(plan.aim)),
        ("Traffic", "" if plan.demand.offline else _traffic(plan)),
        ("Tried", tried + (f" × TP {tps}" if tps else "")),
    )
    day = figures.profile(plan)
    numbers = None if day is None else _hours_table(plan)
    return section("question", "Question", Facts(rows=tuple(row for row in rows if row[1])), drawing(day, "", numbers))


def _traffic(plan: Plan) -> str:
    load, arrivals = plan.scenario.load, plan.scenario.arrivals
    how = f", {arrivals.replace('poisson', 'Poisson')} arrivals" if arrivals and load == "open" else ""
    return load if load == "measured" else f"{load} loop{how}"


def _curve(plan: Plan) -> Section:
    plot = figures.curve(plan)
    reading = (
        "More load means more requests in a batch: throughput grows, and so does every latency. "
        "Dashed lines across are the limits; the answer is the last load at which all of them hold."
    )
    numbers = None if plot is None else _points_table(plot, "The curve in numbers")
    if _shown(plan) == "curve":
        return section("curve", "Latency and throughput", numbers)
    return section("curve", "Latency and throughput", drawing(plot, reading, numbers))


def _hours_table(plan: Plan) -> Table:
    """Requests per second, hour by hour."""
    rates = enumerate(plan.demand.profile or ())
    rows = tuple((f"{hour % 24}:00–{hour % 24 + 1}:00", number(rate)) for hour, rate in rates)
    return Table(caption="The load in numbers", header=("hour", "requests per second"), rows=rows, folded=True)


def _points_table(plot: Plot, caption: str) -> Table:
    """One row a load, one column a latency."""
    loads = sorted({p.x for s in plot.series for p in s.points})
    values = [{p.x: p.y for p in s.points} for s in plot.series]
    rows = tuple((plain(x) if x == round(x) else number(x), *(number(of.get(x)) for of in values)) for x in loads)
    header = (plot.x.title, *(f"{s.name}, {'ms' if plot.y.log else plot.y.title}" for s in plot.series))
    return Table(caption=caption, header=header, rows=rows)


def _cost(plan: Plan) -> Section:
    cost = yearly(plan)
    reading = "Each bar is one way of running the same traffic for a year."
    drawn = cost is not None and _shown(plan) != "cost"
    return cost_section(cost, drawing(figures.cost(plan), reading, ways_table(cost)) if cost is not None and drawn else None)


def _sensitivity(plan: Plan) -> Block | None:
    if _shown(plan) == "sensitivity":
        return None
    return drawing(figures.tornado(plan), "The longer the bar, the more it pays to know that input well.", sensitivity_table(plan))


def _candidates(plan: Plan) -> Block | None:
    reading = "Down is cheaper, left is faster. A deployment off the line is beaten in both by one that is on it."
    return drawing(figures.pareto(plan), reading, candidates_table(plan))


def _where_it_goes(plan: Plan) -> Section:
    step, memory = drawing(figures.step(plan), "", step_table(plan)), drawing(figures.memory(plan), "", memory_table(plan))
    return section("explain", EXPLAINED, explained_items(plan), step, limits_table(plan), memory)


def _repeat(plan: Plan) -> Section:
    source = plan.provenance
    rows = (
        ("Tonnage", source.tonnage),
        ("Data", source.benchmarks or "simulated; no measurement of this deployment went in"),
        ("Sources", "; ".join(source.sources)),
        ("Step times", source.step_model),
        ("Calibration", "" if source.calibration is None else source.calibration.data),
        ("Seed", "" if source.seed is None else str(source.seed)),
        ("Date", source.date),
        ("Schema of the plan", plan.schema),
        *((f"Coefficients of {engine}", words) for engine, words in source.coefficients.items()),
    )
    command = Command(text=source.command) if source.command else None
    return section("repeat", "Repeat it", command, Facts(rows=tuple(row for row in rows if row[1])))
