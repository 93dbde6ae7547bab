"""Histories: hours, lengths and growth out of the series of a Prometheus, against the requests that
they were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.watch.served_weeks import DAY, HOUR, Weeks
from tests.workload.prometheus_history import MONDAY, STEP, TRUE, answer, exported, series
from tonnage.api.compare import read_history
from tonnage.api.sizing import ask
from tonnage.cli.main import run
from tonnage.errors import InputError, in_python
from tonnage.formats.prometheus import INCREASE, curves
from tonnage.workload.history import History, history_of
from tonnage.workload.history_fit import fit_history


def test_hours_are_those_of_the_requests(history: History) -> None:
    assert history.engine == "vllm"
    assert history.at(0).isoformat() == "2026-10-26T00:00:00+00:00"
    assert history.requests == pytest.approx(
        np.bincount((TRUE.due // HOUR).astype(int), minlength=15 * 24)
    )
    assert (history.fine_s, history.fine.size) == (STEP, 15 * 144)
    assert set(history.instances) == {1.0}


def test_instances_are_added_and_a_restart_loses_what_no_sample_saw(history: History) -> None:
    half = [Weeks(due=TRUE.due[k::2], isl=TRUE.isl[k::2], osl=TRUE.osl[k::2]) for k in (0, 1)]
    rows = exported(half[0], days=15, instance="a") + exported(
        half[1], days=15, instance="b", restart_s=5 * DAY + 90
    )
    two = history_of(curves([answer(rows)], "x"), "x")
    assert set(two.instances) == {2.0}
    lost = int(((half[1].due >= 5 * DAY) & (half[1].due < 5 * DAY + 90)).sum())
    assert history.requests.sum() - two.requests.sum() == pytest.approx(lost)


def test_growths_over_hours_are_read_as_the_counters_are(history: History) -> None:
    rows = []
    for row in exported(TRUE, days=15):
        name, values = row["metric"]["__name__"], np.array(row["values"], dtype=float)
        if "_bucket" in name or name.endswith("_sum"):
            hourly = values[:: int(HOUR / STEP)]
            labels = {key: value for key, value in row["metric"].items() if key != "__name__"}
            rows.append(series(name + INCREASE, hourly[1:, 0], np.diff(hourly[:, 1]), **labels))
        else:
            rows.append(row)
    found = history_of(curves([answer(rows)], "x"), "x")
    for side, one in history.histograms.items():
        assert found.histograms[side].counts == pytest.approx(one.counts)
        assert found.histograms[side].totals == pytest.approx(one.totals)


def test_an_hour_without_samples_is_left_out(history: History) -> None:
    rows = exported(TRUE, days=15)
    for row in rows:
        row["values"] = [
            pair for pair in row["values"] if not 50 * HOUR < pair[0] - MONDAY < 53 * HOUR
        ]
    found = history_of(curves([answer(rows)], "x"), "x")
    assert np.flatnonzero(~found.seen).tolist() == [50, 51, 52]
    assert any("3 of 360 hours" in line for line in fit_history(found, "week").gaps)


def test_the_command_writes_a_scenario_that_size_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "history.json", tmp_path / "week.yaml"
    source.write_text(json.dumps(answer(exported(TRUE, days=15))))
    assert (
        run(
            [
                "workload",
                "from-prometheus",
                str(source),
                "--output",
                str(target),
                "--model",
                "llama-3.1-8b",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "Requests change by +1" in said  # 3 % a day are 149 % a month
    assert "Not seen: bursts shorter than 600 s" in said
    question = ask(target, ttft="p95<=1s").questions[0]
    assert len(question.demand.profile) == 168
    assert question.demand.peak_requests_per_second == max(question.demand.profile)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            {"status": "error", "data": {}, "error": "query timed out"},
            "Prometheus says: query timed out",
        ),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, "is not a matrix"),
        (answer([{"metric": {"le": "1"}, "values": [[0, "1"], [60, "2"]]}]), "has no __name__"),
        (
            answer([series("up", np.array([0.0, 60.0]), np.array([1.0, 1.0]))]),
            "has no counter of requests that is known",
        ),
        (
            answer(
                [
                    series(
                        "vllm:e2e_request_latency_seconds_count",
                        np.array([0.0, 60.0]),
                        np.array([1.0, 2.0]),
                    )
                ]
            ),
            "holds 1 minutes",
        ),
    ],
)
def test_what_is_no_history_is_refused(
    document: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(document))
    assert run(["workload", "from-prometheus", str(path)]) == 2
    assert says in capsys.readouterr().err


def test_a_history_without_lengths_asks_for_them() -> None:
    rows = [row for row in exported(TRUE, days=15) if "latency" in row["metric"]["__name__"]]
    found = history_of(curves([answer(rows)], "x"), "x")
    with pytest.raises(InputError, match="says no lengths of prompts; give"):
        fit_history(found, "week")
    given = fit_history(found, "week", isl="600", osl="40")
    assert given.scenario.lengths.isl == "600"
    assert given.to_json()["isl"]["mean"] is None


FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"


@pytest.mark.parametrize(
    ("place", "select", "requests", "remark"),
    [
        ("108/prom_ha.json", "", 129_600, "differ in prometheus_replica alone"),
        (
            "110/prom_two_models.json",
            "",
            648_000,
            "(llama, other); one of them alone is read with select 'model_name=\"llama\"'",
        ),
        ("110/prom_two_models.json", 'model_name="llama"', 129_600, None),
        ("110/prom_two_models.json", 'model_name!~"ll.*",instance="10.0.0.2:8000"', 518_400, None),
    ],
)
def test_histories_of_the_field(place: str, select: str, requests: int, remark: str | None) -> None:
    if not (FIELD / place).exists():
        pytest.skip("the cases from the field are not here")
    found = read_history(str(FIELD / place), select=select)
    assert np.nansum(found.requests) == requests
    assert [remark in in_python(one) for one in found.remarks if remark] == (
        [True] if remark else []
    )
