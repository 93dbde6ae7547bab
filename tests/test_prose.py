"""Plain English (CONTRIBUTING.md, "Words"): forms that avoid the noun or the actor, counted. A
ceiling may only fall."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FORMS = {
    "whoever": r"\bwho(?:so)?ever\b",
    "anew": r"\banew\b",
    "beside": r"\bbesides?\b",
    "stands or lies for is": r"\b(?:stands?|stood|lies|lay)\b(?! for\b| in for\b)",
    "as many times as long": r"\bas (?:many|much|often|long) (?:times )?as (?:long|many|much)\b",
    "is to be as little": r"\bto be as (?:little|few|much)\b",
    "those that": r"\bthose (?:that|which|who|of whom)\b",
    "of its own": r"\bof (?:one's|its|their|his) own\b",
    "so far for yet": r"\bso far\b(?! as\b)",
    "without an actor": (
        r"\b(?:is|are|was|were) (?:not )?(?:told|said|asked|taken to be|held to be|spoken of)\b"
    ),
    "nothing of, none of": r"\b(?:says|knows|tells) (?:nothing|none) of\b",
    "what for the noun": r"(?:^|[.:;] )What (?:is|are|was|were|has|comes|carries|waits|stands)\b",
}

PAGES = {
    "whoever": 0,
    "anew": 0,
    "beside": 12,
    "stands or lies for is": 8,
    "as many times as long": 0,
    "is to be as little": 1,
    "those that": 5,
    "of its own": 6,
    "so far for yet": 0,
    "without an actor": 6,
    "nothing of, none of": 0,
    "what for the noun": 23,
}
"""Of README.md and docs/, without their console blocks."""

STRINGS = {
    "whoever": 1,
    "anew": 0,
    "beside": 26,
    "stands or lies for is": 27,
    "as many times as long": 3,
    "is to be as little": 0,
    "those that": 11,
    "of its own": 17,
    "so far for yet": 13,
    "without an actor": 24,
    "nothing of, none of": 2,
    "what for the noun": 32,
}
"""Of the docstrings, comments and messages in src/tonnage."""


def prose_of_pages(root: Path = ROOT) -> str:
    """Every page, without code."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    texts = (
        re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for page in pages
    )
    return "\n\n".join(" ".join(text.split()) for text in texts)


def strings_of_sources(root: Path = ROOT) -> str:
    """Every string and comment of the package."""
    found = []
    for file in sorted((root / "src/tonnage").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        found += [
            node.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        found.append(" ".join(re.findall(r"(?:^|\s)# (.*)", text)))
    return "\n\n".join(" ".join(one.split()) for one in found)


def counts(text: str) -> dict[str, int]:
    """How often each form occurs."""
    return {name: len(re.findall(form, text, re.IGNORECASE)) for name, form in FORMS.items()}


@pytest.mark.parametrize(
    ("read", "ceiling"),
    [(prose_of_pages, PAGES), (strings_of_sources, STRINGS)],
    ids=["pages", "strings"],
)
def test_forms_that_avoid_the_noun_only_become_fewer(read: object, ceiling: dict[str, int]) -> None:
    found = counts(read())  # type: ignore[operator]
    assert {name: count for name, count in found.items() if count > ceiling[name]} == {}, (
        "name the thing and the actor"
    )
    assert sum(ceiling.values()) - sum(found.values()) <= 10, "lower the ceilings to today's counts"
