"""Names as buyers copy them from the pages of vendors, clouds and the model hub find their entry;
unknown ones suggest near ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.questions import plans_with
from tonnage import api
from tonnage.errors import InputError, UnknownName
from tonnage.spec.catalog import (
    find_engine,
    find_gpu,
    find_model,
    find_system,
    instance_types,
    machine_meant,
    newer_than_known,
    system_of,
)
from tonnage.spec.catalog.price_list import catalog_prices

few_parts = plans_with()

MEANT: dict[str, dict[str, str]] = yaml.safe_load(
    (Path(__file__).parent / "spellings.yaml").read_text(encoding="utf-8")
)


def test_spellings_on_the_pages_of_vendors_clouds_and_the_hub() -> None:
    for spelling, name in MEANT["gpus"].items():
        assert find_gpu(spelling).name == find_gpu(spelling.upper()).name == name
    for spelling, name in MEANT["systems"].items():
        found, meant = find_system(spelling), machine_meant(spelling)
        assert (found.name, find_gpu(spelling).name) == (name, found.gpu)
        assert meant == found or (meant is None and system_of(find_gpu(spelling)) == found), (
            "HGX is the board and the server"
        )
    for spelling, name in MEANT["models"].items():
        for written in (spelling, spelling.lower(), spelling.upper(), spelling.rpartition("/")[2]):
            assert find_model(written).name == name
    assert {spelling: find_engine(spelling).name for spelling in MEANT["engines"]} == MEANT[
        "engines"
    ]


def test_machine_types_have_the_gpus_of_their_offers_and_unknown_names_near_ones() -> None:
    offered = {(offer.gpu, size) for offer in catalog_prices().cloud for size in offer.machine_gpus}
    for name, machine in instance_types().items():
        assert find_gpu(machine.gpu).name == machine.gpu, name
        assert (machine.gpu, machine.gpus) in offered or machine.source.endswith("(recalled)"), name
        assert machine.source, name
        assert machine.date, name
    for find, name, near in [
        (find_gpu, "h1000", "h100"),
        (find_gpu, "GB200 NVL4", "gb200-186gb"),
        (find_gpu, "mi355", "mi355x"),
        (find_system, "gb200-nvl73", "gb200-nvl72"),
        (find_system, "dgx-h1000", "dgx-h100"),
        (find_model, "Qwen/Qwen3-33B", "qwen3-32b"),
        (find_model, "meta-llama/Llama-3.1-9B-Instruct", "llama-3.1-8b"),
    ]:
        with pytest.raises(UnknownName, match=f"did you mean .*{near}"):
            find(name)


def test_a_preset_that_answers_for_a_newer_version_is_named() -> None:
    newer = {
        "vllm 0.33": "vllm-0.32",
        "vLLM v0.41.2": "vllm-0.32",
        "sglang 0.5.23": "sglang-0.5.9",
        "tensorrt-llm 1.3.0": "tensorrt-llm-1.2",
    }
    assert {name: newer_than_known(name) for name in newer} == newer
    for name in (
        "vllm",
        "vllm-0.32",
        "vllm 0.32.7",
        "vllm 0.19.1",
        "sglang 0.5.9",
        "sglang 0.5.3",
        "tensorrt-llm 1.2.1",
        "nim",
    ):
        assert not newer_than_known(name)
    report = api.memory(model="llama-3.1-8b", engine="vllm 0.33.1")
    assert report.lines()[0] == "vllm 0.33.1 is newer than every preset; vllm-0.32 answers for it"
    assert report.to_json()["newer_engine"] == "vllm 0.33.1"
    plan = api.size(
        model="llama-3.1-8b", gpu="h100", engine="vllm 0.33", isl=200, osl=50, peak_rps=1, tp=1
    )
    note = next(note for note in plan.notes if note.code == "older-preset")
    assert (note.requested, note.preset, plan.scenario.engines) == (
        "vllm 0.33",
        "vllm-0.32",
        ("vllm-0.32",),
    )


def test_a_virtual_gpu_with_all_of_a_cards_memory_is_that_card_and_one_with_a_part_is_refused() -> (
    None
):
    cards = {
        "NVIDIA L40S-48Q": "l40s",
        "GRID A100D-80C": "a100-pcie-80gb",
        "GRID A100-40C": "a100-sxm-40gb",
        "NVIDIA A10-24Q": "a10-24gb",
        "NVIDIA H100XM-80C": "h100-sxm-80gb",
        "NVIDIA H100L-94C": "h100-nvl-94gb",
        "NVIDIA RTX6000-Ada-48Q": "rtx-6000-ada",
    }
    assert {name: find_gpu(name).name for name in cards} == cards
    for name, held in (
        ("NVIDIA L40S-24Q", "24 of the 48 GB of l40s"),
        ("h100-4q", "4 of the 80 GB of h100-sxm-80gb"),
    ):
        with pytest.raises(InputError, match=held):
            find_gpu(name)
    with pytest.raises(UnknownName):
        find_gpu("NVIDIA A1-16Q")


@pytest.mark.parametrize(
    ("name", "model", "released"),
    [
        # in 16 bits, and not in its ending's four
        ("google/gemma-3-12b-it-qat-int4-unquantized", "gemma-3-12b", "bf16"),
        ("me/Qwen3-8B-AWQ-dequantized", "qwen3-8b", "bf16"),
        ("google/gemma-3-27b-it-qat-q4_0-unquantized", "gemma-3-27b", "bf16"),
        ("inclusionAI/Ling-1T-FP8", "ling-1t", "fp8"),
        ("nvidia/Qwen3-14B-NVFP4A16", "qwen3-14b", "nvfp4-wo"),
        ("amd/DeepSeek-R1-0528-MXFP4-Preview", "deepseek-r1", "mxfp4"),
        ("nvidia/DeepSeek-R1-0528-FP4-v2", "deepseek-r1", "nvfp4"),
    ],
)
def test_the_format_of_a_name_is_that_of_its_weights(
    name: str, model: str, released: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    read = find_model(name)
    assert (read.released, read.parameters) == (released, find_model(model).parameters)


def test_a_name_of_a_trillion_is_offered_no_small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UnknownName) as error:
        find_model("maker/unheard-2T")
    assert "kimi-k3" in str(error.value)
    assert "7b" not in str(error.value)


@pytest.mark.parametrize(
    "ending", ["W4A8C8-TP4-Paddle", "2Bits-TP2-Paddle", "NVFP4KV8", "w3a16", "2of4", "int5-mixed"]
)
def test_a_name_with_a_format_that_is_not_known_is_not_taken_for_a_fine_tune_in_16_bits(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert find_model("maker/Llama-3.1-8B-Instruct-Medical").released == "bf16"
    with pytest.raises(UnknownName):
        find_model(f"maker/Llama-3.1-8B-Instruct-Medical-{ending}")


@pytest.mark.parametrize("ending", ["FP8-KV", "fp8-kv8", "FP8-KV-cache-fp8"])
def test_a_kv_cache_in_a_name_is_not_ignored(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = find_model(f"amd/Llama-3.1-70B-Instruct-{ending}")
    assert (model.released, model.released_kv) == ("fp8", "fp16")
    assert "KV cache counts in 16 bits unless the precision fp8+kv-fp8" in model.reading


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("01-ai/Yi-34B-200K", 200_000),
        ("gradientai/Llama-3-8B-Instruct-Gradient-1048k", 1_048_576),
        ("nvidia/Llama-3.1-8B-UltraLong-4M-Instruct", 4_000_000),
        ("maker/Llama-3.1-8B-Instruct-262k", 262_144),
        ("maker/Llama-3.1-8B-UltraFeedback-16k", 131_072),  # less than the model's own
        ("HuggingFaceTB/SmolVLM-256M-Instruct", 8_192),
        # releases of one architecture that differ in their contexts
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 131_072),
        ("mistralai/Mistral-Small-24B-Instruct-2501", 32_768),
        ("ibm-granite/granite-3.0-8b-instruct", 4_096),
        ("ibm-granite/granite-3.3-8b-instruct", 131_072),
        ("Qwen/Qwen2-72B-Instruct", 32_768),
        ("Qwen/Qwen2-72B", 131_072),
    ],
)
def test_a_context_in_a_name_is_the_models(
    name: str, context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert find_model(name).max_context == pytest.approx(context, rel=0.05)


@pytest.mark.parametrize(
    "name",
    [
        "maker/Qwen3-30B-A3B-REAP-15B",
        "maker/Llama-3.1-8B-depth-6B",
        "maker/Mixtral-4x7B-of-Llama-3.1-8B",
        "maker/Llama-3.1-8B-Instruct-QQQ",
        "maker/Llama-3.1-8B-Instruct-4.0bpw",
        "maker/Llama-2-7b-pruned50-retrained",
    ],
)
def test_a_name_that_says_another_size_or_format_is_no_fine_tune(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UnknownName):
        find_model(name)


@pytest.mark.parametrize(
    "name",
    [
        "hf.co/bartowski/Llama-3.1-8B-Instruct-GGUF:Q4_K_M",
        "bartowski/Llama-3.1-8B-Instruct-GGUF/Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        "llama-3.1-8b-instruct:IQ4_XS",
    ],
)
def test_files_of_llama_cpp_are_refused_however_they_are_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=r"(?i)llama.cpp .*such as 'llama-3.1-8b-instruct'"):
        find_model(name)
