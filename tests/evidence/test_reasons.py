"""Why a prediction may be off."""

from __future__ import annotations

import re

import pytest

from tonnage.evidence.predict import read_point
from tonnage.evidence.reasons import HOLDS, QUEUES, cache_group, reason

REASONS_CLOSED = {
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "isl": 2000,
    "osl": 200,
    "concurrency": 8,
}

REASONS_STATIC = {
    "model": "llama-2-7b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "isl": 128,
    "osl": 128,
    "batch": 1,
}


def test_a_closed_loop_is_grouped_by_what_its_cache_holds() -> None:
    assert cache_group(read_point(REASONS_CLOSED)) == HOLDS
    assert cache_group(read_point(REASONS_CLOSED | {"concurrency": 500})) == QUEUES
    assert cache_group(read_point(REASONS_STATIC)) == ""
    assert cache_group(read_point(REASONS_CLOSED | {"model": "llama-3-70b"})) == ""


@pytest.mark.parametrize(
    ("row", "metric", "says"),
    [
        (REASONS_STATIC, "itl_ms", "of a decode step is reading the weights"),
        (
            REASONS_STATIC | {"batch": 64, "isl": 2048},
            "itl_ms",
            "of a decode step is reading the KV cache",
        ),
        (REASONS_STATIC | {"batch": 64}, "ttft_ms", "of a step with a prompt is arithmetic"),
        (REASONS_STATIC, "peak_gpu_memory_gb", "GB of it are weights"),
        (REASONS_CLOSED | {"gpu": "gb300-279gb"}, "itl_ms", "no measurements"),
    ],
)
def test_the_largest_term_is_said(row: dict[str, object], metric: str, says: str) -> None:
    words = reason(read_point(row), metric, steady=True)
    assert says in words
    assert all(30 <= int(share) <= 100 for share in re.findall(r"(\d+) % of", words)), (
        "the largest part of a step"
    )


def test_requests_at_a_rate_are_explained_by_a_step_of_one_of_them() -> None:
    """Of prompts so long that the cache of two takes visibly more of a step than that of one."""
    one, two, rate = (
        read_point(REASONS_CLOSED | {"isl": 7_000} | load)
        for load in (
            {"concurrency": 1},
            {"concurrency": 2},
            {"concurrency": None, "request_rate": 0.1},
        )
    )
    assert (
        reason(rate, "itl_ms", steady=True)
        == reason(one, "itl_ms", steady=True)
        != reason(two, "itl_ms", steady=True)
    )


def test_a_queue_decides_what_waits_in_it_and_no_time_between_tokens() -> None:
    queued = read_point(REASONS_CLOSED | {"concurrency": 500})
    tokens = queued.instance.memory.tokens // 2_200
    words = f"the KV cache holds {tokens:,} of 500 clients, so the queue decides"
    for metric in ("ttft_ms", "e2e_ms"):
        assert words in reason(queued, metric, steady=True)
    assert "queue" not in reason(queued, "itl_ms", steady=True)
    assert reason(queued, "itl_ms", steady=False).startswith("the run was not steady; ")
    slots = queued.instance.knobs.max_batch_size
    many = read_point(REASONS_CLOSED | {"isl": 10, "osl": 10, "concurrency": slots + 1})
    assert f"{slots + 1:,} clients share {slots:,} slots" in reason(many, "ttft_ms", steady=True)
