"""A guard ends its program, however the supervisor ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.programs import program, runs, until
from tonnage.serve.supervisor import Supervisor


def test_no_orphan_is_left_by_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    source = f"""
import sys, time
from pathlib import Path
from tonnage.serve.supervisor import Supervisor
from tests.serve.programs import program
with Supervisor([program()], Path({str(tmp_path)!r}), grace_s=0.5) as fleet:
    fleet.wait_until_ready(timeout_s=20)
    print(fleet.children[0].pid, flush=True)
    time.sleep(600)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        pid = int(parent.stdout.readline())
        assert runs(pid)
        parent.send_signal(signal.SIGKILL)
    assert until(lambda: not runs(pid))


@pytest.mark.live
def test_a_guard_that_is_killed_takes_its_program_along(tmp_path: Path) -> None:
    with Supervisor([program()], tmp_path) as fleet:
        child = fleet.children[0]
        fleet.wait_until_ready(timeout_s=20)
        first = child.pid
        guard = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(guard, signal.SIGKILL)
        assert until(lambda: not runs(first))
        assert until(lambda: child.pid != first and child.serves())
