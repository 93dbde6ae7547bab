"""Caches that one engine hands to another."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.serve.engines import SERVED, STEP_S, Asking
from tests.serve.two_pools import LINK, Sides
from tonnage.serve.server import in_thread

PROMPT = list(range(640))
"""Its prompt takes three steps of 256 tokens, and its cache 6.4 ms on the link."""


def computed(side: Asking, tokens: list[int] = PROMPT, **more: Any) -> dict[str, Any]:
    """The reply of the first engine, as a router asks for it."""
    body = {
        "model": "toy",
        "prompt": tokens,
        "max_tokens": 1,
        "kv_transfer_params": {"do_remote_decode": True},
    }
    status, said = side.post("/v1/completions", body | more)
    assert status == 200
    return said


def decoded(side: Asking, params: Any, osl: int = 5) -> tuple[int, dict[str, Any], float]:
    """Status, reply and seconds of the second engine."""
    began = time.monotonic()
    body = {
        "model": "toy",
        "prompt": PROMPT,
        "max_tokens": osl,
        "ignore_eos": True,
        "kv_transfer_params": params,
    }
    status, said = side.post("/v1/completions", body)
    return status, said, time.monotonic() - began


def test_a_cache_is_handed_on_once(sides: Sides) -> None:
    began = time.monotonic()
    params = computed(sides[0])["kv_transfer_params"]
    assert (params["do_remote_prefill"], params["do_remote_decode"]) == (True, False)
    assert (params["remote_num_tokens"], len(params["remote_block_ids"][0])) == (640, 40)
    assert params["remote_port"] == sides[0].port
    status, said, _ = decoded(sides[1], params)
    assert (status, said["usage"]["completion_tokens"]) == (200, 5)
    # three of the prompt; the first token came with the cache
    assert time.monotonic() - began >= 7 * STEP_S
    assert 'source="external_kv_transfer"} 640.0' in sides[1].get("/metrics")[1]
    again, refused, _ = decoded(sides[1], params)
    assert (again, refused["error"]["type"]) == (500, "InternalServerError")


def test_the_decode_engine_does_not_compute_the_prompt(sides: Sides) -> None:
    received = min(
        decoded(sides[1], computed(sides[0])["kv_transfer_params"], osl=2)[2] for _ in range(5)
    )
    itself = min(decoded(sides[1], None, osl=2)[2] for _ in range(5))
    assert itself >= 4 * STEP_S  # three steps of the prompt, and one more token
    assert received < itself


@pytest.mark.parametrize(
    "missing",
    ["remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids"],
)
def test_without_a_field_the_prompt_is_computed_here(sides: Sides, missing: str) -> None:
    params = {
        name: value
        for name, value in computed(sides[0])["kv_transfer_params"].items()
        if name != missing
    }
    status, said, seconds = decoded(sides[1], params)
    assert (status, said["usage"]["completion_tokens"]) == (200, 5)
    assert seconds >= 7 * STEP_S


@pytest.mark.parametrize(
    "changed",
    [
        {"remote_request_id": "nobody/..%2f"},
        {"remote_port": 9},
        {"remote_port": "x"},
        {"remote_host": "no host"},
    ],
)
def test_a_cache_that_cannot_be_fetched_fails_the_request(
    sides: Sides, changed: dict[str, Any]
) -> None:
    assert decoded(sides[1], computed(sides[0])["kv_transfer_params"] | changed)[0] == 500


def test_a_cache_of_another_prompt_fails_the_request(sides: Sides) -> None:
    assert decoded(sides[1], computed(sides[0], PROMPT[:320])["kv_transfer_params"])[0] == 500


def test_only_an_engine_that_has_the_role_takes_the_parameters(sides: Sides) -> None:
    assert computed(sides[1])["kv_transfer_params"] is None
    assert decoded(sides[0], computed(sides[0])["kv_transfer_params"])[2] >= 7 * STEP_S


def test_blocks_are_held_until_the_cache_has_left() -> None:
    slow = replace(LINK, bytes_s=3.2e6)  # 0.2 s for each prompt, one after another
    with in_thread(replace(SERVED, instances=1, transfers=("producer", slow))) as server:
        engine = server.service.engines.fleet.instances[0].member.engine  # type: ignore[attr-defined]
        computed(Asking(server.port))
        assert engine.kv_blocks_used == 40
        computed(Asking(server.port))
        seen, ends = [engine.kv_blocks_used], time.monotonic() + 30
        while seen[-1] and time.monotonic() < ends:
            time.sleep(0.01)
            seen += [used] if (used := engine.kv_blocks_used) != seen[-1] else []
        assert seen == [80, 40, 0]
