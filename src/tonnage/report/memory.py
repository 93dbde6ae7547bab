"""Where the memory of an instance goes, as a document: its arithmetic, one equation a line."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.report.blocks import items, section
from tonnage.report.document import Document


def memory(equations: Sequence[str]) -> Document:
    """The arithmetic of one GPU's memory."""
    return Document(title="", subtitle="", sections=(section("memory", "", items(tuple(equations))),))
