"""What a simulated request costs as runs grow: from ten thousand requests to ten million, with long outputs, and over a thousand instances.

    python benchmarks/scale.py [--fleet]

Llama-2-7B on an A100, 512 tokens in, Poisson arrivals. Each run is a process of its own that finds the compiled kernel; it prints the
nanoseconds of CPU of a request without the drawing of the load, and the peak memory of the whole process, load and record included.
128 and 2,048 output tokens are compared at the same number of requests in flight, and so at the same utilisation.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel import run_of

LEAST_REQUESTS = 2_000_000
"""Requests that are simulated at least, in several runs where one has fewer."""

ONE: dict[str, dict[str, Any]] = {
    "10,000 requests": {"rate": 4, "requests": 10_000},
    "100,000 requests": {"rate": 4, "requests": 100_000},
    "1,000,000 requests": {"rate": 4, "requests": 1_000_000},
    "10,000,000 requests": {"rate": 4, "requests": 10_000_000},
    "100,000 of 2,048 output tokens": {"rate": 0.23, "requests": 100_000, "osl": 2_048},
    "100,000 of 2,048, vllm": {"rate": 0.23, "requests": 100_000, "osl": 2_048, "engine": "vllm"},
    "100,000 of 128, vllm": {"rate": 4, "requests": 100_000, "engine": "vllm"},
}
FLEET: dict[str, dict[str, Any]] = {
    "1,000 instances, random": {"router": "random"},
    "1,000 instances, least outstanding": {"router": "least-outstanding"},
}
INSTANCES, IN_ALL = 1_000, 5_000_000


def one(load: dict[str, Any]) -> dict[str, float]:
    """CPU nanoseconds of a request, the best of some runs, and how many decode at once."""
    from tonnage.simulator.kernel import run, warm_up

    warm_up()
    arguments, options = run_of(**{"engine": "tensorrt-llm", **load})
    found = []
    for _ in range(max(LEAST_REQUESTS // load["requests"], 1) if load["requests"] < LEAST_REQUESTS else 1):
        began = time.process_time()
        record = run(*arguments, **options)
        found.append(time.process_time() - began)
    decoding = float((record.last_token_ns - record.first_token_ns).mean()) * load["rate"] / 1e9
    return {"ns": min(found) / load["requests"] * 1e9, "in_flight": decoding}


def fleet(router: str) -> dict[str, float]:
    """The same of a fleet whose instances have the load of the single one each."""
    from tonnage.simulator.engine import Engine
    from tonnage.simulator.kernel.fleet import run_fleet

    (trace, step, knobs, blocks), options = run_of(engine="tensorrt-llm", rate=4 * INSTANCES, requests=IN_ALL)
    machines = [Engine(step, knobs, blocks, max_context=options["max_context"]).machine for _ in range(INSTANCES)]
    few = replace(trace, due_ps=trace.due_ps[:100], isl=trace.isl[:100], osl=trace.osl[:100])
    run_fleet(few, machines, router)
    began = time.process_time()
    record, _ = run_fleet(trace, machines, router)
    seconds = time.process_time() - began
    decoding = float((record.last_token_ns - record.first_token_ns).mean()) * 4 / 1e9
    return {"ns": seconds / IN_ALL * 1e9, "in_flight": decoding, "seconds": seconds}


def main() -> None:
    """Each load in a process of its own."""
    parser = argparse.ArgumentParser(description="what a simulated request costs as runs grow")
    parser.add_argument("--fleet", action="store_true", help="a thousand instances behind a router instead of one")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        found = fleet(FLEET[asked.child]["router"]) if asked.fleet else one(ONE[asked.child])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**found, "peak_mb": peak}))
        return
    print(f"{'':36} {'CPU s':>7} {'ns/request':>11} {'requests/s':>11} {'in flight':>10} {'peak MB':>8}")
    for name in FLEET if asked.fleet else ONE:
        command = [sys.executable, str(Path(__file__).resolve()), "--child", name, *(["--fleet"] if asked.fleet else [])]
        values = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        count = IN_ALL if asked.fleet else ONE[name]["requests"]
        rates = f"{values['ns']:11.0f} {1e9 / values['ns']:11,.0f} {values['in_flight']:10.1f} {values['peak_mb']:8.0f}"
        print(f"{name:36} {values['ns'] * count / 1e9:7.2f} {rates}")


if __name__ == "__main__":
    main()
