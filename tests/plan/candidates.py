"""A candidate of a plan with whatever of it a test is about; the rest is plausible."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tonnage.plan.candidate import Candidate, Pool
from tonnage.plan.demand import Demand
from tonnage.plan.limit import SATURATION, Limit, Load
from tonnage.plan.plan import Plan, Understood
from tonnage.plan.sensitivity import Provenance
from tonnage.results.metrics import Latencies

POOL: dict[str, Any] = {
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp8",
    "tp": 1,
    "engine": "tensorrt-llm-0.15",
    "system": "dgx-h100",
    "gpus_per_system": 8,
    "knobs": None,
    "systems": 1,
}


def candidate(**changed: Any) -> Candidate:
    """Fields of the candidate or of its only pool by their names."""
    names = {part.name for part in fields(Pool)}
    of_pool = {**POOL, **{name: value for name, value in changed.items() if name in names}}
    gpus = of_pool["tp"] * of_pool.get("pp", 1)
    pool = Pool(**{"instances": of_pool["systems"] * of_pool["gpus_per_system"] // gpus, **of_pool})
    rate = changed.get("requests_per_second_per_instance", 1.0)
    values: dict[str, Any] = {
        "systems_exact": float(pool.systems),
        "requests_per_second_per_instance": rate,
        "requests_per_second_per_gpu": rate / gpus,
        "requests_per_second_per_8_gpus": rate / gpus * 8,
        "output_tokens_per_second_per_8_gpus": None,
        "saturation_requests_per_second_per_instance": rate,
        "concurrency_per_instance": 1.0,
        "utilisation": 1.0,
        "headroom_to_saturation": 0.0,
        **{
            f"{metric}_ms": Latencies(mean=1.0, p50=1.0, p90=1.0, p95=1.0, p99=1.0)
            for metric in ("ttft", "itl", "tpot", "e2e")
        },
        "binds": SATURATION,
        "load": Load(kind="open", requests_per_second=rate, process="poisson"),
    }
    return Candidate(
        pools=(pool,),
        **{**values, **{name: value for name, value in changed.items() if name not in names}},
    )


def plan_of(
    demand: Demand, *candidates: Candidate, isl: float = 2_000.0, osl: float = 200.0, **changed: Any
) -> Plan:
    """A plan of a demand and some candidates."""
    limits: tuple[Limit, ...] = changed.pop("limits", ())
    understood = Understood(
        model="llama-3-8b",
        gpus=("h100-sxm-80gb",),
        precisions=("fp8",),
        tps=(1,),
        engines=("tensorrt-llm-0.15",),
        isl=f"{isl:g}",
        osl=f"{osl:g}",
        mean_isl=isl,
        mean_osl=osl,
        limits=limits,
        limits_that_count=limits,
        mode="streaming",
        load="open",
    )
    values: dict[str, Any] = {"rejected": (), "notes": (), "provenance": Provenance(tonnage="0")}
    return Plan(scenario=understood, demand=demand, candidates=candidates, **{**values, **changed})
