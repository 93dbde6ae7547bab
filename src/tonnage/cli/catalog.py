"""``tonnage catalog``: what is known by name."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tonnage.cli.printing import print_answer
from tonnage.errors import InputError

PRECISIONS = "precisions"
"""The text that shows the number formats."""


def catalog(
    search: str = "",
    /,
    *,
    model: str | None = None,
    gpu: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """List what is known by name, with its prices, or with ``precisions`` what each number format brings.

    Parameters
    ----------
    search
        Show only entries whose id, alias or description holds this text (models with their published checkpoints), or those of a kind:
        "models", "checkpoints", "gpus", "systems", "engines", "prices" or "quality"; "precisions" shows the number formats.
    model
        With precisions: the model whose gain is predicted (default: llama-3.1-70b).
    gpu
        With precisions: the GPU that it runs on (default: h100-sxm-80gb).
    tp
        With precisions: tensor-parallel degree (default: the least that holds 64 requests in 16 bits).
    engine
        With precisions: the engine (default: tensorrt-llm-0.15, which has kernels for every format of NVIDIA).
    json
        Print one JSON object with every field, source and date.
    """
    from tonnage import api

    choices = {"model": model, "gpu": gpu, "tp": tp, "engine": engine}
    given = {name: value for name, value in choices.items() if value is not None}
    if search == PRECISIONS:
        from tonnage.report.facts import formats

        report = api.precisions(**given)  # type: ignore[arg-type]
        print_answer(lambda: formats(report.base, report.gains), report.to_json, json=json)
        return
    if given:
        raise InputError(f"--{next(iter(given))}: goes with `tonnage catalog {PRECISIONS}` alone; write the name itself to look it up")
    from tonnage.report.facts import catalogued

    found = api.catalog(search)
    print_answer(lambda: catalogued(found), lambda: found, json=json)
