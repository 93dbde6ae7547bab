"""``tonnage explain``: why a saved plan chose what it did."""

from __future__ import annotations

from pathlib import Path


def explain(plan: Path, /) -> None:
    """Say why a plan chose what it did, what every other kind of deployment would have taken, and where time and memory go.

    Nothing is sized again: everything is read off the file.

    Parameters
    ----------
    plan
        File with the plan's JSON, as tonnage size --output wrote it; of several use cases each is explained.
    """
    from tonnage.cli.printing import print_answer
    from tonnage.report.plans.explained import why_text
    from tonnage.report.plans.plan_document import read_plans, read_use_cases
    from tonnage.report.plans.use_cases import use_cases_why

    several = read_use_cases(plan)
    made = why_text(read_plans(plan)) if several is None else use_cases_why(several)
    print_answer(lambda: made, lambda: None, json=False)
