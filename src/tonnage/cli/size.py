"""``tonnage size``: the plan, as a table for people or as JSON for commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tonnage.cli.flags import GROUPS, OUTPUT, scenario_flags, with_flags
from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.show_plan import show_plan
from tonnage.errors import DONE, NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.plan.plan import Plan


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
    from tonnage.cli.provenance import command_line, today
    from tonnage.report.former_document import former_document

    given = {name: value for name, value in {**asked, "price": price}.items() if value is not None}
    if scenario is None and not given and _terminal():
        from tonnage.cli.ask import ask

        given = ask()
    if scenario is None and given.get("benchmarks") is not None:
        plans: tuple[Plan, ...] = (api.size_measured(**given, command=command_line(), today=today()),)
    else:
        understood = api.ask(scenario, **given)
        compile_if_needed()
        with progress_bar("sizing") as progress:
            plans = api.answer(understood, progress=progress, command=command_line(), today=today())
    whole = _together([plan.to_json() for plan in plans])
    if output is not None:
        from tonnage.results.store import write_json

        write_json(output, whole)
    if report is not None:
        from tonnage.report.html import write_report

        write_report(report, _together(list(map(former_document, plans))))
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(whole))
    elif markdown:
        from tonnage.report.markdown import markdown as as_markdown

        sys.stdout.write(as_markdown(_together(list(map(former_document, plans)))))
    else:
        print(_text(plans, explain=explain))
    return DONE if any(plan.candidates for plan in plans) else NO_ANSWER


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _together(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """One plan as it is, several beside each other."""
    return documents[0] if len(documents) == 1 else {"schema": "tonnage-comparison/2", "plans": documents}


def _text(plans: Sequence[Plan], *, explain: bool) -> str:
    from tonnage.cli.show_comparison import show_beside, show_models
    from tonnage.cli.show_cost import show_cost, show_job
    from tonnage.plan.cost import JobCost

    parts = [show_models(plans)] if len(plans) > 1 else []
    for plan in plans:
        parts.append(show_plan(plan, explain=explain))
        if plan.measured is not None:
            parts.append(show_beside(plan, plan.measured))
        if plan.cost is not None:
            parts.append(show_job(plan.cost) if isinstance(plan.cost, JobCost) else show_cost(plan.cost))
    return "\n\n".join(parts)
