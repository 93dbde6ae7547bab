"""The six questions, asked one by one on a terminal; each answer is checked at once."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

Answers = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to answer: what it is called, and the leaves that it asks for with their defaults."""

    title: str
    leaves: tuple[tuple[str, str, str], ...]


LENGTHS = {
    "tokens": Choice(
        title="as tokens, words or a distribution", leaves=(("isl", "Prompt length", "2000"), ("osl", "Output length", "200"))
    ),
    "parts": Choice(
        title="as a question, with system prompt, passages and history added up",
        leaves=(
            ("isl", "Question of the user", "100"),
            ("system_prompt", "System prompt", "500"),
            ("retrieved", "Retrieved passages", "5x400"),
            ("history", "Chat history", "3x300"),
            ("osl", "Output length", "200"),
        ),
    ),
    "file": Choice(title="as a CSV of isl,osl pairs", leaves=(("pairs", "File", "lengths.csv"),)),
}

DEMAND = {
    "peak": Choice(title="requests per second at the peak", leaves=(("peak_rps", "Requests/s at the peak", "20"),)),
    "mean": Choice(
        title="mean requests per second",
        leaves=(("mean_rps", "Mean requests/s", "10"), ("peak_percentile", "Percentile of per-second arrivals to size for", "95")),
    ),
    "users": Choice(
        title="users and what they ask a day",
        leaves=(
            ("users", "Users", "5000"),
            ("requests_per_user_day", "Requests per user per day", "30"),
            ("working_hours", "Hours a day over which they come", "8"),
            ("peak_factor", "Peak over mean in these hours", "3"),
        ),
    ),
    "calls": Choice(
        title="calls a year",
        leaves=(
            ("calls_per_year", "Calls a year", "30e6"),
            ("requests_per_call", "Requests of one call", "30"),
            ("peak_factor", "Peak over mean", "7"),
        ),
    ),
    "profile": Choice(title="an hourly profile (24 or 168 values)", leaves=(("profile", "File", "profile.csv"),)),
    "trace": Choice(title="a file of recorded requests", leaves=(("trace", "File", "trace.csv"),)),
    "job": Choice(title="a job to be done in a time", leaves=(("requests", "Requests", "1e6"), ("within", "Time", "8h"))),
}

MODES = {
    "streaming": Choice(
        title="users read along: the first token and the pace count",
        leaves=(
            ("ttft", "Limit on the time to first token", "p95<=500ms"),
            ("itl", "Limit on the gap between tokens (reading: p99<=250ms)", "p99<=250ms"),
        ),
    ),
    "sequential": Choice(title="the whole answer counts", leaves=(("e2e", "Limit on the time to the last token", "p95<=10s"),)),
}

PLACES = {
    "new": Choice(
        title="how many systems are needed", leaves=(("gpu", "GPUs to try, with commas", "h100,h200,l40s"), ("spare", "Spare systems", "0"))
    ),
    "have": Choice(
        title="what systems that exist can carry", leaves=(("have", "Systems", "3xdgx-h100"), ("growth", "Growth of the load", "5%/month"))
    ),
}


def ask(console: Console | None = None, read: Callable[[], str] = input) -> Answers:
    """Ask for everything that a sizing needs, and end with the command and the file that repeat it.

    Args:
        console: where questions are written; standard output if not given.
        read: reads one line.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        InputError: the input ends before the questions do.
    """
    asking = _Asking(console or _console(), read)
    asking.say("Six questions; an empty answer takes what stands in brackets, Ctrl-C leaves.\n", "dim")
    asking.leaf("model", "1 Model: name, or several with commas", "llama-3.1-8b", context={})
    asking.branch("2 Lengths of prompts and outputs", LENGTHS)
    job = asking.branch("3 Demand", DEMAND) == "job"
    if job:
        asking.say("4 Limits: none, only the throughput of a job counts", "bold")
    else:
        asking.answers["mode"] = asking.branch("4 Limits", MODES)
    asking.branch("5 Systems", {"new": PLACES["new"]} if job else PLACES)
    asking.leaf("where", "6 Cost of: on-prem, cloud, hybrid, api, hybrid-api", "on-prem,cloud,hybrid,api,hybrid-api", context={})
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
            raise InputError("the answers ended before the questions did; give flags or a file instead (tonnage size --help)") from None

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
        """Ask for one leaf until it can be used; ``context`` are the leaves of the same form so far."""
        while True:
            text = self.line(words, default)
            fault = problem(name, text, context)
            if fault is None:
                context[name] = self.answers[name] = text
                return
            self.say(f"  {fault}", "red")


def problem(name: str, text: str, context: Mapping[str, Any]) -> str | None:
    """What is wrong with one answer, on one line; None where nothing is."""
    from tonnage.api.question.sizing import check_leaf

    try:
        check_leaf(name, text, context)
    except InputError as error:
        return str(error).splitlines()[0].removeprefix(f"{name}: ")
    return None


def command(answers: Mapping[str, Any]) -> str:
    """The command that repeats the answers."""
    words = [part for name, value in answers.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["./tonnage", "size", *words])


def repetition(answers: Mapping[str, Any]) -> str:
    """The YAML file that repeats the answers."""
    from tonnage.spec.scenario_file import scenario_of, to_yaml

    return to_yaml(scenario_of({}, {name: _number(value) for name, value in answers.items()}))


def _number(value: Any) -> Any:
    """A text of digits as the number that people would write in a file."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
