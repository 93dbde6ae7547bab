"""``tonnage memory``: where an instance's GPU memory goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from tonnage.cli.flags import flags_of, given, with_flags
from tonnage.cli.printing import print_answer
from tonnage.spec.typed_values import about


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What runs, and the requests that are counted."""

    gpu: str | None = about("GPU id (default: h100-sxm-80gb, or the first of h200, b200 and b300 of which eight hold the model).")
    precision: str | None = about(
        "Number format: fp16, bf16, fp8 (E4M3), int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4, mxfp4, tf32 or fp32; "
        "+kv-fp16, +kv-fp8 (E4M3 or E5M2, of one size), +kv-int8 or +2:4 may follow it (default: the format that the model is "
        "published in, fp16 for 16 bits)."
    )
    tp: int | None = about("Tensor-parallel degree (default: the fewest of 1, 2, 4 and 8 that hold the model).")
    dp: int | None = about("Data-parallel attention ranks of a mixture of experts (default: 1).")
    ep: int | None = about("Expert-parallel degree of a mixture of experts (default: 1).")
    engine: str | None = about("Engine preset; each has its own rule for the size of the KV cache (default: tensorrt-llm).")
    isl: int | None = about("Prompt tokens of one request, to count the requests that fit at once (default: 2000, or what fits).")
    osl: int | None = about("Output tokens of one request (default: 200).")
    speculation: str | None = about('Speculative decoding, whose drafter takes memory too, such as "eagle k=3 acceptance=0.7".')
    lora: str | None = about('LoRA adapters, for which memory is set aside, such as "rank=16 adapters=8".')


@with_flags(*flags_of(Instance))
def memory(
    *,
    model: Annotated[str, Parameter(help="Catalog id, or the path of a Hugging Face config.json.")],
    json: Annotated[bool, Parameter(help="Print one JSON object.", negative=())] = False,
    **asked: Any,
) -> None:
    """Show where an instance's GPU memory goes, with the arithmetic."""
    from tonnage import api
    from tonnage.report.facts import memory as document

    found = api.memory(model=model, **given(asked))
    print_answer(lambda: document(found.lines()), found.to_json, json=json)
