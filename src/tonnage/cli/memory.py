"""``tonnage memory``: where an instance's GPU memory goes."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter


def memory(
    *,
    model: str,
    gpu: str = "h100-sxm-80gb",
    precision: str = "fp16",
    tp: int = 1,
    dp: int = 1,
    ep: int = 1,
    engine: str = "tensorrt-llm",
    isl: int = 2000,
    osl: int = 200,
    speculation: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Where an instance's GPU memory goes, with the arithmetic.

    Parameters
    ----------
    model
        Catalog id or the path of a Hugging Face config.json.
    gpu
        GPU id.
    precision
        fp16, bf16, fp8, int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4 or mxfp4; with +kv-fp16, +kv-fp8, +kv-int8 or +2:4
        behind it, too.
    tp
        Tensor-parallel degree.
    dp
        Attention ranks of a mixture of experts.
    ep
        Groups that the experts are spread over.
    engine
        Engine preset; each has its own rule for the KV cache.
    isl
        Prompt tokens of one request, to count concurrent requests.
    osl
        Output tokens of one request.
    speculation
        Speculative decoding, whose drafter takes memory too, such as "eagle k=3 acceptance=0.7".
    json
        Print one JSON object.
    """
    from tonnage import api

    place: dict[str, Any] = {"gpu": gpu, "precision": precision, "tp": tp, "dp": dp, "ep": ep, "engine": engine}
    report = api.memory(model=model, **place, isl=isl, osl=osl, speculation=speculation)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(report.to_json()))
    else:
        print("\n".join(report.lines()))
