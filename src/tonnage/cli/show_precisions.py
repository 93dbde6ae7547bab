"""Number formats as text: what each brings a model on a GPU, what it costs, and which hardware can do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.cli.table import table, wrapped
from tonnage.sizing.precisions import ISL, LARGE, OSL, SMALL
from tonnage.spec.catalog import gpus

if TYPE_CHECKING:
    from tonnage.sizing.precisions import FormatGain
    from tonnage.spec.deployment import Deployment

SPARE = (2, 1, 7)
"""Columns that a narrow terminal does without, in that order."""

MARK = "format "
"""How a mark begins that speaks of a format."""


def show_precisions(base: Deployment, gains: tuple[FormatGain, ...]) -> str:
    """Gains with the published words, then formats with the hardware that does them."""
    small, large = (" and ".join(map(str, batches)) for batches in (SMALL, LARGE))
    where = f"{base.model.name} on {base.parallelism.tp} × {base.gpu.name}, {base.engine}"
    title = (
        f"Predicted speed over 16 bits, {where}: of an output token at batch {small}; of whole requests of {ISL:,} + {OSL} tokens at batch "
        f"{large}; of a prompt. The words are published: at batch 4 and less, and at 16 and more."
    )
    header = ("format", "GB/GPU", "KV", *(f"token at {b}" for b in SMALL), *(f"run at {b}" for b in LARGE), "prompt")
    rows = [_gains(one) for one in gains]
    first = table((*header, "said ≤ 4", "said ≥ 16", "accuracy impact", "calibration"), rows, spare=SPARE)
    lines = [wrapped(title, "", "  "), first]
    lines += [wrapped(f"* {note}", "", "  ") for note in _unfitted(gains)]
    how = [(one.precision.name, f"{one.precision.weight_bits:.3g}", _how(one), _hardware(one)) for one in gains]
    missing = [wrapped(f"· {one.precision.name}: {one.lacks}", "", "  ") for one in gains if one.lacks]
    lines += ["", table(("format", "bits", "multiplied", "hardware"), how), *missing]
    return "\n".join(lines)


def _gains(one: FormatGain) -> tuple[str, ...]:
    said = one.published[-1] if one.published else None
    words = ("–",) * 4 if said is None else (said.gain_small, said.gain_large, said.accuracy_impact, said.calibration)
    found = ["–"] * (len(SMALL) + len(LARGE) + 1)
    if one.gain is not None:
        values = [*(one.gain.token[b] for b in SMALL), *(one.gain.run[b] for b in LARGE), one.gain.prompt]
        found = [f"{value:.2f}" for value in values]
    name = one.precision.name + ("*" if any(mark.startswith(MARK) for mark in one.marks) else "")
    return (name, f"{one.weight_gb:.1f}", one.precision.kv, *found, *(word or "–" for word in words))


def _unfitted(gains: tuple[FormatGain, ...]) -> list[str]:
    """Which formats rest on priors, those with one source together."""
    sources: dict[str, list[str]] = {}
    for one in gains:
        for mark in (part for given in one.marks for part in given.split("; ") if part.startswith(MARK)):
            name, _, source = mark.removeprefix(MARK).partition(" not fitted: ")
            sources.setdefault(source, []).append(name)
    return [f"{', '.join(dict.fromkeys(names))}: not fitted; {source}" for source, names in sources.items()]


def _hardware(one: FormatGain) -> str:
    every = set(one.generations) == {gpu.arch for gpu in gpus()}
    return "every GPU of the catalog" if every else ", ".join(one.generations)


def _how(one: FormatGain) -> str:
    p = one.precision
    if p.experts_only:
        return "experts alone; as FP8 by units with FP4, else unpacked to FP16"
    verb = "unpacked to " if p.unpacked else "as "
    return f"{verb}{p.arithmetic.upper()}{', half of the products' if p.sparse else ''}"
