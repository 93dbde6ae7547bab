"""Two plans to deploy: a dense model on single GPUs, and a mixture of experts over whole systems;
both with fixed numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.plan.candidates import candidate, plan_of
from tonnage.plan.candidate import Candidate, CurvePoint, MemoryPart
from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.fleet import AtPeak
from tonnage.plan.launch import command
from tonnage.plan.limit import Limit
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import Provenance
from tonnage.results.metrics import Latencies
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.deployment import EngineKnobs, Parallelism
from tonnage.spec.engine import default_knobs

DENSE_CHECKPOINT = "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8"
MADE = Provenance(tonnage="0.1.0", date="2026-11-22", seed=0)


def latencies(mean: float) -> Latencies:
    return Latencies(mean=mean, p50=mean, p90=1.5 * mean, p95=2 * mean, p99=3 * mean)


def started(
    engine: str, model: str, split: Parallelism, knobs: EngineKnobs, *, kv_8bit: bool
) -> dict[str, Any]:
    """The command and the file of a pool."""
    found = command(
        find_engine(engine).launch,
        checkpoint=model,
        parallelism=split,
        knobs=knobs,
        max_context=4_096,
        kv_8bit=kv_8bit,
    )
    return {"launch": found.argv, "launch_file": found.file}


def dense(engine: str = "vllm-0.32", **changed: Any) -> Plan:
    """Llama 3.1 8B in FP8 on one DGX H100, at most 31 requests/s an instance, of which the plan
    counts on 27."""
    knobs = replace(
        default_knobs(find_engine(engine), find_gpu("h100-sxm-80gb"), ranks=1), max_num_tokens=2_048
    )
    chosen = candidate(
        model="llama-3.1-8b",
        precision="fp8",
        engine=engine,
        engine_preset=engine,
        knobs=knobs,
        memory=(MemoryPart(part="weights", bytes_per_gpu=9_080_668_160, share=0.106),),
        **started(engine, "llama-3.1-8b", Parallelism(), knobs, kv_8bit=True),
        requests_per_second_per_instance=31.0,
        sized_requests_per_second_per_instance=27.0,
        concurrency_per_instance=200.0,
        at_peak=at_peak(7.5, instances=8),
        e2e_ms=latencies(6_000.0),
        utilisation=0.24,
        **changed,
    )
    limits = (
        Limit(metric="ttft", statistic="p95", milliseconds=500.0),
        Limit(metric="itl", statistic="p95", milliseconds=50.0),
    )
    curve = (
        point(20.0, 40.0, inside=True),
        point(26.0, 80.0, inside=True),
        point(31.0, 200.0, inside=True),
        point(32.5, 300.0, inside=False),
    )
    return finished(chosen, 60.0, 1_000, 200, limits=limits, curve=curve)


def experts() -> Plan:
    """DeepSeek V3 in its own FP8, tensor- and expert-parallel over eight H200, seven systems; its
    limits lie between buckets."""
    engine, split = "vllm-0.32", Parallelism(tp=8, ep=8)
    knobs = default_knobs(find_engine(engine), find_gpu("h200-sxm-141gb"), ranks=1)
    chosen = candidate(
        model="deepseek-v3",
        gpu="h200-sxm-141gb",
        system="dgx-h200",
        systems=7,
        precision="fp8",
        tp=8,
        ep=8,
        engine=engine,
        engine_preset=engine,
        knobs=knobs,
        memory=(MemoryPart(part="weights", bytes_per_gpu=85_000_000_000, share=0.6),),
        **started(engine, "deepseek-v3", split, knobs, kv_8bit=False),
        requests_per_second_per_instance=6.4,
        concurrency_per_instance=180.0,
        at_peak=at_peak(40 / 7, instances=7),
        e2e_ms=latencies(19_000.0),
        utilisation=0.89,
    )
    limits = (
        Limit(metric="ttft", statistic="p90", milliseconds=2_000.0),
        Limit(metric="tpot", statistic="mean", milliseconds=60.0),
    )
    return finished(chosen, 40.0, 2_000, 500, limits=limits, mean=22.0)


def finished(
    chosen: Candidate,
    peak: float,
    isl: float,
    osl: float,
    *,
    mean: float | None = None,
    **changed: Any,
) -> Plan:
    demand = Demand(
        peak_requests_per_second=peak,
        sizing_requests_per_second=peak,
        mean_requests_per_second=mean,
        source=DemandSource(kind="peak", requests_per_second=peak),
    )
    return plan_of(demand, chosen, isl=isl, osl=osl, provenance=MADE, **changed)


def at_peak(rate: float, *, instances: int) -> AtPeak:
    return AtPeak(
        requests_per_second_per_instance=rate,
        ttft_ms=latencies(45.0),
        itl_ms=latencies(6.0),
        tpot_ms=latencies(6.0),
        e2e_ms=latencies(1_200.0),
        utilisation=0.24,
        instances=instances,
    )


def point(rate: float, in_flight: float, *, inside: bool) -> CurvePoint:
    return CurvePoint(
        mark="",
        requests_per_second_per_instance=rate,
        requests_per_second_per_8_gpus=8 * rate,
        output_tokens_per_second_per_8_gpus=1_600 * rate,
        concurrency_per_instance=in_flight,
        share_of_saturation=rate / 33,
        inside_limits=inside,
        ttft_ms=latencies(45.0),
        itl_ms=latencies(6.0),
        tpot_ms=latencies(6.0),
        e2e_ms=latencies(1_200.0),
    )
