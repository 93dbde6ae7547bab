"""What ``bench`` measures of a simulated server, beside what the simulator makes of the same due times and lengths.

    PYTHONPATH=src python benchmarks/served.py [--model llama-3.1-8b] [--gpu h100-sxm-80gb] [--tp 1] [--loads 1,16,64,r4,r8]

A load of a number is a closed loop of that many clients, one with an "r" an open loop of that many requests per second. Server and
client are processes of their own on this machine, and both cost CPU time: the verdict of the client says whether it kept up.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tonnage.api import deployment_of
from tonnage.results.metrics import Summary, summarize
from tonnage.results.store import read_run
from tonnage.spec.deployment import Deployment
from tonnage.validation.replay import replay

ISL, OSL = 1000, 200
GPUS_PER_SYSTEM = 8
LEAST, PER_CLIENT = 64, 8


@contextmanager
def serving(asked: argparse.Namespace) -> Iterator[str]:
    """A server in a process of its own; its address."""
    command = ["-m", "tonnage", "serve", "--model", asked.model, "--gpu", asked.gpu, "--tp", str(asked.tp), "--port", "0"]
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as process:
        try:
            yield next(line.split()[-1].removesuffix("/v1") for line in process.stderr or () if "http://" in line)
        finally:
            process.terminate()


def measured(address: str, model: str, load: str, folder: Path) -> str:
    """Measure one load into a run folder; the client's verdict."""
    if load.startswith("r"):
        how = ["--request-rate", load[1:], "--request-count", str(max(LEAST, 20 * int(load[1:])))]
    else:
        how = ["--concurrency", load, "--request-count", str(max(LEAST, PER_CLIENT * int(load)))]
    command = ["-m", "tonnage", "bench", "--url", address, "--model", model, "--endpoint-type", "completions", "--streaming"]
    command += ["--isl", str(ISL), "--osl", str(OSL), *how, "--artifact-dir", str(folder), "--json"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    verdict: str = json.loads(done.stdout)["validity"]["verdict"]
    return verdict


def replayed(deployment: Deployment, folder: Path) -> tuple[Summary, Summary]:
    """The summary of the run, and of the simulator with its due times and lengths."""
    found = read_run(folder).requests
    return summarize(found), summarize(replay(found, deployment, gpus_per_system=GPUS_PER_SYSTEM))


def main() -> None:
    """Print a row for each load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("model", "llama-3.1-8b"), ("gpu", "h100-sxm-80gb"), ("tp", 1), ("loads", "1,16,64,r4,r8")):
        parser.add_argument(f"--{name}", default=default, type=type(default))
    asked = parser.parse_args()
    deployment = deployment_of(model=asked.model, gpu=asked.gpu, precision="fp16", tp=asked.tp, engine="vllm")
    print(f"{asked.model} on {asked.tp} × {asked.gpu}, {ISL}/{OSL} tokens; {platform.machine()}, Python {platform.python_version()}\n")
    print(f"{'load':>6} {'verdict':>8} {'TTFT ms':>16} {'TPOT ms':>16} {'requests/s':>16}   (measured, replayed)")
    with serving(asked) as address, tempfile.TemporaryDirectory() as folder:
        for load in asked.loads.split(","):
            verdict = measured(address, asked.model, load, Path(folder) / load)
            real, replay = replayed(deployment, Path(folder) / load)
            pairs = [(s.ttft_ms.mean, s.tpot_ms.mean, s.requests_per_second) for s in (real, replay)]
            cells = [f"{one:>7.4g} {other:>7.4g}" for one, other in zip(*pairs, strict=True)]
            print(f"{load:>6} {verdict:>8} {cells[0]:>16} {cells[1]:>16} {cells[2]:>16}", flush=True)


if __name__ == "__main__":
    main()
