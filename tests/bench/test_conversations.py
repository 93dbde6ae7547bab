"""Conversations of several turns: each turn carries what was really said, and is due when the pause after the last answer is over."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tonnage.api.bench import bench
from tonnage.bench.benchmark import Measured
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.spec.sessions import parse_pause

ASKED: dict[str, Any] = {"model": "m", "isl": 20, "osl": 5, "selftest": False, "metrics_url": ["none"]}


@contextmanager
def parrot(*, fails_at: int = -1) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers each question with a word of its own number, and keeps every body; one request can fail."""
    bodies: list[dict[str, Any]] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                bodies.append(body)
                number = len(bodies) - 1
            reply = {
                "choices": [{"message": {"role": "assistant", "content": f"answer{number}"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": len(json.dumps(body)), "completion_tokens": 3},
            }
            data = json.dumps(reply).encode()
            self.send_response(500 if number == fails_at else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def measured(url: str, output: Path | None = None, **asked: Any) -> Measured:
    (found,) = bench(url=url, output=output, **{**ASKED, **asked})
    return found


def test_a_turn_carries_the_questions_and_the_answers_that_really_came() -> None:
    with parrot() as (url, bodies):
        measured(url, concurrency=2, conversation_num=4, conversation_turns=3, streaming=False)
    assert len(bodies) == 12
    talks: dict[str, list[list[dict[str, str]]]] = {}
    for body in bodies:
        talks.setdefault(body["messages"][0]["content"], []).append(body["messages"])
    assert len(talks) == 4
    answers = {f"answer{n}": body["messages"] for n, body in enumerate(bodies)}
    for turns in talks.values():
        assert [len(messages) for messages in turns] == [1, 3, 5]
        assert turns[2][:3] == turns[1]
        assert [message["role"] for message in turns[2]] == ["user", "assistant", "user", "assistant", "user"]
        for earlier, messages in itertools.pairwise(turns):
            assert answers[messages[-2]["content"]] == earlier  # this very answer came to these very messages


def test_the_loads_of_a_sweep_and_a_second_run_send_prompts_that_no_cache_has_seen() -> None:
    with parrot() as (url, bodies):
        for _ in range(2):
            bench(url=url, **{**ASKED, "concurrency": "1,2", "request_count": 4, "streaming": False})
    beginnings = {" ".join(body["messages"][0]["content"].split()[:3]) for body in bodies}
    assert len(bodies) == len(beginnings) == 16


def test_turns_are_due_after_the_pause_and_latency_counts_from_then(tmp_path: Path) -> None:
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.005)) as url:
        found = measured(url, tmp_path / "run", concurrency=3, conversation_num=9, conversation_turns=4, conversation_turn_delay="150ms")
    log = pq.read_table(tmp_path / "run" / "turns.parquet").to_pydict()
    requests = found.requests
    assert len(requests) == len(log["id"]) == 36
    ends: dict[int, int] = {}
    pauses = []
    for row, (talk, turn) in enumerate(zip(log["conversation"], log["turn"], strict=True)):
        if turn:
            pauses.append((requests.due_ns[row] - ends[talk]) / 1e6)
        ends[talk] = int(requests.last_token_ns[row])
    assert len(pauses) == 27
    assert min(pauses) >= 149.9  # the answer's last piece may come a moment after its last token
    assert max(pauses) < 170
    assert np.diff(requests.isl.reshape(-1)).any()
    table = found.run_json["conversations"]
    assert table["conversations"] == 9
    assert [entry["turn"] for entry in table["turns"]] == [1, 2, 3, 4]
    assert all(entry["requests"] == 9 for entry in table["turns"])
    grown = [entry["isl_mean"] for entry in table["turns"]]
    assert np.diff(grown) == pytest.approx([grown[1] - grown[0]] * 3, rel=0.1)  # each turn adds a question and an answer
    assert all(20 <= entry["ttft_ms"]["mean"] <= entry["e2e_ms"]["mean"] for entry in table["turns"])


def test_an_open_loop_of_conversations_begins_them_on_its_own_schedule() -> None:
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002)) as url:
        found = measured(url, request_rate=40, arrival_pattern="constant", conversation_num=40, conversation_turns=2)
    log = found.observed.turns
    assert log is not None
    firsts = np.sort(found.requests.due_ns[log.turn == 0])
    assert np.diff(firsts) == pytest.approx(np.full(39, 25e6))
    assert found.run_json["load"]["kind"] == "open"
    assert found.summary_json["requests"]["completed"] == 80


def test_a_conversation_ends_where_a_turn_fails_and_the_others_go_on() -> None:
    with parrot(fails_at=4) as (url, bodies):
        found = measured(url, concurrency=1, conversation_num=5, conversation_turns=3, streaming=False, max_error_rate=0.5)
    assert len(bodies) == 14  # its third turn was never asked
    assert found.summary_json["errors_by_kind"] == {"HTTP 500": 1}
    assert [entry["requests"] for entry in found.run_json["conversations"]["turns"]] == [5, 4, 4]


def test_a_time_ends_conversations_and_what_is_in_flight_is_kept() -> None:
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        found = measured(url, concurrency=4, conversation_turns=50, conversation_turn_delay="exponential:20ms", benchmark_duration="1s")
    assert found.observed.seconds < 1.5
    assert 60 < len(found.requests) < 200
    assert found.summary_json["requests"]["unfinished"] == 0
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        found = measured(
            url, concurrency=1, conversation_num=1, conversation_turns=2, conversation_turn_delay="60s", benchmark_duration="1s"
        )
    assert found.observed.seconds < 2
    assert len(found.requests) == 1


def test_conversations_of_a_file_are_held_as_they_stand(tmp_path: Path) -> None:
    talks = [
        {"turns": [{"text": "good morning", "osl": 3}, {"text": "and now", "osl": 4, "pause_s": 0.05}]},
        {
            "messages": [
                {"role": "user", "content": "first"},
                {"role": "assistant", "content": "kept out"},
                {"role": "user", "content": "next"},
            ]
        },
    ]
    (tmp_path / "talks.jsonl").write_text("\n".join(json.dumps(talk) for talk in talks))
    with parrot() as (url, bodies):
        found = measured(url, concurrency=1, conversation_file=tmp_path / "talks.jsonl", isl=None, osl=2, streaming=False)
    assert [body["messages"][-1]["content"] for body in bodies] == ["good morning", "and now", "first", "next"]
    assert {body["max_tokens"] for body in bodies} == {2}
    assert "kept out" not in json.dumps(bodies)
    assert len(found.requests) == 4
    share = [
        {"conversations": [{"from": "human", "value": "why"}, {"from": "gpt", "value": "because of it"}, {"from": "human", "value": "x"}]}
    ]
    (tmp_path / "share.json").write_text(json.dumps(share))
    with parrot() as (url, bodies):
        measured(url, concurrency=1, conversation_file=tmp_path / "share.json", isl=None, osl=None, streaming=False)
    assert [(body["messages"][-1]["content"], body["max_tokens"]) for body in bodies] == [("why", 3)]


@pytest.mark.parametrize("kind", ["completions", "responses"])
def test_other_endpoints_carry_the_conversation_in_their_own_shape(kind: str) -> None:
    with exact_server(Schedule(ttft_s=0.005, itl_s=0.001)) as url:
        found = measured(url, concurrency=2, conversation_num=4, conversation_turns=3, endpoint_type=kind)
    assert found.summary_json["errors"] == 0
    lengths = [entry["isl_mean"] for entry in found.run_json["conversations"]["turns"]]
    assert lengths == sorted(lengths)
    assert lengths[2] > 2 * lengths[0]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"conversation_num": 3}, "conversation_turns"),
        ({"conversation_turns": 3}, "conversation_num"),
        ({"conversation_turns": 3, "conversation_num": 3, "request_count": 3}, "request_count"),
        ({"conversation_turns": 3, "conversation_num": 3, "workers": 2}, "workers"),
        ({"conversation_turns": 3, "conversation_num": 3, "endpoint_type": "embeddings", "streaming": False}, "holds no conversations"),
        ({"conversation_turns": 3, "conversation_num": 3, "conversation_turn_delay": "gamma:2s"}, "is no pause"),
        ({"conversation_file": Path("nowhere.jsonl")}, "conversation_file"),
    ],
)
def test_what_does_not_go_together_is_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        bench(url="127.0.0.1:1", **{**ASKED, "concurrency": 2, **asked})


def test_pauses_are_constant_or_exponential() -> None:
    rng = np.random.default_rng(0)
    assert set(parse_pause("2s", "the pause").draw(5, rng)) == {2_000_000_000}
    drawn = parse_pause("exponential:2s", "the pause").draw(20_000, rng)
    assert drawn.mean() == pytest.approx(2e9, rel=0.03)
    assert drawn.std() == pytest.approx(2e9, rel=0.03)


def test_the_command_holds_conversations(capsys: pytest.CaptureFixture[str]) -> None:
    with exact_server(Schedule(ttft_s=0.005, itl_s=0.001)) as url:
        flags = ["--concurrency", "2", "--conversation-num", "4", "--conversation-turns", "uniform:2-3", "--conversation-turn-delay", "5ms"]
        run(["bench", "--url", url, "--model", "m", "--isl", "10", "--osl", "4", "--no-selftest", "--json", *flags])
    found = json.loads(capsys.readouterr().out)
    assert found["conversations"]["conversations"] == 4
    assert found["conversations"]["turns"][0]["requests"] == 4
