"""The page's interface and the simulated engine under schemathesis and under damaged bodies: no
5xx, no hang, memory flat.

Read where schemathesis' plugin is loaded (``pytest -p schemathesis -m fuzz``, as in ./check
--fuzz)."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.drawn import GROWTH_MB, changed, draws, resident_mb
from tests.page.served import base_of
from tests.serve.test_schema import SCHEMA as ENGINE
from tonnage.page.http_api import openapi

pytestmark = pytest.mark.fuzz
ROOT = Path(__file__).parents[2]
PAGE = schemathesis.openapi.from_dict(openapi())
SMALL = {
    "model": "llama-3.1-8b",
    "lengths": {"isl": 100, "osl": 10},
    "demand": {"peak_rps": 5},
    "limits": {"ttft": "p95<=1s"},
}
SEARCH = {"gpu": "h100", "precision": "fp8", "engine": "vllm", "tp": 1}
LOAD = {"model": "llama-3.1-8b", "isl": 50, "osl": 5, "request_rate": 4, "requests": 20}
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}
MESSAGES = [
    {"role": "system", "content": "b"},
    {"role": "user", "content": [{"type": "text", "text": "a"}]},
]
BODIES: dict[str, tuple[tuple[str, Any], ...]] = {
    "page": (
        ("/api/v1/size", {**SMALL, "search": SEARCH}),
        ("/api/v1/simulate", LOAD),
        ("/api/v1/simulate", {**LOAD, "scenario": {"search": SEARCH}}),
        (
            "/api/v1/compare",
            {"first": {"schema": "tonnage-plan/4"}, "second": {"schema": "tonnage-plan/4"}},
        ),
    ),
    "engine": (
        (
            "/v1/chat/completions",
            {
                "model": "llama-3.1-8b",
                "messages": MESSAGES,
                "max_tokens": 3,
                "stop": ["x"],
                "user": "u",
                "n": 2,
            },
        ),
        (
            "/v1/chat/completions",
            {
                "messages": MESSAGES,
                "max_tokens": 3,
                "tools": [TOOL],
                "tool_choice": "required",
                "stream": True,
            },
        ),
        (
            "/v1/completions",
            {
                "prompt": "a b",
                "max_tokens": 3,
                "structured_outputs": {"json": TOOL["function"]},
                "logprobs": 2,
            },
        ),
        (
            "/v1/completions",
            {
                "prompt": ["a", "b"],
                "max_tokens": 3,
                "response_format": {"type": "json_object"},
                "kv_transfer_params": {},
            },
        ),
        (
            "/v1/responses",
            {"input": "a", "max_output_tokens": 16, "instructions": "b", "metadata": {"a": "b"}},
        ),
        (
            "/v1/messages",
            {
                "model": "llama-3.1-8b",
                "max_tokens": 3,
                "messages": [{"role": "user", "content": "a"}],
                "system": "b",
            },
        ),
        ("/tokenize", {"prompt": "a", "add_special_tokens": True}),
        ("/detokenize", {"tokens": [1, 2, 3]}),
        ("/invocations", {"prompt": "a", "max_tokens": 2}),
        ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b"}),
        ("/v1/unload_lora_adapter", {"lora_name": "a"}),
    ),
}


@contextmanager
def process(*words: str) -> Iterator[tuple[str, int]]:
    """The address that a command prints, and its process id; its process lasts as long as the block
    and leaves no traceback."""
    command, environment = (
        [sys.executable, "-P", "-m", "tonnage", *words],
        {**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as one:
        assert one.stdout
        try:
            line = next(line for line in one.stdout if "http://" in line)
            yield next(word for word in line.split() if word.startswith("http://")), one.pid
            assert one.poll() is None, "it died"
        finally:
            one.send_signal(signal.SIGTERM)
            said = one.communicate(timeout=30)[0]
    assert "Traceback" not in said, said[-3_000:]


@pytest.fixture(scope="module", params=["page", "engine"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str, int]]:
    """The name, the address and the process id of each of the two."""
    folder = str(tmp_path_factory.mktemp("fuzz") / "page")
    served = [
        "serve",
        "--engine",
        "simulated",
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "h100",
        "--speed",
        "50",
        "--port",
        "0",
    ]
    with process(*(["ui", folder, "--port", "0"] if request.param == "page" else served)) as (
        url,
        pid,
    ):
        yield request.param, base_of(url).removesuffix("/v1"), pid


ANSWER_S = 300  # in which a busy machine answers anything; what takes longer is taken to hang


def post(url: str, path: str, body: bytes) -> int:
    """The status of the answer; 599 where none came in time."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=ANSWER_S)
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except TimeoutError:
        return 599
    finally:
        connection.close()


def damaged(body: bytes, random: Random) -> bytes:
    """A body as it is, or with bytes changed, cut, repeated or nested."""
    way = random.randrange(6)
    if way == 0:
        place = random.randrange(len(body))
        return body[:place] + bytes([random.randrange(256)]) + body[place + 1 :]
    if way == 1:
        return body[: random.randrange(len(body))]
    if way == 2:
        deep = random.choice((90, 130, 900, 20_000))
        return body.replace(
            random.choice([b'"a"', b"3", b'"llama-3.1-8b"', b"5"]),
            b'{"a":' * deep + b"1" + b"}" * deep,
        )
    return body


def test_damaged_bodies(server: tuple[str, str, int]) -> None:
    name, url, pid = server
    before = 0.0
    for count, (label, random) in enumerate(draws(f"bodies to the {name}"), start=1):
        path, whole = random.choice(BODIES[name])
        document, what = changed(whole, random, Path("canary"))
        body = damaged(json.dumps(document).encode("utf-8", "surrogatepass"), random)
        status = post(url, path, body)
        assert status < 500 or status == 503, (label, path, what, status, body[:500])
        if count == 200:
            before = resident_mb(pid)
    grown = resident_mb(pid) - before if before else 0.0
    print(f"the {name}: {grown:+.0f} MB after its first two hundred bodies")
    assert grown < GROWTH_MB


def test_schemathesis(server: tuple[str, str, int]) -> None:
    name, url, pid = server
    operations = [found.ok() for found in (PAGE if name == "page" else ENGINE).get_all_operations()]
    before = resident_mb(pid)
    asked = 0
    for _, random in draws(f"schemathesis and the {name}"):
        operation = random.choice(operations)

        @seed(random.randrange(2**32))
        @settings(
            max_examples=20,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def called(case: Any) -> None:
            nonlocal asked
            asked += 1
            status = case.call(base_url=url, timeout=60).status_code
            assert status < 500 or status == 503, (case.method, case.path, case.query, case.body)

        called()
    print(f"schemathesis and the {name}: {asked:,} requests; {resident_mb(pid) - before:+.0f} MB")
    assert resident_mb(pid) - before < GROWTH_MB
