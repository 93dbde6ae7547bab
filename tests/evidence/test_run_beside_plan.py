"""A run beside its plan: on the planned deployment itself the replay is the run, and a slower run
lies outside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.example_plan import full, without_answer
from tonnage.api import simulate, write_runs
from tonnage.api.compare import compare_plan
from tonnage.api.running.plans import planned
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.evidence.predict import MeasuredTable, measured_table, predict, read_point
from tonnage.evidence.score import score
from tonnage.results.metrics import summarize
from tonnage.results.requests import FAILED, Requests
from tonnage.results.store import read_run, write_run

CHOSEN: dict[str, Any] = {
    "model": "llama-3-8b",
    "precision": "fp8",
    "engine": "tensorrt-llm-0.15",
    "isl": "2000+-500",
    "osl": 200,
}


KNOBS: dict[str, Any] = {"max_batch_size": 2048, "max_num_tokens": 8192, "chunked_prefill": True}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report's plan, which chose 40 instances."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(json.dumps(full().to_json()), encoding="utf-8")
    return path


def folder_of(tmp_path: Path, **load: Any) -> Path:
    """A run folder of the planned deployment under some load."""
    write_runs(tmp_path / "run", [simulate(**CHOSEN, **KNOBS, requests=300, **load)], {})
    return tmp_path / "run"


def changed(folder: Path, target: Path, **columns: Any) -> Path:
    """The same run folder with other columns."""
    found = read_run(folder)
    requests: Requests = replace(found.requests, **columns)
    write_run(target, found.scenario, requests, summarize(requests), {})
    return target


@pytest.mark.parametrize("instances", [1, 3])
def test_a_run_of_the_planned_deployment_is_its_own_replay(
    tmp_path: Path, plan: Path, instances: int
) -> None:
    fleet = {"instances": instances} if instances > 1 else {}
    found = compare_plan(folder_of(tmp_path, request_rate=9, **fleet), plan, instances=instances)
    assert found.requests == 300
    assert [metric.ratio for metric in found.metrics] == pytest.approx(
        [1.0] * len(found.metrics), rel=1e-4
    )
    known = [
        metric for metric in found.metrics if metric.metric in ("ttft_ms", "tpot_ms", "e2e_ms")
    ]
    assert len(known) == 12
    assert all(0 < metric.low < metric.high and metric.inside is not None for metric in known)
    assert all(metric.inside is None for metric in found.metrics if metric not in known)
    assert found.notes == ()


def test_all_instances_of_the_plan_share_the_requests_unless_fewer_are_said(
    tmp_path: Path, plan: Path
) -> None:
    folder = folder_of(tmp_path, request_rate=20)
    whole, one = compare_plan(folder, plan), compare_plan(folder, plan, instances=1)
    assert (whole.instances, whole.router) == (40, "least-outstanding")
    assert (one.instances, one.router) == (1, "")
    p95 = [
        next(m.predicted for m in each.metrics if (m.metric, m.statistic) == ("ttft_ms", "p95"))
        for each in (whole, one)
    ]
    assert p95[0] < 0.8 * p95[1]


def test_a_run_three_times_as_slow_is_outside_and_the_command_says_so(
    tmp_path: Path, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = folder_of(tmp_path, request_rate=4)
    r = read_run(fast).requests
    times = {
        "first_token_ns": r.due_ns + 3 * (r.first_token_ns - r.due_ns),
        "last_token_ns": r.due_ns + 3 * (r.last_token_ns - r.due_ns),
    }
    slow = changed(fast, tmp_path / "slow", **times)
    assert run(["compare", str(slow), str(plan), "--instances", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    means = {m["metric"]: m for m in document["metrics"] if m["statistic"] == "mean"}
    assert document["share"] == 0.8
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert means[name]["ratio"] == pytest.approx(1 / 3, rel=1e-3)
        assert (
            means[name]["inside"]
            is (means[name]["low"] <= means[name]["measured"] <= means[name]["high"])
            is False
        )
    assert means["requests_per_second"]["inside"] is None
    assert run(["compare", str(slow), str(plan), "--instances", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "300 requests of slow, replayed on 1 instance of llama-3-8b fp8 on h100-sxm-80gb" in shown
    )
    assert "E2E is outside the interval of its prediction (above: mean, p50, p95, p99)." in shown


def test_notes_tell_a_closed_loop_failures_and_cached_prompts(tmp_path: Path, plan: Path) -> None:
    folder = folder_of(tmp_path, concurrency=4)
    r = read_run(folder).requests
    status = r.status.copy()
    status[:30] = FAILED
    notes = " | ".join(
        compare_plan(
            changed(folder, tmp_path / "other", status=status, cached_tokens=r.isl // 2),
            plan,
            instances=1,
        ).notes
    )
    assert "10.0% of the requests of the run did not complete" in notes
    assert "were found in a prefix cache" in notes
    assert "closed loop of 4 clients" in notes


def test_what_cannot_be_compared_is_refused_in_one_line(
    tmp_path: Path, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, request_rate=9)
    (tmp_path / "empty.json").write_text(json.dumps(without_answer().to_json()), encoding="utf-8")
    (tmp_path / "words.json").write_text("no plan", encoding="utf-8")
    none_done = changed(folder, tmp_path / "failed", status=np.full(300, FAILED, np.int8))
    for words, said in (
        ([folder, tmp_path / "empty.json"], "chose nothing"),
        ([folder, tmp_path / "words.json"], "is no JSON"),
        ([tmp_path, plan], "is not a run folder"),
        ([none_done, plan], "no completed request"),
        ([folder, plan, "--instances", "0"], "write 1 or more"),
        ([folder, plan, "--router", "session"], "--router: 'session' is none of"),
        ([folder, folder, "--instances", "2"], "--instances: is for a run beside a plan"),
    ):
        assert run(["compare", *map(str, words)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert (
            len(
                [
                    line
                    for line in error.splitlines()
                    if line.startswith("tonnage: ") and "compiling" not in line
                ]
            )
            == 1
        )


def test_a_plan_of_measured_points_or_other_step_times_predicts_nothing(tmp_path: Path) -> None:
    found = full()
    other = replace(found, scenario=replace(found.scenario, step_model="table.csv"))
    (tmp_path / "other.json").write_text(json.dumps(other.to_json()), encoding="utf-8")
    with pytest.raises(InputError, match=r"step times of table\.csv"):
        planned(tmp_path / "other.json")
    points = replace(found, provenance=replace(found.provenance, benchmarks="points.csv"))
    (tmp_path / "points.json").write_text(json.dumps(points.to_json()), encoding="utf-8")
    with pytest.raises(InputError, match="rests on measured points"):
        compare_plan(folder_of(tmp_path, request_rate=9), tmp_path / "points.json")


ROW = {
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "isl": 200,
    "osl": 20,
    "concurrency": 4,
}


def test_a_table_of_somebody_else_predicts_in_its_own_way() -> None:
    twice = MeasuredTable(
        rows=[ROW | {"e2e_ms": 100.0, "line": 7}],
        point=lambda _: read_point(ROW),
        predict=lambda _, point: {"e2e_ms": 2 * predict(point)["e2e_ms"]},
        remarks=("One line was left out.",),
    )
    assert measured_table(twice) is twice
    report = score(replace(twice, apart={"others": twice}))
    assert report.remarks == report.apart["others"].remarks == ("One line was left out.",)
    assert report.worst[0].line == 7
    assert report.worst[0].predicted["e2e_ms"] == 2 * predict(read_point(ROW))["e2e_ms"]
