"""``tonnage verify`` against vLLM itself: as planned, and with plans that count on one other
setting each, which is found and named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engines.vllm_server import SLOTS, TOKENS, python, vllm
from tonnage import api
from tonnage.api.running.deploy import Verified, verify
from tonnage.plan.candidate import Pool
from tonnage.plan.plan import Plan

pytestmark = pytest.mark.engines

CONTEXT = 2048
CACHE = 2**30
"""Bytes of the server's KV cache."""

TOKEN = 2 * 8 * 4 * 64 * 2
"""Bytes of a token in it: keys and values of 8 layers with 4 heads of 64 numbers of 16 bits
(tiny_llama.py)."""

BLOCK = 32


@pytest.fixture(scope="module")
def running(folder: Path, model: Path) -> Iterator[str]:
    """A server that also answers /server_info."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("VLLM_SERVER_DEV_MODE", "1")
        with vllm(
            python(), model, folder, "--block-size", str(BLOCK), "--enable-chunked-prefill"
        ) as url:
            yield url


@pytest.fixture(scope="module")
def plan(model: Path) -> Plan:
    """What the server runs, as a plan."""
    found = api.size(
        model="llama-3.1-8b",
        system="1xh100",
        precision="fp16",
        tp="1",
        engine="vllm-0.32",
        isl="200",
        osl="20",
        peak_rps=1,
    )
    assert isinstance(found, Plan)
    pool = found.candidates[0].pool
    assert pool.knobs is not None
    knobs = replace(
        pool.knobs,
        max_batch_size=SLOTS,
        max_num_tokens=TOKENS,
        chunked_prefill=True,
        prefix_caching=False,
        tokens_per_block=BLOCK,
    )
    return _with(
        found,
        replace(
            pool,
            model=str(model),
            launch=_launch(pool, CONTEXT),
            knobs=knobs,
            kv_tokens=CACHE // TOKEN,
        ),
    )


def _with(plan: Plan, pool: Pool) -> Plan:
    return replace(
        plan, candidates=(replace(plan.candidates[0], pools=(pool,)), *plan.candidates[1:])
    )


def _launch(pool: Pool, context: int) -> tuple[str, ...]:
    at = pool.launch.index("--max-model-len") + 1
    return (*pool.launch[:at], str(context), *pool.launch[at + 1 :])


def verified(url: str, plan: Plan, path: Path, **options: Any) -> Verified:
    path.write_text(json.dumps(plan.to_json()), encoding="utf-8")
    return verify([url], plan=path, **options)


def test_vllm_as_planned_and_every_setting_is_published(
    running: str, plan: Plan, tmp_path: Path
) -> None:
    found = verified(running, plan, tmp_path / "plan.json", seconds=0)
    print(
        "\n".join(
            f"{one.name}: {one.planned} planned, {one.running} runs"
            for one in found.instances[0].settings
        )
    )
    assert found.findings == ()
    assert all(one.running is not None for one in found.instances[0].settings)


OTHER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "version": ({"engine": "vllm-0.21", "engine_preset": "vllm-0.21"}, {}),
    "model": ({"model": "llama-3.1-8b"}, {}),
    "TP": ({"tp": 2}, {}),
    "number format": ({"precision": "fp8+kv-fp16"}, {}),
    "KV cache in FP8": ({"precision": "fp16+kv-fp8"}, {}),
    "slots": ({}, {"max_batch_size": SLOTS - 1}),
    "step tokens": ({}, {"max_num_tokens": TOKENS * 2}),
    "chunked prefill": ({}, {"chunked_prefill": False}),
    "tokens of a KV block": ({}, {"tokens_per_block": 16}),
    "prefix cache": ({}, {"prefix_caching": True}),
    "tokens of the KV cache": ({"kv_tokens": int(CACHE // TOKEN * 1.2)}, {}),
    "engine": (
        {
            "engine": "sglang-0.5.9",
            "engine_preset": "sglang-0.5.9",
            "launch": ("--context-length", str(CONTEXT)),
        },
        {},
    ),
}
"""What a plan counts on in place of what runs: of its pool, and of the pool's knobs."""


@pytest.mark.parametrize("name", [*OTHER, "context"])
def test_one_other_setting_is_found_and_named(
    running: str, plan: Plan, tmp_path: Path, name: str
) -> None:
    pool = plan.candidates[0].pool
    assert pool.knobs is not None
    changed, knobs = OTHER.get(name, ({"launch": _launch(pool, CONTEXT * 2)}, {}))
    other = _with(plan, replace(pool, **changed, knobs=replace(pool.knobs, **knobs)))
    found = verified(running, other, tmp_path / "plan.json", seconds=0)
    print(found.findings)
    assert [one.name for one in found.instances[0].off] == [name]
