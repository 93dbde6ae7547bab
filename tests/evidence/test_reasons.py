"""Why a prediction may be off."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tonnage.evidence.predict import read_point
from tonnage.evidence.reasons import HOLDS, QUEUES, cache_group, reason
from tonnage.perf.pipeline import MARK
from tonnage.simulator.request import (
    CONTEXT_TOKENS,
    DECODE_SEQUENCES,
    PAIRS_2,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
)

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


@pytest.mark.parametrize(
    ("load", "metric", "step"),
    [
        # prompt tokens and sequences, those that decode, pairs of tokens, and contexts
        ({"batch": 4}, "ttft_ms", (8_000, 4, 0, 16_000_000, 0)),
        ({"batch": 4}, "itl_ms", (0, 0, 4, 0, 8_400)),
        ({"concurrency": 8}, "ttft_p95_ms", (2_000, 1, 7, 4_000_000, 14_700)),
        ({"concurrency": 8}, "e2e_ms", (0, 0, 8, 0, 16_800)),
        ({"request_rate": 3.0}, "ttft_ms", (2_000, 1, 0, 4_000_000, 0)),
        ({"request_rate": 3.0}, "tpot_ms", (0, 0, 1, 0, 2_100)),
    ],
)
def test_the_step_that_explains_a_metric_is_one_of_its_load(
    load: dict[str, Any], metric: str, step: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of 2,000 tokens, and half of 200 output tokens in the cache of what decodes."""
    rows: list[list[int]] = []

    def terms(_: Any, row: Any) -> dict[str, Any]:
        columns = [PREFILL_TOKENS, PREFILL_SEQUENCES, DECODE_SEQUENCES, PAIRS_2, CONTEXT_TOKENS]
        rows.append(row[0, columns].tolist())
        assert row.sum() == sum(rows[-1])
        return {"weights": [1.0], "arithmetic": [2.0], "host": [0.5]}

    monkeypatch.setattr("tonnage.evidence.reasons.step_terms", terms)
    monkeypatch.setattr(
        "tonnage.evidence.reasons.TERMS", {"weights": "W", "arithmetic": "A", "host": "H"}
    )
    row = {name: value for name, value in REASONS_CLOSED.items() if name != "concurrency"}
    words = reason(read_point(row | load), metric, steady=True)
    of_step = "a step with a prompt" if metric.startswith("ttft") else "a decode step"
    assert words.split("; ")[-1] == f"57 % of {of_step} is A"
    assert rows == [list(step)]


def test_how_much_of_a_memory_is_weights_and_which_model_is_split_into_stages() -> None:
    """Llama 2 7B has 6.74 billion weights of two bytes."""
    words = reason(read_point(REASONS_STATIC), "peak_gpu_memory_gb", steady=True)
    assert words.split("; ")[-1] == "13 GB of it are weights, the rest cache and workspace"
    assert MARK not in words
    staged = read_point(REASONS_CLOSED | {"model": "llama-3-70b", "tp": 4, "pp": 2})
    assert MARK in reason(staged, "itl_ms", steady=True).split("; ")
