"""Writes what happened in the slots of an engine to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.api.simulated_run import SimulatedRun
    from tonnage.results.timeline import Timeline
    from tonnage.simulator.lesson import LessonResult

FORMS = (".parquet", ".json", ".html")


def check_timeline(path: Path) -> None:
    """Refuse a file whose form is not known, before anything is simulated.

    Raises:
        InputError: its name ends otherwise.
    """
    if path.suffix.lower() not in FORMS:
        raise InputError(
            f"{option('timeline')}: {path}: the name ends in .parquet (data), .json (a trace that Perfetto opens) or .html (a page)"
        )
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option('timeline')}: {path}: there is no such folder")


def run_timeline(run: SimulatedRun) -> Timeline:
    """The slots of a simulated run, which is run again by the readable simulator.

    Raises:
        InputError: a run of several instances, whose slots are those of many engines.
    """
    from tonnage.simulator.timeline import simulate_timeline

    if run.instances > 1 or run.router:
        raise InputError(f"{option('timeline')}: shows the slots of one engine; leave out what makes several")
    return simulate_timeline(run.deployment, run.workload, seed=run.seed)[1]


def lesson_timeline(result: LessonResult) -> Timeline:
    """The slots of the lesson."""
    from tonnage.simulator.timeline import lesson_timeline as found

    return found(result)


def write_timeline(path: Path, timeline: Timeline, title: str) -> None:
    """Write a timeline in the form that the name of the file says; it is there whole or not at all."""
    from tonnage.report.timeline import timeline_page
    from tonnage.report.writers.html import write_page
    from tonnage.results.store import write_json
    from tonnage.results.timeline import chrome_trace, timeline_table

    if path.suffix.lower() == ".html":
        write_page(path, timeline_page(timeline, title))
    elif path.suffix.lower() == ".json":
        write_json(path, chrome_trace(timeline))
    else:
        import pyarrow.parquet as pq

        partial = path.with_name(f".{path.name}.{os.getpid()}")
        pq.write_table(timeline_table(timeline), partial, compression="zstd")
        partial.replace(path)
