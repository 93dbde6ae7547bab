"""Every plan becomes files for every target, without a further flag: README's own, and any
other."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.deploy.plans import dense, latencies, started
from tests.deploy.written import check_files
from tests.plan.candidates import candidate
from tests.strategies import examples
from tonnage import api
from tonnage.api.running.gateway import gateway_from
from tonnage.cli.main import run
from tonnage.deploy.targets import deployed, target_files
from tonnage.errors import InputError
from tonnage.plan.plan import Plan
from tonnage.results.store import json_text
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.catalog.checkpoints import find_checkpoints
from tonnage.spec.catalog.entries import model_shelf
from tonnage.spec.deployment import Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import PRECISIONS
from tonnage.spec.scenario_file import scenario_of
from tonnage.spec.targets import TARGETS, target_lacks

README = Path(__file__).parents[2] / "README.md"


FORMATS = [
    *PRECISIONS,
    "fp8+kv-fp16",
    "fp8+2:4",
    "nvfp4+experts",
    "int4-g32+experts",
    "mxfp4+rest-fp8",
    "nvfp4+rest-fp8",
]


ENGINES = [
    "vllm-0.10",
    "vllm-0.21",
    "vllm-0.32",
    "sglang-0.5",
    "sglang-0.5.9",
    "tensorrt-llm-1.0",
    "tensorrt-llm-1.2",
]
"""Those that have a command and an image."""


@pytest.fixture(scope="module")
def saved(plans_of_this_run: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan of README's example."""
    lines = README.read_text(encoding="utf-8").splitlines()
    command = next(line.removeprefix("$ ") for line in lines if line.startswith("$ ./tonnage size"))
    words = [word for word in shlex.split(command)[1:] if word not in ("--output", "plan.json")]
    found = tmp_path_factory.mktemp("plans") / "plan.json"
    assert run([*words, "--output", str(found)]) == 0
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_of_fp8_becomes_files_without_a_further_flag(
    saved: Path, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    capsys.readouterr()
    assert run(["deploy", str(saved), "--target", target, "--output", str(folder)]) == 0
    said = capsys.readouterr().out
    files = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    check_files(files)
    plan = Plan.from_json(json.loads(saved.read_text(encoding="utf-8")))
    written = Plan.from_json(json.loads(files["plan.json"]))
    assert written.choice is not None
    model, everything = plan.choice.pool.model, "".join(files.values())
    names = {
        one.repository
        for one in find_checkpoints(model)
        if one.format == "fp8" or (target == "triton" and one.half)
    }
    assert any(one in everything and one in said for one in names)
    if find_engine(plan.choice.engine_preset).family in TARGETS[target].engines:
        assert written == plan
    else:
        taken, choice = written.choice.pool, plan.choice.pool
        assert (taken.gpu, taken.precision) == (choice.gpu, choice.precision)
        assert find_engine(taken.engine_preset).family in TARGETS[target].engines
        told = "These files do not deploy the plan's choice"
        page = " ".join(files["README.md"].split())
        more = taken.systems - choice.systems
        beside = f"{more} more than the choice" if more else "as many as the choice"
        for text in (page, said):
            assert told in text
            assert f"It needs {taken.systems} systems, {beside}." in text
            assert f"{choice.engine} on {choice.gpu}, {choice.systems} × {choice.system}" in text
    if target == "compose":
        backends = gateway_from(folder / "gateway.yaml", {}).backends
        assert len(backends) == written.choice.instances
    if target == "ray-serve":
        (application,) = yaml.safe_load(files["serve.yaml"])["applications"]
        assert application["args"]["llm_configs"][0]["model_loading_config"]["model_id"] == model


@pytest.mark.parametrize(
    "page", [README, README.parent / "docs" / "deploy.md"], ids=lambda page: page.name
)
def test_a_page_shows_what_the_command_prints(
    saved: Path,
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    block = re.split(
        r"^(?:\$ )?\./tonnage deploy ", page.read_text(encoding="utf-8"), flags=re.MULTILINE
    )[1].split("```")[0]
    command, *shown = block.splitlines()
    (tmp_path / "plan.json").write_bytes(saved.read_bytes())
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run(["deploy", *shlex.split(command)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert {line for line in shown if line != "…"} <= set(printed)
    assert (tmp_path / shlex.split(command)[-1] / "README.md").is_file()


def one_of(model: str, precision: str, engine: str) -> Plan:
    """A plan whose choice is this, on one DGX H200 of one instance."""
    knobs = default_knobs(find_engine(engine), find_gpu("h200-sxm-141gb"), ranks=1)
    chosen = candidate(
        model=model,
        precision=precision,
        gpu="h200-sxm-141gb",
        system="dgx-h200",
        tp=8,
        engine=engine,
        engine_preset=engine,
        knobs=knobs,
        **started(engine, model, Parallelism(tp=8), knobs, kv_8bit=False),
        e2e_ms=latencies(6_000.0),
    )
    return replace(dense(), candidates=(chosen,), curve=())


@examples(0.4)
@given(
    model=st.sampled_from(sorted(model_shelf().by_name)),
    precision=st.sampled_from(FORMATS),
    engine=st.sampled_from(ENGINES),
    target=st.sampled_from(sorted(TARGETS)),
)
def test_any_plan_becomes_files_or_is_refused_in_a_line(
    model: str, precision: str, engine: str, target: str
) -> None:
    plan, spec = one_of(model, precision, engine), find_engine(engine)
    pool = plan.candidates[0].pool
    if target_lacks(
        target,
        engine=spec,
        gpu=find_gpu(pool.gpu),
        split=pool.parallelism,
        gpus_per_system=8,
        precision=precision,
    ):
        with pytest.raises(
            InputError,
            match=r"^target: [^\n]+, and no other deployment of the plan runs on [a-z-]+$",
        ):
            deployed(plan, target)
        return
    service = deployed(plan, target)
    assert "/" in service.checkpoint
    files = target_files(service, target)
    check_files(files, service)
    assert service.checkpoint in "".join(files.values()) or service.local
    assert " ".join(service.loading.told.split()) in " ".join(files["README.md"].split())
    for word in service.loading.words:
        assert any(
            part in "".join(files.values())
            for part in (word, word.removeprefix("--").replace("-", "_"))
        )


def refusal(plan: Plan, target: str, folder: Path) -> str:
    path = folder / "plan.json"
    path.write_text(json_text(plan.to_json()), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        api.deploy(path, target=target, output=folder / "files")
    assert not (folder / "files").exists()
    return str(refused.value)


def test_a_refusal_says_what_size_chooses_for_the_target_and_the_command(tmp_path: Path) -> None:
    words = (
        "size --model llama-3.1-8b --gpu h100 --tp 1 --isl 200 --osl 20 --peak-rps 10 --ttft"
        " 'p95<=1s' --output a.json"
    )
    plan = api.size(
        model="llama-3.1-8b",
        gpu="h100",
        tp="1",
        isl="200",
        osl="20",
        peak_rps=10,
        ttft="p95<=1s",
        engine="tensorrt-llm-1.2",
    )
    typed = replace(plan.provenance, command=f"./tonnage {words} --engine=tensorrt-llm-1.2")
    said = refusal(replace(plan, provenance=typed), "ray-serve", tmp_path)
    assert "; nearest: 1 × " in said
    assert (
        ", 1 in place of the plan's 1, sized without engine, tp: ./tonnage size --model"
        " llama-3.1-8b --gpu h100 --isl 200 " in said
    )
    assert said.endswith("--ttft 'p95<=1s' --deploy-on ray-serve --output plan-ray-serve.json")


ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "isl": "200",
    "osl": "20",
    "peak_rps": 10,
    "engine": "sglang-0.5.9",
}


@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        (None, "size again with deploy_on ray-serve, which tries only what it runs"),
        (
            {**ASKED, "ttft": "p95<=1ms"},
            (
                "nearest: none, no deployment meets the limits without engine, gpu: h100-sxm-80gb:"
                " TTFT p95 "
            ),
        ),
        (
            {**ASKED, "trace": "gone.csv"},
            "nearest plan cannot be sized without engine, gpu: trace: ",
        ),
    ],
)
def test_a_refusal_says_why_it_names_no_nearest_plan(
    asked: dict[str, Any] | None, ends: str, tmp_path: Path
) -> None:
    scenario = None if asked is None else scenario_of({}, asked)
    said = refusal(replace(dense("sglang-0.5.9"), asked=scenario), "ray-serve", tmp_path)
    assert said.startswith(
        "target: ray-serve runs only vllm, not sglang-0.5.9, and no other deployment of the plan"
        " runs on ray-serve; "
    )
    assert ends in said
