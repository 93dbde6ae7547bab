"""A run of another tool, written as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.bench.definitions import others
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exchange import Exchange
from tonnage.bench.imports import PastRequest, PastRun
from tonnage.bench.intervals import CONFIDENCE, intervals
from tonnage.bench.recorder import Recorder
from tonnage.bench.reply import Reply
from tonnage.bench.steady import find_steady
from tonnage.results.batches import RunWriter, read_tokens, summary_document
from tonnage.results.metrics import Summary, summarize

NOT_JUDGED = "the tool did not watch its own client: whether its latencies are the server's cannot be told"


def write_imported(past: PastRun, directory: Path, *, source: str, provenance: dict[str, Any]) -> tuple[Summary, dict[str, Any]]:
    """Write the run folder; its summary, and its ``run.json``.

    Args:
        past: the run.
        directory: the folder, which must not be in use.
        source: the name of the file.
        provenance: for the folder.

    Raises:
        InputError: the folder is in use or cannot be written.
    """
    single = all(request.single for request in past.requests)
    writer = RunWriter(directory, tokens=single)
    try:
        recorder = Recorder(writer, gaps=single)
        start = min(request.due_ns for request in past.requests)
        recorder.begin(start)
        for number, request in enumerate(past.requests):
            recorder.take(_exchange(number, request))
        recorder.finish()
        requests = writer.finish()
        summary, steady = summarize(requests), find_steady(requests)
        kinds = {kind: count for kind, count in recorder.tally.outcomes.most_common() if kind not in ("", "cancelled")}
        run: dict[str, Any] = {
            "imported": {"tool": past.tool, "file": source, "single_tokens": single},
            "validity": {"verdict": "NOT JUDGED", "reasons": [NOT_JUDGED], "steady": {"found": steady.found, "drift": steady.drift}},
            "load": {"concurrency": past.concurrency or None, "request_rate": past.rate or None, "started_unix_ns": start},
            "endpoint": {"type": None, "model": past.model, "streaming": True},
            "intervals": {"confidence": CONFIDENCE, **intervals(requests)},
        }
        if single:
            run["other_definitions"] = others(requests, *read_tokens(writer.partial))
        further = (
            ("errors", sum(kinds.values())),
            ("errors_by_kind", kinds),
            ("validity", {"verdict": "NOT JUDGED", "reasons": [NOT_JUDGED]}),
        )
        scenario = {
            **dict.fromkeys(("gpu", "precision", "tp", "engine")),
            "imported": past.tool,
            "model": past.model or None,
            "requests": len(past.requests),
            "arrivals": {"rate": past.rate} if past.rate else {"concurrency": past.concurrency or None},
        }
        writer.close(scenario=scenario, summary=summary_document(summary, requests, further), provenance=provenance, run=run)
    finally:
        writer.discard()
    return summary, run


def _exchange(number: int, past: PastRequest) -> Exchange:
    """The request as if it had just come back."""
    reply = Reply(find_endpoint("chat", model=""))
    reply.times = list(past.events_ns)
    reply.sizes = [1] * len(past.events_ns) if past.single else [1, max(past.osl - 1, 1)]
    reply.tokens, reply.prompt = past.osl, past.isl
    reply.last_ns = past.events_ns[-1] if past.events_ns else -1
    exchange = Exchange(number=number, isl=past.isl, osl=past.osl, data=b"", reply=reply)
    exchange.due_ns, exchange.begun_ns, exchange.sent_ns, exchange.outcome = past.due_ns, past.sent_ns, past.sent_ns, past.outcome
    return exchange
