"""What Tonnage does not do on purpose, by the names under which people ask for it, each with the
reason: docs/scope.md.
"""

from __future__ import annotations

import re

PAGE = "docs/scope.md"

REFUSED: dict[str, tuple[tuple[str, str], ...]] = {
    "precision": (
        (
            r"fp64|float64|bf16x3",
            (
                "engines that serve LLMs run 32 bits and fewer; use bf16, or fp32 for its memory"
                " and a rough speed"
            ),
        ),
        (
            r"(fp8.)?e5m2",
            (
                "no engine stores weights in E5M2, which has more range and fewer digits; use fp8,"
                " which is E4M3"
            ),
        ),
        (
            r"int2|ternary|1\.58.*|bitnet.*|q[2-8]_\w+|gguf",
            "no kernel of it was measured on these engines; the nearest is int4-wo, awq or gptq",
        ),
    ),
    "GPU": (
        (
            r".*\bmig\b.*|.*\d+g\.\d+gb",
            (
                "MIG divides A30, A100, H100, H200, H20, GH200, B200 and GB200 into given profiles,"
                " of which this is none; take one of them, such as h100-mig-1g.10gb,"
                " h100-mig-3g.40gb or a30-mig-2g.12gb"
            ),
        ),
        (
            r"(nvidia-)?(jetson|orin|xavier|thor|agx).*|drive-\w+",
            (
                "nothing of edge modules is measured; describe one in a YAML file, such as"
                " examples/hardware/jetson-agx-orin-64gb.yaml"
            ),
        ),
        (
            r".*(ascend|910[bc]|cambricon|mlu\d|metax|kunlun|enflame|biren|groq|lpu|cerebras|wse-\d|sambanova|tenstorrent|graphcore).*"
            r"|(aws-)?(trn|trainium|inf|inferentia)-?\d.*|.*data-center-gpu-max.*",
            (
                "no engine that is simulated here was measured on it; describe one in a YAML file"
                " (docs/systems.md)"
            ),
        ),
        (
            r"(tesla-)?(p100|p40|p4|m40|m60|k80)(-.*)?|(geforce-|nvidia-|nvidia-geforce-)?gtx-.*",
            "engines of LLMs begin with Volta (compute capability 7.0)",
        ),
        (
            r"(apple|m[1-5]|mac).*|.*(core|ryzen|xeon|epyc|cpu).*",
            "only accelerators in servers are sized; tonnage serve with openvino runs a CPU",
        ),
    ),
    "engine": (
        (
            r"llama\.?cpp|ollama|mlx|exllama.*|onnx.*|hf|hf-.*|transformers.*|deepspeed.*|lmdeploy.*|tgi.*|mlc.*",
            "its scheduler is not simulated; the nearest that is: vllm, sglang or tensorrt-llm",
        ),
    ),
    "model": (
        (
            r"(chat)?gpt-?(3\.5|4|5)(?!\d).*|chatgpt.*|o[134](-.*)?|claude.*|gemini.*|grok-[3-9].*",
            (
                "its weights are not published, so that only its maker runs it; name an open model"
                " of like quality"
            ),
        ),
        (
            r".*(qwen3-(vl-)?(embedding|reranker)|nv-embed|e5-mistral|gte-qwen|sfr-embedding).*",
            (
                "it is a decoder that answers in one pass; size the one that it was made of, such"
                " as qwen3-8b, with outputs of 1 token"
            ),
        ),
        (
            r"(distil(bert|roberta)|deberta|roberta|bert|bge|e5|gte|minilm).*|.*(rerank|embed(?!ded)).*",
            (
                "encoders answer in one pass without a cache; describe them as a service of"
                " measured seconds, such as examples/services/bert-base.yaml"
            ),
        ),
        (
            r"(falcon-)?mamba.*|.*-mamba-\d.*|rwkv.*",
            "its layers keep states and no KV cache, so that there is no pool of blocks to plan",
        ),
        (
            r"(whisper|stable-diffusion|sdxl|flux|clip|blip|wav2vec|parakeet|t5|flan|bart).*",
            (
                "only decoders of text are estimated; describe others as a service of measured"
                " seconds, such as examples/services/t5-small.yaml, whisper-base.yaml or blip2.yaml"
            ),
        ),
    ),
    "command": (
        (
            r"train|finetune|fine-tune|pretrain|p-?tune|rlhf|dpo|collect|label|evaluate|eval",
            "Tonnage begins where a model exists: what comes before in its life cycle is not sized",
        ),
        (
            r"distill",
            "distillation trains a smaller model; give that one's config.json as the model",
        ),
        (
            r"prune|sparsify",
            (
                "pruning changes the weights and their quality; give the pruned model's"
                " config.json, or +2:4 as a number format, whose checkpoint tonnage compress makes"
                " (format 2:4)"
            ),
        ),
        (
            r"build|trtllm-build|convert(-checkpoint)?",
            "the page that tonnage deploy writes for triton has the commands that build engines",
        ),
        (
            r"quantize|quantise",
            (
                "tonnage compress makes the checkpoint; size estimates what each format would do"
                " (precision all)"
            ),
        ),
    ),
    "option": (
        (
            r"(cpu-)?offload(ing)?(-\w+)*|swap-space|kv-offload(-\w+)*",
            (
                "reading weights or KV cache over PCIe is too slow for interactive latency limits;"
                " choose a format or a degree that fits"
            ),
        ),
        (
            r"(prune|pruning|sparsity|distill|distillation)",
            "the model is taken as it is; give the config.json of the smaller one, or a number"
            " format with +2:4, such as fp8+2:4",
        ),
        (
            r"(p-?tuning|prompt-?tuning|virtual-tokens)",
            "virtual tokens count as prompt tokens; add them to the prompt, as a system prompt",
        ),
        (r"mig(-\w+)*", "a MIG slice counts as a GPU; name it so, such as h100-mig-3g.40gb"),
        (
            r"(bls|business-logic|ensemble|pipeline-script)",
            (
                "a script is simulated by the shares in which it branches and loops: share,"
                " instead_of and again in a service's pipeline"
            ),
        ),
        (r"(windows|macos|jetson)", "servers of Linux are sized, and nothing else was measured"),
    ),
}
"""Patterns of whole names in lower case, by what is looked up, and why there is none."""


def refused(kind: str, name: str) -> str:
    """Why something is not covered, in one clause that ends with the page; "" where it is merely
    not known.
    """
    plain_name = (
        name.strip().lstrip("-").lower().rsplit("/", 1)[-1].replace("_", "-").replace(" ", "-")
    )
    why = next(
        (why for pattern, why in REFUSED.get(kind, ()) if re.fullmatch(pattern, plain_name)), ""
    )
    return f"{why} ({PAGE})" if why else ""
