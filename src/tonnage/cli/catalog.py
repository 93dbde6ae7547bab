"""``tonnage catalog``: what is known by name."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter

from tonnage.cli.table import table


def catalog(search: str = "", /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """The models, GPUs, systems and engines known by name.

    Parameters
    ----------
    search
        Show only entries whose id, alias or description holds this text.
    json
        Print one JSON object with every field, source and date.
    """
    from tonnage import api

    found = api.catalog(search)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(found))
        return
    parts = [_section(kind, entries) for kind, entries in found.items() if entries]
    print("\n\n".join(parts))


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
