"""Number formats as a document: what each brings a model on a GPU, what it costs, and which hardware can do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Table
from tonnage.report.numbers import ABSENT

if TYPE_CHECKING:
    from tonnage.sizing.precisions import FormatGain
    from tonnage.spec.deployment import Deployment

NATIVE = "none"
"""Accuracy impact and calibration of the format that the model itself is published in."""

SPARED = ("KV", "GB/GPU", "prompt")


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
        spare=SPARED,
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
