from dataclasses import replace

import pytest

from tonnage.evidence.predict import read_point
from tonnage.evidence.reasons import HOLDS, QUEUES, cache_group, reason

CLOSED = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 2000, "osl": 200, "concurrency": 8}
STATIC = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 128, "osl": 128, "batch": 1}


def test_a_closed_loop_is_grouped_by_what_its_cache_holds() -> None:
    assert cache_group(read_point(CLOSED)) == HOLDS
    assert cache_group(read_point(CLOSED | {"concurrency": 500})) == QUEUES
    assert cache_group(read_point(STATIC)) == ""
    assert cache_group(read_point(CLOSED | {"model": "llama-3-70b"})) == ""


def test_a_cache_that_is_too_small_is_named_first() -> None:
    words = reason(read_point(CLOSED | {"concurrency": 500}), "ttft_ms", steady=False)
    assert words.startswith("the run was not steady; the KV cache holds ")
    assert "of 500 clients" in words
    assert "KV cache holds" not in reason(read_point(CLOSED | {"concurrency": 500}), "itl_ms", steady=True)


def test_slots_that_clients_share_are_named() -> None:
    point = read_point(CLOSED)
    few = replace(point, deployment=replace(point.deployment, knobs=replace(point.deployment.knobs, max_batch_size=7)))
    assert "8 clients share 7 slots" in reason(few, "e2e_ms", steady=True)


@pytest.mark.parametrize(
    ("row", "metric", "says"),
    [
        (STATIC, "itl_ms", "of a decode step is reading the weights"),
        (STATIC | {"batch": 64, "isl": 2048}, "itl_ms", "of a decode step is reading the KV cache"),
        (STATIC | {"batch": 64}, "ttft_ms", "of a step with a prompt is arithmetic"),
        (STATIC, "peak_gpu_memory_gb", "GB of it are weights"),
        (CLOSED | {"gpu": "gb300-279gb"}, "itl_ms", "no measurements"),
    ],
)
def test_the_largest_term_is_said(row: dict[str, object], metric: str, says: str) -> None:
    assert says in reason(read_point(row), metric, steady=True)
