"""Requests per CPU second of other simulators beside Tonnage's, under one load, in one run:
Llama-2-7B, A100, 512/128, Poisson 4/s.

    ./benchmark peers [--inference-lab FOLDER] [--fleet-sim ENVIRONMENT] [--rounds 3]

Nothing is downloaded here. The others are installed beforehand, each by itself:

    npm install --prefix /tmp/lab @doublewordai/inference-lab     --inference-lab /tmp/lab/node_modules/@doublewordai/inference-lab
    python -m venv /tmp/sr && /tmp/sr/bin/pip install --pre vllm-sr-sim                                      --fleet-sim /tmp/sr

One that is not named is left out. A round runs each of them once, one after another, and the least
CPU seconds of all rounds count: a machine that does something else as well takes more time, and
little more of the CPU. Each draws the lengths by its own generator (normal, a quarter of the mean)
and has its own idea of a step, which the mean time of a request shows; what is compared is the work
that a request makes. The drawing is counted where a simulator draws as it goes (inference-lab).
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = (10_000, 100_000, 1_000_000)
LAB = (1_000, 2_000, 4_000, 8_000)
"""Sizes of a run: inference-lab's time grows faster than the requests."""
FLEET = (10_000, 100_000)


def tonnage(count: int) -> dict[str, Any]:
    """One run of the kernel by the rules of TensorRT-LLM, whose load benchmarks/kernel.py has
    too.
    """
    from kernel import run_of

    from tonnage.results.metrics import summarize
    from tonnage.simulator.kernel import run, warm_up
    from tonnage.version import VERSION

    warm_up()
    arguments, options = run_of(engine="tensorrt-llm-0.15", rate=4, requests=count)
    before = time.process_time()
    record = run(*arguments, **options)
    seconds = time.process_time() - before
    return {
        "version": VERSION,
        "requests": len(record),
        "cpu_s": seconds,
        "e2e_mean_ms": summarize(record).statistic_ms("e2e", "mean"),
    }


def main() -> None:
    """Run all that are there in turn, and print the least CPU seconds of each size."""
    parser = argparse.ArgumentParser(description="requests per CPU second beside other simulators")
    parser.add_argument(
        "--inference-lab", type=Path, help="folder of the npm package @doublewordai/inference-lab"
    )
    parser.add_argument("--fleet-sim", type=Path, help="virtual environment with vllm-sr-sim")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ours is not None:
        print(json.dumps(tonnage(asked.ours)))
        return
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for _ in range(asked.rounds):
        for name, size, command in commands(asked.inference_lab, asked.fleet_sim):
            said = json.loads(
                subprocess.run(
                    command, check=True, capture_output=True, text=True
                ).stdout.splitlines()[-1]
            )
            if (name, size) not in found or said["cpu_s"] < found[name, size]["cpu_s"]:
                found[name, size] = said
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {processor()}, Python"
        f" {platform.python_version()}; least of {asked.rounds}"
    )
    print(f"{'simulator':44}{'requests':>11}{'CPU s':>9}{'requests/CPU s':>16}{'mean E2E':>12}")
    for (name, _), said in found.items():
        rate = said["requests"] / said["cpu_s"]
        label = f"{name} {said['version']}"
        print(
            f"{label:44}{said['requests']:>11,}{said['cpu_s']:>9.3f}{rate:>16,.0f}{said['e2e_mean_ms']:>9,.0f} ms"
        )


def commands(lab: Path | None, fleet: Path | None) -> list[tuple[str, int, list[str]]]:
    """Name, requests and command line of each run of a round."""
    rows = [
        ("tonnage", size, [sys.executable, str(HERE / "peers.py"), "--ours", str(size)])
        for size in OURS
    ]
    if lab is not None:
        script = str(HERE / "peers_inference_lab.mjs")
        rows += [
            ("inference-lab (WASM)", size, ["node", script, str(lab.resolve()), str(size)])
            for size in LAB
        ]
    if fleet is not None:
        script = str(HERE / "peers_fleet_sim.py")
        rows += [
            ("vllm-sr-sim", size, [str(fleet / "bin" / "python"), script, str(size)])
            for size in FLEET
        ]
    return rows


def processor() -> str:
    """The processor's name, where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


if __name__ == "__main__":
    main()
