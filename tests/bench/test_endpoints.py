"""Kinds of endpoint: a request out, and what a document of the reply says."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.bench.corpus import DONE, HEAD, chat, chunked, sse
from tests.bench.held import measured
from tests.bench.live import question, read_request, run, scripted
from tonnage.bench.endpoints import error_of, find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.http_response import BrokenReply
from tonnage.bench.reply import Reply
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
