from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.bench.records import GOOD, MS, OPEN, SEEN, judged, record
from tonnage.bench.conversations import Conversations, TurnLog
from tonnage.bench.endpoints import Endpoint, find_endpoint
from tonnage.bench.load import Load
from tonnage.bench.recorder import Tally
from tonnage.bench.validity import _concurrency, _conversations, _reached
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


LATENESS = ("event_loop", "sending")


def test_every_check_of_a_run_has_this_value_and_this_limit() -> None:
    """TTFT is 50 ms, so that limits are those in milliseconds; a loop of 600 requests at 100 a
    second, sent 1 % faster than planned."""
    requests = replace(GOOD, sent_ns=np.rint(GOOD.sent_ns * 0.99).astype(np.int64))
    observed = replace(
        SEEN,
        endpoint=CHAT,
        tally=Tally(
            outcomes=Counter({"": 595, "HTTP 500": 5, "cancelled": 9}), osl_far=3, uncounted=2
        ),
        lateness_ns=array("q", [0, 4 * MS]),
        begun_lateness_ns=array("q", [MS] * 99 + [5 * MS]),
        cpu=array("d", [0.95, 0.96, 0.1, 0.2]),
    )
    said = judged(observed, requests)
    table = {
        check.name: (check.value, check.limit, check.unit, check.passed) for check in said.checks
    }
    assert list(table) == [
        "event_loop_lateness_mean_ms",
        "event_loop_lateness_p99_ms",
        "sending_lateness_mean_ms",
        "sending_lateness_p99_ms",
        "cpu_share_percent",
        "cpu_saturated_percent",
        "rate_percent",
        "error_percent",
        "uncounted_percent",
        "length_percent",
        "at_once_percent",
    ]
    expected = [
        (2.0, 2.0, "ms", True),
        (3.96, 10.0, "ms", True),
        (1.04, 2.0, "ms", True),
        (1.04, 10.0, "ms", True),
        (30.0, 85.0, "%", True),
        (25.0, 5.0, "%", False),
        (100 / 0.99, 95.0, "%", True),
        (100 * 5 / 600, 1.0, "%", True),
        (100 * 2 / 595, 1.0, "%", True),
        (100 * 3 / 595, 1.0, "%", True),
        (0.0, 1.0, "%", True),
    ]
    for row, wanted in zip(table.values(), expected, strict=True):
        assert row == (pytest.approx(wanted[0]), pytest.approx(wanted[1]), *wanted[2:])
    assert (
        said.reasons
        == said.client_reasons
        == ("seconds in which the client took a whole core: 25 %, at most 5 % would be right",)
    )
    assert said.client_limited
    document = said.to_json()
    assert (document["verdict"], document["reasons"]) == ("INVALID", list(said.reasons))
    assert document["checks"]["rate_percent"] == {
        "value": pytest.approx(100 / 0.99),
        "limit": 95.0,
        "unit": "%",
        "passed": True,
    }
    assert document["steady"] == {"found": True, "start_s": 0.0, "end_s": 5.99, "drift": 0.0}
    assert document["percentiles"] == {
        "p50": {"needed": 7, "enough": True},
        "p90": {"needed": 44, "enough": True},
        "p95": {"needed": 90, "enough": True},
        "p99": {"needed": 459, "enough": True},
    }


def test_slow_answers_allow_a_share_of_themselves_as_lateness() -> None:
    slow = record(np.full(600, 4_000.0))  # TTFT 2 s
    limits = {check.name: check.limit for check in judged(requests=slow).checks}
    assert [limits[f"{who}_lateness_mean_ms"] for who in LATENESS] == pytest.approx([40.0, 40.0])
    assert [limits[f"{who}_lateness_p99_ms"] for who in LATENESS] == pytest.approx([200.0, 200.0])


@pytest.mark.parametrize(
    ("changed", "name", "value"),
    [
        ({"lateness_ns": array("q")}, "event_loop_lateness_mean_ms", math.nan),
        ({"lateness_ns": array("q")}, "event_loop_lateness_p99_ms", math.nan),
        ({"cpu": array("d")}, "cpu_saturated_percent", math.nan),
        ({"sent": 1}, "rate_percent", math.nan),
        ({"sent": 301}, "rate_percent", 100 * 3.0 / 5.99),
        ({"tally": Tally()}, "error_percent", math.nan),
        ({"tally": Tally(outcomes=Counter({"cancelled": 4}))}, "error_percent", math.nan),
        ({"tally": Tally(outcomes=Counter({"": 1, "a": 1, "b": 2}))}, "error_percent", 75.0),
    ],
)
def test_a_value_that_could_not_be_had_passes(
    changed: dict[str, Any], name: str, value: float
) -> None:
    (check,) = (check for check in judged(replace(SEEN, **changed)).checks if check.name == name)
    assert check.value == pytest.approx(value, nan_ok=True)
    assert check.passed == math.isnan(value)
    assert check.limit in [usual.limit for usual in judged().checks if usual.name == name]


def test_a_rate_that_waits_at_the_client_is_no_check_and_says_what_was_sent() -> None:
    said = judged(replace(SEEN, held=40, load=replace(OPEN, in_flight=8)))
    assert "rate_percent" not in {check.name for check in said.checks}
    assert (
        "40 of 600 requests waited at the client for one of 8 in flight, and their latencies count"
        " from then: 100 of 100 requests/s were sent" in said.notes
    )


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({}, None),
        (
            {"interrupted": True, "cancelled": 4},
            "ended by Ctrl-C or SIGTERM with 4 requests in flight",
        ),
        ({"interrupted": True}, "ended by Ctrl-C or SIGTERM with 0 requests in flight"),
        (
            {"cancelled": 4},
            "4 requests were in flight when the time and its grace were over: they are unfinished",
        ),
        ({"events": 2942}, None),
        (
            {"events": 2000},
            "1.50 tokens an event: TPOT reads low, tpot_by_event_ms in run.json does not",
        ),
        ({"osl_off": 6}, None),
        ({"osl_off": 7}, "7 of 600 outputs have another length than asked"),
        (
            {"sources": Counter({"events": 3, "server": 597})},
            "tokens of 3 replies were counted as one an event, the server did not say how many",
        ),
        (
            {"waits": 2},
            (
                "2 requests failed at once; their clients waited before the next one, longer after"
                " each in a row"
            ),
        ),
        (
            {"retries": 5},
            "5 requests were sent again: the server had closed their kept connection",
        ),
        (
            {"hidden": 90, "hiding": 9},
            (
                "90 output tokens of 9 replies were not sent (reasoning that stays hidden): they"
                " lengthen TTFT, and TPOT and tokens/s are of the tokens that came"
            ),
        ),
    ],
)
def test_each_note_has_its_own_cause(changed: dict[str, Any], note: str | None) -> None:
    counts = Counter({"": 600, "cancelled": changed.pop("cancelled", 0)})
    seen = {
        name: changed.pop(name) for name in ("interrupted", "waits", "retries") if name in changed
    }
    tally = Tally(**{"outcomes": counts, "tokens": 3000, "events": 3000, **changed})
    varied = replace(OPEN, isl=np.arange(600) + 100)
    said = judged(replace(SEEN, load=varied, tally=tally, **seen))
    assert said.notes == (() if note is None else (note,))
    assert said.verdict == "VALID"


def test_few_requests_say_which_percentiles_and_what_they_need() -> None:
    few = record(np.full(45, 100.0))
    load = replace(OPEN, isl=few.isl + np.arange(45), osl=few.osl, due_ns=few.due_ns)
    seen = replace(SEEN, load=load, sent=45, tally=Tally(outcomes=Counter({"": 45})))
    assert judged(seen, few, (99,)).notes == (
        "p95: fewer samples (45) than 0.99 confidence needs (90)",
        "too few requests to look for a steady state",
    )
    assert judged(seen, few, (99,)).reasons == (
        "p99 was asked for and needs 459 completed requests, there were 45",
    )
    assert judged(seen, few, (99,)).supported == {50: True, 90: True, 95: False, 99: False}
    assert judged(seen, few).notes[0] == (
        "p95, p99: fewer samples (45) than 0.99 confidence needs (90, 459)"
    )


@pytest.mark.parametrize(
    ("ends", "clients", "ramp_s", "share"),
    [
        ([10, 10, 20, 20], 2, 0.0, 1.0),  # both busy from 0 to the last start at 10
        ([5, 10, 20, 20], 2, 0.0, 0.75),
        ([5, 10, 20, 20], 2, 0.005, 0.5),  # from the end of the ramp on
        ([10, 10, 20, 20], 3, 0.0, math.nan),
        ([10, 10, 20, 20], 2, 0.010, math.nan),
        ([10, -1, 20, 20], 1, 0.0, 0.5 + 0.5),
    ],
)
def test_requests_in_flight_over_the_clients(
    ends: list[int], clients: int, ramp_s: float, share: float
) -> None:
    """Requests due at 0, 0, 10 and 10 ms; counted up to the last that was sent."""
    requests = record(np.full(4, 1.0), due=np.array([0, 0, 10, 10]) * MS)
    ends_ns = np.where(np.array(ends) < 0, -1, np.array(ends) * MS)
    assert _concurrency(requests, ends_ns, clients, ramp_s) == pytest.approx(share, nan_ok=True)
    failed = replace(requests, status=np.full(4, 3, dtype=np.int8))
    assert math.isnan(_concurrency(failed, ends_ns, clients, ramp_s))


def test_the_server_s_words_of_four_kinds_of_failure_are_kept() -> None:
    kinds = [f"HTTP 50{k}" for k in range(5)]
    counts = {kind: 9 - k for k, kind in enumerate(kinds)}
    examples = [{"id": 0, "outcome": kind, "detail": kind[-1] * 2} for kind in kinds[1:]]
    examples.append({"id": 9, "outcome": kinds[0], "detail": ""})
    tally = Tally(outcomes=Counter({"": 600, **counts}), examples=examples)
    notes = judged(replace(SEEN, tally=tally)).notes
    assert [note for note in notes if note.startswith("HTTP")] == [
        "HTTP 501: 11",
        "HTTP 502: 22",
        "HTTP 503: 33",
        "HTTP 504: 44",
    ]


@pytest.mark.parametrize(
    ("last_ms", "clients", "percent"),
    [(10, 2, 100.0), (5, 2, 87.5), (3, 2, 82.5), (10, 3, math.nan), (10, 1, 200.0)],
)
def test_conversations_under_way_over_the_clients(
    last_ms: int, clients: int, percent: float
) -> None:
    """Conversations from 0 to ``last_ms`` in two turns, the second due at 3 ms, from 0 to 20, from
    10 to 30 and from 20 to 40 ms, counted from the last client's start to the last begin."""
    due = np.array([0, 0, 3, 10, 20]) * MS
    requests = record(np.full(5, 1.0), due=due)
    ends = np.array([2, 20, last_ms, 30, 40]) * MS
    log = TurnLog(conversation=np.array([0, 1, 0, 2, 3, 9]), turn=np.array([0, 0, 1, 0, 0, 0]))
    talks = Conversations(starts=np.array([0, 2, 3, 4, 5]), isl=due, osl=due, pause_ns=due)
    load = Load(isl=due, osl=due, concurrency=clients, conversations=talks)
    observed = replace(SEEN, load=load, turns=log, ends_ns=array("q", ends.tolist()))
    [check] = _conversations(observed, requests)
    assert check.value == pytest.approx(percent, nan_ok=True)
    assert (check.name, check.limit, check.unit) == ("concurrency_percent", 95.0, "%")
    assert check.passed == (math.isnan(percent) or percent >= 95)
    assert f"of {clients} conversations there were under way on average" in check.words
    assert _conversations(replace(observed, turns=None), requests) == []
    assert _conversations(replace(observed, load=replace(load, concurrency=0)), requests) == []
    assert _reached(observed, requests)[0].name == check.name
