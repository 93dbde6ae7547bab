"""The API over real connections: replies, streams, errors, metrics, and clients that leave."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve import openai_client
from tests.serve.apps import JSON, Server, idle
from tests.serve.engines import STEP_S
from tonnage.api.running.processes import gateway_before, processes, served_instances
from tonnage.bench.scrape import fetch, samples


def test_a_whole_chat(server: Server) -> None:
    status, reply = server.post(
        "/v1/chat/completions",
        {"model": "toy", "messages": [{"role": "user", "content": "a b c d e f"}], "n": 2},
    )
    assert status == 200
    assert reply["object"] == "chat.completion"
    assert (
        reply["usage"].items()
        >= {"prompt_tokens": 9, "completion_tokens": 82, "total_tokens": 91}.items()
    )
    assert [choice["finish_reason"] for choice in reply["choices"]] == ["stop", "stop"]
    assert all(len(choice["message"]["content"].split()) == 40 for choice in reply["choices"])


def test_a_streamed_chat_takes_its_steps(server: Server) -> None:
    began = time.monotonic()
    body = {
        "messages": [{"role": "user", "content": "a"}],
        "max_tokens": 20,
        "stream_options": {"include_usage": True},
    }
    events = server.stream("/v1/chat/completions", body)
    assert time.monotonic() - began >= 20 * STEP_S
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(events) == 1 + 20 + 1
    assert [event["choices"][0]["finish_reason"] for event in events[1:-1]] == [None] * 19 + [
        "length"
    ]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 20


def test_a_stop_text_ends_the_answer_and_frees_the_engine(server: Server) -> None:
    events = server.stream(
        "/v1/completions", {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "stop": [" "]}
    )
    assert len(events) == 1
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["choices"][0]["stop_reason"] == " "
    assert " " not in "".join(event["choices"][0]["text"] for event in events)
    assert idle(server)


def test_a_client_that_leaves_frees_its_slot(server: Server) -> None:
    for stream in (True, False):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request(
            "POST",
            "/v1/completions",
            headers=JSON,
            body=json.dumps(
                {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": stream}
            ),
        )
        if stream:
            connection.getresponse().read(20)
        time.sleep(0.1)
        connection.close()
        assert idle(server)


MODEL = "llama-3.1-8b"


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of an instance and of the gateway before it."""
    logs: Path = tmp_path_factory.mktemp("logs")
    instances = served_instances(["--engine", "simulated", "--model", MODEL, "--speed", "5"], 1)
    gateway = gateway_before(instances, policy="round-robin")
    with processes(
        instances,
        gateway,
        logs,
        ready_s=60,
        grace_s=3,
        announce=lambda line: None,
        on_ready=lambda ready, of: None,
    ) as up:
        yield {"engine": instances[0].url, "gateway": up.url}


@pytest.mark.parametrize("where", [pytest.param("engine", marks=pytest.mark.live), "gateway"])
def test_answers_streams_and_errors(urls: dict[str, str], where: str) -> None:
    assert [model.id for model in openai_client.client(urls[where]).models.list().data] == [MODEL]
    whole = openai_client.completes(urls[where], MODEL)
    streamed = openai_client.streams(urls[where], MODEL)
    assert set(whole["completion"]) == {"choices", "created", "id", "model", "object", "usage"}
    assert streamed["chat"]["choices"][0]["delta"] == {"content": "str"}
    openai_client.refuses(urls[where], MODEL)


@pytest.mark.live
def test_a_client_that_leaves_frees_its_slot_behind_the_gateway(urls: dict[str, str]) -> None:
    openai_client.leaves(urls["gateway"], MODEL)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        held = samples(fetch(f"{urls['engine']}/metrics"))
        if sum(value for name, value in held.items() if "num_requests" in name) == 0:
            break
        time.sleep(0.05)
    else:
        pytest.fail("a request is still held")
    aborted = [
        value
        for name, value in held.items()
        if "request_success_total" in name and '"abort"' in name
    ]
    assert sum(aborted) == 1
