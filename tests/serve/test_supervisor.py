from __future__ import annotations

import itertools
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.serve.programs import program, runs, until
from tonnage.errors import InputError, TonnageError
from tonnage.serve.supervisor import Program, Supervisor, free_ports


def test_all_serve_and_all_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Supervisor([program("one"), program("two")], tmp_path) as fleet:
        fleet.wait_until_ready(timeout_s=20, on_ready=lambda ready, of: seen.append((ready, of)))
        pids = [child.pid for child in fleet.children]
        assert all(runs(pid) for pid in pids)
    assert seen[-1] == (2, 2)
    assert not any(runs(pid) for pid in pids)


def test_a_killed_program_is_started_again(tmp_path: Path) -> None:
    told: list[str] = []
    with Supervisor([program()], tmp_path, announce=told.append) as fleet:
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
    with Supervisor([failing], folder, announce=lambda line: told.append(time.monotonic())):
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
