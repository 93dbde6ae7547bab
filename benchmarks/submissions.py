"""MLPerf's submissions of dense models: tokens/s inside the p99 limits of Server and Interactive,
as sized, over those that were measured.

    ./benchmark submissions ../shared/data/mlperf_v61.csv [--vendor AMD]

One GPU of each system is sized, at TP 1 and a confidence of 50 %, with the lengths of its data set
and Poisson arrivals; of systems with the same GPU the median is compared. The fit reads AMD's
Offline runs (docs/fit.md), and none of these.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections import defaultdict

from tonnage import api
from tonnage.spec.catalog import gpus

LENGTHS = {
    "llama-2-70b": ("lognormal:294,230", "lognormal:284,220"),
    "llama-3.1-8b": ("lognormal:778,300", "128"),
}
"""Prompts and outputs: means of the data sets (README of the data), with spreads that are
estimates."""

FORMATS = {"AMD": "mxfp4+kv-fp8", "NVIDIA": "nvfp4+kv-fp8"}
"""What submissions in FP4 run."""

ENGINES = {"AMD": "vllm", "NVIDIA": "tensorrt-llm"}


def main() -> None:
    """Size each kind of GPU and scenario, and print how far off it is."""
    flags = argparse.ArgumentParser()
    flags.add_argument("file")
    flags.add_argument("--vendor", default="AMD", choices=sorted(FORMATS))
    asked = flags.parse_args()
    known = {gpu.name for gpu in gpus() if gpu.vendor == asked.vendor}
    measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with open(asked.file, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["model"] in LENGTHS and row["ttft_limit_p99_ms"] and row["gpu_id"] in known:
                key = (
                    row["model"],
                    row["gpu_id"],
                    row["precision"],
                    row["scenario"],
                    row["ttft_limit_p99_ms"],
                    row["tpot_limit_p99_ms"],
                )
                measured[key].append(float(row["tokens_per_s"]) / float(row["gpus"]))
    errors = []
    for (model, gpu, precision, scenario, ttft, tpot), rates in sorted(measured.items()):
        rate, (isl, osl) = statistics.median(rates), LENGTHS[model]
        form = FORMATS[asked.vendor] if precision == "fp4" else precision
        tokens = float(osl.partition(":")[2].partition(",")[0] or osl)
        plan = api.size(
            model=model,
            gpu=gpu,
            precision=form,
            tp=1,
            engine=ENGINES[asked.vendor],
            isl=isl,
            osl=osl,
            peak_rps=8 * rate / tokens,
            ttft=f"p99<={ttft}ms",
            tpot=f"p99<={tpot}ms",
            confidence=50,
        )
        found = (
            0.0 if plan.choice is None else plan.choice.requests_per_second_per_8_gpus * tokens / 8
        )
        errors.append(100 * (found / rate - 1))
        print(
            f"{model} {gpu} {form} {scenario}: measured {rate:,.0f}, predicted {found:,.0f}"
            f" tokens/s per GPU ({errors[-1]:+.0f} %)",
            flush=True,
        )
    if errors:
        print(
            f"median size of the error {statistics.median(map(abs, errors)):.0f} %, median error"
            f" {statistics.median(errors):+.0f} %"
        )


if __name__ == "__main__":
    main()
