"""Calls that mypy checks and nobody runs: what is wrong must be an error, or its ``ignore`` is
unused, which is one too."""

from pathlib import Path
from typing import assert_type

import tonnage
from tonnage.simulator.simulated_run import SimulatedRun


def right_calls() -> None:
    """Every form of an argument that Python takes."""
    plan = tonnage.size(
        model="llama-3-8b",
        isl=2000,
        osl="200+-50",
        peak_rps=3,
        gpu=["h100", "l40s"],
        tp=(1, 2),
        ttft="p95<=500ms",
    )
    assert_type(plan, tonnage.Plan)
    tonnage.size(
        "scenario.yaml",
        price=["systems.dgx-h100=250000"],
        prices=Path("prices.yaml"),
        profile=[1.0] * 24,
    )
    tonnage.size({"model": "llama-3-8b"}, mode="sequential", seed=None)
    tonnage.calibrate([Path("points.csv")], gpu="h100", tp=1)
    run = tonnage.simulate(
        Path("scenario.yaml"), concurrency=4, chunked_prefill=True, pairs=Path("lengths.csv")
    )
    assert_type(run, SimulatedRun)


def wrong_calls() -> None:
    """Names that there are not, and values of another kind."""
    tonnage.size(model="llama-3-8b", peek_rps=3)  # type: ignore[call-arg]
    tonnage.size(model=8)  # type: ignore[arg-type]
    tonnage.size(mode="streamed")  # type: ignore[arg-type]
    tonnage.simulate(model="llama-3-8b", isl=1, osl=2, batcher="dynamic")  # type: ignore[arg-type]
    tonnage.simulate(model=["llama-3-8b", "llama-3-70b"])  # type: ignore[arg-type]
    tonnage.score()  # type: ignore[call-arg]
