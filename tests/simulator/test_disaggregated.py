"""Two deployments as two pools, and the command that simulates them."""

from __future__ import annotations

import json

import pytest

from tonnage.api import deployment_of, simulate
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.simulator.disaggregated import NETWORK_BYTES_S, Disaggregated, decode_worker, link_between

ASKED = {"model": "llama-3.1-8b", "isl": 2000, "osl": 60, "request_rate": 12, "requests": 120}


def plan(**more) -> Disaggregated:
    one = deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", tp=1, engine="vllm")
    return Disaggregated(prefill=one, decode=one, prefill_instances=1, decode_instances=2, **more)


def test_the_link_is_nvlink_within_a_server_and_the_network_between():
    assert plan().bytes_s == 450e9
    apart = Disaggregated(prefill=plan().prefill, decode=plan().decode, prefill_instances=4, decode_instances=8)
    assert apart.bytes_s == NETWORK_BYTES_S
    assert plan(link_bytes_s=1e9).bytes_s == 1e9
    memory = memory_plan(plan().prefill)
    assert link_between(memory, memory, bytes_s=1e9).bytes_of(1000) == 1000 * memory.kv_bytes_per_token == 1000 * 131_072


def test_sglang_decodes_for_others_by_rules_that_take_a_cache():
    worker = decode_worker(deployment_of(model="llama-3.1-8b", gpu="h100-sxm-80gb", tp=1, engine="sglang"))
    assert (worker.knobs.scheduler, worker.knobs.chunked_prefill) == ("vllm", True)


def test_prompts_do_not_hold_up_those_who_decode():
    apart = simulate(**ASKED, disaggregated="1:1").summary
    together = simulate(**ASKED).summary
    assert apart.requests["completed"] == 120
    assert apart.itl_ms.p99 < 0.5 * together.itl_ms.p99


def test_a_slow_link_is_waited_for_and_layer_by_layer_less():
    """0.26 GB of cache take 262 ms at 1 GB/s; what is sent while the prompt is computed is not waited for."""
    fast, slow, overlapped = (
        simulate(**ASKED | {"request_rate": 1, "requests": 20}, disaggregated="1:1", kv_link=link, kv_overlap=overlap).summary
        for link, overlap in (("1TB/s", False), ("1GB/s", False), ("1GB/s", True))
    )
    assert slow.e2e_ms.p50 - fast.e2e_ms.p50 == pytest.approx(262, rel=0.1)
    assert fast.e2e_ms.p50 < overlapped.e2e_ms.p50 < slow.e2e_ms.p50 - 20
    assert slow.ttft_ms.p50 - fast.ttft_ms.p50 == pytest.approx(262, rel=0.1)
    assert slow.tpot_ms.p50 == pytest.approx(fast.tpot_ms.p50, rel=0.02)


@pytest.mark.parametrize("asked", ["3", "0:1", "1:x"])
def test_what_is_no_ratio_is_refused(asked):
    with pytest.raises(InputError, match="prefill:decode"):
        simulate(**ASKED, disaggregated=asked)


def test_the_command_says_what_ran(capsys):
    flags = ["--model", "llama-3.1-8b", "--isl", "500", "--osl", "20", "--request-rate", "5", "--requests", "30"]
    assert run(["simulate", *flags, "--disaggregated", "1:2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["router"] == "1:2 disaggregated"
    assert run(["simulate", *flags, "--kv-link", "50GB/s"]) == 2
    assert "--kv-link" in capsys.readouterr().err
