import json
from pathlib import Path
from typing import Any

import pytest

from tonnage import api
from tonnage.api.size import ask
from tonnage.cli.main import run
from tonnage.cli.show_plan import show_plan
from tonnage.sizing.search import answer
from tonnage.sizing.search_space import prepare
from tonnage.sizing.sureness import confidence_of, confidences
from tonnage.spec.calibration import SCHEMA

ASKED: dict[str, Any] = {"model": "llama-3-8b", "isl": 500, "osl": 50, "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": "1"}


def plan_of(**asked: Any) -> Any:
    return api.size(**{**ASKED, "engine": "nim-2024", "tpot": "mean<=25ms", **asked})


def test_a_plan_says_how_sure_it_is() -> None:
    plan = plan_of(peak_rps=400)
    found = plan.confidence
    counts = [found.systems[share] for share in ("50", "80", "95")]
    assert None not in counts
    assert counts == sorted(counts)
    assert 0 < found.meets < 1
    assert plan.to_json()["confidence"]["systems"] == found.systems
    if counts[2] <= plan.choice.systems:
        assert found.meets >= 0.9
    if counts[0] > plan.choice.systems:
        assert found.meets <= 0.5


def test_more_load_on_the_same_systems_is_less_sure() -> None:
    plans = [plan_of(peak_rps=rate) for rate in (150, 300)]
    needed = [plan.confidence.systems["95"] for plan in plans]
    assert needed[0] <= needed[1]
    assert plans[0].choice.systems != plans[1].choice.systems or plans[0].confidence.meets >= plans[1].confidence.meets


def test_an_engine_without_rows_is_less_sure() -> None:
    fitted, published = (
        plan_of(peak_rps=100, gpu="a100-sxm-80gb", engine=engine).confidence.step_factors for engine in ("nim-2024", "vllm")
    )
    assert published["95"] / published["50"] > fitted["95"] / fitted["50"]


def test_size_takes_a_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.json"
    slower = {"compute": 0.6, "memory": 0.6, "step_s": 2.0, "sequence_s": 2.0}
    document = {"schema": SCHEMA, "preset": "nim-2024", "gpu": "h100-sxm-80gb", "multipliers": slower, "data": "a slow machine"}
    file.write_text(json.dumps(document), encoding="utf-8")
    plain, mine = plan_of(peak_rps=400), plan_of(peak_rps=400, coefficients=str(file))
    assert mine.choice.systems_exact > 1.3 * plain.choice.systems_exact
    assert any("calibrated on a slow machine" in mark for mark in mine.choice.marks)
    flags = [f"--{name}={value}" for name, value in ASKED.items()]
    assert run(["size", *flags, "--engine=nim-2024", "--peak-rps=9", f"--coefficients={file}", "--json"]) == 0
    assert any("a slow machine" in mark for mark in json.loads(capsys.readouterr().out)["choice"]["marks"])
    assert run(["size", *flags, "--peak-rps=9", "--coefficients=nowhere.json"]) == 2


def test_every_candidate_says_how_sure_it_is_and_the_runs_at_hand_agree_with_slower_ones() -> None:
    """The choice is simulated again with slower steps; read from the runs that found its capacity, its confidence is nearly the same."""
    asked = {**ASKED, "tp": "1,2", "engine": "nim-2024", "tpot": "mean<=25ms", "peak_rps": 100}
    question = ask(**asked).questions[0]
    found = answer(question, prepare(question))
    simulated = confidence_of(question, found)
    each = confidences(question, found)
    assert len(each) == len(found.candidates) > 1
    assert None not in each
    read = each[0]
    assert read is not None
    assert read.meets == pytest.approx(simulated.meets, abs=0.08)
    for share, systems in simulated.systems.items():
        got = read.systems[share]
        assert systems is None or (got is not None and abs(got - systems) <= max(1, 0.1 * systems))


def test_the_plan_its_table_and_its_json_hold_the_confidence_of_every_candidate(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(peak_rps=100, tp="1,2")
    assert all(c.confidence is not None for c in plan.candidates)
    assert plan.candidates[0].confidence == plan.confidence
    assert [c["confidence"]["meets"] for c in plan.to_json()["candidates"]] == [c.confidence.meets for c in plan.candidates]
    shown = show_plan(plan)
    assert "P(meets)" in shown
    assert f"{plan.confidence.meets:.0%}" in shown


def test_a_job_has_no_confidence_but_that_of_the_choice() -> None:
    plan = api.size(model="llama-3-8b", isl=500, osl=50, gpu="h100-sxm-80gb", requests=100_000, within="1h")
    assert all(c.confidence is None for c in plan.candidates[1:])
