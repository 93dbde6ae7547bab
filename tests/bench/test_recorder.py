from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.bench import measure
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.recorder import TokenTimes, share, token_times
from tonnage.bench.reply import COMPLETED, Reply


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
