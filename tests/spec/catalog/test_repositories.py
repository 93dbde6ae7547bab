"""A repository's name gives architecture and format; what is guessed says so, and hints keep to the
size in the name."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.questions import plans_with
from tests.spec.catalog.repositories_cases import needs_field
from tonnage import api
from tonnage.errors import InputError, UnknownName
from tonnage.plan.plan import Plan
from tonnage.spec.catalog import find_model, models
from tonnage.spec.catalog.checkpoints import find_checkpoints, listed_checkpoints
from tonnage.spec.catalog.repositories import find_repository, listed_repositories
from tonnage.spec.precision import find_precision

few_parts = plans_with()


FIELD = Path(__file__).resolve().parents[4] / "shared" / "field"


DERIVED = {  # architecture and format
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": ("qwen2.5-1.5b", "bf16"),
    "DeepSeek-R1-Distill-Qwen-7B": ("qwen2.5-7b", "bf16"),
    "DeepSeek-R1-Distill-Qwen-14B": ("qwen2.5-14b", "bf16"),
    "DeepSeek-R1-Distill-Qwen-32B": ("qwen2.5-32b", "bf16"),
    "deepseek-r1-distill-llama-8b": ("llama-3.1-8b", "bf16"),
    "DeepSeek-R1-Distill-Llama-70B": ("llama-3.3-70b", "bf16"),
    "Qwen/QwQ-32B": ("qwen2.5-32b", "bf16"),
    "Qwen/QwQ-32B-AWQ": ("qwen2.5-32b", "awq"),
    "Qwen/Qwen2.5-Coder-32B-Instruct": ("qwen2.5-32b", "bf16"),
    "Qwen/Qwen2.5-Coder-7B-Instruct-GPTQ-Int4": ("qwen2.5-7b", "gptq"),
    "Qwen/Qwen2.5-VL-72B-Instruct-AWQ": ("qwen2.5-72b", "awq"),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": ("qwen3-30b-a3b", "bf16"),
    "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8": ("qwen3-30b-a3b", "fp8"),
    "Qwen/Qwen3-VL-8B-Instruct": ("qwen3-8b", "bf16"),
    "mistralai/Devstral-Small-2507": ("mistral-small-24b", "bf16"),
    "mistralai/Magistral-Small-2509": ("mistral-small-24b", "bf16"),
    "NousResearch/Hermes-3-Llama-3.1-8B": ("llama-3.1-8b", "bf16"),
    "google/medgemma-27b-text-it": ("gemma-3-27b", "bf16"),
    "lmsys/vicuna-13b-v1.5": ("llama-2-13b", "bf16"),
    "openai/gpt-oss-safeguard-20b": ("gpt-oss-20b", "mxfp4"),
    "MiniMaxAI/MiniMax-M2.1": ("minimax-m2.5", "fp8"),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derived_models_have_the_sizes_of_their_architecture_and_their_format(name: str) -> None:
    base, form = DERIVED[name]
    for spelling in (name, name.lower(), name.upper(), name.rpartition("/")[2]):
        model, same = find_model(spelling), find_model(base)
        assert (model.layers, model.hidden, model.by_kind, model.ffn) == (
            same.layers,
            same.hidden,
            same.by_kind,
            same.ffn,
        )
        assert model.released == form
        assert model.name == name.rpartition("/")[2].lower().removesuffix("-awq").removesuffix(
            "-gptq-int4"
        ).removesuffix("-fp8")


@needs_field
def test_every_name_of_the_field_is_answered_in_its_format() -> None:
    listed = {one.repository: one for one in listed_checkpoints()}
    texts = [
        (FIELD / f"{file}.csv").read_text(encoding="utf-8").splitlines()
        for file in ("catalog_checkpoint_names", "hf_names")
    ]
    names = [row["model"] for lines in texts for row in csv.DictReader(lines)]
    assert len(names) == 459
    for name in names:
        model = find_model(name)
        assert name not in listed or (model.name, model.released) == (
            listed[name].model,
            listed[name].format,
        )
    for name in (
        (FIELD / "planning" / "f16-names-of-distilled-models" / "names.txt")
        .read_text(encoding="utf-8")
        .split()
    ):
        size = re.search(r"(\d+(?:\.\d+)?)B", name, re.IGNORECASE)
        assert size is None or find_model(name).parameters == pytest.approx(
            float(size[1]) * 1e9, rel=0.2
        )


def test_every_repository_is_found_by_all_its_spellings_and_has_a_known_format() -> None:
    names = listed_repositories()
    assert len(names) > 1_500
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        repository = find_repository(name)
        assert repository is not None
        assert re.fullmatch(r"([\w.-]+/)?[\w.-]+", name), name
        assert find_precision(repository.model.released)
        assert find_model(name) == find_model(name.upper()) == repository.model
        assert find_model(repository.model.name).layers == repository.model.layers
    for model in models():
        assert model.name == "gpt-43b" or find_checkpoints(model.name), model.name


@pytest.mark.parametrize(
    ("name", "base", "form"),
    [
        ("someone/dolphin-9-llama3.1-8b", "llama-3.1-8b", "bf16"),
        ("someone/Meta-Llama-3_1-70B-roleplay-FP8-dynamic", "llama-3.1-70b", "fp8"),
        ("someone/my-qwen2.5-coder-14b-sql-awq", "qwen2.5-14b", "awq"),
        ("someone/new-gemma-3-27b-it-GPTQ-4b-128g", "gemma-3-27b", "gptq"),
        ("someone/new-Llama-3.2-1B-gptqmodel-4bit-vortex-v1", "llama-3.2-1b", "gptq"),
        ("someone/Mistral-7B-Instruct-v0.3-medical-quantized.w8a8", "mistral-7b-v0.3", "int8-sq"),
    ],
)
def test_a_fine_tune_is_read_off_its_name_and_says_so(name: str, base: str, form: str) -> None:
    model = find_model(name)
    assert (model.hidden, model.layers, model.ffn) == (
        find_model(base).hidden,
        find_model(base).layers,
        find_model(base).ffn,
    )
    assert model.released == form
    assert "by its name alone" in model.reading
    assert model.reading in api.memory(model=name, engine="vllm").lines()[0]


@pytest.mark.parametrize(
    "name",
    [
        "a/Llama-3.1-8B-reward",
        "a/Llama-3.1-8B-mamba",
        "a/Qwen3-Embedding-8B",
        "a/llama-3.1-minitron-5b",
        "a/qwen9-7b",
        "a/gemma-3-27b-it-qat-compressed-tensors",
        "a/llama-3.1-8b-3bit-hqq",
    ],
)
def test_names_of_another_architecture_are_no_fine_tunes(name: str) -> None:
    with pytest.raises(InputError):
        find_model(name)


def test_a_hint_keeps_to_the_size_and_files_of_other_programs_are_named() -> None:
    with pytest.raises(UnknownName) as error:
        find_model("deepseek-r1-distil-qwen-14b-of-tomorrow")
    hints = str(error.value).partition("did you mean ")[2].rstrip("?").split(", ")
    assert "deepseek-r1" not in hints
    assert all(14e9 / 1.5 <= find_model(hint).parameters <= 14e9 * 1.5 for hint in hints if hint)
    with pytest.raises(InputError, match=r"llama\.cpp \(GGUF\)"):
        find_model("bartowski/Llama-3.3-70B-Instruct-GGUF")
    with pytest.raises(InputError, match="MLX"):
        find_model("mlx-community/Qwen3-8B-mlx-4bit")


def test_a_plan_holds_a_model_that_was_guessed_and_is_read_again() -> None:
    plan = api.size(
        model="a/new-tune-qwen2.5-7b-FP8",
        gpu="h100",
        isl=500,
        osl=100,
        peak_rps=2,
        tpot="mean<=50ms",
        tp=1,
        engine="vllm",
    )
    note = next(note for note in plan.notes if note.code == "model-read")
    assert "by its name alone" in note.model.reading
    assert plan.scenario.precisions == ("fp8",)
    assert Plan.from_json(plan.to_json()) == plan
