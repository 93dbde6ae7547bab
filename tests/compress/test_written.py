"""Small models in every format that the CPU can make, read again and judged a second time (./check --compress)."""

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
from tonnage.compress.environment import python_of
from tonnage.compress.recipes import LLM_COMPRESSOR
from tonnage.deploy.checkpoint import MANIFEST
from tonnage.errors import InputError

pytestmark = pytest.mark.compress
DENSE = ("fp8", "fp8-block", "int8", "w4a16-gptq", "w4a8", "nvfp4", "mxfp4", "kv-fp8")
WRITTEN = {"llama": DENSE, "windows": tuple(one for one in DENSE if one != "int8"), "experts": ("fp8", "mxfp4")}
REFUSED = {"llama": ("w4a16-awq",), "windows": ("int8", "w4a16-awq"), "experts": ("w4a16-gptq", "nvfp4")}

JUDGE = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
ids = AutoTokenizer.from_pretrained(sys.argv[1])(open(sys.argv[3]).read())["input_ids"]
rows = [torch.tensor([ids[at : at + 512]]) for at in range(0, 16 * 512, 512) if at + 1 < len(ids)]
found = []
for folder in sys.argv[1:3]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    with torch.no_grad():
        losses = [(torch.nn.functional.cross_entropy(model(row, use_cache=False).logits[0, :-1].float(), row[0, 1:], reduction="sum"),
                   row.numel() - 1) for row in rows]
    found.append(torch.exp(sum(a for a, _ in losses) / sum(n for _, n in losses)).item())
print(json.dumps(found))
"""


@pytest.mark.parametrize(("model", "form"), [(model, form) for model, forms in WRITTEN.items() for form in forms])
def test_what_is_written_is_read_again_with_the_figures_of_its_manifest(models: Path, made: Made, model: str, form: str) -> None:
    found = made(model, form)
    kept = json.loads((found.folder / MANIFEST).read_text(encoding="utf-8"))
    words = [str(python_of(LLM_COMPRESSOR, print)), "-c", JUDGE, str(models / model), str(found.folder), str(models / "held.txt")]
    before, after = json.loads(subprocess.run(words, check=True, capture_output=True, text=True, timeout=600).stdout.splitlines()[-1])
    assert kept["figures"]["held_back"]["perplexity_original"] == pytest.approx(before, rel=1e-3)
    assert kept["figures"]["held_back"]["perplexity"] == pytest.approx(after, rel=1e-3)
    assert kept["bytes"] == sum(file.stat().st_size for file in found.folder.glob("*.safetensors"))
    if form != "kv-fp8":
        assert kept["bytes"] < kept["original_bytes"]
        assert kept["figures"]["held_back"]["kl_nats"] > 0
    said = json.loads((found.folder / "config.json").read_text(encoding="utf-8"))["quantization_config"]
    assert said["quant_method"] == "compressed-tensors"


@pytest.mark.parametrize(("model", "form"), [(model, form) for model, forms in REFUSED.items() for form in forms])
def test_what_the_tool_cannot_write_is_refused_and_leaves_nothing(made: Made, model: str, form: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        made(model, form, output=tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


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
        "--text",
        str(models / "text.txt"),
    ]
    for place in range(10):
        with subprocess.Popen(
            [*words, "--text", str(models / "text.txt")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(chance.uniform(0.2, 8.0))
            process.send_signal(signal.SIGKILL if place % 2 else signal.SIGINT)
        assert not output.exists() or (output / MANIFEST).is_file()
        if output.exists():
            output.rename(tmp_path / f"whole-{place}")
    assert len(list(tmp_path.glob("whole-*"))) < 10
