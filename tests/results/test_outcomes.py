"""Which requests completed, by the words of engines, services, logs and HTTP."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.bench.records import record
from tonnage.results.outcomes import UNFINISHED_END, came_at_once, failure_of, off_length
from tonnage.results.requests import FAILED


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("abort", "Aborted", "FinishReason.ABORT", "FINISH_REASON_ABORT"), "aborted"),
        (("error", "failed", "Internal Error", "internal-server-error"), "ended with an error"),
        (("timeout", "TIMED_OUT", "timed out", "deadline exceeded"), "timed out"),
        (("cancelled", "canceled", "client-disconnect"), "cancelled"),
        (("rejected", "rate_limited"), "rejected"),
        (("not_finished", "in_progress"), UNFINISHED_END),
        ((429, "429", "429 Too Many Requests", "HTTP 429", "HTTP/1.1 429", 429.0), "HTTP 429"),
        ((500, "503"), f"HTTP {500}"),
    ],
)
def test_words_of_failure_are_failures(words: tuple[object, ...], outcome: str) -> None:
    wanted = [outcome] * len(words) if outcome != "HTTP 500" else ["HTTP 500", "HTTP 503"]
    assert [failure_of(word) for word in words] == wanted


@pytest.mark.parametrize(
    "word",
    [
        *(
            "stop",
            "length",
            "tool_calls",
            "function_call",
            "content_filter",
            "eos_token",
            "stop_sequence",
            "end_turn",
            "max_tokens",
        ),
        *(
            "completed",
            "incomplete",
            "STOP",
            "MAX_TOKENS",
            "OK",
            "success",
            200,
            "200",
            "200 OK",
            204.0,
            None,
            "",
            True,
            False,
            [],
            {},
        ),
        *("4290", "4.29", "repetition", "a word that nobody knows"),
    ],
)
def test_ends_of_a_whole_output_and_unknown_words_are_none(word: object) -> None:
    assert failure_of(word) == ""


@pytest.mark.parametrize(
    ("tokens", "wanted", "off"),
    [
        (20, 20, False),
        (22, 20, False),
        (23, 20, True),
        (18, 20, False),
        (17, 20, True),
        (3, 20, True),
        (40, 20, True),
        (4, 5, False),
    ],
)
def test_a_pinned_output_may_miss_its_length_by_a_tenth_and_by_one_token(
    tokens: int, wanted: int, off: bool
) -> None:
    assert off_length(tokens, wanted) == off


def test_tokens_that_came_at_one_moment_are_told_from_those_of_an_engine() -> None:
    run = record(np.full(6, 200.0))
    osl = np.array([20, 20, 20, 8, 7, 1], dtype=np.int64)
    decode_ns = np.array([0, 3_799_999, 3_800_000, 1_399_999, 0, 0], dtype=np.int64)
    run = replace(run, osl=osl, last_token_ns=run.first_token_ns + decode_ns)
    assert came_at_once(run).tolist() == [True, True, False, True, False, False]
    assert not came_at_once(replace(run, status=np.full(6, FAILED, dtype=np.int8))).any()
