"""Sleep and adapters by vLLM's paths: the simulated engine and vLLM 0.32 by the same requests, one
after another.

What vLLM answered is in ``tests/golden/vllm-0.32.0-control.json``; ``TONNAGE_GOLDEN=write ./check
--engines -k control`` writes it anew."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.engines import conformance as of
from tests.engines.comparable import answer
from tests.engines.conformance import CHAT, RESPONSES, SAYS, TEXT, TOKENIZE, Sent, send
from tests.engines.vllm_server import python, vllm
from tests.serve.engines import SERVED
from tonnage.serve.server import in_thread
from tonnage.serve.tokens import Fours

GOLDEN = Path(__file__).parents[1] / "golden" / "vllm-0.32.0-control.json"
RANK = 8


def adapter(folder: Path) -> Path:
    """A folder with an adapter of one matrix in each layer of the tiny model; the engines' Python
    writes the weights."""
    folder.mkdir()
    config = {
        "r": RANK,
        "lora_alpha": 16,
        "target_modules": ["q_proj"],
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
    }
    config |= {
        "base_model_name_or_path": "tiny",
        "bias": "none",
        "lora_dropout": 0.0,
        "modules_to_save": None,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


WEIGHTS = """import sys, torch
from safetensors.torch import save_file
name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
sizes = {"A": (8, 512), "B": (512, 8)}
save_file({name.format(i, part): torch.randn(size) for i in range(8) for part, size in sizes.items()}, sys.argv[1])
"""


@pytest.fixture(
    scope="module", params=["simulated", pytest.param("vllm", marks=pytest.mark.engines)]
)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int, str]]:
    """Which engine, its port, and the folder of an adapter."""
    folder = tmp_path_factory.mktemp("control")
    path = adapter(folder / "adapter")
    if request.param == "vllm":
        import subprocess

        subprocess.run(
            [str(python()), "-c", WEIGHTS, str(path / "adapter_model.safetensors")], check=True
        )
        more = ("--enable-lora", "--max-loras", "2", "--max-lora-rank", str(RANK))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("VLLM_SERVER_DEV_MODE", "1")
            patch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
            with vllm(python(), request.getfixturevalue("model"), folder, *more) as url:
                yield "vllm", urlsplit(url).port or 0, str(path)
        return
    tiny = replace(
        SERVED, instances=1, model="tiny", max_context=2048, tokens=Fours(8_000), most_waiting=0
    )
    with in_thread(replace(tiny, speed=20.0)) as running:
        yield "simulated", running.port, str(path)


def steps(path: str) -> Iterator[tuple[str, Sent]]:
    """Requests in the order in which they are sent."""

    def load(name: Any, folder: Any = path, **more: Any) -> Sent:
        return Sent(
            path="/v1/load_lora_adapter", body={"lora_name": name, "lora_path": folder, **more}
        )

    def unload(**body: Any) -> Sent:
        return Sent(path="/v1/unload_lora_adapter", body=body)

    def posted(path: str) -> Sent:
        return Sent(path=path, method="POST")

    yield (
        "embeddings of a model that generates",
        Sent(path="/v1/embeddings", body={"model": "tiny", "input": "x"}),
    )
    yield "load nothing", Sent(path="/v1/load_lora_adapter", body={})
    yield "load without a name", load("")
    yield "load by the model's name", load("tiny")
    yield "load a number", load(5)
    yield "load no JSON", Sent(path="/v1/load_lora_adapter", body=b"{")
    yield "load", load("a")
    yield "load again", load("a")
    yield "load again in place", load("a", load_inplace=True)
    yield "load another", load("b")
    yield "models with adapters", Sent(path="/v1/models")
    yield "text by an adapter", Sent(path=TEXT, body={**of.PLAIN, "model": "a", "prompt": of.IDS})
    yield "chat by an adapter", Sent(path=CHAT, body={**of.PLAIN, "model": "a", "messages": SAYS})
    yield (
        "responses by an adapter",
        Sent(
            path=RESPONSES,
            body={"model": "b", "input": "x", "max_output_tokens": 5, "temperature": 0},
        ),
    )
    yield "tokens by an adapter", Sent(path=TOKENIZE, body={"model": "a", "prompt": "x"})
    yield "no such adapter", Sent(path=TEXT, body={**of.PLAIN, "model": "c", "prompt": of.IDS})
    yield "unload another", unload(lora_name="c")
    yield "unload without a name", unload(lora_name="")
    yield "unload", unload(lora_name="b")
    yield (
        "text by an adapter that is unloaded",
        Sent(path=TEXT, body={**of.PLAIN, "model": "b", "prompt": of.IDS}),
    )
    yield "awake", Sent(path="/is_sleeping")
    yield "pause", posted("/sleep?level=0")
    yield "paused", Sent(path="/is_sleeping")
    yield "go on", posted("/wake_up")
    yield "sleep", posted("/sleep")
    yield "asleep", Sent(path="/is_sleeping")
    yield "healthy asleep", Sent(path="/health")
    yield "sleep too deep", posted("/sleep?level=9")
    yield "sleep otherwise", posted("/sleep?mode=soundly")
    yield "wake parts", posted("/wake_up?tags=weights&tags=kv_cache")
    yield "awake again", Sent(path="/is_sleeping")
    yield "empty the prefix cache", posted("/reset_prefix_cache")


def test_it_answers_as_vllm_does(engine: tuple[str, int, str]) -> None:
    name, port, path = engine
    found = {step: answer(sent, send(port, sent)) for step, sent in steps(path)}
    text = json.dumps(found, ensure_ascii=False, indent=1).replace(path, "ADAPTER")
    if name == "vllm" and os.environ.get("TONNAGE_GOLDEN") == "write":
        GOLDEN.write_text(text + "\n", encoding="utf-8")
    assert json.loads(text) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def states(port: int, name: str) -> dict[str, float]:
    """A metric's values by their labels."""
    lines = send(port, Sent(path="/metrics")).text.splitlines()
    return {
        line.partition("{")[2].rpartition("}")[0]: float(line.split()[-1])
        for line in lines
        if line.startswith(name + "{")
    }


@pytest.mark.parametrize("stream", [False, True])
def test_sleep_gives_up_what_runs_and_keeps_what_comes(
    engine: tuple[str, int, str], stream: bool
) -> None:
    port = engine[1]
    got: dict[str, of.Got] = {}

    def ask(name: str, tokens: int, stream: bool) -> threading.Thread:
        sent = Sent(
            path=TEXT, body={**of.PLAIN, "prompt": of.IDS, "max_tokens": tokens, "stream": stream}
        )
        thread = threading.Thread(target=lambda: got.update({name: send(port, sent)}))
        thread.start()
        return thread

    ending = ask("before", 2_000, stream)
    while not states(port, "vllm:num_requests_running").popitem()[1]:
        pass
    assert send(port, Sent(path="/sleep", method="POST")).json == {"status": "sleeping", "level": 1}
    ending.join()
    finish = [
        choice["finish_reason"]
        for _, one in got["before"].events
        if one != "[DONE]"
        for choice in one["choices"]
    ]
    assert (finish[-1] if stream else got["before"].json["choices"][0]["finish_reason"]) == "abort"
    later = ask("while", 2, False)
    asleep = states(port, "vllm:engine_sleep_state")
    assert set(states(port, "vllm:num_requests_waiting").values()) == {0}
    assert [value for labels, value in asleep.items() if "weights_offloaded" in labels] == [1]
    later.join(0.3)
    assert later.is_alive()
    send(port, Sent(path="/wake_up", method="POST"))
    later.join(30)
    assert got["while"].json["choices"][0]["finish_reason"] == "length"


def test_metrics_name_the_adapters_of_requests(engine: tuple[str, int, str]) -> None:
    _, port, path = engine
    send(port, Sent(path="/v1/load_lora_adapter", body={"lora_name": "m", "lora_path": path}))
    stream = Sent(path=TEXT, body={**of.PLAIN, "model": "m", "prompt": of.IDS, "max_tokens": 400})
    thread = threading.Thread(target=lambda: send(port, stream))
    thread.start()
    while not any(
        'running_lora_adapters="m"' in labels for labels in states(port, "vllm:lora_requests_info")
    ):
        assert thread.is_alive()
    thread.join()
