"""What a simulated engine answers besides chats and completions: vectors, SGLang's and NIM's own
paths, faults that are set, ports."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.serve.asked_servers import served
from tests.serve.engines import Asking, ask
from tonnage.api import serve_simulated
from tonnage.serve.faults import parse_fault
from tonnage.serve.server import in_thread, serve
from tonnage.serve.supervisor import free_ports

EMBEDDINGS = "/v1/embeddings"


@pytest.fixture(scope="module")
def embedding() -> Iterator[Asking]:
    with in_thread(served(width=64)) as running:
        yield Asking(running.port)


def test_vectors_have_length_1_and_depend_on_the_prompt(embedding: Asking) -> None:
    status, reply = embedding.post(
        EMBEDDINGS, {"model": "toy", "input": [[5, 6, 7], [8], [5, 6, 7]]}
    )
    vectors = [one["embedding"] for one in reply["data"]]
    assert (status, reply["object"], [one["index"] for one in reply["data"]]) == (
        200,
        "list",
        [0, 1, 2],
    )
    assert vectors[0] == vectors[2] != vectors[1]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)
    assert (
        reply["usage"].items()
        >= {"prompt_tokens": 7, "total_tokens": 7, "completion_tokens": 0}.items()
    )
    coded = embedding.post(EMBEDDINGS, {"input": [5, 6, 7], "encoding_format": "base64"})[1][
        "data"
    ][0]["embedding"]
    assert np.frombuffer(base64.b64decode(coded), "<f4").tolist() == pytest.approx(vectors[0])
    chat = {"messages": [{"role": "user", "content": "x"}]}
    assert (
        embedding.post(EMBEDDINGS, chat)[1]["usage"]["prompt_tokens"]
        == embedding.post("/tokenize", chat)[1]["count"]
    )


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ({"input": "x", "model": "zz"}, 404, "The model `zz` does not exist."),
        ({"input": ""}, 400, "The decoder prompt cannot be empty"),
        ({"input": []}, 400, "You must pass at least one prompt"),
        (
            {"input": "x", "dimensions": 4},
            400,
            (
                "does not support Matryoshka embeddings; dimensions must be unset (received"
                " dimensions=4)."
            ),
        ),
        (
            {"input": [7] * 3000},
            400,
            (
                "your prompt contains 3000 input tokens, which exceeds this limit even without any"
                " output tokens."
            ),
        ),
        ({"input": "x y " * 3000}, 400, "your prompt contains at least 2049 input tokens"),
        (
            {"input": [7], "truncate_prompt_tokens": 5000},
            400,
            "truncate_prompt_tokens value is greater than max_model_len.",
        ),
        ({"input": [100_000]}, 400, "Token id 100000 is out of vocabulary"),
        (
            {"input": "x", "normalize": True},
            400,
            (
                "Parameter `normalize` was removed; use `use_activation` instead."
                " (parameter=normalize)"
            ),
        ),
        (
            {},
            400,
            (
                "7 validation errors:\n  {'type': 'missing', 'loc': 'body.input', 'msg': 'Field"
                " required', 'input': '<dict of 1 items>'}"
            ),
        ),
        ({"input": 5}, 400, "10 validation errors:\n  {'type': 'list_type', 'loc': 'body.input'"),
        (
            {"input": "x", "encoding_format": "hm"},
            400,
            "11 validation errors:\n  {'type': 'literal_error', 'loc': 'body.encoding_format'",
        ),
    ],
)
def test_embeddings_are_refused_as_vllm_refuses_them(
    embedding: Asking, more: dict[str, Any], status: int, words: str
) -> None:
    found, reply = embedding.post(EMBEDDINGS, {"model": "toy", **more})
    assert (found, words in reply["error"]["message"]) == (status, True), reply


def test_a_long_prompt_is_cut_and_a_model_that_embeds_does_not_chat(embedding: Asking) -> None:
    counts = [
        embedding.post(EMBEDDINGS, {"input": [7] * 3000, "truncate_prompt_tokens": cut})[1][
            "usage"
        ]["prompt_tokens"]
        for cut in (10, -1)
    ]
    assert counts == [10, 2048]
    assert embedding.post("/v1/completions", {"prompt": "x"}) == (404, {"detail": "Not Found"})


def test_a_rank_is_chosen_by_vllms_header() -> None:
    with in_thread(replace(served(), instances=2)) as running:

        def asked(rank: str) -> int:
            headers = {"x-data-parallel-rank": rank}
            return ask(
                running.port, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, **headers
            )[0]

        assert [asked("1") for _ in range(3)] == [200] * 3
        page = running.service.engines.metrics.text().decode()
        assert [asked("2"), asked("many")] == [400, 200]
    counts = {
        line.split('"')[1]: line.split()[-1]
        for line in page.splitlines()
        if line.startswith("vllm:request_prompt_tokens_count")
    }
    assert counts == {"0": "0.0", "1": "3.0"}


def two_ports() -> int:
    """The first of two free ports that follow each other."""
    while True:
        (port,) = free_ports(1)
        with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port


def test_ranks_are_endpoints_of_their_own() -> None:
    port = two_ports()
    parts = serve_simulated(model="llama-3.1-8b", instances=2, rank_ports=True, port=port).endpoints
    assert [(one.port, one.first, one.instances) for one in parts] == [
        (port, 0, 1),
        (port + 1, 1, 1),
    ]
    with in_thread(parts[1]) as running:
        Asking(running.port).post("/v1/completions", {"prompt": "x", "max_tokens": 1})
        assert (
            'vllm:request_prompt_tokens_count{engine="1"' in Asking(running.port).get("/metrics")[1]
        )


def test_a_server_that_starts_late_refuses_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    late = replace(
        served(),
        faults=(parse_fault("start for=2min"), parse_fault("start for=5min instance=1")),
        port=two_ports(),
    )

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if seconds:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", late.port))

    monkeypatch.setattr("tonnage.serve.server.time.sleep", sleep)
    with in_thread(late) as running:
        assert Asking(running.port).get("/health")[0] == 200
    assert 120.0 in slept


def test_servers_of_ranks_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes to one server; the others end with it."""
    import uvicorn

    made: list[uvicorn.Server] = []
    init = uvicorn.Server.__init__
    monkeypatch.setattr(
        uvicorn.Server, "__init__", lambda self, config: (init(self, config), made.append(self))[0]
    )
    port = two_ports()
    ready = threading.Event()
    two = replace(served(), instances=2, rank_ports=True, port=port)
    thread = threading.Thread(target=lambda: serve(two, lambda port: ready.set()), daemon=True)
    thread.start()
    assert ready.wait(30)
    until = time.monotonic() + 30
    while time.monotonic() < until and not all(one.started for one in made):
        time.sleep(0.01)
    assert [Asking(port + i).get("/health")[0] for i in range(2)] == [200, 200]
    made[1].should_exit = True
    thread.join(30)
    assert not thread.is_alive()
