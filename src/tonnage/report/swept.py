"""What a sweep did, as a document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Text
from tonnage.report.numbers import counted


def swept(points: int, done: int, left_out: Mapping[str, str], folder: Path) -> Document:
    """How many points there are, how many of them this call simulated, and which could not be."""
    words = f"{counted(points, 'point')} in {folder}: {done} simulated now, {points - done} were there."
    lines = items(tuple(f"left out: {name}: {reason}" for name, reason in left_out.items()), "note")
    return Document(title="", subtitle="", sections=(section("sweep", "", Text(text=words), lines),))
