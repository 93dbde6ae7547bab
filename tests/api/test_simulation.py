"""``tonnage.simulate`` takes a scenario as ``size`` does: one deployment and its loads come of
it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage import api
from tonnage.api.grids import LEFT_OUT, Grid, read_grid, sweep, write_point
from tonnage.api.question.simulation import Simulation, simulation_of
from tonnage.errors import InputError, InputErrors, TonnageError
from tonnage.sizing.question import Pools
from tonnage.spec.scenario_file import read_scenario
from tonnage.spec.workload import ClosedLoop, OpenLoop

SCENARIO: dict[str, Any] = {
    "model": "llama-3-8b",
    "lengths": {"isl": 100, "osl": 20, "system_prompt": 50},
    "demand": {"peak_rps": 3},
    "search": {
        "gpu": "l40s",
        "precision": "fp8",
        "tp": 2,
        "engine": "vllm",
        "max_num_tokens": 1024,
        "arrivals": "constant",
    },
    "seed": 7,
}


def asked(scenario: Any = SCENARIO, **named: Any) -> Simulation:
    return simulation_of(scenario, named or {"request_rate": 3})


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


# Two pools as keys of a scenario, for simulate and for size; what simulate alone understands is
# refused by size.


POOLS_IN_SCENARIOS_SCENARIO = """
model: llama-3.1-8b
lengths: {isl: 500, osl: 20}
demand: {peak_rps: 4}
limits: {ttft: p95<=2s, itl: p99<=200ms}
search: {gpu: h100-sxm-80gb, precision: fp16, tp: 1, engine: vllm, disaggregated: 1:2, kv_link: 5GB/s, kv_overlap: true}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pools.yaml").write_text(POOLS_IN_SCENARIOS_SCENARIO)
    return tmp_path / "pools.yaml"


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
    for asked, said in [
        ({"kv_link": "5GB/s"}, "of two pools"),
        ({"queue_order": "shortest-first"}, "sized without this"),
        ({"long_prefill_token_threshold": 512}, "sized without this"),
        ({"arrivals": "mmpp", "mmpp": "2/s for 60s, 20/s for 10s"}, "sized without this"),
    ]:
        with pytest.raises(InputErrors, match=said):
            api.ask(model="llama-3.1-8b", isl=500, osl=20, peak_rps=4, ttft="p95<=2s", **asked)
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


# A sweep writes each point once, also when it was killed and is run again.


BASE = {"model": "llama-3.1-8b", "isl": 300, "osl": 20, "requests": 40}
GRID = Grid(base=BASE, over={"tp": [1, 2], "request_rate": [1, 2.5, 40]})


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every point's summary."""
    return {
        file.parent.name: (file.stat().st_ino, file.stat().st_mtime_ns)
        for file in folder.glob("*/summary.json")
    }


def test_what_is_there_is_not_done_again_and_what_cannot_be_is_noted_once(tmp_path, monkeypatch):
    for name, asked in list(GRID.points())[:5]:
        write_point(name, asked, str(tmp_path), {})
    (tmp_path / LEFT_OUT).mkdir()
    write_point("tp-64", BASE | {"tp": 64, "request_rate": 1}, str(tmp_path), {})
    before = written(tmp_path)
    monkeypatch.setattr(sys.modules["tonnage.api.grids"], "_on_processes", in_turn)
    wanted = Grid(base=BASE, over={"tp": [1, 2, 64], "request_rate": [1, 2.5, 40]})
    found = sweep(wanted, tmp_path, {})
    assert (found.points, found.done) == (9, 4)
    assert len(found.left_out) == 3
    assert before.items() <= written(tmp_path).items()
    assert sweep(wanted, tmp_path, {}).done == 0


def in_turn(todo, folder, provenance, workers):
    for name, asked in todo:
        yield write_point(name, asked, folder, provenance)


@pytest.mark.parametrize(
    "text",
    [
        "over: {tp: []}\nbase: {}",
        "over: {tp: [1]}\nbase: {tp: 2}",
        "over: {tpp: [1]}\nbase: {}",
        "over: {tp: [1, 1]}\nbase: {}",
        "over: 3",
    ],
)
def test_a_grid_that_cannot_be_is_refused(tmp_path, text):
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    with pytest.raises(TonnageError):
        read_grid(file)


POINTS = {
    "base": BASE | {"requests": 30},
    "over": {"tp": [1, 2], "seed": list(range(10)), "request_rate": [1 + i / 2 for i in range(10)]},
}
"""200 points."""


@pytest.mark.engines
@pytest.mark.parametrize("on", ["processes", "ray"])
def test_two_hundred_points_killed_and_resumed_are_each_written_once(tmp_path, on):
    file, folder = tmp_path / "grid.yaml", tmp_path / "runs"
    file.write_text(json.dumps(POINTS))
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "simulate",
        "--grid",
        str(file),
        "--output",
        str(folder),
        "--on",
        on,
        "--json",
    ]
    first = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while len(written(folder)) < 30 and time.monotonic() < until:
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = written(folder)
    assert 30 <= len(before) < 200
    second = subprocess.run(command, check=True, capture_output=True, text=True)
    after = written(folder)
    assert len(after) == 200
    assert before.items() <= after.items()
    said = json.loads(second.stdout)
    assert said["points"] == 200
    assert said["done"] <= 200 - len(before)
    assert not [
        one.name
        for one in folder.iterdir()
        if one.name not in after and one.name != LEFT_OUT and not one.name.startswith(".")
    ]


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
