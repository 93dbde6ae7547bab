"""Recorded sessions at other limits: a table that grows with what the limits allow, how far halves
of a recording agree about it, and what keeping caches buys, asked directly."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.agents import halves
from tests.questions import plans_with
from tonnage import size
from tonnage.errors import InputErrors
from tonnage.plan.plan import Plan
from tonnage.report.plans.fleet import admission_text, kept_text, session_tiers_section
from tonnage.sizing.session_tiers import FIRST_TOKENS_S, SLOWDOWNS, crossing

few_parts = plans_with("sessions", "session_tiers")

RECORDED = Path("../shared/data/traces/agentic/claude_code_150.jsonl.gz")
ASKED: dict[str, Any] = {
    "trace": str(RECORDED),
    "model": "glm-4.6",
    "gpu": "h200",
    "precision": "fp8",
    "tp": "4",
    "engine": "vllm",
    "sessions": 400,
    "further_ttft": "p95<=10s",
    "slowdown": "p90<=1.5",
    "session_tiers": True,
}
recorded_sessions = pytest.mark.skipif(
    not RECORDED.exists(), reason="no recorded sessions on this machine"
)


def test_a_table_of_sessions_needs_recorded_ones() -> None:
    with pytest.raises(InputErrors, match="belongs to recorded sessions"):
        size(model="glm-4.6", isl=100, osl=10, peak_rps=1, session_tiers=True)


@given(
    base=st.floats(0.5, 5.0),
    slope=st.floats(0.2, 3.0),
    at=st.floats(2.5, 15.0),
    counts=st.sets(st.integers(1, 20), min_size=6),
)
def test_a_power_law_is_read_where_it_reaches_the_limit(
    base: float, slope: float, at: float, counts: set[int]
) -> None:
    """A line in logarithms is read exactly, whichever runs there are."""
    sessions = np.array(sorted(counts | {1, 20}), float)
    held = crossing(sessions, base * sessions**slope, base * at**slope)
    assert held == pytest.approx(at, rel=0.02)
    assert crossing(sessions, base * sessions**slope, 0.99 * base) == 0.0
    assert math.isinf(crossing(sessions, base * sessions**slope, 1.01 * base * 20**slope))


def test_runs_that_scatter_are_read_nearer_than_by_single_ones() -> None:
    rng = np.random.default_rng(5)
    sessions = np.array([2, 3, 4, 5, 6, 7, 8, 10, 12, 14], float)
    smooth, single = [], []
    for _ in range(200):
        latencies = sessions**0.4 * np.exp(0.04 * rng.standard_normal(len(sessions)))
        smooth.append(crossing(sessions, latencies, 7**0.4))
        over = np.flatnonzero(latencies > 7**0.4)
        single.append(sessions[over[0] - 1] if len(over) and over[0] else sessions[0])
    assert statistics.median(smooth) == pytest.approx(7, rel=0.03)
    assert np.std(np.log(smooth)) < 0.6 * np.std(np.log(single))


@pytest.mark.accuracy
@recorded_sessions
def test_ways_to_keep_a_cache_are_what_they_are_asked_directly() -> None:
    plan = size(**ASKED)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.sessions is not None
    assert plan.session_tiers is not None
    assert plan.choice is not None
    kept = {cache.how: cache for cache in plan.sessions.kept}
    assert kept["offload"].systems == plan.choice.systems
    assert kept["pin"].per_system <= kept["cache"].per_system <= kept["offload"].per_system
    evicted = size(**{**ASKED, "session_tiers": None}, kv_tiers="none")
    assert evicted.choice is not None
    assert kept["cache"].systems == pytest.approx(evicted.choice.systems, rel=0.06)
    dropped = size(**{**ASKED, "session_tiers": None}, kv_tiers="none", prefix_caching=False)
    assert dropped.choice is None
    assert kept["recompute"].systems is None
    assert "recomputed no number: further TTFT p95" in kept_text(plan)
    cells = {
        (tier.slowdown_p90, tier.further_ttft_p95_ms / 1e3): tier
        for tier in plan.session_tiers.speeds
    }
    assert set(cells) == {(slow, seconds) for slow in SLOWDOWNS for seconds in FIRST_TOKENS_S}
    for (slow, seconds), cell in cells.items():
        assert cell.least <= cell.per_system <= cell.most
        assert all(
            cell.per_system >= tighter.per_system - 1e-9
            for (slower, sooner), tighter in cells.items()
            if slower <= slow and sooner <= seconds
        )
    assert cells[1.5, 10.0].systems == plan.choice.systems
    looser = size(**{**ASKED, "session_tiers": None, "slowdown": "p90<=2"})
    assert looser.choice is not None
    assert cells[2.0, 10.0].systems == pytest.approx(looser.choice.systems, rel=0.1)
    first, second = plan.session_tiers.admission
    assert first.slowdown_p90 is not None
    assert second.slowdown_p90 is not None
    assert first.slowdown_p90 < second.slowdown_p90
    assert first.wait_seconds < second.wait_seconds
    assert session_tiers_section(plan).blocks
    assert "and one waits" in admission_text(plan.session_tiers)


@pytest.mark.accuracy
@recorded_sessions
def test_half_of_the_sessions_predict_the_table_of_the_other_half() -> None:
    """Drawn halves, on one deployment: within 10 % at the limits of the question, and as near as
    the intervals say; where one tight limit on first tokens decides, half of 130 sessions cannot
    say a cell to 10 % (docs/tasks.md)."""
    drawn = list(halves(3))
    at_limits = [abs(apart[1.5, 10.0]) for apart, _ in drawn]
    assert statistics.median(at_limits) <= math.log(1.10)
    cells = [statistics.median(map(abs, apart.values())) for apart, _ in drawn]
    assert statistics.median(cells) <= math.log(1.30)
    assert statistics.mean(inside for _, inside in drawn) >= 0.6
