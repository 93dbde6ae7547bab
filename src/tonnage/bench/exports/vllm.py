"""The result file of ``vllm bench serve --save-result --save-detailed`` (0.33), metrics as it defines them.

Its TTFT, TPOT and E2E count from the moment of sending; its ITL pools the gaps between events; rates are over the whole duration.
Requests that did not complete stand in the lists with empty values, as there.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.bench.exports.finished_run import FinishedRun
from tonnage.results.requests import COMPLETED
from tonnage.results.store import write_json

if TYPE_CHECKING:
    from numpy.typing import NDArray


def write(run: FinishedRun, folder: Path) -> list[Path]:
    """Write the file; its path."""
    import numpy as np

    load, rows, requests = run.run["load"], run.rows, run.requests
    gaps = [run.event_gaps_ms(row) for row in rows]
    moment = datetime.datetime.fromtimestamp(run.started_unix_ns / 1e9, tz=datetime.UTC)
    done = (requests.status == COMPLETED) & (run.lengths > 0)
    kind = {"chat": "openai-chat", "completions": "openai"}.get(run.run["endpoint"]["type"], run.run["endpoint"]["type"])
    document: dict[str, Any] = {
        "date": moment.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": kind,
        "backend": kind,
        "label": None,
        "model_id": run.run["endpoint"]["model"],
        "tokenizer_id": run.run["endpoint"]["model"],
        "num_prompts": len(requests),
        "request_rate": load["request_rate"] or "inf",
        "burstiness": 1.0,
        "max_concurrency": load["concurrency"],
        "duration": run.seconds,
        "completed": len(rows),
        "failed": run.failed,
        "total_input_tokens": int(run.isl.sum()),
        "total_output_tokens": int(run.osl.sum()),
        "request_throughput": len(rows) / run.seconds,
        "request_goodput": None,
        "output_throughput": float(run.osl.sum()) / run.seconds,
        "total_token_throughput": float(run.isl.sum() + run.osl.sum()) / run.seconds,
        **_peaks(run),
        "rtfx": 0.0,
    }
    for name, values in (
        ("ttft", run.ttft_ms),
        ("tpot", run.decode_ms),
        ("itl", np.concatenate([np.zeros(0), *gaps])),
        ("e2el", run.latency_ms),
    ):
        document |= _statistics(name, values)
    document |= {
        "input_lens": requests.isl.tolist(),
        "output_lens": np.where(done, run.lengths, 0).tolist(),
        "ttfts": [float(run.tokens(row)[0]) / 1e9 if done[row] else 0.0 for row in range(len(requests))],
        "itls": [(run.event_gaps_ms(row) / 1e3).tolist() if done[row] else [] for row in range(len(requests))],
        "latencies": [float(run.tokens(row)[-1]) / 1e9 if done[row] else 0.0 for row in range(len(requests))],
        "queue_times": [0.0] * len(requests),
        "start_times": ((requests.sent_ns + run.started_unix_ns) / 1e9).tolist(),
        "errors": ["" if done[row] else "the request did not complete" for row in range(len(requests))],
    }
    path = folder / "vllm.json"
    write_json(path, document)
    return [path]


def _peaks(run: FinishedRun) -> dict[str, float | int]:
    """The most tokens of one second, and the most requests that one second saw, seconds counted from the first sending."""
    import numpy as np

    rows = run.rows
    if not rows.size:
        return {"max_output_tokens_per_s": 0.0, "max_concurrent_requests": 0}
    sent = run.requests.sent_ns
    start = int(sent[sent >= 0].min())
    moments = np.concatenate([run.tokens(row) + sent[row] - start for row in rows]) // 10**9
    first, last = (sent[rows] - start) // 10**9, (run.requests.last_token_ns[rows] - start) // 10**9
    spans = np.zeros(int(last.max()) + 2, dtype=np.int64)
    np.add.at(spans, first, 1)
    np.add.at(spans, last + 1, -1)
    return {"max_output_tokens_per_s": float(np.bincount(moments).max()), "max_concurrent_requests": int(spans.cumsum().max())}


def _statistics(name: str, values: NDArray[Any]) -> dict[str, float]:
    """Mean, median, standard deviation and percentiles of one latency, in milliseconds; nothing without values."""
    import numpy as np

    if not values.size:
        return {}
    found = {"mean": values.mean(), "median": np.median(values), "std": values.std()}
    found |= {f"p{p}": np.percentile(values, p) for p in (90, 95, 99)}
    return {f"{statistic}_{name}_ms": float(value) for statistic, value in found.items()}
