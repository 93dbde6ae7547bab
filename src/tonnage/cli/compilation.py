"""The loop of fleets compiled by a second process, while the first compiles that of one engine.

``tonnage size`` needs both, and numba compiles on one core. What the second writes to numba's cache the first loads from there; whatever
happens to the second, the first compiles for itself what it does not find. The second ends with the first: it reads the end of its input.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_S = 60.0
"""How long the second process is waited for, when the first has done its part: it has less to do, and is given up where it hangs."""

ALONE = 3
"""Its exit code where the first process is gone."""


@contextmanager
def fleet_compiled_beside() -> Iterator[subprocess.Popen[bytes] | None]:
    """Another process compiles the loop of fleets meanwhile, and is waited for at the end; none where that would not help.

    It does not help on one core, where nothing can be written to disk, and where it is there already.
    """
    from tonnage.simulator.kernel.compiled import drive_fleet, is_compiled, is_kept

    if cores() < 2 or not is_kept(drive_fleet) or is_compiled(drive_fleet):
        yield None
        return
    try:
        second = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
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
    """The second process."""
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    gc.disable()  # as in ``warm_up``
    from tonnage.simulator.routed import compile_fleet

    compile_fleet()


def _end_with_the_first() -> None:
    """End at once when nobody holds the other end of the input any more: the first process is gone."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(ALONE)


if __name__ == "__main__":
    main()
