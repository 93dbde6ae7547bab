"""What tests of recorded traffic draw and compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.scenario_file import read_scenario
from tonnage.spec.workload import OpenLoop, Workload
from tonnage.workload.burstiness import spread

STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def generated(path: Path, isl: str, osl: str, arrivals: OpenLoop) -> Path:
    """A trace of a workload with known parameters."""
    drawn = Workload(
        isl=parse_lengths(isl, ""), osl=parse_lengths(osl, ""), arrivals=arrivals, requests=20_000
    ).trace(3)
    rows = (
        f"{due / 1e12:.9f},{i},{o}\n"
        for due, i, o in zip(drawn.due_ps, drawn.isl, drawn.osl, strict=True)
    )
    path.write_text("timestamp,isl,osl\n" + "".join(rows))
    return path


def assert_alike(seen: np.ndarray, drawn: np.ndarray, floor: float = 0.0) -> None:
    first, second = spread(seen), spread(drawn)
    for name in STATISTICS:
        a, b = getattr(first, name), getattr(second, name)
        assert abs(b - a) <= 0.10 * max(a, floor), (name, a, b)


def assert_reproduced(trace: Path, scenario: Path, requests: int | None = None) -> None:
    """Mean and percentiles of ISL, OSL and gaps within 10 %, in the requests that a simulation of
    the scenario makes."""
    seen = api.describe_workload(trace).traffic.recording
    asked = {"model": "llama-3.1-8b", "requests": requests}
    if (rate := read_scenario(str(scenario)).demand.peak_rps) is not None:
        asked["request_rate"] = rate
    drawn = simulation_of(scenario, asked).workloads[0].trace(1)
    assert_alike(np.array(seen.isl), drawn.isl)
    assert_alike(np.array(seen.osl), drawn.osl)
    gaps = np.diff(np.array(seen.due_ns)) / 1e9
    assert_alike(gaps, np.diff(drawn.due_ps) / 1e12, floor=1e-3 * gaps.mean())
