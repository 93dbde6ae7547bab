"""Rules of a data set as YAML: which lines are left out, and what a benchmark had set that its
lines do not say.

A rule has conditions and, where they hold, columns to set::

    - where: {model: kimi-k2.5, gpu: {starts: b200}, day: {from: "2026-04-16"}}
      set: {slots: 1024, budget: =2 * isl}
      reason: the script was tuned
      source: InferenceX pull/1047

Rules apply from the first to the last. Every one whose conditions hold sets its columns, and a
later one sees and replaces what an earlier one set. ``where`` may be a list: then one of its
entries must hold. A condition compares one column with a value, with a list of which one must be
equal, or with a mapping of ``not``, ``starts``, ``contains``, ``above``, ``from``, ``until`` and
``below``, of which all must hold. Text that begins with "=" is a formula over the columns. An
unknown key is refused, and so is a rule that leaves lines out without the class of its evidence
(``evidence``).
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from tonnage.errors import DataError
from tools.fit.evidence import CONTRADICTS, Evidence

Columns = Mapping[str, Any]
Condition = dict[str, Any]
Kind = TypeVar("Kind")

TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "not": lambda value, other: value not in other if isinstance(other, list) else value != other,
    "starts": (
        lambda value, other: str(value).startswith(
            tuple(other) if isinstance(other, list) else other
        )
    ),
    "contains": lambda value, other: other in value,
    "above": operator.gt,
    "from": operator.ge,
    "until": operator.le,
    "below": operator.lt,
}

OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "ceil": math.ceil}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Lines that are not used.

    Attributes:
        reason: under which they are counted; columns in braces are filled in.
        where: the conditions, of which one must hold.
        evidence: the class of what is known against them; a file whose rule has none is refused.
        why: how that is known.
        source: where it was read.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    reason: str
    where: Condition | list[Condition]
    evidence: Evidence
    why: str = ""
    source: str = ""

    def holds(self, columns: Columns) -> bool:
        """Whether a line with these columns is one of them."""
        return holds(self.where, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Columns of some lines.

    Attributes:
        where: the conditions, of which one must hold.
        set: the columns, each a value or a formula.
        reason: why, in words.
        source: where it was read.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    where: Condition | list[Condition]
    set: dict[str, Any]
    reason: str = ""
    source: str = ""


def read_rules(file: Path, kind: type[Kind]) -> Kind:
    """A file of rules as an instance of a dataclass.

    Raises:
        DataError: the file does not fit that class; the message names file and key.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        content.pop("anchors", None)  # YAML anchors that the rules share
        found = TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(
            f"{file.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None
    except (OSError, yaml.YAMLError, AttributeError) as error:
        raise DataError(f"{file.name}: {error}") from None
    for rule in _rules(found):
        _check(file, rule)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a line is left out: by the first rule that holds, and of these by the first with more
    evidence than a contradiction.
    """

    reason: str
    evidence: Evidence


def verdict_of(rules: Sequence[LeftOut], columns: Columns) -> Verdict | None:
    """Why a line is left out; None where no rule holds."""
    found: LeftOut | None = None
    for rule in rules:
        if (found is None or rule.evidence != CONTRADICTS) and rule.holds(columns):
            found = rule
            if found.evidence != CONTRADICTS:
                break
    return (
        None
        if found is None
        else Verdict(reason=found.reason.format_map(columns), evidence=found.evidence)
    )


def settings(rules: Sequence[Rule], columns: Columns) -> dict[str, Any]:
    """What the rules set for a line with these columns."""
    found: dict[str, Any] = {}
    for rule in rules:
        seen = {**columns, **found}
        if holds(rule.where, seen):
            found |= {name: valued(value, seen) for name, value in rule.set.items()}
    return found


def holds(where: Condition | Sequence[Condition], columns: Columns) -> bool:
    """Whether one of the conditions holds."""
    alternatives = [where] if isinstance(where, dict) else where
    return any(
        all(_passes(columns[name], test, columns) for name, test in each.items())
        for each in alternatives
    )


def _passes(value: Any, test: Any, columns: Columns) -> bool:
    if isinstance(test, dict):
        return all(TESTS[name](value, valued(other, columns)) for name, other in test.items())
    return value in test if isinstance(test, list) else bool(value == valued(test, columns))


def valued(value: Any, columns: Columns) -> Any:
    """A value as it is, and a formula as what it gives."""
    if not (isinstance(value, str) and value.startswith("=")):
        return value
    return _worth(_parsed(value[1:].strip()), columns)


@cache
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def _worth(node: ast.expr, columns: Columns) -> Any:
    match node:
        case ast.Constant(value=int() | float()):
            return node.value
        case ast.Name():
            return columns[node.id]
        case ast.BinOp(op=op) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](_worth(node.left, columns), _worth(node.right, columns))
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_worth(each, columns) for each in node.args))
    raise DataError(
        f"'{ast.unparse(node)}' is none; it may have columns, numbers, + - * / //,"
        f" {', '.join(FUNCTIONS)}"
    )


def _rules(found: Any) -> list[LeftOut | Rule]:
    """Every rule in a dataclass of rules."""
    values = [getattr(found, name) for name in found.__dataclass_fields__]
    return [
        each
        for value in values
        if isinstance(value, tuple)
        for each in value
        if isinstance(each, LeftOut | Rule)
    ]


def _check(file: Path, rule: LeftOut | Rule) -> None:
    """Refuse an unknown condition and what is no formula, before any line is read.

    Raises:
        DataError: naming it.
    """
    tests = [
        test
        for each in ([rule.where] if isinstance(rule.where, dict) else rule.where)
        for test in each.values()
    ]
    unknown = [
        name for test in tests if isinstance(test, dict) for name in test if name not in TESTS
    ]
    if unknown:
        raise DataError(
            f"{file.name}: '{unknown[0]}' is no condition; write one of {', '.join(TESTS)}"
        )
    compared = [
        each for test in tests for each in (test.values() if isinstance(test, dict) else (test,))
    ]
    for value in (*compared, *(rule.set.values() if isinstance(rule, Rule) else ())):
        if isinstance(value, str) and value.startswith("="):
            try:
                valued(
                    value,
                    {
                        node.id: 1
                        for node in ast.walk(_parsed(value[1:].strip()))
                        if isinstance(node, ast.Name)
                    },
                )
            except (SyntaxError, DataError) as error:
                raise DataError(f"{file.name}: '{value}' is no formula: {error}") from None
