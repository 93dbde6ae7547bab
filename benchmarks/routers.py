"""What a router is worth, simulated: a slow worker among fast ones, equal instances under load, a fleet of two kinds of GPU.

    python benchmarks/routers.py [--only WORDS]

Llama-3.1-8B on vLLM, 1,000 tokens in, 200 out (both normal, with a deviation of a quarter), Poisson arrivals, seed 1. The same requests
come at the same instants behind every router. "slow" is the share of the requests that the slow instances get. ``balance.py`` measures
three workers behind the gateway and other balancers.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from tonnage.api.deployment import deployment_of
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import DURATIONS
from tonnage.perf.terms import step_model
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.spec.workload import Lengths, OpenLoop, Trace, Workload

ROUTERS = ("round-robin", "random", "weighted", "power-of-two", "least-outstanding", "least-tokens", "least-kv")
ISL, OSL = Lengths(kind="normal", mean=1_000, std=250), Lengths(kind="normal", mean=200, std=50)


def slowed(step: StepModel, factor: float) -> StepModel:
    """Steps that take so many times as long."""
    coefficients = step.coefficients.copy()
    coefficients[list(DURATIONS)] *= factor
    return replace(step, coefficients=coefficients)


def machines(gpu: str, count: int, slower: float = 1.0) -> list[Any]:
    """So many instances on a GPU, whose steps take ``slower`` times as long."""
    d = deployment_of(model="llama-3.1-8b", gpu=gpu, precision="fp16", tp=1, engine="vllm")
    step = step_model(d)
    step = step if slower == 1.0 else slowed(step, slower)
    memory, context = memory_plan(d), d.model.max_context
    return [Engine(step, d.knobs, memory.blocks, windows=memory.windows, max_context=context).machine for _ in range(count)]


def trace(rate: float, requests: int) -> Trace:
    """Requests under an open loop."""
    return Workload(isl=ISL, osl=OSL, arrivals=OpenLoop(rate=rate), requests=requests).trace(1)


def table(title: str, fleet: list[Any], slow: int, weight: list[float], load: Trace) -> None:
    """One line per router; the last ``slow`` instances are the slow ones."""
    print(f"{title}\n\n{'':18} {'TTFT mean':>10} {'TTFT p95':>9} {'TTFT p99':>9} {'E2E mean':>9} {'E2E p95':>9} {'slow':>6}")
    for router in ROUTERS:
        if router in {"least-tokens", "least-kv"} and len(load) * len(fleet) > 1_000_000:
            continue  # these two look at every instance whenever a request comes
        record, chosen = run_fleet(load, fleet, router, seed=1, weight=weight if router == "weighted" else None)
        ttft, e2e = ((column - record.due_ns) / 1e6 for column in (record.first_token_ns, record.last_token_ns))
        share = f"{np.mean(chosen >= len(fleet) - slow):6.1%}" if slow else f"{'–':>6}"
        first = f"{ttft.mean():10,.0f} {np.percentile(ttft, 95):9,.0f} {np.percentile(ttft, 99):9,.0f}"
        print(f"{router:18} {first} {e2e.mean():9,.0f} {np.percentile(e2e, 95):9,.0f} {share}")
    print()


def main() -> None:
    """Print the tables, times in milliseconds."""
    parser = argparse.ArgumentParser(description="what a router is worth")
    parser.add_argument("--only", default="", help="tables whose title holds these words")
    only = parser.parse_args().only
    fast, slow = machines("h100-sxm-80gb", 1)[0], machines("h100-sxm-80gb", 1, 5.0)[0]
    mixed = [*machines("h100-sxm-80gb", 8), *machines("a100-sxm-80gb", 8)]
    tables = [
        ("three workers, one 5 times slower, 12 requests/s", [fast, fast, slow], 1, [5.0, 5.0, 1.0], trace(12, 6_000)),
        ("three workers, one 5 times slower, 24 requests/s", [fast, fast, slow], 1, [5.0, 5.0, 1.0], trace(24, 6_000)),
        ("16 equal instances, 192 requests/s", [fast] * 16, 0, [1.0] * 16, trace(192, 48_000)),
        ("16 equal instances, 256 requests/s", [fast] * 16, 0, [1.0] * 16, trace(256, 48_000)),
        ("8 H100 and 8 A100, 144 requests/s", mixed, 8, [2.0] * 8 + [1.0] * 8, trace(144, 36_000)),
    ]
    for title, *parts in tables:
        if only in title:
            table(title, *parts)


if __name__ == "__main__":
    main()
