"""What a simulated request costs as runs grow: from ten thousand requests to ten million, with long
outputs, and over a thousand instances.

    ./benchmark scale [--fleet | --week]

Llama-2-7B on an A100, 512 tokens in, Poisson arrivals. Each run is a process of its own that finds
the compiled kernel; it prints the nanoseconds of CPU of a request without the drawing of the load,
and the peak memory of the whole process, load and record included. ``--week`` is a week by the hour
under a controller that starts and releases instances; it prints its CPU seconds with and without
the drawing of the load. 128 and 2,048 output tokens are compared at the same number of requests in
flight, and so at the same utilisation.
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

import numpy as np

from benchmarks.kernel import run_of

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
WEEK = 3_000_000
DAY = (
    30,
    20,
    15,
    12,
    12,
    15,
    25,
    45,
    70,
    90,
    100,
    100,
    95,
    95,
    100,
    100,
    95,
    85,
    75,
    70,
    65,
    60,
    50,
    40,
)
"""Shape of a working day by the hour; Saturday and Sunday have ``WEEKEND`` of it."""
WEEKEND = 0.4


def one(load: dict[str, Any]) -> dict[str, float]:
    """CPU nanoseconds of a request, the best of some runs, and how many decode at once."""
    from tonnage.simulator.kernel import run, warm_up

    warm_up()
    arguments, options = run_of(**{"engine": "tensorrt-llm", **load})
    found = []
    for _ in range(
        max(LEAST_REQUESTS // load["requests"], 1) if load["requests"] < LEAST_REQUESTS else 1
    ):
        began = time.process_time()
        record = run(*arguments, **options)
        found.append(time.process_time() - began)
    decoding = float((record.last_token_ns - record.first_token_ns).mean()) * load["rate"] / 1e9
    return {"ns": min(found) / load["requests"] * 1e9, "in_flight": decoding}


def fleet(router: str) -> dict[str, float]:
    """The same of a fleet whose instances have the load of the single one each."""
    from tonnage.simulator.engine import Engine
    from tonnage.simulator.kernel.fleet import run_fleet

    (trace, step, knobs, blocks), options = run_of(
        engine="tensorrt-llm", rate=4 * INSTANCES, requests=IN_ALL
    )
    machines = [
        Engine(step, knobs, blocks, max_context=options["max_context"]).machine
        for _ in range(INSTANCES)
    ]
    few = replace(trace, due_ps=trace.due_ps[:100], isl=trace.isl[:100], osl=trace.osl[:100])
    run_fleet(few, machines, router)
    began = time.process_time()
    record = run_fleet(trace, machines, router).requests
    seconds = time.process_time() - began
    decoding = float((record.last_token_ns - record.first_token_ns).mean()) * 4 / 1e9
    return {"ns": seconds / IN_ALL * 1e9, "in_flight": decoding, "seconds": seconds}


def week() -> dict[str, float]:
    """A week of ``WEEK`` requests under a controller: CPU seconds of the simulation, of all with
    the drawing, and what it says.
    """
    from tonnage.simulator.autoscaler import Autoscale
    from tonnage.simulator.changes import Changes
    from tonnage.simulator.engine import Engine
    from tonnage.simulator.kernel.fleet import run_fleet
    from tonnage.spec.arrivals import HourlyArrivals
    from tonnage.spec.workload import Lengths, Workload

    (_, step, knobs, blocks), options = run_of(engine="tensorrt-llm", rate=4, requests=10)
    hours = HourlyArrivals(
        hours=tuple(hour * (WEEKEND if day > 4 else 1.0) for day in range(7) for hour in DAY)
    )
    lengths = Lengths(kind="normal", mean=512, std=128), Lengths(kind="normal", mean=128, std=32)
    rule = Autoscale(metric="outstanding", target=6.0, least=1, most=8, start_s=120.0)
    machines = [
        Engine(step, knobs, blocks, max_context=options["max_context"]).machine
        for _ in range(rule.instances)
    ]

    def run(arrivals: HourlyArrivals, most: int) -> Any:
        trace = Workload(isl=lengths[0], osl=lengths[1], arrivals=arrivals, requests=most).trace(0)
        drawn = time.process_time()
        return (
            run_fleet(trace, machines, "least-outstanding", changes=Changes(autoscale=rule)),
            drawn,
        )

    run(hours, 100)
    began = time.process_time()
    week = hours.at_mean(WEEK / (len(hours.hours) * 3600))
    routed, drawn = run(week, week.most)
    ended = time.process_time()
    record, served = routed.requests, routed.changed.served
    return {
        "requests": len(record),
        "seconds": ended - drawn,
        "with_drawing": ended - began,
        "instance_hours": routed.changed.instance_seconds / 3600,
        "most": int(served[:, 0].max()),
        "ttft_p95_ms": float(np.percentile(record.first_token_ns - record.due_ns, 95)) / 1e6,
    }


def main() -> None:
    """Each load in a process of its own."""
    parser = argparse.ArgumentParser(description="what a simulated request costs as runs grow")
    parser.add_argument(
        "--fleet", action="store_true", help="a thousand instances behind a router instead of one"
    )
    parser.add_argument("--week", action="store_true", help="a week by the hour with autoscaling")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        found = fleet(FLEET[asked.child]["router"]) if asked.fleet else one(ONE[asked.child])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**found, "peak_mb": peak}))
        return
    if asked.week:
        found = week()
        print(
            f"a week of {found['requests']:,} requests, 1 to 8 instances: {found['seconds']:.1f} s"
            " of CPU, with its drawing",
            end=" ",
        )
        print(
            f"{found['with_drawing']:.1f}; {found['instance_hours']:,.0f} instance-hours of"
            f" {8 * 168:,}, at most",
            end=" ",
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{found['most']} instances, TTFT p95 {found['ttft_p95_ms']:,.0f} ms, peak"
            f" {peak:,.0f} MB"
        )
        return
    print(
        f"{'':36} {'CPU s':>7} {'ns/request':>11} {'requests/s':>11} {'in flight':>10}"
        f" {'peak MB':>8}"
    )
    for name in FLEET if asked.fleet else ONE:
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--child",
            name,
            *(["--fleet"] if asked.fleet else []),
        ]
        values = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[
                -1
            ]
        )
        count = IN_ALL if asked.fleet else ONE[name]["requests"]
        rates = (
            f"{values['ns']:11.0f} {1e9 / values['ns']:11,.0f} {values['in_flight']:10.1f}"
            f" {values['peak_mb']:8.0f}"
        )
        print(f"{name:36} {values['ns'] * count / 1e9:7.2f} {rates}")


if __name__ == "__main__":
    main()
