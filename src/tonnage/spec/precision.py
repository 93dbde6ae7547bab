"""Number formats of weights, activations and KV cache.

A precision says how many bits each kind of value takes and which of the GPU's arithmetic rates its
matrix products use. It acts on the matrices of the decoder layers: embeddings, the output head, an
expert router and attention itself stay in 16 bits, as the engines keep them.

It is written as a format, and behind it, each after a plus sign, what differs from the format's
own: ``fp8``, ``fp8+kv-fp16``, ``awq+kv-int8``, ``fp8+2:4``, ``nvfp4+experts`` (of a mixture of
experts only the experts, as in the checkpoints that NVIDIA and Moonshot publish),
``mxfp4+rest-fp8`` (the experts, with the other matrices in FP8: DeepSeek V4). Groups of matrices
may have other formats, for a share of their weights where not all of them have:
``nvfp4+attention-fp8``, ``fp8+attention-fp16+mlp-fp16:1/63``, ``gptq+head-gptq``.

Sources of the bits: AWQ and GPTQ checkpoints in groups of 128 with a 16-bit scale and a 4-bit zero
point (AutoAWQ, GPTQModel); INT4 by quantization-aware training in groups of 32 with a 16-bit scale
(Kimi K2.5, compressed-tensors); W4A8 in groups of 128 with a 16-bit scale (TensorRT-LLM
``w4a8_awq``); NVFP4 blocks of 16 with an 8-bit scale (NVIDIA, "Introducing NVFP4", 2025); MXFP4 and
MXFP8 blocks of 32 with an 8-bit exponent (OCP Microscaling Formats 1.0, 2023); INT8 and INT4
weight-only and SmoothQuant one scale per channel, which is less than 0.01 bits. 2:4 keeps two of
four values and two bits of position for each (NVIDIA Ampere architecture whitepaper).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, get_args

from tonnage.errors import InputError, UnknownName

Arithmetic = Literal["fp16", "fp8", "int8", "fp4", "tf32", "fp32"]
KvFormat = Literal["fp16", "fp8", "int8"]

# Bits of one value of each kind
BITS: dict[Arithmetic, int] = {"fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "tf32": 32, "fp32": 32}

SPARSE = "2:4"
KV = "kv-"
EXPERTS = "experts"
GROUPS = ("attention", "state", "mlp", "shared", EXPERTS, "embedding", "head")
"""Groups of a model's matrices: projections of attention, those of layers with a state (Mamba,
linear attention), plain MLPs, shared experts, routed experts, and the two tables."""
TABLES = GROUPS[-2:]
REST_FP8 = "rest-fp8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """One combination of formats, such as FP8 weights and activations with an FP8 KV cache."""

    name: str  # what users write, such as "fp8" or "fp8+kv-fp16"
    # bits per weight of the linear layers as stored, with its share of scales, zero points and
    # positions
    weight_bits: float
    value_bits: int  # bits of the weight's value alone
    # format of the KV cache; without a word about it the one that rows of measurements have with
    # these weights. What an engine takes where nobody says it: ``spec.catalog.checkpoints.as_run``
    kv: KvFormat | Literal["fp32"]
    # the rate that the products of the linear layers use; activations enter them in this format
    arithmetic: Arithmetic
    # weights are stored narrower than they are multiplied, and are unpacked on the way
    unpacked: bool = False
    # the matrix units must take blocks with a scale each, as those with FP4 do
    block_scaled: bool = False
    # in a mixture of experts the other matrices are in another format, as in the checkpoints of
    # gpt-oss
    experts_only: bool = False
    # bits of these other matrices: 16, or 8 for FP8 with a scale per block, as in the checkpoints
    # of DeepSeek V4
    rest_bits: int = 16
    sparse: bool = False  # two of every four weights are zero and neither stored nor multiplied
    parts: tuple[Part, ...] = ()  # groups of matrices that are in another format, or in part
    kernels: str = ""  # the format whose fitted terms it is computed with, where it has none
    # the tool whose checkpoints are in it, where only engines that load those run it, such as
    # "bitsandbytes"
    method: str = ""

    def forms(self, group: str, moe: bool) -> tuple[tuple[float, Precision], ...]:
        """The formats of a group of matrices, each with its share of the weights; ``moe`` is
        whether the model has experts.
        """
        shares = tuple((part.share, part.form) for part in self.parts if part.group == group)
        rest = 1.0 - sum(share for share, _ in shares)
        return shares if rest < LEAST_SHARE else (*shares, (rest, self._rest(group, moe)))

    def _rest(self, group: str, moe: bool) -> Precision:
        """The format of what of a group no part names."""
        if group in TABLES:
            return self if self.value_bits > BITS["fp16"] else PRECISIONS["fp16"]
        if self.experts_only and moe and group != EXPERTS:
            return PRECISIONS["fp8" if self.rest_bits == BITS["fp8"] else "fp16"]
        return self

    def bits(self, group: str, moe: bool) -> float:
        """Mean bits of a weight of a group as stored."""
        return sum(share * form.weight_bits for share, form in self.forms(group, moe))

    @property
    def weight_bytes(self) -> float:
        """Bytes per weight of the linear layers."""
        return self.weight_bits / 8

    @property
    def unquantised_bytes(self) -> int:
        """Bytes of a number of what no format narrows, such as the embedding: two, or four where
        all is in 32 bits.
        """
        return max(16, self.value_bits) // 8

    @property
    def activation_bits(self) -> int:
        """Bits of an activation that enters a linear layer."""
        return BITS[self.arithmetic]

    @property
    def kv_bits(self) -> int:
        """Bits per element of the KV cache."""
        return BITS[self.kv]

    @property
    def kv_bytes(self) -> float:
        """Bytes per element of the KV cache."""
        return self.kv_bits / 8

    @property
    def names_kv(self) -> bool:
        """Whether its name says the format of the KV cache."""
        return f"+{KV}" in self.name

    def with_kv(self, kv: KvFormat) -> Precision:
        """Return the format with another KV cache."""
        return find_precision(f"{self.weights}+{KV}{kv}") if kv != self.kv else self

    @property
    def weight_format(self) -> str:
        """The name without the facts about KV cache and sparsity, such as "fp8"."""
        return self.name.partition("+")[0]

    @property
    def weights(self) -> str:
        """The name without the KV format, such as "nvfp4+experts"."""
        return "+".join(part for part in self.name.split("+") if not part.startswith(KV))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A group of matrices, or a share of it, in another format than the rest."""

    group: str  # one of ``GROUPS``
    form: Precision
    share: float = 1.0  # of the group's weights

    @property
    def name(self) -> str:
        """The part as it is written behind the format, such as "mlp-fp16:1/63"."""
        share = (
            "" if self.share == 1.0 else f":{Fraction(self.share).limit_denominator(LARGEST_PARTS)}"
        )
        return f"{self.group}-{self.form.name.partition('+')[0]}{share}"


LEAST_SHARE = 1e-6  # Shares of a group below this are rounding
LARGEST_PARTS = 1_000  # The largest denominator of a written share


def _format(
    name: str, *, weight_bits: float, value_bits: int, arithmetic: Arithmetic, kv: KvFormat = "fp16"
) -> Precision:
    unpacked = value_bits < BITS[arithmetic]
    return Precision(
        name=name,
        weight_bits=weight_bits,
        value_bits=value_bits,
        kv=kv,
        arithmetic=arithmetic,
        unpacked=unpacked,
    )


# Bits per weight of a 16-bit scale and a 4-bit zero point for 128 weights
_GROUP_OF_128 = (16 + 4) / 128

PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        _format("fp16", weight_bits=16, value_bits=16, arithmetic="fp16"),
        _format("bf16", weight_bits=16, value_bits=16, arithmetic="fp16"),
        _format("fp8", weight_bits=8, value_bits=8, arithmetic="fp8", kv="fp8"),
        _format("int8-sq", weight_bits=8, value_bits=8, arithmetic="int8"),
        _format("int8-wo", weight_bits=8, value_bits=8, arithmetic="fp16"),
        _format("int4-wo", weight_bits=4, value_bits=4, arithmetic="fp16"),
        _format("awq", weight_bits=4 + _GROUP_OF_128, value_bits=4, arithmetic="fp16"),
        _format("gptq", weight_bits=4 + _GROUP_OF_128, value_bits=4, arithmetic="fp16"),
        _format("w4a8", weight_bits=4 + 16 / 128, value_bits=4, arithmetic="fp8", kv="fp8"),
        _format("int4-g32", weight_bits=4 + 16 / 32, value_bits=4, arithmetic="fp16"),
        replace(
            _format("mxfp8", weight_bits=8 + 8 / 32, value_bits=8, arithmetic="fp8", kv="fp8"),
            block_scaled=True,
        ),
        replace(
            _format("nvfp4", weight_bits=4 + 8 / 16, value_bits=4, arithmetic="fp4", kv="fp8"),
            block_scaled=True,
        ),
        replace(
            _format("mxfp4", weight_bits=4 + 8 / 32, value_bits=4, arithmetic="fp8"),
            block_scaled=True,
            unpacked=False,
            experts_only=True,
        ),
    )
}
"""Every format with its own KV format.

``mxfp4`` is multiplied with 8-bit activations by matrix units that take blocks (TensorRT-LLM
``W4A8_MXFP4_MXFP8``); others unpack it to 16 bits: ``Gpu.executes``.
"""

WIDE: dict[str, Precision] = {
    name: Precision(
        name=name, weight_bits=32, value_bits=32, kv="fp32", arithmetic=name, rest_bits=32
    )
    for name in ("tf32", "fp32")
}
"""Formats of 32 bits, estimated on request and never searched: no engine is measured in them. TF32
is FP32 in memory, and its products round to 19 bits (NVIDIA Ampere architecture whitepaper)."""


def _weight_only(name: str, bits: float, method: str, kernels: str) -> Precision:
    """A format that is unpacked to 16 bits by the kernels of another, as far as step times go."""
    form = _format(name, weight_bits=bits, value_bits=math.floor(bits), arithmetic="fp16")
    return replace(form, method=method, kernels=kernels)


STORED: dict[str, Precision] = {
    form.name: form
    for form in (
        _weight_only("fp8-wo", 8, "marlin", "int8-wo"),
        _weight_only("mxfp8-wo", 8 + 8 / 32, "marlin", "int8-wo"),
        _weight_only("nvfp4-wo", 4 + 8 / 16, "marlin", "mxfp4 unpacked"),
        _weight_only("nf4", 4 + 32 / 64, "bitsandbytes", "gptq"),
        _weight_only("nf4-dq", 4 + 8 / 64 + 32 / (64 * 256), "bitsandbytes", "gptq"),
        _weight_only("bnb-int8", 8, "bitsandbytes", "int8-wo"),
        _weight_only("eetq", 8, "eetq", "int8-wo"),
        replace(
            _format("nvfp4-a8", weight_bits=4 + 8 / 16, value_bits=4, arithmetic="fp8"),
            kernels="w4a8",
        ),
    )
}
"""Formats that checkpoints are in and that no step times were fitted to: counted where a file or a
user names them, never searched. NF4 has a 32-bit scale for 64 weights; ``-dq`` narrows these to 8
bits with a 32-bit one for 256 (QLoRA, arXiv 2305.14314, double quantization). LLM.int8() and EETQ
have a scale per row (arXiv 2208.07339)."""

SCALES: dict[str, tuple[float, float]] = {
    "int": (16, 0),
    "gptq": (16, 1),
    "awq": (16, 1),
    "hqq": (32, 0),
    "torchao": (32, 0),
    "quanto": (32, 0),
    **dict.fromkeys(("aqlm", "vptq", "quip", "higgs", "spqr", "bitnet"), (0, 0)),
}
"""Bits that a group of weights takes in addition, and how many zero points of a weight's width, by
family. HQQ, torchao and quanto keep a 16-bit scale and a 16-bit zero point; codebooks are told by
the bits that a checkpoint's own numbers come to, scales included."""

FAMILY = re.compile(
    rf"({'|'.join(SCALES)})-?(\d{{1,2}}(?:\.\d{{1,3}})?)(?:-?bit)?(?:-g(\d{{1,5}}))?"
)


def _of_family(name: str) -> Precision:
    """The format of a family that is written with its bits and its group, such as "gptq-3bit-g64"
    or "int4-g64".

    Groups of 128 may be left out, and 0 is a scale per row.

    Raises KeyError: no such format.
    """
    match = FAMILY.fullmatch(name)
    if match is None or not 1 <= float(match[2]) <= BITS["fp8"]:
        raise KeyError(name)
    family, bits, group = match[1], float(match[2]), int(match[3] or USUAL_GROUP)
    scale, zeros = SCALES[family]
    if not scale:
        group = 0
    written = (
        f"int{bits:g}-g{group}"
        if family == "int"
        else f"{family}-{bits:g}bit{'' if group == USUAL_GROUP or not scale else f'-g{group}'}"
    )
    if (form := PRECISIONS.get(ALIASES.get(written, written))) is not None:
        return form
    stored = bits + ((scale + zeros * bits) / group if group else 0.0)
    usual = family in ("int", "gptq", "awq") and bits in (BITS["fp4"], BITS["fp8"])
    method = "" if usual else {"int": "gptq"}.get(family, family)
    return _weight_only(written, stored, method, "gptq" if bits <= BITS["fp4"] + 1 else "int8-wo")


USUAL_GROUP = 128

ALIASES = {
    **dict.fromkeys(("float16", "half", "f16", "w16a16"), "fp16"),
    **dict.fromkeys(("bfloat16", "bfp16"), "bf16"),
    **dict.fromkeys(("float32", "f32"), "fp32"),
    **dict.fromkeys(
        (
            "fp8-e4m3",
            "e4m3",
            "float8",
            "fp8-w8a8",
            "w8a8-fp8",
            "fp8-dynamic",
            "fp8-block",
            "block-fp8",
        ),
        "fp8",
    ),
    **dict.fromkeys(("smoothquant", "sq", "w8a8", "int8", "int8-w8a8", "w8a8-int8"), "int8-sq"),
    **dict.fromkeys(
        ("w8a16", "int8-w8a16", "w8a16-int8", "gptq-8bit", "int8-weight-only"), "int8-wo"
    ),
    **dict.fromkeys(("int4-weight-only",), "int4-wo"),
    **dict.fromkeys(("int4-awq", "awq-int4", "w4a16-awq", "awq-w4a16", "awq-4bit"), "awq"),
    **dict.fromkeys(
        (
            "int4-gptq",
            "gptq-int4",
            "w4a16",
            "w4a16-gptq",
            "gptq-w4a16",
            "gptq-4bit",
            "int4",
            "int4-w4a16",
        ),
        "gptq",
    ),
    **dict.fromkeys(("w4a8-awq", "w4a8-fp8", "w4afp8"), "w4a8"),
    **dict.fromkeys(("fp8-w8a16", "w8a16-fp8", "fp8-weight-only"), "fp8-wo"),
    **dict.fromkeys(("w4a16-nvfp4", "nvfp4-w4a16", "nvfp4a16", "nvfp4-weight-only"), "nvfp4-wo"),
    **dict.fromkeys(("bnb-nf4", "bitsandbytes-nf4", "bnb-fp4", "nf4-no-dq"), "nf4"),
    **dict.fromkeys(("bnb-nf4-dq", "bnb-4bit", "bitsandbytes-4bit", "nf4-double-quant"), "nf4-dq"),
    **dict.fromkeys(("bnb-8bit", "bitsandbytes-8bit", "bitsandbytes-int8", "llm.int8"), "bnb-int8"),
    **dict.fromkeys(("fp4", "nv-fp4", "w4a4", "w4a4-nvfp4", "nvfp4-w4a4"), "nvfp4"),
    **dict.fromkeys(("mx-fp4", "w4a8-mxfp4", "w4a16-mxfp4", "w4a8-mxfp4-mxfp8"), "mxfp4"),
}
"""Other spellings, as engines, checkpoints and benchmark files write them, underscores as hyphens.
``w8a8`` is INT8 and ``w4a16`` is groups of 128 with GPTQ, as in the names of the checkpoints that
Red Hat publishes for vLLM (huggingface.co/RedHatAI, read 2026-11-22)."""


def find_precision(name: str) -> Precision:
    """The precision of that name, in any case: a format, and behind plus signs its KV format,
    "2:4", or formats of groups of matrices.

    Raises UnknownName: the format, or what is behind it, is not known; InputError: a sparse format
    that no matrix unit multiplies.
    """
    first, *further = (part.strip() for part in name.lower().split("+"))
    try:
        form = _base(first)
    except KeyError:
        raise UnknownName("precision", name, PRECISIONS) from None
    kv, sparse, parts, named = form.kv, False, [], False
    if EXPERTS in further:
        further.remove(EXPERTS)
        form = (
            form
            if form.experts_only
            else replace(form, name=f"{form.name}+{EXPERTS}", experts_only=True)
        )
    if REST_FP8 in further:
        further.remove(REST_FP8)
        form = replace(form, name=f"{form.name}+{REST_FP8}", experts_only=True, rest_bits=8)
    for word in further:
        chosen: KvFormat | None = next(
            (kind for kind in get_args(KvFormat) if word == KV + kind), None
        )
        part = None if chosen is not None or word == SPARSE else _part(word)
        if part is not None:
            parts.append(part)
        elif chosen is None and word != SPARSE:
            behind = (
                *(KV + k for k in get_args(KvFormat)),
                SPARSE,
                EXPERTS,
                REST_FP8,
                "attention-fp16",
            )
            raise UnknownName("precision", name, [f"{form.name}+{rest}" for rest in behind])
        kv, sparse, named = chosen or kv, sparse or word == SPARSE, named or chosen is not None
    return _with(with_parts(form, parts), kv, sparse, named)


def _base(level: str) -> Precision:
    """The format of a name without what is behind it. Raises KeyError: no such format."""
    level = level.replace("_", "-")
    level = ALIASES.get(level, level)
    form = {**PRECISIONS, **WIDE, **STORED}.get(level)
    return _of_family(level) if form is None else form


def _part(word: str) -> Part | None:
    """The group of matrices that a word such as "mlp-fp16:1/63" gives a format; None where it is no
    such word.
    """
    group, _, rest = word.partition("-")
    form, _, share = rest.partition(":")
    try:
        size = float(Fraction(share)) if share else 1.0
        return (
            Part(group=group, form=_base(form), share=size)
            if group in GROUPS and 0 < size <= 1
            else None
        )
    except (KeyError, ValueError, ZeroDivisionError):
        return None


def with_parts(form: Precision, parts: Iterable[Part]) -> Precision:
    """The format with groups in other formats, in the order of ``GROUPS``, and its name."""
    ordered = tuple(sorted(parts, key=lambda part: (GROUPS.index(part.group), part.name)))
    return (
        replace(form, name="+".join((form.name, *(part.name for part in ordered))), parts=ordered)
        if ordered
        else form
    )


def _with(
    precision: Precision, kv: KvFormat | Literal["fp32"], sparse: bool, named: bool
) -> Precision:
    """The format with that KV cache; a name says the KV format where it is not 16 bits by itself
    and it was written.
    """
    written = kv != precision.kv or (named and precision.kv != "fp16")
    name = precision.name + (f"+{SPARSE}" if sparse else "") + (f"+{KV}{kv}" if written else "")
    if not sparse:
        return replace(precision, name=name, kv=kv)
    if precision.unpacked or precision.block_scaled:
        raise InputError(
            f"precision '{name}': weights that are unpacked or have block scales cannot be 2:4"
            " sparse; use fp8+2:4"
        )
    return replace(
        precision, name=name, kv=kv, sparse=True, weight_bits=precision.value_bits / 2 + 1
    )
