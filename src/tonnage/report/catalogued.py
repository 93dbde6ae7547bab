"""Entries of the catalog as a document: one table for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.report.blocks import section
from tonnage.report.document import Document, Table
from tonnage.report.numbers import ABSENT

COLUMNS: dict[str, dict[str, str]] = {
    "models": {
        "name": "name",
        "parameters_billions": "billion parameters",
        "layers": "layers",
        "hidden": "hidden",
        "kv_heads": "KV heads",
        "experts": "experts",
        "max_context": "max context",
        "source": "source",
    },
    "gpus": {
        "name": "name",
        "arch": "arch",
        "fp16_tflops": "FP16 TFLOPS",
        "fp8_tflops": "FP8 TFLOPS",
        "int8_tops": "INT8 TOPS",
        "fp4_tflops": "FP4 TFLOPS",
        "memory_gb": "memory GB",
        "memory_bandwidth_gb_s": "GB/s",
        "link": "link",
        "tdp_w": "TDP W",
        "source": "source",
    },
    "systems": {"name": "name", "gpu": "GPU", "gpus": "GPUs", "max_power_w": "max power W", "source": "source"},
    "engines": {"name": "name", "family": "family", "since": "since", "notes": "notes"},
}
"""By kind, the fields that are shown and what their columns are called."""
TITLES = {"models": "Models", "gpus": "GPUs", "systems": "Systems", "engines": "Engines"}
SPARED = ("source", "max power W", "TDP W", "hidden", "layers", "since", "FP4 TFLOPS", "INT8 TOPS")
LONGEST = 60
"""Characters of a cell; what is longer is cut short between words."""
CUT = "Texts that end in … are cut short; --json prints all of them."


def catalogued(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Document:
    """The entries of each kind as rows; kinds without an entry are left out."""
    made = (section(kind, f"{TITLES[kind]} ({len(entries)})", _table(kind, entries)) for kind, entries in found.items() if entries)
    return Document(title="", subtitle="", sections=tuple(made))


def _table(kind: str, entries: Sequence[Mapping[str, Any]]) -> Table:
    columns = COLUMNS[kind]
    rows = tuple(tuple(_cell(entry.get(field)) for field in columns) for entry in entries)
    header = tuple(columns.values())
    cut = any(cell.endswith("…") for row in rows for name, cell in zip(header, row, strict=True) if name not in SPARED)
    return Table(caption="", header=header, rows=rows, spare=SPARED, note=CUT if cut else "")


def _cell(value: object) -> str:
    if value is None or value == "":
        return ABSENT
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"
