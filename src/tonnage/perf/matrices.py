"""The matrices of the decoder layers and of the output head, and the activations between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tonnage.errors import DataError
from tonnage.perf import step_terms as at
from tonnage.perf.fitted_terms import FITTED_FORMATS
from tonnage.spec.precision import EXPERTS, SPARSE, WIDE, Precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tonnage.perf.terms_file import TermGroups
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model


# How a number format changes a step: the rate of its arithmetic, the bytes of its weights, and what
# unpacking takes. Weight-only formats move fewer bytes and multiply in 16 bits: they gain while a
# step waits for weights and lose once it waits for arithmetic, for unpacking takes its share of
# both. Formats of weights and activations multiply at the rate of their format as well. 2:4
# sparsity doubles the rate on paper and shrinks the bytes. What a format reaches of the
# efficiencies fitted to 16 and 8 bits is in the group ``formats`` of ``terms.json``, by its name,
# or by its name and a GPU generation where that is known to differ. Where no measurements here
# could be fitted, the number is a prior (``tools/fit/formats.py`` has the sources), and predictions
# that rest on one say so.


OF_16_BITS = "taken to reach the shares of 16 bits; no row is in 32"

SPARSE_RATE = 2.0
"""What skipping zeros does to the datasheet's rate (NVIDIA Ampere architecture whitepaper)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What a format reaches of the fitted efficiencies, in matrix rate and in bandwidth of reading
    weights.
    """

    compute: float
    memory: float


def fitted_bits(precision: Precision) -> Literal["8", "16"]:
    """The bits of a format's arithmetic, whose fitted efficiencies it starts from; INT8 kernels
    were compared with 16 bits.
    """
    return "8" if precision.arithmetic in {"fp8", "fp4"} else "16"


def matrix_rate(gpu: Gpu, precision: Precision) -> float:
    """Datasheet FLOP/s of the linear layers; where the hardware has none in this format, those of
    16 bits.
    """
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
            raise DataError(
                f"perf/coefficients/terms.json: nothing about the format '{name}'; write it again"
                " with ./fit"
            )
        compute *= groups[entry]["compute"]
        memory *= groups[entry]["memory"]
    return Shares(compute=compute, memory=memory)


def format_name(precision: Precision) -> str:
    """The name of a format as a GPU executes it, or of the one whose kernels stand for its own;
    MXFP4 may be multiplied, or unpacked.
    """
    unpacked = precision.unpacked and precision.weight_format == "mxfp4"
    return "mxfp4 unpacked" if unpacked else precision.kernels or precision.weight_format


def _names(precision: Precision) -> list[str]:
    """The names of the entries that apply: that of the format, and that of sparsity."""
    fitted = precision.weight_format in (*FITTED_FORMATS, *WIDE) and not precision.kernels
    names = [] if fitted else [format_name(precision)]
    return names + ([SPARSE] if precision.sparse else [])


def _entry(groups: Mapping[str, object], name: str, gpu: Gpu) -> str:
    """The entry of a format on a GPU, which is that of the GPU's generation where there is one."""
    generation_entry = f"{name} {gpu.arch}"
    return generation_entry if generation_entry in groups else name


def format_mark(precision: Precision, gpu: Gpu, origins: Mapping[str, str]) -> str:
    """What a prediction should be marked with where a format was not fitted to measurements; empty
    where it was.
    """
    return "; ".join(
        f"format {name} not fitted: {source}"
        for name, source in unfitted_formats(precision, gpu, origins)
    )


def unfitted_formats(
    precision: Precision, gpu: Gpu, origins: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The parts of a format that were not fitted to measurements, each with where its terms come
    from.

    Args:
        precision: as ``Gpu.executes`` gives it.
        gpu: whose generation may have its own entry.
        origins: ``formats`` of the origins in ``terms.json``: where each entry that is not fitted
            comes from.
    """
    unfitted = ((name, _entry(origins, name, gpu)) for name in _names(precision))
    wide = ((precision.weight_format, OF_16_BITS),) if precision.weight_format in WIDE else ()
    if precision.kernels:
        wide = ((precision.weight_format, f"computed as {precision.kernels}, as no row is in it"),)
    return (*wide, *((name, origins[entry]) for name, entry in unfitted if entry in origins))


ACTIVATION_BYTES = 2.0
"""Bytes of one activation."""

BITS_8, BITS_16 = 8, 16

BYTES_16 = 2.0
"""Bytes of one weight of the output head, and of others that engines keep in 16 bits."""

GELU = 2.0
"""Elements that a separate kernel for GELU reads and writes per element, where an engine's terms do
not say otherwise."""

MOST = {"compute": 0.91, "memory": 0.95}
"""The most of its datasheet that a card is taken to reach: that of the measured one that reaches
most (L40, L40S)."""

GRACE_W = 250.0
"""Watts of a Grace Hopper module that its CPU and the CPU's memory can take (recalled)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTerms:
    """What matrices reach of the datasheet in one precision, on one GPU and in one engine; all are
    fitted.
    """

    # compute, compute_8, compute_16: share of the datasheet's matrix rate that the linear layers
    # reach, in this precision, in FP8 and in 16 bits
    compute: float
    compute_8: float
    compute_16: float
    # memory, memory_8, memory_16: share of the memory bandwidth that reading weights reaches
    memory: float
    memory_8: float
    memory_16: float
    norm: float  # exponent that joins arithmetic and weight traffic
    # passes of the activations through memory, relative to the count of ``add_matrices``
    activation: float
    gelu: float  # elements that GELU reads and writes per element of its input, in its own kernels


def matrix_terms(groups: TermGroups, model: Model, precision: Precision) -> MatrixTerms:
    """The terms of the matrices, in a precision as the GPU executes it."""
    of_format, bits = shares(groups.formats, precision, groups.gpu), fitted_bits(precision)
    return MatrixTerms(
        compute=_efficiency(groups, "compute", bits, format_name(precision))
        * of_format.compute
        * _blocks(groups, model, precision),
        compute_8=_efficiency(groups, "compute", "8")
        * (groups.engine.get("compute_blocks", 1.0) if model.block_fp8 else 1.0),
        compute_16=_efficiency(groups, "compute", "16"),
        memory=_efficiency(groups, "memory", bits) * of_format.memory,
        memory_8=_efficiency(groups, "memory", "8"),
        memory_16=_efficiency(groups, "memory", "16"),
        norm=groups.shared["norm"],
        activation=groups.shared["activation"],
        gelu=groups.engine.get("gelu", GELU),
    )


def _efficiency(groups: TermGroups, kind: str, bits: str, form: str = "") -> float:
    """The share of a datasheet rate that a generation reaches, with the corrections of GPU, engine
    and power limit.

    An engine may reach less on a generation for which its kernels are young, and less still in a
    format that they do not multiply yet.
    """
    gpu_group, engine, of_bits, young = (
        groups.own,
        groups.engine,
        f"{kind}_{bits}",
        f"{kind}_{groups.kernels}",
    )
    value = min(
        groups.generation[of_bits]
        * gpu_group.get(kind, 1.0)
        * gpu_group.get(of_bits, 1.0)
        * _power(groups, kind),
        MOST[kind],
    )
    value *= engine.get(f"{young}_{form}", engine.get(young, 1.0))
    return value * engine.get(kind, 1.0) * engine.get(of_bits, 1.0)


def _power(groups: TermGroups, kind: str) -> float:
    """What the board's power limit leaves of an efficiency.

    It is 1 for a card of ``watts_compute`` watts per TFLOP/s, or of ``watts_memory`` watts per
    GB/s. The same chip under a lower limit clocks lower, so that cards with few watts for their
    datasheet rates reach less of them. Power grows as the cube of the clock, so that an exponent of
    a third is expected for arithmetic.
    """
    gpu = groups.gpu
    if gpu.tdp_w is None:
        return 1.0
    watts = gpu.tdp_w - (GRACE_W if gpu.name.startswith("gh200") else 0.0)
    rate = gpu.fp16_tflops if kind == "compute" else gpu.memory_bandwidth_gb_s
    factor: float = (watts / rate / groups.generation[f"watts_{kind}"]) ** groups.shared[
        f"power_{kind}"
    ]
    return factor


def _blocks(groups: TermGroups, model: Model, precision: Precision) -> float:
    """Share of a matrix rate that FP8 with a scale per 128 × 128 weights reaches, where each sum of
    128 products is scaled by itself.
    """
    return groups.engine.get("compute_blocks", 1.0) if scaled_by_blocks(model, precision) else 1.0


def scaled_by_blocks(model: Model, precision: Precision) -> bool:
    """Whether weights are FP8 with a scale per block, and are multiplied as such."""
    return model.block_fp8 and precision.arithmetic == "fp8" and not precision.unpacked


def add_matrices(
    c: list[float], terms: MatrixTerms, model: Model, gpu: Gpu, precision: Precision, tp: int
) -> None:
    """Put the matrices of the layers and the head, and the activations between them, into a
    coefficient array.
    """
    peak, peak_16 = matrix_rate(gpu, precision), gpu.fp16_tflops * 1e12
    bandwidth = gpu.memory_bandwidth_gb_s * 1e9
    for weights, form in dense_formats(model, precision):
        if form is precision:
            rate, share, reached = peak, terms.compute, terms.memory
        else:
            rate, share, reached = _beside(terms, gpu, gpu.executes(form))
        c[at.LINEAR_FLOPS] += 2 * weights / (tp * rate * share)
        c[at.LINEAR_BYTES] += weights * form.weight_bytes / (tp * bandwidth * reached)
    c[at.NORM] = terms.norm
    inner = _passes(terms, model, precision) * model.inner * model.inner_layers
    streams = 4 * model.residual_streams * model.hidden * (model.mixing_layers + model.inner_layers)
    moved = ACTIVATION_BYTES * precision.unquantised_bytes / BYTES_16
    c[at.ACTIVATION] = (
        terms.activation * moved * (streams + (model.mixed_width + inner) / tp) / bandwidth
    )
    c[at.HEAD_FLOPS] = 2 * model.head_parameters / (tp * peak_16 * terms.compute_16)
    head = precision.bits("head", model.is_moe) / 8
    c[at.HEAD_BYTES] = head * model.head_parameters / (tp * bandwidth * terms.memory_16)


def dense_formats(model: Model, precision: Precision) -> list[tuple[float, Precision]]:
    """The weights that every token is multiplied with, by format; routers count with what surrounds
    experts.
    """
    groups = {group: count for group, count in model.group_parameters.items() if group != EXPERTS}
    groups["shared"] += model.router_parameters
    weights: dict[str, tuple[float, Precision]] = {}
    for group, count in groups.items():
        for share, form in precision.forms(group, model.is_moe) if count else ():
            counted, _ = weights.get(form.name, (0, form))
            weights[form.name] = (counted + share * count, form)
    return list(weights.values())


def _beside(terms: MatrixTerms, gpu: Gpu, form: Precision) -> tuple[float, float, float]:
    """FLOP/s, the share of them, and that of the bandwidth, that matrices in another format than
    the plan's reach.
    """
    narrow = form.activation_bits < BITS_16 and gpu.fp8_tflops is not None
    rate, share = (
        (gpu.flops("fp8"), terms.compute_8) if narrow else (gpu.flops("fp16"), terms.compute_16)
    )
    return (
        rate or gpu.fp16_tflops * 1e12,
        share,
        terms.memory_16 if form.weight_bits >= BITS_16 else terms.memory_8,
    )


def _passes(terms: MatrixTerms, model: Model, precision: Precision) -> float:
    """Elements of the inner width that a token writes or reads in the MLP of a layer.

    A gated MLP writes the outputs of two matrices, reads both, writes their product and reads that.
    Without a gate the output of one matrix is written and the result of GELU is read; in 16 bits
    GELU moves ``terms.gelu`` elements more between them, and in 8 bits it is fused with the kernel
    that narrows, as Falcon and GPT-J show.
    """
    if model.gated:
        return 6
    return 2 + terms.gelu if precision.activation_bits >= BITS_16 else 1
