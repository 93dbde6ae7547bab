"""Two pools that were sized, as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Table, Text
from tonnage.report.numbers import counted, number

if TYPE_CHECKING:
    from tonnage.results.pools import SizedPools


def pooled(found: Sequence[SizedPools], title: str) -> Document:
    """The fewest GPUs first, then every deployment that was looked at."""
    able = [one for one in found if one.ratio]
    if able:
        best = min(able, key=lambda one: one.gpus)
        words = f"{best.deployment}: {best.ratio} (prefill:decode), {counted(best.gpus, 'GPU')}."
        if best.together_gpus:
            words += f" Instances that do both: {counted(best.together_gpus, 'GPU')}."
    else:
        words = "No numbers of prefill and decode instances meet the limits."
    rows = tuple(_row(one) for one in sorted(found, key=lambda one: (not one.ratio, one.gpus)))
    header = ("deployment", "prefill:decode", "GPUs", "GPUs together", "TTFT p95", "ITL p99", "TPOT ms", "E2E p95")
    table = Table(caption="", header=header, rows=rows, spare=("E2E p95",))
    reasons = items(tuple(f"{one.deployment}: {one.reason}" for one in found if one.reason), "note")
    return Document(title=title, subtitle="", sections=(section("result", "", Text(text=words, tone="answer"), table, reasons),))


def _row(one: SizedPools) -> tuple[str, ...]:
    together = "–" if one.together_gpus is None else str(one.together_gpus)
    if not one.ratio:
        return (one.deployment, "–", "–", together, "–", "–", "–", "–")
    values = (one.ttft_p95_ms, one.itl_p99_ms, one.tpot_ms, one.e2e_p95_ms)
    return (one.deployment, one.ratio, str(one.gpus), together, *map(number, values))
