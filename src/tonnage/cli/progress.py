"""Progress on standard error, only where a person is looking."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

# What goes on when every candidate has been simulated: its length is not known, so that the bar
# only moves
AFTER = "tuning knobs, simulating whole fleets, changing one input at a time"

# Addresses that a process needs to compile the loops and to simulate a fleet; where LLVM gets no
# more of them, it may never return, and glibc ends the process
LEAST_BYTES = 2_000_000_000


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """A bar that takes (done, total, name); silent if ``quiet``, and when standard error is not a
    terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda done, total, name: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[name]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, name="")

        def update(done: int, total: int, name: str) -> None:
            if done < total:
                bar.update(task, completed=done, total=total, name=name)
            else:
                bar.update(task, total=None, name=AFTER if total else name)

        yield update


_kept: list[bool] = []


@contextmanager
def without_collection() -> Iterator[None]:
    """For what imports and reads catalogs: nothing of it becomes garbage, and the collector does
    not visit it, now or later.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not _kept:
            # the first time: what a program that calls this again leaves behind is collected as
            # ever
            gc.freeze()
            # numba's objects and pytest's would take gc.get_freeze_count 10 ms and more to count
            _kept.append(True)
        if collects:
            gc.enable()


def compile_if_needed(
    *,
    quiet: bool = False,
    shares: bool = False,
    ranks: bool = False,
    grouped: bool = False,
    fleet: bool = False,
) -> None:
    """Compile the simulator's kernel with a visible line (none if ``quiet``), the first time on
    this machine.

    Args:
        fleet: whether the loop of fleets is needed as well, which a second process then compiles.

    Raises MemoryError: this process may take fewer than the ``LEAST_BYTES`` that compiling, or the
    simulation of fleets, needs.
    """
    from tonnage.simulator.kernel import is_compiled, warm_up
    from tonnage.simulator.kernel.compiler import SLOWER
    from tonnage.simulator.kernel.driven import loop_of

    compiled = is_compiled(loop_of(shares=shares, ranks=ranks, grouped=grouped))
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 < limit < LEAST_BYTES and (fleet or not compiled):
        raise MemoryError
    if compiled:
        return
    if not quiet:
        print(
            "tonnage: compiling the simulator for this machine (once) …",
            file=sys.stderr,
            flush=True,
        )
        if SLOWER:
            print(f"tonnage: {SLOWER}", file=sys.stderr, flush=True)
    with fleet_compiled_beside() if fleet else nullcontext():
        warm_up(shares=shares, ranks=ranks, grouped=grouped)


# The loop of fleets compiled by a second process, while the first compiles that of one engine.


# How long the second process is waited for, when the first has done its part: it has less to do,
# and is given up where it hangs
LONGEST_S = 60.0

ALONE = 3  # its exit code where the first process is gone


@contextmanager
def fleet_compiled_beside() -> Iterator[subprocess.Popen[bytes] | None]:
    """Another process compiles the loop of fleets meanwhile, and is waited for at the end; none
    where that would not help.

    It does not help on one core, where nothing can be written to disk, and where it is there
    already.
    """
    from tonnage.simulator.kernel.driven import drive_fleet, is_compiled, is_kept

    if cores() < 2 or not is_kept(drive_fleet) or is_compiled(drive_fleet):
        yield None
        return
    try:
        second = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:  # no process left for it
        yield None
        return
    try:
        yield second
        second.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        second.kill()
        second.communicate()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> None:
    """Compile the loop of fleets; this is the second process."""
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    gc.disable()  # as in ``warm_up``
    from tonnage.simulator.fleet import compile_fleet

    compile_fleet()


def _end_with_the_first() -> None:
    """Exit as soon as standard input is closed, because the first process is gone."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(ALONE)


if __name__ == "__main__":
    main()
