"""Files like ``silicon_sample.csv`` of the wheel aiconfigurator-core, for tests of what reads
it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

NVIDIA = {
    "mode": "agg",
    "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm",
    "backend": "vllm",
    "precision": "",
    "tp_size": "2",
    "pp_size": "1",
    "attention_dp_size": "",
    "batch_size": "16",
    "isl": "1024",
    "osl": "512",
    "silicon_data_source": "source_file=/home/x/Qwen_Qwen3-32B.csv; silicon_concurrency=16",
    "silicon_ttft_ms": "189.6",
    "silicon_tpot_ms": "17.88",
}
"""A line that is used, of a dense model."""

OF_EXPERTS = ("backend_version", "moe_tp_size", "moe_ep_size")
"""Columns that lines of dense models leave empty."""


def sample(folder: Path, *lines: Mapping[str, str], name: str = "silicon_sample.csv") -> Path:
    """A file of these lines, with every column that one of them has."""
    file = folder / name
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(
            stream,
            dict.fromkeys((*NVIDIA, *OF_EXPERTS, *(column for line in lines for column in line))),
            restval="",
        )
        writer.writeheader()
        writer.writerows(lines)
    return file
