"""How far predictions are from measurements, as a document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tonnage
from tests.evidence.score_cases import rows
from tonnage import api
from tonnage.errors import InputError
from tonnage.evidence.score import score
from tonnage.report.scored import scored
from tonnage.results.metrics import attained
from tonnage.spec.deployment import parse_attainment

ON_L40S = {"model": "llama-3.1-8b", "gpu": "l40s", "precision": "fp8", "tp": 1, "engine": "vllm"}


def test_attainment_of_run_folders_is_compared_with_that_of_their_simulation(
    tmp_path: Path,
) -> None:
    """The shares of a run are those of counting its requests; a slower limit is missed by both."""
    made = tonnage.simulate(**ON_L40S, isl=1000, osl=60, request_rate=6, requests=400, seed=8)
    api.write_runs(tmp_path, [made], {"seed": 8})
    texts = ["90%: ttft<=120ms & tpot<=20ms", "50%: e2e<=1ms"]
    limits = tuple(map(parse_attainment, texts))
    report = score(tmp_path, slo=limits)
    first, missed = report.attained
    truth = attained(made.requests, limits)
    assert (first.n, first.measured) == (1, truth[0].share)
    assert 0.1 < first.measured < 0.98
    assert truth[0].low <= first.predicted <= truth[0].high
    assert first.inside == 100
    assert first.off == pytest.approx(100 * abs(first.predicted - first.measured))
    assert (missed.measured, missed.predicted, missed.goodput) == (0, 0, None)
    assert first.limits in str(scored(report))
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["attained"][0]["n"] == 1
    with pytest.raises(InputError, match="no row has single requests"):
        score(rows(ttft_ms=10.0), slo=limits)
