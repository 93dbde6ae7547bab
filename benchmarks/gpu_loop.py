"""A real engine on the device that torch has: three loads predicted after a calibration on three
others.

    ./benchmark gpu_loop [--layers 16 --hidden 2048] [--python PYTHON] [--quick] [--write]

The engine is transformers' continuous batching (tests/engines/transformers_server.py) with a Llama
of random weights, made on the spot: nothing is downloaded, and nothing is needed beyond torch,
transformers and what Tonnage installs. --python names the Python that has the first two, by default
TONNAGE_VLLM, or the one that runs this. On a CPU the model has 2 layers of 256 unless a size is
given, and on a device that the catalog does not have seven more loads are measured to calibrate on.
--write puts the table into docs/chain.md. Eight minutes at most.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.engine_loop import (
    BETWEEN,
    LONG,
    METRICS,
    TALKATIVE,
    USUAL,
    Outcome,
    Point,
    measure,
    outcome,
)
from tests.engines.vllm_server import cores, engines_python, tiny_model
from tonnage import api
from tonnage.errors import InputError
from tonnage.spec.catalog import find_gpu

ROOT = Path(__file__).resolve().parents[1]
PAGE, BEGIN, END = ROOT / "docs" / "chain.md", "<!-- gpu loop -->\n", "<!-- end of gpu loop -->\n"
SERVER = ROOT / "tests" / "engines" / "transformers_server.py"
ON_GPU, ON_CPU = (16, 2048), (2, 256)
"""Layers and hidden size of the model."""

STARTS_IN_S, LIMIT_S = 240.0, 480.0
GUESSED = (
    "name: this-device\nfp16_tflops: {tflops}\nmemory_gb: {memory:.1f}\nmemory_bandwidth_gb_s:"
    " {bandwidth}\n"
)
GUESSED += "notes: guesses, which the fit corrects\n"
DEVICE = "import json, torch; c = torch.cuda; ok = c.is_available()\n"
DEVICE += (
    "print(json.dumps([c.get_device_name(), c.mem_get_info()[1] / 1e9] if ok else ['cpu', 8.0]))"
)


def _point(lengths: tuple[str, str], clients: int, requests: int) -> Point:
    return Point(isl=lengths[0], osl=lengths[1], clients=clients, requests=requests)


USED = (_point(USUAL, 1, 8), _point(USUAL, 8, 48), _point(LONG, 4, 24))
ON_UNKNOWN = (
    _point(USUAL, 2, 12),
    _point(USUAL, 4, 24),
    _point(USUAL, 16, 64),
    _point(LONG, 1, 8),
    _point(LONG, 2, 12),
    _point(TALKATIVE, 3, 18),
    _point(TALKATIVE, 6, 24),
)
"""Further loads to calibrate on where the catalog has no such device: terms from nothing need
eight, and two may be invalid."""

UNUSED = (_point(BETWEEN, 2, 16), _point(BETWEEN, 6, 36), _point(TALKATIVE, 12, 48))


def device_of(python: Path) -> tuple[str, float]:
    """The name of torch's device, "cpu" without a GPU, and its memory in GB."""
    name, memory = json.loads(
        subprocess.run(
            [str(python), "-c", DEVICE], check=True, capture_output=True, text=True
        ).stdout
    )
    return str(name), float(memory)


def hardware(name: str, memory_gb: float, folder: Path) -> str:
    """The catalog's name of a GPU, or a file of guesses where it has none."""
    try:
        return find_gpu(name).name
    except InputError:
        file = folder / "device.yaml"
        speeds = (
            {"tflops": 0.2, "bandwidth": 20}
            if name == "cpu"
            else {"tflops": 100, "bandwidth": 1000}
        )
        file.write_text(GUESSED.format(memory=memory_gb, **speeds), encoding="utf-8")
        return str(file)


@contextmanager
def served(python: Path, model: Path, device: str, folder: Path) -> Iterator[str]:
    """The server of a model on one core of the host and the device; its address. Raises
    RuntimeError: it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(python),
        str(SERVER),
        str(model),
        str(port),
        "cpu" if device == "cpu" else "cuda",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "HF_HUB_OFFLINE": "1"
    }
    if device == "cpu":
        command, environment = (
            ["taskset", "-c", str(cores()[0]), *command],
            environment | {"OMP_NUM_THREADS": "1"},
        )
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            until = time.monotonic() + STARTS_IN_S
            while not _answers(f"http://127.0.0.1:{port}/health"):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(
                        "the server does not answer:"
                        f" {(folder / 'server.log').read_text(errors='replace')[-1500:]}"
                    )
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def main() -> None:
    """Measure, calibrate, predict, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python",
        type=Path,
        default=engines_python() or Path(sys.executable),
        help="has torch and transformers",
    )
    parser.add_argument(
        "--layers", type=int, help=f"of the model (default: {ON_GPU[0]}, on a CPU {ON_CPU[0]})"
    )
    parser.add_argument(
        "--hidden",
        type=int,
        help=f"its hidden size, a multiple of 128 (default: {ON_GPU[1]}, on a CPU {ON_CPU[1]})",
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/chain.md")
    parser.add_argument("--quick", action="store_true", help="send a third of the requests")
    arguments = parser.parse_args()
    began = time.monotonic()
    device, memory = device_of(arguments.python)
    layers, hidden = ON_CPU if device == "cpu" else ON_GPU
    size = arguments.layers or layers, arguments.hidden or hidden
    outcomes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny_model(arguments.python, folder / "tiny", *size)
        what: dict[str, Any] = {
            "model": str(model / "config.json"),
            "gpu": hardware(device, memory, folder),
            "precision": "bf16",
            "tp": 1,
        }
        used = USED if not what["gpu"].endswith(".yaml") else (*USED, *ON_UNKNOWN)
        what |= {"engine": "vllm", "max_batch_size": 64, "max_num_tokens": 1024}
        with served(arguments.python, model, device, folder) as url:
            measure(url, model, folder / "warm", _point(USUAL, 4, 8), seed=99)
            for place, point in enumerate((*used, *UNUSED)):
                if time.monotonic() - began > LIMIT_S:
                    sys.exit(
                        f"gpu_loop: {place} loads took {LIMIT_S:.0f} s; give a smaller --layers or"
                        " --hidden"
                    )
                sent = (
                    replace(point, requests=max(point.requests // 3, point.clients + 1))
                    if arguments.quick
                    else point
                )
                measure(url, model, folder / f"run-{place}", sent, seed=place)
        runs = [folder / f"run-{place}" for place in range(len(used))]
        api.calibrate(runs, output=folder / "my.json", date=date.today().isoformat(), **what)
        for place, point in enumerate(UNUSED, len(used)):
            outcomes.append(
                outcome(folder / f"run-{place}", point, what, folder / "my.json", seed=place)
            )
    text = "\n".join(lines(outcomes, device, size, time.monotonic() - began)) + "\n"
    print(text)
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            f"{page.split(BEGIN)[0]}{BEGIN}{text}{END}{page.split(END)[1]}", encoding="utf-8"
        )


def lines(
    outcomes: list[Outcome], device: str, size: tuple[int, int], seconds: float
) -> Iterator[str]:
    """The table of the loads that were not used, as Markdown."""
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "CPU",
    )
    where = f"one core of {cpu}" if device == "cpu" else device
    yield (
        f"A Llama of {size[0]} layers of {size[1]} on {where} ({platform.machine()}),"
        f" {date.today().isoformat()}, {seconds:.0f} s:"
    )
    yield ""
    yield "| load that was not used | TTFT | TPOT | E2E | inside the interval |"
    yield "|---|---|---|---|---|"
    for result in outcomes:
        point, invalid = result.point, ", INVALID" if result.invalid else ""
        errors = " | ".join(f"{result.errors[metric]:+.0%}" for metric in METRICS)
        inside = f"{sum(result.inside.values())} of {len(METRICS)}"
        lengths = f"{point.isl.partition(':')[2]} tokens in, {point.osl.partition(':')[2]} out"
        yield f"| {point.words}, {lengths}{invalid} | {errors} | {inside} |"


if __name__ == "__main__":
    main()
