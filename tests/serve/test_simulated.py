"""Simulated instances as what answers the API: full queues and full caches."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from dataclasses import replace

import pytest

from tests.serve.apps import JSON, Server, idle
from tests.serve.engines import SERVED, Asking, ask, engine
from tests.serve.prefixes import spec
from tonnage.serve.app import ended
from tonnage.serve.dialect import Refused
from tonnage.serve.prefix import CachedEngine, Stored, document_of
from tonnage.serve.request import Adapter, asked_of
from tonnage.serve.server import in_thread
from tonnage.serve.simulated import Simulated


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


def test_an_adapter_has_blocks_of_its_own_and_its_name_in_events() -> None:
    stored = Stored(
        names=[1, 2],
        parent=None,
        tokens=[7] * 32,
        salt="mine" + Adapter(name="a", path="p", number=3, blocks=0).salt,
    )
    found = document_of(stored, 16)
    assert (found["lora_id"], found["lora_name"], found["extra_keys"]) == (
        3,
        "a",
        [["a", "mine"], ["a"]],
    )
    with in_thread(
        replace(SERVED, engine=lambda: CachedEngine(spec()), instances=1, max_context=2_000)
    ) as running:
        caching_server, body = Asking(running.port), {"prompt": [7] * 100, "max_tokens": 1}
        engines = running.service.engines
        assert isinstance(engines, Simulated)
        engine, engines.adapter_cost = (
            engines.fleet.instances[0].member.engine,
            lambda rank: (rank, 0.0),
        )
        free = engine.kv_blocks_free
        for name in ("a", "b"):
            assert (
                ask(
                    running.port,
                    "POST",
                    "/v1/load_lora_adapter",
                    {"lora_name": name, "lora_path": "p"},
                )[0]
                == 200
            )
        assert engine.kv_blocks_free == free - 32
        found = [
            caching_server.post("/v1/completions", {**body, "model": name})[1]["usage"][
                "prompt_tokens_details"
            ]
            for name in ("a", "b", "a", "toy")
        ]
        assert found == [None, None, {"cached_tokens": 96}, None]
        assert caching_server.post("/reset_prefix_cache", {}) == (200, {"success": True})
        assert (
            caching_server.post("/v1/completions", {**body, "model": "a"})[1]["usage"][
                "prompt_tokens_details"
            ]
            is None
        )
