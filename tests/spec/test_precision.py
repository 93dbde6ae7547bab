"""Formats by name, their bits, what may stand behind them, and which hardware and engines refuse
which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError, UnknownName
from tonnage.spec.catalog import engines, find_engine, find_gpu, gpus
from tonnage.spec.precision import BITS, PRECISIONS, find_precision

BITS_PER_WEIGHT = {
    "fp16": 16.0,
    "bf16": 16.0,
    "fp8": 8.0,
    "int8-sq": 8.0,
    "int8-wo": 8.0,
    "int4-wo": 4.0,
    "awq": 4.15625,  # groups of 128 with 16 + 4 bits
    "gptq": 4.15625,
    "w4a8": 4.125,
    "int4-g32": 4.5,  # groups of 32 with 16 bits
    "mxfp8": 8.25,  # blocks of 32 with 8 bits
    "nvfp4": 4.5,  # blocks of 16 with 8 bits
    "mxfp4": 4.25,  # blocks of 32 with 8 bits
}


WEIGHT_ONLY = ("int8-wo", "int4-wo", "awq", "gptq", "int4-g32")


ANYWHERE = {"fp16", *WEIGHT_ONLY, "mxfp4"}
"""Formats that need FP16 arithmetic alone."""


CAN = {
    "Volta": ANYWHERE,
    "Turing": ANYWHERE | {"int8-sq"},
    "Ampere": ANYWHERE | {"int8-sq", "bf16"},
    "Ada": ANYWHERE | {"int8-sq", "bf16", "fp8", "w4a8"},
    "Hopper": ANYWHERE | {"int8-sq", "bf16", "fp8", "w4a8"},
    "Blackwell": set(PRECISIONS),
    "Blackwell Ultra": set(PRECISIONS),
    "RTX Blackwell": set(PRECISIONS),
    "Ironwood": ANYWHERE | {"bf16", "fp8", "w4a8"},
    "Battlemage": ANYWHERE | {"int8-sq", "bf16"},
    "CDNA3": ANYWHERE | {"int8-sq", "bf16", "fp8", "w4a8"},
    "CDNA4": ANYWHERE | {"int8-sq", "bf16", "fp8", "mxfp8", "w4a8"},
    "Gaudi3": ANYWHERE | {"bf16", "fp8", "w4a8"},
    "TPU v5e": ANYWHERE | {"int8-sq", "bf16"},
    "Rubin": set(PRECISIONS),
    "CDNA2": ANYWHERE | {"int8-sq", "bf16"},
    "CDNA5": ANYWHERE | {"int8-sq", "bf16", "fp8", "mxfp8", "w4a8"},
    "RDNA3": ANYWHERE | {"int8-sq", "bf16"},
    "RDNA4": ANYWHERE | {"int8-sq", "bf16", "fp8", "w4a8"},
    "Gaudi2": ANYWHERE | {"bf16", "fp8", "w4a8"},
    "TPU v5p": ANYWHERE | {"int8-sq", "bf16"},
    "Trillium": ANYWHERE | {"int8-sq", "bf16", "fp8", "w4a8"},
}


def test_what_is_unpacked_and_in_what_it_is_multiplied() -> None:
    assert {
        name: precision.weight_bits for name, precision in PRECISIONS.items()
    } == BITS_PER_WEIGHT
    for name in WEIGHT_ONLY:
        assert PRECISIONS[name].unpacked
        assert PRECISIONS[name].arithmetic == "fp16"
        assert PRECISIONS[name].activation_bits == 16
    assert PRECISIONS["w4a8"].unpacked
    assert PRECISIONS["w4a8"].arithmetic == "fp8"
    assert not any(
        PRECISIONS[name].unpacked for name in ("fp16", "bf16", "fp8", "int8-sq", "nvfp4")
    )
    mxfp4 = find_precision("mxfp4")
    blackwell, hopper = (find_gpu(name).executes(mxfp4) for name in ("b200", "h100"))
    assert (blackwell.arithmetic, blackwell.unpacked) == ("fp8", False)
    assert (hopper.arithmetic, hopper.unpacked) == ("fp16", True)
    assert hopper.weight_bits == blackwell.weight_bits
    for gpu in gpus():
        assert all(gpu.executes(one) == one for name, one in PRECISIONS.items() if name != "mxfp4")


def test_hardware_refuses_what_it_cannot_do_in_one_line() -> None:
    for gpu in gpus():
        assert {name for name, precision in PRECISIONS.items() if gpu.supports(precision)} == CAN[
            gpu.arch
        ]
        for name, precision in PRECISIONS.items():
            why = gpu.lacks(precision)
            assert bool(why) == (name not in CAN[gpu.arch])
            assert "\n" not in why
            assert not why or why.startswith("no ")
    for gpu in gpus():
        newer = gpu.vendor == "NVIDIA" and gpu.arch not in {"Volta", "Turing"}
        assert gpu.supports(find_precision("fp16+2:4")) == newer
        assert gpu.supports(find_precision("fp8+2:4")) == (newer and gpu.arch != "Ampere")


@pytest.mark.parametrize(
    ("engine", "gpu", "name", "how"),
    [
        ("vllm", "a100-sxm-80gb", "fp8", "unpacked"),
        ("vllm", "h100", "fp8", "native"),
        ("vllm", "h100", "nvfp4", "unpacked"),
        ("vllm", "b200", "nvfp4", "native"),
        ("vllm", "h200", "mxfp8", "unpacked"),
        ("vllm-0.10", "h200", "mxfp8", "no matrix units for the block scales of MXFP8"),
        ("vllm", "b200", "mxfp8", "native"),
        ("sglang-0.5.9", "a100-sxm-80gb", "fp8", "unpacked"),
        ("sglang-0.5.9", "l40s", "nvfp4", "unpacked"),
        ("sglang-0.5", "l40s", "nvfp4", "no FP4 matrix units"),
        ("tensorrt-llm", "a100-sxm-80gb", "fp8", "no FP8 matrix units"),
        ("nim", "a100-sxm-80gb", "fp8", "no FP8 matrix units"),
        ("tensorrt-llm", "h100", "nvfp4", "no FP4 matrix units"),
        ("vllm", "v100-sxm2-32gb", "fp8", "no FP8 matrix units"),
        ("vllm", "a100-sxm-80gb", "w4a8", "no FP8 matrix units"),
        ("vllm", "a100-sxm-80gb", "fp8+2:4", "no FP8 matrix units"),
        ("vllm", "a100-sxm-80gb", "gptq+attention-fp8", "native"),
        ("tensorrt-llm", "a100-sxm-80gb", "gptq+attention-fp8", "no FP8 matrix units"),
        ("vllm", "mi300x", "mxfp8", "no matrix units for the block scales of MXFP8"),
    ],
)
def test_a_format_runs_natively_unpacked_or_not_at_all(
    engine: str, gpu: str, name: str, how: str
) -> None:
    board = find_gpu(gpu)
    run = find_engine(engine).runs(find_precision(name), board)
    assert (board.lacks(run) or ("unpacked" if run.kernels else "native")) == how
    assert (run.name, run.weight_bits) == (name, find_precision(name).weight_bits)
    if how == "unpacked":
        assert (run.arithmetic, run.activation_bits, run.unpacked, run.block_scaled) == (
            "fp16",
            16,
            True,
            False,
        )
    assert find_engine(engine).runs(run, board) == run


def test_what_engines_unpack_names_formats_and_generations() -> None:
    generations = {gpu.arch for gpu in gpus()}
    for engine in engines():
        for entry in engine.unpacks:
            name, _, generation = entry.partition(" ")
            assert name in PRECISIONS
            assert generation in generations


def test_names_of_formats() -> None:
    for spelling, name in [
        *(
            ("w8a8", "int8-sq"),
            ("W8A8-FP8", "fp8"),
            ("fp8_e4m3", "fp8"),
            ("w8a16", "int8-wo"),
            ("half", "fp16"),
        ),
        *(
            ("w4a16", "gptq"),
            ("w4a16+kv-fp8", "gptq+kv-fp8"),
            ("AWQ-int4", "awq"),
            ("w4a8_awq", "w4a8"),
            ("w4a4", "nvfp4"),
        ),
    ]:
        assert find_precision(spelling).name == name
    for written in ["fp7", "fp8+", "fp8+kv-fp7", "fp8+2:8", "+2:4", "", "fp8 kv-fp16"]:
        with pytest.raises(UnknownName):
            find_precision(written)


@pytest.mark.parametrize("name", ["fp32", "tf32"])
def test_32_bits_are_four_bytes_everywhere_and_never_searched(name: str) -> None:
    found = find_precision(name)
    assert (found.weight_bytes, found.kv_bytes, found.unquantised_bytes) == (4, 4, 4)
    assert found.name not in PRECISIONS
    assert find_gpu("l4").lacks(found) == f"no {name.upper()} rate in the catalog"
    for gpu in gpus():
        rate, half = gpu.flops(found.arithmetic), gpu.flops("fp16")
        assert rate is None or (half is not None and rate <= 0.51 * half)
        assert gpu.supports(found) == (rate is not None)
    assert find_gpu("h100").supports(find_precision(f"{name}+2:4")) == (name == "tf32")


@pytest.mark.parametrize(
    ("engine", "refused"),
    [
        ("tensorrt-llm-0.9", {"nvfp4", "mxfp4"}),
        ("nim-2024", {"nvfp4", "mxfp4"}),
        ("tensorrt-llm-1.0", {"int8-sq", "int8-wo", "int4-wo"}),
        ("vllm", set()),
    ],
)
def test_engines_refuse_what_they_have_no_kernels_for(engine: str, refused: set[str]) -> None:
    spec = find_engine(engine)
    assert {name for name, precision in PRECISIONS.items() if spec.lacks(precision)} == refused
    assert all(set(one.without) <= set(PRECISIONS) for one in engines())


FORMATS = st.sampled_from(sorted(PRECISIONS))


KV = st.sampled_from(["fp16", "fp8", "int8"])


@given(FORMATS, KV)
def test_one_thing_has_one_name(name: str, kv: str) -> None:
    found = find_precision(f"{name.upper()} + kv-{kv}")
    assert found.kv == kv
    assert found.kv_bits == BITS[found.kv]
    assert find_precision(found.name) == found
    assert found.weight_format == name
    assert (found.name == name) == (kv == PRECISIONS[name].kv == "fp16")
    assert PRECISIONS[name].name == name
    assert found.weight_bits == PRECISIONS[name].weight_bits


@given(FORMATS, KV, st.booleans())
def test_sparse_weights_take_half_the_values_and_a_bit_of_position(
    name: str, kv: str, first: bool
) -> None:
    parts = ["2:4", f"kv-{kv}"] if first else [f"kv-{kv}", "2:4"]
    written = "+".join([name, *parts])
    own = PRECISIONS[name]
    if own.unpacked or own.block_scaled:
        with pytest.raises(InputError, match="cannot be 2:4 sparse"):
            find_precision(written)
        return
    found = find_precision(written)
    assert found.sparse
    assert found.weight_bits == own.value_bits / 2 + 1
    assert find_precision(found.name) == found
