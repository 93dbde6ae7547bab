"""Progress on standard error, only where a person is looking."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

AFTER = "tuning knobs, simulating whole fleets, changing one input at a time"
"""What goes on when every candidate has been simulated: its length is not known, so that the bar only moves."""


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """A bar that takes (done, total, name); silent if ``quiet``, and when standard error is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total, name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[name]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, name="")

        def update(done: int, total: int, name: str) -> None:
            if done < total:
                bar.update(task, completed=done, total=total, name=name)
            else:
                bar.update(task, total=None, name=AFTER if total else name)

        yield update


@contextmanager
def without_collection() -> Iterator[None]:
    """For what imports and reads catalogs: nothing of it becomes garbage, and the collector does not visit it, now or later."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:
            gc.freeze()  # the first time: what a program that calls this again leaves behind is collected as ever
        if collects:
            gc.enable()


def compile_if_needed(*, quiet: bool = False, shares: bool = False, ranks: bool = False, fleet: bool = False) -> None:
    """Compile the simulator's kernel with a visible line (none if ``quiet``), the first time on this machine.

    Args:
        quiet: as said.
        shares, ranks: as in ``warm_up``.
        fleet: whether the loop of fleets is needed as well, which a second process then compiles.
    """
    from tonnage.cli.beside import fleet_compiled_beside
    from tonnage.simulator.kernel import warm_up
    from tonnage.simulator.simulate import is_compiled_for

    if is_compiled_for(shares=shares, ranks=ranks):
        return
    if not quiet:
        print("tonnage: compiling the simulator for this machine (once) …", file=sys.stderr, flush=True)
    with fleet_compiled_beside() if fleet else nullcontext():
        warm_up(shares=shares, ranks=ranks)
