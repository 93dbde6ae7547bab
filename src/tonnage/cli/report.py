"""``tonnage report``: a saved plan, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tonnage.cli.printing import print_plans


def report(
    plan: Path,
    /,
    *,
    output: Path | None = None,
    markdown: Annotated[bool, Parameter(negative=())] = False,
    explain: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Write the report of a plan that tonnage size saved with --output, without sizing anything again.

    Parameters
    ----------
    plan
        File with the plan's JSON.
    output
        Write a page that explains the plan to this file (HTML), instead of printing it.
    markdown
        Print the report as Markdown.
    explain
        Print also what takes time and memory, and how far each limit is used.
    json
        Print the plan as one JSON object, once it has been checked.
    """
    from tonnage.report.plans.saved import read_plans

    plans = read_plans(plan)
    if output is None:
        print_plans(plans, json=json, markdown=markdown, explain=explain)
        return
    from tonnage.report.plans.plan_document import report as document
    from tonnage.report.writers.html import write_page

    write_page(output, document(*plans))
