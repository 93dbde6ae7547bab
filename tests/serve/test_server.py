"""What a simulated engine answers besides chats and completions: vectors, SGLang's and NIM's own
paths, faults that are set, ports."""

from __future__ import annotations

import base64
import itertools
import json
import shlex
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.deploy.plans import dense
from tests.serve.engines import SERVED, Asking, ask
from tonnage.api import serve_simulated
from tonnage.cli.main import run
from tonnage.deploy.nim import METRICS
from tonnage.deploy.service import service_of
from tonnage.deploy.targets import target_files
from tonnage.serve.dialect import DIALECTS, Refused
from tonnage.serve.faults import parse_fault
from tonnage.serve.server import Served, in_thread, serve
from tonnage.serve.structure import choice_grammar, regex_grammar, value_of
from tonnage.serve.supervisor import free_ports

EMBEDDINGS = "/v1/embeddings"


def served(**more: Any) -> Served:
    return replace(SERVED, instances=1, max_context=2048, speed=50.0, most_waiting=0, **more)


@pytest.fixture(scope="module")
def embedding() -> Iterator[Asking]:
    with in_thread(served(width=64)) as running:
        yield Asking(running.port)


@pytest.fixture(scope="module")
def sglang() -> Iterator[Asking]:
    with in_thread(served(dialect=DIALECTS["sglang"], settings={"tp_size": 2})) as running:
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


PARAMETERS = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}


def test_sglang_generates(sglang: Asking) -> None:
    status, whole = sglang.post(
        "/generate", {"text": "a tale", "sampling_params": PARAMETERS, "rid": "mine"}
    )
    meta = whole["meta_info"]
    assert (status, len(whole["output_ids"]), meta["id"], meta["finish_reason"]) == (
        200,
        8,
        "mine",
        {"type": "length", "length": 8},
    )
    assert (
        meta.items()
        >= {"completion_tokens": 8, "cached_tokens": 0, "weight_version": "default"}.items()
    )
    body = {"text": "a tale", "sampling_params": PARAMETERS, "stream": True}
    events = [
        line.removeprefix("data: ")
        for line in ask(sglang.port, "POST", "/generate", body)[1].split("\n\n")
        if line
    ]
    assert events.pop() == "[DONE]"
    texts = [json.loads(event)["text"] for event in events]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert texts[-1] == whole["text"]
    several = sglang.post(
        "/generate",
        {"input_ids": [[5, 6], [7]], "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}},
    )[1]
    assert [one["meta_info"]["prompt_tokens"] for one in several] == [2, 1]


def test_sglang_says_what_it_is(sglang: Asking) -> None:
    for path in ("/get_model_info", "/model_info"):
        assert (
            json.loads(sglang.get(path)[1]).items()
            >= {"model_path": "toy", "is_generation": True, "weight_version": "default"}.items()
        )
    for path in ("/get_server_info", "/server_info"):
        assert (
            json.loads(sglang.get(path)[1]).items()
            >= {"tp_size": 2, "internal_states": [{"num_running_reqs": 0}]}.items()
        )
    assert sglang.get("/health_generate") == (200, "")
    status, reply = sglang.post("/generate", {"sampling_params": PARAMETERS})
    assert (status, reply["object"], reply["message"]) == (
        400,
        "error",
        "Either text, input_ids or input_embeds should be provided.",
    )


def test_nim_says_what_it_is() -> None:
    with in_thread(served(dialect=DIALECTS["nim"])) as running:
        nim = Asking(running.port)
        found = {
            path: json.loads(nim.get(path)[1])
            for path in ("/v1/metadata", "/v1/manifest", "/v1/health/ready", "/v1/health/live")
        }
        assert nim.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
        scraped = [nim.get(path) for path in (METRICS, "/metrics")]
    assert [status for status, _ in scraped] == [200, 200]
    # METRICS is what the PodMonitor of deploy scrapes
    assert all("vllm:request_success_total" in text for _, text in scraped)
    assert found["/v1/metadata"]["modelInfo"][0]["shortName"].startswith("toy:")
    assert found["/v1/metadata"]["selectedModelProfileId"] in found["/v1/manifest"]["manifest_file"]
    assert [found[path]["message"] for path in ("/v1/health/ready", "/v1/health/live")] == [
        "ready",
        "live",
    ]


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


def test_a_stream_in_the_shape_of_tritons_files_has_a_ttft(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = target_files(service_of(dense("tensorrt-llm-1.2"), checkpoint="a/b"), "triton")[
        "README.md"
    ].replace("\\\n", " ")
    (line,) = (
        one for one in page.splitlines() if one.startswith("tonnage bench --endpoint-type generate")
    )
    words = shlex.split(line)[2:]
    asked = dict(pairwise(words))
    with in_thread(served(model=asked["--model"], dialect=DIALECTS["triton"])) as running:
        url = asked["--url"].replace("127.0.0.1:8000", f"127.0.0.1:{running.port}")
        more = [
            "--no-selftest",
            "--isl",
            "40",
            "--osl",
            "60",
            "--concurrency",
            "2",
            "--request-count",
            "6",
            "--json",
        ]
        run(
            [
                "bench",
                "--endpoint-type",
                "generate",
                "--model",
                asked["--model"],
                "--url",
                url,
                *more,
            ]
        )
        said = json.loads(capsys.readouterr().out)
        assert said["requests"]["completed"] == 6
        assert 0 < said["ttft_ms"]["mean"] < said["e2e_ms"]["mean"]
        asking = Asking(running.port)
        status, reply = asking.post(
            f"/v2/models/{asked['--model']}/generate",
            {"text_input": "a b c", "max_tokens": 3, "min_length": 3},
        )
        assert (status, reply["model_name"], bool(reply["text_output"])) == (
            200,
            asked["--model"],
            True,
        )
        assert asking.post(f"/v2/models/{asked['--model']}/generate", {"prompt": "a"})[0] == 400


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


def test_a_header_that_drips_or_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.serve.bounded_headers.HEADER_S", 0.6)
    monkeypatch.setattr("tonnage.serve.bounded_headers.MOST_BYTES", 10_000)
    whole = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    with in_thread(served()) as running:
        for begun in (b"", whole):
            with socket.create_connection(("127.0.0.1", running.port), timeout=10) as slow:
                if begun:
                    slow.sendall(begun)
                    assert slow.recv(1_000).startswith(b"HTTP/1.1 200")
                began = time.monotonic()
                with suppress(ConnectionError):
                    for sign in itertools.cycle(b"GET / HTTP/1.1\r\nX: " + b"x" * 10_000):
                        slow.sendall(bytes([sign]))
                        slow.settimeout(0.05)
                        with suppress(TimeoutError):
                            if not slow.recv(1_000):
                                break
                assert 0.4 < time.monotonic() - began < 5
        with (
            socket.create_connection(("127.0.0.1", running.port), timeout=10) as endless,
            suppress(ConnectionError),
        ):
            for _ in range(1_000):
                endless.sendall(b"X" * 1_000)
            while endless.recv(65_536):  # its timeout says that the connection was not closed
                pass
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as kept:
            # no header is awaited while an answer is made, and a prompt client has all the time
            # between
            for _ in range(3):
                kept.sendall(whole)
                assert kept.recv(1_000).startswith(b"HTTP/1.1 200")
                time.sleep(0.4)


def test_a_grammar_that_would_take_a_gigabyte_is_refused_in_few_words() -> None:
    for build, text in ((regex_grammar, "a?" * 20_000), (choice_grammar, ["x" * 1_000] * 5_000)):
        with pytest.raises(Refused, match="too big") as refused:
            build(text)
        assert len(str(refused.value)) < 2_000
    assert value_of(regex_grammar("(a|b){3}"), 1) in {
        "".join(letters) for letters in itertools.product("ab", repeat=3)
    }
