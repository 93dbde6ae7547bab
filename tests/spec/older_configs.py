"""``config.json`` of older dense families, with the parameters that their makers publish in billions.

The numbers are those of the files on huggingface.co under the names given, recalled and checked against the published totals.
"""

from __future__ import annotations

from typing import Any


def _plain(architecture: str, *sizes: int, **more: Any) -> dict[str, Any]:
    """A file with the keys that most families share; ``sizes`` are hidden, layers, heads, MLP, vocabulary and context."""
    hidden, layers, heads, ffn, vocab, context = sizes
    return {
        "architectures": [architecture],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        **more,
    }


OLDER: list[tuple[dict[str, Any], float]] = [
    # bigscience/bloom
    ({"architectures": ["BloomForCausalLM"], "n_layer": 70, "hidden_size": 14336, "n_head": 112, "vocab_size": 250880}, 176.25),
    # facebook/opt-66b
    (
        {
            "architectures": ["OPTForCausalLM"],
            "num_hidden_layers": 64,
            "hidden_size": 9216,
            "num_attention_heads": 72,
            "ffn_dim": 36864,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
        },
        65.7,
    ),
    # mosaicml/mpt-30b
    (
        {
            "architectures": ["MPTForCausalLM"],
            "n_layers": 48,
            "d_model": 7168,
            "n_heads": 64,
            "expansion_ratio": 4,
            "max_seq_len": 8192,
            "vocab_size": 50432,
            "attn_config": {"alibi": True},
        },
        29.96,
    ),
    # the same as transformers writes it
    (
        {
            "architectures": ["MptForCausalLM"],
            "n_layers": 32,
            "d_model": 4096,
            "n_heads": 32,
            "max_seq_len": 2048,
            "vocab_size": 50432,
        },
        6.65,
    ),
    # gpt2-xl, bigcode/starcoder
    (
        {"architectures": ["GPT2LMHeadModel"], "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024, "vocab_size": 50257},
        1.555,
    ),
    (
        {
            "architectures": ["GPTBigCodeForCausalLM"],
            "n_layer": 40,
            "n_embd": 6144,
            "n_head": 48,
            "n_inner": 24576,
            "n_positions": 8192,
            "multi_query": True,
            "vocab_size": 49152,
        },
        15.5,
    ),
    # baichuan-inc/Baichuan2-13B-Base, baichuan-inc/Baichuan-7B
    (_plain("BaichuanForCausalLM", 5120, 40, 40, 13696, 125696, 4096), 13.9),
    (_plain("BaiChuanForCausalLM", 4096, 32, 32, 11008, 64000, 4096), 7.0),
    # THUDM/chatglm3-6b, THUDM/glm-4-9b
    (
        {
            "architectures": ["ChatGLMModel"],
            "num_layers": 28,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "multi_query_group_num": 2,
            "kv_channels": 128,
            "ffn_hidden_size": 13696,
            "padded_vocab_size": 65024,
            "seq_length": 8192,
        },
        6.24,
    ),
    (
        {
            "architectures": ["ChatGLMForConditionalGeneration"],
            "num_layers": 40,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "multi_query_group_num": 2,
            "kv_channels": 128,
            "ffn_hidden_size": 13696,
            "padded_vocab_size": 151552,
            "seq_length": 131072,
        },
        9.4,
    ),
    # Qwen/Qwen-7B: the file counts gate and product together
    (
        {
            "architectures": ["QWenLMHeadModel"],
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "intermediate_size": 22016,
            "vocab_size": 151936,
            "seq_length": 8192,
        },
        7.72,
    ),
    # Qwen/Qwen1.5-MoE-A2.7B
    (
        _plain(
            "Qwen2MoeForCausalLM",
            2048,
            24,
            16,
            5632,
            151936,
            8192,
            num_key_value_heads=16,
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
            num_experts=60,
            num_experts_per_tok=4,
            decoder_sparse_step=1,
        ),
        14.3,
    ),
    # microsoft/phi-2, stabilityai/stablelm-3b-4e1t, internlm/internlm-20b, internlm2-20b, internlm3-8b
    (_plain("PhiForCausalLM", 2560, 32, 32, 10240, 51200, 2048), 2.78),
    (_plain("StableLmForCausalLM", 2560, 32, 32, 6912, 50304, 4096), 2.8),
    (_plain("InternLMForCausalLM", 5120, 60, 40, 13824, 103168, 4096), 20.1),
    (_plain("InternLM2ForCausalLM", 6144, 48, 48, 16384, 92544, 32768, num_key_value_heads=8), 19.86),
    (_plain("InternLM3ForCausalLM", 4096, 48, 32, 10240, 128512, 32768, num_key_value_heads=2, head_dim=128), 8.8),
    # CohereForAI/c4ai-command-r-v01, allenai/OLMo-7B, allenai/OLMo-2-1124-7B, ibm-granite/granite-3.0-8b
    (_plain("CohereForCausalLM", 8192, 40, 64, 22528, 256000, 131072, num_key_value_heads=64), 35.0),
    (_plain("OlmoForCausalLM", 4096, 32, 32, 11008, 50304, 2048), 6.89),
    (_plain("Olmo2ForCausalLM", 4096, 32, 32, 11008, 100352, 4096), 7.3),
    (_plain("GraniteForCausalLM", 4096, 40, 32, 12800, 49155, 4096, num_key_value_heads=8, tie_word_embeddings=True), 8.17),
    # nvidia/Minitron-8B-Base, HuggingFaceTB/SmolLM3-3B, LGAI-EXAONE/EXAONE-3.0-7.8B, THUDM/GLM-4-9B-0414
    (_plain("NemotronForCausalLM", 4096, 32, 48, 16384, 256000, 4096, num_key_value_heads=8, head_dim=128), 8.27),
    (_plain("SmolLM3ForCausalLM", 2048, 36, 16, 11008, 128256, 65536, num_key_value_heads=4), 3.08),
    (
        {
            "architectures": ["ExaoneForCausalLM"],
            "num_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 14336,
            "vocab_size": 102400,
            "max_position_embeddings": 4096,
        },
        7.82,
    ),
    (_plain("Glm4ForCausalLM", 4096, 40, 32, 13696, 151552, 32768, num_key_value_heads=2, head_dim=128), 9.4),
]
"""Files and published totals."""
