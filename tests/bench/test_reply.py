"""Replies are read the same however they are cut into pieces, and whatever bytes come, nothing
crashes or miscounts."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.corpus import CASES, DONE, HEAD, PLAIN, STREAM, Case, chat, chunked, sse, usage
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.http_response import BrokenReply
from tonnage.bench.reply import Reply


def read(case: Case, pieces: list[bytes], *, by_feed: bool = False) -> tuple[Reply, str]:
    """The reply after all pieces, stamped 1, 2, …, taken one by one or together; and what was found
    broken."""
    reply = Reply(find_endpoint(case.kind, model="m", streaming=case.streaming), keep_text=True)
    try:
        stamped = list(enumerate(pieces, start=1))
        if by_feed:
            for at, piece in stamped:
                reply.feed(at, piece)
        else:
            reply.read(stamped)
        reply.end()
    except BrokenReply as broken:
        return reply, str(broken)
    return reply, ""


def check(case: Case, pieces: list[bytes]) -> None:
    for by_feed in (True, False):
        check_one(case, *read(case, pieces, by_feed=by_feed))


def check_one(case: Case, reply: Reply, broken: str) -> None:
    assert case.broken in broken
    assert bool(broken) == bool(case.broken)
    assert reply.texts == case.texts
    assert reply.sizes == [len(text) for text in case.texts]
    assert reply.times == sorted(reply.times)
    assert len(reply.times) == len(case.texts)
    assert (reply.tokens, reply.prompt, reply.cached) == (case.tokens, case.prompt, case.cached)
    assert (reply.finished, reply.error, reply.http.status) == (
        case.finished,
        case.error,
        case.status,
    )
    if not case.broken:
        assert reply.http.complete
        assert reply.http.keep_alive == case.keep_alive
    if not case.broken and case.status == 200 and not case.error:
        outcome, detail = reply.failure()
        assert outcome == case.failure
        assert case.detail in detail


@pytest.mark.parametrize("name", CASES)
def test_a_reply_is_read_the_same_cut_in_two_at_every_byte(name: str) -> None:
    case = CASES[name]
    check(case, [case.raw])
    for cut in range(1, len(case.raw)):  # the two ways of reading take turns
        check_one(case, *read(case, [case.raw[:cut], case.raw[cut:]], by_feed=cut % 2 == 0))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_reply_is_read_the_same_in_small_pieces(name: str, size: int) -> None:
    case = CASES[name]
    check(case, [case.raw[i : i + size] for i in range(0, len(case.raw), size)])


def test_an_event_has_the_stamp_of_the_piece_that_completes_it() -> None:
    parts = [HEAD, *(chunked(sse(d), last=b"") for d in PLAIN), chunked(DONE)]
    reply, _ = read(CASES["a plain stream"], parts)
    assert reply.times == [3, 4, 5]  # after the head and the role
    first = HEAD + parts[1] + parts[2][:-10]
    late, _ = read(CASES["a plain stream"], [first, parts[2][-10:], b"".join(parts[3:])])
    assert late.times == [2, 3, 3]


TEXTS = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    texts=TEXTS,
    ascii_only=st.booleans(),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    seed=st.integers(0, 2**32),
)
def test_any_text_in_any_pieces_comes_out_as_it_went_in(
    texts: list[str], ascii_only: bool, end: bytes, seed: int
) -> None:
    rng = random.Random(seed)
    texts = [t.encode("utf-8", "replace").decode() for t in texts]
    events = (
        b"".join(sse(json.dumps(chat(t), ensure_ascii=ascii_only).encode(), end) for t in texts)
        + sse(usage(len(texts)))
        + DONE
    )
    cuts = sorted(rng.randrange(len(events)) for _ in range(rng.randrange(12)))
    body = [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True) if a < b]
    raw = HEAD + chunked(*body)
    pieces = sorted(rng.randrange(len(raw)) for _ in range(rng.randrange(20)))
    check(
        Case(kind="chat", raw=raw, texts=texts, tokens=len(texts), prompt=7),
        [raw[a:b] for a, b in zip([0, *pieces], [*pieces, len(raw)], strict=True) if a < b],
    )


def test_fuzzed_bytes_never_crash_and_never_count_what_is_not_there() -> None:
    rng = random.Random(5)
    for _ in range(3_000):
        raw = bytearray(STREAM)
        for _ in range(rng.randrange(1, 6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        cut = rng.randrange(len(raw))
        reply, broken = read(CASES["a plain stream"], [bytes(raw[:cut]), bytes(raw[cut:])])
        assert len(reply.times) <= 4  # the role's empty content may become a text
        assert broken or reply.http.complete
