"""``tonnage catalog``: what is known by name."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter

from tonnage.cli.table import table
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
    """The models, GPUs, systems and engines known by name; ``catalog precisions``: the number formats and what each brings.

    Parameters
    ----------
    search
        Show only entries whose id, alias or description holds this text, or those of a kind: "models", "gpus", "systems" or "engines";
        "precisions" shows the number formats.
    model
        With precisions: the model whose gain is predicted (default: llama-3.1-70b).
    gpu
        With precisions: the GPU that it runs on (default: h100-sxm-80gb).
    tp
        With precisions: tensor-parallel degree (default: the least that holds 64 requests in 16 bits).
    engine
        With precisions: the engine (default: tensorrt-llm).
    json
        Print one JSON object with every field, source and date.
    """
    from tonnage import api

    choices = {"model": model, "gpu": gpu, "tp": tp, "engine": engine}
    if search == PRECISIONS:
        _precisions({name: value for name, value in choices.items() if value is not None}, json=json)
        return
    if given := [name for name, value in choices.items() if value is not None]:
        raise InputError(f"--{given[0]}: goes with `tonnage catalog {PRECISIONS}` alone; write the name itself to look it up")
    found = api.catalog(search)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(found))
        return
    parts = [_section(kind, entries) for kind, entries in found.items() if entries]
    print("\n\n".join(parts))


def _precisions(choices: dict[str, Any], *, json: bool) -> None:
    from tonnage import api

    found = api.precisions(**choices)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(found.to_json()))
        return
    from tonnage.cli.show_precisions import show_precisions

    print(show_precisions(found.base, found.gains))


COLUMNS: dict[str, tuple[str, ...]] = {
    "models": ("name", "parameters_billions", "layers", "hidden", "kv_heads", "experts", "max_context", "source"),
    "gpus": (
        *("name", "arch", "fp16_tflops", "fp8_tflops", "int8_tops", "fp4_tflops"),
        *("memory_gb", "memory_bandwidth_gb_s", "link", "tdp_w", "source"),
    ),
    "systems": ("name", "gpu", "gpus", "max_power_w", "source"),
    "engines": ("name", "family", "since", "notes"),
}


def _section(kind: str, entries: list[dict[str, Any]]) -> str:
    columns = COLUMNS[kind]
    rows = [tuple(_cell(entry.get(column)) for column in columns) for entry in entries]
    return f"{kind} ({len(entries)})\n{table(tuple(c.replace('_', ' ') for c in columns), rows)}"


def _cell(value: object) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
