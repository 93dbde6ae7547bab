"""The question of a page: leaves of a scenario by their names, as a form, as the query of a link, and as a command.

A link is a plan: its query holds every leaf that was set, under the name that its flag has, and nothing else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from tonnage.errors import InputError, option
from tonnage.spec.deployment import METRICS
from tonnage.spec.scenario import Leaf, leaves, takes

Flat = dict[str, Any]
"""Values by the names of leaves, as ``tonnage.size`` takes them."""

LEAVES: dict[str, Leaf] = {leaf.name: leaf for leaf in leaves()}
LONGEST_QUERY, LONGEST_VALUE = 16_000, 2_000
"""Characters."""

FORMS: dict[str, tuple[str, ...]] = {
    "peak": ("peak_rps",),
    "mean": ("mean_rps", "peak_percentile", "peak_factor", "profile"),
    "users": ("users", "requests_per_user_day", "working_hours", "working_days", "peak_factor"),
    "calls": ("calls_per_year", "requests_per_call", "peak_factor"),
    "trace": ("trace", "mean_rps"),
    "job": ("requests", "within"),
}
"""The forms of a demand, each with its leaves; the first leaf is the one that says which form it is."""

BASE = "base"
"""Name of the link that a question of What if began with."""

EXAMPLE: Flat = {"model": "llama-3.1-8b", "isl": "2000", "osl": "200", "peak_rps": "300", "ttft": ["p95<=500ms"], "tpot": ["p95<=50ms"]}
"""What the page asks where a link asks nothing: the question of the README."""


def form_of(asked: Mapping[str, Any]) -> str:
    """The form of its demand."""
    return next((name for name in ("trace", "users", "calls", "job", "mean") if FORMS[name][0] in asked), "peak")


def question_of(query: str) -> Flat:
    """The question of a link or of a form, which names the parts of its limits apart (``ttft.at``, ``ttft.ms``).

    Raises:
        InputError: a name that no leaf has, or a value that is too long.
    """
    if len(query) > LONGEST_QUERY:
        raise InputError(f"the link has {len(query):,} characters; {LONGEST_QUERY:,} are allowed")
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query):
        text = value.strip()
        if len(text) > LONGEST_VALUE:
            raise InputError(f"{option(name[:40])}: longer than {LONGEST_VALUE:,} characters; shorten it")
        if text:
            given.setdefault(name, []).append(text)
    form = given.pop("demand", [""])[0]
    given.pop(BASE, None)
    dropped = {leaf for name, parts in FORMS.items() if form in FORMS and name != form for leaf in parts} - set(FORMS.get(form, ()))
    for metric in METRICS:
        at, most = given.pop(f"{metric}.at", None), given.pop(f"{metric}.ms", None)
        if at and most:
            given[metric] = [f"{at[0]}<={most[0]}ms", *given.get(metric, [])]
    unknown = next((name for name in given if name not in LEAVES), None)
    if unknown is not None:
        raise InputError(f"{option(unknown[:40])}: unknown; a link holds the names that tonnage schema prints")
    return {name: _value(LEAVES[name], given[name]) for name in LEAVES if name in given and name not in dropped}


def _value(leaf: Leaf, texts: list[str]) -> Any:
    """What the command would make of it."""
    if leaf.path[0] == "limits":
        return list(dict.fromkeys(texts))
    text = ",".join(texts)
    if takes(leaf.kind, bool) and text in ("true", "false"):
        return text == "true"
    return text


def query_of(asked: Mapping[str, Any]) -> str:
    """The query of a link to a question."""
    parts = [(name, _text(part)) for name, value in asked.items() for part in (value if isinstance(value, list) else [value])]
    return urlencode(parts, quote_via=quote, safe=",:<=")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def command_of(asked: Mapping[str, Any]) -> str:
    """The command that asks the same."""
    return shlex.join(["./tonnage", *tokens_of(asked)])


def tokens_of(asked: Mapping[str, Any]) -> list[str]:
    """Its words after the name of the program."""
    words = ["size"]
    for name, value in asked.items():
        flag = name.replace("_", "-")
        for part in value if isinstance(value, list) else [value]:
            words += [f"--{'' if part else 'no-'}{flag}"] if isinstance(part, bool) else [f"--{flag}", str(part)]
    return words


# What a question may name as a file: nothing outside of the run folder.


_TOKENS = re.compile(r"[\s,=:@x×]+")


def check_inside(value: Any, folder: Path, where: str = "") -> None:
    """Refuse a value, nested ones too, that leads out of the run folder. Raises InputError: naming the leaf."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            check_inside(part, folder, where or str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            check_inside(part, folder, where)
    elif isinstance(value, str) and any(_leads_out(token, folder) for token in (value, *_TOKENS.split(value))):
        raise InputError(f"{option(where[:40])}: names a file outside of the run folder; put it there under Files, and name it alone")


def _leads_out(token: str, folder: Path) -> bool:
    if token.startswith(("/", "~")) or ".." in token or "\\" in token or "\0" in token:
        return True
    if len(token) > 255:
        return False
    try:
        found = folder / token
        return found.exists() and not found.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return False
