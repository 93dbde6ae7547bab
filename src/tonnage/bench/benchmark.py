"""One load measured, from the question to the run folder; and a run of another tool, written as
one.
"""

from __future__ import annotations

import math
import os
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tonnage.bench.connection import Setup
from tonnage.bench.conversations import TurnLog, by_turn
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.intervals import (
    CONFIDENCE,
    gap_intervals,
    intervals,
    other_definitions,
    single_gaps,
)
from tonnage.bench.load import Load
from tonnage.bench.measure import Observed, Watcher, measure, sigterm_waits
from tonnage.bench.recorder import Recorder
from tonnage.bench.reply import Exchange, Reply
from tonnage.bench.scrape import Scraper
from tonnage.bench.steady import DEFINITIONS, find_steady, steady_metrics, trends
from tonnage.bench.tiers import Tier, tiers_of_run
from tonnage.bench.validity import Validity, judge
from tonnage.bench.workers import measure_by_workers
from tonnage.errors import InputError
from tonnage.formats.table import NoneCompleted
from tonnage.formats.tool_format import ImportedRequest, ImportedRun
from tonnage.notebook import InNotebooks
from tonnage.results.metrics import Attained, Summary, attained, summarize
from tonnage.results.outcomes import ERROR_RATE
from tonnage.results.requests import Requests
from tonnage.results.store import RunWriter, read_tokens, summary_document
from tonnage.spec.deployment import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of a report: what it says in addition to the metrics."""

    percentiles: tuple[int, ...] = ()  # percentiles that the run must have samples enough for
    error_rate: float = ERROR_RATE  # share of requests that may fail
    slo: Slo = ()  # limits that goodput is counted against
    tokens: bool = True  # whether the moments of single tokens are kept
    tiers: tuple[Tier, ...] = ()  # tiers of speed whose users are counted
    # what a run cost; None where nobody named its hardware
    priced: Callable[[Summary], dict[str, Any]] | None = None
    seed: int = 0  # of the bootstrap


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(InNotebooks):
    """One load, measured."""

    load: Load
    requests: Requests  # and summary: what happened
    summary: Summary
    validity: Validity  # whether that can be believed
    observed: Observed  # what was seen of the client
    good: tuple[Attained, ...]  # goodput and joint attainment, where limits were given
    summary_json: dict[str, Any]  # and run_json: what the run folder holds
    run_json: dict[str, Any]
    # why there is no run folder although one was named, such as a full disk; "" where there is
    unwritten: str = ""

    def to_json(self) -> dict[str, Any]:
        """``summary.json`` and ``run.json`` in one object."""
        return {**self.summary_json, **self.run_json}


def benchmark(
    setup: Setup,
    load: Load,
    *,
    directory: Path,
    keep: bool,
    report_options: Wanted,
    facts: dict[str, Any],
    scenario: dict[str, Any],
    provenance: dict[str, Any],
    watchers: Sequence[Watcher] = (),
    metrics: Scraper | None = None,
) -> Measured:
    """Measure one load and write its run folder, which must not be in use and stays if ``keep``.
    Raises InputError: it cannot be written.

    ``facts`` are what else belongs into ``run.json``: self-test, environment. ``metrics`` reads the
    server's own metrics meanwhile.
    """
    writer, finishing = RunWriter(directory, tokens=report_options.tokens), ExitStack()
    try:
        if setup.workers > 1:
            observed = measure_by_workers(setup, load, writer, metrics=metrics)
        else:
            observed = measure(
                setup,
                load,
                writer,
                watchers=[*watchers, *([metrics] if metrics is not None else ())],
            )
        finishing.enter_context(sigterm_waits())
        requests = writer.finish()
        summary, steady = summarize(requests), find_steady(requests)
        validity = judge(
            observed,
            requests,
            summary,
            steady,
            percentiles=report_options.percentiles,
            error_rate=report_options.error_rate,
        )
        good = attained(requests, report_options.slo)
        run_json = _run_json(setup, observed, validity, facts)
        run_json["intervals"] = {
            "confidence": CONFIDENCE,
            **intervals(requests, seed=report_options.seed),
        }
        run_json["trends"] = {**trends(requests), "definitions": DEFINITIONS}
        if observed.turns is not None:
            run_json["conversations"] = by_turn(requests, observed.turns)
            with writer.noting_faults():
                _write_turns(writer.partial / "turns.parquet", observed.turns)
        gaps, energy = None, dict[str, Any]()
        if report_options.tokens and setup.endpoint.streaming and not writer.fault:
            offsets, lengths = read_tokens(writer.partial)
            gaps = single_gaps(offsets, lengths)
            run_json["intervals"]["itl_ms"] = gap_intervals(
                gaps, requests, seed=report_options.seed
            )
            run_json["other_definitions"] = other_definitions(requests, offsets, lengths)
        run_json["steady"] = steady_metrics(requests, steady, gaps)
        if metrics is not None:
            run_json["server_metrics"] = metrics.summary()
            with writer.noting_faults():
                metrics.write(writer.partial / "server_metrics.parquet")
            tokens = summary.output_tokens_per_second * summary.window_s
            energy = metrics.energy(summary.window_s, 0 if math.isnan(tokens) else round(tokens))
        if report_options.tiers and load.concurrency:
            run_json["tiers"] = tiers_of_run(
                requests, validity, load.concurrency, report_options.tiers
            )
        if report_options.priced is not None and summary.counted:
            run_json["cost"] = report_options.priced(summary)
        if good:
            run_json["goodput"] = [attainment.to_json() for attainment in good]
        kinds, verdict = (
            observed.tally.failures,
            {"verdict": validity.verdict, "reasons": list(validity.reasons)},
        )
        further: dict[str, Any] = {
            "errors": sum(kinds.values()),
            "errors_by_kind": kinds,
            "validity": verdict,
        }
        summary_json = summary_document(
            summary, requests, (*further.items(), *([("energy", energy)] if energy else []))
        )
        if keep and not writer.fault:
            try:
                writer.close(
                    scenario=scenario, summary=summary_json, provenance=provenance, run=run_json
                )
            except InputError as unwritten:
                writer.fault = unwritten.reason
    finally:
        writer.discard()
        finishing.close()
    return Measured(
        unwritten=(
            f"{directory}: cannot be written ({writer.fault}); its figures are those above"
            if keep and writer.fault
            else ""
        ),
        load=load,
        requests=requests,
        summary=summary,
        validity=validity,
        observed=observed,
        good=good,
        summary_json=summary_json,
        run_json=run_json,
    )


def _write_turns(path: Path, log: TurnLog) -> None:
    """Which turn of which conversation each request was: ``id``, ``conversation`` and ``turn``, all
    from 0.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": range(len(log.turn)), "conversation": log.conversation, "turn": log.turn}
    pq.write_table(
        pa.table({name: pa.array(values, type=pa.int64()) for name, values in columns.items()}),
        path,
        compression="zstd",
    )


def _run_json(
    setup: Setup, observed: Observed, validity: Validity, facts: dict[str, Any]
) -> dict[str, Any]:
    """The facts of the measurement that do not follow from the record."""
    tally, load, prompts = observed.tally, observed.load, setup.prompts
    return {
        "validity": validity.to_json(),
        "load": {
            "kind": "closed" if load.concurrency else "open",
            "concurrency": load.concurrency or None,
            "request_rate": load.rate or None,
            "in_flight": load.in_flight or None,
            "held": observed.held,
            "pattern": load.pattern,
            "sent": observed.sent,
            "started_unix_ns": observed.started_unix_ns,
            "seconds": observed.seconds,
        },
        "client": {
            "workers": setup.workers,
            "cpu_s": observed.cpu_s,
            "cpu_us_per_token": 1e6 * observed.cpu_s / tally.tokens if tally.tokens else None,
            "cpu_share": observed.cpu_share,
            "connections": observed.connections,
            "retries": observed.retries,
        },
        "tokens": {
            "counted_by": dict(tally.sources),
            "events": tally.events,
            "split_estimated": tally.shared,
            "outputs_of_another_length": tally.osl_off,
            "hidden": tally.hidden,
            "finish_reasons": dict(tally.finishes),
            "prompts": (
                "tokens of the tokenizer given"
                if prompts.exact
                else f"{prompts.characters:g} characters a token, not counted"
            ),
            "prompt_tokens_beyond_asked": (
                tally.isl_extra / tally.prompt_counts if tally.prompt_counts else None
            ),
        },
        "endpoint": {
            "type": setup.endpoint.kind,
            "model": setup.endpoint.model,
            "streaming": setup.endpoint.streaming,
            "output_pinned": setup.endpoint.pinned,
            "further_fields": dict(setup.endpoint.extra),
            "omitted_fields": list(setup.endpoint.omitted),
            "further_headers": list(setup.headers),
        },
        "failures": tally.examples,
        **facts,
    }


NOT_JUDGED = (
    "the tool did not watch its own client: whether its latencies are the server's cannot be told"
)


def write_imported(
    imported: ImportedRun, directory: Path, *, source: str, provenance: dict[str, Any]
) -> tuple[Summary, dict[str, Any]]:
    """Write another tool's run as a run folder; its summary and ``run.json``.

    Raises:
        NoneCompleted: no request has an end.
        InputError: the folder cannot be written.
    """
    requests_in = [request for request in imported.requests if request.outcome or request.events_ns]
    left_out = imported.left_out + Counter({"no end": len(imported.requests) - len(requests_in)})
    failed = Counter(request.outcome for request in requests_in if request.outcome)
    if len(requests_in) == failed.total():
        why = ", ".join(f"{count:,} {reason}" for reason, count in (left_out + failed).items())
        raise NoneCompleted(
            f"{source}: no completed request has an end or a duration ({why}); give a file that has"
            " such as endTime"
        )
    single = all(request.single for request in requests_in if not request.outcome)
    writer = RunWriter(directory, tokens=single)
    try:
        recorder = Recorder(writer, gaps=single)
        start = min(request.due_ns for request in requests_in)
        recorder.begin(start)
        for number, request in enumerate(requests_in):
            recorder.take(_exchange(number, request))
        recorder.finish()
        requests = writer.finish()
        summary, steady = summarize(requests), find_steady(requests)
        kinds = recorder.tally.failures
        run: dict[str, Any] = {
            "imported": {
                "tool": imported.tool,
                "file": source,
                "single_tokens": single,
                "left_out": dict(left_out),
                "failed": dict(failed),
                "remarks": imported.remarks,
            },
            "validity": {
                "verdict": "NOT JUDGED",
                "reasons": [NOT_JUDGED],
                "steady": {"found": steady.found, "drift": steady.drift},
            },
            "load": {
                "concurrency": imported.concurrency or None,
                "request_rate": imported.rate or None,
                "started_unix_ns": start,
            },
            "endpoint": {"type": None, "model": imported.model, "streaming": True},
            "intervals": {"confidence": CONFIDENCE, **intervals(requests)},
        }
        if single:
            run["other_definitions"] = other_definitions(requests, *read_tokens(writer.partial))
        further = (
            ("errors", sum(kinds.values())),
            ("errors_by_kind", kinds),
            ("validity", {"verdict": "NOT JUDGED", "reasons": [NOT_JUDGED]}),
        )
        scenario = {
            **dict.fromkeys(("gpu", "precision", "tp", "engine")),
            "imported": imported.tool,
            "model": imported.model or None,
            "requests": len(requests_in),
            "arrivals": (
                {"rate": imported.rate}
                if imported.rate
                else {"concurrency": imported.concurrency or None}
            ),
        }
        writer.close(
            scenario=scenario,
            summary=summary_document(summary, requests, further),
            provenance=provenance,
            run=run,
        )
    finally:
        writer.discard()
    return summary, run


def _exchange(number: int, request: ImportedRequest) -> Exchange:
    """The request as if it had just come back."""
    reply = Reply(find_endpoint("chat", model=""))
    reply.times = list(request.events_ns)
    # of equal events, whose text nobody kept
    reply.sizes = [max(request.osl, 1)] * len(request.events_ns)
    if not request.single and len(request.events_ns) > 1:
        reply.sizes[:] = [1, max(request.osl - 1, 1)][: len(request.events_ns)]
    reply.tokens, reply.prompt = request.osl, request.isl
    reply.last_ns = request.events_ns[-1] if request.events_ns else -1
    exchange = Exchange(number=number, isl=request.isl, osl=request.osl, data=b"", reply=reply)
    exchange.due_ns = request.due_ns
    exchange.begun_ns = exchange.sent_ns = request.sent_ns
    exchange.outcome, exchange.streamed = request.outcome, request.streamed
    return exchange


def environment() -> dict[str, Any]:
    """Cores, load, Python, and the versions of what the client is made of."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg() if hasattr(os, "getloadavg") else (None, None, None)
    return {
        "cores": cores,
        "load_average_1min": load[0],
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": platform.python_version(),
        "uvloop": version("uvloop"),
        "clock": "CLOCK_MONOTONIC, one client process",
    }
