"""What makes a run invalid, how many samples a percentile needs, and where a run is steady."""

from __future__ import annotations

import heapq
import itertools
import math
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tonnage.bench.endpoints import Endpoint, find_endpoint
from tonnage.bench.exact_replies import Request, closing, parse_request
from tonnage.bench.exact_server import ExactServer, Schedule
from tonnage.bench.intervals import block_intervals, needed, rank_interval
from tonnage.bench.load import Load
from tonnage.bench.measure import Observed
from tonnage.bench.recorder import Tally
from tonnage.bench.steady import find_steady
from tonnage.bench.validity import Validity, judge
from tonnage.errors import option
from tonnage.results.metrics import summarize
from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS, Requests

MS = 1_000_000


def record(
    e2e_ms: np.ndarray, *, every_ms: float = 10.0, due: np.ndarray | None = None
) -> Requests:
    """Requests due one after another, half of each E2E before the first token."""
    count = len(e2e_ms)
    due_ns = np.rint(np.arange(count) * every_ms * MS).astype(np.int64) if due is None else due
    e2e = np.rint(e2e_ms * MS).astype(np.int64)
    zeros = np.zeros(count, dtype=np.int64)
    return Requests(
        due_ns=due_ns,
        sent_ns=due_ns.copy(),
        first_token_ns=due_ns + e2e // 2,
        last_token_ns=due_ns + e2e,
        isl=zeros + 10,
        osl=zeros + 5,
        cached_tokens=zeros,
        instance=zeros.astype(np.int32),
        status=zeros.astype(np.int8),
        preemptions=zeros.astype(np.int32),
        gaps=np.zeros((POSITION_BUCKETS, GAP_BINS), dtype=np.int64),
    )


GOOD = record(np.full(600, 100.0))
OPEN = Load(isl=GOOD.isl, osl=GOOD.osl, due_ns=GOOD.due_ns, rate=100.0, pattern="constant")
SEEN = Observed(
    load=OPEN,
    sent=600,
    tally=Tally(outcomes=Counter({"": 600}), tokens=3000, events=3000),
    lateness_ns=array("q", [100_000] * 600),
    begun_lateness_ns=array("q", [50_000] * 600),
    cpu=array("d", [0.3] * 6),
    cpu_share=0.3,
    cpu_s=1.8,
    seconds=6.0,
    start_ns=0,
    started_unix_ns=0,
    connections=10,
    retries=0,
    interrupted=False,
)


def judged(
    observed: Observed = SEEN, requests: Requests = GOOD, percentiles: tuple[int, ...] = ()
) -> Validity:
    return judge(
        observed, requests, summarize(requests), find_steady(requests), percentiles=percentiles
    )


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


def test_the_count_of_samples_is_that_of_mlperf() -> None:
    assert [needed(p) for p in (50, 90, 95, 99)] == [7, 44, 90, 459]


@pytest.mark.parametrize(("count", "percentile"), [(459, 50), (1_000, 95), (5_000, 99), (700, 90)])
def test_ranks_hold_the_percentile_as_often_as_they_say(count: int, percentile: float) -> None:
    from scipy import stats

    found = rank_interval(count, percentile, 0.9)
    low, high = found
    below = stats.binom.cdf(low, count, percentile / 100)
    above = stats.binom.sf(high, count, percentile / 100)
    assert below <= 0.05 + 1e-9
    assert above <= 0.05 + 1e-9
    held = stats.binom.cdf(high, count, percentile / 100) - below
    assert 0.88 <= held <= 0.97


def test_too_few_samples_have_no_interval() -> None:
    assert rank_interval(100, 99, 0.99) is None
    assert rank_interval(0, 50) is None


def test_a_run_that_settles_is_steady_from_there() -> None:
    rng = np.random.default_rng(1)
    e2e = rng.normal(100, 5, 1_000)
    e2e[:150] *= np.linspace(4, 1, 150)
    found = find_steady(record(e2e))
    assert found.found
    assert 1.0 <= found.start_s <= 3.1
    assert found.end_s == pytest.approx(9.99)
    rising = find_steady(record(np.linspace(100, 110, 1_000)))
    # from the mean of the first tenth to that of the last
    assert rising.drift == pytest.approx(9 / 105, rel=0.005)


def test_a_queue_that_grows_is_not_steady() -> None:
    rng = np.random.default_rng(1)
    found = find_steady(record(rng.normal(100, 5, 1_000) + np.linspace(0, 800, 1_000)))
    assert found.found is False
    assert found.drift > 0.2
    growing = record(rng.normal(100, 5, 600) + np.linspace(0, 800, 600))
    assert any("no steady state" in reason for reason in judged(requests=growing).reasons)


def test_noise_alone_is_steady_and_few_requests_say_nothing() -> None:
    rng = np.random.default_rng(2)
    assert sum(bool(find_steady(record(rng.lognormal(4, 1, 400))).found) for _ in range(50)) >= 49
    assert find_steady(record(np.full(20, 100.0))).found is None


def test_block_intervals_hold_the_mean_of_a_correlated_series_as_often_as_they_say() -> None:
    series = np.random.default_rng(3).normal(0, 1, (1_200, 60))
    series[0] = 0
    for k in range(1, len(series)):
        series[k] += 0.9 * series[k - 1]
    held = 0
    for one in series.T:
        low, high = block_intervals(one, seed=7)["mean"]
        held += low <= 0 <= high
    assert held / 60 >= 0.85
    assert math.isnan(block_intervals(np.zeros(3), seed=7)["mean"][0])


# Several streams of the exact server against their schedule, on a clock that stands still between
# its alarms: to the nanosecond.


class Clock:
    """Time that passes only from one moment with something to do to the next."""

    def __init__(self) -> None:
        self.now = 1_000 * MS
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, moment: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._plans, (moment, next(self._order), what))

    def run(self) -> None:
        while self._plans:
            moment, _, what = heapq.heappop(self._plans)
            self.now = max(self.now, moment)
            what()


class Server:
    """The exact server on such a clock: ``sends`` holds by request the moments at which it wrote,
    after the clock's start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, schedule: Schedule) -> None:
        clock = self.clock = Clock()
        self.start = clock.now

        class Alarm:
            def __init__(self, loop: Any, ring: Callable[[], None]) -> None:
                self._ring, self._set = ring, itertools.count()
                self._latest = -1

            def set(self, moment: int) -> None:
                mine = self._latest = next(self._set)
                clock.at(moment, lambda: self._ring() if mine == self._latest else None)

            def close(self) -> None:
                self._latest = -1

        monkeypatch.setattr("tonnage.bench.exact_server.Alarm", Alarm)
        monkeypatch.setattr(
            "tonnage.bench.exact_server.time",
            SimpleNamespace(monotonic_ns=lambda: clock.now, sleep=None),
        )
        idle = SimpleNamespace(add_reader=lambda *_: None, remove_reader=lambda *_: None)
        self.server = ExactServer(idle, schedule)  # type: ignore[arg-type]
        self.sends: dict[int, list[int]] = {}

    def request(self, number: int, tokens: int, after_ns: int) -> None:
        moments = self.sends.setdefault(number, [])
        connection = SimpleNamespace(
            open=True, send=lambda data: moments.append(self.clock.now - self.start)
        )
        asked = Request(
            kind="chat", number=number, model="m", streaming=True, tokens=tokens, prompt=1
        )
        self.clock.at(
            self.start + after_ns, lambda: self.server._take(asked, connection, self.clock.now)
        )  # type: ignore[arg-type]

    def run(self) -> None:
        self.clock.run()
        self.server.close()


@pytest.mark.parametrize("apart_ms", [0, 3, 28, 131])
def test_every_event_of_eight_streams_leaves_at_its_moment(
    apart_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.05, itl_s=0.01))
    for number in range(8):
        server.request(number, 12 - number, number * apart_ms * MS)
    server.run()
    for number, moments in server.sends.items():
        begun = number * apart_ms * MS
        assert moments == [begun + 50 * MS + k * 10 * MS for k in range(12 - number)], number
    assert {
        row[0]: (row[2] - server.start, row[3] - server.start) for row in server.server.log
    } == {number: (moments[0], moments[-1]) for number, moments in server.sends.items()}


def test_a_shorter_wait_that_begins_later_is_not_held_up_by_a_longer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.04, itl_s=0.1))
    server.request(0, 3, 0)  # at 40, 140 and 240 ms
    server.request(1, 2, 60 * MS)  # at 100 and 200 ms
    server.run()
    assert server.sends == {0: [40 * MS, 140 * MS, 240 * MS], 1: [100 * MS, 200 * MS]}


def test_requests_beyond_the_slots_begin_when_one_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.05, itl_s=0.01, slots=3))
    for number in range(8):
        server.request(number, 6, number * MS)
    server.run()
    begun = [0, 1, 2, 100, 101, 102, 200, 201]  # each takes 50 + 5 × 10 ms
    assert server.sends == {
        n: [(b + 50 + 10 * k) * MS for k in range(6)] for n, b in enumerate(begun)
    }


def test_the_exact_server_s_own_arithmetic() -> None:
    schedule = Schedule(ttft_s=0.05, itl_s=0.01, tokens_per_event=4, slots=3)
    assert schedule.service_s(11) == pytest.approx(0.15)
    assert schedule.sends(10) == [
        (pytest.approx(0.08), 4),
        (pytest.approx(0.12), 4),
        (pytest.approx(0.14), 2),
    ]


def test_the_exact_server_sends_usage_where_it_is_asked_for() -> None:
    """As OpenAI's servers do: a stream without ``stream_options`` ends without it."""
    plain = {"model": "m", "max_tokens": 3, "stream": True, "messages": [{"content": "a b"}]}
    asked = {**plain, "stream_options": {"include_usage": True}}
    without, with_it = (
        closing(parse_request("/v1/chat/completions", 0, body), 3) for body in (plain, asked)
    )
    assert b"usage" not in without
    assert b'"completion_tokens": 3' in with_it
    assert without.endswith(b"0\r\n\r\n")
    assert b"[DONE]" in without
    assert [
        with_it.count(word) for word in (b'"finish_reason": "length"', b'"usage"', b"[DONE]")
    ] == [1, 1, 1]
    assert with_it.index(b"finish_reason") < with_it.index(b'"usage"') < with_it.index(b"[DONE]")


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_of_words_ends_with_its_usage_where_that_is_requested(
    options: dict[str, object],
) -> None:
    ending = closing(
        parse_request(
            "/v1/completions",
            0,
            {"model": "m", "max_tokens": 3, "stream": True, "prompt": "a b", **options},
        ),
        3,
    )
    assert ending.count(b'"completion_tokens": 3') == len(options)
    assert ending.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
