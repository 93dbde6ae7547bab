"""What a measurement of the choice would buy: in the plan, as commands that the tool takes, and as it turns out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.measurement import Machine, Truth, measured
from tests.serve.test_chain import flags_of, loads, slower
from tonnage.api import bench as bench_api
from tonnage.api.running.deploy import planned
from tonnage.api.size import size
from tonnage.cli.main import run
from tonnage.plan.cost import YearlyCost
from tonnage.plan.plan import Plan
from tonnage.plan.provenance import FOLDER
from tonnage.report.plans.confidence import measurement_section, measurement_text
from tonnage.results.metrics import summarize
from tonnage.results.store import write_run
from tonnage.simulator.simulate import simulate_many
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.workload import Workload

ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "precision": "fp8",
    "tp": "1",
    "engine": "tensorrt-llm",
    "isl": 1000,
    "osl": 100,
    "peak_rps": 2000,
    "ttft": "p95<=500ms",
    "tpot": "p95<=50ms",
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return size(**ASKED)


def test_a_plan_says_what_ten_points_would_buy(plan: Plan) -> None:
    found, choice = plan.measurement, plan.choice
    assert found is not None
    assert choice is not None
    assert choice.confidence is not None
    assert found.points == 10
    assert found.systems == choice.confidence.systems
    for level, now in found.systems.items():  # never wider
        after, middle = found.after[level], found.after["50"]
        assert now is not None
        assert after is not None
        assert middle is not None
        assert middle <= after <= now
    assert found.now is not None
    assert found.expected_systems is not None
    assert found.after["80"] is not None
    assert found.narrows
    assert 0 < found.left < 0.5
    assert 600 < found.seconds < 7200


def test_it_is_worth_the_systems_that_it_saves(plan: Plan) -> None:
    found = plan.measurement
    assert found is not None
    assert plan.choice is not None
    assert isinstance(plan.cost, YearlyCost)
    each = min(way.total_usd_per_year for way in plan.cost.ways if way.where in ("on-prem", "cloud") and way.total_usd_per_year is not None)
    each /= plan.choice.systems
    assert found.usd == pytest.approx(each * found.seconds / (3600 * 8760), rel=0.01)
    assert found.saved_usd_per_year == pytest.approx(each * found.saved_systems - (found.usd or 0), rel=0.01)


def test_a_plan_with_it_is_the_same_when_it_is_read_back(plan: Plan) -> None:
    written = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(written) == plan
    assert written["measurement"]["points"] == 10
    assert written["measurement"]["calibrate"][:2] == ["tonnage", "calibrate"]
    written["measurement"]["bench"][0][3] = "elsewhere:1"
    with pytest.raises(Exception, match=r"measurement\.bench.*contradicts"):
        Plan.from_json(written)


def test_bench_takes_the_proposed_commands_as_they_stand(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed and checked by the command itself, up to where it would send its first request."""
    found, prepared = plan.measurement, list[Any]()
    assert found is not None

    def noted(made: Any, **_: Any) -> tuple[()]:
        prepared.append(made)
        return ()

    monkeypatch.setattr(bench_api, "run_bench", noted)
    monkeypatch.setattr("tonnage.cli.bench.print_answer", lambda *_, **__: None)
    for argv in found.bench:
        assert run(argv[1:]) == 0
    for made, sweep in zip(prepared, found.sweeps, strict=True):
        assert tuple(one.arrivals.concurrency for one in made.questions) == sweep.concurrency
        assert {(one.isl.mean, one.osl.mean, one.seconds) for one in made.questions} == {(sweep.isl, sweep.osl, sweep.seconds)}


@pytest.mark.parametrize("factor", [1.25, 0.9])
def test_measured_as_proposed_the_answer_is_within_one_system_of_the_truth(
    plan: Plan, factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run folders as ``bench`` leaves them, of a machine that takes so many times as long, and the calibrate command as it stands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()), encoding="utf-8")
    assert plan.measurement is not None
    deployment = planned("plan.json").deployment
    monkeypatch.setattr("tests.serve.test_chain.SLOWER", factor)
    for argv in plan.measurement.bench:
        asked = flags_of(" ".join(argv))
        for where, arrivals, said in loads(asked):
            clients = int(said["concurrency"])
            lengths = {name: parse_lengths(asked[f"--{name}"], name) for name in ("isl", "osl")}
            (record,) = simulate_many([(deployment, Workload(arrivals=arrivals, requests=6 * clients, **lengths))], seed=0)
            unknown = dict.fromkeys(("gpu", "precision", "tp", "engine"))
            scenario = {"model": asked["--model"], **unknown, "isl": asked["--isl"], "osl": asked["--osl"], "requests": 6 * clients}
            shown = slower(record)
            write_run(tmp_path / where, {**scenario, "arrivals": said}, shown, summarize(shown), {})
    assert (tmp_path / FOLDER).is_dir()
    assert run(plan.measurement.calibrate[1:]) == 0, capsys.readouterr().err
    again = size(**ASKED, coefficients=plan.measurement.calibrate[-1])
    truth = Truth.of(plan, **ASKED).systems(Machine(factor=factor))
    assert truth is not None
    assert again.choice is not None
    assert abs(again.choice.systems - truth) <= 1
    assert again.measurement is None  # it is measured


def test_the_words_name_both_intervals_and_the_saving(plan: Plan) -> None:
    found = plan.measurement
    assert found is not None
    made = replace(
        found,
        systems={"50": 5, "80": 8, "95": None},
        after={"50": 5, "80": 6, "95": 7},
        expected_systems=6.4,
        seconds=3600,
        usd=30.0,
        saved_usd_per_year=340_000.0,
    )
    assert measurement_text(made) == (
        "10 points (60 min of one system) would narrow 8 systems (5 to …) to 6 (5 to 7); on average 1.6 fewer, 340,000 USD a year"
    )
    dear = replace(made, saved_usd_per_year=-1.0)
    assert measurement_text(dear).endswith("to 6 (5 to 7)")
    useless = replace(made, after=made.systems, expected_systems=8.0)
    assert measurement_text(useless) == measurement_text(None) == ""
    assert not measurement_section(replace(plan, measurement=useless)).blocks


def test_a_job_is_not_said_to_gain_from_one() -> None:
    asked = {name: value for name, value in ASKED.items() if name not in ("peak_rps", "ttft", "tpot")}
    assert size(**asked, mode="offline", requests=1_000_000, within="2h").measurement is None


def test_the_simulation_of_its_worth_measures_what_it_says() -> None:
    """A row that the benchmark makes up is the prediction itself where nothing scatters, and as much longer where steps are slower."""

    class Nothing:
        def standard_normal(self, size: int) -> Any:
            return np.zeros(size)

        def integers(self, most: int) -> int:
            return 0

    row = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1, "engine": "tensorrt-llm-1.2"}
    row |= {"isl": 1000, "osl": 100, "concurrency": 16, "requests": 160}
    same, longer = (measured(row, Machine(factor=factor), Nothing()) for factor in (1.0, 1.3))  # type: ignore[arg-type]
    assert longer["itl_ms"] == pytest.approx(1.3 * same["itl_ms"], rel=0.05)
    assert longer["requests_s"] == pytest.approx(same["requests_s"] / 1.3, rel=0.1)
