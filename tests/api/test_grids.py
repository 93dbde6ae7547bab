"""Grids of simulations: written points are kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tonnage.api.grids import LEFT_OUT, Grid, read_grid, sweep, write_point
from tonnage.errors import TonnageError

BASE = {"model": "llama-3.1-8b", "isl": 300, "osl": 20, "requests": 40}
GRID = Grid(base=BASE, over={"tp": [1, 2], "request_rate": [1, 2.5, 40]})


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every point's summary."""
    return {
        file.parent.name: (file.stat().st_ino, file.stat().st_mtime_ns)
        for file in folder.glob("*/summary.json")
    }


def test_what_is_there_is_not_done_again_and_what_cannot_be_is_noted_once(tmp_path, monkeypatch):
    for name, asked in list(GRID.points())[:5]:
        write_point(name, asked, str(tmp_path), {})
    (tmp_path / LEFT_OUT).mkdir()
    write_point("tp-64", BASE | {"tp": 64, "request_rate": 1}, str(tmp_path), {})
    before = written(tmp_path)
    monkeypatch.setattr(sys.modules["tonnage.api.grids"], "_on_processes", in_turn)
    wanted = Grid(base=BASE, over={"tp": [1, 2, 64], "request_rate": [1, 2.5, 40]})
    found = sweep(wanted, tmp_path, {})
    assert (found.points, found.done) == (9, 4)
    assert len(found.left_out) == 3
    assert before.items() <= written(tmp_path).items()
    assert sweep(wanted, tmp_path, {}).done == 0


def in_turn(todo, folder, provenance, workers):
    for name, asked in todo:
        yield write_point(name, asked, folder, provenance)


@pytest.mark.parametrize(
    "text",
    [
        "over: {tp: []}\nbase: {}",
        "over: {tp: [1]}\nbase: {tp: 2}",
        "over: {tpp: [1]}\nbase: {}",
        "over: {tp: [1, 1]}\nbase: {}",
        "over: 3",
    ],
)
def test_a_grid_that_cannot_be_is_refused(tmp_path, text):
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    with pytest.raises(TonnageError):
        read_grid(file)


POINTS = {
    "base": BASE | {"requests": 30},
    "over": {"tp": [1, 2], "seed": list(range(10)), "request_rate": [1 + i / 2 for i in range(10)]},
}
"""200 points."""


@pytest.mark.engines
@pytest.mark.parametrize("on", ["processes", "ray"])
def test_two_hundred_points_killed_and_resumed_are_each_written_once(tmp_path, on):
    file, folder = tmp_path / "grid.yaml", tmp_path / "runs"
    file.write_text(json.dumps(POINTS))
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "simulate",
        "--grid",
        str(file),
        "--output",
        str(folder),
        "--on",
        on,
        "--json",
    ]
    first = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while len(written(folder)) < 30 and time.monotonic() < until:
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = written(folder)
    assert 30 <= len(before) < 200
    second = subprocess.run(command, check=True, capture_output=True, text=True)
    after = written(folder)
    assert len(after) == 200
    assert before.items() <= after.items()
    said = json.loads(second.stdout)
    assert said["points"] == 200
    assert said["done"] <= 200 - len(before)
    assert not [
        one.name
        for one in folder.iterdir()
        if one.name not in after and one.name != LEFT_OUT and not one.name.startswith(".")
    ]
