"""The demo's fleet under load for a long time, while an instance is killed every minute: every
request ends once, and nothing grows.

    ./benchmark soak                              README's plan: eight instances, 300 requests per second, half an hour
    ./benchmark soak --minutes 10 --rate 6 --instances 4

Simulated instances behind the gateway; prompts of 2,000 tokens and answers of 200, streamed. The KV
cache of an instance is filled twice first: the table of its blocks' names grows until then. The
client's record is compared with its count of requests and with the gateway's, and memory and open
files of the gateway and of an instance that is never killed are read every ten seconds. The exit
code is 1 where a request has no end, or two, or where memory or open files grow.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from tonnage.api.bench import prepare_bench, run_bench
from tonnage.api.running.processes import READY_S, gateway_before, processes, served_instances
from tonnage.bench.scrape import fetch
from tonnage.results.requests import STATUS_NAMES
from tonnage.serve.supervisor import Child
from tonnage.simulator.kernel import warm_up

SERVED = (
    "--engine",
    "simulated",
    "--model",
    "llama-3.1-8b",
    "--gpu",
    "b300-sxm-270gb",
    "--precision",
    "fp8",
)
CLIENT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "endpoint_type": "completions",
    "metrics_url": ["none"],
}
ISL = 2_000
EVERY_S = 10.0
# growth between the second quarter and the last
MOST_MB, MOST_FILES = 30.0, 20


class Watched(threading.Thread):
    """Memory in MB and open files of processes, read while the load lasts, and the killing of one
    instance a minute, in turn.
    """

    def __init__(self, pids: dict[str, int], victims: list[Child], every_s: float) -> None:
        super().__init__(daemon=True)
        self.pids, self.victims, self.every_s = pids, victims, every_s
        self.readings: dict[str, list[tuple[float, int]]] = {name: [] for name in pids}
        self.kills = 0
        self.done = threading.Event()

    def run(self) -> None:
        """Read and kill until the load is over."""
        begun = time.monotonic()
        while not self.done.wait(EVERY_S):
            for name, pid in self.pids.items():
                pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
                self.readings[name].append(
                    (pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir(f"/proc/{pid}/fd")))
                )
            if time.monotonic() - begun > self.every_s * (self.kills + 1):
                self.victims[self.kills % len(self.victims)].kill()
                self.kills += 1

    def grown(self) -> dict[str, tuple[float, float, int, int]]:
        """MB and open files, medians of the second quarter and of the last: a quarter has several
        rounds in which an instance remembers ended requests and forgets them.
        """
        quarters = {
            name: (
                readings[len(readings) // 4 : len(readings) // 2],
                readings[-len(readings) // 4 :],
            )
            for name, readings in self.readings.items()
        }
        return {
            name: (
                *(median(mb for mb, _ in part) for part in parts),
                *(round(median(files for _, files in part)) for part in parts),
            )
            for name, parts in quarters.items()
        }


def pid_of(port: str, verb: str) -> int:
    """The process of a verb of Tonnage that was started with a port."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if verb in words and port in words and "--" not in words:
                return int(folder.name)
    raise SystemExit(f"no process of {verb} on port {port}")


def fill(url: str) -> int:
    """Send an instance prompts until each block of its KV cache has had two names; how many.

    The first ones take memory as long as the cache is not full. With the second ones Python makes
    the table of names anew, once, with three times as much room as it has names, since those that
    come while others go use up the room of a table.
    """
    labels = next(
        line for line in fetch(f"{url}/metrics").splitlines() if "num_gpu_blocks=" in line
    )
    blocks, tokens = (
        int(re.search(rf'{name}="(\d+)"', labels)[1])  # type: ignore[index]
        for name in ("num_gpu_blocks", "block_size")
    )
    count = 2 * blocks // (ISL // tokens) + 1
    load: dict[str, Any] = {
        "concurrency": 32,
        "request_count": count,
        "isl": ISL,
        "osl": 1,
        "seed": 1,
    }
    prepared = prepare_bench(url=url, **CLIENT, **load)
    run_bench(prepared, output=None, selftest=False, provenance={})
    return count


def main() -> int:
    """Print what became of every request, and what grew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, kind, default in (
        ("minutes", float, 30.0),
        ("rate", float, 300.0),
        ("instances", int, 8),
        ("kill-every", float, 60.0),
    ):
        parser.add_argument(f"--{name}", type=kind, default=default)
    asked = parser.parse_args()
    warm_up()
    instances = served_instances(SERVED, asked.instances)
    gateway = gateway_before(instances, policy="least-outstanding")
    with (
        tempfile.TemporaryDirectory() as logs,
        processes(
            instances,
            gateway,
            Path(logs),
            ready_s=READY_S,
            grace_s=5,
            announce=lambda line: None,
            on_ready=lambda ready, of: None,
        ) as fleet,
    ):
        survivor, *victims = fleet.supervisor.children
        pids = {
            "gateway": pid_of(gateway.address.rpartition(":")[2], "gateway"),
            survivor.program.name: survivor.pid,
        }
        filled = fill(f"http://{survivor.program.address}")
        watched = Watched(pids, victims, asked.kill_every)
        load: dict[str, Any] = {
            "request_rate": asked.rate,
            "benchmark_duration": f"{asked.minutes:g}min",
            "isl": ISL,
            "osl": 200,
        }
        prepared = prepare_bench(url=fleet.url, **CLIENT, **load)
        watched.start()
        (run,) = run_bench(prepared, output=None, selftest=False, provenance={})
        watched.done.set()
        watched.join()
        counted = Counter(
            {
                line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in fetch(f"{fleet.url}/metrics").splitlines()
                if line[:1] != "#"
            }
        )
        starts = [child.starts for child in fleet.supervisor.children]
    ends = Counter(STATUS_NAMES[code] for code in run.requests.status)
    print(
        f"{asked.minutes:g} minutes at {asked.rate:g} requests/s on {asked.instances} instances,"
        f" {watched.kills} kills; starts {starts}; {survivor.program.name} had had {filled:,} prompts"
    )
    print(
        f"sent {run.observed.sent:,}; ends in the record: {dict(ends)}; verdict"
        f" {run.validity.verdict}"
    )
    finished = sum(
        value
        for name, value in counted.items()
        if name.startswith("tonnage_gateway_requests_total")
    )
    waiting = sum(
        value for name, value in counted.items() if name.startswith("tonnage_gateway_in_flight")
    )
    retries = sum(
        value for name, value in counted.items() if name.startswith("tonnage_gateway_retries_total")
    )
    refused = sum(
        value for name, value in counted.items() if name.startswith("tonnage_gateway_refused_total")
    )
    print(
        f"the gateway counted {finished:,.0f} requests, {retries:,.0f} of them sent twice;"
        f" {refused:,.0f} refused, {waiting:.0f} left"
    )
    once = len(run.requests) == run.observed.sent == sum(ends.values()) and not waiting
    # a refused request may have been tried
    once = once and finished - retries <= run.observed.sent <= finished - retries + refused
    flat = True
    for name, (mb, mb_last, files, files_last) in watched.grown().items():
        flat = flat and mb_last - mb < MOST_MB and files_last - files < MOST_FILES
        print(
            f"{name}: {mb:.0f} MB and {files} open files in the second quarter, {mb_last:.0f} MB and"
            f" {files_last} in the last"
        )
    print(
        f"every request ended once: {'yes' if once else 'NO'}; memory and open files flat:"
        f" {'yes' if flat else 'NO'}"
    )
    return 0 if once and flat else 1


if __name__ == "__main__":
    sys.exit(main())
