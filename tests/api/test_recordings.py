"""Traces of every kind: what load clients really wrote, run folders, and traffic of BurstGPT's
shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tonnage
from tonnage import api
from tonnage.workload.burstiness import spread

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"


SEEDS = 8
"""Runs that are taken together: twenty requests of two thousand decide a p99, which differs by 15 %
from draw to draw."""


def burstgpt(path: Path, count: int = 4_000) -> Path:
    """Traffic of BurstGPT's columns and shape: bursts of gamma gaps by the ten minutes, correlated
    lengths, failures of 0 tokens."""
    rng = np.random.default_rng(11)
    rates = np.repeat(rng.gamma(1.5, 1.0, count // 200), 200)
    due = (rng.gamma(0.5, 2.0, count) / (0.05 + rates)).cumsum()
    prompts = np.clip(rng.lognormal(6.0, 1.0, count), 1, 8000).astype(int)
    outputs = np.clip(0.2 * prompts + rng.lognormal(4.5, 0.8, count), 1, 4000).astype(int)
    outputs[rng.random(count) < 0.03] = 0
    rows = (
        f"{at:.3f},ChatGPT,{i},{o},{i + o},Conversation log\n"
        for at, i, o in zip(due, prompts, outputs, strict=True)
    )
    path.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(rows)
    )
    return path


AZURE, MOONCAKE = "AzureLLMInferenceTrace_2023_conv.csv", "mooncake_conversation_2000.jsonl"


@pytest.mark.parametrize(
    "name",
    [pytest.param(AZURE, marks=pytest.mark.accuracy), MOONCAKE, ""],
    ids=["azure", "mooncake", "burstgpt"],
)
def test_a_fitted_scenario_is_simulated_with_the_percentiles_of_its_trace(
    name: str, tmp_path: Path
) -> None:
    """The record of the simulation beside the trace: gaps, prompts and outputs, mean and p50 to
    p99, within 10 %."""
    trace = TRACES / name if name else burstgpt(tmp_path / "burst.csv")
    if not trace.exists():
        pytest.skip("the whole traces are not part of a checkout")
    seen = api.describe_workload(trace).traffic.recording
    fitted = api.fit_workload(trace, tmp_path / "scenario.yaml")
    asked: dict[str, object] = {"model": "llama-3.1-8b", "gpu": "b200-sxm-180gb"}
    if fitted.scenario.demand.peak_rps is not None:
        asked |= {"request_rate": fitted.scenario.demand.peak_rps, "requests": len(seen)}
    records = [
        tonnage.simulate(tmp_path / "scenario.yaml", seed=seed, **asked).requests
        for seed in range(SEEDS)
    ]
    pairs = {
        "isl": (np.array(seen.isl), np.concatenate([one.isl for one in records])),
        "osl": (np.array(seen.osl), np.concatenate([one.osl for one in records])),
        "gaps": (
            np.diff(np.array(seen.due_ns)) / 1e9,
            np.concatenate([np.diff(one.due_ns) for one in records]) / 1e9,
        ),
    }
    for what, (one, other) in pairs.items():
        first, second = spread(one), spread(other)
        floor = 1e-3 * one.mean() if what == "gaps" else 0.0
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            a, b = getattr(first, statistic), getattr(second, statistic)
            assert abs(b - a) <= 0.10 * max(a, floor), (what, statistic, a, b)
