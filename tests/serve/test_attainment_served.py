"""Joint attainment of a simulated engine: what its clients measure is what the simulator says of the same requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tonnage import simulate
from tonnage.api.bench import bench
from tonnage.results.metrics import attained
from tonnage.spec.deployment import Limit, parse_attainment
from tonnage.testing import simulated_engine

SPEED = 0.25
"""The engine's clock is slower than the wall's, so that milliseconds of the machine are quarters of one of the engine's."""


NEAR = 0.03
"""Error of a measured time: the clients' own lateness, and six tokens of the chat's form in each prompt."""


def limit(ttft_ms: float, tpot_ms: float) -> Limit:
    return parse_attainment(f"50%: ttft<={ttft_ms:.4f}ms & tpot<={tpot_ms:.4f}ms")


@pytest.mark.engines
def test_measured_attainment_is_the_simulated(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    due, isl = np.cumsum(rng.exponential(1 / 12, 150)), rng.integers(200, 3_000, 150)
    for name, factor in (("engine", 1.0), ("wall", 1 / SPEED)):
        rows = "".join(f"{at * factor:.6f},{n},60\n" for at, n in zip(due, isl, strict=True))
        (tmp_path / f"{name}.csv").write_text("timestamp,isl,osl\n" + rows)
    asked = {"model": "llama-3.1-8b", "gpu": "l40s", "precision": "fp8", "tp": 1}
    run = simulate(**asked, engine="vllm", arrivals="trace", trace=str(tmp_path / "engine.csv"), requests=150)
    with simulated_engine(**asked, speed=SPEED, prefix_caching=False) as url:
        sent = {"trace": str(tmp_path / "wall.csv"), "metrics_url": ["none"], "selftest": False, "characters_per_token": 4}
        (found,) = bench(url=url, model="llama-3.1-8b", output=tmp_path / "run", **sent)
    first = (run.requests.first_token_ns - run.requests.due_ns) / 1e6
    tpot = (run.requests.last_token_ns - run.requests.first_token_ns) / 59 / 1e6
    for quantile in (50, 70, 85):
        ttft, each = np.percentile(first, quantile), np.percentile(tpot, quantile)
        served = attained(found.requests, (limit(ttft / SPEED, each / SPEED),))[0].share
        low, simulated, high = (attained(run.requests, (limit(f * ttft, f * each),))[0].share for f in (1 - NEAR, 1, 1 + NEAR))
        print(f"simulated {simulated:.3f} ({low:.3f} to {high:.3f} with limits {NEAR:.0%} off), measured {served:.3f}")
        assert 0.05 < simulated < 0.95
        assert low - 0.02 <= served <= high + 0.02
