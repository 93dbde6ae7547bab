"""``tonnage.simulate`` takes a scenario as ``size`` does: one deployment and its loads come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.api.question.simulation import Simulation, simulation_of
from tonnage.errors import InputError, InputErrors
from tonnage.spec.scenario_file import read_scenario
from tonnage.spec.workload import ClosedLoop, OpenLoop

SCENARIO: dict[str, Any] = {
    "model": "llama-3-8b",
    "lengths": {"isl": 100, "osl": 20, "system_prompt": 50},
    "demand": {"peak_rps": 3},
    "search": {"gpu": "l40s", "precision": "fp8", "tp": 2, "engine": "vllm", "max_num_tokens": 1024, "arrivals": "constant"},
    "seed": 7,
}


def asked(scenario: Any = SCENARIO, **named: Any) -> Simulation:
    return simulation_of(scenario, named or {"request_rate": 3})


def test_a_scenario_names_the_deployment_the_lengths_and_the_load() -> None:
    found = asked()
    d, (w,) = found.deployment, found.workloads
    assert (d.model.name, d.gpu.name, d.precision.name, d.parallelism.tp, d.engine) == ("llama-3-8b", "l40s", "fp8", 2, "vllm-0.32")
    assert d.knobs.max_num_tokens == 1024
    assert (w.isl.mean, w.osl.mean, found.seed) == (150, 20, 7)
    assert w.arrivals == OpenLoop(rate=3, process="constant")


def test_what_is_given_by_name_stands_in_place_of_what_the_scenario_says() -> None:
    found = asked(concurrency="1,4", gpu="h100", requests=30, osl=10)
    assert [(w.arrivals.concurrency, w.requests) for w in found.workloads if isinstance(w.arrivals, ClosedLoop)] == [(1, 30), (4, 30)]
    assert (found.deployment.gpu.name, found.workloads[0].osl.mean) == ("h100-sxm-80gb", 10)


def test_a_file_values_and_a_scenario_ask_the_same(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("model: llama-3-8b\nlengths: {isl: 100, osl: 20}\nsearch: {gpu: l40s}\n", encoding="utf-8")
    values = {"model": "llama-3-8b", "lengths": {"isl": 100, "osl": 20}, "search": {"gpu": "l40s"}}
    forms: list[Any] = [path, str(path), values, read_scenario(str(path))]
    assert len({repr(asked(form, request_rate=2)) for form in forms}) == 1
    assert repr(asked(None, model="llama-3-8b", isl=100, osl=20, gpu="l40s", request_rate=2)) == repr(asked(path, request_rate=2))


def test_pairs_of_lengths_are_simulated_together(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("isl,osl\n100,10\n300,30\n", encoding="utf-8")
    run = tonnage.simulate(model="llama-3-8b", pairs=tmp_path / "p.csv", request_rate=5, requests=20)
    assert set(zip(run.requests.isl.tolist(), run.requests.osl.tolist(), strict=True)) == {(100, 10), (300, 30)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"search": {"gpu": "l40s,h100"}}, "gpu: l40s, h100 are several; one deployment is simulated, so name one of them"),
        ({"model": ["llama-3-8b", "llama-3-70b"]}, "model: llama-3-8b, llama-3-70b are several"),
        ({"search": {"tp": [1, 2]}}, "tp: 1, 2 are several"),
        ({"search": {"pp": 2}}, "pp: an engine in pipeline stages is sized"),
        ({"lengths": {"isl": 100}}, "osl: missing; for example model llama-3.1-8b"),
        ({"model": None}, "model: missing; for example"),
        ({"seed": -1}, "seed: -1 is negative"),
    ],
)
def test_what_cannot_be_simulated_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        asked({**SCENARIO, **change})
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("demand", "says"),
    [
        ({}, "concurrency, request_rate: neither given; give one of them"),
        ({"peak_rps": 30}, "concurrency, request_rate: neither given; the demand of 30 requests/s is for all instances"),
        ({"requests": 36000, "within": "1h"}, "concurrency, request_rate: neither given; the demand of 10 requests/s"),
    ],
)
def test_a_demand_is_no_load_of_one_instance(demand: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        asked({**SCENARIO, "demand": demand}, osl=20)
    assert str(caught.value).startswith(says)


def test_every_fault_of_a_file_is_told_by_its_key_and_of_an_argument_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("model: lama-3\nlengths: {isl: soon, osl: 20}\nsearch: {tp: [1, 2]}\nseed: -1\n", encoding="utf-8")
    with pytest.raises(InputErrors) as caught:
        asked(path, gpu="h100,l40s", request_rate=2)
    assert [line.removeprefix(f"{path}: ").split(":")[0] for line in caught.value.messages] == ["lengths.isl", "gpu", "search.tp", "seed"]


def test_several_loads_are_a_sweep() -> None:
    with pytest.raises(InputError, match="simulate_sweep runs them all"):
        tonnage.simulate(model="llama-3-8b", isl=20, osl=2, concurrency="1,2", requests=4)
