"""A plan beside the traffic of its deployment: what drifted, the systems that it takes, the day at
which they are too few."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.plans import dense
from tests.workload.prometheus_history import BOUNDS, MONDAY, answer, series
from tonnage.api.running.plans import planned
from tonnage.cli.main import run
from tonnage.report.verified import verdict
from tonnage.watch.drift import Today, measured_loads, today
from tonnage.watch.expected import Predictor
from tonnage.workload.history import History, HourlyHistogram
from tonnage.workload.history_fit import Growth, fit_history

HOURS = 14 * 24
RATE = 60.0


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drift") / "plan.json"
    path.write_text(json.dumps(dense().to_json()), encoding="utf-8")
    return path


def even(value: float, counts: np.ndarray, bounds: tuple[float, ...]) -> HourlyHistogram:
    """Every observation of an hour is the same."""
    cells = np.where(np.array(bounds)[None, :] >= value, counts[:, None], 0.0)
    return HourlyHistogram(bounds=bounds, counts=cells, totals=counts * value)


def history(
    *,
    rate: float = RATE,
    growth: float = 0.0,
    isl: float = 1_000,
    osl: float = 200,
    tpot_s: float | None = None,
) -> History:
    """Two weeks of eight instances: the rate of the last hour, growing every day until then."""
    requests = 3_600 * rate * np.exp(growth * (np.arange(HOURS) - HOURS + 1) / 24)
    histograms = {"isl": even(isl, requests, BOUNDS), "osl": even(osl, requests, BOUNDS)}
    if tpot_s is not None:
        histograms["tpot"] = even(tpot_s, requests, (0.995 * tpot_s, 1.005 * tpot_s, math.inf))
    return History(
        source="x",
        engine="vllm",
        start_s=MONDAY,
        requests=requests,
        fine_s=60.0,
        fine=np.repeat(requests / 60, 60),
        instances=np.full(HOURS, 8.0),
        histograms=histograms,
    )


def beside(plan_file: Path, some: History, **further: float) -> Today:
    choice = planned(plan_file)
    return today(
        choice.plan,
        choice.deployment,
        fit_history(some, "x"),
        gpus_per_system=choice.gpus_per_system,
        **further,
    )


def test_traffic_as_planned_takes_the_systems_of_the_plan(plan_file: Path) -> None:
    choice = planned(plan_file)
    expected = (
        Predictor(choice.plan, choice.deployment, gpus_per_system=8)
        .at(RATE / 8, isl=None, osl=None)
        .summary
    )
    found = beside(plan_file, history(tpot_s=expected.statistic_ms("tpot", "mean") / 1e3))
    assert [one.what for one in found.drifts] == ["load", "prompts", "outputs", "speed"]
    assert not any(one.drifted or one.systems for one in found.drifts)
    assert (found.needed, found.lost, found.breaks) == (found.planned, 0, None)
    assert (
        verdict(found)
        == f"Nothing drifted since the plan: as much headroom, {found.needed} of {found.systems}"
        " needed."
    )


def test_longer_prompts_and_slower_steps_cost_systems_and_the_trend_gives_the_day(
    plan_file: Path,
) -> None:
    choice = planned(plan_file)
    plan = replace(
        choice.plan, demand=replace(choice.plan.demand, sizing_requests_per_second=200.0)
    )
    expected = (
        Predictor(plan, choice.deployment, gpus_per_system=8)
        .at(200 / 8, isl=1_310, osl=None)
        .summary
    )
    some = history(
        rate=200.0, growth=0.01, isl=1_310, tpot_s=1.4 * expected.statistic_ms("tpot", "mean") / 1e3
    )
    found = today(
        plan, choice.deployment, fit_history(some, "x"), gpus_per_system=8, forecast_s=90 * 86_400.0
    )
    load, prompts, outputs, speed = found.drifts
    assert (load.drifted, prompts.drifted, outputs.drifted, speed.drifted) == (
        False,
        True,
        False,
        True,
    )
    assert prompts.change == pytest.approx(0.31)
    assert 1.2 < speed.now / speed.planned < 1.5
    assert found.needed >= found.planned + max(prompts.systems, speed.systems) > found.planned
    assert verdict(found).startswith("Prompts grew 31 %, steps got slower by ")
    assert found.ahead.requests_per_second[0] == pytest.approx(200 * math.exp(0.9), rel=0.03)
    assert found.ahead.systems[1] <= found.ahead.systems[0] <= found.ahead.systems[2]


def test_the_break_is_the_day_at_which_the_load_is_what_they_carry(plan_file: Path) -> None:
    found = beside(plan_file, history(growth=0.02))
    days = math.log(found.carried / found.fit.peak_rps) / 0.02
    assert abs(found.breaks[0] - found.fit.ends - timedelta(days=days)) < timedelta(hours=6)
    assert f"breaks on {found.breaks[0].day} {found.breaks[0]:%B %Y}" in verdict(found)


def test_a_growth_that_may_be_none_breaks_perhaps_never(plan_file: Path) -> None:
    fit = replace(
        fit_history(history(), "x"),
        growth=Growth(per_day=0.01, low=-0.005, high=0.025, days=14, by_weekday=True),
    )
    choice = planned(plan_file)
    found = today(choice.plan, choice.deployment, fit, gpus_per_system=8)
    assert found.breaks[2] is None
    assert verdict(found).endswith("on, or never).")


def test_the_hours_are_points_that_calibrate_reads(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hours whose times are the predicted ones leave the shipped terms where they are."""
    choice = planned(plan_file)
    predictor = Predictor(choice.plan, choice.deployment, gpus_per_system=8)
    rates = np.repeat(8 * np.linspace(4, 24, 8), HOURS // 8)
    some = history()
    requests = 3_600 * rates
    summaries = {
        rate: predictor.at(rate / 8, isl=None, osl=None).summary for rate in sorted(set(rates))
    }
    histograms = {
        side: even(value, requests, BOUNDS) for side, value in (("isl", 1_000.0), ("osl", 200.0))
    }
    for metric in ("ttft", "tpot"):
        means = np.array([summaries[rate].statistic_ms(metric, "mean") / 1e3 for rate in rates])
        histograms[metric] = HourlyHistogram(
            bounds=(10.0, math.inf),
            counts=np.stack([requests] * 2, axis=1),
            totals=requests * means,
        )
    fit = fit_history(replace(some, requests=requests, histograms=histograms), "x")
    text = measured_loads(choice.plan, fit)
    assert len(text.splitlines()) == 9
    path = tmp_path / "week.hours.csv"
    path.write_text(text)
    assert run(["calibrate", str(path), "--plan", str(plan_file), "--json"]) == 0
    factors = json.loads(capsys.readouterr().out)["multipliers"]
    assert all(0.97 < one < 1.03 for one in factors.values()), factors


def test_one_command_says_it_as_text_page_and_json(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = MONDAY + 3_600 * np.arange(8 * 24 + 1.0)
    counts = 3_600 * RATE * np.arange(8 * 24 + 1.0)
    rows = [series("vllm:e2e_request_latency_seconds_count", times, counts)]
    for side, value in (("prompt", 1_310.0), ("generation", 200.0)):
        rows.append(series(f"vllm:request_{side}_tokens_sum", times, counts * value))
        rows += [
            series(
                f"vllm:request_{side}_tokens_bucket",
                times,
                counts * (bound >= value),
                le=str(bound),
            )
            for bound in BOUNDS
        ]
    source, page = tmp_path / "history.json", tmp_path / "week.html"
    source.write_text(json.dumps(answer(rows)))
    assert run(["diff", str(plan_file), str(source), "--report", str(page)]) == 0
    assert "Prompts grew 31 % since the plan" in capsys.readouterr().out
    assert "Prompts grew 31 % since the plan" in page.read_text()
    assert run(["diff", str(plan_file), str(source), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drifts"][1]["change"] == pytest.approx(0.31)
    assert run(["diff", str(plan_file), str(plan_file), "--select", 'a="b"']) == 2
    assert run(["diff", str(plan_file), str(source), "--select", 'a="b"']) == 2


def test_the_example_of_docs_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path("docs/watch.md").read_text(encoding="utf-8")
    sized, compared = re.findall(
        r"^\$ \./tonnage (size .*--output plan\.json|diff plan\.json .*)$", page, re.MULTILINE
    )
    plan = str(tmp_path / "plan.json")
    assert run(shlex.split(sized.replace("plan.json", plan))) == 0
    assert run(shlex.split(compared.replace("plan.json", plan))) == 0
    said = capsys.readouterr().out
    assert (
        "The load grew 18 %, prompts grew 31 % since the plan: as much headroom, 1 of 1 needed,"
        " breaks on" in " ".join(said.split())
    )
    assert "busiest hour, requests/s  0.0600  0.0709  +18.1 %       +0" in said
