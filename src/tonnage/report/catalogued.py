"""Entries of the catalog as a document: one table for each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tonnage.report.blocks import section
from tonnage.report.document import Document, Section, Table
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
    "checkpoints": {
        "model": "model",
        "repository": "repository",
        "format": "format",
        "engines": "read by",
        "licence": "licence",
        "gated": "gated",
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
    "quality": {"model": "model", "benchmark": "benchmark", "score": "%", "setting": "setting", "date": "of", "source": "source"},
}
"""By kind, the fields that are shown and what their columns are called."""
TITLES = {
    "models": "Models",
    "checkpoints": "Published checkpoints",
    "gpus": "GPUs",
    "systems": "Systems",
    "engines": "Engines",
    "quality": "Published quality",
}
PRICES = {
    "general": ("Prices and rules of every cost", "price"),
    "system": ("Systems, USD to buy one", "system"),
    "gpu": ("GPUs without a server, USD to buy one", "GPU"),
    "cloud": ("{} in a cloud, USD per GPU and hour", "offer"),
    "api": ("APIs, USD per million tokens", "model"),
}
"""By kind of price, the title of its table and what its first column is called."""

SPARED = ("source", "max power W", "TDP W", "hidden", "layers", "since", "FP4 TFLOPS", "INT8 TOPS")
LONGEST = 60
"""Characters of a cell; what is longer is cut short between words."""
CUT = "Texts that end in … are cut short; --json prints all of them."

SHORT = 40
"""Characters of the source of a price, beside which an offer needs its room."""


def catalogued(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Document:
    """The entries of each kind as rows; kinds without an entry are left out."""
    shown = {kind: entries for kind, entries in found.items() if entries and kind in TITLES}
    made = [section(kind, f"{TITLES[kind]} ({len(entries)})", _table(kind, entries)) for kind, entries in shown.items()]
    return Document(title="", subtitle="", sections=(*made, *_prices(found.get("prices", ()))))


def _prices(prices: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    """One table for each kind of price, and of clouds one for each GPU."""
    for kind, (title, first) in PRICES.items():
        of_kind = [price for price in prices if price["kind"] == kind]
        groups = dict.fromkeys(price["name"] for price in of_kind) if kind == "cloud" else {"": None}
        for group in groups:
            shown = [price for price in of_kind if group in ("", price["name"])]
            if shown:
                yield section(f"{kind}-{group}", f"{title.format(group)} ({len(shown)})", _price_table(first, shown))


def _price_table(first: str, prices: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each price, with its range, its day and its source; estimates are marked."""
    rows = tuple(
        (
            price["offer"] or price["name"],
            _what(price),
            _usd(price["value"], price["estimate"]),
            _range(price),
            price["date"],
            _cell(price["source"], SHORT),
        )
        for price in prices
    )
    header = (first, "of what", "price", "range", "date", "source")
    kept = [i for i in range(len(header)) if any(row[i] not in ("", ABSENT) for row in rows)]
    return Table(
        caption="", header=tuple(header[i] for i in kept), rows=tuple(tuple(row[i] for i in kept) for row in rows), spare=("range",)
    )


def _what(price: Mapping[str, Any]) -> str:
    """What a price is for, where the title of its table does not say that."""
    if price["kind"] == "api":
        return str(price["unit"]).removeprefix("USD per million ")
    return str(price["unit"]) if price["kind"] == "general" else ""


def _usd(value: float, estimate: bool) -> str:
    return f"{value:,.10g}{' (estimate)' if estimate else ''}"


def _range(price: Mapping[str, Any]) -> str:
    low, high = price["low"], price["high"]
    return ABSENT if low == high else f"{low:,.10g} to {high:,.10g}"


def _table(kind: str, entries: Sequence[Mapping[str, Any]]) -> Table:
    columns = COLUMNS[kind]
    rows = tuple(tuple(_cell(entry.get(field)) for field in columns) for entry in entries)
    header = tuple(columns.values())
    cut = any(cell.endswith("…") for row in rows for name, cell in zip(header, row, strict=True) if name not in SPARED)
    return Table(caption="", header=header, rows=rows, spare=SPARED, note=CUT if cut else "")


def _cell(value: object, longest: int = LONGEST) -> str:
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        value = ", ".join(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if len(text) <= longest:
        return text
    head = text[:longest].rsplit(" ", 1)[0] if " " in text[:longest] else text.partition(" ")[0]
    return text if head == text else f"{head} …"
