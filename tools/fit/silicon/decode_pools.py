"""The disaggregated rows of ``silicon_sample.csv``, as far as steps alone predict them: tokens of their decode pools.

A disaggregated deployment has workers that take prompts and others that decode. How long requests wait between the two is a matter
of a simulator of both, which is later work; once all clients of a decode worker decode, a token takes one of its steps. So TPOT
is scored, and TTFT is not. No such row is in a fit, and their GPUs (GB200, GB300) and numbers of GPUs mostly not either.

Used are rows that state their clients and their decode workers. A worker has an even share of the clients. Of these,
a row counts whose requests spend at most ``WAITING`` of their time before the first token, by its own TTFT and TPOT: where they wait for
longer, fewer clients decode, and nobody says how many. Read on 2026-11-22:

- they do not look drafted. At four clients a worker eight H200 take 13.4 ms a token and eight GPUs of GB200 in FP4 7.5, aggregated rows
  of TensorRT-LLM without multi-token prediction 13.8 and 7.2, with it 8.6 and 4.3. In FP4 on B200 the clients are those that InferenceX's
  ``nvidia-master.yaml`` (0004cf5f) has without it; the rest of that file was not gone through, and SGLang's rows may hide some;
- images of Dynamo stand for TensorRT-LLM: 0.5.1-rc0.pre3 is 1.1.0rc2.post2 (the Dynamo recipe of gpt-oss names both), later ones
  are 1.2 and 1.3. SGLang is 0.5.5 to 0.5.8, vLLM 0.18.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tonnage.spec.catalog import find_gpu, system_of
from tools.fit.silicon import moe_rows
from tools.fit.silicon.dense_rows import SPREAD, Row, Selection, clients_of, measured_of, read_sample
from tools.fit.silicon.moe_rows import BLACKWELL, model_of, precision_of

WAITING = 0.1
"""Share of a request's time before its first token from which a row is not used."""

SYSTEMS = moe_rows.SYSTEMS | {"gb200": "gb200-186gb", "gb300": "gb300-279gb"}
ENGINES = moe_rows.ENGINES | {"trtllm": moe_rows.LATER_ENGINES["trtllm"]}
EARLY_DYNAMO, EARLY_ENGINE = "0.5.1", moe_rows.ENGINES["trtllm"]
WORKERS, SPLIT = "decode_num_workers", ("decode_tp_size", "decode_attention_dp_size", "decode_moe_ep_size")


def select_decode_pools(file: Path) -> Selection:
    """The usable rows of the file; ``concurrency`` is the clients of one decode worker.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    reasons: Counter[str] = Counter()
    rows: list[Row] = []
    for line in read_sample(file):
        if line["mode"] == "agg":
            continue
        reason = _unusable(line)
        if reason:
            reasons[reason] += 1
        else:
            rows.append(_row(line))
    return Selection(rows=rows, left_out=dict(reasons.most_common()))


def _degrees(line: Mapping[str, str]) -> tuple[int, int, int]:
    """tp, attention dp and ep of a decode worker."""
    tp, dp, ep = (int(line.get(name) or 1) for name in SPLIT)
    return tp, dp, ep


def _unusable(line: Mapping[str, str]) -> str:
    """Why a line is not used; empty if it is."""
    tp, dp, _ = _degrees(line)
    reasons = {
        "workers not stated": not line.get(WORKERS),
        "not one of the mixtures of experts": not model_of(line),
        "another GPU or engine": line["system"] not in SYSTEMS or line["backend"] not in ENGINES,
        "load not stated": clients_of(line) == 0,
        "workers of more GPUs than NVLink joins": tp * dp > _joined(line["system"]),
        f"precision {line['precision']}": _precision(line) == "",
        "no measured value": not all(math.isfinite(v) and v > 0 for v in measured_of(line).values()),
    }
    found = next((reason for reason, holds in reasons.items() if holds), "")
    return found or ("requests wait for their first token" if _waiting(line) > WAITING else "")


def _joined(system: str) -> int:
    """GPUs that NVLink joins: those of a server, or of a rack of GB200 or GB300."""
    return system_of(find_gpu(SYSTEMS[system])).gpus if system in SYSTEMS else 0


def _waiting(line: Mapping[str, str]) -> float:
    """Share of a request's time before its first token."""
    ttft, tpot = measured_of(line).values()
    return ttft / (ttft + tpot * _mean(int(line["osl"])))


def _mean(nominal: int) -> float:
    """Mean tokens of InferenceMAX's lengths."""
    return nominal * (1 - SPREAD / 2)


def _precision(line: Mapping[str, str]) -> str:
    """As in aggregated rows, where the scripts say that latent attention has no FP8 cache on Hopper."""
    name = precision_of(line)
    return "fp8+kv-fp16" if name == "fp8" and line["system"] not in BLACKWELL else name


def _row(line: Mapping[str, str]) -> Row:
    """The columns of a measured table, of one decode worker; lengths are the means of the run."""
    tp, dp, ep = _degrees(line)
    early = line["backend"] == "trtllm" and line.get("backend_version", "").startswith(EARLY_DYNAMO)
    return {
        "model": model_of(line),
        "gpu": SYSTEMS[line["system"]],
        "precision": _precision(line),
        "engine": EARLY_ENGINE if early else ENGINES[line["backend"]],
        "tp": tp,
        "dp": dp,
        "ep": ep,
        "isl": round(_mean(int(line["isl"]))),
        "osl": round(_mean(int(line["osl"]))),
        "concurrency": math.ceil(clients_of(line) / int(line[WORKERS])),
        "itl_ms": measured_of(line)["itl_ms"],
    }
