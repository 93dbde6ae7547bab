"""Values are frozen, made by keyword alone, and take no other attributes (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "tonnage"


def test_dataclasses_are_frozen_have_slots_and_take_keywords() -> None:
    """State, fields without a name, a ``__dict__`` for what is cached, and values that are equal
    only to themselves are the exceptions: as many as there are may not become more.
    """
    options = [
        (
            {part.arg: ast.unparse(part.value) for part in decorator.keywords},
            "cached_property" in ast.unparse(node),
        )
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "dataclass"
    ]
    without_slots = [cached for words, cached in options if words.get("slots") != "True"]
    assert without_slots == [True] * 10
    assert sum(words.get("frozen") != "True" for words, _ in options) == 38
    assert sum(words.get("kw_only") != "True" for words, _ in options) == 50
    assert sum(words.get("eq") == "False" for words, _ in options) == 22
