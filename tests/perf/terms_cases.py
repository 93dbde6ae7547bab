"""What the tests of terms share with others."""

from __future__ import annotations

from dataclasses import replace

from tonnage.api.question.deployment import deployment_of
from tonnage.spec.deployment import Deployment
from tonnage.spec.images import parse_images


def deployed(model: str = "llama-2-7b", tp: int = 1, lora: str | None = None) -> Deployment:
    return deployment_of(model=model, gpu="h100", precision="fp16", tp=tp, engine="vllm", lora=lora)


def pictured(text: str, prompt_tokens: float = 2000.0) -> Deployment:
    images = replace(parse_images(text, "qwen3.6-27b"), prompt_tokens=prompt_tokens)
    return replace(deployed("qwen3.6-27b"), images=images)
