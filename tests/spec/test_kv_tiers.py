"""Tiers below the KV cache: as they are written, and their share of the system's memory."""

from __future__ import annotations

import pytest

from tests.deployments import deployment
from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.simulator.tiers import resolved_tiers, tiers_of
from tonnage.spec.catalog import find_system
from tonnage.spec.catalog.entries import offloadings
from tonnage.spec.kv_tiers import OFF, USUAL, AskedTier, KvTiers, parse_kv_tiers

NAMES = tuple(each.name for each in offloadings())


def test_what_is_written_is_read_or_refused():
    for text, found in [
        ("none", OFF),
        ("lmcache", KvTiers(offloader="lmcache")),
        (
            "host=256GB@50GB/s",
            KvTiers(tiers=(AskedTier(name="host", size=256 * 10**9, speed=50 * 10**9),)),
        ),
        (
            "kvbm: host , disk=4TB@6GB/s+100us",
            KvTiers(
                tiers=(
                    AskedTier(name="host"),
                    AskedTier(
                        name="disk", size=4 * 10**12, speed=6 * 10**9, latency_s=pytest.approx(1e-4)
                    ),
                ),
                offloader="kvbm",
            ),
        ),
    ]:
        assert parse_kv_tiers(text, NAMES) == found
    for text in [
        "",
        "tape",
        "hots:host",
        "host=1GB@0GB/s",
        "host=,disk",
        "shelf=4TB",
        "host@fast/s",
        "host=256GB@50GB",
    ]:
        with pytest.raises(InputError, match="kv_tiers"):
            parse_kv_tiers(text, NAMES)


def asked(text, model="glm-4.6", gpu="h200", engine="vllm-0.32", system="dgx-h200", **split):
    one = deployment(model, gpu, "fp8", engine=engine, **split)
    below = find_system(system)
    tiers = parse_kv_tiers(text, NAMES) or USUAL
    return (
        one,
        resolved_tiers(tiers, one, below.kv_tiers, below.gpus),
        lambda: tiers_of(
            tiers,
            one,
            memory_plan(one),
            memories=below.kv_tiers,
            gpus_per_system=below.gpus,
            block_tokens=one.knobs.tokens_per_block,
        ),
    )


def test_tiers_have_their_share_of_the_systems_memory():
    one, (rules, (host,)), tiers = asked(None, tp=4)
    assert (rules.name, host.size, host.speed) == ("vllm", 800 * 10**9, 445 * 10**9 // 2)
    plan = memory_plan(one)
    block = plan.kv_bytes_per_token * one.knobs.tokens_per_block * 4
    (made,) = tiers()
    assert made.blocks == host.size // block - plan.blocks, (
        "a copy of what the GPUs have is no room"
    )
    assert made.block_ps == -(-block * 10**12 // host.speed)
    assert made.overlaps
    blocks = {}
    for name in ("lmcache", "kvbm"):
        _, _, tiers = asked(f"{name}:host", model="kimi-k2.5", gpu="b200", system="dgx-b200", tp=8)
        blocks[name] = tiers()[0].blocks
    assert blocks["lmcache"] > 4 * blocks["kvbm"]
    with pytest.raises(InputError, match="no size"):
        asked("store")
    with pytest.raises(InputError, match="nothing of the host"):
        asked("host", gpu="l40s", system="8xl40s")
    assert asked(None, gpu="l40s", system="8xl40s")[1][1] == ()


@pytest.mark.parametrize(
    ("engine", "offloader"),
    [
        ("vllm-0.32", "vllm"),
        ("sglang-0.5", "hicache"),
        ("tensorrt-llm-1.2", "tensorrt-llm"),
        ("vllm-0.10", ""),
        ("tensorrt-llm-0.15", ""),
    ],
)
def test_what_the_command_of_an_engine_does_not_switch_on_counts_only_where_it_is_asked_for(
    engine, offloader
):
    _, (rules, tiers), _ = asked(None, model="llama-3.1-8b", engine=engine)
    assert (rules.name, bool(tiers)) == (offloader, bool(offloader))
    assert asked("host", model="llama-3.1-8b", engine=engine)[1][1]
