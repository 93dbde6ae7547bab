"""``tonnage size``: the plan, as a table for people or as JSON for commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tonnage.cli.flags import GROUPS, OUTPUT, scenario_flags, with_flags
from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.show_plan import show_plan

if TYPE_CHECKING:
    from tonnage.api import Asked
    from tonnage.cost.job import JobCost
    from tonnage.cost.where import CostComparison
    from tonnage.plan.former_plan import Plan
    from tonnage.spec.scenario import Scenario

NO_DEPLOYMENT = 3
"""Exit code when nothing meets the limits: the plan is printed all the same."""


@with_flags(*scenario_flags())
def size(
    scenario: Annotated[
        Path | None, Parameter(help="YAML or JSON file with the question (tonnage schema); flags stand in place of what it says.")
    ] = None,
    /,
    *,
    price: Annotated[
        list[str] | None,
        Parameter(help="One price in place of the catalog's, such as systems.dgx-h100=250000; repeatable.", negative=(), group=GROUPS[""]),
    ] = None,
    json: Annotated[bool, Parameter(help="Print the plan as one JSON object.", negative=(), group=OUTPUT)] = False,
    output: Annotated[Path | None, Parameter(help="Write the plan's JSON to this file as well.", group=OUTPUT)] = None,
    report: Annotated[Path | None, Parameter(help="Write a page that explains the plan to this file (HTML).", group=OUTPUT)] = None,
    markdown: Annotated[bool, Parameter(help="Print the plan as Markdown.", negative=(), group=OUTPUT)] = False,
    explain: Annotated[
        bool, Parameter(help="Print also what takes time and memory, and how far each limit is used.", negative=(), group=OUTPUT)
    ] = False,
    **asked: Any,
) -> int:
    """How many systems does this traffic need inside these latency limits?

    Every GPU × precision × TP × engine that fits is simulated at the highest load inside all limits;
    with --benchmarks, measured points take the place of the simulation (in a scenario file they stand beside it).
    Without any argument on a terminal the questions are asked one by one.
    """
    from tonnage import api

    given = {name: value for name, value in {**asked, "price": price}.items() if value is not None}
    if scenario is None and not given and _terminal():
        from tonnage.cli.ask import ask

        given = ask()
    if scenario is None and given.get("benchmarks") is not None:
        found = Found(plans=(api.size_measured(**given),))
    else:
        found = _answered(api.ask(scenario, **given))
    documents = [_document(found, place) for place in range(len(found.plans))]
    whole = documents[0] if len(documents) == 1 else {"schema": "tonnage-comparison/1", "plans": documents}
    _write(whole, output, report)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(whole))
    elif markdown:
        from tonnage.report.markdown import markdown as as_markdown

        sys.stdout.write(as_markdown(whole))
    else:
        print(_text(found, explain=explain))
    return 0 if any(plan.candidates for plan in found.plans) else NO_DEPLOYMENT


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The plans, one per model, and what stands beside them.

    Attributes:
        plans: the answers.
        costs, jobs: of each plan, for a year's traffic or for a job; None where it has none.
        measured: the plan from the scenario's own benchmarks, and its cost.
        closed: the prediction of the same closed loop.
        scenario: the question as it was written.
    """

    plans: tuple[Plan, ...]
    costs: tuple[CostComparison | None, ...] = ()
    jobs: tuple[JobCost | None, ...] = ()
    measured: Plan | None = None
    measured_cost: CostComparison | None = None
    closed: Plan | None = None
    scenario: Scenario | None = None

    def cost(self, place: int) -> CostComparison | JobCost | None:
        """The cost of one plan."""
        return (self.costs[place] or self.jobs[place]) if self.costs else None


def _answered(understood: Asked) -> Found:
    from tonnage import api
    from tonnage.cli.provenance import today

    asked, questions = understood.scenario, understood.questions
    measured = api.measured_beside(understood)
    compile_if_needed()
    with progress_bar("sizing") as progress:
        plans = api.answer(understood, progress=progress)
    return Found(
        plans=plans,
        costs=tuple(api.costs(plan, question, asked, today=today()) for plan, question in zip(plans, questions, strict=True)),
        jobs=tuple(api.cost_of_job(plan, question, asked, today=today()) for plan, question in zip(plans, questions, strict=True)),
        measured=measured,
        measured_cost=None if measured is None else api.costs(measured, questions[0], asked, today=today()),
        closed=None if measured is None else api.predicted_beside(understood),
        scenario=asked,
    )


def _write(whole: dict[str, Any], output: Path | None, report: Path | None) -> None:
    if output is not None:
        from tonnage.results.store import write_json

        write_json(output, whole)
    if report is not None:
        from tonnage.report.html import write_report

        write_report(report, whole)


def _document(found: Found, place: int) -> dict[str, Any]:
    """The plan as JSON values, with where it came from, its cost and the measured plan."""
    from tonnage.cli.provenance import command_line, today

    document = found.plans[place].to_json()
    document["provenance"] |= {"command": command_line(), "date": today().isoformat()}
    cost = found.cost(place)
    if cost is not None:
        document["cost"] = cost.to_json()
    if place == 0 and found.measured is not None:
        document["measured"] = found.measured.to_json()
        if found.closed is not None:
            document["measured"]["predicted"] = [candidate.to_json() for candidate in found.closed.candidates]
        if found.measured_cost is not None:
            document["measured"]["cost"] = found.measured_cost.to_json()
    if found.scenario is not None:
        from tonnage.spec.scenario import to_document

        document["asked"] = to_document(found.scenario)
    return document


def _text(found: Found, *, explain: bool) -> str:
    from tonnage.cli.show_comparison import show_beside, show_models
    from tonnage.cli.show_cost import show_cost, show_job
    from tonnage.cost.job import JobCost

    parts = [show_models(found.plans, found.costs)] if len(found.plans) > 1 else []
    for place, plan in enumerate(found.plans):
        parts.append(show_plan(plan, explain=explain))
        if place == 0 and found.measured is not None:
            parts.append(show_beside(plan, found.closed or plan, found.measured, found.measured_cost))
        cost = found.cost(place)
        if cost is not None:
            parts.append(show_job(cost) if isinstance(cost, JobCost) else show_cost(cost))
    return "\n\n".join(parts)
