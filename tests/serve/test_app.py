"""The API over real connections: replies, streams, errors, metrics, and clients that leave."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.serve import openai_client
from tests.serve.engines import SERVED, STEP_S, ask, engine
from tonnage.api.running.processes import gateway_before, processes, served_instances
from tonnage.bench.scrape import fetch, samples
from tonnage.serve.answer import Answer, Piece
from tonnage.serve.app import ended, events_of
from tonnage.serve.dialect import Further, Refused
from tonnage.serve.instance import Fleet
from tonnage.serve.metrics import Metrics
from tonnage.serve.replies import Reply
from tonnage.serve.request import Asked, Sampling, asked_of
from tonnage.serve.server import in_thread
from tonnage.serve.simulated import Simulated
from tonnage.serve.tokens import Prompt

JSON = {"content-type": "application/json"}
PROMPT = Prompt(ids=(7, 8, 9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server in a thread."""

    port: int
    fleet: Fleet

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        status, text = ask(self.port, "POST", path, body)
        return status, json.loads(text)

    def get(self, path: str) -> tuple[int, str]:
        return ask(self.port, "GET", path)

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        events = [
            line.removeprefix("data: ")
            for line in ask(self.port, "POST", path, {**body, "stream": True})[1].split("\n\n")
            if line
        ]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with in_thread(SERVED) as running:
        engines = running.service.engines
        assert isinstance(engines, Simulated)
        yield Server(port=running.port, fleet=engines.fleet)


def idle(server: Server, within_s: float = 5.0) -> bool:
    """Whether the engines hold nothing, at the latest after some seconds."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if all(
            not one.member.live and one.member.engine.kv_blocks_used == 0
            for one in server.fleet.instances
        ):
            return True
        time.sleep(0.02)
    return False


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


def test_a_full_queue_is_503_and_metrics_tell_of_it(server: Server) -> None:
    held = []
    for _ in range(2 * 4 + 3):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request(
            "POST",
            "/v1/completions",
            headers=JSON,
            body=json.dumps({"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}),
        )
        held.append(connection)
        time.sleep(0.03)
    time.sleep(0.1)
    status, reply = server.post("/v1/completions", {"prompt": "x"})
    text = server.get("/metrics")[1]
    for connection in held:
        connection.close()
    assert status == 503
    # the phrase of the status, as vLLM has it
    assert reply["error"]["type"] == "Service Unavailable"
    running = [
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("vllm:num_requests_running{")
    ]
    waiting = [
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("vllm:num_requests_waiting{")
    ]
    assert running == [4.0, 4.0]
    assert sum(waiting) == 3
    assert 'vllm:request_success_total{engine="0",finished_reason="length"' in text
    assert (
        'vllm:admission_rejections_total{model_name="toy",reason="max_num_queued_reqs"} 1.0' in text
    )
    assert idle(server)


def test_the_role_of_a_chat_comes_with_the_first_token() -> None:
    class Silent:
        engine, slot_at, front_end_s, preemptions, cached = "0", None, 0.0, 0, 0

        def begin(self, answer: Answer) -> None:
            self.answer = answer

        def end(self) -> None:
            pass

    async def first_event(silent: Silent) -> bytes:
        asked = Asked(
            kind="chat", model="toy", prompts=(PROMPT,), osl=5, sampling=Sampling(), stream=True
        )
        answer = Answer(source=silent, metrics=Metrics(list, "toy"), asked=asked, prompt=PROMPT)
        answer.begin()
        reply = Reply(
            asked=asked,
            id="c",
            call_id="t",
            model="toy",
            created=0,
            further=Further(),
            tokens=SERVED.tokens,
        )
        events = events_of(reply, 0, [answer], [False])
        coming = asyncio.ensure_future(anext(events))
        assert not (await asyncio.wait([coming], timeout=0.05))[0]
        answer.take(Piece(text="a", tokens=1))
        role = await coming
        assert json.loads((await anext(events)).removeprefix(b"data: "))["choices"][0]["delta"] == {
            "content": "a"
        }
        await events.aclose()
        return role

    assert b'"role":"assistant"' in asyncio.run(first_event(Silent()))


def asked_of_small_cache(*prompts: int, osl: int) -> tuple[list[str], str]:
    """The texts of requests to an engine of 12 blocks of 16 tokens, and its metrics."""

    async def run() -> tuple[list[str], str]:
        service = replace(
            SERVED, engine=lambda: engine(kv_blocks=12), instances=1, max_context=0
        ).build(asyncio.get_running_loop())
        body = {
            "prompt": [[1] * tokens for tokens in prompts],
            "max_tokens": osl,
            "ignore_eos": True,
        }
        made = service.engines.answers(
            asked_of("completions", body, reader=service.reader, limits=service.limits)
        )
        for answer in made:
            answer.begin()
        texts = [one.text for one in await asyncio.gather(*(ended(answer) for answer in made))]
        return texts, service.engines.metrics.text().decode()

    return asyncio.run(run())


def test_a_cache_that_runs_out_preempts_and_metrics_count_it() -> None:
    """Two requests that fit at first and not as they grow: one loses its blocks and is computed
    again, and both end in full."""
    texts, page = asked_of_small_cache(80, 80, osl=60)
    assert [len(text.split()) for text in texts] == [60, 60]
    counts = {
        line.split("{")[0]: float(line.split()[-1])
        for line in page.splitlines()
        if "preempt" in line and line[0] != "#"
    }
    assert counts["vllm:num_preemptions_total"] >= 1
    assert counts["vllm:request_num_preemptions_sum"] == counts["vllm:num_preemptions_total"]


def test_a_request_that_the_cache_can_never_hold_is_refused() -> None:
    with pytest.raises(Refused, match="does not fit the KV cache") as refused:
        asked_of_small_cache(300, osl=5)
    assert refused.value.status == 400


# The official Python client against simulated instances, directly and through the gateway.

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
        told=lambda line: None,
        seen=lambda ready, of: None,
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
