"""Commands that are killed, interrupted, or find a full disk, few descriptors or little memory, at
drawn moments.

Afterwards each thing that they write is whole, or absent, or lies under a name that says that it is
partial; and the same command, given again, ends as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.drawn import SEED
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.report.plans.plan_document import read_plans
from tonnage.results.store import read_run
from tonnage.spec.calibration import read_calibration

pytestmark = pytest.mark.fuzz
ROOT = Path(__file__).parents[2]
MOMENTS = int(os.environ.get("TONNAGE_FUZZ_MOMENTS", "50"))
MODEL = [
    "--model",
    "llama-3.1-8b",
    "--gpu",
    "h100",
    "--precision",
    "fp8",
    "--engine",
    "vllm",
    "--tp",
    "1",
    "--isl",
    "200",
    "--osl",
    "20",
]


def whole_plan(path: Path) -> None:
    assert len(read_plans(path)) == 1


def whole_calibration(path: Path) -> None:
    assert read_calibration(path).multipliers


def whole_run(folder: Path) -> None:
    assert len(read_run(folder).requests) > 0
    assert json.loads((folder / "summary.json").read_text())


def whole_runs(folder: Path) -> None:
    """A sweep: a folder for each load that was measured or simulated, each of them whole."""
    runs = [part for part in folder.iterdir() if not part.name.startswith(".")]
    assert all(part.is_dir() for part in runs)
    for part in runs:
        whole_run(part)


def whole_deployment(folder: Path) -> None:
    from tonnage import api

    assert api.verify_folder(folder).faults == ()


# Each command with OUT for what it writes, how long it takes about, and what shows that this is
# whole
COMMANDS: dict[str, tuple[list[str], float, Callable[[Path], None]]] = {
    "size": (
        [
            "size",
            *MODEL,
            "--peak-rps",
            "20",
            "--ttft",
            "p95<=500ms",
            "--quiet",
            "--output",
            "OUT.json",
        ],
        2.5,
        whole_plan,
    ),
    "simulate": (
        ["simulate", *MODEL, "--request-rate", "5", "--requests", "3000", "--output", "OUT"],
        1.5,
        whole_run,
    ),
    "sweep": (
        ["simulate", *MODEL, "--concurrency", "1,2,4,8", "--requests", "500", "--output", "OUT"],
        2.0,
        whole_runs,
    ),
    "calibrate": (
        ["calibrate", str(ROOT / "examples/nim-llama-3-8b-h100-fp8.csv"), "--output", "OUT.json"],
        4.0,
        whole_calibration,
    ),
    "deploy": (
        ["deploy", "plan.json", "--target", "compose", "--output", "OUT"],
        1.0,
        whole_deployment,
    ),
    "bench": (
        [
            "bench",
            "--url",
            "URL",
            "--model",
            "m",
            "--isl",
            "20",
            "--osl",
            "5",
            "--concurrency",
            "2",
            "--benchmark-duration",
            "2s",
            "--no-selftest",
            "--artifact-dir",
            "OUT",
        ],
        3.5,
        whole_run,
    ),
    "bench sweep": (
        [
            "bench",
            "--url",
            "URL",
            "--model",
            "m",
            "--isl",
            "20",
            "--osl",
            "5",
            "--concurrency",
            "1,2",
            "--request-count",
            "60",
            "--no-selftest",
            "--artifact-dir",
            "OUT",
        ],
        4.0,
        whole_runs,
    ),
}
FAULTS = ("kill", "term", "disk", "descriptors", "memory")


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A file system of so many kilobytes; only root can make one."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def ended(
    words: list[str], folder: Path, *, limits: str = "", sent: int = 0, after_s: float = 0.0
) -> tuple[int, str]:
    """Exit code and errors of a command, which gets a signal after some seconds where one is
    ``sent``."""
    command = ["sh", "-c", f'{limits} exec "$@"', "sh", sys.executable, "-m", "tonnage", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        if sent:
            try:
                process.wait(after_s)
            except subprocess.TimeoutExpired:
                process.send_signal(sent)
        said = process.communicate(timeout=120)[1]
    return process.returncode, said


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=3_600) as found:
        yield found


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    words = COMMANDS["size"][0]
    assert ended([word.replace("OUT", "plan") for word in words], folder)[0] == 0
    return folder / "plan.json"


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_moment(moment: int, url: str, plan: Path, tmp_path: Path) -> None:
    random = Random(f"moments {SEED} {moment}")
    name, fault = random.choice(list(COMMANDS)), FAULTS[moment % len(FAULTS)]
    if fault == "disk" and os.geteuid() != 0:
        pytest.skip("a small disk is made by root alone")
    words, seconds, whole = COMMANDS[name]
    folder = tmp_path / "work"
    folder.mkdir()
    words = [
        word.replace("OUT", str(folder / "out")).replace("URL", url).replace("plan.json", str(plan))
        for word in words
    ]
    output = Path(next(word for word in words if word.startswith(str(folder / "out"))))
    after, size = random.uniform(0.05, 1.1 * seconds), random.choice((0, 4, 8, 16, 40, 80, 200))
    label = f"TONNAGE_FUZZ_SEED={SEED}, moment {moment}: {name}, {fault}"
    if fault == "disk":
        with small_disk(folder, max(size, 4)):
            code, said = ended(words, tmp_path)
            left = sorted(path.name for path in folder.iterdir())
            if output.exists():
                whole(output)
            label += f" of {size} kB: {code}, {left}"
        assert all(part == output.name for part in left), label
    else:
        limits = {"descriptors": "ulimit -n 256;", "memory": "ulimit -v 700000;"}.get(fault, "")
        sent = {"kill": signal.SIGKILL, "term": signal.SIGTERM}.get(fault, 0)
        code, said = ended(words, tmp_path, limits=limits, sent=sent, after_s=after)
        left = sorted(path.name for path in folder.iterdir())
        label += f" after {after:.2f} s: {code}, {left}"
        if output.exists():
            whole(output)
        assert all(
            part == output.name or (part.startswith(".") and "partial" in part) for part in left
        ), label
        assert fault in ("kill", "memory") or all(part == output.name for part in left), label
    print(label)
    assert "Traceback" not in said, (label, said[-2_000:])
    assert "damaged" not in said, (label, said[-500:])
    if fault != "kill":
        assert code in (0, 1, 2, 3, 130, 143, -signal.SIGTERM), (label, said[-500:])
    if output.is_dir():
        shutil.rmtree(output)
    began = time.monotonic()
    code, said = ended(words, tmp_path)
    assert code in (0, 3), (label, said[-2_000:])
    whole(output)
    assert time.monotonic() - began < 100
