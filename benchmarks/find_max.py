"""The highest load of a server whose capacity is known, searched over the wire: the exact server
with a queue before its slots.

    ./benchmark find_max [SEARCHES] [--slo "ttft p95<=500ms"] [--duration 20s]

Each search begins at another load and sends requests at constant gaps, so that the limit is met up
to the capacity: slots over the time of a request. Four minutes each at most, mostly spent waiting;
wants a machine that is otherwise idle.
"""

from __future__ import annotations

import argparse
import time

from tonnage.api.bench import prepare_bench, run_find_max
from tonnage.bench.exact_server import Schedule, exact_server

SLOTS, TOKENS = 8, 16
SCHEDULE = Schedule(ttft_s=0.05, itl_s=0.01, slots=SLOTS)
CAPACITY = SLOTS / SCHEDULE.service_s(TOKENS)
STARTS = (10.0, 7.0, 90.0, 33.0, 23.0)


def search(start: float, slo: str, duration: str) -> None:
    """One search; prints its runs and what it found."""
    began, cpu = time.monotonic(), time.process_time()
    with exact_server(SCHEDULE, seconds=900) as url:
        load = {
            "request_rate": start,
            "arrival_pattern": "constant",
            "isl": 50,
            "osl": TOKENS,
            "benchmark_duration": duration,
        }
        prepared = prepare_bench(url=url, model="m", slo=[slo], **load)
        found = run_find_max(prepared, output=None, selftest=False, provenance={})
    for trial in found.trials:
        print(
            f"    {trial.load:7.2f}/s {'passed' if trial.passed else 'failed'}, sure"
            f" {trial.sure:.2f} {trial.why}"
        )
    low, high = found.interval
    print(
        f"capacity {CAPACITY:g}/s, from {start:g}/s: found {found.load:.2f}"
        f" ({found.load / CAPACITY - 1:+.1%}), interval {low:.2f} to {high:.2f}"
        f" ({'holds' if low <= CAPACITY <= high else 'misses'} it, {high / low - 1:.1%} wide),"
        f" {len(found.trials)} runs, {time.monotonic() - began:.0f} s,"
        f" {time.process_time() - cpu:.1f} s CPU",
        flush=True,
    )


def main() -> None:
    """Search as often as asked."""
    flags = argparse.ArgumentParser()
    flags.add_argument("searches", nargs="?", type=int, default=3)
    flags.add_argument("--slo", default="ttft p95<=500ms")
    flags.add_argument("--duration", default="20s")
    asked = flags.parse_args()
    for place in range(asked.searches):
        search(STARTS[place % len(STARTS)], asked.slo, asked.duration)


if __name__ == "__main__":
    main()
