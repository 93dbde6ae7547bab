"""Small models with random weights, and the checkpoints that ``compress`` makes of them, each once (./check --compress)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tonnage import api
from tonnage.compress.environment import python_of
from tonnage.compress.recipes import LLM_COMPRESSOR
from tonnage.compress.run import Compressed

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

Made = Callable[..., Compressed]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models "llama", "experts" and "windows", and the texts ``text.txt`` and ``held.txt``."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([str(python_of(LLM_COMPRESSOR, print)), "-c", MAKE, str(folder)], check=True, timeout=600)
    return folder


@pytest.fixture(scope="session")
def made(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Makes a checkpoint of a model in a format by a tool, or returns the one that was made before."""
    kept: dict[tuple[str, str, str], Compressed] = {}
    folder = tmp_path_factory.mktemp("made")

    def of(model: str, form: str, tool: str = LLM_COMPRESSOR, *, output: Path | None = None) -> Compressed:
        key = (model, form, tool)
        if key not in kept:
            place = output or folder / "-".join((tool, model, form.replace(":", "")))
            texts = {"text": models / "text.txt", "held_back": models / "held.txt"}
            found = api.compress(models / model, format=form, tool=tool, output=place, told=print, **texts)
            assert isinstance(found, Compressed)
            kept[key] = found
        return kept[key]

    return of
