"""``tonnage watch``: a running deployment beside its plan, as a table that follows it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tonnage.cli.printing import print_answer
from tonnage.cli.progress import compile_if_needed
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from tonnage.watch.watched import Watched


def watch(
    *url: str,
    plan: Path,
    every: str = "10s",
    gpu_metrics: Annotated[list[str] | None, Parameter(negative=())] = None,
    coefficients: Path | None = None,
    once: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Follow a running deployment: its load, queue, latencies, failures and GPUs beside what its plan predicts for the same load.

    The metrics of the engines are read twice, and what lies between is shown, with the load that is left by simulation.

    Parameters
    ----------
    url
        The instances, such as 127.0.0.1:8000, or the gateway before them, whose backends are then watched.
    plan
        File with the plan's JSON, which tonnage size wrote with --output.
    every
        Time between two looks, such as 10s; each look is over that stretch.
    gpu_metrics
        A page of NVIDIA's DCGM exporter; may be repeated.
    coefficients
        File that calibrate wrote, in place of the calibration that the plan was made with.
    once
        Look once and end.
    json
        Print one JSON object for each look, one a line; with --once one that is indented.
    """
    from tonnage import api

    compile_if_needed()
    looks = api.watch(url, plan=plan, every=every, gpu_metrics=gpu_metrics or (), coefficients=coefficients)
    if once:
        from tonnage.report.verified import watched

        found = next(looks)
        print_answer(lambda: watched(found), found.to_json, json=json)
    elif json:
        _lines(looks)
    elif not sys.stdout.isatty():
        raise InputError(f"{option('once')}: the table that follows a deployment needs a terminal; add --once or --json")
    else:
        _live(looks)


def _lines(looks: Iterator[Watched]) -> None:
    """A line of JSON for each look."""
    from json import dumps

    for found in looks:
        print(dumps(found.to_json(), ensure_ascii=False), flush=True)


def _live(looks: Iterator[Watched]) -> None:
    """A table that is drawn anew with each look."""
    from rich.live import Live

    with Live("Reading for the first time …", auto_refresh=False) as live:
        for found in looks:
            live.update(_drawn(found), refresh=True)


def _drawn(found: Watched) -> RenderableType:
    """The document of a look with its tables drawn by rich; a broken limit is red, a measurement beside its interval yellow."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from tonnage.report.document import Table as Cells
    from tonnage.report.verified import watched
    from tonnage.report.writers.terminal import terminal_block

    document = watched(found)
    parts: list[RenderableType] = [Text(document.title, style="bold")]
    for section in document.sections:
        for block in section.blocks:
            if not isinstance(block, Cells):
                parts.append(Text(terminal_block(block), style="yellow" if section.key == "verdict" else ""))
                continue
            table = Table(box=None, pad_edge=False)
            for name, numeric in zip(block.header, block.numeric, strict=True):
                table.add_column(name, justify="right" if numeric else "left")
            for row in block.rows:
                style = "red" if "BROKEN" in row[-1] else "yellow" if row[-1].startswith(("above", "below")) else ""
                table.add_row(*row, style=style)
            parts.append(table)
    return Group(*parts)
