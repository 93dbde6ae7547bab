"""Recorded sessions at other limits: a table that grows with what the limits allow, and how far
halves of a recording agree about it."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pytest

from tests.questions import plans_with
from tonnage import size
from tonnage.errors import InputErrors
from tonnage.plan.demand import SessionTiers
from tonnage.plan.plan import Plan
from tonnage.report.plans.fleet import session_tiers_section, session_tiers_text
from tonnage.sizing.session_tiers import FIRST_TOKENS_S, SLOWDOWNS

few_parts = plans_with("sessions", "session_tiers")

RECORDED = Path("../shared/data/traces/agentic/claude_code_150.jsonl.gz")
ASKED: dict[str, Any] = {
    "model": "glm-4.6",
    "gpu": "h200",
    "precision": "fp8",
    "tp": "4",
    "engine": "vllm",
    "sessions": 200,
    "further_ttft": "p95<=10s",
    "slowdown": "p90<=1.5",
    "session_tiers": True,
}
WITHIN = 0.40
"""What the median cell of one half may be off. The halves themselves differ by 17 % in the tokens
that a session computes a second: 65 sessions are too few to know a table to 10 %."""


def test_a_table_of_sessions_needs_recorded_ones() -> None:
    with pytest.raises(InputErrors, match="belongs to recorded sessions"):
        size(model="glm-4.6", isl=100, osl=10, peak_rps=1, session_tiers=True)


def table(found: SessionTiers) -> dict[tuple[float, float], float]:
    return {
        (tier.slowdown_p90, tier.further_ttft_p95_ms / 1e3): tier.per_system
        for tier in found.speeds
    }


@pytest.mark.accuracy
@pytest.mark.skipif(not RECORDED.exists(), reason="no recorded sessions on this machine")
def test_half_of_the_sessions_predict_the_table_of_the_other_half_roughly(tmp_path: Path) -> None:
    """Every second session is held out."""
    lines = gzip.decompress(RECORDED.read_bytes()).decode().splitlines()
    plans = []
    for place in (0, 1):
        path = tmp_path / f"half{place}.jsonl"
        path.write_text("\n".join(lines[place::2]) + "\n", encoding="utf-8")
        plans.append(size(**ASKED, trace=str(path)))
    first, second = (plan.session_tiers for plan in plans)
    assert Plan.from_json(plans[0].to_json()) == plans[0]
    cells, others = table(first), table(second)
    assert set(cells) == {(slow, seconds) for slow in SLOWDOWNS for seconds in FIRST_TOKENS_S}
    for (slow, seconds), held in cells.items():
        assert all(
            held >= less - 1e-9
            for (slower, sooner), less in cells.items()
            if slower <= slow and sooner <= seconds
        )
    apart = {cell: abs(math.log(cells[cell] / others[cell])) for cell in cells if others[cell]}
    assert sorted(apart.values())[len(apart) // 2] <= math.log(1 + WITHIN)
    kept = {one.how: one.per_system for one in first.kept}
    assert kept["recompute"] <= kept["pin"] <= kept["cache"] <= kept["offload"]
    assert [one.over for one in first.admission] == sorted(one.over for one in first.admission)
    assert first.admission[0].slowdown_p90 < first.admission[1].slowdown_p90
    assert session_tiers_section(plans[0]).blocks
    assert "with it" in session_tiers_text(first)
