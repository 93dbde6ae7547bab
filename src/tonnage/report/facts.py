"""Entries of the catalog as a document: one table for each kind."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tonnage.report.document import Document, Facts, Lines, Section, Table, items, section
from tonnage.report.numbers import ABSENT

if TYPE_CHECKING:
    from tonnage.serve.launch import Start, Started
    from tonnage.serve.machine import Machine
    from tonnage.serve.profiles import Profile
    from tonnage.sizing.precisions import FormatGain
    from tonnage.spec.deployment import Deployment


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


# Number formats as a document: what each brings a model on a GPU, what it costs, and which hardware can do it.


NATIVE = "none"
"""Accuracy impact and calibration of the format that the model itself is published in."""

SPARED_FORMATS = ("KV", "GB/GPU", "prompt")


def formats(base: Deployment, gains: tuple[FormatGain, ...]) -> Document:
    """Gains with the published words, then the formats with the hardware that does them."""
    from tonnage.sizing.precisions import ISL, LARGE, OSL, SMALL

    small, large = (" and ".join(map(str, batches)) for batches in (SMALL, LARGE))
    where = f"{base.model.name} on {base.parallelism.tp} × {base.gpu.name}, {base.engine}"
    title = (
        f"Predicted speed over 16 bits, {where}: of an output token at batch {small}; of whole requests of {ISL:,} + {OSL} tokens at "
        f"batch {large}; of a prompt. The words are published: at batch 4 and less, and at 16 and more."
    )
    lacking = tuple(f"{one.precision.name}: {one.lacks}" for one in gains if one.lacks)
    return Document(
        title=title,
        subtitle="",
        sections=(section("gains", "", _gains(gains)), section("hardware", "", _hardware(gains), items(lacking, "note"))),
    )


def _gains(gains: tuple[FormatGain, ...]) -> Table:
    from tonnage.sizing.precisions import LARGE, SMALL

    header = ("format", "GB/GPU", "KV", *(f"token at {b}" for b in SMALL), *(f"run at {b}" for b in LARGE), "prompt")
    return Table(
        caption="",
        header=(*header, "said ≤ 4", "said ≥ 16", "accuracy impact", "calibration"),
        rows=tuple(_gain(one, SMALL, LARGE) for one in gains),
        spare=SPARED_FORMATS,
        note="\n".join(_unfitted(gains)),
    )


def _gain(one: FormatGain, small: tuple[int, ...], large: tuple[int, ...]) -> tuple[str, ...]:
    said = one.published[-1] if one.published else None
    words = ("",) * 4 if said is None else (said.gain_small, said.gain_large, said.accuracy_impact, said.calibration)
    words = (*words[:2], NATIVE, NATIVE) if one.native else words
    found = [ABSENT] * (len(small) + len(large) + 1)
    if one.gain is not None:
        values = (*(one.gain.token[b] for b in small), *(one.gain.run[b] for b in large), one.gain.prompt)
        found = [f"{value:.2f}" for value in values]
    name = one.precision.name + ("*" if one.unfitted else "")
    return (name, f"{one.weight_gb:.1f}", one.precision.kv, *found, *(word or ABSENT for word in words))


def _unfitted(gains: tuple[FormatGain, ...]) -> list[str]:
    """Which formats rest on priors, those with one source together."""
    sources: dict[str, list[str]] = {}
    for one in gains:
        for name, source in one.unfitted:
            sources.setdefault(source, []).append(name)
    return [f"* {', '.join(dict.fromkeys(names))}: not fitted; {source}" for source, names in sources.items()]


def _hardware(gains: tuple[FormatGain, ...]) -> Table:
    from tonnage.spec.catalog import gpus

    every = {gpu.arch for gpu in gpus()}
    rows = tuple(
        (
            one.precision.name,
            f"{one.precision.weight_bits:.3g}",
            _multiplied(one),
            "every GPU of the catalog" if set(one.generations) == every else ", ".join(one.generations),
        )
        for one in gains
    )
    return Table(caption="", header=("format", "bits", "multiplied", "hardware"), rows=rows)


def _multiplied(one: FormatGain) -> str:
    p = one.precision
    if p.experts_only:
        return "experts alone: as FP8 on units with FP4, else unpacked to FP16"
    verb = "unpacked to " if p.unpacked else "as "
    return f"{verb}{p.arithmetic.upper()}{', half of the products' if p.sparse else ''}"


# Where the memory of an instance goes, as a document: its arithmetic, one equation a line.


def memory(equations: Sequence[str]) -> Document:
    """The arithmetic of one GPU's memory."""
    return Document(title="", subtitle="", sections=(section("memory", "", items(tuple(equations))),))


# What an engine would be started as, and the profiles of a machine, as documents.


LEGEND = (
    "A runnable profile holds a request of the model's whole context, or of --max-model-len; GB are those that each GPU must have for "
    "that. The first one with a checkpoint is what --engine auto starts."
)
STARTING_TITLES = {"runnable": "Runs here", "low memory": "Runs here with a shorter context", "incompatible": "Does not run here"}


def listing(machine: Machine, found: Sequence[Profile]) -> Document:
    """The profiles of a machine, first the ones that run here."""
    sections = []
    for kind, title in STARTING_TITLES.items():
        these = [one for one in found if one.kind == kind]
        width = max((len(one.name) for one in these), default=0)
        sections.append(section(kind, title if these else "", Lines(text="\n".join(_line(one, width) for one in these)) if these else None))
    return Document(title=machine.label, subtitle="", sections=(*sections, section("notes", "", items((LEGEND, *machine.notes), "note"))))


def _line(one: Profile, width: int) -> str:
    """Such as "  vllm-fp8-tp1-pp1-throughput   24 GB  owner/name"."""
    needs = f"{one.needs_bytes / 1e9:,.0f} GB" if one.needs_bytes else ""
    context = f"--max-model-len {one.context}: " if one.kind == "low memory" else ""
    told = f"{context}{one.why}" if one.why else one.checkpoint or f"name a --checkpoint in {one.precision}"
    return f"  {one.name.ljust(width)}  {needs:>8}  {told}"


def starting(machine: Machine, start: Start) -> Document:
    """Everything that would be started."""
    facts = Facts(rows=(("machine", machine.label), ("engine", start.engine), ("served as", start.model), ("chosen", start.why)))
    return Document(
        title="",
        subtitle="",
        sections=(
            section("choice", "", facts),
            *(section(f"instance-{place}", _heading(place, one), Lines(text=_command(one))) for place, one in enumerate(start.instances)),
            section("file", "engine.yaml", Lines(text=_file(start))) if start.file else section("file", ""),
            section("notes", "", items(start.notes, "note")),
        ),
    )


def _heading(place: int, one: Started) -> str:
    numbers = ", ".join(str(device.index) for device in one.devices)
    gpus = f"{'GPU' if len(one.devices) == 1 else 'GPUs'} {numbers}" if one.devices else "no GPU"
    return f"instance {place}: {gpus}, port {one.port}, ready when {one.path} answers"


def _command(one: Started) -> str:
    """The environment, then the command with one flag a line."""
    words = [f"{name}={shlex.quote(value)}" for name, value in one.environment.items()]
    lines, line = [" ".join(words)] if words else [], ""
    for word in one.argv:
        if word.startswith("--") and line:
            lines.append(line)
            line = ""
        line = f"{line} {shlex.quote(word)}".strip()
    return " \\\n".join(f"  {text}" if not place else f"    {text}" for place, text in enumerate([*lines, line]))


def _file(start: Start) -> str:
    import yaml

    return "\n".join(f"  {line}" for line in yaml.safe_dump(dict(start.file), sort_keys=False).rstrip().splitlines())
