"""``tonnage size``: the plan, as a table for people or as JSON for commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import Parameter

from tonnage.cli.flags import GROUPS, OUTPUT, Flag, flags_of, given, leaf_flags, with_flags
from tonnage.cli.printing import FORMS_OF_USE_CASES, Form, print_plans, print_use_cases
from tonnage.cli.progress import compile_if_needed, progress_bar, without_collection
from tonnage.cli.services import is_service, size_service
from tonnage.errors import DONE, NO_ANSWER, InputError, option
from tonnage.spec.scenario import leaves
from tonnage.spec.typed_values import about

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan

PRICE = Flag(
    name="price",
    kind=list[str] | None,
    about="One price in place of the catalog's, such as systems.dgx-h100=250000; repeatable.",
    group=GROUPS[""],
)
DISAGGREGATED = Flag(
    name="disaggregated",
    kind=bool | None,
    about="Prefill and decode in two pools of instances, whose ratio the search finds (default: instances do both).",
    group=GROUPS["search"],
    negative=True,
)
SCENARIO = (
    "YAML or JSON file with the question (tonnage schema); flags stand in place of what it says. Several files are use cases of one fleet "
    "(docs/fleet.md). A file that describes a non-LLM service (docs/services.md) takes only --requests, --seed, --report and --json."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the plan goes, and how it is written."""

    json: bool | None = about("Print the plan as one JSON object.", negative=False)
    output: Path | None = about("Write the plan's JSON to this file as well; tonnage report reads it.")
    report: Path | None = about("Write a page that explains the plan to this file (HTML).")
    markdown: bool | None = about("Print the plan as Markdown.", negative=False)
    full: bool | None = about(
        "Print everything: every deployment, why the others are rejected, sensitivity, costs in parts and prices.", negative=False
    )
    brief: bool | None = about("Print the answer in ten lines at most.", negative=False)
    explain: bool | None = about("Print also what takes time and memory, and how far each limit is used.", negative=False)
    plot: bool | None = about("Print also a plot of the latencies over the load, made of characters.", negative=False)
    csv: bool | None = about("Print every deployment as a line of CSV.", negative=False)
    quiet: bool | None = about("Print the line of the answer alone, and no progress.", negative=False)

    @property
    def form(self) -> Form:
        """How the answer is printed."""
        return Form(**{one.name: bool(getattr(self, one.name)) for one in fields(Form)})


@with_flags(*(DISAGGREGATED if flag.name == "disaggregated" else flag for flag in leaf_flags(leaves())), PRICE, *flags_of(Output, OUTPUT))
def size(*scenario: Annotated[Path, Parameter(help=SCENARIO)], **asked: Any) -> int:
    """How many systems does this traffic need inside these latency limits?

    Every GPU × precision × TP × engine that fits is simulated at the highest load inside all limits;
    with --benchmarks, measured points take the place of the simulation (in a scenario file they stand beside it).
    Without any argument on a terminal the questions are asked one by one.
    """
    first = scenario[0] if scenario else None
    if is_service(first):
        return size_service(
            cast("Path", first), {name: value for name, value in given(asked).items() if name != "json"}, json=bool(asked.get("json"))
        )
    output = Output(**{one.name: asked.pop(one.name, None) for one in fields(Output)})
    _check_output(output.output)
    if len(scenario) > 1:
        return _several(scenario, given(asked), output)
    plans = _answered(first, given(asked), quiet=bool(output.quiet))
    _write(plans, output)
    print_plans(plans, output.form)
    return DONE if any(plan.candidates for plan in plans) else NO_ANSWER


OTHER_FORMATS = (".csv", ".tsv", ".xlsx", ".html", ".htm", ".md", ".pdf", ".txt", ".yaml", ".yml", ".parquet")


def _check_output(path: Path | None) -> None:
    """Refuse a file whose name promises another format than JSON, before anything is simulated."""
    if path is not None and path.suffix.lower() in OTHER_FORMATS:
        raise InputError(
            f"{option('output')}: {path}: the plan is written as JSON; name it {path.with_suffix('.json').name}, "
            f"or write a page with {option('report')} and a text with {option('markdown')}"
        )


def _answered(scenario: Path | None, asked: dict[str, Any], *, quiet: bool = False) -> tuple[Plan, ...]:
    """One plan for each model, from measured points alone where only these were given."""
    with without_collection():
        from tonnage import api
        from tonnage.cli.printing import command_line, today

        if scenario is None and not asked and sys.stdin.isatty() and sys.stdout.isatty():
            from tonnage.cli.ask import ask

            asked = ask()
        if scenario is None and "benchmarks" in asked:
            return (api.size_measured(**asked, command=command_line(), today=today()),)
        understood = api.ask(scenario, **asked)
        shares = any(question.sharing is not None for question in understood.questions)
        compile_if_needed(quiet=quiet, shares=shares, fleet=not shares)
    with progress_bar("sizing", quiet=quiet) as progress:
        return api.answer(understood, progress=progress, command=command_line(), today=today())


def _several(scenarios: Sequence[Path], asked: dict[str, Any], output: Output) -> int:
    """The answer for several use cases on one fleet, printed and written."""
    from tonnage import api
    from tonnage.cli.printing import command_line, today

    output.form.check(FORMS_OF_USE_CASES, "several use cases")
    compile_if_needed(quiet=bool(output.quiet), fleet=True)
    with progress_bar("sizing", quiet=bool(output.quiet)) as progress:
        found = api.size_use_cases(scenarios, progress=progress, command=command_line(), today=today(), **asked)
    if output.output is not None:
        from tonnage.results.store import write_json

        write_json(output.output, found.to_json())
    if output.report is not None:
        from tonnage.report.plans.use_cases import use_cases_report
        from tonnage.report.writers.html import write_page

        write_page(output.report, use_cases_report(found))
    print_use_cases(found, output.form)
    return DONE if found.choice is not None else NO_ANSWER


def _write(plans: Sequence[Plan], output: Output) -> None:
    """The files that were asked for."""
    if output.output is not None:
        from tonnage.report.plans.plan_document import to_json
        from tonnage.results.store import write_json

        write_json(output.output, to_json(plans))
    if output.report is not None:
        from tonnage.report.plans.plan_document import report
        from tonnage.report.writers.html import write_page

        write_page(output.report, report(*plans))
