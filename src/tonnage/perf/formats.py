"""How a number format changes a step: the rate of its arithmetic, the bytes of its weights, and what unpacking takes.

Weight-only formats move fewer bytes and multiply in 16 bits: they gain while a step waits for weights and lose once it
waits for arithmetic, for unpacking takes its share of both. Formats of weights and activations multiply at the rate of
their format as well. 2:4 sparsity doubles the rate on paper and shrinks the bytes.

What a format reaches of the efficiencies fitted to 16 and 8 bits is in the group ``formats`` of ``terms.json``, by its
name, or by its name and a GPU generation where that is known to differ. Where no measurements here could be fitted, the number
is a prior (``tools/fit/formats.py`` has the sources), and predictions that rest on one say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tonnage.errors import DataError
from tonnage.spec.precision import WIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tonnage.spec.hardware import Gpu
    from tonnage.spec.precision import Precision

FITTED = ("fp16", "bf16", "fp8")
"""Formats whose efficiencies are the fitted ones themselves."""

OF_16_BITS = "taken to reach the shares of 16 bits; no row is in 32"

SPARSE = "2:4"
SPARSE_RATE = 2.0
"""What skipping zeros does to the datasheet's rate (NVIDIA Ampere architecture whitepaper)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What a format reaches of the fitted efficiencies, in matrix rate and in bandwidth of reading weights."""

    compute: float
    memory: float


def fitted_bits(precision: Precision) -> Literal["8", "16"]:
    """The bits of a format's arithmetic, whose fitted efficiencies it starts from; INT8 kernels were compared with 16 bits."""
    return "8" if precision.arithmetic in {"fp8", "fp4"} else "16"


def matrix_rate(gpu: Gpu, precision: Precision) -> float:
    """Datasheet FLOP/s of the linear layers; where the hardware has none in this format, those of 16 bits."""
    rate = gpu.flops(precision.arithmetic)
    rate = gpu.fp16_tflops * 1e12 if rate is None else rate
    return rate * SPARSE_RATE if precision.sparse else rate


def shares(groups: Mapping[str, Mapping[str, float]], precision: Precision, gpu: Gpu) -> Shares:
    """What the format, as the GPU executes it, reaches of the fitted efficiencies.

    Args:
        groups: the group ``formats`` of ``terms.json``.
        precision: as ``Gpu.executes`` gives it.
        gpu: whose generation may have its own share.

    Raises:
        DataError: the group has nothing about the format.
    """
    compute = memory = 1.0
    for name in _names(precision):
        entry = _entry(groups, name, gpu)
        if entry not in groups:
            raise DataError(f"perf/coefficients/terms.json: nothing about the format '{name}'; write it again with ./fit")
        compute *= groups[entry]["compute"]
        memory *= groups[entry]["memory"]
    return Shares(compute=compute, memory=memory)


def format_name(precision: Precision) -> str:
    """The name of a format as a GPU executes it; MXFP4 may be multiplied as it is, or unpacked."""
    unpacked = precision.unpacked and precision.weight_format == "mxfp4"
    return "mxfp4 unpacked" if unpacked else precision.weight_format


def _names(precision: Precision) -> list[str]:
    """The names of the entries that apply: that of the format, and that of sparsity."""
    names = [] if precision.weight_format in (*FITTED, *WIDE) else [format_name(precision)]
    return names + ([SPARSE] if precision.sparse else [])


def _entry(groups: Mapping[str, object], name: str, gpu: Gpu) -> str:
    """The entry of a format on a GPU, which is that of the GPU's generation where there is one."""
    own = f"{name} {gpu.arch}"
    return own if own in groups else name


def format_mark(precision: Precision, gpu: Gpu, origins: Mapping[str, str]) -> str:
    """What a prediction should be marked with where a format was not fitted to measurements; empty where it was."""
    return "; ".join(f"format {name} not fitted: {source}" for name, source in unfitted_formats(precision, gpu, origins))


def unfitted_formats(precision: Precision, gpu: Gpu, origins: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The parts of a format that were not fitted to measurements, each with where its terms come from.

    Args:
        precision: as ``Gpu.executes`` gives it.
        gpu: whose generation may have its own entry.
        origins: ``formats`` of the origins in ``terms.json``: where each entry that is not fitted comes from.
    """
    unfitted = ((name, _entry(origins, name, gpu)) for name in _names(precision))
    wide = ((precision.weight_format, OF_16_BITS),) if precision.weight_format in WIDE else ()
    return (*wide, *((name, origins[entry]) for name, entry in unfitted if entry in origins))
