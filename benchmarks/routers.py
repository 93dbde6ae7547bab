"""What a router is worth, simulated: a slow worker, equal instances, equal lengths, mixed GPUs,
engines and models, instances that fail.

    ./benchmark routers [--only WORDS]

Llama-3.1-8B on vLLM, 1,000 tokens in, 200 out (both normal, with a deviation of a quarter), Poisson
arrivals, seed 1. The same requests come at the same instants behind every router. "slow" is the
share of the requests that the slow instances get. ``balance.py`` measures three workers behind the
gateway and other balancers. The last table is one of conversations, with the share of the prompt
tokens that the instances' prefix caches have; it is made by the plain simulator.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from tonnage.api.question.deployment import deployment_of
from tonnage.api.sizing import ask
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import DURATIONS
from tonnage.perf.terms import step_model
from tonnage.results.requests import COMPLETED
from tonnage.simulator import reference
from tonnage.simulator.changes import Changes, Failures, Retry, outages_of
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.shared_fleet import simulate_shared_fleet
from tonnage.sizing.loads.capacity import find_capacity
from tonnage.sizing.loads.fleet_check import fleet_record
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.question import Question
from tonnage.sizing.search.search_space import prepare
from tonnage.spec.deployment import Limit
from tonnage.spec.sessions import Pause, Sessions
from tonnage.spec.workload import Lengths, OpenLoop, Trace, Workload

ROUTERS = (
    "round-robin",
    "random",
    "weighted",
    "power-of-two",
    "least-outstanding",
    "least-tokens",
    "least-kv",
)
EXACTLY = Lengths(kind="fixed", mean=1_000, std=0), Lengths(kind="fixed", mean=200, std=0)
ISL, OSL = Lengths(kind="normal", mean=1_000, std=250), Lengths(kind="normal", mean=200, std=50)


def slowed(step: StepModel, factor: float) -> StepModel:
    """Steps that take so many times as long."""
    coefficients = step.coefficients.copy()
    coefficients[list(DURATIONS)] *= factor
    return replace(step, coefficients=coefficients)


def machines(
    gpu: str,
    count: int,
    slower: float = 1.0,
    *,
    model: str = "llama-3.1-8b",
    precision: str = "fp16",
    engine: str = "vllm",
) -> list[Any]:
    """So many instances on a GPU, whose steps take ``slower`` times as long."""
    d = deployment_of(model=model, gpu=gpu, precision=precision, tp=1, engine=engine)
    step = step_model(d)
    step = step if slower == 1.0 else slowed(step, slower)
    memory, context = memory_plan(d), d.model.max_context
    return [
        Engine(step, d.knobs, memory.blocks, windows=memory.windows, max_context=context).machine
        for _ in range(count)
    ]


def trace(rate: float, requests: int, isl: Lengths = ISL, osl: Lengths = OSL) -> Trace:
    """Requests under an open loop."""
    return Workload(isl=isl, osl=osl, arrivals=OpenLoop(rate=rate), requests=requests).trace(1)


def table(title: str, fleet: list[Any], slow: int, weight: list[float], load: Trace) -> None:
    """One line per router; the last ``slow`` instances are the slow ones."""
    print(
        f"{title}\n\n{'':18} {'TTFT mean':>10} {'TTFT p95':>9} {'TTFT p99':>9} {'E2E mean':>9}"
        f" {'E2E p95':>9} {'slow':>6}"
    )
    for router in ROUTERS:
        if router in {"least-tokens", "least-kv"} and len(load) * len(fleet) > 1_000_000:
            continue  # these two look at every instance whenever a request comes
        routed = run_fleet(
            load, fleet, router, seed=1, weight=weight if router == "weighted" else None
        )
        record, chosen = routed.requests, routed.chosen
        ttft, e2e = (
            (column - record.due_ns) / 1e6
            for column in (record.first_token_ns, record.last_token_ns)
        )
        share = f"{np.mean(chosen >= len(fleet) - slow):6.1%}" if slow else f"{'–':>6}"
        first = (
            f"{ttft.mean():10,.0f} {np.percentile(ttft, 95):9,.0f} {np.percentile(ttft, 99):9,.0f}"
        )
        print(f"{router:18} {first} {e2e.mean():9,.0f} {np.percentile(e2e, 95):9,.0f} {share}")
    print()


def failing(title: str, fleet: list[Any], load: Trace, failures: Failures) -> None:
    """One line per router and rule: who is lost, who is sent again, and what those see who are
    served.
    """
    print(
        f"{title}\n\n{'':18} {'retry':>10} {'failures':>9} {'worked':>8} {'again':>6} {'lost':>6}"
        f" {'TTFT p99':>9} {'E2E p95':>9}"
    )
    for router in ("round-robin", "power-of-two", "least-outstanding", "least-tokens"):
        for retry in ("none", "unanswered", "all"):
            rule: Retry = retry  # type: ignore[assignment]
            outages = outages_of(failures, len(fleet), int(load.due_ps[-1]), seed=1)
            routed = run_fleet(
                load, fleet, router, seed=1, changes=Changes(outages=outages, retry=rule)
            )
            record, changed = routed.requests, routed.changed
            done = record.status == COMPLETED
            ttft, e2e = (
                (column - record.due_ns)[done] / 1e6
                for column in (record.first_token_ns, record.last_token_ns)
            )
            told = (
                f"{retry:>10} {changed.failures:9} {changed.availability:8.2%} {changed.retried:6,}"
                f" {int((~done).sum()):6,}"
            )
            print(
                f"{router:18} {told} {np.percentile(ttft, 99):9,.0f} {np.percentile(e2e, 95):9,.0f}"
            )
    print()


CHATS = Sessions(
    prefix_tokens=1_000,
    prefixes=20,
    turns=Lengths(mean=6.0),
    think=Pause(mean_s=20.0, exponential=True),
)
CHAT_ROUTERS = (
    "round-robin",
    "random",
    "least-outstanding",
    "power-of-two",
    "prefix-aware",
    "session",
)


def conversations(title: str, count: int, rate: float, requests: int) -> None:
    """One line per router, of conversations on so many equal instances."""
    d = deployment_of(
        model="llama-3.1-8b", gpu="h100-sxm-80gb", precision="fp16", tp=1, engine="vllm"
    )
    step, memory, lengths = (
        step_model(d),
        memory_plan(d),
        {"isl": Lengths(mean=400.0), "osl": Lengths(mean=150.0)},
    )
    load = Workload(
        **lengths, arrivals=OpenLoop(rate=rate), requests=requests, sessions=CHATS
    ).trace(1)
    print(
        f"{title}\n\n{'':18} {'hit rate':>9} {'TTFT mean':>10} {'TTFT p95':>9} {'E2E mean':>9}"
        f" {'E2E p95':>9}"
    )
    for router in CHAT_ROUTERS:
        engines = [
            reference.Engine(step, d.knobs, memory.blocks, contents=load.contents)
            for _ in range(count)
        ]
        record = simulate_shared_fleet(load, engines, router, seed=1).requests
        ttft, e2e = (
            (column - record.due_ns) / 1e6
            for column in (record.first_token_ns, record.last_token_ns)
        )
        found = record.cached_tokens.sum() / record.isl.sum()
        first = f"{ttft.mean():10,.0f} {np.percentile(ttft, 95):9,.0f}"
        print(
            f"{router:18} {found:9.1%} {first} {e2e.mean():9,.0f} {np.percentile(e2e, 95):9,.0f}",
            flush=True,
        )
    print()


ASKED: tuple[dict[str, Any], ...] = (
    {
        "model": "llama-3.1-8b",
        "gpu": "h100",
        "precision": "fp8",
        "tp": 1,
        "engine": "vllm",
        "isl": 2000,
        "osl": 200,
    },
    {
        "model": "llama-3.1-8b",
        "gpu": "l40s",
        "precision": "fp8",
        "tp": 1,
        "engine": "tensorrt-llm",
        "isl": 500,
        "osl": 300,
    },
    {
        "model": "llama-3.1-70b",
        "gpu": "h100",
        "precision": "fp8",
        "tp": 4,
        "engine": "vllm",
        "isl": 4000,
        "osl": 500,
    },
    {
        "model": "llama-3.1-70b",
        "gpu": "b200",
        "precision": "fp8",
        "tp": 2,
        "engine": "tensorrt-llm",
        "isl": 100_000,
        "osl": 1000,
    },
    {
        "model": "qwen3-32b",
        "gpu": "h200",
        "precision": "fp8",
        "tp": 1,
        "engine": "sglang",
        "isl": 1000,
        "osl": 1000,
    },
    {"model": "gpt-oss-120b", "gpu": "b200", "tp": 1, "engine": "vllm", "isl": 3000, "osl": 600},
    {
        "model": "qwen3-30b-a3b",
        "gpu": "b300",
        "precision": "fp8",
        "tp": 1,
        "engine": "vllm",
        "isl": 8000,
        "osl": 400,
    },
    {
        "model": "llama-3.1-8b",
        "gpu": "b200",
        "precision": "fp8",
        "tp": 1,
        "engine": "vllm",
        "isl": "lognormal:3000,3000",
        "osl": 150,
    },
    {
        "model": "llama-3.3-70b",
        "gpu": "h200",
        "precision": "fp8",
        "tp": 2,
        "engine": "vllm",
        "isl": 6000,
        "osl": 100,
    },
    {
        "model": "kimi-k2.6",
        "gpu": "b300",
        "tp": 8,
        "engine": "tensorrt-llm",
        "isl": 8000,
        "osl": 800,
    },
)
"""Questions whose lengths are drawn within ±20 %, or as they say."""

BUSY = 0.85
"""Share of what the instances complete at most."""


def asked_instance(question: Question) -> Instance:
    """An instance of the only deployment of a question."""
    return next(found.instance for found in prepare(question, Runs()) if isinstance(found, Ready))


def questions(title: str) -> None:
    """The 95th percentile of TTFT of 16 instances at ``BUSY``, behind the three routers."""
    names = ("random", "power-of-two", "least-outstanding")
    print(f"{title}\n\n{'':58} " + " ".join(f"{name:>17}" for name in names))
    for asked in ASKED:
        instance = asked_instance(ask(**asked, peak_rps=1).questions[0])
        rate = BUSY * Runs().saturation(instance) * 16
        found = [fleet_record(instance, rate, 16, name)[0] for name in names]
        p95 = [np.percentile((one.first_token_ns - one.due_ns) / 1e6, 95) for one in found]
        said = (
            f"{asked['model']} {asked['gpu']} TP {asked['tp']} {asked['engine']}"
            f" {asked['isl']}/{asked['osl']}"
        )
        print(f"{said:58} " + " ".join(f"{one:17,.0f}" for one in p95), flush=True)
    print()


def stand_ins(title: str) -> None:
    """What each of 64 instances carries more than each of 16 that stand for them, inside the TTFT
    that 16 have under ``BUSY``.
    """
    print(f"{title}\n\n{'':58} {'Poisson':>9} {'gamma, CV 3':>12}")
    for asked in ASKED[:3]:
        more = []
        for bursts in ({}, {"arrivals": "gamma", "cv": 3}):
            instance, runs = asked_instance(ask(**asked, **bursts, peak_rps=1).questions[0]), Runs()
            at_busy = fleet_record(instance, BUSY * runs.saturation(instance) * 16, 16)[0]
            limit = Limit(
                metric="ttft",
                statistic="p95",
                seconds=float(np.percentile(at_busy.first_token_ns - at_busy.due_ns, 95)) / 1e9,
            )
            few, many = (
                find_capacity(runs, instance, (limit,), instances=count).rate for count in (16, 64)
            )
            more.append(f"{many / few - 1:+.1%}")
        said = (
            f"{asked['model']} {asked['gpu']} TP {asked['tp']} {asked['engine']}"
            f" {asked['isl']}/{asked['osl']}"
        )
        print(f"{said:58} {more[0]:>9} {more[1]:>12}", flush=True)
    print()


def main() -> None:
    """Print the tables, times in milliseconds."""
    parser = argparse.ArgumentParser(description="what a router is worth")
    parser.add_argument("--only", default="", help="tables whose title holds these words")
    only = parser.parse_args().only
    fast, slow = machines("h100-sxm-80gb", 1)[0], machines("h100-sxm-80gb", 1, 5.0)[0]
    mixed = [*machines("h100-sxm-80gb", 8), *machines("a100-sxm-80gb", 8)]
    tables = [
        (
            "three workers, one 5 times slower, 12 requests/s",
            [fast, fast, slow],
            1,
            [5.0, 5.0, 1.0],
            trace(12, 6_000),
        ),
        (
            "three workers, one 5 times slower, 24 requests/s",
            [fast, fast, slow],
            1,
            [5.0, 5.0, 1.0],
            trace(24, 6_000),
        ),
        ("16 equal instances, 192 requests/s", [fast] * 16, 0, [1.0] * 16, trace(192, 48_000)),
        ("16 equal instances, 256 requests/s", [fast] * 16, 0, [1.0] * 16, trace(256, 48_000)),
        (
            "16 equal instances, 192 requests/s of exactly 1,000 and 200 tokens",
            [fast] * 16,
            0,
            [1.0] * 16,
            trace(192, 48_000, *EXACTLY),
        ),
        ("8 H100 and 8 A100, 144 requests/s", mixed, 8, [2.0] * 8 + [1.0] * 8, trace(144, 36_000)),
        (
            (
                "4 H100 on vLLM, 4 H100 in FP8 on TensorRT-LLM, 4 L40S with Qwen3-8B in FP8 on"
                " vLLM, 96 requests/s"
            ),
            [
                *machines("h100-sxm-80gb", 4),
                *machines("h100-sxm-80gb", 4, precision="fp8", engine="tensorrt-llm"),
                *machines("l40s", 4, model="qwen3-8b", precision="fp8"),
            ],
            4,
            [3.0] * 4 + [4.0] * 4 + [1.0] * 4,
            trace(96, 36_000),
        ),
    ]
    for title, *parts in tables:
        if only in title:
            table(title, *parts)
    title = "16 instances that fail, every 10 minutes each, for 1 minute, 160 requests/s"
    if only in title:
        failing(title, [fast] * 16, trace(160, 96_000), Failures(mtbf_s=600.0, repair_s=60.0))
    title = "conversations of 6 turns on 4 instances, 60 requests/s"
    if only in title:
        conversations(title, 4, 60.0, 6_000)
    title = "TTFT p95 of ten questions, 16 instances at 85 % of what they complete"
    if only in title:
        questions(title)
    title = "what each of 64 instances carries, over 16 that stand for them"
    if only in title:
        stand_ins(title)


if __name__ == "__main__":
    main()
