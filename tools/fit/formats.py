"""What number formats reach of the efficiencies that are fitted to 16 and 8 bits: priors where no
row here tells, with their sources.

A pair is (compute, memory). Those of kernels are ratios of measured times of matrix products in the
form of ``perf.step``: what the pair must be for the p-norm to give the measured speed-up over 16
bits at 1 to 8,192 tokens; ``kernel_shares`` computes them from the tables of the wheel
aiconfigurator-core 0.12. All of this stands here before any scoring and moves only by a fit that
has rows of the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

NEWER = ("Hopper", "Blackwell", "Blackwell Ultra")
"""Generations whose matrix rate has outgrown the units that unpack."""

MEMORY_4 = 0.70
"""Between what 4-bit kernels reach in TensorRT-LLM (0.57 on A100, aiconfigurator-core 0.12; 0.48 to
0.9 by the speed-ups below) and the 0.9 of Marlin, 3.87 of 4 times at batch 16 (Frantar et al.,
arXiv 2408.11743; recalled). On H100 with one token Marlin takes 1/2.17 of 16 bits' time, Machete
1/3.06 (inclusionAI/humming pull/2, vllm-project/vllm pull/23198): 0.58 and 0.81 of what 4.25 bits
allow."""

MARLIN = 0.85
"""Before Hopper, whose memory is not faster than the units that unpack: close to the greatest
speed-up up to 16 to 32 tokens (arXiv 2408.11743, looked up 2026-11-28). Llama 2 7B by TurboMind on
an RTX 4090, 206 tokens/s (mit-han-lab/llm-awq issue 78), leaves as much."""

A100_KERNELS = "matrix products of TensorRT-LLM 1.0 on A100 (aiconfigurator-core 0.12)"
SPEEDUPS = (
    "speed-ups that NVIDIA publishes for H200 and H100 (Model Optimizer 0.15 and 0.21,"
    " examples/benchmark.md)"
)
B200_STUDY = (
    "our study of FP4 rows on B200; matrix products of vLLM and SGLang there agree"
    " (aiconfigurator-core 0.12)"
)

_PRIORS: tuple[tuple[tuple[str, ...], tuple[str, ...], float, float, str], ...] = (
    (("int8-sq",), (), 0.90, 0.87, A100_KERNELS),
    (("int8-wo",), (), 0.96, 0.83, A100_KERNELS),
    (
        ("int4-wo",),
        (),
        0.88,
        MEMORY_4,
        f"compute by {A100_KERNELS}, memory between these and Marlin's",
    ),
    (("awq", "gptq", "int4-g32"), (), 0.88, MARLIN, f"compute by {A100_KERNELS}, memory of Marlin"),
    (("int8-wo",), NEWER, 0.80, 0.83, "compute as AWQ on H100, memory as on A100"),
    (
        ("int4-wo", "awq", "gptq", "int4-g32"),
        NEWER,
        0.80,
        MEMORY_4,
        f"between two engine versions, from {SPEEDUPS}",
    ),
    (("w4a8",), (), 0.72, MEMORY_4, f"compute over FP8 from {SPEEDUPS}, memory as AWQ"),
    (("nvfp4",), (), 0.79, 0.80, B200_STUDY),
    (
        ("nvfp4",),
        ("Blackwell Ultra",),
        0.54,
        0.80,
        "matrix products of TensorRT-LLM 1.3 and vLLM 0.24 on B300 (aiconfigurator-core 0.12)",
    ),
    (("mxfp4",), (), 1.0, 0.80, "compute as FP8, memory as NVFP4"),
    (
        ("mxfp4",),
        ("CDNA4",),
        1.60,
        0.80,
        "twice the rate of FP8, of which compute and memory reach NVFP4's shares",
    ),
    (("mxfp8",), (), 0.90, 0.95, "a little below FP8 for a scale per 32 weights: an estimate"),
    (("mxfp4 unpacked",), (), 0.80, MEMORY_4, "as AWQ on Hopper"),
    (
        ("2:4",),
        (),
        0.70,
        1.0,
        (
            "kernels 1.5 to 1.7 and prefill 1.3 times dense FP8 on H100 (arXiv 2603.05232), bytes"
            " as dense"
        ),
    ),
)
"""Formats, generations (none stands for all others), compute share, memory share, and source."""

FORMATS: dict[str, dict[str, float]] = {}
ORIGINS: dict[str, str] = {}
for _names, _generations, _compute, _memory, _source in _PRIORS:
    for _name in _names:
        for _generation in _generations or ("",):
            FORMATS[f"{_name} {_generation}".strip()] = {"compute": _compute, "memory": _memory}
            ORIGINS[f"{_name} {_generation}".strip()] = _source

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
NARROWEST, FEWEST, MOST = 2048, 3e7, 6e8
"""The matrices that count as those of a decoder layer: by their smaller side, and by how many
weights they have."""

BASE, NORM = (0.7, 0.8), 1.445
"""The efficiencies of 16 bits and the exponent, on which the shares hardly depend."""


def kernel_shares(
    file: Path, *, dtype: str, rate: float, weight_bytes: float, rate_16: float, bandwidth: float
) -> tuple[float, float]:
    """Compute and memory share of a format by a table of measured matrix products.

    Args:
        file: ``gemm_perf.parquet`` with ``gemm_dtype, m, n, k, latency`` (ms), of a GPU with
            ``bfloat16`` in it too.
        dtype: the format's name there, such as "int4_wo".
        rate, rate_16: the GPU's matrix rates in the format's arithmetic and in 16 bits, FLOP/s.
        weight_bytes: bytes per weight of the format.
        bandwidth: of the GPU's memory, bytes/s.

    Returns:
        Relative to 16 bits' own, for a format whose fitted efficiencies are those of 16 bits.
    """
    import numpy as np
    from scipy.optimize import least_squares

    tokens, gain = _speed_ups(file, dtype)

    def seconds(rate: float, size: float, pair: tuple[float, float]) -> NDArray[np.float64]:
        """The seconds that one weight takes."""
        arithmetic, reading = 2 * tokens / (rate * pair[0]), size / (bandwidth * pair[1])
        both: NDArray[np.float64] = (arithmetic**NORM + reading**NORM) ** (1 / NORM)
        return both

    def misfit(x: NDArray[np.float64]) -> NDArray[np.float64]:
        pair = (BASE[0] * float(np.exp(x[0])), BASE[1] * float(np.exp(x[1])))
        error: NDArray[np.float64] = np.log(
            seconds(rate_16, 2.0, BASE) / seconds(rate, weight_bytes, pair) / gain
        )
        return error

    compute, memory = np.exp(least_squares(misfit, np.zeros(2)).x)
    return float(compute), float(memory)


def _speed_ups(file: Path, dtype: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numbers of tokens, and at each the geometric mean of the 16-bit time over the format's
    time.
    """
    import numpy as np
    import pyarrow.parquet as pq

    table = pq.read_table(file, columns=["gemm_dtype", "m", "n", "k", "latency"])
    name, m, n, k, latency = (table[column].to_numpy() for column in table.column_names)
    layer = (np.minimum(n, k) >= NARROWEST) & (n * k >= FEWEST) & (n * k <= MOST)
    times = {kind: _times(layer & (name == kind), m, n, k, latency) for kind in ("bfloat16", dtype)}
    found = {}
    for count in TOKENS:
        ratios = [
            times["bfloat16"][key] / t
            for key, t in times[dtype].items()
            if key[0] == count and key in times["bfloat16"]
        ]
        if ratios:
            found[count] = float(np.exp(np.mean(np.log(ratios))))
    return np.array(list(found), dtype=float), np.array(list(found.values()))


def _times(
    chosen: NDArray[np.bool_], *columns: NDArray[np.float64]
) -> dict[tuple[int, ...], float]:
    rows = zip(*(column[chosen].tolist() for column in columns), strict=True)
    return {(m, n, k): latency for m, n, k, latency in rows}
