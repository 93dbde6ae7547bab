"""A process between a supervisor and one engine, so that the engine ends when the supervisor does,
however that ends.

    python guard.py FD GRACE_S -- COMMAND …

The supervisor holds the other end of the pipe FD open. When it closes, because the supervisor has
ended or was killed, the engine's whole process group gets SIGTERM, and SIGKILL ``GRACE_S`` seconds
later. SIGTERM to the guard does the same. The first line on standard output is the process id of
the engine. The exit code is the engine's, as a shell gives it (128 + signal).

This file is run by its path and imports nothing of Tonnage, because a process of it is next to
every engine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
NOT_FOUND = 127


def _die_with_parent() -> None:
    """On Linux the engine is killed even if its guard is killed, which could then not end it any
    more.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def guard(pipe: int, grace_s: float, command: list[str]) -> int:
    """Run a command, in a new process group, until it ends or ``pipe`` is readable as its
    supervisor has gone; its exit code.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signals: list[int] = []
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the supervisor, which decides
    os.set_inheritable(pipe, False)
    try:
        engine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 this process has one thread
        )
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND
    print(engine.pid, flush=True)
    while engine.poll() is None and not signals:
        readable, _, _ = select.select([pipe, woken], [], [])
        if woken in readable:
            os.read(woken, 512)
        if pipe in readable:
            break
    return _ended(engine, grace_s)


def _ended(engine: subprocess.Popen[bytes], grace_s: float) -> int:
    """End the engine's group if it has not ended; the exit code."""
    if engine.poll() is None:
        _signal_group(engine.pid, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while engine.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
    _signal_group(engine.pid, signal.SIGKILL)  # whatever the engine started and left behind, too
    code = engine.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[4:]))
