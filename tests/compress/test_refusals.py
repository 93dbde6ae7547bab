"""What is refused before a tool is started, the scripts that ``--dry-run`` prints, and what
``deploy`` takes of a made checkpoint."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.plans import dense
from tests.questions import plans_with
from tonnage import api
from tonnage.cli.main import run
from tonnage.compress import checks
from tonnage.compress.recipes import FORMATS, LLM_COMPRESSOR, MODELOPT, TOOLS
from tonnage.compress.run import pins, version
from tonnage.deploy.checkpoint import MANIFEST, judged
from tonnage.deploy.service import service_of
from tonnage.errors import InputError, UnknownName
from tonnage.plan.notes import Judged
from tonnage.plan.plan import Plan
from tonnage.report.plans.comparison import compared_table

few_parts = plans_with()
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1_000,
    "max_position_embeddings": 2_048,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(bytes(1_000))
    (tmp_path / "text.txt").write_text("some words " * 100, encoding="utf-8")
    return folder


def refused(model: Path, **asked: Any) -> str:
    with pytest.raises(InputError) as fault:
        api.compress(model, output=model.parent / "made", **asked)
    assert not (model.parent / "made").exists()
    assert not list(model.parent.glob(".made*"))
    return str(fault.value)


def test_every_format_of_every_tool_has_a_script_that_python_reads_and_pins(model: Path) -> None:
    for name in FORMATS:
        for tool in FORMATS[name].methods:
            found = api.compress(
                model, output=model.parent / "made", format=name, tool=tool, dry_run=True
            )
            assert isinstance(found, str)
            compile(found, "recipe.py", "exec")
            assert str(model) in found
            assert "def compressed()" in found
    for tool in TOOLS:
        lines = pins(tool).splitlines()
        assert all(line.count("==") == 1 and "+" not in line for line in lines)
        assert version(tool)


@pytest.mark.parametrize(
    "name", ['m"""\nraise SystemExit(7)\n"""', "m\\", "m'''", "{model}", "m\nimport os"]
)
def test_a_folder_of_any_name_is_text_in_the_script(model: Path, name: str) -> None:
    plain, folder = model.parent / "plain", model.parent / name
    shutil.copytree(model, plain)
    shutil.copytree(model, folder)
    for form, tool in (("fp8", LLM_COMPRESSOR), ("w4a16-awq", LLM_COMPRESSOR), ("nvfp4", MODELOPT)):
        scripts = [
            str(
                api.compress(
                    source, output=model.parent / "made", format=form, tool=tool, dry_run=True
                )
            )
            for source in (plain, folder)
        ]
        expected, written = (ast.parse(script) for script in scripts)
        assert [type(node) for node in written.body] == [type(node) for node in expected.body]
        assert name in str(ast.get_docstring(written, clean=False))


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


def test_the_folder_must_hold_a_whole_checkpoint_in_16_bits(model: Path, tmp_path: Path) -> None:
    assert "no folder" in refused(tmp_path / "absent", format="fp8")
    (model / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "other.safetensors"}}', encoding="utf-8"
    )
    assert "lacks other.safetensors" in refused(model, format="fp8")
    (model / "model.safetensors.index.json").write_text("[", encoding="utf-8")
    assert "is damaged" in refused(model, format="fp8")
    (model / "model.safetensors.index.json").unlink()
    (model / "config.json").write_text(
        json.dumps({**CONFIG, "quantization_config": {"quant_method": "fp8"}}), encoding="utf-8"
    )
    assert "already; give the checkpoint in 16 bits" in refused(model, format="fp8")


def test_what_this_machine_or_the_model_cannot_do(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    text = model.parent / "text.txt"
    assert "needs a GPU" in refused(model, format="w4a16-awq", text=text)
    assert "needs a GPU" in refused(model, format="nvfp4", tool=MODELOPT, text=text)
    (model / "config.json").write_text(
        json.dumps({**CONFIG, "hidden_size": 576, "head_dim": 64}), encoding="utf-8"
    )
    for form in ("w4a16-gptq", "fp8-block"):
        assert f"{form} takes 128 weights together, and rows have 576" in refused(
            model, format=form, text=text
        )
    monkeypatch.setattr(checks, "_memory_available", lambda: 1_000)
    assert "GiB of memory" in refused(model, format="fp8")
    (model / "config.json").write_text(
        json.dumps(
            {
                **CONFIG,
                "model_type": "gemma2",
                "head_dim": 64,
                "architectures": ["Gemma2ForCausalLM"],
            }
        ),
        encoding="utf-8",
    )
    assert "ruins models of the kind gemma2" in refused(model, format="int8", text=text)


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
