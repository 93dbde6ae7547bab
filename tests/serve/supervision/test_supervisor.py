"""Child processes: they are waited for, restarted with a growing pause, and gone when their
supervisor is."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.serve.supervisor import Program, Supervisor, free_ports

SERVER = """
import http.server, signal, subprocess, sys
port, stubborn = int(sys.argv[1]), sys.argv[2] == "stubborn"
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("grandchild", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""


def program(name: str = "engine", *, kind: str = "plain", port: int | None = None) -> Program:
    """A small server that answers 200."""
    port = free_ports(1)[0] if port is None else port
    return Program(
        name=name, argv=(sys.executable, "-c", SERVER, str(port), kind), address=f"127.0.0.1:{port}"
    )


def runs(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: object, seconds: float = 15.0) -> bool:
    """Wait until a function says yes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False


def test_all_serve_and_all_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Supervisor([program("one"), program("two")], tmp_path) as fleet:
        fleet.wait_until_ready(timeout_s=20, seen=lambda ready, of: seen.append((ready, of)))
        pids = [child.pid for child in fleet.children]
        assert all(runs(pid) for pid in pids)
    assert seen[-1] == (2, 2)
    assert not any(runs(pid) for pid in pids)


def test_a_killed_program_is_started_again(tmp_path: Path) -> None:
    told: list[str] = []
    with Supervisor([program()], tmp_path, told=told.append) as fleet:
        child = fleet.children[0]
        fleet.wait_until_ready(timeout_s=20)
        first = child.pid
        child.kill()
        assert until(lambda: child.pid != first and child.serves())
        assert child.starts == 2
    assert told == ["engine ended with exit code 137; it is started again"]


@pytest.mark.live
def test_the_pause_before_a_restart_doubles(tmp_path: Path) -> None:
    """Three fleets at most: on a machine that does other things the first start may take as long as
    the pauses."""
    assert any(
        third > first + 0.2
        for first, _, third in (pauses(tmp_path / name) for name in ("first", "second", "third"))
    )


def pauses(folder: Path) -> list[float]:
    """Seconds between the ends of a program that fails at once: 0.1, 0.2 and 0.4 beside the time of
    a start."""
    told: list[float] = []
    failing = Program(
        name="engine", argv=(sys.executable, "-c", "raise SystemExit(7)"), address="127.0.0.1:9"
    )
    with Supervisor([failing], folder, told=lambda line: told.append(time.monotonic())):
        assert until(lambda: len(told) >= 4)
    return [after - before for before, after in itertools.pairwise(told[:4])]


@pytest.mark.live
def test_a_stubborn_program_and_what_it_started_are_killed(tmp_path: Path) -> None:
    with Supervisor([program(kind="stubborn")], tmp_path, grace_s=0.3) as fleet:
        fleet.wait_until_ready(timeout_s=20)
        child = fleet.children[0]
        grandchild = int(child.log.read_text().partition("grandchild ")[2].split()[0])
        assert runs(grandchild)
    assert not runs(child.pid)
    assert until(lambda: not runs(grandchild))


def test_no_orphan_is_left_by_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    source = f"""
import sys, time
from pathlib import Path
from tonnage.serve.supervisor import Supervisor
from tests.serve.supervision.test_supervisor import program
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


def test_what_a_program_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    refuses = Program(
        name="engine",
        argv=(
            sys.executable,
            "-c",
            "import sys; print('tonnage: --port: 80 is taken', file=sys.stderr); sys.exit(2)",
        ),
        address="127.0.0.1:9",
    )
    with (
        Supervisor([refuses], tmp_path) as fleet,
        pytest.raises(InputError, match=r"^engine: --port: 80 is taken$"),
    ):
        fleet.wait_until_ready(timeout_s=20)


def test_a_program_that_ends_too_early_is_said_with_its_last_lines(tmp_path: Path) -> None:
    ends = Program(
        name="engine",
        argv=(sys.executable, "-c", "print('no driver'); raise SystemExit(7)"),
        address="127.0.0.1:9",
    )
    with (
        Supervisor([ends], tmp_path) as fleet,
        pytest.raises(
            TonnageError, match="exit code 7 before it served; its last lines: no driver"
        ),
    ):
        fleet.wait_until_ready(timeout_s=20)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    missing = Program(name="engine", argv=("/nowhere/engine",), address="127.0.0.1:9")
    with (
        pytest.raises(
            TonnageError, match="cannot be started: cannot run /nowhere/engine: No such file"
        ),
        Supervisor([missing], tmp_path),
    ):
        pass


def test_free_ports_are_none_that_an_outgoing_connection_gets() -> None:
    ports = free_ports(30)
    assert len(set(ports)) == 30
    assert max(ports) < 32_768
    with (
        socket.create_server(("127.0.0.1", ports[0])) as taken,
        socket.create_connection(taken.getsockname()) as out,
    ):
        assert out.getsockname()[1] >= 32_768
    with pytest.raises(OSError, match=r"assign|not known|resolution"):
        free_ports(1, "192.0.2.1")
