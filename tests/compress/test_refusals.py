"""What is refused before a tool is started, the scripts that ``--dry-run`` prints, and what
``deploy`` takes of a made checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compress.refused import CONFIG, refused
from tests.deploy.plans import dense
from tests.questions import plans_with
from tonnage import api
from tonnage.cli.main import run
from tonnage.deploy.checkpoint import MANIFEST, judged
from tonnage.deploy.service import service_of
from tonnage.errors import InputError, UnknownName
from tonnage.plan.notes import Judged
from tonnage.plan.plan import Plan
from tonnage.report.plans.comparison import compared_table

few_parts = plans_with()


def test_what_is_asked_for_must_be_known_and_fit_the_plan(model: Path) -> None:
    assert "is missing" in refused(model)
    with pytest.raises(UnknownName):
        api.compress(model, output=model.parent / "made", format="fp9")
    assert "does not write 2:4" in refused(model, format="2:4", tool="llm-compressor")
    assert "give a file with text" in refused(model, format="w4a16-gptq")
    same = model.parent / "text.txt"
    assert "give one that the calibration does not see" in refused(
        model, format="fp8", text=same, held_back=same
    )
    plan = model.parent / "plan.json"
    plan.write_text(json.dumps(dense("vllm-0.32").to_json()), encoding="utf-8")
    assert "is not the plan's fp8" in refused(model, format="nvfp4", plan=plan)
    assert "give the plan's model" in refused(model, plan=plan)


def test_deploy_takes_a_made_checkpoint_of_the_plans_format_alone(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(
        '{"precision": "nvfp4", "original": "m", "parameters": 1e9, "figures": {}}',
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="is in nvfp4, and the plan is for fp8"):
        service_of(dense("vllm-0.32"), checkpoint=str(tmp_path))
    (tmp_path / MANIFEST).write_text(
        '{"precision": "fp8", "original": "m", "parameters": 1e9, "figures": {}}', encoding="utf-8"
    )
    assert service_of(dense("vllm-0.32"), checkpoint=str(tmp_path)).checkpoint == str(tmp_path)


def results(folder: Path, **scores: float) -> Path:
    folder.mkdir()
    tasks = {task: {"acc,none": score, "acc_stderr,none": 0.003} for task, score in scores.items()}
    (folder / "results_1.json").write_text(
        json.dumps({"results": tasks, "group_subtasks": {}}), encoding="utf-8"
    )
    return folder


def test_tasks_of_the_harness_are_judged_by_the_published_loss(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    made = model.parent / "made"
    before = results(model.parent / "before", mmlu=0.68, gsm8k=0.8)
    asked = ["compress", str(model), "--output", str(made), "--lm-eval", str(before)]
    assert run([*asked, str(results(model.parent / "none", other=0.5))]) == 2
    assert "make the checkpoint first" in capsys.readouterr().err
    made.mkdir()
    manifest = {
        "original": str(model),
        "parameters": 8e9,
        "original_bytes": 2,
        "bytes": 1,
        "tool": {"name": "x", "version": "1"},
    }
    (made / MANIFEST).write_text(
        json.dumps({**manifest, "format": "fp8", "precision": "fp8", "figures": {}}),
        encoding="utf-8",
    )
    assert run([*asked, str(model.parent / "none")]) == 2
    assert "no task in common" in capsys.readouterr().err
    for name, mmlu, verdict in (
        ("good", 0.675, "as published"),
        ("bad", 0.64, "more than published"),
    ):
        assert run([*asked, str(results(model.parent / name, mmlu=mmlu, gsm8k=0.7))]) == 0
        told = capsys.readouterr().out.splitlines()
        (row,) = [line for line in told if line.startswith("mmlu ")]
        assert "1.5% (llama-3.1-8b)" in row
        assert row.endswith(verdict)
        assert next(line for line in told if line.startswith("gsm8k ")).endswith(
            "none is published"
        )
    found = judged(str(made))
    assert found is not None
    assert found.scores == {"mmlu": (0.68, 0.64), "gsm8k": (0.8, 0.7)}


def test_an_original_and_its_checkpoint_are_sized_in_their_own_formats(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model.parent / "made"
    made.mkdir()
    (made / "config.json").write_text(
        json.dumps({**CONFIG, "quantization_config": {"quant_method": "fp8"}}), encoding="utf-8"
    )
    figures = {
        "held_back": {"perplexity_original": 10.0, "perplexity": 10.5, "top1_agreement": 0.95}
    }
    manifest = {"original": str(model), "precision": "fp8", "parameters": 8e9, "figures": figures}
    (made / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    load = [
        "--isl",
        "1500",
        "--osl",
        "200",
        "--peak-rps",
        "20",
        "--ttft",
        "p95<=1s",
        "--gpu",
        "h100",
        "--tp",
        "1",
        "--engine",
        "vllm",
    ]
    assert run(["size", "--model", f"{model}/config.json,{made}/config.json", *load, "--json"]) == 0
    plans = [Plan.from_json(each) for each in json.loads(capsys.readouterr().out)["plans"]]
    assert [plan.scenario.precisions for plan in plans] == [("fp16",), ("fp8",)]
    assert [
        [note.perplexity for note in plan.notes if isinstance(note, Judged)] for plan in plans
    ] == [[], [10.5]]
    table = compared_table(plans, short=True)
    assert table.header == (
        "model",
        "systems",
        "exactly",
        "GPUs",
        "USD a year, owned",
        "kWh a year",
        "next to the original",
    )
    assert [row[-1] for row in table.rows] == [
        "–",
        "perplexity 10 → 10.5, same top token 95.0%, published MMLU loss 1.5% (llama-3.1-8b)",
    ]
    (made / MANIFEST).write_text("{}", encoding="utf-8")
    assert run(["size", "--model", f"{made}/config.json", *load]) == 2
    assert "is no manifest of tonnage compress" in capsys.readouterr().err
