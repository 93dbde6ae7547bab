"""Names as buyers copy them from the pages of vendors, clouds and the model hub find their entry; unknown ones suggest near ones."""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.errors import UnknownName
from tonnage.report.facts import catalogued
from tonnage.report.writers.terminal import terminal
from tonnage.spec.catalog import find_gpu, find_model, find_system, machine_meant, system_of
from tonnage.spec.catalog.listed import listed_prices
from tonnage.spec.catalog.lookup import instance_types
from tonnage.spec.catalog.price_list import catalog_prices


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("H200 SXM", "h200-sxm-141gb"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("L40S", "l40s"),
        ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-se"),
        ("AMD Instinct MI355X", "mi355x"),
        ("b300-sxm-288gb", "b300-sxm-270gb"),
        ("mi355x", "mi355x"),
        ("h200-nvl", "h200-nvl-141gb"),
        ("rtx-pro-6000", "rtx-pro-6000-blackwell-se"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("NVIDIA H200 NVL", "h200-nvl-141gb"),
        ("NVIDIA B200", "b200-sxm-180gb"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm-270gb"),
        ("NVIDIA GB200", "gb200-186gb"),
        ("NVIDIA GB300", "gb300-279gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA A10G", "a10g-24gb"),
        ("NVIDIA A10", "a10-24gb"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-se"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-blackwell-max-q"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("RTX 5090", "rtx-5090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("AMD Instinct MI325X", "mi325x"),
        ("AMD Instinct MI350X", "mi350x"),
        ("MI300X 192GB", "mi300x"),
        ("MI355X 288GB", "mi355x"),
        ("Instinct MI325X", "mi325x"),
        ("Intel Gaudi 3", "gaudi3"),
        ("Google TPU v6e", "tpu-v6e"),
        ("TPU v5e", "tpu-v5e"),
        ("Trillium", "tpu-v6e"),
        ("H100 SXM5 80GB", "h100-sxm-80gb"),
        ("H100 SXM 80GB", "h100-sxm-80gb"),
        ("H100 80GB SXM", "h100-sxm-80gb"),
        ("H100 SXM", "h100-sxm-80gb"),
        ("H200 141GB", "h200-sxm-141gb"),
        ("H200 SXM 141GB", "h200-sxm-141gb"),
        ("H200-141GB SXM", "h200-sxm-141gb"),
        ("B200 180GB", "b200-sxm-180gb"),
        ("B200 SXM6", "b200-sxm-180gb"),
        ("B200 192GB", "b200-sxm-180gb"),
        ("B300 288GB", "b300-sxm-270gb"),
        ("B300 SXM", "b300-sxm-270gb"),
        ("H100 NVL 94GB", "h100-nvl-94gb"),
        ("H200 NVL 141GB", "h200-nvl-141gb"),
        ("A100 80GB SXM", "a100-sxm-80gb"),
        ("A100 40GB", "a100-sxm-40gb"),
        ("A100 SXM4 40GB", "a100-sxm-40gb"),
        ("A100 PCIe 80GB", "a100-pcie-80gb"),
        ("GH200 96GB", "gh200-96gb-hbm3"),
        ("GH200 480GB", "gh200-96gb-hbm3"),
        ("NVIDIA GH200 480GB", "gh200-96gb-hbm3"),
        ("GB200 Superchip", "gb200-186gb"),
        ("H800", "h800-sxm-80gb"),
        ("H20", "h20-96gb"),
        ("L40S 48GB", "l40s"),
        ("L4 24GB", "l4"),
        ("A30", "a30-24gb"),
        ("NVIDIA A30", "a30-24gb"),
    ],
)
def test_spellings_of_gpus_on_the_pages_of_vendors_and_clouds(spelling: str, name: str) -> None:
    assert find_gpu(spelling).name == find_gpu(spelling.upper()).name == name


MACHINES = (
    ("DGX B200", "dgx-b200"),
    ("HGX B300", "dgx-b300"),
    ("GB300 NVL72", "gb300-nvl72"),
    ("gb200-nvl72", "gb200-nvl72"),
    ("gb300-nvl72", "gb300-nvl72"),
    ("HGX H100", "dgx-h100"),
    ("HGX H200", "dgx-h200"),
    ("HGX B200", "dgx-b200"),
    ("DGX H100", "dgx-h100"),
    ("DGX H200", "dgx-h200"),
    ("DGX A100", "dgx-a100"),
    ("DGX B300", "dgx-b300"),
    ("p5.48xlarge", "p5.48xlarge"),
    ("p5e.48xlarge", "p5e.48xlarge"),
    ("p5en.48xlarge", "p5en.48xlarge"),
    ("p5.4xlarge", "p5.4xlarge"),
    ("p6-b200.48xlarge", "p6-b200.48xlarge"),
    ("p6-b300.48xlarge", "p6-b300.48xlarge"),
    ("p6e-gb200.36xlarge", "p6e-gb200.36xlarge"),
    ("u-p6e-gb200x72", "u-p6e-gb200x72"),
    ("g6e.12xlarge", "g6e.12xlarge"),
    ("g6.xlarge", "g6.xlarge"),
    ("g5.xlarge", "g5.xlarge"),
    ("g7e.48xlarge", "g7e.48xlarge"),
    ("p4d.24xlarge", "p4d.24xlarge"),
    ("p4de.24xlarge", "p4de.24xlarge"),
    ("g4dn.xlarge", "g4dn.xlarge"),
    ("a3-highgpu-8g", "a3-highgpu-8g"),
    ("a3-highgpu-1g", "a3-highgpu-1g"),
    ("a3-megagpu-8g", "a3-megagpu-8g"),
    ("a3-ultragpu-8g", "a3-ultragpu-8g"),
    ("a4-highgpu-8g", "a4-highgpu-8g"),
    ("a4x-highgpu-4g", "a4x-highgpu-4g"),
    ("g2-standard-96", "g2-standard-96"),
    ("g4-standard-384", "g4-standard-384"),
    ("a2-ultragpu-8g", "a2-ultragpu-8g"),
    ("Standard_ND96isr_H200_v5", "ND96isr_H200_v5"),
    ("Standard_ND96isr_H100_v5", "ND96isr_H100_v5"),
    ("Standard_NC40ads_H100_v5", "NC40ads_H100_v5"),
    ("Standard_NC24ads_A100_v4", "NC24ads_A100_v4"),
    ("Standard_ND96amsr_A100_v4", "ND96amsr_A100_v4"),
    ("Standard_ND96isr_MI300X_v5", "ND96isr_MI300X_v5"),
    ("Standard_ND128isr_NDR_GB200_v6", "ND128isr_NDR_GB200_v6"),
    ("Standard_ND128isr_GB300_v6", "ND128isr_GB300_v6"),
    ("ND GB200 v6", "ND128isr_NDR_GB200_v6"),
    ("ND GB300 v6", "ND128isr_GB300_v6"),
    ("ND H100 v5", "ND96isr_H100_v5"),
    ("ND H200 v5", "ND96isr_H200_v5"),
    ("ND MI300X v5", "ND96isr_MI300X_v5"),
    ("NC H100 v5", "NC80adis_H100_v5"),
    ("NC A100 v4", "NC96ads_A100_v4"),
    ("BM.GPU.H100.8", "BM.GPU.H100.8"),
    ("BM.GPU.H200.8", "BM.GPU.H200.8"),
    ("BM.GPU.B200.8", "BM.GPU.B200.8"),
    ("BM.GPU.GB200.4", "BM.GPU.GB200.4"),
    ("BM.GPU.MI300X.8", "BM.GPU.MI300X.8"),
    ("BM.GPU.MI355X.8", "BM.GPU.MI355X.8"),
    ("BM.GPU.L40S.4", "BM.GPU.L40S.4"),
    ("BM.GPU.A100-v2.8", "BM.GPU.A100-v2.8"),
    ("gpu_8x_h100_sxm5", "dgx-h100"),
    ("gpu_1x_b200_sxm6", "1xb200-sxm-180gb"),
    ("gpu_1x_h100_pcie", "1xh100-pcie-80gb"),
    ("gpu_8x_a100_80gb_sxm4", "dgx-a100"),
)


@pytest.mark.parametrize(("spelling", "name"), MACHINES)
def test_spellings_of_systems_and_machine_types_name_their_gpu_too(spelling: str, name: str) -> None:
    found = find_system(spelling)
    assert found.name == name
    assert find_gpu(spelling).name == found.gpu
    meant = machine_meant(spelling)
    assert meant == found or (meant is None and system_of(find_gpu(spelling)) == found), "HGX is the board and the server"


def test_machine_types_have_the_gpus_of_their_offers() -> None:
    offered = {(offer.gpu, size) for offer in catalog_prices().cloud for size in offer.machine_gpus}
    for name, machine in instance_types().items():
        assert find_gpu(machine.gpu).name == machine.gpu, name
        assert (machine.gpu, machine.gpus) in offered or machine.source.endswith("(recalled)"), name
        assert machine.source, name
        assert machine.date, name


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2.5"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-V4-Flash", "deepseek-v4-flash"),
        ("deepseek-ai/DeepSeek-V4-Pro", "deepseek-v4-pro"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama-4-maverick"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3-235b-a22b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b"),
        ("Qwen/Qwen3-VL-235B-A22B-Instruct", "qwen3-vl-235b-a22b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b"),
        ("Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"),
        ("Qwen/Qwen3-Coder-Next", "qwen3-coder-next"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2.5"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2.5"),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
        ("moonshotai/Kimi-K3", "kimi-k3"),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "kimi-linear-48b-a3b"),
        ("zai-org/GLM-4.5-Air", "glm-4.5-air"),
        ("zai-org/GLM-4.6", "glm-4.6"),
        ("zai-org/GLM-4.7", "glm-4.7"),
        ("zai-org/GLM-4.7-Flash", "glm-4.7-flash"),
        ("zai-org/GLM-5", "glm-5"),
        ("zai-org/GLM-4.5", "glm-4.6"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral-8x22b"),
        ("mistralai/Mistral-Large-Instruct-2411", "mistral-large-123b"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-24b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("google/gemma-3-12b-it", "gemma-3-12b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("google/gemma-4-31b-it", "gemma-4-31b"),
        ("google/gemma-4-26b-a4b-it", "gemma-4-26b-a4b"),
        ("microsoft/phi-4", "phi-4"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini-4k"),
        ("microsoft/Phi-3-medium-128k-instruct", "phi-3-medium"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2.5"),
        ("MiniMaxAI/MiniMax-M2", "minimax-m2.5"),
        ("MiniMaxAI/MiniMax-M3", "minimax-m3"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama-3.1-nemotron-70b"),
        ("nvidia/Nemotron-4-340B-Instruct", "nemotron-4-340b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
        ("stepfun-ai/Step-3.7-Flash", "step-3.7-flash"),
        ("XiaomiMiMo/MiMo-V2-Flash", "mimo-v2-flash"),
        ("tiiuae/falcon-180B", "falcon-180b"),
        ("EleutherAI/gpt-j-6b", "gpt-j-6b"),
        ("tencent/HY3", "hy3"),
        ("QWEN/qwen3-32b", "qwen3-32b"),
        ("LLAMA-3.1-8B", "llama-3.1-8b"),
        ("Llama 3.1 8B Instruct", "llama-3.1-8b"),
        ("gpt-oss 120b", "gpt-oss-120b"),
        ("GPT-OSS-120B", "gpt-oss-120b"),
        ("DeepSeek V3.2", "deepseek-v3.2"),
        ("deepseek-v3.2", "deepseek-v3.2"),
        ("Kimi K2", "kimi-k2.5"),
        ("Qwen3-32B", "qwen3-32b"),
        ("qwen3 235b a22b", "qwen3-235b-a22b"),
        ("llama3.1:8b", "llama-3.1-8b"),
        ("llama3.3:70b", "llama-3.3-70b"),
        ("gpt-oss:120b", "gpt-oss-120b"),
        ("deepseek-r1:671b", "deepseek-r1"),
        ("qwen3:32b", "qwen3-32b"),
        ("llama-3-70b-instruct", "llama-3-70b"),
        ("mixtral-8x7b-instruct", "mixtral-8x7b"),
    ],
)
def test_models_by_their_hub_names_whatever_the_case_and_without_the_owner(spelling: str, name: str) -> None:
    for written in (spelling, spelling.lower(), spelling.upper(), spelling.rpartition("/")[2]):
        assert find_model(written).name == name


@pytest.mark.parametrize(
    ("find", "name", "near"),
    [
        (find_gpu, "h1000", "h100"),
        (find_gpu, "GB200 NVL4", "gb200-186gb"),
        (find_gpu, "mi355", "mi355x"),
        (find_system, "gb200-nvl73", "gb200-nvl72"),
        (find_system, "dgx-h1000", "dgx-h100"),
        (find_model, "Qwen/Qwen3-33B", "qwen3-32b"),
        (find_model, "meta-llama/Llama-3.1-9B-Instruct", "llama-3.1-8b"),
    ],
)
def test_an_unknown_name_suggests_near_ones(find, name: str, near: str) -> None:
    with pytest.raises(UnknownName, match=f"did you mean .*{near}"):
        find(name)


# The catalog's prices as a list: all of them, found by words, and shown with source and date.


PRICES = catalog_prices()


def test_every_price_is_listed_with_a_unit_a_source_and_a_date() -> None:
    listed = listed_prices()
    assert all(price.unit and price.source and price.date for price in listed)
    assert all(0 < price.low <= price.value <= price.high for price in listed)
    kinds = [price.kind for price in listed]
    assert kinds.count("cloud") == len(PRICES.cloud)
    assert kinds.count("api") == 2 * len(PRICES.api)
    assert {price.name for price in listed if price.kind == "system" and price.estimate} >= {"dgx-b300", "mi300x-8", "8xl40s"}


@pytest.mark.parametrize(
    ("text", "name"),
    [("dgx-h100", "dgx-h100"), ("AWS p5.48xlarge", "h100-sxm-80gb"), ("api llama 3.1 70b", "llama-3.1-70b"), ("pue", "pue")],
)
def test_prices_are_found_by_words(text: str, name: str) -> None:
    found = listed_prices(text)
    assert {price.name for price in found} == {name}
    assert len(found) < 6


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_prices_are_shown_with_day_and_source_at_every_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = terminal(catalogued(api.catalog("dgx-b300")))
    assert "468,000 (estimate)" in text
    assert "2026-08-08" in text
    assert "estimate: 8 × 45,000 USD" in text
    cloud = terminal(catalogued(api.catalog("AWS p5en")))
    assert "h200-sxm-141gb in a cloud, USD per GPU and hour (2)" in cloud
    assert "7.912" in cloud
    assert "2026-07-20" in cloud
    assert "github.com/aws/karp" in cloud
    assert "llama-3.1-70b" in terminal(catalogued(api.catalog("prices")))
