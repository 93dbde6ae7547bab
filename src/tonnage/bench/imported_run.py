"""A run of another tool, written as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.bench.definitions import others
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exchange import Exchange
from tonnage.bench.intervals import CONFIDENCE, intervals
from tonnage.bench.recorder import Recorder
from tonnage.bench.reply import Reply
from tonnage.bench.steady import find_steady
from tonnage.formats.tool_format import ImportedRequest, ImportedRun
from tonnage.results.batches import RunWriter, read_tokens, summary_document
from tonnage.results.metrics import Summary, summarize

NOT_JUDGED = "the tool did not watch its own client: whether its latencies are the server's cannot be told"


def write_imported(imported: ImportedRun, directory: Path, *, source: str, provenance: dict[str, Any]) -> tuple[Summary, dict[str, Any]]:
    """Write the run folder; its summary, and its ``run.json``.

    Args:
        imported: the run.
        directory: the folder, which must not be in use.
        source: the name of the file.
        provenance: for the folder.

    Raises:
        InputError: the folder is in use or cannot be written.
    """
    single = all(request.single for request in imported.requests)
    writer = RunWriter(directory, tokens=single)
    try:
        recorder = Recorder(writer, gaps=single)
        start = min(request.due_ns for request in imported.requests)
        recorder.begin(start)
        for number, request in enumerate(imported.requests):
            recorder.take(_exchange(number, request))
        recorder.finish()
        requests = writer.finish()
        summary, steady = summarize(requests), find_steady(requests)
        kinds = {kind: count for kind, count in recorder.tally.outcomes.most_common() if kind not in ("", "cancelled")}
        run: dict[str, Any] = {
            "imported": {"tool": imported.tool, "file": source, "single_tokens": single},
            "validity": {"verdict": "NOT JUDGED", "reasons": [NOT_JUDGED], "steady": {"found": steady.found, "drift": steady.drift}},
            "load": {"concurrency": imported.concurrency or None, "request_rate": imported.rate or None, "started_unix_ns": start},
            "endpoint": {"type": None, "model": imported.model, "streaming": True},
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
            "imported": imported.tool,
            "model": imported.model or None,
            "requests": len(imported.requests),
            "arrivals": {"rate": imported.rate} if imported.rate else {"concurrency": imported.concurrency or None},
        }
        writer.close(scenario=scenario, summary=summary_document(summary, requests, further), provenance=provenance, run=run)
    finally:
        writer.discard()
    return summary, run


def _exchange(number: int, request: ImportedRequest) -> Exchange:
    """The request as if it had just come back."""
    reply = Reply(find_endpoint("chat", model=""))
    reply.times = list(request.events_ns)
    reply.sizes = [1] * len(request.events_ns) if request.single else [1, max(request.osl - 1, 1)]
    reply.tokens, reply.prompt = request.osl, request.isl
    reply.last_ns = request.events_ns[-1] if request.events_ns else -1
    exchange = Exchange(number=number, isl=request.isl, osl=request.osl, data=b"", reply=reply)
    exchange.due_ns, exchange.begun_ns, exchange.sent_ns, exchange.outcome = (
        request.due_ns,
        request.sent_ns,
        request.sent_ns,
        request.outcome,
    )
    return exchange
