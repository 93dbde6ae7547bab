"""The parts of the client by themselves: tokens over events, prompts, schedules, alarms, files."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.bench.live import question
from tonnage.bench.alarm import Alarm
from tonnage.bench.connection import parse_url, request_bytes, request_head
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.prompts import PLAIN_WORDS
from tonnage.bench.recorder import share, token_times
from tonnage.bench.reply import Reply
from tonnage.errors import InputError
from tonnage.results.batches import Batch, RunWriter, gap_counts, read_tokens
from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS, gap_edges_ns
from tonnage.results.store import read_run
from tonnage.spec.recording import Recording
from tonnage.spec.workload import ClosedLoop, OpenLoop, TraceArrivals


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
    made.times, made.sizes, made.tokens, made.counts = list(range(10, 10 + len(sizes))), sizes, tokens, counts or {}
    return made


def test_tokens_of_a_reply_by_what_is_known() -> None:
    one_each = token_times(reply([4, 4, 4], 3))
    assert (one_each.per_event, one_each.tokens, one_each.source, one_each.shared) == (None, 3, "server", False)
    said = token_times(reply([4, 4], 7, {0: 2, 1: 7}))
    assert (said.per_event, said.shared) == ([2, 5], False)
    split = token_times(reply([16, 16], 8))
    assert (split.per_event, split.shared) == ([4, 4], True)
    fewer = token_times(reply([1, 1, 1, 1], 2))
    assert fewer.per_event is not None
    assert (sum(fewer.per_event), fewer.per_event[0]) == (2, 1)
    assert token_times(reply([4, 4], -1)).source == "events"
    counted = token_times(reply([4, 4], -1), [3, 1])
    assert (counted.per_event, counted.tokens, counted.source) == ([3, 1], 4, "tokenizer")


def words_tokenizer(path: Path) -> Path:
    """A byte-level BPE tokenizer that knows some words whole, and the others in pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = [" ".join(PLAIN_WORDS[:60])] * 20 + list(PLAIN_WORDS[:60]) * 20
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize(("process", "cv", "expected"), [("poisson", 1.0, 1.0), ("constant", 1.0, 0.0), ("gamma", 3.0, 3.0)])
def test_a_schedule_has_the_gaps_that_were_asked_for(process: str, cv: float, expected: float) -> None:
    load = question(OpenLoop(rate=100, process=process, cv=cv), requests=20_000).draw()
    assert load.due_ns is not None
    gaps = np.diff(load.due_ns)
    assert gaps.mean() == pytest.approx(1e7, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(expected, rel=0.05, abs=1e-6)


def test_bursts_come_together_at_the_mean_rate() -> None:
    load = question(OpenLoop(rate=100), requests=64, burst=8).draw()
    assert load.due_ns is not None
    assert sorted(np.bincount(np.unique(load.due_ns, return_inverse=True)[1])) == [8] * 8
    assert np.diff(np.unique(load.due_ns)) == pytest.approx(80e6)
    assert load.pattern == "burst"


def test_a_trace_is_sent_as_it_came_with_its_own_lengths() -> None:
    recording = Recording(due_ns=(0, 5_000_000, 70_000_000), isl=(10, 20, 30), osl=(1, 2, 3), source="t.csv")
    load = question(TraceArrivals(recording=recording), requests=3).draw()
    assert load.due_ns is not None
    assert (list(load.due_ns), list(load.isl), list(load.osl)) == ([0, 5_000_000, 70_000_000], [10, 20, 30], [1, 2, 3])


def test_a_time_ends_an_open_loop() -> None:
    load = question(OpenLoop(rate=50, process="constant"), requests=None, seconds=2.0).draw()
    assert load.due_ns is not None
    assert len(load) == 100
    assert load.due_ns.max() <= 2e9
    with pytest.raises(InputError, match="request_count"):
        question(ClosedLoop(concurrency=1), requests=None).draw()


def test_an_alarm_rings_in_time_and_never_before() -> None:
    """Three rounds at most: a machine that does other things delays a round, and an alarm that is late itself is late in all of them."""
    assert any(median_delay_ns() < 3e6 for _ in range(3))


def median_delay_ns() -> float:
    """How long after its moment an alarm rings, which is never before."""
    late: list[int] = []

    async def ring() -> None:
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        alarm = Alarm(loop, rung.set)
        for _ in range(40):
            moment = time.monotonic_ns() + 1_300_000
            alarm.set(moment)
            await rung.wait()
            rung.clear()
            late.append(time.monotonic_ns() - moment)
        alarm.close()

    asyncio.run(ring())
    assert min(late) >= 0
    return float(np.median(late))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=50))
def test_gaps_fall_into_the_bins_of_the_record(gaps: list[int]) -> None:
    positions = np.arange(1, len(gaps) + 1)
    found = gap_counts(np.array(gaps, dtype=np.int64), positions)
    assert found.shape == (POSITION_BUCKETS, GAP_BINS)
    assert found.sum() == len(gaps)
    edges = gap_edges_ns()
    for gap, position in zip(gaps, positions, strict=True):
        index = int(np.searchsorted(edges, gap, side="right")) - 1
        assert edges[index] <= gap
        assert found[int(position).bit_length() - 1, index] >= 1


def batch(first: int, count: int) -> Batch:
    rows = np.zeros((count, 10), dtype=np.int64)
    rows[:, 0] = np.arange(first, first + count) * 1_000_000
    rows[:, 3] = rows[:, 0] + 5_000_000
    rows[:, 5] = 3
    return Batch(rows=rows, offsets_ns=np.tile([1, 2, 3], count).astype(np.int64), lengths=np.full(count, 3, dtype=np.int64))


def test_a_run_written_in_batches_reads_back_as_one(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    for start, count in ((0, 4), (4, 1), (5, 7)):
        writer.add(batch(start, count))
    requests = writer.finish()
    assert not (tmp_path / "run").exists()
    writer.close(scenario={"a": 1}, summary={"b": 2}, provenance={}, run={"c": 3})
    found = read_run(tmp_path / "run")
    assert list(found.requests.due_ns) == list(requests.due_ns) == [k * 1_000_000 for k in range(12)]
    offsets, lengths = read_tokens(tmp_path / "run")
    assert (list(offsets), list(lengths)) == ([1, 2, 3] * 12, [3] * 12)


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.add(batch(0, 3))
    writer.discard()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", ""),
        ("localhost:8000/", "localhost:8000", ""),
        ("https://host/prefix/", "host", "/prefix"),
        ("http://[::1]:80", "[::1]", ""),
    ],
)
def test_addresses(url: str, authority: str, path: str) -> None:
    target = parse_url(url)
    assert (target.authority, target.path) == (authority, path)


def test_a_request_has_its_key_and_its_length() -> None:
    head = request_head(parse_url("http://h:1/p"), "/v1/x", key="k", headers=(("X-A", "b"),))
    raw = request_bytes(head, 7, b"{}")
    assert raw.startswith(b"POST /p/v1/x HTTP/1.1\r\nHost: h:1\r\n")
    assert b"\r\nAuthorization: Bearer k\r\n" in raw
    assert raw.endswith(b"X-Request-Id: 7\r\nContent-Length: 2\r\n\r\n{}")
    with pytest.raises(InputError, match="printable"):
        request_head(parse_url("http://h"), "/x", key="a\r\nX-Evil: 1")
