"""How well two pools are predicted: TPOT and TTFT of the disaggregated points of
``shared/data/modern``, without speculation.

    ./benchmark two_pools [--most N] [--csv FILE] [--silicon silicon_sample.csv]

Points: InferenceX database dump of 2026-07-20 (median TPOT) and InferenceX-app fixtures (DeepSeek
R1: TTFT too); SemiAnalysis, Apache-2.0, attribution to InferenceX. With ``--silicon`` instead the
two-pool rows of aiconfigurator-core 0.12's file that state their workers: means of TTFT and TPOT.
Formats and settings are those of ``tools/fit/modern/modern.yaml``. No such point is in any fit.

A point with many workers is simulated with as many as have the same ratio, and the clients that
come to them; the load is the benchmark's own, a closed loop. Printed are the mean and the median of
the absolute errors, by GPU, engine and model, and CPU time.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.errors import TonnageError
from tonnage.perf.memory import memory_plan
from tonnage.perf.terms import client_turnaround_s
from tonnage.results.metrics import summarize
from tonnage.simulator.disaggregated import Disaggregated, simulate_disaggregated
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.deployment import Deployment
from tonnage.spec.workload import ClosedLoop, Workload
from tools.fit.modern.rows import rules
from tools.fit.rules import settings
from tools.fit.silicon.sample import clients_of, measured_of, read_sample
from tools.fit.silicon.silicon_rows import lengths, point_of

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "modern"
FILES = ("inferencex_app_dsr1_disagg.csv.gz", "inferencex_dump_disagg.csv.gz")
GPUS = {"GB200-NVL72": "gb200-186gb", "GB300-NVL72": "gb300-279gb"}
ENGINES = {
    "dynamo-trt": "tensorrt-llm",
    "dynamo-sglang": "sglang",
    "mori-sglang": "sglang",
    "sglang-disagg": "sglang",
    "dynamo-vllm": "vllm",
    "llmd-vllm": "vllm",
    "vllm-disagg": "vllm",
    "atom-disagg": "atom",
}
ROUNDS, SPREAD = 10, 0.2
Row = dict[str, Any]


def lines(data: Path) -> Iterator[Row]:
    """The lines of both files that are usable, or have a ``reason``."""
    import gzip

    seen = set()
    for file in FILES:
        with gzip.open(data / file, "rt", encoding="utf-8") as stream:
            for line in csv.DictReader(stream):
                row = facts(line)
                key = tuple(
                    row.get(name)
                    for name in (
                        "model",
                        "gpu",
                        "engine",
                        "precision",
                        "isl",
                        "osl",
                        "concurrency",
                        "prefill",
                        "decode",
                    )
                )
                if "reason" not in row and key in seen and file == FILES[1]:
                    row["reason"] = "measured in the other file too"
                seen.add(key)
                yield row


def facts(line: Mapping[str, str]) -> Row:
    """What a line says."""
    engine, gpu = ENGINES.get(line["engine"]), GPUS.get(line["gpu"], rules().gpus.get(line["gpu"]))
    if line["spec_decoding"] not in ("none", ""):
        return {"reason": "speculation at an unknown acceptance"}
    if engine is None or gpu is None:
        return {"reason": f"engine {line['engine']} or GPU {line['gpu']}"}
    prefill, decode = worker(line, "prefill"), worker(line, "decode")
    if prefill is None or decode is None:
        return {"reason": "workers that are not stated, or no whole number"}
    return {
        "source": line["source"],
        "model": find_model(line["model"]).name,
        "gpu": gpu,
        "amd": find_gpu(gpu).vendor == "AMD",
        "dump": True,
        "engine": engine,
        "served": line["engine"],
        "precision": line["precision"],
        "kv": line.get("kv_precision", ""),
        "isl": int(float(line["isl"])),
        "osl": int(float(line["osl"])),
        "concurrency": int(float(line["concurrency"])),
        "prefill": prefill,
        "decode": decode,
        "tpot_ms": number(line.get("tpot_ms_median") or line.get("tpot_ms_mean")),
        "ttft_ms": number(line.get("ttft_ms_median")),
        "ttft_mean_ms": number(line.get("ttft_ms_mean")),
    }


def silicon_lines(file: Path) -> Iterator[Row]:
    """The two-pool rows of silicon_sample.csv that are usable, or have a ``reason``."""
    systems = {
        "gb200": "gb200-186gb",
        "gb300": "gb300-279gb",
        "b200_sxm": "b200-sxm-180gb",
        "b300_sxm": "b300-sxm-270gb",
    }
    systems |= {"h100_sxm": "h100-sxm-80gb", "h200_sxm": "h200-sxm-141gb"}
    backends = {"trtllm": "tensorrt-llm", "sglang": "sglang", "vllm": "vllm"}
    for line in read_sample(file):
        if line["mode"] == "agg":
            continue
        splits = {
            pool: tuple(
                int(line.get(f"{pool}_{name}") or 0)
                for name in ("tp_size", "attention_dp_size", "moe_ep_size", "num_workers")
            )
            for pool in ("prefill", "decode")
        }
        if not all(split[0] and split[3] for split in splits.values()) or not clients_of(line):
            yield {"reason": "workers or clients that are not stated"}
            continue
        name = line["model_path"].rsplit("/", 1)[-1]
        model = "deepseek-r1" if name.startswith("DeepSeek") else name.lower()
        if "qwen3" in model:
            yield {"reason": f"model {name}"}
            continue
        measured = measured_of(line)
        yield {
            "source": "silicon_sample",
            "model": model,
            "gpu": systems[line["system"]],
            "amd": False,
            "dump": True,
            "engine": backends[line["backend"]],
            "served": line["backend"],
            "precision": line["precision"] or "fp4",
            "kv": "",
            "isl": int(line["isl"]),
            "osl": int(line["osl"]),
            "concurrency": clients_of(line),
            **{
                pool: (tp, max(dp, 1), max(ep, 1), count)
                for pool, (tp, dp, ep, count) in splits.items()
            },
            "tpot_ms": measured["itl_ms"],
            "ttft_ms": None,
            "ttft_mean_ms": measured["ttft_ms"],
        }


def number(text: str | None) -> float | None:
    """A number, if there is one."""
    return float(text) if text else None


def worker(line: Mapping[str, str], pool: str) -> tuple[int, int, int, int] | None:
    """TP, attention ranks, EP and number of the workers of a pool; None where they are not stated
    or do not fit its GPUs.
    """

    def value(name: str) -> str:
        return line.get(f"{pool}_{name}") or (line.get(name) if pool == "decode" else "") or ""

    gpus, ep, count = (int(float(value(name) or 0)) for name in ("tp", "ep", "num_workers"))
    attention = value("dp_attention") or (
        str(float(line.get("dp") or 1) > 1) if pool == "decode" else ""
    )
    if gpus < 1 or count < 1:
        return None
    stated = line.get(f"num_{pool}_gpu")
    if stated and int(float(stated)) != gpus * count:
        return None
    dp = gpus if attention in ("True", "1.0", "1") else 1
    return gpus // dp, dp, max(ep, 1), count


def deployment(row: Row, split: tuple[int, int, int, int], clients: int) -> Deployment:
    """A worker, with the settings of its run."""
    tp, dp, ep, _ = split
    seen = row | {"tp": tp, "dp": dp, "ep": ep, "concurrency": clients}
    made = seen | settings(rules().formats, seen)
    made |= settings(rules().caches, made)
    cache = {"fp8_e4m3": "fp8", "fp8": "fp8", "auto": "fp16"}.get(made["kv"], made["cache"])
    made["precision"] = f"{made['format']}+kv-{cache}"
    made |= settings(rules().runs, made)
    made["receive"] = 1
    return point_of(made).deployment


def predicted(row: Row) -> tuple[float, float, float]:
    """TPOT, median and mean TTFT of a point, in ms."""
    ranks = [row[pool][1] * row[pool][3] for pool in ("prefill", "decode")]
    fewer = math.gcd(*(row[pool][3] for pool in ("prefill", "decode")), row["concurrency"])
    clients = row["concurrency"] // fewer
    prefill, decode = (
        deployment(row, row[pool], max(row["concurrency"] // count, 1))
        for pool, count in zip(("prefill", "decode"), ranks, strict=True)
    )
    longest = max(4 * row["isl"], 16384)
    prefill = replace(
        prefill, knobs=replace(prefill.knobs, max_batch_size=max(prefill.knobs.max_batch_size, 64))
    )
    if prefill.knobs.scheduler != "sglang":
        prefill = replace(prefill, knobs=replace(prefill.knobs, max_num_tokens=longest))
    held = memory_plan(decode)
    if held.blocks < 1:
        raise ValueError("no room for a cache")
    plan = Disaggregated(
        prefill=prefill,
        decode=decode,
        prefill_instances=row["prefill"][3] // fewer,
        decode_instances=row["decode"][3] // fewer,
    )
    load = Workload(
        isl=lengths(row["isl"], SPREAD),
        osl=lengths(row["osl"], SPREAD),
        arrivals=ClosedLoop(concurrency=clients, turnaround_s=client_turnaround_s(prefill)),
        requests=min(ROUNDS * clients, max(3 * clients, 3000)),
    )
    found = summarize(simulate_disaggregated(plan, load.trace(0)))
    return (
        found.tpot_ms.p50 or math.nan,
        found.ttft_ms.p50 or math.nan,
        found.ttft_ms.mean or math.nan,
    )


def main() -> None:
    """Print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--most", type=int, default=10_000, help="points, evenly taken from all")
    parser.add_argument(
        "--clients",
        type=int,
        default=1024,
        help="points of more clients are left out: they take minutes each",
    )
    parser.add_argument(
        "--silicon",
        type=Path,
        help="silicon_sample.csv of aiconfigurator-core, in place of the two files",
    )
    parser.add_argument("--csv", type=Path, help="write every point to this file")
    asked = parser.parse_args()
    rows, reasons = [], Counter[str]()
    for row in silicon_lines(asked.silicon) if asked.silicon else lines(asked.data):
        if "reason" in row:
            reasons[row["reason"]] += 1
        elif row["concurrency"] > asked.clients:
            reasons[f"more than {asked.clients} clients"] += 1
        else:
            rows.append(row)
    rows = rows[:: max(len(rows) // asked.most, 1)]
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    out = []
    begun = time.process_time()
    for row in rows:
        try:
            tpot, median, mean = predicted(row)
        except (TonnageError, ValueError) as error:
            reasons[str(error)[:60]] += 1
            continue
        for name, found, measured in (
            ("TPOT", tpot, row["tpot_ms"]),
            ("TTFT p50", median, row["ttft_ms"]),
            ("TTFT mean", mean, row["ttft_mean_ms"]),
        ):
            if measured:
                for group in ("all", f"{row['gpu']} {row['served']}", row["model"]):
                    errors[name, group].append(found / measured - 1)
                out.append(
                    {k: v for k, v in row.items() if not isinstance(v, tuple)}
                    | {
                        "prefill": row["prefill"],
                        "decode": row["decode"],
                        "metric": name,
                        "predicted": found,
                        "measured": measured,
                    }
                )
    print(f"{len(rows)} points, {time.process_time() - begun:.0f} s of CPU time")
    for reason, count in reasons.most_common():
        print(f"  left out {count}: {reason}")
    print(f"{'':10}{'':46}{'points':>8}{'mean |e|':>10}{'median |e|':>12}{'median e':>10}")
    for (name, group), found in sorted(
        errors.items(), key=lambda one: (one[0][0], one[0][1] != "all", one[0][1])
    ):
        sizes = [abs(one) for one in found]
        print(
            f"{name:10}{group:46}{len(found):8}{statistics.mean(sizes):10.1%}{statistics.median(sizes):12.1%}{statistics.median(found):10.1%}"
        )
    if asked.csv:
        with asked.csv.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(out[0]))
            writer.writeheader()
            writer.writerows(out)


if __name__ == "__main__":
    main()
