"""What the tests of simulation share with others."""

from __future__ import annotations

from typing import Any

from tonnage.api.question.simulation import Simulation, simulation_of

SCENARIO: dict[str, Any] = {
    "model": "llama-3-8b",
    "lengths": {"isl": 100, "osl": 20, "system_prompt": 50},
    "demand": {"peak_rps": 3},
    "search": {
        "gpu": "l40s",
        "precision": "fp8",
        "tp": 2,
        "engine": "vllm",
        "max_num_tokens": 1024,
        "arrivals": "constant",
    },
    "seed": 7,
}


def asked(scenario: Any = SCENARIO, **named: Any) -> Simulation:
    return simulation_of(scenario, named or {"request_rate": 3})


POOLS_IN_SCENARIOS_SCENARIO = """
model: llama-3.1-8b
lengths: {isl: 500, osl: 20}
demand: {peak_rps: 4}
limits: {ttft: p95<=2s, itl: p99<=200ms}
search: {gpu: h100-sxm-80gb, precision: fp16, tp: 1, engine: vllm, disaggregated: 1:2, kv_link: 5GB/s, kv_overlap: true}
"""
