"""A real model on the CPU: what comes over HTTP is what the engine says when it is called
directly."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.serve import openai_client
from tests.serve.openvino.tiny_gguf import write_gguf
from tonnage.api import serve_openvino
from tonnage.api.running.processes import gateway_before, processes, served_instances
from tonnage.bench.scrape import fetch, samples
from tonnage.errors import InputError

pytestmark = pytest.mark.engines

PROMPTS = [
    f"the {word} fox"
    for word in [
        "quick",
        "brown",
        "lazy",
        "big",
        "old",
        "very",
        "dog",
        "bear",
        "town",
        "sea",
        "rain",
        "runs",
    ]
]
TOKENS = 24
STREAMS = 32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF with random weights."""
    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def urls(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of two instances and of the gateway before them."""
    words = [
        "--engine",
        "openvino",
        "--model",
        str(model),
        "--precision",
        "fp32",
        "--served-model-name",
        "tiny",
        "--threads",
        "1",
    ]
    instances = served_instances(words, 2)
    gateway = gateway_before(instances, policy="least-outstanding")
    logs = tmp_path_factory.mktemp("logs")
    with processes(
        instances,
        gateway,
        logs,
        ready_s=120,
        grace_s=5,
        announce=lambda line: None,
        on_ready=lambda ready, of: None,
    ) as up:
        yield {"one": instances[0].url, "two": instances[1].url, "gateway": up.url}


@pytest.fixture(scope="module")
def direct(model: Path) -> dict[str, str]:
    """The text of each prompt's greedy continuation by the engine called directly, one at a time,
    in full precision."""
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.cache_size, scheduler.max_num_batched_tokens = 1, 256
    hints = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    pipeline = genai.ContinuousBatchingPipeline(str(model), scheduler, "CPU", hints)
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample, config.apply_chat_template = (
        TOKENS,
        True,
        False,
        False,
    )
    return {
        prompt: pipeline.generate([prompt], [config])[0].m_generation_ids[0] for prompt in PROMPTS
    }


def complete(url: str, prompt: str, tokens: int = TOKENS, **more: Any) -> dict[str, Any]:
    """One completion, greedy unless it is said otherwise."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        **more,
    }
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return dict(json.load(reply))


def text_of(reply: dict[str, Any]) -> str:
    return str(reply["choices"][0]["text"])


def test_one_stream_says_what_the_engine_says(urls: dict[str, str], direct: dict[str, str]) -> None:
    for prompt in PROMPTS[:4]:
        assert text_of(complete(urls["gateway"], prompt)) == direct[prompt]


def test_many_streams_begin_as_the_engine_does(
    urls: dict[str, str], direct: dict[str, str]
) -> None:
    alone = {prompt: text_of(complete(urls["one"], prompt, 8)) for prompt in PROMPTS}
    assert all(direct[prompt].startswith(text.rstrip("\ufffd")) for prompt, text in alone.items())
    asked = [PROMPTS[i % len(PROMPTS)] for i in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        found = list(pool.map(lambda prompt: text_of(complete(urls["gateway"], prompt, 8)), asked))
    assert found == [alone[prompt] for prompt in asked]


def test_the_official_client(urls: dict[str, str]) -> None:
    for where in ("one", "gateway"):
        openai_client.completes(urls[where], "tiny")
        openai_client.streams(urls[where], "tiny")
        openai_client.refuses(urls[where], "tiny")


def test_a_seed_decides_and_each_choice_has_its_own(urls: dict[str, str]) -> None:
    def drawn(seed: int) -> list[str]:
        return [
            one["text"]
            for one in complete(urls["one"], "the", temperature=1.5, seed=seed, n=3)["choices"]
        ]

    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)
    assert len(set(drawn(5))) == 3


def test_a_stop_text_ends_the_answer_where_it_begins(
    urls: dict[str, str], direct: dict[str, str]
) -> None:
    prompt = next(prompt for prompt in PROMPTS if len(direct[prompt]) > 6)
    stop = direct[prompt][3:5]
    reply = complete(urls["one"], prompt, stop=[stop])
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert text_of(reply) == direct[prompt][: direct[prompt].find(stop)]
    assert reply["usage"]["completion_tokens"] < TOKENS


def test_an_end_of_text_token_ends_the_answer(urls: dict[str, str]) -> None:
    first = complete(urls["one"], "the", 12)
    ends = complete(urls["one"], "the", 12, stop_token_ids=list(range(512)))
    assert first["usage"]["completion_tokens"] == 12
    assert ends["usage"]["completion_tokens"] == 1
    assert ends["choices"][0]["finish_reason"] == "stop"


def test_a_client_that_leaves_frees_its_slot(urls: dict[str, str]) -> None:
    openai_client.leaves(urls["one"], "tiny")
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = samples(fetch(f"{urls['one']}/metrics"))
        if sum(value for name, value in found.items() if "num_requests" in name) == 0:
            return
        time.sleep(0.05)
    pytest.fail("a request is still held")


def test_a_killed_instance_loses_its_own_streams_alone(model: Path, tmp_path: Path) -> None:
    instances = served_instances(
        [
            "--engine",
            "openvino",
            "--model",
            str(model),
            "--served-model-name",
            "tiny",
            "--threads",
            "1",
        ],
        2,
    )
    gateway = gateway_before(instances, policy="round-robin")
    with processes(
        instances,
        gateway,
        tmp_path,
        ready_s=120,
        grace_s=5,
        announce=lambda line: None,
        on_ready=lambda ready, of: None,
    ) as up:
        outcomes: list[str] = []

        def ask() -> None:
            try:
                outcomes.append(
                    "whole"
                    if complete(up.url, "the", 400)["usage"]["completion_tokens"] == 400
                    else "short"
                )
            except OSError:
                outcomes.append("failed")

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        up.supervisor.children[0].kill()
        for thread in threads:
            thread.join(60)
        assert len(outcomes) == len(threads)
        assert (
            outcomes.count("whole") >= 4
            # the other instance's, and those that had not begun to answer: whole replies begin at
            # their end
        )
        assert "short" not in outcomes
        until = time.monotonic() + 30
        while not up.supervisor.children[0].serves() and time.monotonic() < until:
            time.sleep(0.05)
        assert text_of(complete(up.url, "the"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"model": "missing.gguf"}, "missing.gguf does not exist"),
        ({"model": __file__}, "cannot be read as a model"),
        ({"precision": "fp8"}, "is not served by OpenVINO"),
        ({"max_batch_size": 0}, "1 or more"),
        ({"max_model_len": 1}, "2 or more"),
    ],
)
def test_what_cannot_be_served_is_said(model: Path, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        serve_openvino(**{"model": model, **asked})
