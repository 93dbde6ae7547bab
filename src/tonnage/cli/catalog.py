"""``tonnage catalog``: models, GPUs, systems, engines and prices by name."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any, Literal

from tonnage import api
from tonnage.cli.flags import flags_of, given, leaf_flags, with_flags
from tonnage.cli.printing import print_answer
from tonnage.errors import InputError
from tonnage.spec.scenario import OF_MEMORY, simulated_leaves
from tonnage.spec.typed_values import about

PRECISIONS = "precisions"  # the text that shows the number formats


@with_flags()
def catalog(
    *words: str,
    model: str | None = None,
    gpu: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    json: bool = False,
) -> None:
    """List what is known by name, with its prices, or with ``precisions`` what each number format
    brings.

    Args:
        words: Show only entries whose id, alias or description holds this text (models with their
            published checkpoints), or those of a kind: "models", "checkpoints", "gpus", "systems",
            "engines", "prices", "quality" or "lengths", of all or with a text behind it;
            "precisions" shows the formats.
        model: With precisions: the model whose gain is predicted (default: llama-3.1-70b).
        gpu: With precisions: the GPU that it runs on (default: h100-sxm-80gb).
        tp: With precisions: tensor-parallel degree (default: the least that holds 64 requests in 16
            bits).
        engine: With precisions: the engine (default: tensorrt-llm-0.15, which has kernels for every
            format of NVIDIA).
        json: Print one JSON object with every field, source and date.
    """
    search = " ".join(words)
    choices = {"model": model, "gpu": gpu, "tp": tp, "engine": engine}
    filters = {name: value for name, value in choices.items() if value is not None}
    if search == PRECISIONS:
        from tonnage.report.facts import formats

        report = api.precisions(**filters)  # type: ignore[arg-type]
        print_answer(lambda: formats(report.base, report.gains), report.to_json, json=json)
        return
    if filters:
        raise InputError(
            f"--{next(iter(filters))}: goes with `tonnage catalog {PRECISIONS}` alone; write the"
            " name itself to look it up"
        )
    from tonnage.report.facts import catalogued

    listing = api.catalog(search)
    print_answer(lambda: catalogued(listing), lambda: listing, json=json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Options of the instance, and of the requests that are counted."""

    layout: str | None = about(
        "Architecture as which a config.json is read whose own leaves something open, such as"
        " LlamaForCausalLM."
    )
    gpu: str | None = about(
        "GPU id (default: h100-sxm-80gb, or the first of h200, b200 and b300 of which eight hold"
        " the model)."
    )
    precision: str | None = about(
        "Number format: fp16, bf16, fp8 (E4M3), int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4,"
        " mxfp4, tf32 or fp32; +kv-fp16, +kv-fp8 (E4M3 or E5M2, of one size), +kv-int8 or +2:4 may"
        " follow it (default: the format that the model is published in, fp16 for 16 bits)."
    )
    tp: int | None = about(
        "Tensor-parallel degree (default: the fewest of 1, 2, 4 and 8 that hold the model)."
    )
    dp: int | None = about("Data-parallel attention ranks of a mixture of experts (default: 1).")
    ep: int | None = about("Expert-parallel degree of a mixture of experts (default: 1).")
    engine: str | None = about(
        "Engine preset; each has its own rule for the size of the KV cache (default: tensorrt-llm,"
        " or vllm where the GPU needs it)."
    )
    isl: int | None = about(
        "Prompt tokens of one request, to count the requests that fit at once (default: 2000, or"
        " what fits)."
    )
    osl: int | None = about("Output tokens of one request (default: 200).")
    speculation: str | None = about(
        'Speculative decoding, whose drafter takes memory too, such as "eagle k=3 acceptance=0.7".'
    )
    lora: str | None = about(
        'LoRA adapters, for which memory is set aside, such as "rank=16 adapters=8".'
    )


KNOBS = tuple(
    replace(leaf_flag, group=None)
    for leaf_flag in leaf_flags(leaf for leaf in simulated_leaves() if leaf.name in OF_MEMORY)
)


@with_flags(*flags_of(Instance), *KNOBS)
def memory(*, model: str, json: bool = False, **asked: Any) -> None:
    """Show where an instance's GPU memory goes, with the arithmetic.

    Args:
        model: Catalog id, or the path of a Hugging Face config.json.
        json: Print one JSON object.
    """
    from tonnage.report.facts import memory as document

    memory_report = api.memory(model=model, **given(asked))
    print_answer(lambda: document(memory_report.lines()), memory_report.to_json, json=json)


def schema() -> int:
    """Print the JSON Schema of a scenario file: every key, the values it takes, and what it
    means.
    """
    from tonnage.results.store import json_text
    from tonnage.spec.scenario_file import json_schema

    sys.stdout.write(json_text(json_schema()))
    return 0


@with_flags()
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion of a shell, to be written where it looks for it, such as
    ~/.local/share/bash-completion/completions/tonnage.

    Args:
        shell: bash, zsh or fish.
    """
    from tonnage.cli.main import app

    sys.stdout.write(app.generate_completion(prog_name="tonnage", shell=shell).rstrip() + "\n")
