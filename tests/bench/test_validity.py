from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.bench.records import GOOD, MS, OPEN, SEEN, judged, record
from tonnage.bench.endpoints import Endpoint, find_endpoint
from tonnage.bench.load import Load
from tonnage.bench.recorder import Tally
from tonnage.errors import option


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, True),
        ({"due_ns": None, "concurrency": 16}, True),
        ({"due_ns": None, "concurrency": 15}, False),
        ({"isl": np.arange(600) + 100}, False),
        ({"osl": np.arange(600) + 100}, False),
    ],
)
def test_equal_lengths_of_an_open_loop_or_of_many_clients_get_a_note(
    changed: dict[str, Any], told: bool
) -> None:
    notes = judged(replace(SEEN, load=replace(OPEN, **changed))).notes
    words = f"{option('isl')} {GOOD.isl[0]}+-20% {option('osl')} {GOOD.osl[0]}+-20% draws them"
    assert any("may end together" in note and words in note for note in notes) == told


def test_a_good_run_is_valid() -> None:
    said = judged()
    assert said.verdict == "VALID"
    assert not said.reasons
    assert all(check.passed for check in said.checks)
    assert said.supported == {50: True, 90: True, 95: True, 99: True}
    assert not any("side by side" in note for note in said.notes)
    tally = Tally(outcomes=Counter({"": 600}), several=7)
    notes = judged(replace(SEEN, tally=tally)).notes
    assert any(note.startswith("7 of 600 replies hold several outputs") for note in notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lateness_ns": array("q", [3 * MS] * 600)}, "event loop was late by a mean of 3 ms"),
        ({"lateness_ns": array("q", [0] * 580 + [40 * MS] * 20)}, "event loop was late by a p99"),
        ({"begun_lateness_ns": array("q", [5 * MS] * 600)}, "sending was late by a mean of 5 ms"),
        ({"cpu_share": 0.93}, "of a core"),
        ({"cpu": array("d", [0.99, 0.2, 0.2, 0.2])}, "whole core"),
        (
            {"tally": Tally(outcomes=Counter({"": 580, "HTTP 500": 15, "timed out": 5}))},
            "15 HTTP 500, 5 timed out",
        ),
    ],
)
def test_each_lack_is_a_reason_of_its_own(change: dict[str, object], words: str) -> None:
    said = judged(replace(SEEN, **change))
    assert said.verdict == "INVALID"
    assert len(said.reasons) == 1
    assert words in said.reasons[0]


CHAT = find_endpoint("chat", model="m")
ALL = {"outcomes": Counter({"": 600}), "tokens": 3000, "events": 3000}


@pytest.mark.parametrize(
    ("endpoint", "tally", "words"),
    [
        (
            CHAT,
            {"osl_far": 7},
            (
                "7 of 600 outputs do not have the length at which they were pinned (5 tokens for 5"
                " on average): 1.17 %"
            ),
        ),
        (CHAT, {"osl_far": 6}, ""),
        (find_endpoint("chat", model="m", pinned=False), {"osl_far": 600}, ""),
        (CHAT, {"uncounted": 7}, "7 of 600 outputs are 0 tokens long by the server's count"),
        (CHAT, {"several": 600}, ""),
        (find_endpoint("embeddings", model="m", streaming=False), {"osl_far": 600}, ""),
        (None, {"osl_far": 600, "several": 600}, ""),
    ],
)
def test_outputs_other_than_asked_are_a_reason_of_their_own(
    endpoint: Endpoint | None, tally: dict[str, int], words: str
) -> None:
    said = judged(replace(SEEN, endpoint=endpoint, tally=Tally(**ALL, **tally)))
    assert said.verdict == ("INVALID" if words else "VALID")
    assert len(said.reasons) == bool(words)
    assert words in "".join(said.reasons)
    wants = "outputs of the lengths that the server gives them"
    assert any(wants in note for note in said.notes) == ("pinned" in words)


@pytest.mark.parametrize(
    ("streaming", "decode_ms", "reason"),
    [(True, 1.0, True), (True, 1.5, False), (False, 0.0, False)],
)
def test_tokens_that_came_at_one_moment_are_a_reason_unless_nothing_was_streamed(
    streaming: bool, decode_ms: float, reason: bool
) -> None:
    at_once = replace(
        GOOD, osl=GOOD.osl * 0 + 8, last_token_ns=GOOD.first_token_ns + round(decode_ms * MS)
    )
    endpoint = find_endpoint("chat", model="m", streaming=streaming, pinned=False)
    said = judged(replace(SEEN, endpoint=endpoint), at_once)
    assert [
        bool("600 of 600 replies came with all their tokens at one moment" in why)
        for why in said.reasons
    ] == [True] * reason
    assert any("E2E alone counts" in note for note in said.notes) == (not streaming)


def test_a_client_is_busy_until_its_reply_is_over() -> None:
    """Ten clients, each with a request of 100 ms and usage 100 ms later: 20 would be in flight by
    the replies, 10 by the tokens."""
    closed = replace(SEEN, load=replace(SEEN.load, due_ns=None, concurrency=20))
    assert "concurrency_percent" in {
        check.name for check in judged(closed).checks if not check.passed
    }
    late = replace(closed, ends_ns=array("q", (GOOD.last_token_ns + 100 * MS).tolist()))
    assert judged(late).verdict == "VALID"


def test_the_first_words_of_each_kind_of_failure_are_quoted_with_the_option_that_helps() -> None:
    words = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
        " 'max_completion_tokens' instead."
    )
    examples = [
        {"id": 0, "outcome": "HTTP 400", "detail": words},
        {"id": 1, "outcome": "HTTP 400", "detail": "later"},
    ]
    tally = Tally(outcomes=Counter({"": 500, "HTTP 400": 100}), examples=examples)
    notes = judged(replace(SEEN, tally=tally, endpoint=CHAT)).notes
    [quoted] = [note for note in notes if note.startswith("HTTP 400: ")]
    remedy = (
        f"{option('omit_inputs')} max_tokens {option('extra_inputs')} max_completion_tokens:200"
        " sends the length under that name"
    )
    assert quoted == f"HTTP 400: {words}; {remedy}"


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (
            "Unrecognized request argument supplied: min_tokens",
            "{no_pin_output} leaves out min_tokens and ignore_eos",
        ),
        (
            "[{'loc': ['body', 'ignore_eos'], 'msg': 'Extra inputs are not permitted'}]",
            "{no_pin_output} leaves out min_tokens and ignore_eos",
        ),
        ("Unknown parameter in request", "{no_pin_output} leaves out min_tokens and ignore_eos"),
        (
            "stream_options is not supported",
            "{omit_inputs} stream_options leaves out what it does not take",
        ),
        ("additional properties: stream", "{no_streaming} asks for whole replies"),
        ("maximum context length is 10 tokens, you requested 20 (max_tokens)", ""),
        ("model 'm' not found", ""),
    ],
)
def test_a_refusal_has_its_remedy(refusal: str, remedy: str) -> None:
    names = {name: option(name) for name in ("no_pin_output", "omit_inputs", "no_streaming")}
    assert CHAT.remedy(refusal) == remedy.format(**names)


def test_requests_that_were_cancelled_are_no_errors() -> None:
    assert (
        judged(
            replace(
                SEEN, tally=Tally(outcomes=Counter({"": 600, "cancelled": 60})), interrupted=True
            )
        ).verdict
        == "VALID"
    )


def test_lateness_is_measured_by_the_latencies_that_it_falsifies() -> None:
    slow = record(np.full(600, 4_000.0))
    late = replace(SEEN, lateness_ns=array("q", [15 * MS] * 600))
    assert judged(late, GOOD).verdict == "INVALID"
    assert judged(late, slow).verdict == "VALID"  # 15 ms in 2 s to the first token


def test_a_rate_that_was_not_reached() -> None:
    slower = record(np.full(600, 100.0), every_ms=11.0)
    assert "of 100 requests/s were sent 90.9 %" in judged(requests=slower).reasons[0]


@pytest.mark.parametrize(
    "due", [GOOD.due_ns, np.zeros(600, dtype=np.int64)], ids=["planned apart", "planned at once"]
)
def test_requests_that_were_all_sent_at_one_instant_have_no_rate_and_are_judged_all_the_same(
    due: np.ndarray,
) -> None:
    at_once = replace(record(np.full(600, 100.0), due=due), sent_ns=np.full(600, 5 * MS))
    found = judged(replace(SEEN, load=replace(OPEN, due_ns=due)), at_once)
    (rate,) = (check for check in found.checks if check.name == "rate_percent")
    assert math.isnan(rate.value)
    assert rate.passed


def test_a_concurrency_that_was_not_reached() -> None:
    closed = replace(SEEN, load=Load(isl=GOOD.isl, osl=GOOD.osl, concurrency=20))
    said = judged(closed)  # 10 are in flight: 100 ms each, one every 10 ms
    assert len(said.reasons) == 1
    assert "of 20 requests in flight there were on average 50" in said.reasons[0]
    assert judged(replace(SEEN, load=replace(closed.load, concurrency=10))).verdict == "VALID"


def test_a_percentile_is_refused_only_where_it_was_asked_for() -> None:
    few = record(np.full(100, 100.0))
    load = replace(OPEN, isl=few.isl, osl=few.osl, due_ns=few.due_ns)
    seen = replace(SEEN, load=load, sent=100, tally=Tally(outcomes=Counter({"": 100})))
    assert judged(seen, few).verdict == "VALID"
    assert any("p99" in note for note in judged(seen, few).notes)
    assert "p99 was asked for" in judged(seen, few, (99,)).reasons[0]


def test_no_completed_request_is_no_measurement() -> None:
    nothing = replace(GOOD, status=np.full(600, 3, dtype=np.int8))
    seen = replace(SEEN, tally=Tally(outcomes=Counter({"connection refused": 600})))
    assert "no request completed" in judged(seen, nothing).reasons
