"""Paths of a server: faults, and requests that cannot be read."""

from __future__ import annotations

import json
import time

import pytest

from tests.serve.asked_servers import served
from tests.serve.engines import Asking, ask
from tonnage.serve.routes import RANK, _rank
from tonnage.serve.server import in_thread


def test_a_request_brings_its_own_fault() -> None:
    body = {"prompt": "x", "max_tokens": 2}
    with in_thread(served()) as running:

        def status(fault: str) -> int:
            return ask(running.port, "POST", "/v1/completions", body, **{"x-fault": fault})[0]

        assert [
            status(fault) for fault in ("429", "500", "500 share=0", "slow factor=2", "nothing")
        ] == [429, 500, 200, 400, 400]
        began = time.monotonic()
        assert status("stall for=300ms") == 200
        assert time.monotonic() - began >= 0.3
        assert Asking(running.port).post("/v1/completions", body)[0] == 200


def test_faults_are_set_while_the_server_runs() -> None:
    with in_thread(served()) as running:
        server = Asking(running.port)

        def statuses() -> set[int]:
            return {
                server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0]
                for _ in range(20)
            }

        assert statuses() == {200}
        assert (
            server.post("/faults", {"faults": ["500 share=0.5", "slow factor=2 from=1h"]})[0] == 200
        )
        assert statuses() == {200, 500}
        assert json.loads(server.get("/faults")[1])["faults"][0] == "500 share=0.5"
        assert server.post("/faults", {"faults": ["stall for=300ms"]})[0] == 200
        began = time.monotonic()
        assert statuses() == {200}
        assert time.monotonic() - began >= 0.28
        assert server.post("/faults", {"faults": []}) == (200, {"faults": []})
        assert [
            server.post("/faults", {"faults": wrong})[0]
            for wrong in ("500", ["hm"], ["start for=1s"])
        ] == [400, 400, 400]


@pytest.mark.parametrize(
    "text",
    ['"a\\ud800"', '{"a": ' * 900 + "1" + "}" * 900, "[" * 100_000, "9" * 6_000],
    ids=["surrogate", "900", "100,000", "digits"],
)
def test_what_cannot_be_written_or_is_too_deep_is_a_bad_request(text: str) -> None:
    tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {{"a": {text}}}}}}}'
    chat, begun = (
        '"messages": [{"role": "user", "content": "a"}], "max_tokens": 2',
        '"model": "toy", "prompt": "a", "max_tokens": 2',
    )
    bodies = {
        "/v1/chat/completions": (
            f'{{"model": "toy", {chat}, "tools": [{tool}], "tool_choice": "required"}}',
            f'{{"model": {text}, {chat}}}',
        ),
        "/v1/completions": (
            f'{{{begun}, "structured_outputs": {{"json": {text}}}}}',
            f'{{{begun}, "user": {text}}}',
            f'{{{begun}, "stop": [{text}]}}',
        ),
        "/invocations": (f'{{{begun}, "structured_outputs": {{"regex": {text}}}}}', text),
        "/v1/load_lora_adapter": (f'{{"lora_name": {text}, "lora_path": "/x"}}',),
        "/tokenize": (f'{{"model": "toy", "prompt": {text}}}',),
    }
    with in_thread(served()) as running:
        server = Asking(running.port)
        for path, several in bodies.items():
            for body in several:
                assert server.post(path, body.encode())[0] == 400, (path, body[:200])
        assert (
            server.post(
                "/v1/completions", {"prompt": "a" * 30, "max_tokens": 1, "stop": ["\U0001f680"]}
            )[0]
            == 200
        )  # a pair is no lone one


def test_a_path_that_is_too_long_for_a_folder_is_none_of_this_machine() -> None:
    assert _rank("long", "9" * 5_000) == RANK
