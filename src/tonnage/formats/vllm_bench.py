"""The result file of ``vllm bench serve --save-result`` (0.33), read and written: one run per JSON
file.

Its TPOT is ours: (last token − first) / (tokens − 1), one value per request. Its ITL is every gap
between two chunks of the stream. Rates are over the whole duration, ramp and drain included. It
does not say the GPU, precision or parallelism, and its lengths are means. Source: vLLM 0.33,
``vllm/benchmarks/serve.py``.

With ``--save-detailed`` it has lists with one entry a request, times in seconds: its TTFT, TPOT and
E2E count from the moment of sending, its ITL pools the gaps between events, of a chat also those of
events without a token. Requests that did not complete are in the lists with empty values.
"""

from __future__ import annotations

import datetime
import heapq
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.formats.finished_run import FinishedRun
from tonnage.formats.table import (
    DRAWN,
    MAX_COUNT,
    REFUSED,
    VARIES,
    completed_requests,
    count_at,
    failures,
    measure_at,
    name_at,
    number_at,
    served_values,
    shown,
    with_keys,
)
from tonnage.formats.tool_format import (
    ImportedRequest,
    ImportedRun,
    Point,
    Points,
    Reading,
    Requests,
    ToolFormat,
    finite_number,
    moments,
)
from tonnage.results.requests import COMPLETED
from tonnage.results.store import write_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}


def vllm_points(document: dict[str, Any], where: str) -> Iterator[Point]:
    """The one run of the document. Raises InputError: naming the place and the key."""
    completed = completed_requests(document, where, "completed")
    prompts = count_at(document, where, "num_prompts")
    values = open_load(document, where, prompts) | served_values(
        document, where, LATENCIES, completed
    )
    values |= failures(
        completed, prompts, number_at(document, where, "failed"), document.get("errors")
    )
    values |= {
        DRAWN[name]: _varied(document.get(f"{side}_lens"))
        for name, side in (("isl", "input"), ("osl", "output"))
    }
    values |= {"model": name_at(document, "model_id"), "engine": "vllm"}
    yield where, {name: value for name, value in values.items() if value is not None}


def _varied(values: object) -> str | None:
    """How the lengths of a run that was saved in detail vary: their deciles; None where they are
    equal, or not there.
    """
    lengths = (
        sorted(v for v in values if isinstance(v, int) and 0 < v < MAX_COUNT)
        if isinstance(values, list)
        else []
    )
    if len(lengths) < 2 or statistics.pstdev(lengths) <= VARIES * statistics.fmean(lengths):
        return None
    deciles = [lengths[len(lengths) * (2 * place + 1) // 20] for place in range(10)]
    return "histogram:" + ",".join(f"{tokens}:1" for tokens in deciles)


def open_load(
    document: dict[str, Any], where: str, requests: int | None
) -> dict[str, str | int | float | None]:
    """The load of vLLM's and SGLang's clients: a rate, clients, or both; without either, all
    prompts at once.
    """
    clients = count_at(document, where, "max_concurrency")
    rate, ramp = document.get("request_rate"), document.get("ramp_up_strategy")
    if ramp:
        span = "–".join(f"{document.get(key)}" for key in ("ramp_up_start_rps", "ramp_up_end_rps"))
        return {
            "request_rate": None,
            REFUSED: (
                f"its rate rose (ramp_up_strategy {shown(str(ramp))}, {span}/s), which is not"
                " simulated"
            ),
        }
    if isinstance(rate, str):
        if rate.strip().lower() not in ("inf", "infinity"):
            raise InputError(
                f"{where}, request_rate: '{shown(rate)}' is not a rate; give the file as the tool"
                " wrote it"
            )
        rate = None
    elif rate is not None:
        rate = number_at(document, where, "request_rate")
    if rate is None or not math.isfinite(rate):
        return {"concurrency": clients or requests, "requests": requests}
    if rate <= 0:
        raise InputError(
            f"{where}, request_rate: {rate:g} is not a rate; give the file as the tool wrote it"
        )
    return {
        "request_rate": rate,
        "concurrency": clients,
        "burstiness": measure_at(document, where, "burstiness"),
        "requests": requests,
    }


NS_PER_S = 1e9
_LISTS = ("input_lens", "output_lens", "ttfts", "itls")


def vllm_runs(path: Path, document: dict[str, Any], reading: Reading) -> list[ImportedRun]:
    """Every request of the file. Raises InputError: the file was saved without details, or a list
    is damaged.
    """
    missing = [name for name in _LISTS if not isinstance(document.get(name), list)]
    if missing:
        raise InputError(
            f"{path}: has no {', '.join(missing)}; save the run again with vllm bench serve"
            " --save-detailed"
        )
    count = len(document["ttfts"])
    errors = document.get("errors") or [""] * count
    starts = document.get("start_times")
    if (
        {len(document[name]) for name in _LISTS} != {count}
        or len(errors) != count
        or (starts and len(starts) != count)
    ):
        raise InputError(
            f"{path}: its lists have different lengths; give the file as the tool wrote it"
        )
    requests = [
        _request(document, place, str(errors[place] or ""), f"{path}, request {place}")
        for place in range(count)
    ]
    remarks = []
    if not starts:
        clients, rated = (
            document.get("max_concurrency"),
            isinstance(document.get("request_rate"), int | float),
        )
        if rated and document["request_rate"] < 1e300:
            raise InputError(
                f"{path}: was sent at a rate and keeps no start_times (vLLM keeps them since"
                " January 2026); measure it again"
            )
        requests = _in_turn(
            requests, clients if isinstance(clients, int) and clients > 0 else count
        )
        remarks.append(
            "The file keeps no moments of sending: each request is taken to follow the one before"
            " of its client at once."
        )
    requests.sort(key=lambda request: request.sent_ns)
    rate = document.get("request_rate")
    run = ImportedRun(
        tool="vllm",
        model=str(document.get("model_id") or ""),
        concurrency=int(document.get("max_concurrency") or 0),
        rate=float(rate) if isinstance(rate, int | float) and rate < 1e300 else 0.0,
        requests=tuple(requests),
        remarks=remarks,
    )
    return [run]


def _in_turn(requests: list[ImportedRequest], clients: int) -> list[ImportedRequest]:
    """The requests at the moments at which so many clients send them, each at once after its last
    one ended.
    """
    free = [0] * min(clients, len(requests))
    sent = []
    for request in requests:
        start = heapq.heappop(free)
        events = tuple(start + event for event in request.events_ns)
        sent.append(replace(request, due_ns=start, sent_ns=start, events_ns=events))
        heapq.heappush(free, events[-1] if events else start)
    return sent


def _request(document: dict[str, Any], place: int, error: str, where: str) -> ImportedRequest:
    isl, osl, first = (
        finite_number(document[name][place], f"{where}, {name}")
        for name in ("input_lens", "output_lens", "ttfts")
    )
    starts = document.get("start_times")
    sent = round(finite_number(starts[place], f"{where}, start_times") * NS_PER_S) if starts else 0
    if error or (not osl and not first):
        outcome = " ".join(error.split())[:60] or "failed"
        return ImportedRequest(
            due_ns=sent, sent_ns=sent, events_ns=(), isl=round(isl), osl=0, outcome=outcome
        )
    gaps = document["itls"][place]
    if not isinstance(gaps, list):
        raise InputError(f"{where}, itls: is no list; give the file as the tool wrote it")
    seconds = [finite_number(gap, f"{where}, itls") for gap in gaps]
    events = _with_tokens(moments(sent, first, seconds, NS_PER_S), round(osl))
    return ImportedRequest(
        due_ns=sent, sent_ns=sent, events_ns=events, isl=round(isl), osl=round(osl)
    )


def _with_tokens(events: tuple[int, ...], osl: int) -> tuple[int, ...]:
    """The events with a token; those beyond ``osl``, a chat's role or an empty finish, follow at
    once and are left out.
    """
    places = sorted(range(1, len(events)), key=lambda place: events[place] - events[place - 1])
    empty = places[: len(events) - osl] if 0 < osl < len(events) else []
    return tuple(event for place, event in enumerate(events) if place not in empty)


def write_vllm(run: FinishedRun, folder: Path) -> list[Path]:
    """Write the file; its path."""
    import numpy as np

    load, rows, requests = run.run["load"], run.rows, run.requests
    gaps = [run.event_gaps_ms(row) for row in rows]
    moment = datetime.datetime.fromtimestamp(run.started_unix_ns / 1e9, tz=datetime.UTC)
    done = (requests.status == COMPLETED) & (run.lengths > 0)
    kind = {"chat": "openai-chat", "completions": "openai"}.get(
        run.run["endpoint"]["type"], run.run["endpoint"]["type"]
    )
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
        "ttfts": [
            float(run.tokens(row)[0]) / 1e9 if done[row] else 0.0 for row in range(len(requests))
        ],
        "itls": [
            (run.event_gaps_ms(row) / 1e3).tolist() if done[row] else []
            for row in range(len(requests))
        ],
        "latencies": [
            float(run.tokens(row)[-1]) / 1e9 if done[row] else 0.0 for row in range(len(requests))
        ],
        "queue_times": [0.0] * len(requests),
        "start_times": ((requests.sent_ns + run.started_unix_ns) / 1e9).tolist(),
        "errors": [
            "" if done[row] else "the request did not complete" for row in range(len(requests))
        ],
    }
    path = folder / "vllm.json"
    write_json(path, document)
    return [path]


def _peaks(run: FinishedRun) -> dict[str, float | int]:
    """The most tokens of one second, and the most requests that one second saw, seconds counted
    from the first sending.
    """
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
    return {
        "max_output_tokens_per_s": float(np.bincount(moments).max()),
        "max_concurrent_requests": int(spans.cumsum().max()),
    }


def _statistics(name: str, values: NDArray[Any]) -> dict[str, float]:
    """Mean, median, standard deviation and percentiles of one latency, in milliseconds; nothing
    without values.
    """
    import numpy as np

    if not values.size:
        return {}
    figures = {"mean": values.mean(), "median": np.median(values), "std": values.std()}
    figures |= {f"p{p}": np.percentile(values, p) for p in (90, 95, 99)}
    return {f"{statistic}_{name}_ms": float(value) for statistic, value in figures.items()}


is_vllm = with_keys("num_prompts", "total_output_tokens", "mean_ttft_ms")

FORMAT = ToolFormat(
    name="vllm",
    tool="vllm bench",
    points=Points(recognises=is_vllm, read=vllm_points),
    requests=Requests(recognises=is_vllm, read=vllm_runs),
    write=write_vllm,
)
