"""What requests see at the asked peak, and that a row of the table is what choosing it gives."""

from typing import Any

import pytest

import tonnage
from tonnage.plan.plan import Plan

ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100,l40s",
    "precision": "fp8",
    "tp": "1,2",
    "engine": "vllm",
    "isl": 1000,
    "osl": 100,
    "peak_rps": 100,
    "ttft": "p95<=500ms",
    "tpot": "p95<=60ms",
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return tonnage.size(**ASKED)


def test_the_peak_is_easier_than_the_limit(plan: Plan) -> None:
    for candidate in plan.candidates:
        peak = candidate.at_peak
        assert peak.utilisation == candidate.utilisation <= 1
        assert peak.requests_per_second_per_instance * candidate.instances == pytest.approx(100)
        for metric in ("ttft_ms", "tpot_ms", "e2e_ms"):
            assert getattr(peak, metric).mean <= getattr(candidate, metric).mean * 1.02
        assert peak.ttft_ms.p95 <= 500
        assert peak.tpot_ms.p95 <= 60
        assert peak.instances <= candidate.instances
    assert plan.candidates[0].at_peak.instances == plan.candidates[0].instances


def test_almost_no_load_sees_an_empty_engine() -> None:
    idle = tonnage.size(**{**ASKED, "gpu": "h100", "tp": 1, "peak_rps": 0.1}).choice
    assert idle.at_peak.utilisation < 0.01
    assert idle.at_peak.tpot_ms.mean < 0.5 * idle.tpot_ms.mean
    assert idle.at_peak.e2e_ms.mean < 0.5 * idle.e2e_ms.mean
    assert idle.confidence.meets > 0.99


def test_spare_systems_stand_by() -> None:
    without, spared = (tonnage.size(**{**ASKED, "gpu": "h100", "tp": 1, "spare": spare}).choice for spare in (0, 2))
    assert spared.systems == without.systems + 2
    assert spared.at_peak == without.at_peak
    assert spared.utilisation == without.utilisation


@pytest.mark.parametrize("place", [0, 1])
def test_choosing_a_row_gives_the_numbers_of_the_row(plan: Plan, place: int) -> None:
    """A row that is not the choice is an estimate from short runs: it agrees within a few percent."""
    row = plan.candidates[place]
    asked = {**ASKED, "gpu": row.gpu, "precision": row.precision, "tp": row.tp, "engine": row.engine}
    chosen = tonnage.size(**asked).choice
    assert chosen.checked
    assert row.checked or place > 0
    assert chosen.confidence is not None
    assert row.confidence is not None
    if row.checked:
        assert (chosen.systems, chosen.confidence) == (row.systems, row.confidence)
        return
    assert chosen.systems_exact == pytest.approx(row.systems_exact, rel=0.06)
    assert abs(chosen.systems - row.systems) <= max(1, 0.06 * row.systems)
