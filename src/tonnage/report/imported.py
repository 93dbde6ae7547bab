"""Imported runs as a document: one line for each run folder that was made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Document, Table
from tonnage.report.numbers import number

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary

HEADER = ("run", "requests", "TTFT ms", "from send", "TPOT ms", "E2E ms", "requests/s", "tokens/s")


def imported(made: Sequence[tuple[Path, Summary]]) -> Document:
    """Folders with their summaries."""
    rows = []
    for folder, s in made:
        latencies = (s.ttft_ms.mean, s.ttft_from_send_ms.mean, s.tpot_ms.mean, s.e2e_ms.mean)
        rows.append((folder.name, str(s.counted), *map(number, (*latencies, s.requests_per_second, s.output_tokens_per_second))))
    return Document(title="", subtitle="", sections=(section("runs", "", Table(caption="", header=HEADER, rows=tuple(rows))),))
