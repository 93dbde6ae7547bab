"""What the tests of run document share with others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.report.document import Block, Document, Drawing
from tonnage.report.runs.run_document import run_report
from tonnage.report.runs.shown_run import read_shown_runs

SINGLE = {
    "ttft-box",
    "ttft-by-prompt",
    "gaps-by-position",
    "e2e-box",
    "lengths",
    "ttft-over-time",
    "e2e-over-time",
    "in-flight",
    "requests",
}


def report(folder: Path) -> Document:
    return run_report(read_shown_runs(folder))


def blocks(document: Document) -> Iterator[Block]:
    for section in document.sections:
        yield from section.blocks


def figures(document: Document) -> dict[str, Any]:
    return {
        block.figure.key: block.figure for block in blocks(document) if isinstance(block, Drawing)
    }
