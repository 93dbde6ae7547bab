"""What depends on lengths: prompts against outputs as a heat map, and TTFT against the length of the prompt as a scatter plot."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tonnage.report.document import Drawing, Table
from tonnage.report.drawing.figure import Axis, Cell, Cloud, HeatMap, Point, Scatter, Series
from tonnage.report.numbers import number
from tonnage.report.runs.bins import between_edges, binned, edges, every_nth

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.report.runs.shown_run import ShownRun

    Lengths = NDArray[np.int64] | NDArray[np.float64]

BINS = 12
DOTS = 2_000
"""Dots of a scatter plot at most; of more requests an even share is drawn."""
HEAT = "Darker cells hold more requests."
SCATTER = "Each dot is a request; the line joins the means of prompts of like length."


def heat_map(run: ShownRun) -> Drawing | None:
    """How many requests have which lengths; None where none completed."""
    return heat_map_of(run.isl, run.osl) if run.rows.size else None


def heat_map_of(isl: Lengths, osl: Lengths) -> Drawing:
    """How many of the pairs have which lengths; there is one pair at least."""
    import numpy as np

    columns, rows = edges(isl, BINS), edges(osl, BINS)
    counts, _, _ = np.histogram2d(isl, osl, bins=(columns, rows))
    cells = tuple(_cell(int(i), int(j), int(counts[i, j]), columns, rows) for i, j in np.argwhere(counts > 0))
    x, y = "prompt length, tokens", "output length, tokens"
    header = (f"{x} ↓, {y} →", *(between_edges(a, b) for a, b in itertools.pairwise(rows)))
    table = tuple(
        (between_edges(columns[i], columns[i + 1]), *(f"{int(count):,}" if count else "" for count in counts[i]))
        for i in range(len(columns) - 1)
        if counts[i].any()
    )
    return Drawing(
        figure=HeatMap(
            key="lengths",
            title="Prompt lengths and output lengths",
            x=Axis(title=x),
            y=Axis(title=y),
            columns=columns,
            rows=rows,
            cells=cells,
        ),
        reading=HEAT,
        numbers=Table(caption="Requests by their lengths", header=header, rows=table, folded=True),
    )


def _cell(column: int, row: int, count: int, columns: tuple[float, ...], rows: tuple[float, ...]) -> Cell:
    prompt, output = between_edges(columns[column], columns[column + 1]), between_edges(rows[row], rows[row + 1])
    share = f"{count:,} request{'s' if count != 1 else ''}"
    return Cell(column=column, row=row, count=count, tip=f"{share}\nprompts of {prompt} tokens\noutputs of {output} tokens")


def ttft_by_prompt(run: ShownRun, trends: Mapping[str, Any]) -> Drawing | None:
    """TTFT against prompt length, with the straight line whose slope is its ms per 1,000 prompt tokens."""
    import numpy as np

    if not run.rows.size:
        return None
    chosen = every_nth(np.arange(run.rows.size), DOTS)
    ttft, isl = run.ttft_ms, run.isl
    dots = tuple((float(x), float(y)) for x, y in zip(isl[chosen], ttft[chosen], strict=True))
    found = tuple(binned(isl, ttft, edges(isl, BINS)))
    means = tuple(Point(x=b.middle, y=b.spread.mean, tip=_tip(b.words, b.spread.count, b.spread.mean, b.spread.p95)) for b in found)
    series = [Series(name="mean of like prompts", points=means, tone=1, line=len(means) > 1)]
    line = trends["ttft_ms_per_1000_prompt_tokens"]
    if line is not None:
        ends = (float(isl.min()), float(isl.max()))
        points = tuple(Point(x=x, y=line["at_zero"] + line["slope"] * x / 1e3, tip="") for x in ends)
        series.append(
            Series(name=f"straight line, {number(line['slope'])} ms per 1,000 tokens", points=points, tone=5, line=True, marks=False)
        )
    rows = tuple((b.words, f"{b.spread.count:,}", *map(number, (b.spread.mean, b.spread.p50, b.spread.p95))) for b in found)
    return Drawing(
        figure=Scatter(
            key="ttft-by-prompt",
            title="Time to first token against prompt length",
            x=Axis(title="prompt length, tokens"),
            y=Axis(title="time to first token, ms"),
            series=tuple(series),
            clouds=(Cloud(name="one request", dots=dots, tone=0),),
        ),
        reading=SCATTER,
        numbers=Table(
            caption="Time to first token by prompt length",
            header=("prompt tokens", "requests", "TTFT mean, ms", "p50", "p95"),
            rows=rows,
            folded=True,
        ),
    )


def _tip(words: str, count: int, mean: float, p95: float) -> str:
    return f"prompts of {words} tokens\n{count:,} requests\nTTFT mean {number(mean)} ms\np95 {number(p95)} ms"
