"""How far the terms of a later engine are off on rows of an older one, over the interval of an
engine with rows.

    ./benchmark engine_age [--every 7]

The engines of 2024 (static batches of TensorRT-LLM 0.9, loads of NIM 1.0) are predicted with the
terms of each later engine. Of TTFT and the time per token, the ratio is the 80 % quantile of the
absolute log error over half the width of the interval that the row has with its own engine's terms.
``OLDER_ENGINE`` of ``perf/residuals.py`` is the median of the ratios. About 20 s of CPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tonnage.errors import DoesNotFit
from tonnage.evidence.predict import predict, read_point
from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import SHARE, shipped_residuals
from tools.fit.data import Row, read_data

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
LATER = {
    "tensorrt-llm-0.9": (
        "tensorrt-llm-0.9",
        "tensorrt-llm-0.15",
        "tensorrt-llm-1.0",
        "tensorrt-llm-1.2",
    ),
    "nim-2024": ("nim-2024", "tensorrt-llm-0.15", "tensorrt-llm-1.0", "tensorrt-llm-1.2"),
}
METRICS = ("ttft_ms", "itl_ms")


def errors(rows: list[Row], terms: str) -> dict[str, tuple[list[float], list[float]]]:
    """By metric, log(predicted / measured) with the terms of an engine, and half the width of the
    80 % interval of the row's own.
    """
    found: dict[str, tuple[list[float], list[float]]] = {metric: ([], []) for metric in METRICS}
    table = shipped_residuals()
    for row in rows:
        own, other = read_point(row), read_point({**row, "engine": terms})
        try:
            values = predict(other)
        except DoesNotFit:
            continue
        regime = regime_of(
            own.deployment,
            isl=row["isl"],
            osl=row["osl"],
            batch=row.get("batch"),
            clients=row.get("concurrency"),
        )
        for metric, (wrong, half) in found.items():
            if row.get(metric):
                ends = (
                    table.log_error(metric, regime, p) for p in ((1 + SHARE) / 2, (1 - SHARE) / 2)
                )
                wrong.append(float(np.log(values[metric] / row[metric])))
                half.append(float(np.subtract(*ends)) / 2)
    return found


def main() -> None:
    """Print the ratios and their median."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--every", type=int, default=7, help="take every so many rows of a file (default: 7)"
    )
    every, ratios = parser.parse_args().every, []
    data = read_data(DATA)
    print(
        "| rows of | terms of | metric | rows | median log error | ratio"
        " |\n|---|---|---|---|---|---|"
    )
    for engine, later in LATER.items():
        for terms in later:
            for metric, (wrong, half) in errors(data[engine][::every], terms).items():
                ratio = float(np.quantile(np.abs(wrong) / np.array(half), SHARE))
                ratios += [ratio] if terms != engine else []
                print(
                    f"| {engine} | {terms} | {metric} | {len(wrong)} | {np.median(wrong):.3f} |"
                    f" {ratio:.2f} |",
                    flush=True,
                )
    print(f"\nmedian ratio of the terms of later engines: {np.median(ratios):.1f}")


if __name__ == "__main__":
    main()
