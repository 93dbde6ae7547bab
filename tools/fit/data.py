"""The measured files of the first stage of the fit, and one curve of NVIDIA's course."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tonnage.formats.measured_files import is_steady, read_measured
from tonnage.perf.matrices import fitted_bits
from tonnage.spec.catalog import find_gpu
from tonnage.spec.precision import find_precision
from tools.fit.terms import CURRENT, NIM, STATIC

Row = dict[str, Any]

FILES = {
    STATIC: "trtllm_static_batch.csv",
    NIM: "nim_inflight.csv",
    CURRENT: "trtllm_throughput.csv",
}
"""The file of each engine's rows. Those of ``nim_inflight.csv`` that are not steady are left
out."""

CURVE_SOURCE = (
    "NVIDIA course Sizing LLM Inference Systems, NIM benchmarks: Llama-3-8B, H100, FP8, TP 1, 2000"
    " in, 200 out"
)
CURVE = (
    (1, 34.683, 0.838544, 216),
    (2, 48.783, 1.617597, 216),
    (5, 125.293, 3.274742, 216),
    (10, 220.845, 5.195428, 216),
    (25, 489.486, 8.843420, 216),
    (50, 702.891, 11.132425, 216),
    (100, 883.644, 12.990076, 216),
    (150, 975.301, 13.314868, 288),
    (200, 1136.807, 13.367180, 288),
    (250, 1163.412, 13.827163, 288),
)
"""Clients, mean TTFT in ms, requests/s, and the window in seconds, which is inferred as in the NIM
file."""


def read_data(folder: Path) -> dict[str, list[Row]]:
    """The rows of every engine that are fitted; those of NIM that are not steady by their own
    numbers are left out ("stated-by-source").

    Raises:
        InputError: a file is missing or damaged.
    """
    rows = {engine: read_measured(folder / name) for engine, name in FILES.items()}
    rows[NIM] = [row for row in rows[NIM] if is_steady(row)]
    return rows


def curve_rows() -> list[Row]:
    """The points of ``CURVE`` as rows of a measured table."""
    what = {
        "model": "llama-3-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp8",
        "tp": 1,
        "isl": 2000,
        "osl": 200,
        "engine": "nim",
    }
    names = ("concurrency", "ttft_ms", "requests_s", "window_s")
    return [{**what, **dict(zip(names, point, strict=True))} for point in CURVE]


def measured_bits(rows: Iterable[Row]) -> set[tuple[str, str]]:
    """The GPUs of some rows, each with the bits in which it was measured ("8" or "16")."""
    return {(find_gpu(row["gpu"]).name, _bits(row)) for row in rows}


def _bits(row: Row) -> str:
    return fitted_bits(find_gpu(row["gpu"]).executes(find_precision(row["precision"])))


def group_of(row: Row) -> tuple[str, str, str, int]:
    """What the rows of one group have in common: model, GPU, precision and TP."""
    return row["model"], row["gpu"], row["precision"], row["tp"]
