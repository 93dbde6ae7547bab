"""Two deployments as two pools: the link between them, and the rules of the second."""

from __future__ import annotations

from dataclasses import replace

from tonnage.api import deployment_of
from tonnage.perf.memory import memory_plan
from tonnage.simulator.disaggregated import (
    NETWORK_BYTES_S,
    Disaggregated,
    decode_worker,
    link_between,
)


def plan(**more) -> Disaggregated:
    one = deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", tp=1, engine="vllm")
    return Disaggregated(prefill=one, decode=one, prefill_instances=1, decode_instances=2, **more)


def test_the_link_is_nvlink_within_a_server_and_the_network_between():
    assert plan().bytes_s == 450e9
    apart = Disaggregated(
        prefill=plan().prefill, decode=plan().decode, prefill_instances=4, decode_instances=8
    )
    assert apart.bytes_s == NETWORK_BYTES_S
    assert apart.gpus == 12
    wide = deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", tp=2, engine="vllm")
    assert replace(apart, prefill=wide).gpus == 2 * 4 + 8
    assert plan(link_bytes_s=1e9).bytes_s == 1e9
    memory = memory_plan(plan().prefill)
    assert (
        link_between(memory, memory, bytes_s=1e9).bytes_of(1000)
        == 1000 * memory.kv_bytes_per_token
        == 1000 * 131_072
    )


def test_sglang_decodes_for_others_by_rules_that_take_a_cache():
    worker = decode_worker(
        deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", tp=1, engine="sglang")
    )
    assert (worker.knobs.scheduler, worker.knobs.chunked_prefill) == ("vllm", True)
