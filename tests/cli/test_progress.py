"""The second process that compiles the loop of fleets: it helps a first ``size``, and what becomes
of it does no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tonnage.cli import progress
from tonnage.simulator.kernel import driven

SRC = str(Path(progress.__file__).parents[2])
QUESTION = (
    "size --model llama-3.1-8b --isl 512 --osl 128 --gpu h100-sxm-80gb --peak-rps 20 --ttft 500ms"
    " --json"
)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled, and two cores may be used."""
    monkeypatch.setattr(driven, "is_compiled", lambda loop: False)
    monkeypatch.setattr(driven, "is_kept", lambda loop: True)
    monkeypatch.setattr(progress, "cores", lambda: 2)
    monkeypatch.setenv("PYTHONPATH", SRC)


@pytest.mark.usefixtures("cold")
def test_its_death_does_no_harm() -> None:
    with progress.fleet_compiled_beside() as second:
        second.kill()
    assert second.returncode == -signal.SIGKILL


@pytest.mark.live
@pytest.mark.usefixtures("cold")
def test_an_interrupt_leaves_no_process() -> None:
    with pytest.raises(KeyboardInterrupt), progress.fleet_compiled_beside() as second:
        raise KeyboardInterrupt
    assert second.returncode is not None


@pytest.mark.live
@pytest.mark.usefixtures("cold")
def test_it_ends_with_the_first_process() -> None:
    with progress.fleet_compiled_beside() as second:
        second.stdin.close()
        assert second.wait(60) == progress.ALONE


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("lacks", ["cores", "disk", "need"])
def test_there_is_none_where_it_would_not_help(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacks == "cores":
        monkeypatch.setattr(progress, "cores", lambda: 1)
    elif lacks == "disk":
        monkeypatch.setattr(driven, "is_kept", lambda loop: False)
    else:
        monkeypatch.setattr(driven, "is_compiled", lambda loop: True)
    with progress.fleet_compiled_beside() as second:
        assert second is None


def first_size(cache: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": SRC, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-m", "tonnage", *QUESTION.split()],
        env=environment,
        stdout=subprocess.PIPE,
    )


def child_of(pid: int) -> int:
    """The process that it starts, within a minute."""
    for _ in range(3_000):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError(f"{pid} started no process")


@pytest.mark.engines
@pytest.mark.skipif(progress.cores() < 2, reason="on one core there is no second process")
def test_a_first_size_leaves_all_that_a_second_needs_and_answers_the_same(tmp_path: Path) -> None:
    answers, found = [], []
    for cache, dies in (
        (tmp_path / "one", False),
        (tmp_path / "one", False),
        (tmp_path / "other", True),
    ):
        process = first_size(cache)
        if dies:
            os.kill(child_of(process.pid), signal.SIGKILL)
        answers.append(process.communicate()[0])
        assert process.returncode == 0
        found.append(sorted((path.name, path.stat().st_mtime_ns) for path in cache.rglob("*.nbi")))
    assert answers[0] == answers[1] == answers[2]
    assert found[0] == found[1]
    assert [name for name, _ in found[0]] == [name for name, _ in found[2]]
    assert sum("drive_fleet" in name for name, _ in found[0]) == 1
    assert len(found[0]) == 3
