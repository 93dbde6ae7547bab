"""``tonnage.simulate`` takes a scenario as ``size`` does: one deployment and its loads come of
it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tests.api.simulation_cases import POOLS_IN_SCENARIOS_SCENARIO, SCENARIO, asked
from tests.questions import plans_with
from tonnage import api
from tonnage.api.question.simulation import simulation_of
from tonnage.errors import InputError, InputErrors
from tonnage.sizing.question import Pools
from tonnage.spec.scenario_file import read_scenario
from tonnage.spec.workload import ClosedLoop, OpenLoop

few_parts = plans_with()


def test_a_scenario_names_the_deployment_the_lengths_and_the_load() -> None:
    found = asked()
    d, (w,) = found.deployment, found.workloads
    assert (d.model.name, d.gpu.name, d.precision.name, d.parallelism.tp, d.engine) == (
        "llama-3-8b",
        "l40s",
        "fp8+kv-fp16",
        2,
        "vllm-0.32",
    )
    assert d.knobs.max_num_tokens == 1024
    assert (w.isl.mean, w.osl.mean, found.seed) == (150, 20, 7)
    assert w.arrivals == OpenLoop(rate=3, process="constant")
    found = asked(concurrency="1,4", gpu="h100", requests=30, osl=10)
    assert [
        (w.arrivals.concurrency, w.requests)
        for w in found.workloads
        if isinstance(w.arrivals, ClosedLoop)
    ] == [(1, 30), (4, 30)]
    assert (found.deployment.gpu.name, found.workloads[0].osl.mean) == ("h100-sxm-80gb", 10)


def test_a_file_values_and_a_scenario_ask_the_same(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "model: llama-3-8b\nlengths: {isl: 100, osl: 20}\nsearch: {gpu: l40s}\n", encoding="utf-8"
    )
    values = {"model": "llama-3-8b", "lengths": {"isl": 100, "osl": 20}, "search": {"gpu": "l40s"}}
    forms: list[Any] = [path, str(path), values, read_scenario(str(path))]
    assert len({repr(asked(form, request_rate=2)) for form in forms}) == 1
    assert repr(
        asked(None, model="llama-3-8b", isl=100, osl=20, gpu="l40s", request_rate=2)
    ) == repr(asked(path, request_rate=2))


def test_what_cannot_be_simulated_is_refused() -> None:
    for change, says in [
        ({"search": {"gpu": "l40s,h100"}}, "gpu: l40s, h100 are several; name one of them"),
        ({"search": {"pp": 33}}, "pp: 33 stages are more than the 32 layers"),
        ({"lengths": {"isl": 100}}, "osl: missing; for example model llama-3.1-8b"),
        ({"model": None}, "model: missing; for example"),
    ]:
        with pytest.raises(InputError) as caught:
            asked({**SCENARIO, **change})
        assert str(caught.value).startswith(says)
    for demand, says in [
        ({}, "concurrency, request_rate: neither given; give one of them"),
        (
            {"peak_rps": 30},
            (
                "concurrency, request_rate: neither given; the demand of 30 requests/s is for all"
                " instances"
            ),
        ),
    ]:
        with pytest.raises(InputError) as caught:
            asked({**SCENARIO, "demand": demand}, osl=20)
        assert str(caught.value).startswith(says)


def test_every_fault_of_a_file_is_told_by_its_key_and_of_an_argument_by_its_name(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "model: lama-3\nlengths: {isl: soon, osl: 20}\nsearch: {tp: [1, 2]}\nseed: -1\n",
        encoding="utf-8",
    )
    with pytest.raises(InputErrors) as caught:
        asked(path, gpu="h100,l40s", request_rate=2)
    assert [line.removeprefix(f"{path}: ").split(":")[0] for line in caught.value.messages] == [
        "gpu",
        "search.tp",
        "lengths.isl",
        "seed",
    ]


def test_simulate_and_size_have_their_pools_from_the_file(file: Path) -> None:
    """Without quotes too: YAML 1.1 would read 1:2 as 62."""
    pools = simulation_of(file, {"request_rate": 4}).pools
    assert (pools.prefill_instances, pools.decode_instances, pools.link_bytes_s, pools.overlap) == (
        1,
        2,
        5e9,
        True,
    )
    other = simulation_of(file, {"request_rate": 4, "disaggregated": "2:1"}).pools
    assert (other.prefill_instances, other.decode_instances) == (2, 1)
    record = tonnage.simulate(file, request_rate=4, requests=30)
    assert record.router == "1:2 disaggregated"
    assert api.ask(file).questions[0].pools == Pools(link_bytes_s=5e9, overlap=True)
    choice = tonnage.size(file).choice
    assert [pool.role for pool in choice.pools] == ["prefill", "decode"]
    assert choice.ratio == ":".join(str(pool.instances) for pool in choice.pools)
    file.write_text(
        POOLS_IN_SCENARIOS_SCENARIO.replace(
            "disaggregated: 1:2, kv_link: 5GB/s, kv_overlap: true", "disaggregated: false"
        )
    )
    assert api.ask(file).questions[0].pools is None


def test_size_refuses_what_simulate_alone_understands(tmp_path: Path) -> None:
    for further, said in [
        ({"kv_link": "5GB/s"}, "of two pools"),
        ({"queue_order": "shortest-first"}, "sized without this"),
        ({"long_prefill_token_threshold": 512}, "sized without this"),
        ({"arrivals": "mmpp", "mmpp": "2/s for 60s, 20/s for 10s"}, "sized without this"),
    ]:
        with pytest.raises(InputErrors, match=said):
            api.ask(model="llama-3.1-8b", isl=500, osl=20, peak_rps=4, ttft="p95<=2s", **further)
    (tmp_path / "ranked.yaml").write_text(
        "model: llama-3.1-8b\nlengths: {mixture: 'short-in-short-out 0.5, long-in-short-out"
        " 0.5'}\nsearch: {engine: vllm, queue_order: priority, shed: true, classes: 'chat 0.7"
        " ttft=1s, batch 0.3', arrivals: mmpp,\n  mmpp: '2/s for 60s, 20/s for 10s',"
        " long_prefill_token_threshold: 256}\n"
    )
    found = tonnage.simulate(tmp_path / "ranked.yaml", requests=60)
    assert [one.name for one in found.classes] == ["chat", "batch"]
    assert found.deployment.knobs.long_prefill_token_threshold == 256
    assert found.workload.arrivals.process == "mmpp"


@pytest.mark.parametrize(
    ("engine", "sizes"), [("nim-2024", {1, 7}), ("tensorrt-llm-1.2", {8}), ("vllm", {1, 7})]
)
def test_static_batches_that_alternate_are_remarked_on_where_they_do(
    engine: str, sizes: set[int]
) -> None:
    asked = {"isl": "exact:500", "osl": "exact:50", "concurrency": 8, "requests": 120}
    run = tonnage.simulate(model="llama-3-8b", batcher="static", engine=engine, **asked)
    batches = Counter(run.requests.first_token_ns.tolist())
    assert set(batches.values()) == sizes
    assert any("alternate" in mark for mark in run.marks) == (len(sizes) > 1)
