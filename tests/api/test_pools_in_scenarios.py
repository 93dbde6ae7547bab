"""Two pools as keys of a scenario, for simulate and for size; what simulate alone understands is refused by size."""

from __future__ import annotations

from pathlib import Path

import pytest

import tonnage
from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.errors import InputError, InputErrors
from tonnage.sizing.question import Pools

SCENARIO = """
model: llama-3.1-8b
lengths: {isl: 500, osl: 20}
demand: {peak_rps: 4}
limits: {ttft: p95<=2s, itl: p99<=200ms}
search: {gpu: h100-sxm-80gb, precision: fp16, tp: 1, engine: vllm, disaggregated: 1:2, kv_link: 5GB/s, kv_overlap: true}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pools.yaml").write_text(SCENARIO)
    return tmp_path / "pools.yaml"


def test_simulate_has_its_pools_from_the_file(file: Path) -> None:
    """Without quotes too: YAML 1.1 would read 1:2 as 62."""
    pools = simulation_of(file, {"request_rate": 4}).pools
    assert pools is not None
    assert (pools.prefill_instances, pools.decode_instances, pools.link_bytes_s, pools.overlap) == (1, 2, 5e9, True)
    other = simulation_of(file, {"request_rate": 4, "disaggregated": "2:1"}).pools
    assert other is not None
    assert (other.prefill_instances, other.decode_instances) == (2, 1)
    record = tonnage.simulate(file, request_rate=4, requests=30)
    assert record.router == "1:2 disaggregated"


def test_simulate_asks_for_the_numbers(file: Path) -> None:
    file.write_text(SCENARIO.replace("1:2", "true"))
    with pytest.raises(InputError, match="not two numbers of instances"):
        simulation_of(file, {"request_rate": 4})
    file.write_text(SCENARIO.replace("disaggregated: 1:2, ", ""))
    with pytest.raises(InputError, match="is of two pools"):
        simulation_of(file, {"request_rate": 4})


def test_size_finds_the_ratio_of_the_pools_of_the_file(file: Path) -> None:
    assert api.ask(file).questions[0].pools == Pools(link_bytes_s=5e9, overlap=True)
    choice = tonnage.size(file).choice
    assert choice is not None
    assert [pool.role for pool in choice.pools] == ["prefill", "decode"]
    assert choice.ratio == ":".join(str(pool.instances) for pool in choice.pools)
    file.write_text(SCENARIO.replace("disaggregated: 1:2, kv_link: 5GB/s, kv_overlap: true", "disaggregated: false"))
    assert api.ask(file).questions[0].pools is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kv_link": "5GB/s"}, "of two pools"),
        ({"queue_order": "shortest-first"}, "sized without this"),
        ({"classes": "a 1"}, "sized without this"),
        ({"shed": True}, "sized without this"),
        ({"long_prefill_token_threshold": 512}, "sized without this"),
        ({"arrivals": "mmpp", "mmpp": "2/s for 60s, 20/s for 10s"}, "sized without this"),
    ],
)
def test_size_refuses_what_simulate_alone_understands(asked: dict[str, object], said: str) -> None:
    with pytest.raises(InputErrors, match=said):
        api.ask(model="llama-3.1-8b", isl=500, osl=20, peak_rps=4, ttft="p95<=2s", **asked)


def test_every_strategy_is_a_key_of_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "ranked.yaml").write_text(
        "model: llama-3.1-8b\nlengths: {mixture: 'short-in-short-out 0.5, long-in-short-out 0.5'}\n"
        "search: {engine: vllm, queue_order: priority, shed: true, classes: 'chat 0.7 ttft=1s, batch 0.3', arrivals: mmpp,\n"
        "  mmpp: '2/s for 60s, 20/s for 10s', long_prefill_token_threshold: 256}\n"
    )
    found = tonnage.simulate(tmp_path / "ranked.yaml", requests=60)
    assert [one.name for one in found.classes] == ["chat", "batch"]
    assert found.deployment.knobs.long_prefill_token_threshold == 256
    assert found.workload.arrivals.process == "mmpp"
