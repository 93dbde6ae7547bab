"""A GGUF of a Llama with random weights and a byte-level BPE tokenizer trained on a sentence: a
real model file, made in a second."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TEXT = (
    "the quick brown fox jumps over the lazy dog and runs away from a very big bear while it rains"
    " in the old town by the sea "
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content']"
    " }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL, NORMAL = 3, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a model."""

    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 128
    vocabulary: int = 512
    context: int = 2048


MILLIONS_56 = Shape(layers=8, hidden=512, heads=8, kv_heads=8, ffn=1536, vocabulary=32_000)
"""About 56 million parameters."""


def write_gguf(path: Path, shape: Shape = Shape(), seed: int = 0) -> Path:
    """Write a model; the same seed writes the same one."""
    import gguf

    tokens, merges = _tokens(shape.vocabulary)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types([CONTROL if token in SPECIAL else NORMAL for token in tokens])
    writer.add_eos_token_id(tokens.index(SPECIAL[0]))
    writer.add_bos_token_id(tokens.index(SPECIAL[0]))
    writer.add_chat_template(TEMPLATE)
    for name, values in _tensors(shape, len(tokens), seed):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tokens(vocabulary: int) -> tuple[list[str], list[str]]:
    """Tokens by id, filled up to the wanted number, and merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocabulary, 600),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    said = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(said["vocab"], key=said["vocab"].get)
    tokens += [f"w{i}" for i in range(vocabulary - len(tokens))]
    return tokens, [one if isinstance(one, str) else " ".join(one) for one in said["merges"]]


def _tensors(shape: Shape, tokens: int, seed: int) -> list[tuple[str, Any]]:
    random = np.random.default_rng(seed)

    def matrix(*size: int, scale: float = 0.3) -> Any:
        return (random.standard_normal(size, np.float32) * scale / size[-1] ** 0.25).astype(
            np.float16
        )

    def ones() -> Any:
        return np.ones(shape.hidden, np.float32)

    hidden, kv = shape.hidden, shape.hidden // shape.heads * shape.kv_heads
    found = [
        ("token_embd.weight", matrix(tokens, hidden, scale=0.9)),
        ("output_norm.weight", ones()),
        ("output.weight", matrix(tokens, hidden)),
    ]
    for i in range(shape.layers):
        sizes = {
            "attn_q": (hidden, hidden),
            "attn_k": (kv, hidden),
            "attn_v": (kv, hidden),
            "attn_output": (hidden, hidden),
        }
        sizes |= {
            "ffn_gate": (shape.ffn, hidden),
            "ffn_up": (shape.ffn, hidden),
            "ffn_down": (hidden, shape.ffn),
        }
        found += [(f"blk.{i}.{name}.weight", matrix(*size)) for name, size in sizes.items()]
        found += [(f"blk.{i}.{name}.weight", ones()) for name in ("attn_norm", "ffn_norm")]
    return found
