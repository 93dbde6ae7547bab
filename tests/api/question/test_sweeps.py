"""Several values of a setting make points, each the simulation that its values alone ask for."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import tonnage
from tests.api.question.sweeps_cases import ASKED
from tests.questions import plans_with
from tonnage import api
from tonnage.api.question.sweeps import MOST_POINTS, simulations_of
from tonnage.cli.main import run
from tonnage.errors import DoesNotFit, InputError
from tonnage.report.simulated import PICTURED
from tonnage.simulator.simulated_run import SimulatedRun

TYPED = [
    "simulate",
    "--model",
    "llama-3-8b",
    "--precision",
    "fp8",
    "--isl",
    "200",
    "--osl",
    "20",
    "--requests",
    "40",
]


FLEET = {"request_rate": 20, "instances": "2 gpu=h100 weight=3 + 1 gpu=l40s"}


Capture = pytest.CaptureFixture[str]


choice_alone = plans_with()


def shown(point: SimulatedRun) -> dict[str, Any]:
    return point.to_json()


def test_a_sweep_of_tp_with_a_plot_equals_four_single_runs(tmp_path: Path, capsys: Capture) -> None:
    picture = tmp_path / "tp.svg"
    assert (
        run([*TYPED, "--concurrency", "4", "--tp", "1,2,4,8", "--plot", str(picture), "--json"])
        == 0
    )
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["tp"] for point in points] == [1, 2, 4, 8]
    for point in points:
        assert run([*TYPED, "--concurrency", "4", "--tp", str(point["tp"]), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == point
    svg = ElementTree.parse(picture).getroot()
    assert svg.tag.endswith("svg")
    tips = [title.text or "" for title in svg.iter() if title.tag.endswith("title")]
    ttft = [
        float(re.sub("[^0-9.]", "", tip.rpartition("Mean TTFT ")[2]))
        for tip in tips
        if "Mean TTFT" in tip
    ]
    assert ttft == pytest.approx([point["ttft_ms"]["mean"] for point in points], rel=5e-3)


@pytest.mark.parametrize(
    ("axes", "more"),
    [
        ({"tp": "1,2", "precision": "fp16,fp8", "concurrency": "1,4"}, {}),
        ({"isl": "100, 200", "osl": "uniform:10-30,exact:20", "concurrency": "2"}, {}),
        ({"gpu": "h100,l40s", "engine": "vllm,tensorrt-llm", "request_rate": "2,4"}, {}),
        ({"router": "round-robin,random,weighted", "request_rate": "20"}, {"instances": "3"}),
        ({"instances": "1,3,2 weight=2 + 1 gpu=l40s", "request_rate": "10"}, {}),
        ({"pp": "1,2", "model": "llama-3-8b,llama-2-7b", "concurrency": "3"}, {}),
    ],
)
def test_each_point_is_the_run_of_its_values(axes: dict[str, str], more: dict[str, str]) -> None:
    sweep = api.simulate_sweep(None, **{**ASKED, **axes, **more})
    values = [[text.strip() for text in texts.split(",")] for texts in axes.values()]
    singles = [
        tonnage.simulate(**{**ASKED, **more, **dict(zip(axes, each, strict=True))})
        for each in product(*values)
    ]
    assert sorted(map(str, map(shown, sweep))) == sorted(map(str, map(shown, singles)))
    assert not sweep.left_out


def test_the_lists_of_a_file_are_a_sweep_too(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "model: llama-3-8b\nlengths: {isl: 100, osl: 20}\nsearch: {tp: [1, 2], precision: fp8}\n",
        encoding="utf-8",
    )
    sweep = api.simulate_sweep(path, concurrency="1,2", requests=20)
    assert [(point.settings["tp"], point.to_json()["concurrency"]) for point in sweep] == [
        ("1", 1),
        ("1", 2),
        ("2", 1),
        ("2", 2),
    ]
    assert len(api.simulate_sweep(path, concurrency=1, requests=20, tp=4)) == 1
    with pytest.raises(InputError, match="tp: several are given; simulate_sweep runs them all"):
        tonnage.simulate(path, concurrency=1, requests=20)


def test_commas_of_thousands_and_of_distributions_are_no_sweep() -> None:
    for text, mean in (
        ("2,000", 2_000),
        ("lognormal:2000,500", 2_000),
        ("histogram:100:0.5,300:0.5", 200),
    ):
        (point,) = simulations_of(None, {**ASKED, "isl": text, "concurrency": 1}).points
        assert point[1].workloads[0].isl.mean == pytest.approx(mean)


def test_points_that_cannot_be_are_left_out_with_the_reason() -> None:
    sweep = api.simulate_sweep(
        None,
        model="llama-3.1-70b",
        precision="fp16",
        isl=100,
        osl=10,
        concurrency=1,
        requests=2,
        tp="1,2,3",
    )
    assert [point.settings for point in sweep] == [{"tp": "2"}]
    reasons = {values["tp"]: reason for values, reason in sweep.left_out}
    assert reasons["1"].startswith("weights 141 GB")
    assert "3" in reasons
    assert sweep.to_json()["left_out"][0]["tp"] == "1"
    gpus = api.simulate_sweep(
        None, **{**ASKED, "precision": "fp16,fp8", "gpu": "a100,h100", "concurrency": 1}
    )
    assert [list(point.settings.values()) for point in gpus] == [
        ["a100", "fp16"],
        ["h100", "fp16"],
        ["h100", "fp8"],
    ]
    assert "has no FP8" in gpus.left_out[0][1]
    with pytest.raises(DoesNotFit, match="weights 141 GB"):
        api.simulate_sweep(
            None,
            model="llama-3.1-70b",
            precision="fp16",
            isl=100,
            osl=10,
            concurrency="1,2",
            gpu="l40s,a10",
        )


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"tp": "1,x"}, "--tp: 'x' is not a whole number above 0"),
        ({"gpu": "h100,h2000"}, "unknown GPU 'h2000'"),
        ({"precision": "fp16,fp7"}, "fp7"),
        ({"router": "random,nearest", "instances": "2"}, "--router: 'nearest' is not a router"),
        ({"isl": "100,soon"}, "--isl: 'soon'"),
        ({"instances": "2,x"}, "--instances: 'x'"),
        (
            {"instances": "2 gpu=h100 wight=3"},
            "--instances: '2 gpu=h100 wight=3' is no group of instances; write a number",
        ),
        ({"instances": "2 weight=0 + 1"}, "--instances: '2 weight=0' is no group"),
        ({"instances": "2 gpu=h100 + 1 gpu=h2000"}, "unknown GPU 'h2000'"),
        (
            {"instances": "2 gpu=h100 + 1 gpu=l40s", "autoscale": "metric=rate target=2 max=3"},
            "--instances",
        ),
        (
            {"tp": ",".join(map(str, range(1, 41))), "osl": ",".join(map(str, range(10, 40)))},
            f"are more than {MOST_POINTS:,}",
        ),
        ({"plot": "a.png"}, "--plot: a.png: the name ends in .svg (a picture) or .html (a page)"),
        ({"plot": "a.svg"}, "--plot: shows a sweep"),
        (
            {"disaggregated": "1:1", "pp": "2"},
            "--disaggregated: two pools are simulated without pipeline stages",
        ),
    ],
)
def test_what_is_no_value_is_refused(
    axes: dict[str, str], says: str, capsys: Capture, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = {"model": "llama-3-8b", "isl": "200", "osl": "20", "request-rate": "2", **axes}
    flags = [word for name, text in typed.items() for word in (f"--{name}", text)]
    assert run(["simulate", *flags]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_pipeline_does_what_the_plan_of_its_sizing_says() -> None:
    asked: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "isl": "400+-20%",
        "osl": "40+-20%",
        "precision": "fp8",
        "gpu": "l40s",
    }
    asked |= {"tp": 1, "pp": 2, "engine": "vllm"}
    chosen = tonnage.size(**asked, load="closed", peak_rps=2, ttft="p95<=1s").to_json()["choice"]
    point = tonnage.simulate(**asked, concurrency=int(chosen["load"]["clients"]))
    assert point.summary.requests_per_second == pytest.approx(
        chosen["requests_per_second_per_instance"], rel=0.01
    )
    assert point.summary.statistic_ms("ttft", "p95") == pytest.approx(
        chosen["ttft_ms"]["p95"], rel=0.03
    )
    assert point.summary.statistic_ms("tpot", "mean") == pytest.approx(
        chosen["tpot_ms"]["mean"], rel=0.01
    )


def test_more_stages_hold_more_and_one_stage_is_none() -> None:
    asked: dict[str, Any] = {**ASKED, "gpu": "l40s", "concurrency": 8}
    one, plain = (shown(tonnage.simulate(**asked, **more)) for more in ({"pp": 1}, {}))
    assert one == plain
    sweep = api.simulate_sweep(None, **{**asked, "model": "llama-3.1-70b", "pp": "1,2,4", "tp": 1})
    assert [values["pp"] for values, _ in sweep.left_out] == ["1"]
    two, four = sweep
    assert any(mark.startswith("pipeline parallelism") for mark in two.marks)
    assert two.gpus == 2
    assert four.gpus == 4
    # a token goes through all layers either way, and a round's messages come on top
    assert (
        1
        <= four.summary.statistic_ms("tpot", "mean") / two.summary.statistic_ms("tpot", "mean")
        < 1.1
    )


def test_weights_are_shares_of_the_requests() -> None:
    point = tonnage.simulate(**{**ASKED, **FLEET, "requests": 700}, router="weighted")
    assert [round(share, 3) for _, share, _, _ in point.by_group] == [0.857, 0.143]  # 2 × 3 : 1
    fast, slow = (ttft.mean for _, _, ttft, _ in point.by_group)
    assert fast is not None
    assert slow is not None
    assert fast < slow
    assert point.gpus == 3
    assert point.intervals == {}
    told = point.to_json()["unlike"]
    assert [(group["gpu"], group["instances"], group["weight"]) for group in told] == [
        ("h100-sxm-80gb", 2, 3.0),
        ("l40s", 1, 1.0),
    ]
    alike = tonnage.simulate(**{**ASKED, "request_rate": 20, "instances": 3}, router="weighted")
    robin = tonnage.simulate(**{**ASKED, "request_rate": 20, "instances": 3}, router="round-robin")
    assert alike.to_json() == {**robin.to_json(), "router": "weighted"}


def test_groups_of_one_kind_are_so_many_instances() -> None:
    for router in ("least-outstanding", "power-of-two", "least-tokens"):
        whole = tonnage.simulate(**ASKED, request_rate=20, instances=3, router=router)
        parts = tonnage.simulate(**ASKED, request_rate=20, instances="1 + 2", router=router)
        assert parts.summary == whole.summary


def test_unlike_instances_share_prompts_and_fail() -> None:
    turns = tonnage.simulate(**{**ASKED, **FLEET, "requests": 60}, turns=3, router="weighted")
    assert [group.instances for group, *_ in turns.by_group] == [2, 1]
    assert sum(share for _, share, _, _ in turns.by_group) == pytest.approx(1)
    failing = tonnage.simulate(**{**ASKED, **FLEET, "requests": 300}, fail="mtbf=4s repair=1s")
    assert failing.fleet is not None
    assert failing.fleet.failures > 0


def test_a_sweep_is_shown_in_notebooks_and_has_rows(tmp_path: Path) -> None:
    sweep = api.simulate_sweep(None, **{**ASKED, "tp": "1,2", "concurrency": "1,4"})
    html = sweep._repr_html_()
    assert html.count("<svg") == 2 * len(PICTURED)
    assert "TTFT" in html
    rows = sweep.arrow().to_pylist()
    assert [(row["tp"], row["concurrency"]) for row in rows] == [
        ("1", 1),
        ("1", 4),
        ("2", 1),
        ("2", 4),
    ]
    assert rows[3]["ttft_ms_mean"] == sweep[3].summary.statistic_ms("ttft", "mean")
    api.write_runs(tmp_path / "runs", sweep, {"seed": 0})
    assert sorted(path.name for path in (tmp_path / "runs").iterdir())[:2] == [
        "tp-1,concurrency-1",
        "tp-1,concurrency-4",
    ]


def test_the_lesson_has_figures_too(tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "lesson.html"
    assert run(["simulate", "--ticks", "--concurrency", "1,2,4,8", "--plot", str(page)]) == 0
    assert page.read_text(encoding="utf-8").count("<figure>") == 2
    assert run(["simulate", "--ticks", "--concurrency", "2", "--plot", str(page)]) == 2
    assert "--plot: shows a sweep" in capsys.readouterr().err
