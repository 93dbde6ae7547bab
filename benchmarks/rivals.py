"""Errors beside AISimulate's on the measured points of 2026, each model left out of our fit in
turn.

    ./benchmark rivals --aisimulate ENVIRONMENT [--data ../shared/data/modern/agg.csv.gz] [--models deepseek-r1,kimi-k2.5]

Nothing is downloaded here. AISimulate is installed beforehand, into an environment of its own (1.6
GB):

    python -m venv /tmp/ais && /tmp/ais/bin/pip install --pre
    aisimulate==0.13.0.dev202610270000000085

The points are those of docs/accuracy.md: at most eight of a model, GPU, engine and format. Both get
the deployment, the slots and the token budget of the run, and its format of the KV cache where
AISimulate has tables for it. AISimulate takes one length for all requests, here the mean of the
drawn ones, and its newest tables of each engine; its own fit may have read the same public runs.
What it refuses is counted, and is in no error.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_model
from tools.fit.modern.fit import folds, held_out_intervals, solve_modern, terms_without, thinned
from tools.fit.modern.layout import modern_layout
from tools.fit.modern.rows import ModernRows, Row, select_modern

DATA = Path(__file__).parents[2] / "shared/data/modern/agg.csv.gz"
METRICS = {"itl_ms": "TPOT", "output_tok_s": "tokens/s"}
ROUNDS = 5
"""Requests of each client in AISimulate's run."""

GPUS = {
    "h100-sxm-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "b200-sxm-180gb": "b200_sxm",
    "b300-sxm-270gb": "b300_sxm",
    "l40s": "l40s",
    "rtx-pro-6000-blackwell-se": "rtx_pro_6000_server",
}
BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
MODELS = {
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "deepseek-r1 nvfp4+experts": "nvidia/DeepSeek-V3.1-NVFP4",
    "deepseek-v4-pro": "deepseek-ai/DeepSeek-V4-Pro",
    "glm-5": "zai-org/GLM-5-FP8",
    "glm-5 nvfp4+experts": "nvidia/GLM-5-NVFP4",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "kimi-k2.5 nvfp4+experts": "nvidia/Kimi-K2.5-NVFP4",
    "llama-3.3-70b": "meta-llama/Meta-Llama-3.1-70B",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "minimax-m2.5 nvfp4+experts": "nvidia/MiniMax-M2.5-NVFP4",
    "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B",
    "qwen3.5-397b-a17b nvfp4+experts": "nvidia/Qwen3.5-397B-A17B-NVFP4",
}
"""Checkpoints that it knows, by our model, and by model and format; DeepSeek V3.1 has the layers of
R1, Llama 3.1 those of 3.3."""

WEIGHTS = {
    "llama-3.3-70b fp8": ("fp8", None),
    "llama-3.3-70b nvfp4": ("nvfp4", None),
    "qwen3.5-397b-a17b fp8": ("fp8_block", "fp8_block"),
}
"""Formats of matrices and experts by its names, where the checkpoint does not have them."""

GROUPS: dict[str, Callable[[Row], bool]] = {
    "all": lambda row: True,
    "8 clients or fewer": lambda row: row["concurrency"] <= 8,
    "9 to 64": lambda row: 8 < row["concurrency"] <= 64,
    "65 and more, one rank": lambda row: row["concurrency"] > 64 and row["dp"] == 1,
    "attention ranks": lambda row: row["dp"] > 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A point, what both predict for it by column, and whether its time per token lies in our 80 %
    interval.
    """

    row: Row
    ours: dict[str, float]
    theirs: dict[str, float]
    inside: bool | None


def main() -> None:
    """Predict all points both ways, and print the errors by model and by load."""
    parser = argparse.ArgumentParser(description="errors beside AISimulate's on the points of 2026")
    parser.add_argument(
        "--aisimulate", type=Path, required=True, help="virtual environment with aisimulate"
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--models", help="only these, comma-separated")
    asked = parser.parse_args()
    everything = select_modern(asked.data).rows
    names = [name for column, name in folds(everything) if column == "model" and name in MODELS]
    if asked.models:
        names = [name for name in names if name in asked.models.split(",")]
    rows = {
        name: [
            row
            for row in thinned([one for one in everything if one["model"] == name])
            if not row["amd"]
        ]
        for name in names
    }
    rival = AISimulate(asked.aisimulate)
    theirs = {name: [rival.predicted(row) for row in some] for name, some in rows.items()}
    rival.close()
    layout, points = modern_layout(shipped()), thinned(everything)
    print("fitting, then once more without each model …", file=sys.stderr)
    x, compared = solve_modern(layout, points), list[Compared]()
    for name, some in rows.items():
        print(f"without {name}", file=sys.stderr)
        terms = terms_without(layout, x, points, ("model", name))
        compared += [
            Compared(row=row, ours=o, theirs=t, inside=i)
            for (row, o, i), t in zip(ours(some, terms), theirs[name], strict=True)
        ]
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()},"
        f" AISimulate {rival.version}"
    )
    for line in table(compared):
        print(line)
    for reason, count in rival.refused.most_common():
        print(f"refused by AISimulate, {count} points: {reason}")


def ours(
    rows: Sequence[Row], terms: dict[str, Any]
) -> Iterator[tuple[Row, dict[str, float], bool | None]]:
    """Each point with what these terms predict by column, and whether the interval of an unknown
    model holds its time per token.
    """
    parts = ModernRows(rows)
    parts.simulate(terms)
    columns = {name: parts.simulated(name).tolist() for name in METRICS if name in parts.measured}
    for i, (row, inside) in enumerate(
        zip(parts.rows, held_out_intervals(parts, "model"), strict=True)
    ):
        yield row, {name: values[i] for name, values in columns.items()}, inside


class AISimulate:
    """The other simulator, as a process of its own that answers one line for each."""

    def __init__(self, environment: Path) -> None:
        """Start it."""
        command = [
            str(environment / "bin" / "python"),
            str(Path(__file__).with_name("rivals_aisimulate.py")),
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.refused: Counter[str] = Counter()
        self.version = str(self._read()["version"])

    def predicted(self, row: Row) -> dict[str, float]:
        """Its prediction by column; empty where it has none."""
        config = configuration(row)
        if config is None:
            self.refused["it has no such GPU, engine, model or format"] += 1
            return {}
        said = self._asked(config)
        if "refused" in said:  # it may have tables for a cache of its own choice
            del config["engine"]["workers"]["aggregated"]["timing"]["kvcache_quant_mode"]
            said = self._asked(config)
        if "refused" in said:
            self.refused[said["refused"]] += 1
            return {}
        return said

    def _asked(self, config: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        print(json.dumps(config), file=self.process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("rivals: AISimulate ended; does --aisimulate name an environment with it?")
        return dict(json.loads(line))

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            self.process.communicate(timeout=30)


def configuration(row: Row) -> dict[str, Any] | None:
    """What AISimulate is asked for a point; None where it knows no such thing."""
    model, own = f"{row['model']} {row['format']}", find_model(row["model"])
    path = MODELS.get(model, MODELS.get(row["model"]))
    if (
        path is None
        or row["gpu"] not in GPUS
        or row["family"] not in BACKENDS
        or row["format"] in ("awq", "gptq")
    ):
        return None
    parallelism = {"tensor": row["tp"], "attention_data": row["dp"]}
    if own.is_moe:
        parallelism |= {
            "moe_expert": row["ep"],
            "moe_tensor": max(row["tp"] * row["dp"] // row["ep"], 1),
        }
    matrices, experts = WEIGHTS.get(model, (None, None))
    formats = {
        "gemm_quant_mode": matrices,
        "moe_quant_mode": experts,
        "kvcache_quant_mode": "fp8" if row["cache"] == "fp8" else "bfloat16",
    }
    scheduler = {"max_sequences": row["slots"]} | (
        {"max_batched_tokens": row["budget"]} if row["budget"] else {}
    )
    worker = {
        "parallelism": parallelism,
        "scheduler": scheduler,
        "timing": {name: value for name, value in formats.items() if value},
    }
    source = {"type": "synthetic"} | {
        name: round(row[c] * (1 - row["spread"] / 2))
        for name, c in (("input_tokens", "isl"), ("output_tokens", "osl"))
    }
    load = {"type": "concurrency", "concurrency": row["concurrency"]}
    return {
        "traffic": {
            "source": source,
            "load": load,
            "stop": {"requests": ROUNDS * row["concurrency"]},
        },
        "engine": {
            "mode": "aggregated",
            "model": path,
            "hardware": GPUS[row["gpu"]],
            "backend": BACKENDS[row["family"]],
            "workers": {"aggregated": worker},
        },
    }


def table(compared: Sequence[Compared]) -> Iterator[str]:
    """The lines: by model and by load, for each metric the mean, the median and the bias of both,
    and the coverage of our interval.
    """
    models = sorted({one.row["model"] for one in compared})
    parts: list[tuple[str, list[Compared]]] = [
        (title, [one for one in compared if chosen(one.row)]) for title, chosen in GROUPS.items()
    ]
    parts += [(name, [one for one in compared if one.row["model"] == name]) for name in models]
    for column, metric in METRICS.items():
        yield ""
        yield (
            f"| {metric} | points | Tonnage: mean | median | bias | AISimulate: mean | median |"
            " bias | in Tonnage's 80 % interval |"
        )
        yield "|---" * 9 + "|"
        for title, some in parts:
            both = [
                one
                for one in some
                if one.row[column] is not None and column in one.ours and column in one.theirs
            ]
            if both:
                errors = [
                    [getattr(one, who)[column] / one.row[column] - 1 for one in both]
                    for who in ("ours", "theirs")
                ]
                cells = [
                    f"{100 * value:.1f}"
                    for some_errors in errors
                    for value in _figures(some_errors)
                ]
                inside = [one.inside for one in both if one.inside is not None]
                covered = f"{100 * np.mean(inside):.0f}" if column == "itl_ms" and inside else "–"
                yield f"| {title} | {len(both)} of {len(some)} | {' | '.join(cells)} | {covered} |"


def _figures(errors: Iterable[float]) -> tuple[float, float, float]:
    values = np.array(list(errors))
    return (
        float(np.mean(np.abs(values))),
        float(np.median(np.abs(values))),
        float(np.median(values)),
    )


if __name__ == "__main__":
    main()
