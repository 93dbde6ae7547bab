"""What ``bench`` measures of a simulated server, beside what the simulator makes of the same due
times and lengths.

    ./benchmark served                    both models, 2,000 requests each over five loads: a quarter of an hour
    ./benchmark served --each             2,000 requests for each load but the single client: three quarters
    ./benchmark served --only 8b          one of the models
    ./benchmark served --streams 64,256   up to how many streams this machine keeps time

The loads are closed loops of 1, 16 and 64 clients, and Poisson arrivals at 50 and 80 % of what the
simulated instance carries when 512 clients keep it busy. TTFT may differ by 3 % or 2 ms, whichever
is more, TPOT and requests/s by 2 %, while the client's verdict is VALID. Server and client are
processes of this machine: run it while nothing else does. The exit code is 1 where a difference is
larger.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tonnage import simulate
from tonnage.api import deployment_of
from tonnage.bench.scrape import fetch
from tonnage.evidence.replay import replay
from tonnage.formats.prometheus import Page
from tonnage.results.metrics import Summary, summarize
from tonnage.results.store import read_run
from tonnage.spec.deployment import Deployment

ISL, OSL = 1000, 200
GPUS_PER_SYSTEM = 8
REQUESTS = 2000
BUSY = 512
"""Clients that keep an instance busy."""

SHARES = {"1": 0.02, "16": 0.14, "64": 0.34, "50 %": 0.25, "80 %": 0.25}
"""Of a model's requests, by load: a single client takes more than a second for each."""

TTFT_SHARE, TTFT_MS, OTHERS = 0.03, 2.0, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served."""

    model: str
    tp: int
    gpu: str = "h100-sxm-80gb"
    precision: str = "fp16"

    @property
    def deployment(self) -> Deployment:
        """One instance."""
        return deployment_of(
            model=self.model, gpu=self.gpu, precision=self.precision, tp=self.tp, engine="vllm"
        )

    @property
    def flags(self) -> list[str]:
        """For ``serve``."""
        return [
            "--model",
            self.model,
            "--gpu",
            self.gpu,
            "--precision",
            self.precision,
            "--tp",
            str(self.tp),
        ]

    def capacity(self) -> float:
        """Requests/s when always busy."""
        asked = {
            "model": self.model,
            "gpu": self.gpu,
            "precision": self.precision,
            "tp": self.tp,
            "engine": "vllm",
        }
        return simulate(
            isl=ISL, osl=OSL, concurrency=BUSY, requests=4 * BUSY, **asked
        ).summary.requests_per_second


MODELS = {"8b": Served(model="llama-3.1-8b", tp=1), "70b": Served(model="llama-3-70b", tp=4)}


def tonnage(*words: str) -> list[str]:
    """A command of this checkout."""
    return [sys.executable, "-m", "tonnage", *words]


@contextmanager
def serving(asked: Served) -> Iterator[str]:
    """A server in a process of its own; its address."""
    command = tonnage("serve", *asked.flags, "--port", "0")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield next(
                line.split()[-1].removesuffix("/v1")
                for line in process.stderr or ()
                if "http://" in line
            )
        finally:
            process.terminate()


def measured(address: str, model: str, load: list[str], folder: Path) -> tuple[str, str]:
    """Measure one load into a run folder; the client's verdict, and its reasons."""
    command = tonnage(
        "bench", "--url", address, "--model", model, "--endpoint-type", "completions", "--streaming"
    )
    command += [
        "--isl",
        str(ISL),
        "--osl",
        str(OSL),
        *load,
        "--artifact-dir",
        str(folder),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    validity = json.loads(done.stdout)["validity"]
    return validity["verdict"], "; ".join(validity["reasons"])


def within(real: Summary, told: Summary) -> bool:
    """Whether the measured means are as near to the replayed ones as the bounds ask."""
    ttft = abs(real.ttft_ms.mean - told.ttft_ms.mean) <= max(
        TTFT_SHARE * told.ttft_ms.mean, TTFT_MS
    )
    pairs = (
        (real.tpot_ms.mean, told.tpot_ms.mean),
        (real.requests_per_second, told.requests_per_second),
    )
    return ttft and all(abs(one - other) <= OTHERS * other for one, other in pairs)


def row(load: str, folder: Path, deployment: Deployment, verdict: str) -> tuple[str, bool]:
    """The row of a load, and whether it is within the bounds."""
    found = read_run(folder).requests
    real, told = (
        summarize(found),
        summarize(replay(found, deployment, gpus_per_system=GPUS_PER_SYSTEM)),
    )
    pairs = [(s.ttft_ms.mean, s.tpot_ms.mean, s.requests_per_second) for s in (real, told)]
    cells = [
        f"{one:>8.4g} {other:>8.4g} {one / other - 1:>+7.1%}"
        for one, other in zip(*pairs, strict=True)
    ]
    fits = within(real, told)
    return (
        (
            f"{load:>8} {len(found):>6} {verdict:>8} {' '.join(cells)}  "
            f" {'within' if fits else 'OUTSIDE'}"
        ),
        fits,
    )


def loads_of(capacity: float, requests: int, *, each: bool) -> Iterator[tuple[str, list[str]]]:
    """The loads, as flags of ``bench``."""
    for name, share in SHARES.items():
        count = max(round(share * requests), 40) if not each or name == "1" else requests
        if name.endswith("%"):
            rate = round(capacity * float(name.split()[0]) / 100, 2)
            yield f"{rate:g}/s", ["--request-rate", f"{rate:g}", "--request-count", str(count)]
        else:
            yield name, ["--concurrency", name, "--request-count", str(count)]


def beside(asked: Served, requests: int, *, each: bool) -> bool:
    """Print the rows of a model; whether all are within the bounds of those that the client
    believes.
    """
    capacity, well = asked.capacity(), True
    print(
        f"\n{asked.model} {asked.precision} on {asked.tp} × {asked.gpu}, {ISL}/{OSL} tokens; busy:"
        f" {capacity:.1f} requests/s"
    )
    head = [f"{name:>26}" for name in ("TTFT ms", "TPOT ms", "requests/s")]
    print(f"{'load':>8} {'sent':>6} {'verdict':>8} {' '.join(head)}   (measured, replayed)")
    with serving(asked) as address, tempfile.TemporaryDirectory() as folder:
        for place, (load, flags) in enumerate(loads_of(capacity, requests, each=each)):
            verdict, reasons = measured(address, asked.model, flags, Path(folder) / str(place))
            line, fits = row(load, Path(folder) / str(place), asked.deployment, verdict)
            print(line + (f"   {reasons}" if reasons else ""), flush=True)
            well &= fits or verdict != "VALID"
    return well


def streams(asked: Served, numbers: list[int]) -> None:
    """Print up to how many streams at once client and server keep time."""
    print(f"\n{asked.model} on {asked.tp} × {asked.gpu}: does the machine keep time?")
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            # a server for each, whose lateness is that of this load alone
            with serving(asked) as address:
                flags = ["--concurrency", str(number), "--request-count", str(3 * number)]
                verdict, reasons = measured(address, asked.model, flags, Path(folder) / str(number))
                page = Page(fetch(f"{address}/metrics"))
            late, count = (
                page.total(f"tonnage:delivery_lateness_seconds_{part}") for part in ("sum", "count")
            )
            line, _ = row(f"{number}", Path(folder) / str(number), asked.deployment, verdict)
            print(
                f"{line}   server late by {1e3 * late / count:.2f} ms on average   {reasons}",
                flush=True,
            )


def main() -> None:
    """Print a row for each load."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=list(MODELS), help="one of the models")
    parser.add_argument(
        "--requests", type=int, default=REQUESTS, help="of each model, over its loads"
    )
    parser.add_argument(
        "--each", action="store_true", help="as many for each load, but for the single client"
    )
    parser.add_argument(
        "--streams",
        default="",
        help="numbers of clients, separated by commas, in place of the loads",
    )
    asked = parser.parse_args()
    chosen = [MODELS[asked.only]] if asked.only else list(MODELS.values())
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if asked.streams:
        for one in chosen:
            streams(one, [int(number) for number in asked.streams.split(",")])
        return
    outcomes = [beside(one, asked.requests, each=asked.each) for one in chosen]
    if not all(outcomes):
        raise SystemExit("a difference is larger than it may be")


if __name__ == "__main__":
    main()
