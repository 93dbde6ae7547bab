from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.deploy.monitoring import dashboard_text, objectives, rules
from tonnage.deploy.service import Service, service_of
from tonnage.deploy.yaml_comments import plain, yaml_text
from tonnage.plan.limit import Limit

DAY, HOUR = 1_440, 60
GPUS = 'DCGM_FI_DEV_GPU_UTIL{deployment="llama-3-1-8b"}'
AT = 'deployment="llama-3-1-8b"'
FIRST = "vllm:time_to_first_token_seconds"


def service(engine: str = "vllm-0.32") -> Service:
    return service_of(dense(engine), checkpoint=DENSE_CHECKPOINT)


def alerts(of: Service) -> dict[str, dict[str, Any]]:
    groups = plain(rules(of, GPUS, 3))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def fired(
    folder: Path,
    series: dict[str, str],
    expected: dict[str, dict[int, bool]],
    evaluated: str = "1m",
) -> subprocess.CompletedProcess[str]:
    """promtool over series of one value a minute: whether each alert fires at each minute; rules
    are evaluated so often."""
    found = alerts(service())
    (folder / "alerts.yaml").write_text(yaml_text(rules(service(), GPUS, 3)), encoding="utf-8")
    tests = []
    for name, at in expected.items():
        labels = {
            "exp_labels": found[name]["labels"],
            "exp_annotations": found[name]["annotations"],
        }
        tests += [
            {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": [labels] if fires else []}
            for minute, fires in at.items()
        ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    whole = {"interval": "1m", "input_series": inputs, "alert_rule_test": tests}
    # promtool's own order is another one each time
    order = [group["name"] for group in plain(rules(service(), GPUS, 3))["groups"]]
    document = {
        "rule_files": ["alerts.yaml"],
        "evaluation_interval": evaluated,
        "group_eval_order": order,
        "tests": [whole],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return subprocess.run(
        ["promtool", "test", "rules", "test.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def steps(*parts: tuple[float, int]) -> str:
    """A counter that grows by so much a minute for so many minutes, again and again."""
    values, total = [], 0.0
    for rate, minutes in parts:
        values.append(f"{total:g}{rate:+g}x{minutes - 1}")
        total += rate * minutes
    return " ".join(values)


def requests(*fast: tuple[float, int]) -> dict[str, str]:
    """60 requests a minute, of which so many are answered within 500 ms."""
    whole = sum(minutes for _, minutes in fast)
    return {
        f'{FIRST}_bucket{{{AT},le="0.5"}}': steps(*fast),
        f"{FIRST}_count{{{AT}}}": steps((60, whole)),
    }


@pytest.mark.promtool
def test_an_outage_pages_within_the_hour_and_ends_soon_after_it(tmp_path: Path) -> None:
    series = requests((60, DAY), (0, HOUR), (60, 3 * HOUR))
    expected = {
        "SlowTtftP95_1h": {
            DAY - 1: False,
            DAY + 40: False,
            DAY + 46: True,
            DAY + 59: True,
            DAY + 66: False,
        },
        "SlowTtftP95_6h": {DAY + 59: False, DAY + 90: False},
        "SlowTtftP95_3d": {DAY + 30: False},
    }
    done = fired(tmp_path, series, expected, evaluated="5m")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("slow", "severity"),
    [
        (0.2, "1d"),
        *(
            pytest.param(*each, marks=pytest.mark.live)
            for each in ((0.03, None), (0.1, "3d"), (0.4, "6h"), (0.8, "1h"))
        ),
    ],
)
def test_a_steady_share_fires_the_alerts_of_its_rate(
    tmp_path: Path, slow: float, severity: str | None
) -> None:
    names = ["3d", "1d", "6h", "1h"]
    firing = names[: names.index(severity) + 1] if severity else []
    end = 3 * DAY + HOUR
    expected = {f"SlowTtftP95_{name}": {end: name in firing} for name in names}
    done = fired(tmp_path, requests((60 * (1 - slow), end + 1)), expected, evaluated="1h")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.promtool
def test_failures_missing_instances_load_and_idle_gpus(tmp_path: Path) -> None:
    good, bad = (
        f'http_requests_total{{{AT},handler="/v1/chat/completions",status="{status}"}}'
        for status in ("2xx", "5xx")
    )
    series = {
        good: steps((60, 2 * HOUR)),
        bad: steps((0, HOUR), (2, HOUR)),
        f'up{{{AT},instance="1"}}': "1x480",
        f'up{{{AT},instance="2"}}': "1x480",
        f'up{{{AT},instance="3"}}': f"1x{HOUR - 1} 0x420",
        f"vllm:e2e_request_latency_seconds_count{{{AT}}}": steps(
            (60 * 30, HOUR), (60 * 60, 2 * HOUR)
        ),
        f'DCGM_FI_DEV_GPU_UTIL{{{AT},gpu="0"}}': "4x480",
    }
    expected = {
        "FailingRequests": {HOUR - 1: False, HOUR + 10: True},
        "InstancesMissing": {HOUR - 1: False, HOUR + 5: False, HOUR + 12: True},
        "LoadBeyondPlan": {HOUR - 1: False, HOUR + 30: True},
        "IdleGpus": {470: True},
    }
    done = fired(tmp_path, series, expected)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("a_day", "isl", "tpot_ms", "fires"),
    [pytest.param(0.0, 1_000, 5.0, False, marks=pytest.mark.live), (4.0, 1_310, 12.0, True)],
)
def test_drift_since_the_plan(
    a_day: float, isl: int, tpot_ms: float, fires: bool, tmp_path: Path
) -> None:
    """The plan has prompts of 1,000 tokens and carries 216 requests/s; 172 and 4 more every day are
    228 in two weeks."""
    days = 9
    rates = [(60 * (172 - a_day * (days - 1 - day)), DAY) for day in range(days)]
    count, tpot = (
        "vllm:e2e_request_latency_seconds_count",
        "vllm:request_time_per_output_token_seconds",
    )
    series = {
        f"{count}{{{AT}}}": steps(*rates),
        f"vllm:prompt_tokens_total{{{AT}}}": steps(
            *((isl * rate, minutes) for rate, minutes in rates)
        ),
        f"vllm:generation_tokens_total{{{AT}}}": steps(
            *((200 * rate, minutes) for rate, minutes in rates)
        ),
        f"{tpot}_count{{{AT}}}": steps(*rates),
        f"{tpot}_sum{{{AT}}}": steps(*((tpot_ms / 1e3 * rate, minutes) for rate, minutes in rates)),
    }
    end = days * DAY - 1
    names = ("LongerPrompts", "SlowerSteps", "LoadOutgrowsPlan")
    done = fired(
        tmp_path,
        series,
        {**{name: {end: fires} for name in names}, "LongerOutputs": {end: False}},
        evaluated="1h",
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_limit_of_a_joint_one_is_an_objective() -> None:
    plan = dense()
    parts = (("ttft", 500.0), ("tpot", 50.0), ("itl", 60.0))
    joint = Limit(
        metric="attain", statistic="share", milliseconds=1_000.0, share=0.995, parts=parts
    )
    plan = replace(plan, scenario=replace(plan.scenario, limits_that_count=(joint,)))
    of = service_of(plan, checkpoint=DENSE_CHECKPOINT)
    found = objectives(of)
    assert [(one.key, one.title, one.budget) for one in found] == [
        ("ttft_of_99_5", "SlowTtftOf995", 0.005),
        ("tpot_of_99_5", "SlowTpotOf995", 0.005),
    ]
    assert found[0].label == "TTFT ≤ 500 ms for 99.5% of the requests"
    assert alerts(of)["SlowTtftOf995_1h"]["expr"].startswith(
        'tonnage:ttft_of_99_5_slow:ratio_rate1h{deployment="llama-3-1-8b"} > 0.072 and'
    )
    assert "TTFT ≤ 500 ms for 99.5% of the requests" in dashboard_text(of)
