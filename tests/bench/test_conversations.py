"""Conversations of several turns: each turn carries what was really said, and is due when the pause
after the last answer is over."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.answering import answering
from tests.bench.held import ASKED, measured
from tests.bench.parts import words_tokenizer
from tests.bench.records import record
from tonnage.api.bench import bench, prepare_bench, run_bench
from tonnage.bench.conversations import (
    ConversationFile,
    Turn,
    TurnLog,
    by_turn,
    drawn,
    read_conversations,
)
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.prompts import TokenizerFile, read_prompts, share_gpt
from tonnage.errors import InputError
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.sessions import Pause, parse_pause


@contextmanager
def parrot(*, fails_at: int = -1) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers each question with a word of its own number, and keeps every body; one
    request can fail."""
    bodies: list[dict[str, Any]] = []
    lock = threading.Lock()

    def reply(path: str, headers: Message, data: bytes) -> tuple[int, bytes]:
        body = json.loads(data)
        with lock:
            bodies.append(body)
            number = len(bodies) - 1
        said = {
            "choices": [
                {
                    "message": {"role": "assistant", "content": f"answer{number}"},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": len(json.dumps(body)), "completion_tokens": 3},
        }
        return 500 if number == fails_at else 200, json.dumps(said).encode()

    with answering(reply) as url:
        yield url, bodies


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
        assert [message["role"] for message in turns[2]] == [
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
        ]
        for earlier, messages in itertools.pairwise(turns):
            # this very answer came to these very messages
            assert answers[messages[-2]["content"]] == earlier


def test_the_loads_of_a_sweep_and_a_second_run_send_prompts_that_no_cache_has_seen() -> None:
    with parrot() as (url, bodies):
        for _ in range(2):
            bench(
                url=url, **{**ASKED, "concurrency": "1,2", "request_count": 4, "streaming": False}
            )
    beginnings = {" ".join(body["messages"][0]["content"].split()[:3]) for body in bodies}
    assert len(bodies) == len(beginnings) == 16


def test_turns_are_due_after_the_pause_and_latency_counts_from_then(tmp_path: Path) -> None:
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.005)) as url:
        found = measured(
            url,
            tmp_path / "run",
            concurrency=3,
            conversation_num=9,
            conversation_turns=4,
            conversation_turn_delay="50ms",
        )
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
    assert min(pauses) >= 49.9  # the answer's last piece may come a moment after its last token
    assert max(pauses) < 70
    assert np.diff(requests.isl.reshape(-1)).any()
    table = found.run_json["conversations"]
    assert table["conversations"] == 9
    assert [entry["turn"] for entry in table["turns"]] == [1, 2, 3, 4]
    assert all(entry["requests"] == 9 for entry in table["turns"])
    grown = [entry["isl_mean"] for entry in table["turns"]]
    # each turn adds a question and an answer
    assert np.diff(grown) == pytest.approx([grown[1] - grown[0]] * 3, rel=0.1)
    assert all(
        20 <= entry["ttft_ms"]["mean"] <= entry["e2e_ms"]["mean"] for entry in table["turns"]
    )


def test_an_open_loop_of_conversations_begins_them_on_its_own_schedule() -> None:
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002)) as url:
        found = measured(
            url,
            request_rate=160,
            arrival_pattern="constant",
            conversation_num=40,
            conversation_turns=2,
        )
    log = found.observed.turns
    firsts = np.sort(found.requests.due_ns[log.turn == 0])
    assert np.diff(firsts) == pytest.approx(np.full(39, 6.25e6))
    assert found.run_json["load"]["kind"] == "open"
    assert found.summary_json["requests"]["completed"] == 80


def test_a_conversation_ends_where_a_turn_fails_and_the_others_go_on() -> None:
    with parrot(fails_at=4) as (url, bodies):
        found = measured(
            url,
            concurrency=1,
            conversation_num=5,
            conversation_turns=3,
            streaming=False,
            max_error_rate=0.5,
        )
    assert len(bodies) == 14  # its third turn was never asked
    assert found.summary_json["errors_by_kind"] == {"HTTP 500": 1}
    assert [entry["requests"] for entry in found.run_json["conversations"]["turns"]] == [5, 4, 4]


@pytest.mark.live
def test_a_time_ends_conversations_and_what_is_in_flight_is_kept() -> None:
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        found = measured(
            url,
            concurrency=4,
            conversation_turns=50,
            conversation_turn_delay="exponential:20ms",
            benchmark_duration="1s",
        )
    assert found.observed.seconds < 1.5
    assert 60 < len(found.requests) < 200
    assert found.summary_json["requests"]["unfinished"] == 0
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        found = measured(
            url,
            concurrency=1,
            conversation_num=1,
            conversation_turns=2,
            conversation_turn_delay="60s",
            benchmark_duration="1s",
        )
    assert found.observed.seconds < 2
    assert len(found.requests) == 1


def test_conversations_of_a_file_are_held_as_they_stand(tmp_path: Path) -> None:
    talks = [
        {
            "turns": [
                {"text": "good morning", "osl": 3},
                {"text": "and now", "osl": 4, "pause_s": 0.05},
            ]
        },
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
        found = measured(
            url,
            concurrency=1,
            conversation_file=tmp_path / "talks.jsonl",
            isl=None,
            osl=2,
            streaming=False,
        )
    assert [body["messages"][-1]["content"] for body in bodies] == [
        "good morning",
        "and now",
        "first",
        "next",
    ]
    assert {body["max_tokens"] for body in bodies} == {2}
    assert "kept out" not in json.dumps(bodies)
    assert len(found.requests) == 4
    share = [
        {
            "conversations": [
                {"from": "human", "value": "why"},
                {"from": "gpt", "value": "because of it"},
                {"from": "human", "value": "x"},
            ]
        }
    ]
    (tmp_path / "share.json").write_text(json.dumps(share))
    with parrot() as (url, bodies):
        measured(
            url,
            concurrency=1,
            conversation_file=tmp_path / "share.json",
            isl=None,
            osl=None,
            streaming=False,
        )
    assert [(body["messages"][-1]["content"], body["max_tokens"]) for body in bodies] == [
        ("why", 3)
    ]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"conversation_num": 3}, "conversation_turns"),
        ({"conversation_turns": 3}, "conversation_num"),
        ({"conversation_turns": 3, "conversation_num": 3, "request_count": 3}, "request_count"),
        ({"conversation_turns": 3, "conversation_num": 3, "workers": 2}, "workers"),
        (
            {
                "conversation_turns": 3,
                "conversation_num": 3,
                "endpoint_type": "embeddings",
                "streaming": False,
            },
            "holds no conversations",
        ),
        (
            {"conversation_turns": 3, "conversation_num": 3, "conversation_turn_delay": "gamma:2s"},
            "is no pause",
        ),
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


SHARED = [
    {
        "conversations": [
            {"from": "human", "value": "time people water"},
            {"from": "gpt", "value": "day part"},
        ]
    },
    {"conversations": [{"from": "gpt", "value": "no question"}]},
    {"conversations": []},
]


LINES = [
    {"prompt": "time people", "max_tokens": 7},
    {"messages": [{"role": "user", "content": "water day part"}], "osl": 3},
]


def test_three_formats(tmp_path: Path) -> None:
    counter = TokenizerFile(words_tokenizer(tmp_path / "tokenizer.json"))
    (tmp_path / "a.json").write_text(json.dumps(SHARED))
    found = read_prompts(tmp_path / "a.json", counter=counter, characters=4)
    assert (found.texts, found.osl) == (("time people water",), (counter.count("day part"),))
    assert found.isl == (counter.count("time people water"),)
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps(line) for line in LINES))
    found = read_prompts(tmp_path / "b.jsonl", counter=None, characters=4)
    assert (found.texts, found.osl, found.isl) == (
        ("time people", "water day part"),
        (7, 3),
        (3, 4),
    )
    (tmp_path / "c.txt").write_text("one\n\ntwo\n")
    found = read_prompts(tmp_path / "c.txt", counter=None, characters=4)
    assert (found.texts, found.osl) == (("one", "two"), (0, 0))
    assert [found.text(number, 99) for number in range(3)] == ["one", "two", "one"]


def test_a_file_is_sent_in_order_and_again_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps(line) for line in LINES))
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.001), seconds=60) as url:
        asked = prepare_bench(
            url=url, model="m", prompt_file=tmp_path / "b.jsonl", concurrency=1, request_count=5
        )
        found = run_bench(asked, output=None, selftest=False, provenance={})[0].requests
    assert list(found.isl) == [2, 3, 2, 3, 2]  # the server counts words
    assert list(found.osl) == [7, 3, 7, 3, 7]


BAD = {
    "a file that is not there": ("none.txt", None, {}, "cannot be read"),
    "an empty file": ("a.txt", "\n", {}, "no prompt"),
    "a line that is not JSON": ("a.jsonl", "{", {}, "a.jsonl:1"),
    "a line without a prompt": ("a.jsonl", '{"x": 1}', {}, "has no prompt"),
    "a length that is none": (
        "a.jsonl",
        '{"text": "a", "osl": "long"}',
        {},
        "not a number of tokens",
    ),
    "no output length": ("a.txt", "a", {}, "how long the outputs are"),
    "a prompt length beside the file": (
        "a.txt",
        "a",
        {"isl": 5, "osl": 5},
        "have the length that they have",
    ),
    "a shared prefix beside the file": (
        "a.txt",
        "a",
        {"osl": 5, "shared_prefix": 5},
        "as they stand",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_sent_is_said(name: str, tmp_path: Path) -> None:
    file, text, further, part = BAD[name]
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=part):
        prepare_bench(
            url="127.0.0.1:9",
            model="m",
            prompt_file=tmp_path / file,
            concurrency=1,
            request_count=1,
            **further,
        )


SAID = [
    {"from": "human", "value": "q1"},
    {"from": "gpt", "value": "a1"},
    {"from": "human", "value": "q2"},
    {"from": "gpt", "value": "a2"},
]


@pytest.mark.parametrize(
    ("place", "turn", "pairs"),
    [
        (3, {"from": "gpt", "value": "a2"}, [("q1", "a1"), ("q2", "a2")]),
        (3, {"from": "gpt", "value": " "}, [("q1", "a1")]),
        (2, {"from": "human", "value": ""}, [("q1", "a1")]),
        (2, {"from": "gpt", "value": "q2"}, [("q1", "a1")]),
        (1, {"from": "gpt", "value": 3}, None),
        (0, {"from": "system", "value": "q1"}, None),
    ],
)
def test_a_recorded_conversation_counts_up_to_its_first_turn_without_an_answer(
    place: int, turn: dict[str, object], pairs: object
) -> None:
    turns = [*SAID[:place], turn, *SAID[place + 1 :]]
    assert list(share_gpt(json.dumps([{"conversations": turns}]), "a.json")) == (
        [] if pairs is None else [pairs]
    )


def test_figures_of_each_turn_by_hand() -> None:
    """Turns 1, 1, 2, 2 and 4 of conversations 0, 7, 0, 7 and 7, the last of which failed."""
    made = record(np.array([20.0, 40.0, 60.0, 100.0, 9.0]))
    requests = replace(
        made,
        isl=np.array([10, 30, 0, 0, 5]),
        cached_tokens=np.array([0, 10, 0, 0, 0]),
        status=np.array([0, 0, 0, 0, 3]),
    )
    log = TurnLog(conversation=np.array([0, 7, 0, 7, 7, 8]), turn=np.array([0, 0, 1, 1, 3, 0]))
    assert by_turn(requests, log) == {
        "conversations": 3,
        "turns": [
            {
                "turn": 1,
                "requests": 2,
                "isl_mean": 20.0,
                "cached_share": 0.25,
                "ttft_ms": {"mean": 15.0, "p50": 15.0, "p95": pytest.approx(19.5)},
                "e2e_ms": {"mean": 30.0, "p50": 30.0, "p95": pytest.approx(39.0)},
            },
            {
                "turn": 2,
                "requests": 2,
                "isl_mean": 0.0,
                "cached_share": 0.0,
                "ttft_ms": {"mean": 40.0, "p50": 40.0, "p95": pytest.approx(49.0)},
                "e2e_ms": {"mean": 80.0, "p50": 80.0, "p95": pytest.approx(98.0)},
            },
        ],
    }
    nothing = TurnLog(conversation=np.array([], dtype=int), turn=np.array([], dtype=int))
    assert by_turn(record(np.array([])), nothing) == {"conversations": 0, "turns": []}


def test_conversations_are_drawn_turn_by_turn() -> None:
    lengths = parse_lengths("uniform:1-9", ""), parse_lengths("uniform:10-90", "")
    made = drawn(
        count=50,
        turns=parse_lengths("uniform:1-4", ""),
        isl=lengths[0],
        osl=lengths[1],
        pause=Pause(mean_s=2.0),
        seed=3,
    )
    turns = np.diff(made.starts)
    assert (len(made), made.starts[0], set(turns.tolist())) == (50, 0, {1, 2, 3, 4})
    total = int(made.starts[-1])
    assert len(made.isl) == len(made.osl) == len(made.pause_ns) == total
    assert 1 <= made.isl.min() <= made.isl.max() <= 9
    assert 10 <= made.osl.min() <= made.osl.max() <= 90
    first = np.zeros(total, dtype=bool)
    first[made.starts[:-1]] = True
    assert (made.pause_ns == np.where(first, 0, 2_000_000_000)).all()
    graph = made.graph()
    assert (graph.waits == ~first).all()
    followers = {
        place: list(graph.rows[graph.starts[place] : graph.starts[place + 1]])
        for place in range(total)
    }
    last = set((made.starts[1:] - 1).tolist())
    assert followers == {place: [] if place in last else [place + 1] for place in range(total)}


def test_turns_prompts_answers_and_pauses_are_drawn_independently() -> None:
    """Other turns change no length and no pause, nor do lengths change the others."""
    uniform, other = parse_lengths("uniform:10-90", ""), parse_lengths("lognormal:50,30", "")
    usual = {"turns": parse_lengths("uniform:2-6", ""), "isl": uniform, "osl": uniform}
    pause = Pause(mean_s=2.0, exponential=True)
    made = drawn(count=40, **usual, pause=pause, seed=3)
    least = 80
    columns = ("isl", "osl", "pause_ns")
    assert made.isl[:least].tolist() != made.osl[:least].tolist()
    for changed in ("turns", "isl", "osl"):
        again = drawn(count=40, **{**usual, changed: other}, pause=pause, seed=3)
        first = {*made.starts.tolist(), *again.starts.tolist()}
        rows = [row for row in range(least) if row not in first]
        for name in columns:
            same = getattr(again, name)[rows].tolist() == getattr(made, name)[rows].tolist()
            assert same == (name != changed), (changed, name)
        assert (again.starts[:9].tolist() == made.starts[:9].tolist()) == (changed != "turns")
    assert drawn(count=40, **usual, pause=pause, seed=4).isl[:9].tolist() != made.isl[:9].tolist()


TURNS = {"turns": [{"text": "ab", "osl": 5, "pause_s": 1.5}, {"text": "c"}, "defg hi"]}
CHAT = {
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
        {"role": "human", "content": "r"},
        3,
    ]
}


def test_conversations_of_a_file_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text(f"{json.dumps(TURNS)}\n\n{json.dumps(CHAT)}\n", encoding="utf-8")
    found = read_conversations(file, counter=None, characters=2)
    assert found == ConversationFile(
        conversations=(
            (Turn(text="ab", osl=5, pause_s=1.5), Turn(text="c"), Turn(text="defg hi")),
            (Turn(text="q"), Turn(text="r")),
        ),
        isl=(1, 1, 4, 1, 1),
        source="c.jsonl",
    )
    assert [turn.text for turn in found.turns] == ["ab", "c", "defg hi", "q", "r"]
    talks = [{"from": "human", "value": "abcd"}, {"from": "gpt", "value": "abcdef"}] * 2
    shared = tmp_path / "c.json"
    shared.write_text(json.dumps([{"conversations": talks}]), encoding="utf-8")
    turn = Turn(text="abcd", osl=3)
    assert read_conversations(shared, counter=None, characters=2).conversations == ((turn, turn),)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "c.jsonl:2: is not JSON"),
        ("[]", "c.jsonl:2"),
        ('{"turns": []}', "c.jsonl:2"),
        ('{"turns": [{"text": " "}]}', "has no text"),
        ('{"turns": [3]}', "has no text"),
        ('{"turns": [{"text": "a", "osl": -1}]}', "its osl is not a number of tokens"),
        ('{"turns": [{"text": "a", "osl": true}]}', "its osl is not a number of tokens"),
        ('{"turns": [{"text": "a", "osl": 10000001}]}', "its osl is not a number of tokens"),
        ('{"turns": [{"text": "a", "osl": 1.5}]}', "its osl is not a number of tokens"),
        ('{"turns": [{"text": "a", "pause_s": -1}]}', "its pause_s is not a number of seconds"),
        ('{"turns": [{"text": "a", "pause_s": true}]}', "its pause_s is not a number of seconds"),
        ('{"turns": [{"text": "a", "pause_s": 10000001}]}', "its pause_s is not a number"),
        ('{"turns": [{"text": "a", "pause_s": "1"}]}', "its pause_s is not a number of seconds"),
    ],
)
def test_a_line_that_is_no_conversation_is_named(line: str, words: str, tmp_path: Path) -> None:
    good = '{"turns": [{"text": "a", "osl": 10000000, "pause_s": 10000000}]}'
    file = tmp_path / "c.jsonl"
    file.write_text(f"{good}\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(words)):
        read_conversations(file, counter=None, characters=4)
    file.write_text(good, encoding="utf-8")
    assert read_conversations(file, counter=None, characters=4).turns[0].pause_s == 10**7
    file.write_text(" \n", encoding="utf-8")
    with pytest.raises(InputError, match="holds no conversation"):
        read_conversations(file, counter=None, characters=4)
