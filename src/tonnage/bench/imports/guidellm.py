"""GuideLLM's ``benchmarks.json`` (0.8): requests with their first and last token, times in seconds of the wall clock.

It keeps no single tokens, so that a run made of it has no gaps: its ITL percentiles are empty, its TPOT is exact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.bench.imports.past_request import PastRequest, PastRun, number
from tonnage.errors import InputError

NS_PER_S = 1e9


def read(path: Path, document: dict[str, Any]) -> list[PastRun]:
    """One run for each benchmark of the file.

    Raises:
        InputError: a benchmark without its requests.
    """
    runs = []
    for place, benchmark in enumerate(document["benchmarks"], start=1):
        where = f"{path}, benchmark {place}"
        groups = benchmark.get("requests")
        if not isinstance(groups, dict) or not groups.get("successful"):
            raise InputError(f"{where}: holds no single requests; give a report that was saved with all of them")
        found = [_request(entry, outcome, where) for name, outcome in _GROUPS.items() for entry in groups.get(name) or ()]
        found.sort(key=lambda request: request.sent_ns)
        strategy = (benchmark.get("config") or {}).get("strategy") or {}
        clients = strategy.get("streams") or strategy.get("max_concurrency") or 0
        rate = strategy.get("rate") or 0.0
        runs.append(PastRun(tool="guidellm", model="", concurrency=int(clients), rate=float(rate), requests=tuple(found)))
    return runs


_GROUPS = {"successful": "", "errored": "failed", "incomplete": "cancelled"}


def _request(entry: dict[str, Any], outcome: str, where: str) -> PastRequest:
    timings = (entry.get("info") or {}).get("timings") or {}
    start = timings.get("request_start") or timings.get("resolve_start") or timings.get("queued")
    if start is None:
        raise InputError(f"{where}: a request has no request_start; give the file as the tool wrote it")
    sent = round(number(start, f"{where}, request_start") * NS_PER_S)
    due = timings.get("targeted_start")
    due_ns = sent if due is None else min(round(number(due, f"{where}, targeted_start") * NS_PER_S), sent)
    if outcome:
        return PastRequest(due_ns=due_ns, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome=outcome)
    first = timings.get("first_token_iteration") or timings.get("first_iteration") or timings.get("request_end")
    last = timings.get("last_token_iteration") or timings.get("last_iteration") or timings.get("request_end")
    ends = tuple(round(number(moment, f"{where}, timings") * NS_PER_S) for moment in (first, last))
    isl, osl = (round(number(entry.get(name) or 0, f"{where}, {name}")) for name in ("prompt_tokens", "output_tokens"))
    return PastRequest(due_ns=due_ns, sent_ns=sent, events_ns=ends if osl > 1 else ends[:1], isl=isl, osl=osl, single=osl <= 1)
