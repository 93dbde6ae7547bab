"""What InferenceMAX's scripts set when they measured the rows of ``silicon_sample.csv``: slots, budget, KV cache, messages.

Read on 2026-11-21 in github.com/SemiAnalysisAI/InferenceX: ``benchmarks/70b_*.sh`` (2a205bb3, 409e9a48, 73ef9225, bb4c7f93),
``benchmarks/gptoss_*.sh`` (2e46dba0, 34bc7c40), ``benchmarks/dsr1_*.sh`` (2e46dba0, 16ffb658, 34bc7c40, 161e7f65),
``benchmarks/single_node/minimaxm2.5_*.sh`` and ``kimik2.5_*.sh`` (13453b4f, 1c3aa8bf, 34bc7c40, 56245be3, 2b7b6949, 56324839) and
``perf-changelog.yaml``. A script changes with time and a row tells its day, so:

- MiniMax in FP8 on B200 ran on vLLM 0.17 with 95 % of the memory, a 16-bit KV cache and experts always spread over the GPUs; from 0.19 on
  with an FP8 cache, twice the prompt as budget and a message every 20 tokens (pull/947), in FP4 likewise (pull/996);
- MiniMax in FP8 on eight H200 had its experts spread too, whatever a row says: the script asked for it at ``EP_SIZE`` 1 as well (pull/869),
  and vLLM does not split their 1,536 columns, which are scaled in blocks of 128, by eight (github.com/vllm-project/vllm/pull/48173);
- Kimi in FP4 on B200 got the same of these after ``KIMI_TUNED`` (pull/1047). It ran without expert parallelism whatever a row says: its
  scripts could not ask for any before June 2026 (pull/1658);
- vLLM captures steps of up to 2,048 tokens as CUDA graphs for gpt-oss, and for the others where it has twice the prompt as budget
  (pull/1698 says so of Kimi on B200, for B300 had none of it);
- gpt-oss on vLLM has an FP8 cache on B200 since 0.11.2 (pull/273); TensorRT-LLM keeps 16 bits on H200 and sends every 20 tokens;
- TensorRT-LLM holds prompts of DeepSeek in FP8 back for up to 40 steps from 64 clients on at 1024/1024 (pull/594). Its budget is the
  clients + the prompt + 64, in multiples of 64, and later 8,192 at least. It was asked for an FP8 cache on H200 too, but requests wait
  there from 64 clients of 8,192 tokens on as they would for 16 bits: latent attention had no FP8 cache on Hopper then;
- the client warms up with two requests a client since ``WARMED`` (pull/480). Before, first requests of SGLang on DeepSeek
  waited for kernels to be compiled (a mean TTFT of 5 to 9 s at any load): TTFT of those rows is not used;
- TensorRT-LLM's scripts of DeepSeek chose expert parallelism and attention ranks themselves, by lengths and clients (pull/22), until the
  sweep's configuration did (pull/145). Rows up to ``CHOSEN`` say none of either, whatever ran. Their times show it: TTFT of 8,192 tokens
  on eight B200 goes from 0.5 s at 32 clients to 2.2 s at 64, and later rows of 64, which name their ranks, take as long;
- gpt-oss on TensorRT-LLM on B200 had an FP8 cache and 1.2.0rc0.post1 from October 2025 on (pull/110), so do its rows without a version;
- SGLang spread DeepSeek's experts in FP4 over the GPUs on B200 all along, and rows before ``NAMED`` do not say so (pull/204, pull/242).

Nobody says which commit a row ran on: the days above are those of the pull requests, and of the rows' own engine versions.
"""

from __future__ import annotations

from typing import Any

from tonnage.spec.catalog import find_engine, find_gpu

Row = dict[str, Any]

KIMI_TUNED, MINIMAX_TUNED, MINIMAX_FP4_TUNED = "2026-04-16", "2026-04-01", "2026-04-07"
CHOSEN, NAMED = "2025-11-02", "2025-11-18"
GPTOSS_NARROW_CACHE, DELAYED, LEAST_FROM, WARMED = "2025-11-20", "2026-01-29", "2026-01-29", "2026-01-27"

LONG_MESSAGES = 20
"""Tokens a message (``stream_interval``) where a script asks for long ones."""

GRAPHS = 2048
"""Tokens up to which vLLM captures steps with prompts as CUDA graphs where a script asks for it."""

GPTOSS_TOKENS = {"vllm": 8192, "tensorrt-llm": 20000}
DEFAULT = 0
"""The engine's own budget."""

BALANCED, BALANCED_DEEPSEEK = 50, 60
"""Steps for which TensorRT-LLM holds prompts back until all attention ranks have some (``attention_dp_config.timeout_iters``), by
default and in the scripts of DeepSeek. Ranks are taken alike here, so that wait stands as looks for requests so many steps apart."""

LEAST_TOKENS = 8192
"""The budget of DeepSeek on TensorRT-LLM at least, in its script of March 2026; in that of December 2025 there is no least. That it came in
January is what six rows of 64 clients and more say: TTFT is 16 % off with it and 67 without."""

SHORT, LONG_ANSWERS, LONG_PROMPTS = (1024, 1024), (1024, 8192), (8192, 1024)
RANKS_ABOVE: dict[str, dict[tuple[int, int], int]] = {
    "nvfp4": {SHORT: 255, LONG_ANSWERS: 255, LONG_PROMPTS: 32},
    "fp8": {SHORT: 32, LONG_ANSWERS: 64, LONG_PROMPTS: 64},
    "fp8 on Hopper": {SHORT: 64, LONG_ANSWERS: 64, LONG_PROMPTS: 32},
}
SPREAD_ABOVE: dict[str, dict[tuple[int, int], int]] = {
    "nvfp4 tp4": {SHORT: 32, LONG_ANSWERS: 32, LONG_PROMPTS: 32},
    "nvfp4 tp8": {SHORT: 8, LONG_ANSWERS: 16, LONG_PROMPTS: 32},
    "fp8": {SHORT: 0, LONG_ANSWERS: 0, LONG_PROMPTS: 0},
}
"""Clients, by lengths, above which these scripts gave every GPU a rank of attention, and spread whole experts over the GPUs; with ranks
they always did. ``benchmarks/dsr1_*_trt_slurm.sh`` of October 2025 (35bc387f in a fork of InferenceMAX; ff7e4623 for H200)."""

UNSPLIT = 8
"""GPUs over which vLLM cannot split MiniMax's experts in FP8."""

LIMIT = 2048
"""``max_batch_size`` of trtllm-serve where a script leaves it."""


def run_of(row: Row, day: str) -> Row:
    """What the script of a row set, as columns of the row.

    Args:
        row: model, gpu, precision, engine, tp, dp, isl, osl and concurrency.
        day: of the measurement, as 2026-03-25.

    Returns:
        slots, budget (tokens a step; 0 for the engine's own), stream (tokens a message), kv_fraction; and, where the script changes them,
        graphs (tokens of a step with prompts as CUDA graphs), precision, tp, dp, ep, receive, wait_steps, wait_ratio and ttft_ms.
    """
    family = find_engine(row["engine"]).family
    return {"vllm": _vllm, "tensorrt-llm": _tensorrt_llm, "sglang": _sglang}[family](row, day)


def _vllm(row: Row, day: str) -> Row:
    model, clients = row["model"], row["concurrency"]
    blackwell = find_gpu(row["gpu"]).arch.startswith("Blackwell")
    run: Row = {"slots": clients, "budget": DEFAULT, "stream": 1, "kv_fraction": 0.9}
    tuned: Row = {"slots": 1024, "budget": 2 * row["isl"], "stream": LONG_MESSAGES, "kv_fraction": 0.9, "graphs": GRAPHS}
    if model == "gpt-oss-120b":
        narrow = blackwell and day >= GPTOSS_NARROW_CACHE
        return run | {"graphs": GRAPHS, "budget": GPTOSS_TOKENS["vllm"], "precision": "mxfp4+kv-fp8" if narrow else "mxfp4"}
    if model == "kimi-k2.5":
        narrow = row["precision"] != "gptq+experts"
        found = tuned if narrow and row["gpu"].startswith("b200") and day >= KIMI_TUNED else run
        return found | {"ep": 1} | ({} if narrow else {"kv_fraction": 0.95})
    if row["precision"] == "nvfp4+experts":
        return tuned if day >= MINIMAX_FP4_TUNED else run
    if blackwell and day >= MINIMAX_TUNED:
        return tuned | {"precision": "fp8"}
    wide: Row = {"precision": "fp8+kv-fp16", "kv_fraction": 0.9 if row["gpu"].startswith("h100") else 0.95}
    return run | wide | ({"ep": row["tp"]} if blackwell or row["tp"] == UNSPLIT else {})


def _tensorrt_llm(row: Row, day: str) -> Row:
    chosen = _chosen(row) if row["model"] == "deepseek-r1" and "" < day <= CHOSEN else {}
    row = row | chosen
    clients, hopper, ranks = row["concurrency"], row["gpu"].startswith("h200"), row["dp"] > 1
    if row["model"] == "gpt-oss-120b":
        run: Row = {"slots": clients, "budget": GPTOSS_TOKENS["tensorrt-llm"], "stream": LONG_MESSAGES, "kv_fraction": 0.85}
        return run | {"precision": "mxfp4" if hopper else "mxfp4+kv-fp8"} | ({"receive": BALANCED} if ranks else {})
    largest = clients // row["dp"] if hopper else clients
    budget = max((largest + row["isl"] + 64 + 63) // 64 * 64, LEAST_TOKENS if day >= LEAST_FROM else 0)
    delayed = row["precision"] == "fp8" and (row["isl"], row["osl"]) == (1024, 1024) and clients >= 64 and not hopper and day >= DELAYED
    run = {"slots": LIMIT, "budget": budget, "stream": 10, "kv_fraction": 0.75 if hopper else 0.8}
    run |= chosen | ({"precision": "fp8+kv-fp16"} if hopper else {})
    return run | ({"wait_steps": 40, "wait_ratio": 0.8} if delayed else {}) | ({"receive": BALANCED_DEEPSEEK} if ranks else {})


def _chosen(row: Row) -> Row:
    """Expert parallelism and attention ranks that TensorRT-LLM's scripts of DeepSeek chose until ``CHOSEN``; empty where none."""
    tp, clients, lengths = row["tp"], row["concurrency"], (row["isl"], row["osl"])
    if row["precision"] == "fp8":
        ranks, spread = RANKS_ABOVE["fp8 on Hopper" if row["gpu"].startswith("h200") else "fp8"], SPREAD_ABOVE["fp8"]
    else:
        ranks, spread = RANKS_ABOVE["nvfp4"], SPREAD_ABOVE.get(f"nvfp4 tp{tp}", {})
    if clients > ranks.get(lengths, clients):
        return {"tp": 1, "dp": tp, "ep": tp}
    return {"ep": tp} if clients > spread.get(lengths, clients) else {}


def _sglang(row: Row, day: str) -> Row:
    receive = {"receive": 30 if row["concurrency"] >= 16 else 10}
    if row["gpu"].startswith("h200"):
        slots = 512 if (row["isl"], row["osl"]) == (1024, 1024) else 256
        run: Row = {"slots": slots, "budget": 32768, "stream": 10, "kv_fraction": 0.82, "precision": "fp8+kv-fp16"}
    elif row["precision"] != "fp8":
        run = {"slots": 256, "budget": 16384, "stream": 10, "kv_fraction": 0.85} | receive | ({"ep": row["tp"]} if "" < day < NAMED else {})
    elif row["tp"] == 4:
        run = {"slots": 32, "budget": 8192, "stream": 30, "kv_fraction": 0.95, "receive": 10}
    else:
        run = {"slots": 128, "budget": 32768, "stream": 30, "kv_fraction": 0.82} | receive
    return run | ({"ttft_ms": None} if day < WARMED else {})
