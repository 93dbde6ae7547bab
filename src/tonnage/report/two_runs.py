"""Two runs side by side as a document: the ratio of every latency and rate with its interval, then quantile against quantile."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Table
from tonnage.report.numbers import ABSENT, number

if TYPE_CHECKING:
    from tonnage.bench.compare import Comparison

LABELS = {"requests_per_second": "requests/s", "output_tokens_per_second": "tokens/s"}
SHOWN = (5, 25, 50, 75, 95, 99)
VERDICTS = {None: ABSENT, True: "differs", False: "alike"}


def two_runs(found: Comparison, first: str, second: str) -> Document:
    """The comparison of the second run with the first, by their names."""
    return Document(
        title="",
        subtitle="",
        sections=(
            section("ratios", "", _ratios(found, first, second)),
            section("quantiles", "", _quantiles(found)),
            section("notes", "", items(tuple(found.notes), "note")),
        ),
    )


def _ratios(found: Comparison, first: str, second: str) -> Table:
    rows = []
    for ratio in found.ratios:
        label = LABELS.get(ratio.metric, f"{ratio.metric.removesuffix('_ms').upper()} {ratio.statistic} ms")
        between = ABSENT if math.isnan(ratio.low) else f"{ratio.low:.3f} to {ratio.high:.3f}"
        rows.append((label, number(ratio.first), number(ratio.second), f"{ratio.ratio:.3f}", between, VERDICTS[ratio.differs]))
    return Table(caption="", header=("", first, second, "ratio", "0.95", ""), rows=tuple(rows))


def _quantiles(found: Comparison) -> Table:
    rows = []
    for metric, (ours, theirs) in found.quantiles_ms.items():
        pairs = ((ours[p - 1], theirs[p - 1]) for p in SHOWN)
        rows.append((f"{metric.removesuffix('_ms').upper()} ms", *(f"{number(a)} → {number(b)}" for a, b in pairs)))
    return Table(caption="", header=("quantiles", *(f"p{p}" for p in SHOWN)), rows=tuple(rows), spare=("p25", "p75", "p5"))
