from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.bench import measure
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.recorder import Recorder, Tally, TokenTimes, share, token_times
from tonnage.bench.reply import COMPLETED, Exchange, Reply
from tonnage.results.store import gap_counts


def test_a_reading_of_a_run_counts_what_did_not_complete() -> None:
    live = measure.Live()
    assert live.reading() is None
    load = SimpleNamespace(seconds=10.0)
    live.begin(SimpleNamespace(start_ns=time.monotonic_ns(), load=load, sent=4, over=3), None)
    tokens = TokenTimes(times_ns=(5, 9, 13), per_event=None, tokens=3, source="events")
    for outcome, times in ((COMPLETED, tokens), ("failed", tokens), (COMPLETED, None)):
        exchange = SimpleNamespace(outcome=outcome, due_ns=2)
        live.seen(exchange, times or replace(tokens, times_ns=()))
    reading = live.reading()
    assert reading is not None
    assert (reading.sent, reading.in_flight, reading.failed) == (4, 1, 1)
    assert reading.ttft_s == pytest.approx((3e-9, 3e-9))
    assert reading.tpot_s == pytest.approx((4e-9, 4e-9))
    assert reading.left_s == pytest.approx(10.0, abs=1.0)


@given(total=st.integers(0, 10_000), weights=st.lists(st.integers(1, 500), max_size=60))
def test_a_share_adds_up_and_the_first_event_has_a_token(total: int, weights: list[int]) -> None:
    parts = share(total, weights)
    assert len(parts) == len(weights)
    assert sum(parts) == (total if weights else 0)
    assert min(parts, default=0) >= 0
    assert not weights or not total or parts[0] >= 1
    exact = [total * w / sum(weights) for w in weights]
    assert all(abs(part - wanted) < 1.000001 for part, wanted in zip(parts, exact, strict=True))


def reply(sizes: list[int], tokens: int, counts: dict[int, int] | None = None) -> Reply:
    made = Reply(find_endpoint("chat", model="m"))
    made.times, made.sizes, made.tokens, made.counts = (
        list(range(10, 10 + len(sizes))),
        sizes,
        tokens,
        counts or {},
    )
    return made


def test_tokens_of_a_reply_by_what_is_known() -> None:
    one_each = token_times(reply([4, 4, 4], 3))
    assert (one_each.per_event, one_each.tokens, one_each.source, one_each.shared) == (
        None,
        3,
        "server",
        False,
    )
    said = token_times(reply([4, 4], 7, {0: 2, 1: 7}))
    assert (said.per_event, said.shared) == ([2, 5], False)
    split = token_times(reply([16, 16], 8))
    assert (split.per_event, split.shared) == ([4, 4], True)
    fewer = token_times(reply([1, 1, 1, 1], 2))
    assert (sum(fewer.per_event), fewer.per_event[0]) == (2, 1)
    assert token_times(reply([4, 4], -1)).source == "events"
    counted = token_times(reply([4, 4], -1), [3, 1])
    assert (counted.per_event, counted.tokens, counted.source) == ([3, 1], 4, "tokenizer")


@pytest.mark.parametrize(
    # what the server says: its total, the reasoning in it, whether that was sent; tokens, hidden
    # ones, source
    ("said", "counted", "seen"),
    [
        ((3, 2, True), None, (3, 0, "server")),
        ((203, 200, False), None, (3, 200, "server")),
        ((13, 10, False), None, (3, 10, "server")),
        ((7, 3, False), None, (4, 3, "server")),  # several tokens an event
        # more than two tokens a character: the rest was not sent
        ((25, 0, False), None, (3, 22, "events")),
        ((24, 0, False), None, (24, 0, "server")),
        ((25, 0, False), [2, 1, 3], (6, 19, "tokenizer")),
        ((9, 9, False), None, (3, 6, "events")),  # all is reasoning, and yet text came
        ((0, 0, False), None, (3, 0, "events")),  # the server did not count
        ((0, 0, False), [2, 1, 3], (6, 0, "tokenizer")),
        ((-1, 0, False), None, (3, 0, "events")),
    ],
)
def test_tokens_are_those_that_came(
    said: tuple[int, int, bool], counted: list[int] | None, seen: tuple[int, int, str]
) -> None:
    """Three events of four characters each."""
    made = reply([4, 4, 4], said[0])
    made.reasoning, made.thought = said[1:]
    found = token_times(made, counted)
    assert (found.tokens, found.hidden, found.source) == seen
    assert found.per_event is None or sum(found.per_event) == found.tokens


def test_a_running_count_starts_behind_what_was_hidden() -> None:
    made = reply([8, 8], 207, {0: 202, 1: 207})
    made.reasoning = 200
    assert token_times(made).per_event == [2, 5]
    made.counts = {0: 199, 1: 207}  # which cannot be: less than what was hidden
    assert token_times(made).shared


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    total=st.integers(-1, 400),
    part=st.floats(0, 1),
    thought=st.booleans(),
)
def test_every_token_that_a_server_counts_is_seen_or_hidden(
    sizes: list[int], total: int, part: float, thought: bool
) -> None:
    made = reply(sizes, total)
    made.reasoning, made.thought = max(round(total * part), 0), thought
    found = token_times(made)
    assert found.tokens > 0
    assert found.hidden >= 0
    assert sum(found.per_event or [1] * len(sizes)) == found.tokens
    if found.source == "server":
        assert found.tokens + found.hidden == total
    if found.hidden:
        assert found.tokens + found.hidden == total
        assert not thought or total > 2 * sum(sizes)


def row(number: int, **changed: Any) -> Exchange:
    """A request due at 1,000, turned to at 1,010 and sent at 1,020, with events at 1,100 and
    1,300 of a character each."""
    made = Exchange(number=number, isl=20, osl=2, data=b"", reply=reply([1, 1], 2))
    made.reply.times = [1_100, 1_300]
    made.reply.last_ns = 1_350
    made.due_ns, made.begun_ns, made.sent_ns = 1_000, 1_010, 1_020
    for name, value in changed.items():
        owner = made if hasattr(made, name) else made.reply
        setattr(owner, name, value)
    return made


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.gaps = 0

    def add(self, batch: Any) -> None:
        self.batches.append(batch)

    def add_gaps(self, counts: Any) -> None:
        self.gaps = self.gaps + counts


USUAL = (600, 620, 700, 900, 20, 2, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("changed", "columns"),
    [
        ({}, {}),
        ({"prompt": 25, "cached": 7}, {4: 25, 6: 7}),
        ({"prompt": 0, "cached": -1}, {}),
        ({"streamed": False}, {2: -1}),
        ({"outcome": "HTTP 500"}, {3: -1, 8: 3}),
        ({"outcome": "cancelled"}, {3: -1, 8: 2}),
        ({"sent_ns": -1}, {1: -1, 7: -1}),
        ({"times": [], "sizes": [], "tokens": 0}, {2: 950, 3: 950, 5: 0}),
        ({"times": [], "sizes": [], "tokens": 0, "outcome": "x"}, {2: -1, 3: -1, 5: 0, 8: 3}),
        ({"times": [], "sizes": [], "tokens": 0, "last_ns": -1}, {2: -1, 3: -1, 5: 0}),
    ],
)
def test_the_row_of_a_request(changed: dict[str, Any], columns: dict[int, int]) -> None:
    """Times count from 400."""
    kept = Kept()
    recorder = Recorder(kept)  # type: ignore[arg-type]
    recorder.begin(400)
    recorder.take(row(0, **changed))
    recorder.finish()
    [batch] = kept.batches
    assert batch.rows.tolist() == [[columns.get(k, value) for k, value in enumerate(USUAL)]]
    assert recorder.ends_ns.tolist() == [-1 if changed.get("last_ns") == -1 else 950]
    assert recorder.begun_lateness_ns.tolist() == [10]


def test_rows_come_in_the_order_of_their_numbers_with_the_moments_of_their_tokens() -> None:
    kept = Kept()
    recorder = Recorder(kept)  # type: ignore[arg-type]
    recorder.begin(0)
    recorder.take(row(1, counts={0: 1, 1: 4}, tokens=4, begun_ns=-1))
    recorder.take(row(3, due_ns=3))
    recorder.take(row(0, outcome="cancelled"))
    recorder.finish()
    [batch] = kept.batches
    assert batch.rows[:, 0].tolist() == [1_000, 1_000, 3]
    assert batch.rows[:, 8].tolist() == [2, 0, 0]
    assert batch.lengths.tolist() == [2, 4, 2]
    assert batch.offsets_ns.tolist() == [80, 280, 80, 280, 280, 280, 80, 280]
    assert recorder.ends_ns.tolist() == [1_350] * 3
    # the event of three tokens is three gaps of a third of 200 ns, at positions 1 to 3
    positions = [int(count) for count in kept.gaps.sum(axis=1)[:3]]
    assert positions == [2, 2, 0]
    assert int(kept.gaps.sum()) == 4


def test_gaps_of_events_with_several_tokens_or_none() -> None:
    """2, 0, 3 and 1 tokens at 1,000, 1,100, 4,000 and 9,000 ns: three gaps of 1,000 ns from
    position 2 on, and one of 5,000 ns at position 5."""
    kept = Kept()
    recorder = Recorder(kept)  # type: ignore[arg-type]
    times = [1_000, 1_100, 4_000, 9_000]
    counts = {0: 2, 1: 2, 2: 5, 3: 6}
    recorder.take(row(0, times=times, sizes=[9] * 4, counts=counts, tokens=6, sent_ns=0))
    recorder.finish()
    expected = gap_counts(np.array([1_000] * 3 + [5_000]), np.array([2, 3, 4, 5]))
    assert (kept.gaps == expected).all()
    unkept = Kept()
    without = Recorder(unkept, gaps=False)  # type: ignore[arg-type]
    without.take(row(0))
    without.finish()
    assert unkept.gaps == 0


def test_counts_of_a_run_by_hand() -> None:
    recorder = Recorder(Kept(), count=len)  # type: ignore[arg-type]
    rows = [
        {"finish": "stop", "prompt": 20},
        {"finish": "length", "prompt": 23, "osl": 3},
        {"tokens": 5, "sizes": [4, 4], "osl": 5, "finish": "stop", "prompt": 18},
        {"tokens": 9, "reasoning": 7, "osl": 9, "prompt": 20},
        {"tokens": 0, "times": [], "sizes": []},
        {"tokens": 0, "texts": ["abc", "d"]},
        {"choices": 2, "tokens": 4, "sizes": [2, 2]},
        {"outcome": "HTTP 500", "detail": "no"},
        {"outcome": "HTTP 500", "detail": "again"},
        {"outcome": "cancelled", "begun_ns": -1},
    ]
    for number, changed in enumerate(rows):
        recorder.take(row(number, **changed))
    recorder.finish()
    tally = recorder.tally
    assert tally == Tally(
        outcomes=Counter({"": 7, "HTTP 500": 2, "cancelled": 1}),
        sources=Counter({"server": 6, "tokenizer": 1}),
        shared=2,
        finishes=Counter({"stop": 2, "length": 1, "": 4}),
        tokens=2 + 2 + 5 + 2 + 0 + 4 + 4,
        events=12,
        hidden=7,
        hiding=1,
        several=1,
        isl_off=2,
        osl_off=4,
        osl_far=2,
        isl_extra=3 - 2,
        prompt_counts=4,
        examples=[
            {"id": 7, "outcome": "HTTP 500", "detail": "no"},
            {"id": 8, "outcome": "HTTP 500", "detail": "again"},
        ],
    )
    assert tally.failures == {"HTTP 500": 2}
    assert len(recorder.begun_lateness_ns) == 9


def test_a_count_of_no_token_is_a_wrong_one_where_text_came() -> None:
    recorder = Recorder(Kept())  # type: ignore[arg-type]
    for number, tokens in enumerate((0, -1, 2)):
        recorder.take(row(number, tokens=tokens))
    recorder.finish()
    assert recorder.tally.uncounted == 1
    assert recorder.tally.sources == {"events": 2, "server": 1}


def test_twenty_failures_are_kept_and_the_first_of_each_further_kind() -> None:
    recorder = Recorder(Kept())  # type: ignore[arg-type]
    for number in range(30):
        recorder.take(row(number, outcome="a" if number < 25 else f"b{number % 2}"))
    recorder.finish()
    assert [example["id"] for example in recorder.tally.examples] == [*range(20), 25, 26]
    assert list(recorder.tally.failures.items()) == [("a", 25), ("b1", 3), ("b0", 2)]


def test_batches_are_written_at_so_many_rows_or_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BATCH_ROWS", 3), ("BATCH_TOKENS", 1_000)):
        monkeypatch.setattr(f"tonnage.bench.recorder.{name}", value)
    kept = Kept()
    recorder = Recorder(kept)  # type: ignore[arg-type]
    for number in range(7):
        recorder.take(row(number))
    recorder.finish()
    assert [len(batch.rows) for batch in kept.batches] == [3, 3, 1]
    monkeypatch.setattr("tonnage.bench.recorder.BATCH_TOKENS", 4)
    kept = Kept()
    recorder = Recorder(kept)  # type: ignore[arg-type]
    for number in range(5):
        recorder.take(row(number))
    recorder.finish()
    assert [len(batch.rows) for batch in kept.batches] == [2, 2, 1]
    assert recorder.ends_ns.tolist() == [1_350] * 5


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [
        (5, [1, 1], [3, 2]),
        (7, [1, 2, 4], [1, 2, 4]),
        (1, [1, 9], [1, 0]),
        (0, [1, 2], [0, 0]),
        (10, [3, 3, 3], [4, 3, 3]),
        (4, [], []),
    ],
)
def test_a_share_by_hand(total: int, weights: list[int], parts: list[int]) -> None:
    assert share(total, weights) == parts
