"""``tonnage size``: the plan, as a table for people or as JSON for commands."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import Parameter

from tonnage.cli.flags import GROUPS, OUTPUT, Flag, flags_of, given, leaf_flags, with_flags
from tonnage.cli.printing import (
    FORMS_OF_USE_CASES,
    Form,
    command_line,
    print_plans,
    print_use_cases,
    today,
    write_page,
)
from tonnage.cli.progress import compile_if_needed, progress_bar, without_collection
from tonnage.cli.services import is_service, size_service
from tonnage.errors import DONE, NO_ANSWER, InputError, option
from tonnage.spec.scenario import leaves
from tonnage.spec.typed_values import about

if TYPE_CHECKING:
    from rich.console import Console

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
    about=(
        "Prefill and decode in two pools of instances, whose ratio the search finds (default:"
        " instances do both)."
    ),
    group=GROUPS["search"],
    negative=True,
)
SCENARIO = (
    "YAML or JSON file with the question (tonnage schema); flags stand in place of what it says."
    " Several files are use cases of one fleet (docs/systems.md). A file that describes a non-LLM"
    " service (docs/services.md) takes only --requests, --seed, --report and --json."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Options of where the plan is written, and in which form."""

    json: bool | None = about("Print the plan as one JSON object.", negative=False)
    output: Path | None = about(
        "Write the plan's JSON to this file as well; tonnage report reads it."
    )
    report: Path | None = about("Write a page that explains the plan to this file (HTML).")
    markdown: bool | None = about("Print the plan as Markdown.", negative=False)
    full: bool | None = about(
        "Print everything: every deployment, why the others are rejected, sensitivity, costs in"
        " parts and prices.",
        negative=False,
    )
    brief: bool | None = about("Print the answer in ten lines at most.", negative=False)
    explain: bool | None = about(
        "Print also what takes time and memory, and how far each limit is used.", negative=False
    )
    plot: bool | None = about(
        "Print also a plot of the latencies over the load, made of characters.", negative=False
    )
    csv: bool | None = about("Print every deployment as a line of CSV.", negative=False)
    quiet: bool | None = about(
        "Print the line of the answer alone, and no progress.", negative=False
    )

    @property
    def form(self) -> Form:
        """The form in which the answer is printed."""
        return Form(**{field.name: bool(getattr(self, field.name)) for field in fields(Form)})


@with_flags(
    *(DISAGGREGATED if flag.name == "disaggregated" else flag for flag in leaf_flags(leaves())),
    PRICE,
    *flags_of(Output, OUTPUT),
)
def size(*scenario: Annotated[Path, Parameter(help=SCENARIO)], **asked: Any) -> int:
    """How many systems does this traffic need inside these latency limits?

    Every GPU × precision × TP × engine that fits is simulated at the highest load inside all
    limits; with --benchmarks, measured points take the place of the simulation (in a scenario file
    they stand beside it). Without any argument on a terminal the questions are asked one by one.
    """
    first = scenario[0] if scenario else None
    if is_service(first):
        return size_service(
            cast("Path", first),
            {name: value for name, value in given(asked).items() if name != "json"},
            json=bool(asked.get("json")),
        )
    output = Output(**{field.name: asked.pop(field.name, None) for field in fields(Output)})
    _check_output(output.output)
    if len(scenario) > 1 or _of_classes(first, given(asked)):
        return _several(scenario, given(asked), output)
    plans = _answered(first, given(asked), quiet=bool(output.quiet))
    _write(plans, output)
    print_plans(plans, output.form)
    return DONE if any(plan.candidates for plan in plans) else NO_ANSWER


def _of_classes(scenario: Path | None, flags: Mapping[str, Any]) -> bool:
    """Whether a question names classes of traffic, each of which is a use case."""
    if scenario is None and "classes" not in flags:
        return False
    from tonnage import api

    return bool(api.by_class(scenario, flags))


OTHER_FORMATS = (
    ".csv",
    ".tsv",
    ".xlsx",
    ".html",
    ".htm",
    ".md",
    ".pdf",
    ".txt",
    ".yaml",
    ".yml",
    ".parquet",
)


def _check_output(path: Path | None) -> None:
    """Refuse a file whose name promises another format than JSON, before anything is simulated."""
    if path is not None and path.suffix.lower() in OTHER_FORMATS:
        raise InputError(
            f"{option('output')}: {path}: the plan is written as JSON; name it"
            f" {path.with_suffix('.json').name}, or write a page with {option('report')} and a text"
            f" with {option('markdown')}"
        )


def _answered(
    scenario: Path | None, flags: dict[str, Any], *, quiet: bool = False
) -> tuple[Plan, ...]:
    """Answer with one plan per model, from measured points alone where only these were given."""
    with without_collection():
        from tonnage import api

        if scenario is None and not flags and sys.stdin.isatty() and sys.stdout.isatty():
            flags = ask()
        if scenario is None and "benchmarks" in flags:
            return (api.size_measured(**flags, command=command_line(), today=today()),)
        understood = api.ask(scenario, **flags)
        shares = any(question.sharing is not None for question in understood.questions)
        compile_if_needed(quiet=quiet, shares=shares, fleet=not shares)
    with progress_bar("sizing", quiet=quiet) as progress:
        return api.answer(understood, progress=progress, command=command_line(), today=today())


def _several(scenarios: Sequence[Path], flags: dict[str, Any], output: Output) -> int:
    from tonnage import api

    output.form.check(FORMS_OF_USE_CASES, "several use cases")
    compile_if_needed(quiet=bool(output.quiet), fleet=True)
    with progress_bar("sizing", quiet=bool(output.quiet)) as progress:
        use_cases = api.size_use_cases(
            scenarios, progress=progress, command=command_line(), today=today(), **flags
        )
    if output.output is not None:
        from tonnage.results.store import write_json

        write_json(output.output, use_cases.to_json())
    from tonnage.report.plans.use_cases import use_cases_report

    write_page(output.report, lambda: use_cases_report(use_cases))
    print_use_cases(use_cases, output.form)
    return DONE if use_cases.choice is not None else NO_ANSWER


def _write(plans: Sequence[Plan], output: Output) -> None:
    if output.output is not None:
        from tonnage.report.plans.plan_document import to_json
        from tonnage.results.store import write_json

        write_json(output.output, to_json(plans))
    from tonnage.report.plans.plan_document import report

    write_page(output.report, lambda: report(*plans))


Answers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to answer: what it is called, and the leaves that it asks for with their defaults."""

    title: str
    leaves: tuple[tuple[str, str, str], ...]


SPREAD = (
    "spread",
    "Spread of single lengths: as recorded of chat, code or documents, exact, or such as 20%",
    "chat",
)

LENGTHS = {
    "tokens": Choice(
        "as tokens, words or a distribution",
        (("isl", "Prompt length", "2000"), ("osl", "Output length", "200"), SPREAD),
    ),
    "parts": Choice(
        "as a question, with system prompt, passages and history added up",
        (
            ("isl", "Question of the user", "100"),
            ("system_prompt", "System prompt", "500"),
            ("retrieved", "Retrieved passages", "5x400"),
            ("history", "Chat history", "3x300"),
            ("osl", "Output length", "200"),
            SPREAD,
        ),
    ),
    "file": Choice("as a CSV of isl,osl pairs", (("pairs", "File", "lengths.csv"),)),
}

DEMAND = {
    "peak": Choice(
        "requests per second at the peak", (("peak_rps", "Requests/s at the peak", "20"),)
    ),
    "mean": Choice(
        "mean requests per second",
        (
            ("mean_rps", "Mean requests/s", "10"),
            ("peak_percentile", "Percentile of per-second arrivals to size for", "95"),
        ),
    ),
    "users": Choice(
        "users and what they ask a day",
        (
            ("users", "Users", "5000"),
            ("requests_per_user_day", "Requests per user per day", "30"),
            ("working_hours", "Hours a day over which they come", "8"),
            ("peak_factor", "Peak over mean in these hours", "3"),
        ),
    ),
    "calls": Choice(
        "calls a year",
        (
            ("calls_per_year", "Calls a year", "30e6"),
            ("requests_per_call", "Requests of one call", "30"),
            ("peak_factor", "Peak over mean", "7"),
        ),
    ),
    "profile": Choice(
        "an hourly profile (24 or 168 values)", (("profile", "File", "profile.csv"),)
    ),
    "trace": Choice("a file of recorded requests", (("trace", "File", "trace.csv"),)),
    "job": Choice(
        "a job to be done in a time", (("requests", "Requests", "1e6"), ("within", "Time", "8h"))
    ),
}

MODES = {
    "streaming": Choice(
        "users read along: the first token and the pace count",
        (
            ("ttft", "Limit on the time to first token", "p95<=500ms"),
            ("itl", "Limit on the gap between tokens (reading: p99<=250ms)", "p99<=250ms"),
        ),
    ),
    "sequential": Choice(
        "the whole answer counts", (("e2e", "Limit on the time to the last token", "p95<=10s"),)
    ),
}

PLACES = {
    "new": Choice(
        "how many systems are needed",
        (("gpu", "GPUs to try, with commas", "h100,h200,l40s"), ("spare", "Spare systems", "0")),
    ),
    "have": Choice(
        "what systems that exist can carry",
        (("have", "Systems", "3xdgx-h100"), ("growth", "Growth of the load", "5%/month")),
    ),
}


def ask(console: Console | None = None, read: Callable[[], str] = input) -> Answers:
    """Ask for everything that a sizing needs, and end with the command and the file that repeat it.
    Raises InputError.
    """
    asking = _Asking(console or _console(), read)
    asking.say(
        "Six questions; an empty answer takes what stands in brackets, Ctrl-C leaves.\n", "dim"
    )
    asking.leaf("model", "1 Model: name, or several with commas", "llama-3.1-8b", context={})
    asking.branch("2 Lengths of prompts and outputs", LENGTHS)
    job = asking.branch("3 Demand", DEMAND) == "job"
    if job:
        asking.say("4 Limits: none, only the throughput of a job counts", "bold")
    else:
        asking.answers["mode"] = asking.branch("4 Limits", MODES)
    asking.branch("5 Systems", {"new": PLACES["new"]} if job else PLACES)
    asking.leaf(
        "where",
        "6 Cost of: on-prem, cloud, hybrid, api, hybrid-api",
        "on-prem,cloud,hybrid,api,hybrid-api",
        context={},
    )
    asking.say(f"\nTo repeat this:\n\n{command(asking.answers)}\n\nor as a file:\n")
    asking.say(repetition(asking.answers))
    return asking.answers


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


class _Asking:
    """Asks, checks, and keeps the answers."""

    def __init__(self, console: Console, read: Callable[[], str]) -> None:
        self.console = console
        self.read = read
        self.answers: Answers = {}

    def say(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style or None, markup=False, emoji=False)

    def line(self, prompt: str, default: str) -> str:
        self.console.print(f"{prompt} [{default}]: ", end="", markup=False, emoji=False)
        try:
            return self.read().strip() or default
        except EOFError:
            raise InputError(
                "the answers ended before the questions did; give flags or a file instead (tonnage"
                " size --help)"
            ) from None

    def branch(self, title: str, choices: Mapping[str, Choice]) -> str:
        """Ask in which form, then for its leaves."""
        names = list(choices)
        chosen = names[0]
        self.say(title, "bold")
        if len(names) > 1:
            for place, name in enumerate(names, start=1):
                self.say(f"  {place}  {choices[name].title}")
            chosen = self._one_of(names)
        context: Answers = {}
        for name, words, default in choices[chosen].leaves:
            self.leaf(name, f"  {words}", default, context)
        return chosen

    def _one_of(self, names: list[str]) -> str:
        while True:
            text = self.line("  Which", "1")
            if text in names:
                return text
            if text.isascii() and text.isdigit() and 1 <= int(text) <= len(names):
                return names[int(text) - 1]
            self.say(f"  '{text}' is not one of them; write a number from 1 to {len(names)}", "red")

    def leaf(self, name: str, words: str, default: str, context: Answers) -> None:
        """Ask for one leaf until it can be used; ``context`` are the leaves of the same form until
        now.
        """
        while True:
            text = self.line(words, default)
            fault = problem(name, text, context)
            if fault is None:
                context[name] = self.answers[name] = text
                return
            self.say(f"  {fault}", "red")


def problem(name: str, text: str, context: Mapping[str, Any]) -> str | None:
    """Say in one line what is wrong with an answer; None where nothing is."""
    from tonnage.api.question.sizing import check_leaf

    try:
        check_leaf(name, text, context)
    except InputError as error:
        return str(error).splitlines()[0].removeprefix(f"{name}: ")
    return None


def command(answers: Mapping[str, Any]) -> str:
    """The command that repeats the answers."""
    words = [
        part
        for name, value in answers.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    return shlex.join(["./tonnage", "size", *words])


def repetition(answers: Mapping[str, Any]) -> str:
    """The YAML file that repeats the answers."""
    from tonnage.spec.scenario_file import scenario_of, to_yaml

    return to_yaml(scenario_of({}, {name: _number(value) for name, value in answers.items()}))


def _number(value: Any) -> Any:
    """A text of digits as the number that people would write in a file."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
