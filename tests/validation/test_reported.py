from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tonnage.evidence.predict import read_point, reported_metrics, workload_of
from tonnage.perf.memory import memory_plan
from tonnage.perf.terms import step_model
from tonnage.results.requests import COMPLETED, REJECTED, Requests
from tonnage.simulator.kernel import run

CLOSED = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 200, "osl": 20, "concurrency": 4}


def record(**changed: Any) -> Requests:
    """What a closed loop of 50 requests leaves behind."""
    point = read_point(CLOSED | {"requests": 50} | changed)
    step = step_model(point.deployment)
    trace = workload_of(point, step, turnaround_s=0.0).trace(0)
    return run(trace, step, point.deployment.knobs, memory_plan(point.deployment).blocks)


def test_latencies_are_over_the_completed_requests_and_rates_up_to_the_last_of_them() -> None:
    found, requests = reported_metrics(record()), record()
    assert set(requests.status) == {COMPLETED}
    values = {
        "ttft": (requests.first_token_ns - requests.due_ns) / 1e6,
        "e2e": (requests.last_token_ns - requests.due_ns) / 1e6,
        "tpot": (requests.last_token_ns - requests.first_token_ns) / 19e6,
    }
    for metric, each in values.items():
        assert found[f"{metric}_ms"] == pytest.approx(each.mean())
        for p in (50, 90, 95, 99):
            assert found[f"{metric}_p{p}_ms"] == pytest.approx(np.percentile(each, p))
    assert found["itl_ms"] == found["tpot_ms"]
    assert found["requests_s"] == pytest.approx(50e9 / requests.last_token_ns.max())
    assert found["output_tok_s"] == pytest.approx(20 * found["requests_s"])


def test_requests_that_were_not_completed_count_for_nothing() -> None:
    whole = record()
    status = whole.status.copy()
    status[25:] = REJECTED
    found, ends = reported_metrics(replace(whole, status=status)), whole.last_token_ns[:25]
    assert found["requests_s"] == pytest.approx(25e9 / ends.max())
    assert found["e2e_ms"] == pytest.approx((ends - whole.due_ns[:25]).mean() / 1e6)
    assert reported_metrics(replace(whole, status=np.full_like(status, REJECTED))) == {}


def test_one_token_has_no_time_per_token() -> None:
    found = reported_metrics(record(osl=1))
    assert found["ttft_ms"] == found["e2e_ms"]
    assert not [name for name in found if name.startswith(("tpot", "itl"))]
