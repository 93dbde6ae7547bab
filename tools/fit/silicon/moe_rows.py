"""The usable rows of ``silicon_sample.csv`` with mixtures of experts; ``dense_rows`` says what the dense ones are.

Of the same file, by the same rules, and further:

- models: MiniMax M2.5, Qwen3 235B, gpt-oss 120B, DeepSeek R1 and V3, Kimi K2.5. Left out are GLM-5 (sparse
  attention) and Qwen3.5 (linear attention), which no term here describes;
- the dumps of 2026-04-06 and 2026-04-27 multiply tp and attention dp with ep (tp 64 with ep 8 is tp 8 ep 8; tp 4
  dp 4 with ep 16 is tp 4 ep 4): the same measurements stand in the dump of 2026-03-25 as they ran;
- DeepSeek rows of TensorRT-LLM measured on 2026-01-14, 2026-01-28, 2026-02-05 and 2026-02-06 ran with
  multi-token prediction and do not say so: token latencies are up to 2 × lower than on 2025-11-02, 2025-12-15,
  2026-01-29 and 2026-02-03. The same holds of SGLang in FP8 on B200 where a measurement stands in one dump only, beside a slower
  one that stands in two, where there are more clients than the plain runs of InferenceMAX's ``nvidia-master.yaml`` have, and of the
  faster of two runs of the same;
- rows of Dynamo state the clients of several replicas; instances of more GPUs than a server has are several nodes;
- Qwen3 235B on vLLM 0.12: 50 ms a token at TP 2 and 35 at TP 4 whatever the clients (4 to 48) and lengths, 2 to 3 times what
  the same engine needs for larger models: it had no tuned kernel for those experts, or something else slowed it;
- DeepSeek on SGLang 0.5.10 on B300: prompts of 8,192 tokens take 4 to 10 times what 0.5.9 needs on B200, a card that is no faster;
- the number of clients is that of the whole instance, over all attention ranks;
- one run of Kimi on H200 took four times as long a token as another run of the same: something else slowed it. So no run counts
  that is ``DISTURBED`` times as slow as another of the same;
- nine rows of gpt-oss on H100 of 2025-11 and 2025-12 are corrupt, and so those runs are left out.

What InferenceMAX's scripts set: ``inferencemax.py``. FP4 checkpoints of NVIDIA and Kimi's INT4 keep all but the experts in 16 bits.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tonnage.errors import DoesNotFit
from tonnage.perf.memory import memory_plan
from tonnage.spec.catalog import find_engine
from tools.fit.silicon.dense_rows import (
    GPUS,
    GPUS_PER_SERVER,
    PRECISIONS,
    SPREAD,
    Row,
    Selection,
    clients_of,
    measured_of,
    point_of,
    read_sample,
)
from tools.fit.silicon.inferencemax import run_of

MOE = {
    "MiniMax-M2.5": "minimax-m2.5",
    "Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "gpt-oss-120b": "gpt-oss-120b",
    "DeepSeek-R1": "deepseek-r1",
    "DeepSeek-V3": "deepseek-r1",
    "Kimi-K2.5": "kimi-k2.5",
}
"""R1 and V3 are the same architecture, and the dumps name the same measurements by either."""

SYSTEMS = GPUS | {"b300_sxm": "b300-sxm-270gb"}
BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300")
ENGINES = {"vllm": "vllm-0.19", "trtllm": "tensorrt-llm-1.1", "sglang": "sglang-0.5"}
LATER_ENGINES = {"trtllm": "tensorrt-llm-1.2", "sglang": "sglang-0.5.9"}
LATER_VERSIONS = {"trtllm": ("1.2", "1.3"), "sglang": ("0.5.9", "0.5.10")}
NVIDIA_TRTLLM = "tensorrt-llm-1.0"
"""Of NVIDIA's own rows: 1.0.0rc3."""

MULTIPLIED = ("2026-04-06", "db-dump/2026-04-27")
MTP = "multi-token prediction, not said"
PLAIN_CLIENTS = 64
"""Most clients of InferenceMAX's plain runs of DeepSeek in FP8 on SGLang; those with multi-token prediction go to 512."""
MTP_DAYS = ("2026-01-14", "2026-01-28", "2026-02-05", "2026-02-06")
CORRUPT = ("2025-11-02", "2025-12-05", "2025-12-08")
"""Days of the gpt-oss runs on H100."""

WITH_RANKS = (707, 727, 827)
"""Configurations of the dump of 2026-04-27 that ran MiniMax with a rank of attention per GPU, up to 2,048 clients on two GPUs (InferenceX
pull/996, pull/1106); its columns are those of 706, 726 and 735, which split attention."""

CONTEXT_TOKENS = 512
"""Prompt tokens that a step of NVIDIA's own rows takes at least, the stride of AIConfigurator's search (``ctx_stride``): with one prompt a
step, as the rows of 1,024 tokens and more show it, token latencies after prompts of 128 tokens come out half as long again."""

DIGITS = 4
"""The same measurement agrees in so many digits between dumps."""

DISTURBED = 2.0
SAME = ("model", "gpu", "precision", "engine", "tp", "dp", "ep", "isl", "osl", "concurrency")
"""What two runs of the same have in common."""


def select_moe(file: Path) -> Selection:
    """The usable rows of the file.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    reasons: Counter[str] = Counter()
    rows: dict[tuple[Any, ...], Row] = {}
    lines = sorted(read_sample(file), key=_is_multiplied)
    seen = Counter(_measurement(line) for line in lines if _unusable(line) == "")
    for line in lines:
        reason = _unusable(line) or _drafted(line, seen)
        if reason:
            reasons[reason] += 1
        elif _measurement(line) in rows:
            reasons["same measurement in another dump"] += 1
        elif not _fits(row := _row(line)):
            reasons["weights beyond the engine's default share of memory"] += 1
        else:
            rows[_measurement(line)] = row
    found = without_faster_twins(list(rows.values()))
    if len(found) < len(rows):
        reasons[MTP] += len(rows) - len(found)
    plain = undisturbed(found)
    if len(plain) < len(found):
        reasons["slowed by something else"] = len(found) - len(plain)
    return Selection(rows=plain, left_out=dict(reasons.most_common()))


def undisturbed(rows: Sequence[Row]) -> list[Row]:
    """The rows without those whose token latency is ``DISTURBED`` times that of another run of the same."""
    fastest: dict[tuple[Any, ...], float] = {}
    for row in rows:
        same = tuple(row[name] for name in SAME)
        fastest[same] = min(row["itl_ms"], fastest.get(same, math.inf))
    return [row for row in rows if row["itl_ms"] < DISTURBED * fastest[tuple(row[name] for name in SAME)]]


def _fits(row: Row) -> bool:
    try:
        return memory_plan(point_of(row).deployment).blocks > 0
    except DoesNotFit:
        return False


def model_of(line: Mapping[str, str]) -> str:
    """The catalog's name of a row's model; empty where it is none of these."""
    return MOE.get(line["model_path"].rsplit("/", 1)[-1], "")


def _is_multiplied(line: Mapping[str, str]) -> bool:
    return any(name in line["silicon_data_source"] for name in MULTIPLIED)


def _day(line: Mapping[str, str]) -> str:
    found = re.search(r"measured=(\d{4}-\d\d-\d\d)", line["silicon_data_source"])
    return found[1] if found else ""


def degrees(line: Mapping[str, str]) -> tuple[int, int, int]:
    """tp, attention dp and ep of a row as it ran.

    A dump that multiplies has ep in tp or dp once more where experts are split by both, and in dp and ep where not.
    """
    tp, dp, moe_tp, ep = (int(line[name] or 1) for name in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"))
    if _is_multiplied(line) and ep > 1 and tp * dp == moe_tp * ep:
        root = math.isqrt(tp * dp)
        if moe_tp == ep == root and 1 in (tp, dp):
            return (root, 1, root) if dp == 1 else (1, root, root)
        if moe_tp == 1 and tp == dp == root:
            return root, 1, root
    if not line["attention_dp_size"]:
        dp = max(1, moe_tp * ep // tp)
    return tp, dp, ep


def _ran(line: Mapping[str, str]) -> tuple[int, int, int]:
    """The degrees of a row, with attention ranks where only the number of its configuration tells them."""
    tp, dp, ep = degrees(line)
    config = re.search(r"config_id=(\d+)", line["silicon_data_source"])
    return (1, tp, ep) if config and int(config[1]) in WITH_RANKS else (tp, dp, ep)


def _measurement(line: Mapping[str, str]) -> tuple[Any, ...]:
    values = (float(f"{value:.{DIGITS}g}") for value in measured_of(line).values())
    return (model_of(line), *(line[name] for name in ("system", "backend", "precision", "isl", "osl")), clients_of(line), *values)


def _unusable(line: Mapping[str, str]) -> str:
    """Why a line is not used; empty if it is."""
    tp, dp, _ = _ran(line)
    deepseek = model_of(line) == "deepseek-r1"
    reasons = {
        "disaggregated": line["mode"] != "agg",
        "not one of the models": not model_of(line),
        "another GPU or engine": line["system"] not in SYSTEMS or line["backend"] not in ENGINES,
        "engine without terms of its own": _terms_borrowed(line),
        f"precision {line['precision']}": precision_of(line) == "",
        "pipeline stages": (line["pp_size"] or "1") != "1",
        "more GPUs than a server has": tp * dp > GPUS_PER_SERVER,
        "load not stated": clients_of(line) == 0,
        "clients of several replicas": "dynamo" in line["silicon_data_source"],
        "no tuned kernel": (model_of(line), line["backend"]) == ("qwen3-235b-a22b", "vllm") or (deepseek and _slow_on_b300(line)),
        MTP: deepseek and line["backend"] == "trtllm" and _day(line) in MTP_DAYS,
        "corrupt": model_of(line) == "gpt-oss-120b" and line["system"] == "h100_sxm" and _day(line) in CORRUPT,
        "no measured value": not all(math.isfinite(v) and v > 0 for v in measured_of(line).values()),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _slow_on_b300(line: Mapping[str, str]) -> bool:
    return line["system"] == "b300_sxm" and line["backend"] == "sglang"


def _engine(line: Mapping[str, str]) -> str:
    """The preset of a row; a dump without version is of 2025, when gpt-oss on B200 ran on TensorRT-LLM 1.2.0rc0.post1 already."""
    backend, version = line["backend"], line["backend_version"]
    early = (backend, version, model_of(line), line["system"]) == ("trtllm", "", "gpt-oss-120b", "b200_sxm")
    later = early or version.startswith(LATER_VERSIONS.get(backend, ("none",)))
    return LATER_ENGINES[backend] if later else ENGINES[backend]


def _terms_borrowed(line: Mapping[str, str]) -> bool:
    """Whether the dense terms of a row's engine are those of another until they are fitted."""
    engine = find_engine(ENGINES.get(line["backend"], "vllm"))
    return not engine.coefficients.startswith(engine.family)


def _drafted(line: Mapping[str, str], seen: Counter[tuple[Any, ...]]) -> str:
    """SGLang's runs of DeepSeek on B200 in FP8 with multi-token prediction: of one dump alone, or of more clients than the plain ones."""
    suspect = (line["backend"], line["system"], line["precision"], model_of(line)) == ("sglang", "b200_sxm", "fp8", "deepseek-r1")
    return MTP if suspect and (seen[_measurement(line)] == 1 or clients_of(line) > PLAIN_CLIENTS) else ""


def without_faster_twins(rows: Sequence[Row]) -> list[Row]:
    """The rows without those of SGLang in FP8 on B200 that make tokens faster than another run of the same: they drafted."""
    slowest: dict[tuple[Any, ...], float] = {}
    for row in rows:
        same = tuple(row[name] for name in SAME)
        slowest[same] = max(row["itl_ms"], slowest.get(same, 0.0))
    suspect = ("deepseek-r1", "b200-sxm-180gb", "fp8", LATER_ENGINES["sglang"])
    return [
        row for row in rows if tuple(row[n] for n in SAME[:4]) != suspect or row["itl_ms"] == slowest[tuple(row[name] for name in SAME)]
    ]


def precision_of(line: Mapping[str, str]) -> str:
    """The package's name of a row's formats, the KV cache as the engine chooses it; empty where it has none."""
    blackwell = line["system"] in BLACKWELL
    if line["precision"] == "fp4" and model_of(line) == "gpt-oss-120b":
        return "mxfp4"
    if line["precision"] == "fp4":
        return "nvfp4+experts" if blackwell else ""
    if line["precision"] == "int4":
        return "gptq+experts"
    name = PRECISIONS.get(line["precision"], "")
    return f"{name}+kv-fp16" if name == "fp8" and line["backend"] == "sglang" and not blackwell else name


def _row(line: Mapping[str, str]) -> Row:
    """The columns of a measured table, and ``spread``, ``slots`` and ``budget`` of the run."""
    tp, dp, ep = _ran(line)
    nvidia = not re.match(r"(source_file=\d{4}-\d\d-\d\d\.csv|source_file=kimi|db-dump/)", line["silicon_data_source"])
    clients = clients_of(line)
    row: Row = {
        "model": model_of(line),
        "gpu": SYSTEMS[line["system"]],
        "precision": precision_of(line),
        "engine": NVIDIA_TRTLLM if nvidia and line["backend"] == "trtllm" else _engine(line),
        "tp": tp,
        "dp": dp,
        "ep": ep,
        "isl": int(line["isl"]),
        "osl": int(line["osl"]),
        "concurrency": clients,
        **measured_of(line),
    }
    if nvidia:
        each = math.ceil(clients / dp)
        return row | {"spread": 0.0, "slots": each, "budget": max(row["isl"], CONTEXT_TOKENS) + each}
    return row | {"spread": SPREAD} | run_of(row, _day(line))
