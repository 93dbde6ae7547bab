"""Kinds of endpoint: a request out, and what a document of the reply says."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.bench.corpus import DONE, HEAD, chat, chunked, sse
from tests.bench.held import measured
from tests.bench.live import question, read_request, run, scripted
from tonnage.bench.endpoints import KINDS as CLASSES
from tonnage.bench.endpoints import Delta, end_of, error_of, find_endpoint, usage_of
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.http_response import BrokenReply
from tonnage.bench.reply import Reply
from tonnage.errors import InputError, UnknownName, option
from tonnage.spec.workload import ClosedLoop

KINDS = [
    *(
        (kind, streaming)
        for kind in ("chat", "completions", "responses")
        for streaming in (True, False)
    ),
    *(("generate", True), ("embeddings", False)),
]


@pytest.mark.parametrize(("kind", "streaming"), KINDS)
def test_every_kind_of_endpoint_is_measured(
    kind: str, streaming: bool, fast: str, tmp_path: Path
) -> None:
    found = run(fast, tmp_path / "run", question(osl="15"), kind=kind, streaming=streaming)
    assert found.outcomes == {"": 12}, kind
    assert set(found.requests.osl) == {0 if kind == "embeddings" else 15}, kind
    assert found.observed.connections == 4
    first, last = found.requests.first_token_ns, found.requests.last_token_ns
    assert (first >= found.requests.sent_ns + 10_000_000).all()
    assert (last > first).any() if streaming else (last == first).all()
    assert (last >= first).all()


def test_tokens_are_counted_from_the_text_where_the_server_does_not_say(tmp_path: Path) -> None:
    replies = HEAD + chunked(*(sse(chat(text)) for text in (" a", " b c", " d")), DONE)

    def answer(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(replies)

    with scripted(answer) as url:
        found = run(url, tmp_path / "run", question(ClosedLoop(concurrency=1), requests=1))
    assert list(found.requests.osl) == [3]
    assert dict(found.observed.tally.sources) == {"events": 1}


def test_a_stream_of_too_many_bytes_or_events_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.bench.reply.MAX_STREAM", 1_000)
    monkeypatch.setattr("tonnage.bench.reply.MAX_EVENTS", 5)
    reply = Reply(find_endpoint("chat", model="m"))
    with pytest.raises(BrokenReply, match="a stream of more than"):
        reply.read([(1, HEAD), *((2, chunked(b": ping\n\n" * 20, last=b"")) for _ in range(7))])
    reply = Reply(find_endpoint("chat", model="m"))
    with pytest.raises(BrokenReply, match="more than 5 events with output"):
        reply.read(
            [
                (1, HEAD),
                *(
                    (2, chunked(sse({"choices": [{"delta": {"content": "a"}}]}), last=b""))
                    for _ in range(7)
                ),
            ]
        )


FLOOD = r"""
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
peer.recv(65_536)
peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
try:
    while True:
        peer.sendall(b": ping\n\n" * 100_000)
except OSError:
    pass
"""


def test_comments_without_end_are_cut_at_the_limit_of_their_seconds(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FLOOD], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        began = time.monotonic()
        asked = question(ClosedLoop(concurrency=1), requests=1)
        measured_run = run(url, tmp_path / "run", asked, timeout_s=0.2)
        assert time.monotonic() - began < 5
    assert dict(measured_run.outcomes) == {"timed out": 1}


@pytest.mark.parametrize("kind", ["completions", "responses"])
def test_other_endpoints_carry_the_conversation_in_their_own_shape(kind: str) -> None:
    with exact_server(Schedule(ttft_s=0.005, itl_s=0.001)) as url:
        found = measured(
            url, concurrency=2, conversation_num=4, conversation_turns=3, endpoint_type=kind
        )
    assert found.summary_json["errors"] == 0
    lengths = [entry["isl_mean"] for entry in found.run_json["conversations"]["turns"]]
    assert lengths == sorted(lengths)
    assert lengths[2] > 2 * lengths[0]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"choices": [], "message": "no error"}, ""),
        ({"type": "response.created", "message": "no error"}, ""),
        ({"usage": {}, "detail": "no error"}, ""),
        ({"message": "Service\nUnavailable"}, "Service Unavailable"),
        ({"detail": [{"loc": ["body"]}]}, "[{'loc': ['body']}]"),
        ({"message": 3}, ""),
        ({"choices": [], "error": {"message": "of a stream"}}, "of a stream"),
        ({"object": "error", "message": "of vLLM"}, "of vLLM"),
        ({"type": "error", "error": {"code": 3}}, "{'code': 3}"),
        ({"type": "error"}, "an error without a message"),
        ({"error": "x" * 300}, "x" * 200),
    ],
)
def test_a_document_is_an_error_by_what_it_holds(document: dict[str, Any], message: str) -> None:
    assert error_of(document) == message


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (None, {}),
        ("5", {}),
        ({}, {}),
        ({"prompt_tokens": 0, "completion_tokens": 5}, {"prompt": 0, "tokens": 5}),
        ({"input_tokens": 2, "output_tokens": 3}, {"prompt": 2, "tokens": 3}),
        ({"prompt_tokens": -1, "completion_tokens": 2**40}, {}),
        ({"prompt_tokens": 2**40 - 1, "completion_tokens": 1.5}, {"prompt": 2**40 - 1}),
        ({"prompt_tokens_details": {"cached_tokens": 7}}, {"cached": 7}),
        (
            {"input_tokens_details": {"cached_tokens": 8}, "input_tokens": 9},
            {"prompt": 9, "cached": 8},
        ),
        ({"prompt_tokens_details": None, "input_tokens": 9}, {"prompt": 9}),
        # within the output tokens
        (
            {
                "prompt_tokens": 4,
                "completion_tokens": 10,
                "total_tokens": 14,
                "completion_tokens_details": {"reasoning_tokens": 6},
            },
            {"prompt": 4, "tokens": 10, "reasoning": 6},
        ),
        # apart from them, as the total shows
        (
            {
                "prompt_tokens": 4,
                "completion_tokens": 10,
                "total_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 6},
            },
            {"prompt": 4, "tokens": 16, "reasoning": 6},
        ),
        # or as they are more
        (
            {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 6}},
            {"tokens": 11, "reasoning": 6},
        ),
        ({"completion_tokens": 6, "reasoning_tokens": 6}, {"tokens": 6, "reasoning": 6}),
        ({"reasoning_tokens": 6}, {"tokens": 6, "reasoning": 6}),
        (
            {"completion_tokens": 10, "reasoning_tokens": 6, "total_tokens": 16},
            {"tokens": 16, "reasoning": 6},
        ),
        (
            {"completion_tokens": 10, "reasoning_tokens": 6, "total_tokens": 17},
            {"tokens": 10, "reasoning": 6},
        ),
        ({"reasoning_tokens": 1}, {"tokens": 1, "reasoning": 1}),
        ({"completion_tokens": 6, "reasoning_tokens": 0}, {"tokens": 6}),
        ({"completion_tokens": 6, "reasoning_tokens": -3}, {"tokens": 6}),
        ({"completion_tokens": 6, "reasoning_tokens": 2**40}, {"tokens": 6}),
        ({"completion_tokens": 6, "reasoning_tokens": "2"}, {"tokens": 6}),
    ],
)
def test_counts_of_a_usage(usage: object, counts: dict[str, int]) -> None:
    assert usage_of({"usage": usage}) == counts


@pytest.mark.parametrize(
    ("choices", "end"),
    [
        ([], {}),
        ([{"index": 0}], {}),
        ([{"index": 1}], {"choices": 2}),
        ([{"index": 3}, {"index": 1}], {"choices": 4}),
        ([{}, {}, {}], {"choices": 3}),
        ([{"index": "2"}], {}),
        ([{"finish_reason": "stop"}], {"finish": "stop"}),
        (
            [{"finish_reason": "stop"}, {"finish_reason": "length"}],
            {"finish": "length", "choices": 2},
        ),
        (
            [{"finish_reason": "error", "error": {"message": "m"}}, {"finish_reason": "stop"}],
            {"finish": "error", "error": "m", "choices": 2},
        ),
    ],
)
def test_how_choices_end(choices: list[dict[str, Any]], end: dict[str, Any]) -> None:
    assert end_of(choices) == end


def part(**fields: Any) -> dict[str, Any]:
    """A document of chat with one delta of these fields."""
    return {"choices": [{"delta": fields}]}


CALL = {"function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("kind", "document", "expected"),
    [
        ("chat", {}, {}),
        ("chat", {"choices": None}, {}),
        ("chat", part(role="assistant"), {}),
        ("chat", {"choices": [{"delta": None}]}, {}),
        ("chat", part(content="a"), {"text": "a"}),
        ("chat", {"choices": [{"message": {"content": "a"}}]}, {"text": "a"}),
        ("chat", part(refusal="no"), {"text": "no"}),
        ("chat", part(tool_calls=[CALL, {}], function_call={"name": "g"}), {"text": "f{}g"}),
        ("chat", part(reasoning_content="r", content="a"), {"text": "ra", "thought": True}),
        ("chat", part(reasoning="r"), {"text": "r", "thought": True}),
        (
            "chat",
            part(reasoning_details=[{"type": "reasoning.text", "text": "r"}]),
            {"text": "r", "thought": True},
        ),
        (
            "chat",
            part(reasoning_details=[{"type": "reasoning.summary", "summary": "s"}]),
            {"text": "s"},
        ),
        ("chat", part(reasoning_details=[{"type": "reasoning.encrypted"}]), {}),
        ("chat", part(content=[{"type": "text", "text": "a"}, "b"]), {"text": "ab"}),
        (
            "chat",
            part(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]),
            {"text": "t", "thought": True},
        ),
        (
            "chat",
            {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]},
            {"text": "ab", "choices": 2},
        ),
        (
            "chat",
            {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
            {"prompt": 1, "tokens": 2},
        ),
        ("chat", {"error": "e"}, {"error": "e"}),
        ("completions", {"choices": [{"text": "a"}, {"text": "b"}]}, {"text": "ab", "choices": 2}),
        ("completions", {"choices": None, "error": "e"}, {"error": "e"}),
        (
            "completions",
            {"choices": [{"text": "a", "finish_reason": "stop"}], "usage": {"output_tokens": 4}},
            {"text": "a", "finish": "stop", "tokens": 4},
        ),
        ("responses", {"type": "response.output_text.delta", "delta": "a"}, {"text": "a"}),
        (
            "responses",
            {"type": "response.reasoning_text.delta", "delta": "a"},
            {"text": "a", "thought": True},
        ),
        (
            "responses",
            {"type": "response.reasoning_summary_text.delta", "delta": "a"},
            {"text": "a"},
        ),
        ("responses", {"type": "response.created", "response": {}}, {}),
        (
            "responses",
            {"type": "response.completed", "response": {"usage": {"output_tokens": 4}}},
            {"finish": "completed", "tokens": 4},
        ),
        ("responses", {"type": "response.completed", "response": None}, {"finish": "completed"}),
        (
            "responses",
            {
                "type": "response.incomplete",
                "response": {"status": "s", "incomplete_details": {"reason": "max_output_tokens"}},
            },
            {"finish": "max_output_tokens"},
        ),
        (
            "responses",
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"message": "m"}},
            },
            {"finish": "failed", "error": "m"},
        ),
        ("responses", {"type": "error", "message": "m"}, {"error": "m"}),
        ("responses", {"type": "error", "error": {"message": "n"}, "message": "m"}, {"error": "n"}),
        ("responses", {"type": "error"}, {"error": "an error without a message"}),
        ("responses", {"detail": "d"}, {"error": "d"}),
        ("generate", {"text_output": "a"}, {"text": "a"}),
        ("generate", {"text_output": ["a", "b"]}, {"text": "ab"}),
        ("generate", {"error": "e"}, {"error": "e"}),
    ],
)
def test_what_an_event_holds(kind: str, document: dict[str, Any], expected: dict[str, Any]) -> None:
    assert find_endpoint(kind, model="m").event(document) == Delta(**expected)


@pytest.mark.parametrize(
    ("kind", "document", "expected"),
    [
        ("responses", {}, {"finish": "completed"}),
        (
            "responses",
            {
                "status": "incomplete",
                "usage": {"input_tokens": 1, "output_tokens": 2},
                "output": [
                    {"type": "reasoning", "content": [{"text": "r"}], "summary": [{"text": "s"}]},
                    {"type": "reasoning", "summary": [{"text": "t"}]},
                    {"type": "message", "content": [{"text": "a"}]},
                    {"type": "function_call", "arguments": "{}"},
                ],
            },
            {"text": "rta{}", "thought": True, "finish": "incomplete", "prompt": 1, "tokens": 2},
        ),
        (
            "responses",
            {"output": [{"type": "reasoning", "summary": [{"text": "t"}]}], "error": "e"},
            {"text": "t", "finish": "completed", "error": "e"},
        ),
        (
            "embeddings",
            {"data": [1], "usage": {"prompt_tokens": 5, "completion_tokens": 9}},
            {"finish": "stop", "tokens": 0, "prompt": 5},
        ),
        (
            "embeddings",
            {},
            {"finish": "stop", "tokens": 0, "error": "a reply without an embedding"},
        ),
        ("embeddings", {"error": "e", "data": [1]}, {"finish": "stop", "tokens": 0, "error": "e"}),
        ("infer", {"outputs": [1]}, {"finish": "stop", "tokens": 0}),
        ("infer", {}, {"finish": "stop", "tokens": 0, "error": "a reply without outputs"}),
        ("infer", {"error": "e"}, {"finish": "stop", "tokens": 0, "error": "e"}),
    ],
)
def test_what_a_whole_reply_holds(
    kind: str, document: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert find_endpoint(kind, model="m", streaming=False).whole(document) == Delta(**expected)


def test_a_delta_by_itself_holds_nothing() -> None:
    counts = dict.fromkeys(("tokens", "prompt", "cached"), -1)
    words = dict.fromkeys(("text", "finish", "error"), "")
    assert asdict(Delta()) == {**counts, **words, "reasoning": 0, "thought": False, "choices": 1}


ONE = [{"role": "user", "content": "p"}]
PINS, STREAM = {"min_tokens": 7, "ignore_eos": True}, {"stream": True}
USAGE = {"stream_options": {"include_usage": True}}
BEFORE = [("q", "a")]
TURNS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, *ONE]


@pytest.mark.parametrize(
    ("kind", "first", "length", "turn"),
    [
        ("chat", {"messages": ONE}, {"max_tokens": 7}, {"messages": TURNS}),
        ("completions", {"prompt": "p"}, {"max_tokens": 7}, {"prompt": "q\na\np"}),
        ("responses", {"input": "p"}, {"max_output_tokens": 7}, {"input": TURNS}),
    ],
)
def test_the_body_of_a_request_and_of_a_turn(
    kind: str, first: dict[str, Any], length: dict[str, int], turn: dict[str, Any]
) -> None:
    usage = {} if kind == "responses" else USAGE
    usual = find_endpoint(kind, model="m")
    whole = {"model": "m", **length, **PINS, **STREAM, **usage}
    assert usual.body("p", 7) == {**first, **whole}
    assert usual.talk(BEFORE, "p", 7) == {**turn, **whole}
    assert usual.path == f"/v1/{'chat/completions' if kind == 'chat' else kind}"
    assert (usual.streaming, usual.pinned, usual.extra, usual.omitted) == (True, True, {}, ())
    plain = find_endpoint(kind, model="m", streaming=False, pinned=False)
    assert plain.body("p", 7) == {**first, "model": "m", **length}
    unpinned = find_endpoint(kind, model="m", pinned=False)
    assert unpinned.body("p", 7) == {**first, "model": "m", **length, **STREAM, **usage}


def test_bodies_of_other_kinds() -> None:
    generate = find_endpoint("generate", model="a/b")
    assert generate.path == "/v2/models/a%2Fb/generate_stream"
    assert generate.body("p", 7) == {"text_input": "p", "max_tokens": 7, "min_length": 7, **STREAM}
    plain = find_endpoint("generate", model="m", streaming=False, pinned=False)
    assert (plain.path, plain.body("p", 7)) == (
        "/v2/models/m/generate",
        {"text_input": "p", "max_tokens": 7},
    )
    for kind, path in (("embeddings", "/v1/embeddings"), ("infer", "/v2/models/m/infer")):
        made = find_endpoint(kind, model="m", streaming=False)
        assert (made.path, made.has_output) == (path, False)
        with pytest.raises(InputError, match=f"{kind} has one reply"):
            find_endpoint(kind, model="m")
    assert find_endpoint("embeddings", model="m", streaming=False).body("p", 7) == {
        "model": "m",
        "input": "p",
    }
    for made in (generate, find_endpoint("embeddings", model="m", streaming=False)):
        with pytest.raises(InputError, match="holds no conversations"):
            made.talk(BEFORE, "p", 7)
    with pytest.raises(UnknownName, match="unknown endpoint type 'x'"):
        find_endpoint("x", model="m")


def test_further_fields_come_last_and_omitted_ones_not_at_all() -> None:
    made = find_endpoint("chat", model="m", extra={"b": 1, "c": 2}, omitted=("a", "c"))
    assert made.sent({"a": 0, "b": 0, "d": 0}) == {"b": 1, "d": 0}


@pytest.mark.parametrize(
    ("refusal", "pinned", "remedy"),
    [
        ("unknown field min_tokens", True, "{no_pin_output} leaves out min_tokens and ignore_eos"),
        (
            "unsupported: min_tokens, stream_options",
            True,
            "{omit_inputs} min_tokens {omit_inputs} stream_options leaves out what it does not take",
        ),
        ("unknown field", False, ""),
        ("unknown field messages", False, ""),
        (
            "unexpected max_tokens",
            False,
            "{omit_inputs} max_tokens leaves out what it does not take",
        ),
        ("unsupported messages", True, "{no_pin_output} leaves out min_tokens and ignore_eos"),
        ("min_tokens must be positive", True, ""),
    ],
)
def test_the_option_that_leaves_out_what_is_refused(
    refusal: str, pinned: bool, remedy: str
) -> None:
    names = {name: option(name) for name in ("no_pin_output", "omit_inputs")}
    made = find_endpoint("chat", model="m", pinned=pinned)
    assert made.remedy(refusal) == remedy.format(**names)


def test_an_endpoint_by_its_class_is_the_usual_one() -> None:
    for kind in ("chat", "completions", "responses", "generate"):
        assert CLASSES[kind](model="m") == find_endpoint(kind, model="m")
    assert list(CLASSES) == [
        *("chat", "completions", "responses", "embeddings", "generate", "infer"),
    ]
