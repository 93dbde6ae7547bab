"""A plan as a whole report: the lines that answer first, then what it rests on, then how to repeat
it.

The page, Markdown and the full text of a terminal have the same sections.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.csv_file import read_text
from tonnage.errors import InputError
from tonnage.plan.candidate import Candidate
from tonnage.plan.plan import Plan
from tonnage.plan.use_cases import SCHEMA, UseCases
from tonnage.report.document import (
    Block,
    Command,
    Document,
    Drawing,
    Facts,
    Section,
    Table,
    Text,
    charted,
    document,
    drawing,
    facts_known,
    items,
    section,
)
from tonnage.report.drawing.figure import Figure, Plot
from tonnage.report.numbers import ABSENT, dollars, number, percent, plain, sentence_of, span, usd
from tonnage.report.plans import figures
from tonnage.report.plans.answer import deployment_section, title
from tonnage.report.plans.candidates import (
    candidates_table,
    reason_text,
    rejected_section,
    yearly_costs,
)
from tonnage.report.plans.comparison import beside, compared, compared_table
from tonnage.report.plans.confidence import chance_text, measurement_section, not_sure_text
from tonnage.report.plans.cost import (
    NAMES,
    cost_section,
    job_section,
    owned_and_cheapest,
    ways_table,
    yearly,
)
from tonnage.report.plans.explained import TITLE as EXPLAINED
from tonnage.report.plans.explained import (
    explained_items,
    limits_table,
    memory_table,
    sensitivity_section,
    sensitivity_table,
    step_table,
)
from tonnage.report.plans.fleet import (
    autoscaling_section,
    existing_glance,
    existing_section,
    regions_section,
    session_tiers_section,
)
from tonnage.report.plans.horizon import horizon_section
from tonnage.report.plans.mixed import mixed_section
from tonnage.report.plans.notes import assumptions_section
from tonnage.report.plans.question import (
    bound_text,
    length_text,
    peak_values,
    question_rows,
    used_share,
)
from tonnage.report.plans.screen import (
    WARNED,
    Room,
    answer_rows,
    head,
    in_one,
    plotted,
    warnings_of,
)
from tonnage.spec.typed_values import parse_json

# Sections that a page shows closed: who wants them opens them, and print holds them all
FOLDED = ("explain", "rejected", "assumptions", "repeat")
CURVE = (
    "As the load grows, so do throughput and every latency. Dashed lines across are the limits; the"
    " numbers are under {title}."
)
OTHER = "The numbers are under {title}."
MORE_LOAD = (
    "More load means more requests in a batch: throughput grows, and so does every latency. "
    "Dashed lines across are the limits; the answer is the last load at which all of them hold."
)
EACH_BAR = "Each bar is one way of running the same traffic for a year."
LONGER_BAR = "The longer the bar, the more it pays to know that input well."
CHEAPER_FASTER = (
    "Down is cheaper, left is faster. A deployment off the line is beaten in both by one that is"
    " on it."
)
# The sections that hold the numbers of the figures that the first page may show, in the order in
# which they are wanted
PARTS = {
    "curve": "Latency and throughput",
    "cost": "Cost",
    "sensitivity": "What would change the answer",
}


def report(*plans: Plan) -> Document:
    """The whole report of a plan; parts that the plan does not hold are left out. Of several plans,
    side by side first.
    """
    if len(plans) == 1:
        return Document(
            title=title(plans[0]), subtitle=made_by(plans[0]), sections=_sections(plans[0])
        )
    first = compared(plans, tuple(map(in_one, plans)))
    parts = [
        part
        for place, plan in enumerate(plans, 1)
        for part in named_sections(plan, plan.scenario.model, place)
    ]
    return document(
        first, *parts, title=f"{len(plans)} models compared", subtitle=made_by(plans[0])
    )


def full_text(plans: Sequence[Plan], *, plot: int | None = None) -> Document:
    """The whole of the plans for a terminal: the lines of the first screen, then every section of
    the page.

    ``plot`` adds a plot of characters, in so many columns.
    """
    several = (
        [section("models", "Models compared", compared_table(plans))] if len(plans) > 1 else []
    )
    sections = [part for plan in plans for part in full_sections(plan, plot=plot)]
    return document(*several, *sections)


def full_sections(plan: Plan, *, plot: int | None = None) -> tuple[Section, ...]:
    """The lines of the first screen of a plan, then its every section, for a terminal."""
    warned = section("warnings", "", items(warnings_of(plan)[:WARNED], "warning"))
    return tuple(
        section
        for section in (*head(plan, Room()), warned, plotted(plan, plot), *_parts(plan))
        if section.blocks
    )


def named_sections(plan: Plan, name: str, place: int) -> tuple[Section, ...]:
    """The sections of one plan among several, under a name; ``place`` counts from 1. The list of
    parts names only the first.
    """
    return tuple(
        replace(
            part,
            key=f"{part.key}-{place}",
            title=f"{name}: {part.title}",
            listed=part.key == "answer",
        )
        for part in _sections(plan)
    )


def made_by(plan: Plan) -> str:
    """Write what was sized, by whom and when: "Chat – sized by Tonnage 0.1.0, 2026-11-22"."""
    source, about = plan.provenance, "" if plan.asked is None else plan.asked.title or ""
    by = f"{about} – sized" if about else "Sized"
    return f"{by} by Tonnage {source.tonnage}".rstrip() + (
        f", {source.date}" if source.date else ""
    )


def _sections(plan: Plan) -> tuple[Section, ...]:
    # then the reasons are the answer
    folded = FOLDED if plan.candidates else tuple(key for key in FOLDED if key != "rejected")
    sections = (first_page(plan), *_parts(plan))
    return tuple(
        replace(section, folded=section.key in folded) for section in sections if section.blocks
    )


def _parts(plan: Plan) -> tuple[Section, ...]:
    first, cost, curve = figure_of(plan), yearly(plan), figures.curve(plan)
    # the section whose figure is on the first page already
    shown = "" if first is None else first[0]
    step, memory = (
        drawing(figures.step(plan), "", step_table(plan)),
        drawing(figures.memory(plan), "", memory_table(plan)),
    )
    points = None if curve is None else points_table(curve, "The curve in numbers")
    ways = (
        None
        if cost is None or shown == "cost"
        else drawing(figures.cost(plan), EACH_BAR, ways_table(cost))
    )
    rows = candidates_table(plan)
    moved = (
        None
        if shown == "sensitivity"
        else drawing(figures.tornado(plan), LONGER_BAR, sensitivity_table(plan))
    )
    return (
        _question(plan),
        existing_section(plan),
        mixed_section(plan),
        deployment_section(plan),
        beside(plan),
        section(
            "curve",
            PARTS["curve"],
            points if shown == "curve" else drawing(curve, MORE_LOAD, points),
        ),
        cost_section(cost, ways),
        job_section(plan),
        horizon_section(plan),
        autoscaling_section(plan),
        regions_section(plan),
        session_tiers_section(plan),
        sensitivity_section(plan, moved),
        measurement_section(plan),
        section(
            "candidates", "Candidates", drawing(figures.pareto(plan), CHEAPER_FASTER, rows) or rows
        ),
        section("explain", EXPLAINED, explained_items(plan), step, limits_table(plan), memory),
        rejected_section(plan),
        assumptions_section(plan, warnings_of(plan)[WARNED:]),
        _repeat(plan),
    )


def first_page(plan: Plan) -> Section:
    """The page that is alone: the answer, its numbers at a glance, the lines of the first screen,
    warnings and one figure.
    """
    (_, answer), *rows = answer_rows(plan)
    cards = first_glance(plan)
    return section(
        "answer",
        "Answer",
        items((sentence_of(not_sure_text(plan)),), "warning"),
        Text(sentence_of(answer), tone="answer"),
        Facts(cards, big=True) if cards else None,
        Facts((*question_rows(plan), *rows)),
        items(warnings_of(plan)[:WARNED], "warning"),
        _chart(plan),
    )


def first_glance(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The numbers to see first, large."""
    choice, exists = plan.choice, existing_glance(plan)
    if choice is None or exists:
        return exists
    rows = [("systems to buy", f"{choice.systems:,}"), ("GPUs", f"{choice.gpus:,}")]
    sure, peak = choice.confidence, choice.at_peak
    if sure is not None:
        rows += [("probability that every limit holds", chance_text(sure.meets))]
    if peak is not None:
        rows += [
            (f"ms {name} at the peak", value)
            for name, value, _ in peak_values(peak, plan.scenario.limits_that_count)
        ]
    if plan.job is None:
        rows += [("of capacity, used at the peak", used_share(choice.utilisation))]
    else:
        rows.insert(0, ("until the job is done", span(plan.job.finish_seconds)))
        rows.append(
            (
                "of the time allowed, used",
                percent(plan.job.finish_seconds / plan.job.allowed_seconds),
            )
        )
    for way in owned_and_cheapest(yearly(plan))[:1]:
        rows.append((f"USD a year, {NAMES[way.where]}", dollars(way.total_usd_per_year)))
        rows.append(("USD per 1,000 requests", usd(way.usd_per_1000_requests)))
    return tuple(row for row in rows if row[1] != ABSENT)


def figure_of(plan: Plan) -> tuple[str, Figure] | None:
    """The figure that the first page shows, by the key of the section that holds its numbers."""
    makers = {"curve": figures.curve, "cost": figures.cost, "sensitivity": figures.tornado}
    return next(
        ((key, figure) for key, make in makers.items() if (figure := make(plan)) is not None), None
    )


def _chart(plan: Plan) -> Block | None:
    keyed_figure = figure_of(plan)
    if keyed_figure is None:
        return None
    key, figure = keyed_figure
    reading = (CURVE if key == "curve" else OTHER).format(title=PARTS[key])
    return Drawing(figure, reading, None)


def _question(plan: Plan) -> Section:
    """What the lines of the question leave out: lengths in words, arrivals, what was tried, and the
    load hour by hour.
    """
    understood = plan.scenario
    tried = " × ".join(
        ", ".join(names)
        for names in (understood.gpus, understood.precisions, understood.engines)
        if names
    )
    tps = ", ".join(map(str, understood.tps))
    how = (
        f", {understood.arrivals.replace('poisson', 'Poisson')} arrivals"
        if understood.arrivals and understood.load == "open"
        else ""
    )
    traffic = understood.load if understood.load == "measured" else f"{understood.load} loop{how}"
    rows = (
        ("Lengths", f"{length_text(understood.isl)} in, {length_text(understood.osl)} out"),
        ("Traffic", "" if plan.demand.offline else traffic),
        ("Tried", tried + (f" × TP {tps}" if tps else "")),
    )
    day = figures.profile(plan)
    hours = (
        (f"{hour % 24}:00–{hour % 24 + 1}:00", number(rate))
        for hour, rate in enumerate(plan.demand.profile or ())
    )
    drawn = (
        None
        if day is None
        else charted(day, "", "The load in numbers", ("hour", "requests per second"), hours)
    )
    return section("question", "Question", facts_known(rows), drawn)


def points_table(plot: Plot, caption: str) -> Table:
    """One row a load, one column a latency."""
    loads = sorted({p.x for s in plot.series for p in s.points})
    values = [{p.x: p.y for p in s.points} for s in plot.series]
    rows = tuple(
        (plain(x) if x == round(x) else number(x), *(number(of.get(x)) for of in values))
        for x in loads
    )
    header = (
        plot.x.title,
        *(f"{s.name}, {'ms' if plot.y.log else plot.y.title}" for s in plot.series),
    )
    return Table(caption=caption, header=header, rows=rows)


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
    command = Command(source.command) if source.command else None
    return section("repeat", "Repeat it", command, facts_known(rows))


COMPARISON = "tonnage-comparison/3"


def to_json(plans: Sequence[Plan]) -> dict[str, Any]:
    """Convert plans to JSON: one as it is, several as a comparison in their order."""
    documents = [plan.to_json() for plan in plans]
    return documents[0] if len(documents) == 1 else {"schema": COMPARISON, "plans": documents}


def read_use_cases(path: str | Path) -> UseCases | None:
    """The answer for several use cases in a file; None where it holds something else. Raises
    InputError: as ``read_plans``.
    """
    document = _document(path)
    return (
        UseCases.from_json(document)
        if isinstance(document, dict) and document.get("schema") == SCHEMA
        else None
    )


def read_plans(path: str | Path) -> tuple[Plan, ...]:
    """The plans of a file. Raises InputError: no such file, no JSON, or no plan of this version;
    every fault with its path.
    """
    return plans_of(_document(path), path)


def plans_of(document: Any, path: str | Path) -> tuple[Plan, ...]:
    """The plans of what ``to_json`` wrote; ``path`` is where it comes from. Raises InputError."""
    if isinstance(document, dict) and document.get("schema") == SCHEMA:
        raise InputError(
            f"{path}: holds several use cases, and one plan is needed; size each scenario alone,"
            " `tonnage size SCENARIO.yaml --output PLAN.json`"
        )
    if (
        isinstance(document, dict)
        and document.get("schema") == COMPARISON
        and isinstance(document.get("plans"), list)
    ):
        return tuple(map(Plan.from_json, document["plans"]))
    return (Plan.from_json(document),)


def _document(path: str | Path) -> Any:
    """The values of a JSON file. Raises InputError: no such file, or no JSON."""
    again = "give the file that tonnage size wrote as its output"
    return parse_json(read_text(path, give=again.removeprefix("give ")), str(path), again)


IDENTITY = ("gpu", "precision", "tp", "pp", "dp", "ep", "engine")
# Latencies are those at the asked peak; at the highest load inside the limits where no peak is
# known
HEADER = (
    *("model", "status", *IDENTITY, "system", "systems", "systems_exact", "gpus", "instances"),
    *("requests_per_second_per_instance", "requests_per_second_per_8_gpus", "utilisation", "meets"),
    *(
        "ttft_ms_mean",
        "ttft_ms_p95",
        "ttft_ms_p99",
        "tpot_ms_mean",
        "itl_ms_p99",
        "e2e_ms_mean",
        "e2e_ms_p95",
    ),
    *("owned_usd_per_year", "bound_by", "reason"),
)


def plan_csv(plans: Sequence[Plan]) -> str:
    """The header and the rows of all plans; numbers as they are, without separators of
    thousands.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for plan in plans:
        writer.writerows(_rows(plan))
    return text.getvalue()


def _rows(plan: Plan) -> Iterator[tuple[object, ...]]:
    for place, (candidate, a_year) in enumerate(
        zip(plan.candidates, yearly_costs(plan), strict=True)
    ):
        status, end = (
            "candidate" if place else "chosen",
            (_plain(a_year), bound_text(candidate.binds), ""),
        )
        yield (plan.scenario.model, status, *_candidate(candidate), *end)
    for rejected in plan.rejected:
        names = tuple(getattr(rejected, name) for name in IDENTITY)
        yield (
            plan.scenario.model,
            "rejected",
            *names,
            *("",) * (len(HEADER) - len(names) - 3),
            reason_text(rejected.reason),
        )


def _candidate(c: Candidate) -> tuple[object, ...]:
    at = c if c.at_peak is None else c.at_peak
    pool = c.pools[0]
    return (
        *(getattr(pool, name) for name in IDENTITY),
        *(pool.system, c.systems, _plain(c.systems_exact), c.gpus, c.instances),
        *map(
            _plain,
            (c.requests_per_second_per_instance, c.requests_per_second_per_8_gpus, c.utilisation),
        ),
        _plain(None if c.confidence is None else c.confidence.meets),
        *map(
            _plain,
            (
                at.ttft_ms.mean,
                at.ttft_ms.p95,
                at.ttft_ms.p99,
                at.tpot_ms.mean,
                at.itl_ms.p99,
                at.e2e_ms.mean,
                at.e2e_ms.p95,
            ),
        ),
    )


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
