"""Every entry is complete and true to published totals; every spelling of the data finds its entry."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, UnknownName
from tonnage.spec.catalog import (
    engines,
    find_engine,
    find_gpu,
    find_model,
    find_system,
    gpus,
    models,
    search,
    system_of,
    systems,
)
from tonnage.spec.engine import default_knobs

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the measured data lie beside the repository, not in it")


def column(file: str, name: str) -> list[str]:
    with (DATA / file).open(encoding="utf-8", newline="") as lines:
        return sorted({row[name] for row in csv.DictReader(lines)})


# What model cards and reports publish, in billions of parameters; a figure with one digit less is published so.
PUBLISHED = {
    "llama-2-7b": 6.74,
    "llama-2-13b": 13.02,
    "llama-2-70b": 68.98,
    "llama-3-8b": 8.03,
    "llama-3-70b": 70.55,
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.55,
    "llama-3.1-405b": 405.85,
    "llama-3.1-nemotron-70b": 70.55,
    "llama-3.2-1b": 1.236,
    "llama-3.2-3b": 3.213,
    "llama-3.3-70b": 70.55,
    "mistral-7b": 7.24,
    "mistral-7b-v0.3": 7.25,
    "mistral-small-24b": 23.57,
    "mistral-large-123b": 122.6,
    "mixtral-8x7b": 46.70,
    "mixtral-8x22b": 140.63,
    "falcon-180b": 179.5,
    "gpt-j-6b": 6.05,
    "gpt-43b": 43.0,
    "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83,
    "deepseek-v3": 671.0,
    "deepseek-r1": 671.0,
    "kimi-k2.5": 1026.0,
    "minimax-m2.5": 228.7,
    "llama-4-scout": 107.8,  # 109 with the image encoder
    "llama-4-maverick": 400.7,
    "gemma-2-2b": 2.614,
    "gemma-2-9b": 9.242,
    "gemma-2-27b": 27.227,
    "gemma-3-4b": 3.88,  # 4.30 with the image encoder
    "gemma-3-12b": 11.77,  # 12.19 with it
    "gemma-3-27b": 27.01,  # 27.43 with it
    "nemotron-4-340b": 341.0,
    "phi-3-mini": 3.82,
    "phi-3-mini-4k": 3.82,
    "phi-3-medium": 13.96,
    "phi-4": 14.66,
    "qwen2.5-0.5b": 0.494,
    "qwen2.5-1.5b": 1.544,
    "qwen2.5-3b": 3.086,
    "qwen2.5-7b": 7.616,
    "qwen2.5-14b": 14.77,
    "qwen2.5-32b": 32.76,
    "qwen2.5-72b": 72.71,
    "qwen3-0.6b": 0.596,
    "qwen3-1.7b": 1.72,
    "qwen3-4b": 4.02,
    "qwen3-8b": 8.19,
    "qwen3-14b": 14.77,
    "qwen3-32b": 32.76,
    "qwen3-30b-a3b": 30.53,
    "qwen3-235b-a22b": 235.1,
    # counts of ../shared/data/modern/models.csv, which agree with the makers' names within 3 %
    "deepseek-v3.2": 671.88,
    "deepseek-v4-pro": 1572.99,
    "deepseek-v4-flash": 284.33,
    "glm-5": 743.91,
    "glm-5.1": 743.91,
    "glm-5.2": 743.38,
    "minimax-m2.7": 228.69,
    "minimax-m3": 426.17,
    "kimi-k2.6": 1026.41,
    "kimi-k2.7-code": 1026.41,
    "kimi-k3": 2779.48,
    "qwen3.5-397b-a17b": 396.35,
    "qwen3.5-122b-a10b": 122.11,
    "qwen3.5-35b-a3b": 34.66,
    "qwen3.5-27b": 26.9,
    "qwen3.6-35b-a3b": 34.66,
    "qwen3.6-27b": 26.9,
    "nemotron-3-nano-30b-a3b": 31.58,
    "nemotron-3-super-120b-a12b": 120.67,
    "nemotron-3-ultra-550b-a55b": 549.31,
    "nemotron-3.5-lightning-30b-a3b": 31.58,
    "nemotron-h-56b": 56.32,
    "gemma-4-31b": 30.7,
    "gemma-4-26b-a4b": 25.23,
    "step-3.7-flash": 195.83,
    "mimo-v2-flash": 308.78,
    "qwen3-coder-480b-a35b": 480.15,
    "qwen3-vl-235b-a22b": 235.09,
    "qwen3-next-80b-a3b": 79.67,
    "qwen3-coder-next": 79.67,
    "qwen3.8-2.4t-a95b": 2419.8,
    "glm-5.3-flash": 313.28,
    "kimi-linear-48b-a3b": 49.12,
    "glm-4.7": 352.8,
    "glm-4.6": 352.8,
    "glm-4.5-air": 106.85,
    "glm-4.7-flash": 29.94,
    "gemma-4-e4b": 7.38,
    "hy3": 295.03,
    "inkling": 960.76,
    "qwen3.5-9b": 8.95,
    "qwen3.5-4b": 4.21,
    "glm-5.3": 743.38,
    "baichuan-13b": 13.26,
    "baichuan2-7b": 7.51,
    "baichuan2-13b": 13.9,
    "bloom-176b": 176.25,
    "chatglm3-6b": 6.24,
    "falcon-7b": 6.92,
    "gpt2-xl": 1.557,
    "gpt-neox-20b": 20.55,
    "internlm-7b": 7.32,
    "internlm2-20b": 19.86,
    "llama-7b": 6.74,
    "llama-65b": 65.29,
    "mpt-7b": 6.65,
    "mpt-30b": 29.96,
    "nemotron-3-8b": 8.54,
    "opt-6.7b": 6.66,
    "opt-30b": 29.97,
    "opt-66b": 65.72,
    "phi-2": 2.78,
    "qwen-7b": 7.72,
    "qwen-14b": 14.17,
    "qwen-72b": 72.29,
    "replit-code-3b": 2.6,
    "santacoder": 1.124,
    "skywork-13b": 13.85,
    "starcoder": 15.52,
}


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_parameters_against_published_totals(name: str, billions: float) -> None:
    assert find_model(name).parameters / 1e9 == pytest.approx(billions, rel=0.005)


def test_no_model_without_a_published_total() -> None:
    assert {model.name for model in models()} == set(PUBLISHED)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_heads_and_widths_are_possible(name: str) -> None:
    model = find_model(name)
    assert model.heads % model.kv_heads == 0
    assert 0.5 <= model.heads * model.head_dim / model.hidden <= (10 if model.mixers or model.latent else 3)
    assert model.max_context % 1024 == 0


@pytest.mark.parametrize(
    ("name", "billions"), [("mixtral-8x7b", 12.9), ("mixtral-8x22b", 39.1), ("qwen3-30b-a3b", 3.3), ("qwen3-235b-a22b", 22)]
)
def test_active_parameters_of_mixtures(name: str, billions: float) -> None:
    model = find_model(name)
    assert (model.active_parameters + model.embedding_parameters) / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(("name", "billions"), [("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)])
def test_active_parameters_of_gpt_oss_are_published_without_one_table(name: str, billions: float) -> None:
    model = find_model(name)
    assert (model.active_parameters + model.head_parameters) / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(("name", "size"), [("llama-2-7b", 524_288), ("llama-3-8b", 131_072), ("llama-3.1-70b", 327_680)])
def test_kv_bytes_per_token_in_16_bits(name: str, size: int) -> None:
    assert find_model(name).kv_elements_per_gpu(1) * 2 == size


def test_entries_have_source_and_date() -> None:
    entries = [*models(), *gpus(), *systems(), *engines()]
    assert len(entries) > 80
    for entry in entries:
        assert entry.source, entry.name
        assert len(entry.date) == 10, entry.name
        assert entry.name == entry.name.lower()


@needs_data
@pytest.mark.parametrize("file", ["nim_inflight.csv", "trtllm_static_batch.csv", "trtllm_throughput.csv"])
def test_names_of_measured_files(file: str) -> None:
    for name in column(file, "model"):
        assert find_model(name).name == name
    for name in column(file, "gpu"):
        assert find_gpu(name).name == name
    for name in column(file, "engine"):
        assert find_engine(name)


@needs_data
def test_gpus_of_the_data_sheets_agree() -> None:
    with (DATA / "gpu_specs.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 29
    for row in rows:
        gpu = find_gpu(row["gpu"])
        assert gpu.fp16_tflops == float(row["bf16_dense_tflops"] or row["fp16_dense_tflops"])
        assert gpu.fp8_tflops == (float(row["fp8_dense_tflops"]) if row["fp8_dense_tflops"] else None)
        assert gpu.memory_bandwidth_gb_s == float(row["mem_bw_gb_s"])
        assert gpu.memory_gb == float(row["mem_gb"])
        assert gpu.bf16 == bool(row["bf16_dense_tflops"])


POWER_READ_SINCE = {"dgx-b300": 14_500}
"""Powers that the list recalls otherwise than the maker's page says."""


@needs_data
def test_gpus_of_price_and_system_lists() -> None:
    for name in column("cloud_prices_per_gpu_hour.csv", "gpu"):
        assert find_gpu(name)
    with (DATA / "systems_and_list_prices.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            system = find_system(row["system"])
            assert system.gpu == find_gpu(row["gpu"]).name
            assert system.gpus == int(row["n_gpus"])
            listed = float(row["max_power_w"]) if row["max_power_w"] else None
            assert system.max_power_w == POWER_READ_SINCE.get(system.name, listed)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("llama3-8b", "llama-3-8b"),
        ("llama-v3-8b", "llama-3-8b"),
        ("Llama 3 8B", "llama-3-8b"),
        ("meta/llama3-70b-instruct", "llama-3-70b"),
        ("meta-llama/Llama-3.1-405B-Instruct", "llama-3.1-405b"),
        ("llama-v3p1-70b-instruct", "llama-3.1-70b"),
        ("llama3.1-8b", "llama-3.1-8b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
        ("llama2-70b", "llama-2-70b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistral-7b-v0.1", "mistral-7b"),
        ("EleutherAI/gpt-j-6b", "gpt-j-6b"),
        ("gptj-6b", "gpt-j-6b"),
        ("tiiuae/falcon-180B-chat", "falcon-180b"),
        ("nemo-gpt-43b", "gpt-43b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen 2.5 72B", "qwen2.5-72b"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("meta-llama/Llama-3.2-3B-Instruct", "llama-3.2-3b"),
        ("google/gemma-2-27b-it", "gemma-2-27b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("microsoft/Phi-3-mini-128k-instruct", "phi-3-mini"),
        ("microsoft/phi-4", "phi-4"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama-3.1-nemotron-70b"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b"),
        ("mistralai/Mistral-Large-Instruct-2411", "mistral-large-123b"),
    ],
)
def test_spellings_of_models(spelling: str, name: str) -> None:
    assert find_model(spelling).name == name


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("H100", "h100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("h100-pcie", "h100-pcie-80gb"),
        ("A100-80GB", "a100-sxm-80gb"),
        ("A100-SXM4-40GB", "a100-sxm-40gb"),
        ("H200", "h200-sxm-141gb"),
        ("GB200", "gb200-186gb"),
        ("B200-SXM", "b200-sxm-180gb"),
        ("Tesla T4", "t4"),
        ("amd mi300x", "mi300x"),
    ],
)
def test_spellings_of_gpus(spelling: str, name: str) -> None:
    assert find_gpu(spelling).name == name


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("nim (tensorrt-llm)", "nim-2024"),
        ("tensorrt-llm", "tensorrt-llm-1.2"),
        ("trtllm", "tensorrt-llm-1.2"),
        ("tensorrt-llm-0.x", "tensorrt-llm-0.15"),
        ("tensorrt-llm 0.9", "tensorrt-llm-0.9"),
        ("tensorrt-llm 0.10", "tensorrt-llm-0.10"),
        ("tensorrt-llm 0.13.0", "tensorrt-llm-0.10"),
        ("tensorrt-llm 0.14", "tensorrt-llm-0.15"),
        ("tensorrt-llm 0.15.0", "tensorrt-llm-0.15"),
        ("TensorRT-LLM v1.0.0rc3", "tensorrt-llm-1.0"),
        ("TensorRT-LLM v1.2.0rc3", "tensorrt-llm-1.2"),
        ("tensorrt-llm 1.1.0", "tensorrt-llm-1.1"),
        ("sglang v0.5.12-cu130", "sglang-0.5.9"),
        ("sglang v0.5.14-rocm720-mi35x", "sglang-0.5.9"),
        ("sglang 0.5.6.post2", "sglang-0.5"),
        ("vllm v0.19.0-cu130", "vllm-0.19"),
        ("vllm 0.25.1", "vllm-0.21"),
        ("vllm 0.33", "vllm-0.32"),
        ("tensorrt-llm 1.3.0rc14", "tensorrt-llm-1.2"),
        ("tensorrt-llm 1.2.0rc6.post2", "tensorrt-llm-1.2"),
        ("vllm-rocm", "vllm-0.32"),
        ("atom 0.1.2.post", "atom-0.1"),
        ("sglang 0.5.10", "sglang-0.5.9"),
        ("tensorrt-llm-1.x", "tensorrt-llm-1.2"),
        ("vllm", "vllm-0.32"),
        ("vllm 0.10.2", "vllm-0.10"),
        ("vllm 0.13", "vllm-0.12"),
        ("vllm 0.14.0", "vllm-0.19"),
        ("vllm 0.19.1", "vllm-0.19"),
        ("vllm==0.31.2", "vllm-0.21"),
        ("vllm 0.32.0", "vllm-0.32"),
        ("vllm 1.0", "vllm-0.32"),
    ],
)
def test_engines_by_nearest_version_at_or_below(spelling: str, name: str) -> None:
    assert find_engine(spelling).name == name


@pytest.mark.parametrize("family", sorted({spec.family for spec in engines()}))
def test_a_bare_engine_name_is_the_newest_preset(family: str) -> None:
    """By the first version that each speaks for, in numbers: 0.32 is newer than 0.4."""
    since = {spec.name: tuple(map(int, spec.since.split("."))) for spec in engines() if spec.family == family}
    assert find_engine(family).name == max(since, key=lambda name: since[name])


@pytest.mark.parametrize("name", ["sglang 0.3", "nanoserve 0.5", "vllm 0.6.3", "tensorrt-llm 0.5", "0.15", "", "vllm 0..3"])
def test_unknown_engines(name: str) -> None:
    with pytest.raises(UnknownName, match=r"^unknown engine "):
        find_engine(name)


@pytest.mark.parametrize("find", [find_model, find_gpu, find_system, find_engine])
@given(st.text(max_size=30) | st.sampled_from(["\n", "a\nb", "/", "\0/", "x" * 5000 + "/", "../", ".json"]))
def test_any_text_finds_or_is_refused_in_one_line(find: Callable[[str], object], text: str) -> None:
    try:
        find(text)
    except InputError as error:
        message = str(error)
    else:
        return
    assert len(message.splitlines()) == 1


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(UnknownName, match="llama-3-8b"):
        find_model("llama-3-9b")
    with pytest.raises(UnknownName, match="h100-sxm-80gb"):
        find_gpu("h100-sxm-90gb")
    with pytest.raises(UnknownName, match="dgx-h100"):
        find_system("dgx-h1000")


def test_every_gpu_has_a_system() -> None:
    assert {system.gpu for system in systems()} == {gpu.name for gpu in gpus()}
    for gpu in gpus():
        assert system_of(gpu).gpu == gpu.name
        assert system_of(replace(gpu, name="of-tomorrow")).name == "8xof-tomorrow"
    assert find_system("8xL40S").gpu == "l40s"
    assert find_system("8xl4").gpus == 8
    assert find_system("DGX H100").name == "dgx-h100"


def test_numbers_of_gpus_are_possible() -> None:
    for gpu in gpus():
        assert 0.85 < gpu.memory_bytes / (gpu.memory_gb * 1e9) < 1.1, gpu.name
        assert gpu.fp8_tflops is None or gpu.fp16_tflops <= gpu.fp8_tflops <= 2.1 * gpu.fp16_tflops
        assert (gpu.link_gb_s == 0) == (gpu.link == "pcie"), gpu.name
        assert gpu.tp_link_bytes_s(2) > 0, gpu.name


def test_gpus_of_a_mesh_share_their_links_among_the_others() -> None:
    assert [find_gpu("gh200-96gb-hbm3").tp_link_bytes_s(n) for n in (1, 2, 4)] == [450e9, 150e9, 450e9]


def test_bridges_join_as_many_as_they_join() -> None:
    pair, four = find_gpu("h100-nvl-94gb"), find_gpu("h200-nvl-141gb")
    assert [pair.tp_link(n) for n in (2, 4)] == ["nvlink-bridge", "pcie"]
    assert [four.tp_link(n) for n in (2, 4, 8)] == ["nvlink-bridge", "nvlink-bridge", "pcie"]


def test_knobs_of_vllm_follow_the_memory() -> None:
    vllm = find_engine("vllm")
    limits = {gpu: default_knobs(vllm, find_gpu(gpu)) for gpu in ("h100", "a100", "l40s", "b200")}
    assert [limits[gpu].max_batch_size for gpu in limits] == [1024, 256, 256, 1024]
    assert [limits[gpu].max_num_tokens for gpu in limits] == [8192, 2048, 2048, 16384]
    assert {knobs.kv_fraction for knobs in limits.values()} == {0.92}
    assert default_knobs(find_engine("vllm-0.19"), find_gpu("h100")).kv_fraction == 0.9


def test_knobs_of_sglang_follow_the_memory() -> None:
    """By the formula of ENGINES.md: 512 MiB, 1.5 MiB per token of a chunk, 128 MiB for a GPU and graphs of 0.5 to 1 GiB."""
    for gpu in ("l40s", "h100", "h200", "b200"):
        knobs, mib = default_knobs(find_engine("sglang"), find_gpu(gpu)), find_gpu(gpu).memory_bytes / 2**20
        kept = 512 + 1.5 * knobs.max_num_tokens + 128 + (1024 if gpu == "b200" else 512)
        assert knobs.kv_fraction == pytest.approx(1 - kept / mib, abs=0.012), gpu


def test_qwen3_gemma_3_and_minimax_normalise_their_heads() -> None:
    families = ("qwen3", "gemma-3-", "gemma-4-", "minimax-", "glm-4.6", "glm-4.7", "hy3")
    latent = {"glm-4.7-flash"}
    named = {model.name for model in models() if model.name.startswith(families)}
    assert {model.name for model in models() if model.head_norms} == named - latent
    assert {model.name for model in models() if model.joint_norms} == {"minimax-m2.5", "minimax-m2.7"}


def test_checkpoints_in_fp8_by_blocks_are_those_of_deepseek_qwen3_and_minimax() -> None:
    names = ("qwen3", "deepseek-", "minimax-", "glm-", "mimo-", "step-")
    named = {model.name for model in models() if model.name.startswith(names)}
    assert {model.name for model in models() if model.block_fp8} == named - {"glm-4.7-flash", "minimax-m3", "qwen3.8-2.4t-a95b"}


def test_knobs_of_tensorrt_llm_do_not() -> None:
    for gpu in gpus():
        assert default_knobs(find_engine("nim"), gpu).max_num_tokens == 32768
        assert default_knobs(find_engine("tensorrt-llm-0.15"), gpu).max_batch_size == 2048


def test_search_needs_all_words() -> None:
    assert [entry.name for entry in search("llama 405b")] == ["llama-3.1-405b"]
    assert "dgx-h100" in [entry.name for entry in search("H100")]
    assert search("no such thing") == ()


LOAD = """
import sys
from tonnage.spec.catalog import find_engine, find_gpu, find_model
find_model("llama-3-8b"), find_gpu("h100"), find_engine("nim")
print("numpy" in sys.modules)
"""


def test_the_catalog_loads_without_numpy() -> None:
    """Which takes longer than all of it (``./benchmark import_time``)."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
