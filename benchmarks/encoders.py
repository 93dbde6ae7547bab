"""The seconds of encoders and encoder-decoders on one core of this machine, as examples/services
has them.

    ./benchmark encoders [roberta] [whisper] [blip2]

RoBERTa, Whisper and BLIP-2 with random weights of their published shapes, in FP32 on one thread of
PyTorch. The time is CPU time of the process, the median of five, which other work on the machine
hardly changes. torch and transformers are those of ``requirements/vllm.txt``.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date

RUNS = 5
Run = Callable[[int], object]


def roberta() -> tuple[str, tuple[int, ...], Run]:
    """RoBERTa-base: 12 layers of 768 (Liu et al. 2019), 128 tokens."""
    import torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    model = RobertaForSequenceClassification(
        RobertaConfig(vocab_size=50_265, max_position_embeddings=514)
    ).eval()
    return (
        "RoBERTa-base, 128 tokens",
        (1, 2, 4, 8),
        lambda n: model(input_ids=torch.randint(5, 50_000, (n, 128))),
    )


def whisper() -> tuple[str, tuple[int, ...], Run]:
    """Whisper base: 6 + 6 layers of 512 (Radford et al. 2022), 30 s of sound, 32 tokens."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {
        "d_model": 512,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
    }
    model = WhisperForConditionalGeneration(
        WhisperConfig(**sizes, encoder_ffn_dim=2048, decoder_ffn_dim=2048)
    ).eval()

    def run(n: int) -> object:
        state = model.model.encoder(torch.randn(n, 80, 3000))
        return decoded(
            lambda ids, past: model(
                decoder_input_ids=ids, encoder_outputs=state, past_key_values=past
            ),
            n,
            1,
            32,
        )

    return "Whisper base, 30 s of sound, 32 tokens out", (1, 2, 4), run


def blip2() -> tuple[str, tuple[int, ...], Run]:
    """BLIP-2 with OPT-2.7B: ViT-g of 39 layers, a Q-Former of 12 (Li et al. 2023), 32 query and 8
    text tokens, 8 tokens out.

    OPT has 32 equal layers, of which four run, eight times each.
    """
    import torch
    from transformers import (
        Blip2QFormerConfig,
        Blip2QFormerModel,
        Blip2VisionConfig,
        Blip2VisionModel,
        OPTConfig,
        OPTForCausalLM,
    )

    eyes = Blip2VisionModel(
        Blip2VisionConfig(
            hidden_size=1408, intermediate_size=6144, num_hidden_layers=39, num_attention_heads=16
        )
    ).eval()
    former = Blip2QFormerModel(Blip2QFormerConfig(encoder_hidden_size=1408)).eval()
    sizes = {
        "hidden_size": 2560,
        "word_embed_proj_dim": 2560,
        "ffn_dim": 10_240,
        "num_attention_heads": 32,
    }
    words = OPTForCausalLM(OPTConfig(**sizes, num_hidden_layers=4)).eval()

    def run(n: int) -> object:
        seen = eyes(torch.randn(n, 3, 224, 224)).last_hidden_state
        former(query_embeds=torch.randn(n, 32, 768), encoder_hidden_states=seen)
        for _ in range(8):
            decoded(lambda ids, past: words(input_ids=ids, past_key_values=past), n, 40, 8)
        return seen

    return "BLIP-2 with OPT-2.7B, an image, 8 tokens in and out", (1, 2), run


def decoded(step: Callable[..., object], n: int, prompt: int, tokens: int) -> object:
    """Greedy decoding with a cache."""
    import torch

    found = step(torch.randint(5, 50_000, (n, prompt)), None)
    for _ in range(tokens - 1):
        found = step(found.logits[:, -1:].argmax(-1), found.past_key_values)  # type: ignore[attr-defined]
    return found


def main() -> None:
    """Print the time of each batch of each model, as a service file has it."""
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {"roberta": roberta, "whisper": whisper, "blip2": blip2}
    parser.add_argument("names", nargs="*", help=", ".join(known))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print(
        f"{platform.machine()}, one thread of torch {torch.__version__}, FP32,"
        f" {date.today().isoformat()}",
        flush=True,
    )
    for name in parser.parse_args().names or known:
        title, batches, run = known[name]()
        found = {}
        with torch.inference_mode():
            for batch in batches:
                run(batch)
                seconds = []
                for _ in range(RUNS):
                    begun = time.process_time()
                    run(batch)
                    seconds.append(time.process_time() - begun)
                found[batch] = statistics.median(seconds)
        print(
            f"{title}\n      time:"
            f" {{{', '.join(f'{batch}: {1e3 * one:.0f}ms' for batch, one in found.items())}}}",
            flush=True,
        )


if __name__ == "__main__":
    main()
