"""The usable rows of ``silicon_sample.csv``: measurements of current engines by InferenceMAX and by NVIDIA.

The file comes with the wheel aiconfigurator-core 0.12 and is read there. What is used and how:

- aggregated rows (prefill and decode in one instance) of dense models; that leaves out the unlabelled MTP
  rows (DeepSeek), the corrupt ones (gpt-oss) and the dumps that multiply tp, dp and ep (MoE);
- a row names its number of clients; where that is not ``batch_size``, the clients per replica, several
  replicas stood behind one front end, and where it is missing the load is unknown;
- an instance is ``tp_size`` GPUs of one server, without attention data parallelism or pipeline stages;
- an empty precision is bf16; the same measurement in several dumps counts once;
- Llama 3.1 8B on vLLM is left out: at TP 1 its rows would need up to 90 % of the peak FP8 rate in
  prefill, more than any other row by far, so prompts were very likely cached;
- InferenceMAX draws lengths uniformly from 0.8 to 1.0 of the nominal ones, NVIDIA's own are equal;
- mean TTFT and TPOT are over 10 requests per client, the opening burst included.

Knobs: InferenceMAX's scripts (``inferencemax.py`` says where) set vLLM to as many slots as clients, 8,192 tokens a step, an FP8 KV
cache and a message per token; TensorRT-LLM to 16,384 tokens and a message every 10, and at 1024/1024 below TP 8 let the engine hold prompts
back for up to 20 steps to batch them (``batch_wait_timeout_iters``). An older script has the longest request as budget on B200; with
it TTFT of those rows is 12 to 13 % off instead of 6 to 7. For NVIDIA's own rows on vLLM and
TensorRT-LLM the budget is inferred: one prompt and all decodes per step. Clients of equal lengths take turns for ever, and TTFT of
Qwen3 32B on vLLM says that they did: at 8 clients it is the same (742, 739 and 749 ms at TP 2) for 128, 512 and 1,024 tokens out.
It also tells the budget: by terms that were fitted with lengths spread by 4 % in these rows, TTFT is 17 % off with one prompt a step, 54
with the prompt + 1,500 tokens that AIConfigurator's generator sets, and 140 with the engine's 8,192.
That generator (``rule_plugin/*.rule``, ``backend_templates/trtllm``, read 2026-11-21) gives TensorRT-LLM 80 % of the
free memory for its KV cache, as the rows that queue show, and SGLang mixed chunks: the rows of Llama 3.1 8B on SGLang 0.5.6 show
them and a 16-bit KV cache (TPOT 5 % off, 26 % without), those of Qwen3 32B on 0.5.1 and 0.5.8 prompts alone (TTFT 12 % off).
Its templates of 2025 (``generator/templates/trtllm``, 5e161875) set ``disable_overlap_scheduler`` in aggregated mode, and padded CUDA
graphs; so steps of TensorRT-LLM 1.0 do not overlap with scheduling here.
Llama 3.1 8B on TensorRT-LLM behaves as if one client were always without a slot (STEP_MODEL.md).

From 64 clients on Llama 3.1 8B at TP 4 and 8 never makes more than 9,200 output tokens/s on TensorRT-LLM, and 15,000 to
19,000 on SGLang at 512 clients: the front end streams one token after another (``streaming.py``), and requests wait while
the engine has room. Not explained: that at 2,000 output tokens SGLang makes fewer tokens/s than at 500.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tonnage.calibration.rows import LoadedRows
from tonnage.errors import InputError
from tonnage.perf.memory import MemoryPlan
from tonnage.perf.step import StepModel
from tonnage.spec.workload import ClosedLoop, Lengths, Workload
from tonnage.validation.predict import ROUNDS, Point, read_point
from tools.fit.silicon.inferencemax import LIMIT

Row = dict[str, Any]

FILE = "silicon_sample.csv"

DENSE = {
    "Llama-3.1-70B": "llama-3.1-70b",
    "Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "Qwen3-32B": "qwen3-32b",
}
GPUS = {"h100_sxm": "h100-sxm-80gb", "h200_sxm": "h200-sxm-141gb", "b200_sxm": "b200-sxm-180gb"}
ENGINES = {"vllm": "vllm-0.12", "trtllm": "tensorrt-llm-1.0", "sglang": "sglang-0.5"}
INFERENCEMAX = {"vllm": "vllm-0.10", "trtllm": "tensorrt-llm-1.1"}
"""Engine presets. NVIDIA's own rows are of vLLM 0.12.0 and TensorRT-LLM 1.0.0rc3. InferenceMAX's, of October 2025, do not state their
version; ``.github/configs/master.yaml`` (78f6b8d2) has vLLM 0.10.2 and TensorRT-LLM 1.1.0rc2.post2."""
PRECISIONS = {"": "bf16", "bf16": "bf16", "fp8": "fp8"}
DENSE_PRECISIONS = PRECISIONS | {"fp4": "nvfp4"}
"""The same for dense models, whose FP4 checkpoints narrow all matrices."""
GPUS_PER_SERVER = 8

LIKE_PROMPTS, LIKE_DECODES, LIKE_MIXED, LEAST = 1.12, 1.2, 1.5, 1e-9
"""Steps are alike whose prompt tokens, and decodes without and with prompts, are within these factors; weight of what no metric sees."""

SPREAD = 0.2
"""InferenceMAX: lengths are uniform in (1 − SPREAD … 1) × nominal."""

NVIDIA_KV_FRACTION = 0.8
"""``free_gpu_memory_fraction`` of NVIDIA's own TensorRT-LLM rows."""

SGLANG_TOKENS = 8192
"""``chunked_prefill_size`` of SGLang on GPUs of 60 to 160 GiB, its default."""

MIXED: Row = {"precision": "fp8+kv-fp16", "scheduler": "vllm"}
"""SGLang's later rows: decodes ride along with chunks, and the KV cache stays in 16 bits, its default."""

VLLM_TOKENS, TRTLLM_TOKENS = 8192, 16384
"""InferenceMAX: tokens a step."""

TRTLLM_MESSAGE = 10
"""Tokens a message (``stream_interval``) of InferenceMAX's TensorRT-LLM; its vLLM sends each."""

COLUMNS = ("mode", "model_path", "system", "backend", "precision", "tp_size", "batch_size", "isl", "osl", "silicon_data_source")
MEASURED = {"ttft_ms": "silicon_ttft_ms", "itl_ms": "silicon_tpot_ms"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Usable rows, and the number of the others by reason."""

    rows: list[Row]
    left_out: dict[str, int]


def installed_sample() -> Path | None:
    """The file in the installed wheel; None without the wheel."""
    spec = find_spec("aiconfigurator_core")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    files = (Path(place) / "systems" / FILE for place in places)
    return next((file for file in files if file.is_file()), None)


def select(file: Path) -> Selection:
    """The usable rows of the file.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    lines = read_sample(file)
    reasons: Counter[str] = Counter()
    rows: dict[tuple[Any, ...], Row] = {}
    for line in lines:
        row = _unusable(line) or _row(line)
        if isinstance(row, str):
            reasons[row] += 1
        elif tuple(row.values()) in rows:
            reasons["same measurement in another dump"] += 1
        else:
            rows[tuple(row.values())] = row
    return Selection(rows=list(rows.values()), left_out=dict(reasons.most_common()))


def read_sample(file: Path) -> list[dict[str, str]]:
    """The lines of the file by column.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in (*COLUMNS, *MEASURED.values()) if name not in (reader.fieldnames or ())]
            lines = [] if missing else list(reader)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error}); give the file of the wheel aiconfigurator-core") from None
    if missing:
        raise InputError(f"{file} has no column '{missing[0]}'; give {FILE} of the wheel aiconfigurator-core")
    return lines


def _model(line: Mapping[str, str]) -> str:
    return DENSE.get(line["model_path"].rsplit("/", 1)[-1], "")


def clients_of(line: Mapping[str, str]) -> int:
    """Clients that a row names; 0 where it names none."""
    found = re.search(r"silicon_concurrency=(\d+)", line["silicon_data_source"])
    return int(found[1]) if found else 0


def measured_of(line: Mapping[str, str]) -> dict[str, float]:
    """What a row measured, by the names of this package; NaN where it is empty."""
    return {name: float(line[column] or "nan") for name, column in MEASURED.items()}


def _unusable(line: Mapping[str, str]) -> str:
    """Why a line is not used; empty if it is."""
    reasons = {
        "disaggregated": line["mode"] != "agg",
        "not one of the dense models": not _model(line),
        "another GPU or engine": line["system"] not in GPUS or line["backend"] not in ENGINES,
        f"precision {line['precision']}": line["precision"] not in DENSE_PRECISIONS,
    }
    found = next((reason for reason, holds in reasons.items() if holds), "")
    return found or _unusable_run(line)


def _unusable_run(line: Mapping[str, str]) -> str:
    alone = all((line.get(name) or "1") == "1" for name in ("pp_size", "attention_dp_size"))
    values = measured_of(line).values()
    reasons = {
        "pipeline stages or attention data parallelism": not alone,
        "more GPUs than a server has": int(line["tp_size"]) > GPUS_PER_SERVER,
        "load not stated": clients_of(line) == 0,
        "several replicas": clients_of(line) != int(line["batch_size"]),
        "prompts cached": line["backend"] == "vllm" and _model(line) == "llama-3.1-8b",
        "no measured value": not all(math.isfinite(v) and v > 0 for v in values),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _row(line: Mapping[str, str]) -> Row:
    """The columns of a measured table, and ``spread``, ``slots`` and ``budget`` of the run."""
    row: Row = {
        "model": _model(line),
        "gpu": GPUS[line["system"]],
        "precision": DENSE_PRECISIONS[line["precision"]],
        "engine": ENGINES[line["backend"]],
        "tp": int(line["tp_size"]),
        "isl": int(line["isl"]),
        "osl": int(line["osl"]),
        "concurrency": int(line["batch_size"]),
        **measured_of(line),
    }
    dump = re.match(r"(source_file=\d{4}-\d\d-\d\d\.csv|db-dump/)", line["silicon_data_source"])
    return row | (_inferencemax(row) if dump else _nvidia(row))


def _inferencemax(row: Row) -> Row:
    clients = row["concurrency"]
    if row["engine"] == ENGINES["vllm"]:
        return {"engine": INFERENCEMAX["vllm"], "spread": SPREAD, "slots": clients, "budget": VLLM_TOKENS}
    held_back = (row["isl"], row["osl"]) == (1024, 1024) and row["tp"] < GPUS_PER_SERVER
    run = {"engine": INFERENCEMAX["trtllm"], "spread": SPREAD, "slots": LIMIT, "budget": TRTLLM_TOKENS, "stream": TRTLLM_MESSAGE}
    return run | ({"wait_steps": 20, "wait_ratio": 0.9} if held_back else {})


def _nvidia(row: Row) -> Row:
    clients = row["concurrency"]
    one_waits = row["engine"] == ENGINES["trtllm"] and row["model"] == "llama-3.1-8b"
    run: Row = {"spread": 0.0, "slots": max(clients - one_waits, 1), "budget": row["isl"] + clients}
    if row["engine"] == ENGINES["trtllm"]:
        return run | {"kv_fraction": NVIDIA_KV_FRACTION}
    if row["engine"] == ENGINES["vllm"]:
        return run
    return run | {"budget": SGLANG_TOKENS} | (MIXED if row["precision"] == "fp8" else {})


class SiliconRows(LoadedRows):
    """Such rows as residuals: with the knobs and the lengths that their benchmarks had."""

    sigma: ClassVar[Mapping[str, float]] = {"ttft_ms": 0.18, "itl_ms": 0.06}

    def point(self, row: Row) -> Point:
        """The point of a row, with the knobs of its run."""
        return point_of(row)

    def workload(self, i: int, model: StepModel, *, turnaround_s: float) -> Workload:
        """A closed loop with the lengths of the benchmark."""
        point, spread = self.points[i], self.rows[i]["spread"]
        arrivals = ClosedLoop(concurrency=point.concurrency or 1, turnaround_s=turnaround_s)
        isl, osl = (lengths(nominal, spread) for nominal in (point.isl, point.osl))
        return Workload(isl=isl, osl=osl, arrivals=arrivals, requests=ROUNDS * arrivals.concurrency)

    def simulate(self, terms: dict[str, Any]) -> None:
        """As for all rows; output lengths differ, so the mean gap is that of the simulation."""
        super().simulate(terms)
        self._gather_like_steps(terms)
        self.gaps = 1e3 * self.base[:, 1] / self.simulated("itl_ms")

    def _gather_like_steps(self, terms: dict[str, Any]) -> None:
        """Bins of like steps as one, at their weighted mean: the fit is several times faster, and the sums stay those of the simulation."""
        tokens, starting, decoding = self.shape
        width = np.where(tokens > 0, np.log(LIKE_MIXED), np.log(LIKE_DECODES))
        like = np.array(
            [
                self.row,
                np.round(np.log(np.maximum(tokens, 1)) / np.log(LIKE_PROMPTS)),
                starting,
                np.round(np.log(np.maximum(decoding, 1)) / width) + (decoding > 0),
            ]
        )
        _, first, group = np.unique(like.astype(np.int64), axis=1, return_index=True, return_inverse=True)
        group, count = group.ravel(), first.size
        weight = self.weights[0, 0] + self.weights[1, 0] + LEAST * (1.0 + self.weights[2, 0])
        total = np.bincount(group, weight, count)
        self.shape = np.array([np.bincount(group, weight * values, count) / total for values in self.shape])
        self.weights = np.array([[np.bincount(group, values, count) for values in span] for span in self.weights])
        self.row = self.row[first]
        c, _ = self.deployments.prices(terms)
        self.rest = self.base - self._sums(c)

    def cache_holds_all(self) -> list[bool]:
        """Whether the KV cache holds the longest request of every client at once."""
        pools = zip(self.points, self.memory, strict=True)
        return [(p.concurrency or 1) * _held(memory, p.isl + p.osl) <= memory.tokens for p, memory in pools]


def point_of(row: Row) -> Point:
    """The point of a row, with the knobs of its run."""
    point = read_point(row)
    own = point.deployment.knobs
    knobs = replace(
        own,
        max_batch_size=row["slots"],
        max_num_tokens=row["budget"] or own.max_num_tokens,
        scheduler=row.get("scheduler", own.scheduler),
        stream_interval=row.get("stream", own.stream_interval),
        receive_interval=row.get("receive", own.receive_interval),
        batch_wait_steps=row.get("wait_steps", own.batch_wait_steps),
        batch_wait_ratio=row.get("wait_ratio", own.batch_wait_ratio),
        kv_fraction=row.get("kv_fraction", own.kv_fraction),
        graph_tokens=row.get("graphs", own.graph_tokens),
    )
    return replace(point, deployment=replace(point.deployment, knobs=knobs))


def _held(memory: MemoryPlan, tokens: int) -> int:
    """Tokens of the KV cache that a request takes, its windows included."""
    return tokens + memory.windows.of(tokens) * memory.deployment.knobs.tokens_per_block


def lengths(nominal: int, spread: float) -> Lengths:
    """Uniform in (1 − spread … 1) × nominal tokens."""
    if spread == 0:
        return Lengths(mean=nominal)
    return Lengths(kind="uniform", mean=nominal * (1 - spread / 2), std=nominal * spread / math.sqrt(12))
