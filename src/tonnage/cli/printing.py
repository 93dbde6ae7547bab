"""What a verb prints: its answer as one JSON object, or as text for the terminal."""

from __future__ import annotations

import datetime
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option, spelled, visible
from tonnage.report.document import Document, document
from tonnage.version import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from tonnage.plan.plan import Plan
    from tonnage.plan.use_cases import UseCases


def print_answer(
    document: Callable[[], Document], values: Callable[[], Any], *, json: bool
) -> None:
    """Print one of the two; only the one that is wanted is made."""
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(values()))
        return
    from tonnage.report.writers.terminal import terminal

    print(_with_flags(terminal(document())))


def write_page(path: Path | None, document: Callable[[], Document]) -> None:
    """Write a document as a page where one was requested."""
    if path is not None:
        from tonnage.report.writers.html import write_page as write

        write(path, document())


def say(line: str) -> None:
    """Print a line about progress on standard error."""
    print(f"tonnage: {visible(line)}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form in which plans are printed; the first screen by default."""

    # json, markdown, csv: one JSON object, a report in Markdown, a line of CSV for each deployment
    json: bool = False
    markdown: bool = False
    csv: bool = False
    # full, brief, quiet: the whole text, the answer in ten lines, or in one
    full: bool = False
    brief: bool = False
    quiet: bool = False
    # explain, plot: what the text holds as well: where time and memory go, a plot of characters
    explain: bool = False
    plot: bool = False

    def __post_init__(self) -> None:
        """Refuse two forms at once. Raises InputError: naming both."""
        chosen = [
            name for name in ("json", "markdown", "csv", "brief", "full") if getattr(self, name)
        ]
        if len(chosen) > 1:
            raise InputError(
                f"{option(chosen[0])} and {option(chosen[1])}: each is a form of its own; leave one"
                " of them out"
            )

    def check(self, forms: Sequence[str], what: str) -> None:
        """Refuse a form that something does not have. Raises InputError: naming it."""
        for part in fields(self):
            if getattr(self, part.name) and part.name not in forms:
                raise InputError(
                    f"{option(part.name)}: is not there for {what}; there are"
                    f" {', '.join(map(option, forms))}"
                )


FORMS_OF_USE_CASES = ("json", "markdown", "full", "brief", "quiet")


def print_plans(plans: Sequence[Plan], form: Form, *, page: str = "report") -> None:
    """Print plans in the requested form; ``page`` is the option that writes the page."""
    if form.csv:
        from tonnage.report.plans.plan_document import plan_csv

        sys.stdout.write(plan_csv(plans))
    elif form.markdown:
        from tonnage.report.plans.plan_document import report
        from tonnage.report.writers.terminal import markdown as written

        sys.stdout.write(written(report(*plans)))
    elif form.json:
        from tonnage.report.plans.plan_document import to_json

        print_answer(document, lambda: to_json(plans), json=True)
    elif form.quiet or form.brief:
        from tonnage.report.plans.screen import brief_lines, quiet_lines

        print(
            _with_flags("\n".join(quiet_lines(plans) if form.quiet else brief_lines(plans, page)))
        )
    else:
        from tonnage.report.plans.plan_document import full_text
        from tonnage.report.plans.screen import screen
        from tonnage.report.writers.terminal import terminal, width

        plot = width() if form.plot else None
        answer_document = (
            full_text(plans, plot=plot)
            if form.full
            else screen(plans, page=page, explain=form.explain, plot=plot)
        )
        print(_with_flags(terminal(answer_document)))


def print_use_cases(use_cases: UseCases, form: Form, *, page: str = "report") -> None:
    """Print several use cases on one fleet, in the same forms."""
    from tonnage.report.plans.use_cases import (
        answer_text,
        brief_lines,
        use_cases_report,
        use_cases_screen,
        use_cases_text,
    )

    if form.markdown:
        from tonnage.report.writers.terminal import markdown as written

        sys.stdout.write(written(use_cases_report(use_cases)))
    elif form.quiet and not form.json:
        print(_with_flags(answer_text(use_cases)))
    elif form.brief:
        print(_with_flags("\n".join(brief_lines(use_cases))))
    else:
        print_answer(
            lambda: use_cases_text(use_cases) if form.full else use_cases_screen(use_cases, page),
            use_cases.to_json,
            json=form.json,
        )


def _with_flags(text: str) -> str:
    """A text whose options are spelled as the command spells them, without hidden characters."""
    from tonnage.cli.main import flag

    return visible(spelled(text, flag))


def command_line() -> str:
    """The command that was typed, as a shell would take it again."""
    return visible(shlex.join(["./tonnage", *sys.argv[1:]]))


def today() -> datetime.date:
    """The day, by universal time."""
    return datetime.datetime.now(tz=datetime.UTC).date()


def provenance(seed: int) -> dict[str, Any]:
    """Version, command, seed, machine and date of a run."""
    return {
        "tonnage": VERSION,
        "command": command_line(),
        "seed": seed,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "date": today().isoformat(),
    }
