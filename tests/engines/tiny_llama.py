"""Makes a Llama of random weights with a tokenizer of its own; run by the Python of the engines'
environment.

    python tiny_llama.py FOLDER [LAYERS HIDDEN]

Without a size it has 8 layers of 512, 32 million weights. The tokenizer is a byte-level BPE trained
on invented words, so that nothing is downloaded.
"""

import random
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LAYERS, HIDDEN, VOCABULARY = 8, 512, 8_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def tokenizer() -> Tokenizer:
    """A tokenizer of words that nobody speaks."""
    rng = random.Random(0)
    words = ["".join(rng.choice(LETTERS) for _ in range(rng.randint(2, 9))) for _ in range(6_000)]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(
        [" ".join(rng.choice(words) for _ in range(50)) for _ in range(3_000)], trainer
    )
    return made


def main(folder: str, layers: int = LAYERS, hidden: int = HIDDEN) -> None:
    """Write the model and the tokenizer as transformers does."""
    torch.manual_seed(0)
    words = tokenizer()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128,
        head_dim=64,
        vocab_size=words.get_vocab_size(),
        max_position_embeddings=16_384,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
