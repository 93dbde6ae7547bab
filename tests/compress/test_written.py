"""Small models in every format that the CPU can make, read again and judged a second time (./check
--compress)."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.compress.conftest import Made
from tonnage.compress.recipes import LLM_COMPRESSOR, MODELOPT
from tonnage.compress.run import Compressed, python_of
from tonnage.deploy.checkpoint import MANIFEST

pytestmark = pytest.mark.compress
DENSE = ("fp8", "fp8-block", "int8", "w4a16-gptq", "w4a8", "nvfp4", "mxfp4", "kv-fp8")
WRITTEN = [
    *(("llama", form, LLM_COMPRESSOR) for form in DENSE),
    *(("windows", form, LLM_COMPRESSOR) for form in DENSE if form != "int8"),
    *(("experts", form, LLM_COMPRESSOR) for form in ("fp8", "mxfp4")),
    *((model, "2:4", MODELOPT) for model in ("llama", "windows", "experts")),
]
"""Models, formats and tools whose checkpoint transformers reads."""

FOR_ENGINES = [
    *(
        (model, form, MODELOPT)
        for model in ("llama", "windows")
        for form in ("fp8", "w4a16-awq", "w4a8", "kv-fp8")
    ),
    *(("experts", form, MODELOPT) for form in ("fp8", "kv-fp8")),
]
"""Those whose checkpoint engines alone read: the model in memory was judged."""

ALGORITHMS = {"fp8": "FP8", "w4a16-awq": "W4A16_AWQ", "w4a8": "W4A8_AWQ", "kv-fp8": None}
"""What Model Optimizer calls them."""

JUDGE = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
ids = AutoTokenizer.from_pretrained(sys.argv[2])(open(sys.argv[1]).read())["input_ids"]
rows = [torch.tensor([ids[at : at + 512]]) for at in range(0, 16 * 512, 512) if at + 1 < len(ids)]
found = []
for folder in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    with torch.no_grad():
        losses = [(torch.nn.functional.cross_entropy(model(row, use_cache=False).logits[0, :-1].float(), row[0, 1:], reduction="sum"),
                   row.numel() - 1) for row in rows]
    found.append(torch.exp(sum(a for a, _ in losses) / sum(n for _, n in losses)).item())
print(json.dumps(found))
"""

TENSORS = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import load_file
def tensors(folder):
    return {name: one for file in Path(folder).glob("*.safetensors") for name, one in load_file(file).items()}
"""
ERRORS = (
    TENSORS
    + """
original, made, found = tensors(sys.argv[1]), tensors(sys.argv[2]), {}
for name, weight in made.items():
    if weight.dtype == torch.float8_e4m3fn:
        dense, other = weight.double() * made[name + "_scale"].double(), original[name].double()
        found[name] = ((dense - other).norm() / other.norm()).item()
print(json.dumps(found))
"""
)
ZEROS = (
    TENSORS
    + """
found = []
for name, weight in tensors(sys.argv[1]).items():
    if "self_attn" in name and name.endswith("proj.weight"):
        found += (weight.reshape(-1, 4) == 0).sum(1).unique().tolist()
print(json.dumps(found))
"""
)


def judged_again(models: Path, found: Compressed, model: str) -> list[float]:
    """The perplexity of the original on the held-back text, and of the checkpoint where
    transformers reads it."""
    read = [
        models / model,
        *([found.folder] if found.manifest["judged"].startswith("reloaded") else []),
    ]
    words = [
        str(python_of(LLM_COMPRESSOR, print)),
        "-c",
        JUDGE,
        str(models / "held.txt"),
        *map(str, read),
    ]
    perplexities: list[float] = json.loads(
        subprocess.run(
            words, check=True, capture_output=True, text=True, timeout=600
        ).stdout.splitlines()[-1]
    )
    return perplexities


@pytest.mark.parametrize(("model", "form", "tool"), WRITTEN)
def test_what_is_written_is_read_again_with_the_figures_of_its_manifest(
    models: Path, made: Made, model: str, form: str, tool: str
) -> None:
    found = made(model, form, tool)
    kept = json.loads((found.folder / MANIFEST).read_text(encoding="utf-8"))
    before, after = judged_again(models, found, model)
    assert kept["figures"]["held_back"]["perplexity_original"] == pytest.approx(before, rel=1e-3)
    assert kept["figures"]["held_back"]["perplexity"] == pytest.approx(after, rel=1e-3)
    assert kept["figures"]["held_back"]["kl_nats"] > 0 or form == "kv-fp8"
    assert kept["bytes"] == sum(file.stat().st_size for file in found.folder.glob("*.safetensors"))
    assert kept["bytes"] < kept["original_bytes"] or form in ("kv-fp8", "2:4")
    said = json.loads((found.folder / "config.json").read_text(encoding="utf-8")).get(
        "quantization_config", {}
    )
    assert said.get("quant_method") == (None if form == "2:4" else "compressed-tensors")


@pytest.mark.parametrize(("model", "form", "tool"), FOR_ENGINES)
def test_what_engines_alone_read_was_judged_in_memory(
    models: Path, made: Made, model: str, form: str, tool: str
) -> None:
    found = made(model, form, tool)
    assert found.manifest["judged"].startswith("in memory")
    (before,) = judged_again(models, found, model)
    figures = found.manifest["figures"]["held_back"]
    assert figures["perplexity_original"] == pytest.approx(before, rel=1e-3)
    assert figures["perplexity"] == pytest.approx(before, rel=0.05)
    assert figures["kl_nats"] > 0
    said = json.loads((found.folder / "config.json").read_text(encoding="utf-8"))[
        "quantization_config"
    ]
    assert said["quant_method"] == "modelopt"
    assert said.get("quant_algo") == ALGORITHMS[form]


@pytest.mark.parametrize("model", ["llama", "windows", "experts"])
def test_the_files_of_model_optimizer_hold_the_matrices_that_were_judged(
    models: Path, made: Made, model: str
) -> None:
    found = made(model, "fp8", MODELOPT)
    words = [str(python_of(MODELOPT, print)), "-c", ERRORS, str(models / model), str(found.folder)]
    errors = json.loads(
        subprocess.run(
            words, check=True, capture_output=True, text=True, timeout=600
        ).stdout.splitlines()[-1]
    )
    judged = found.manifest["figures"]["weight_errors"]
    both = sorted(set(errors) & set(judged))
    # four matrices of the attention of two layers; experts have other names in memory
    assert len(both) >= 8
    assert [judged[name] for name in both] == pytest.approx(
        [errors[name] for name in both], rel=0.02
    )


@pytest.mark.parametrize("model", ["llama", "windows", "experts"])
def test_two_of_four_weights_are_zero(models: Path, made: Made, model: str) -> None:
    words = [str(python_of(MODELOPT, print)), "-c", ZEROS, str(made(model, "2:4", MODELOPT).folder)]
    shares = json.loads(
        subprocess.run(
            words, check=True, capture_output=True, text=True, timeout=600
        ).stdout.splitlines()[-1]
    )
    assert len(shares) >= 8
    assert set(shares) == {2}


@pytest.mark.parametrize(
    ("form", "most"), [("fp8", 1.05), ("int8", 1.2), ("nvfp4", 3.0), ("mxfp4", 5.0)]
)
def test_the_perplexity_of_a_real_model(smollm2: Path, made: Made, form: str, most: float) -> None:
    """SmolLM2 135M on a page that the calibration did not see; the page of docs has the figures."""
    found = made("smollm2", form, below=smollm2).manifest
    figures = found["figures"]["held_back"]
    print(
        f"\nsmollm2 {form}: {found['bytes'] / found['original_bytes']:.0%} of the bytes, perplexity"
        f" {figures['perplexity_original']:.2f} before, {figures['perplexity']:.2f} after, same top"
        f" token {figures['top1_agreement']:.1%}, KL {figures['kl_nats']:.4f} nats"
    )
    assert 5 < figures["perplexity_original"] < 100
    assert 0.9 < figures["perplexity"] / figures["perplexity_original"] < most
    assert figures["top1_agreement"] > (0.8 if most < 2 else 0.25)


def test_an_interrupted_run_leaves_no_folder_that_looks_whole(models: Path, tmp_path: Path) -> None:
    chance, output = random.Random(44), tmp_path / "made"
    words = [
        sys.executable,
        "-m",
        "tonnage",
        "compress",
        str(models / "llama"),
        "--format",
        "fp8",
        "--output",
        str(output),
    ]
    for place in range(10):
        with subprocess.Popen(
            [*words, "--text", str(models / "text.txt")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            time.sleep(chance.uniform(0.2, 8.0))
            process.send_signal(signal.SIGKILL if place % 2 else signal.SIGINT)
        assert not output.exists() or (output / MANIFEST).is_file()
        if output.exists():
            output.rename(tmp_path / f"whole-{place}")
    assert len(list(tmp_path.glob("whole-*"))) < 10
