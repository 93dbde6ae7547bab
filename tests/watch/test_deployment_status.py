from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.plans import dense
from tonnage import api
from tonnage.api.bench import bench
from tonnage.api.running.plans import planned
from tonnage.cli.main import run
from tonnage.formats.prometheus import Buckets
from tonnage.report.verified import watched
from tonnage.report.writers.terminal import terminal
from tonnage.testing import simulated_engine
from tonnage.watch.deployment_status import Present, Watched, Watcher, latencies
from tonnage.watch.expected import Predictor

NAME = "llama-3.1-8b"


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("watch") / "plan.json"
    path.write_text(json.dumps(dense().to_json()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def watcher(plan_file: Path) -> Watcher:
    choice = planned(plan_file)
    predictor = Predictor(choice.plan, choice.deployment, gpus_per_system=8)
    return Watcher(
        plan=choice.plan, predictor=predictor, urls=("http://x:1",), plan_file="plan.json"
    )


def even(milliseconds: float, count: float = 600.0) -> Buckets:
    """A histogram in which every observation takes that long; its buckets are 1 % wide."""
    seconds = milliseconds / 1e3
    return Buckets(
        bounds=(0.995 * seconds, 1.005 * seconds, math.inf),
        counts=(0.0, count, count),
        total=count * seconds,
    )


def looked(
    watcher: Watcher,
    *,
    tpot: float,
    ttft: float = 1.0,
    rate: float = 60.0,
    count: float = 600.0,
    **changed: Any,
) -> Watched:
    """What is said where TPOT and TTFT are so many times their prediction, of eight instances under
    the plan's peak."""
    expected = watcher.predictor.at(rate / 8, isl=None, osl=None).summary
    found = Present(
        seconds=10.0,
        answering=8,
        asked=8,
        requests=10 * rate,
        requests_per_second=rate,
        output_tokens_per_second=200 * rate,
        running=60.0,
        waiting=0.0,
        kv_used=0.1,
        error_share=0.0,
        mean_isl=1_000.0,
        mean_osl=200.0,
        latencies={
            "ttft": even(ttft * expected.statistic_ms("ttft", "mean"), count),
            "tpot": even(tpot * expected.statistic_ms("tpot", "mean"), count),
        },
        gpu_use=None,
        gpu_watts=None,
    )
    return beside(watcher, replace(found, **changed))


def beside(watcher: Watcher, found: Present) -> Watched:
    """What ``Watcher.look`` makes of it, once the readings are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tonnage.watch.deployment_status.present", lambda before, now: found)
        return watcher.look(None, None)


def test_a_deployment_as_predicted_needs_nothing(watcher: Watcher) -> None:
    found = looked(watcher, tpot=1.0)
    assert found.advice is None
    assert found.broken == ()
    assert found.headroom == pytest.approx(found.capacity / 60 - 1)
    # what the plan counts on, which is less than what an instance is simulated to carry
    assert found.capacity > 8 * 27
    assert {
        one.place for one in found.latencies if one.statistic == "mean" and one.metric != "itl"
    } == {"inside"}


def test_slower_steps_are_said_with_the_command(watcher: Watcher) -> None:
    found = looked(watcher, tpot=1.3)
    interval = watcher.predictor.at(7.5, isl=None, osl=None).intervals["tpot_ms"]
    advice = found.advice
    measured = found.present.latencies["tpot"].mean * 1e3
    assert advice.beyond == pytest.approx(measured / interval[1] - 1)
    assert advice.text.startswith(
        f"calibrate: measured TPOT is {advice.beyond:.0%} above".replace("%", " %")
    )
    assert [command.split()[1] for command in advice.commands] == ["bench", "calibrate", "watch"]
    assert 0 < found.at_measured_speed < found.expected.capacity
    shown = terminal(watched(found))
    assert "calibrate: measured TPOT is" in shown
    assert "carried at the measured speed" in shown


def test_much_slower_steps_are_a_fault_first(watcher: Watcher) -> None:
    advice = looked(watcher, tpot=3.0).advice
    assert advice.text.startswith("look for a fault:")
    assert advice.commands == ()


def test_a_broken_limit_is_said_and_few_requests_say_nothing(watcher: Watcher) -> None:
    found = looked(watcher, tpot=1.0, ttft=20.0)
    assert [f"{one.metric} {one.statistic}" for one in found.broken] == ["ttft p95"]
    (limited,) = found.broken
    assert limited.slower == 1.0
    assert "BROKEN" in terminal(watched(found))
    assert "TTFT p95 is" in terminal(watched(found))
    few = looked(watcher, tpot=3.0, ttft=20.0, count=20.0)
    assert few.broken == ()
    assert few.advice is None


def test_longer_prompts_leave_less(watcher: Watcher) -> None:
    as_planned, longer = looked(watcher, tpot=1.0), looked(watcher, tpot=1.0, mean_isl=3_000.0)
    assert longer.expected.isl == pytest.approx(3_000, rel=0.03)
    assert longer.capacity < 0.7 * as_planned.capacity
    near = looked(watcher, tpot=1.0, mean_isl=1_050.0)
    assert near.expected.isl == 1_000


def test_a_limit_on_another_statistic_has_a_row(watcher: Watcher) -> None:
    found = looked(watcher, tpot=1.0)
    limit = replace(found.plan.scenario.limits_that_count[0], statistic="p90", milliseconds=1.0)
    plan = replace(found.plan, scenario=replace(found.plan.scenario, limits_that_count=(limit,)))
    rows = latencies(plan, found.present, found.expected)
    assert [(one.metric, one.statistic) for one in rows if one.broken] == [("ttft", "p90")]


def stages(watcher: Watcher, **times: float) -> dict[str, Any]:
    """The stages of a TTFT, and all of it, where parts of it take so many milliseconds longer than
    predicted."""
    planned = watcher.predictor.at(7.5, isl=None, osl=None).ttft
    queue, prefill = (
        planned.queue_ms + times.get("queue", 0.0),
        planned.prefill_ms + planned.shared_ms + times.get("prefill", 0.0),
    )
    whole = planned.front_end_ms + times.get("front", 0.0) + queue + prefill
    return {
        "stages": {"queue": even(queue), "prefill": even(prefill)},
        "latencies": {"ttft": even(whole)},
    }


@pytest.mark.parametrize(
    ("longer", "part", "cause"),
    [
        ("front", "front end", "calibrate fits it"),
        ("queue", "queue", "burstier load"),
        ("prefill", "prefill", "computed more slowly"),
    ],
)
def test_the_part_of_the_ttft_that_is_off_is_named(
    watcher: Watcher, longer: str, part: str, cause: str
) -> None:
    found = looked(watcher, tpot=1.0, **stages(watcher, **{longer: 150.0}))
    assert [(one.part, one.off) for one in found.ttft] == [
        (name, name == part) for name in ("front end", "queue", "prefill")
    ]
    assert sum(one.measured_ms for one in found.ttft) == pytest.approx(
        1e3 * found.present.latencies["ttft"].mean
    )
    assert sum(one.predicted_ms for one in found.ttft) == pytest.approx(
        found.expected.summary.statistic_ms("ttft", "mean")
    )
    off = next(one for one in found.ttft if one.off)
    assert off.measured_ms - off.predicted_ms == pytest.approx(150.0)
    shown = " ".join(terminal(watched(found)).split())
    assert (
        f"Of the mean TTFT the {part} is {off.measured_ms:.3g} ms, expected"
        f" {off.predicted_ms:.3g}: " in shown
    )
    assert cause in off.text
    assert [one["off"] for one in found.to_json()["ttft_parts"]].count(True) == 1


def test_without_the_time_of_prefills_the_rest_is_one_part(watcher: Watcher) -> None:
    given = stages(watcher, front=150.0)
    del given["stages"]["prefill"]
    found = looked(watcher, tpot=1.0, **given)
    assert [(one.part, one.off) for one in found.ttft] == [
        ("front end and prefill", True),
        ("queue", False),
    ]
    assert looked(watcher, tpot=1.0).ttft == ()
    assert not any(one.off for one in looked(watcher, tpot=1.0, **stages(watcher)).ttft)


@pytest.fixture
def slowed(plan_file: Path) -> Iterator[str]:
    """The plan's engine with steps that take four times as long, in a thread."""
    with simulated_engine(plan=plan_file, instances=1, fault=["slow factor=4"]) as url:
        yield url


def test_a_slowed_engine_is_seen_live(slowed: str, plan_file: Path) -> None:
    def load(seconds: float) -> None:
        bench(
            url=slowed,
            model=NAME,
            selftest=False,
            isl=300,
            osl=5,
            concurrency=4,
            request_count=32,
            metrics_url=["none"],
        )

    found = next(api.watch([slowed], plan=plan_file, wait=load))
    assert found.present.requests == 32
    assert found.present.mean_osl == 5
    assert found.present.mean_isl == pytest.approx(300, rel=0.1)
    assert found.advice.ratio > 3
    assert [one.part for one in found.ttft] == ["front end", "queue", "prefill"]
    assert found.advice.text.startswith("look for a fault: measured TPOT is")
    assert found.present.error_share == 0


def test_the_command_says_it_as_json(
    slowed: str, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["watch", slowed, "--plan", str(plan_file), "--every", "0.5s", "--once", "--json"]) == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert said["instances"] == {"answering": 1, "asked": 1, "plan": 8}
    assert said["requests_per_second"] == 0
    assert said["headroom"] is None
    assert said["capacity"] == said["simulated"]["capacity_per_instance"] > 27


def test_what_cannot_be_watched_is_refused(
    plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["watch", "127.0.0.1:9", "--plan", str(plan_file), "--once"]) == 1
    assert "no answer with the metrics" in capsys.readouterr().err
    assert run(["watch", "--plan", str(plan_file), "--once"]) == 2
    assert run(["watch", "127.0.0.1:9", "--plan", str(plan_file), "--every", "1d", "--once"]) == 2
