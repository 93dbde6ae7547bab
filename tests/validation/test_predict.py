import math

import pytest

from tonnage.evidence.predict import predict, read_point

STATIC = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1, "isl": 128, "osl": 128, "batch": 8}


def test_a_static_row_is_predicted_in_every_column() -> None:
    found = predict(read_point(STATIC))
    assert found["e2e_ms"] == pytest.approx(found["ttft_ms"] + 127 * found["tpot_ms"])
    assert found["itl_ms"] == found["tpot_ms"] == found["itl_p99_ms"]
    assert found["output_tok_s"] == pytest.approx(8 * 128 / found["e2e_ms"] * 1e3)
    assert found["requests_s"] * 128 == pytest.approx(found["output_tok_s"])
    assert 8 < found["peak_gpu_memory_gb"] < 10


def test_one_output_token_has_no_time_per_token() -> None:
    found = predict(read_point(STATIC | {"osl": 1}))
    assert math.isnan(found["itl_ms"])
    assert found["e2e_ms"] == found["ttft_ms"]


def test_a_row_with_pipeline_stages_takes_rounds_of_all_stages() -> None:
    row = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 2, "isl": 1000, "osl": 50, "concurrency": 1}
    whole, stages = (predict(read_point(row | {"pp": pp})) for pp in (1, 2))
    assert whole["itl_ms"] < stages["itl_ms"] < 1.2 * whole["itl_ms"]  # a token goes through both stages, one after the other
    crowd = row | {"precision": "fp16", "concurrency": 64}
    alone, together = (predict(read_point(crowd | {"tp": tp, "pp": pp})) for tp, pp in ((4, 1), (4, 2)))
    assert together["requests_s"] > 1.3 * alone["requests_s"]  # twice the GPUs
