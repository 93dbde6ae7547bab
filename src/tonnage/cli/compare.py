"""``tonnage compare``: two runs side by side."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from tonnage.bench.compare import Comparison

LABELS = {"requests_per_second": "requests/s", "output_tokens_per_second": "tokens/s"}
SHOWN = (5, 25, 50, 75, 95, 99)


def compare(
    first: Path,
    second: Path,
    /,
    *,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Two runs, measured, simulated or imported: the ratio of every latency and rate, with its interval.

    Parameters
    ----------
    first
        A run folder.
    second
        Another one; ratios are of this one to the first.
    json
        Print one JSON object, with the quantiles from 1 % to 99 % of both.
    """
    from tonnage.api.compare import compare_runs

    found = compare_runs(first, second)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text({"first": str(first), "second": str(second), **found.to_json()}))
    else:
        print(show_comparison(found, first.name, second.name))


def show_comparison(found: Comparison, first: str, second: str) -> str:
    """The ratios with their intervals, then quantile against quantile."""
    from tonnage.cli.table import number, table, wrapped

    rows = []
    for ratio in found.ratios:
        label = LABELS.get(ratio.metric, f"{ratio.metric.removesuffix('_ms').upper()} {ratio.statistic} ms")
        between = "–" if math.isnan(ratio.low) else f"{ratio.low:.3f} to {ratio.high:.3f}"
        verdict = {None: "–", True: "differs", False: "alike"}[ratio.differs]
        rows.append((label, number(ratio.first), number(ratio.second), f"{ratio.ratio:.3f}", between, verdict))
    quantiles = []
    for metric, (ours, theirs) in found.quantiles_ms.items():
        name = metric.removesuffix("_ms").upper()
        pairs = [(ours[p - 1], theirs[p - 1]) for p in SHOWN]
        quantiles.append((f"{name} ms", *(f"{number(a)} → {number(b)}" for a, b in pairs)))
    return "\n".join(
        [
            table(("", first, second, "ratio", "0.95", ""), rows),
            "",
            table(("quantiles", *(f"p{p}" for p in SHOWN)), quantiles),
            *(wrapped(f"note: {note}") for note in found.notes),
        ]
    )
