"""Replies are read the same however they are cut into pieces, and whatever bytes come, nothing
crashes or miscounts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.corpus import CASES, DONE, HEAD, PLAIN, STREAM, Case, chat, chunked, sse, usage
from tonnage.bench.endpoints import Delta, find_endpoint
from tonnage.bench.http_response import BrokenReply
from tonnage.bench.reply import Exchange, Reply, kept_answer, words_of
from tonnage.formats.tool_format import Answer
from tonnage.results.outcomes import UNFINISHED_END


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


def state(reply: Reply) -> dict[str, Any]:
    """What a reply says of its output."""
    names = ("times", "sizes", "counts", "texts", "tokens", "prompt", "cached", "reasoning")
    further = ("thought", "choices", "finished", "finish", "error", "events", "in_place", "last_ns")
    return {name: getattr(reply, name) for name in (*names, *further)}


NOTHING = {
    "times": [],
    "sizes": [],
    "counts": {},
    "texts": [],
    "tokens": -1,
    "prompt": -1,
    "cached": -1,
    "reasoning": 0,
    "thought": False,
    "choices": 1,
    "finished": False,
    "finish": "",
    "error": "",
    "events": 0,
    "in_place": "",
    "last_ns": -1,
}


@pytest.mark.parametrize(
    ("deltas", "changed"),
    [
        ([], {}),
        ([Delta()], {}),
        (
            [Delta(text="ab"), Delta(text="c")],
            {"times": [10, 20], "sizes": [2, 1], "texts": ["ab", "c"]},
        ),
        (
            [
                Delta(text="ab", tokens=1, prompt=7, cached=3, reasoning=1),
                Delta(text="c", tokens=4),
            ],
            {
                "times": [10, 20],
                "sizes": [2, 1],
                "texts": ["ab", "c"],
                "reasoning": 1,
                "counts": {0: 1, 1: 4},
                "tokens": 4,
                "prompt": 7,
                "cached": 3,
            },
        ),
        ([Delta(tokens=5), Delta(tokens=4, prompt=2)], {"tokens": 5, "prompt": 2}),
        ([Delta(prompt=2, cached=1), Delta(cached=9)], {"prompt": 2, "cached": 1}),
        ([Delta(thought=True), Delta()], {"thought": True}),
        ([Delta(), Delta(thought=True)], {"thought": True}),
        ([Delta(choices=3), Delta(choices=2)], {"choices": 3}),
        ([Delta(finish="stop"), Delta()], {"finished": True, "finish": "stop"}),
        ([Delta(finish="stop"), Delta(finish="length")], {"finished": True, "finish": "length"}),
        ([Delta(finish="error"), Delta(finish="stop")], {"finished": True, "finish": "error"}),
        ([Delta(error="a"), Delta(error="b")], {"error": "a"}),
        ([Delta(), Delta(error="b")], {"error": "b"}),
    ],
)
def test_what_documents_add_to_a_reply(deltas: list[Delta], changed: dict[str, Any]) -> None:
    reply = Reply(find_endpoint("chat", model="m"), keep_text=True)
    for place, delta in enumerate(deltas, start=1):
        reply._take(10 * place, delta)
    assert state(reply) == {**NOTHING, **changed}
    without = Reply(find_endpoint("chat", model="m"))
    for delta in deltas:
        without._take(1, delta)
    assert without.texts == []


def answered(head: str, body: bytes = b"", *, kind: str = "chat", **further: Any) -> Reply:
    """A reply that was read to its end."""
    reply = Reply(find_endpoint(kind, model="m", **further))
    lines = head.replace("|", "\r\n")
    reply.feed(1, f"HTTP/1.1 {lines}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    reply.end()
    return reply


EVENTS = "200 OK|Content-Type: text/event-stream"


@pytest.mark.parametrize(
    ("head", "body", "failure"),
    [
        (
            "301 Moved|Location: http://x",
            b"",
            ("redirected", "to http://x; redirects are not followed"),
        ),
        ("399 Odd", b"", ("redirected", "to nowhere; redirects are not followed")),
        ("300 Odd", b"", ("redirected", "to nowhere; redirects are not followed")),
        ("400 Bad", b'{"error": "no"}', ("HTTP 400", "no")),
        ("201 Made", b"a <b>c</b>", ("HTTP 201", "a c")),
        ("429 Busy|Retry-After: 7", b"wait", ("HTTP 429", "wait (Retry-After: 7)")),
        ("200 OK", b'{"error": "no"}', ("error in the reply", "no")),
        ("200 OK", b'{"choices": []}', ("a whole reply in place of a stream", '{"choices": []}')),
        ("200 OK", b'{"output": []}', ("a whole reply in place of a stream", '{"output": []}')),
        (
            "200 OK",
            b'{"text_output": 1}',
            ("a whole reply in place of a stream", '{"text_output": 1}'),
        ),
        ("200 OK", b'{"a": 1}', ("JSON in place of a stream", '{"a": 1}')),
        ("200 OK", b"<HTML>no", ("an HTML page in place of a stream", "no")),
        ("200 OK|Content-Type: Text/HTML; x", b"no", ("an HTML page in place of a stream", "no")),
        ("200 OK|Content-Type: a/b", b"no", ("a/b in place of a stream", "no")),
        ("200 OK", b"no", ("something else in place of a stream", "no")),
        (EVENTS, b"", ("no output", "")),
        (EVENTS, b": only a comment\n\n", ("no output", ": only a comment")),
        (EVENTS, sse(chat("a")), (UNFINISHED_END, "neither a finish reason nor [DONE] came")),
        (EVENTS, sse(chat("a")) + DONE, ("", "")),
        (EVENTS, DONE, ("no output", "no text came")),
        (
            EVENTS,
            sse({"choices": [], "usage": {"completion_tokens": 9, "reasoning_tokens": 8}}) + DONE,
            ("no output", "no text came; the server counts 9 output tokens, 8 of them reasoning"),
        ),
        (
            EVENTS,
            sse({"choices": [{"delta": {"content": "a"}, "finish_reason": "cancelled"}]}),
            ("cancelled by the server", "the output ended with 'cancelled'"),
        ),
    ],
)
def test_why_a_reply_has_no_whole_output(head: str, body: bytes, failure: tuple[str, str]) -> None:
    assert answered(head, body).failure() == failure


def test_a_reply_that_is_not_streamed_or_has_no_mark_of_its_end() -> None:
    whole = {"choices": [{"message": {"content": "ab"}}], "usage": {"completion_tokens": 2}}
    reply = answered("200 OK", json.dumps(whole).encode(), streaming=False)
    assert (reply.failure(), reply.times, reply.sizes, reply.counts) == (("", ""), [1], [2], {0: 2})
    generated = answered(EVENTS, sse({"text_output": "a"}), kind="generate")
    assert generated.failure() == ("", "")
    vector = answered("200 OK", b'{"data": [1]}', kind="embeddings", streaming=False)
    assert (vector.failure(), vector.times) == (("", ""), [])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "a\\nb"}}', "a b"),
        (b"<style>x</style><p>a</p>\n b", "a b"),
        (b"[1]", "[1]"),
        (b"x" * 300, "x" * 200),
        (b"\xff", "\ufffd"),
        (b"", ""),
    ],
)
def test_words_of_a_body(body: bytes, words: str) -> None:
    assert words_of(body) == words


def test_the_responses_that_another_client_kept() -> None:
    body = sse(chat("a")) + sse(chat("b")) + sse(usage(2)) + DONE
    whole = kept_answer("chat", True, [(5.4, body[:40]), (7.6, body[40:])])
    assert (whole.moments, whole.text, whole.tokens, whole.error) == ([8], "ab", 2, "")
    late = [(5.0, sse(chat("a"))), (9.0, sse(chat("b")) + DONE)]
    assert kept_answer("chat", True, late).moments == [5, 9]
    cut = kept_answer("chat", True, late[:1])
    assert (cut.text, cut.error) == ("a", UNFINISHED_END)
    failing = kept_answer("chat", True, [(5.0, sse({"error": "no"}))])
    assert (failing.text, failing.error, failing.tokens) == ("", "no", -1)
    assert "not JSON" in kept_answer("chat", True, [(5.0, b"data: {\n\n")]).error
    assert kept_answer("chat", False, [(5.0, b"{}")]) != Answer([])


def test_the_first_reason_of_a_failure_stays() -> None:
    made = Exchange(number=3, isl=4, osl=5, data=b"d", reply=answered("400 Bad", b"no"))
    assert (made.due_ns, made.begun_ns, made.sent_ns, made.outcome, made.detail) == (
        *(-1, -1, -1, "", ""),
    )
    assert (made.retried, made.failures, made.streamed, made.question) == (False, 0, True, "")
    made.judge()
    made.fail("later")
    assert (made.outcome, made.detail) == ("HTTP 400", "no")
