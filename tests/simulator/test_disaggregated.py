"""Two deployments as two pools: the link between them, and the rules of the second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.kernel.compared import assert_same
from tests.simulator.reference.examples import TICK, VLLM, closed_trace, open_trace
from tonnage.api import deployment_of
from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import Drafting
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator import disaggregated as module
from tonnage.simulator.disaggregated import (
    NETWORK_BYTES_S,
    Disaggregated,
    decode_worker,
    link_between,
    pool_engines,
    pooled_record,
    sent_bytes_s,
    simulate_disaggregated,
)
from tonnage.simulator.kernel import pools as compiled
from tonnage.simulator.kernel.memory import ENDS, TOKENS
from tonnage.simulator.pools import KvLink, simulate_pools
from tonnage.simulator.request import Request
from tonnage.simulator.spec import EngineSpec
from tonnage.spec.catalog import find_gpu


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


def test_a_pool_has_an_engine_for_each_attention_rank_of_its_instances(monkeypatch) -> None:
    """Three instances of two ranks compute prompts, four of three ranks decode, which are reached
    without a front end."""
    made = []

    def engines(spec, count, *, inside=False, plain=False):
        made.append((spec.knobs, count, inside, plain))
        return [len(made)] * count

    ran = []
    monkeypatch.setattr(module, "pool_engines", engines)
    monkeypatch.setattr(module, "pooled_record", lambda *what: ran.append(("compiled", *what)))
    monkeypatch.setattr(module, "simulate_pools", lambda *what: ran.append(("plain", *what)))
    prefill, decode = (
        deployment_of(model="qwen3-30b-a3b", gpu="h100-sxm-80gb", tp=1, dp=dp, engine="sglang")
        for dp in (2, 3)
    )
    both = Disaggregated(
        prefill=prefill,
        decode=decode,
        prefill_instances=3,
        decode_instances=4,
        link_bytes_s=7e9,
        latency_s=0.25,
        overlap=True,
    )
    assert both.gpus == 3 * 2 + 4 * 3
    for plain in (False, True):
        simulate_disaggregated(both, "trace", plain=plain)  # type: ignore[arg-type]
    worker = decode_worker(decode).knobs
    assert made == [
        (prefill.knobs, 6, False, False),
        (worker, 12, True, False),
        (prefill.knobs, 6, False, True),
        (worker, 12, True, True),
    ]
    memory = memory_plan(prefill)
    link = KvLink(
        bytes_per_token=98_304,
        bytes_s=7e9,
        layers=48,
        latency_s=0.25,
        overlap=True,
        block_tokens=prefill.knobs.tokens_per_block,
    )
    assert (memory.window_bytes_per_token, memory.window_tokens, memory.state_bytes) == (0, 0, 0)
    assert ran == [
        ("compiled", "trace", [1] * 6, [2] * 12, link, "least-outstanding"),
        ("plain", "trace", [3] * 6, [4] * 12, link, "least-outstanding"),
    ]


def test_a_link_carries_what_the_side_with_more_holds() -> None:
    memory = memory_plan(plan().prefill)
    one = replace(memory, kv_bytes_per_token=10, window_bytes_per_token=7, window_tokens=100)
    other = replace(
        memory, kv_bytes_per_token=20, window_bytes_per_token=3, window_tokens=50, state_bytes=9
    )
    for sides in ((one, other), (other, one)):
        assert link_between(*sides, bytes_s=2e9) == KvLink(
            bytes_per_token=20,
            bytes_s=2e9,
            layers=32,
            window_bytes_per_token=7,
            window_tokens=100,
            state_bytes=9,
            block_tokens=16,
        )


@pytest.mark.parametrize(
    ("gpu", "together", "bytes_s"),
    [
        ("h100-sxm-80gb", True, 450e9),
        ("h100-sxm-80gb", False, 50e9),
        ("l40s", True, 50e9),
    ],
)
def test_what_a_gpu_sends_to_one_of_the_other_pool(gpu, together, bytes_s) -> None:
    assert sent_bytes_s(find_gpu(gpu), together=together) == bytes_s


def test_pools_of_two_gpus_or_of_more_than_a_system_are_joined_by_the_network() -> None:
    """Eight H100s are one system; nine are not, nor an H100 and an H200."""
    assert replace(plan(), prefill_instances=6).bytes_s == 450e9
    assert replace(plan(), prefill_instances=7).bytes_s == NETWORK_BYTES_S
    h200 = deployment_of(model="llama-3.1-8b", gpu="h200-sxm-141gb", tp=1, engine="vllm")
    assert replace(plan(), decode=h200).bytes_s == NETWORK_BYTES_S


@pytest.mark.parametrize("plain", [False, True])
def test_the_engines_of_a_pool_draw_apart_and_the_second_pool_has_no_front_end(plain) -> None:
    drafting = Drafting(tokens=1, acceptance=0.5, passes=0, coefficients=TICK.coefficients)
    step = replace(TICK, frontend_s=0.5, drafting=drafting)
    spec = EngineSpec(step=step, knobs=VLLM, blocks=7, max_context=40)
    for inside, due_s in ((False, 0.501), (True, 0.001)):
        pool = pool_engines(spec, 2, inside=inside, plain=plain)
        assert [engine.kv_blocks_free for engine in pool] == [7, 7]
        pool[1].submit(Request(id=0, isl=3, osl=2, at=0))
        pool[1].submit(Request(id=1, isl=39, osl=2, at=0))
        pool[1].advance()
        record = pool[1].requests()
        assert record.first_token_ns[0] == due_s * 1e9
        assert record.status.tolist() == [COMPLETED, REJECTED]
        if plain:
            assert [engine.seed for engine in pool] == [0, 1]
        else:
            assert len({int(engine.machine.cfg["seed"]) for engine in pool}) == 2
            reports = {int(engine.machine.cfg["reporting"]) for engine in pool}
            assert reports == {ENDS if inside else TOKENS}


def test_the_record_of_two_pools_comes_from_whole_fleets_or_from_the_engines(monkeypatch) -> None:
    """Whole fleets have an answer in an open loop, unless they give none."""
    spec = EngineSpec(step=TICK, knobs=VLLM, blocks=100)
    link = KvLink(bytes_per_token=1000, bytes_s=1e6, layers=4)
    closed = closed_trace(2, 3, (10, 2), (10, 2))
    for trace in (open_trace((0, 10, 2), (1, 10, 3)), closed):
        first, second = (pool_engines(spec, 2, inside=inside) for inside in (False, True))
        plain = [pool_engines(spec, 2, inside=inside, plain=True) for inside in (False, True)]
        found = pooled_record(trace, first, second, link, "least-outstanding")
        assert_same(found, simulate_pools(trace, *plain, link, "least-outstanding"))
    monkeypatch.setattr(compiled, "run_pools", lambda *_: "whole")
    engines = pool_engines(spec, 1), pool_engines(spec, 1, inside=True)
    assert pooled_record(open_trace((0, 10, 2)), *engines, link, "random") == "whole"
    assert pooled_record(closed, *engines, link, "random") != "whole"
    with pytest.raises(InputError, match="router"):
        pooled_record(open_trace((0, 10, 2)), *engines, link, "session")


def test_sglang_decodes_for_others_by_rules_that_take_a_cache():
    worker = decode_worker(
        deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", tp=1, engine="sglang")
    )
    assert (worker.knobs.scheduler, worker.knobs.chunked_prefill) == ("vllm", True)
    knobs = replace(VLLM, chunked_prefill=False, receive_interval=8)
    assert module.decode_knobs(knobs) == replace(VLLM, chunked_prefill=True, receive_interval=1)
    assert module.decode_knobs(replace(knobs, scheduler="tensorrt-llm")).scheduler == "tensorrt-llm"
