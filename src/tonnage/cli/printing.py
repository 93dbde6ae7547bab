"""What a verb prints: its answer as one JSON object, or as text for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tonnage.errors import spelled
from tonnage.report.document import Document

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan


def print_answer(document: Callable[[], Document], values: Callable[[], Any], *, json: bool) -> None:
    """Print one of the two; only the one that is wanted is made."""
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(values()))
        return
    from tonnage.report.writers.terminal import terminal

    print(_with_flags(terminal(document())))


def print_plans(plans: Sequence[Plan], *, json: bool, markdown: bool, explain: bool, brief: bool = False) -> None:
    """Print plans as one JSON object, as a report in Markdown, in a few lines, or as text for the terminal."""
    if brief and not json and not markdown:
        from tonnage.report.plans.brief import brief_lines

        print(_with_flags("\n".join(brief_lines(plans))))
        return
    if markdown and not json:
        from tonnage.report.plans.plan_document import report
        from tonnage.report.writers.markdown import markdown as written

        sys.stdout.write(written(report(*plans)))
        return
    from tonnage.report.plans.plan_text import plan_text
    from tonnage.report.plans.saved import to_json

    print_answer(lambda: plan_text(plans, explain=explain), lambda: to_json(plans), json=json)


def _with_flags(text: str) -> str:
    """A text whose options are spelled as the command spells them."""
    from tonnage.cli.main import flag

    return spelled(text, flag)
