"""A measurement as a document: the verdict first, then the numbers, each with its definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.report.document import Document, Facts, Table, Text, items, section
from tonnage.report.numbers import ABSENT, counted, number
from tonnage.report.plans.question import attained_text

if TYPE_CHECKING:
    from tonnage.bench.benchmark import Measured
    from tonnage.bench.exact_server import SelfTest
    from tonnage.bench.find_max import Maximum
    from tonnage.results.metrics import Summary
    from tonnage.serve.demonstration import Demonstration, Failure


STATISTICS = ("mean", "p50", "p90", "p95", "p99")
METRICS = ("ttft", "itl", "tpot", "e2e")
SWEPT = ("load", "TTFT ms", "p95", "ITL ms", "p99", "TPOT ms", "E2E ms", "requests/s", "tokens/s", "verdict")
SELF_TEST = (
    ("TTFT", "as the client reports it, from the moment of sending; the server's: its first write − its receipt of the request"),
    ("bias", "the client's stamp of a first token (last token) − the server's stamp of its write; one clock, one machine"),
    ("tokens/s at most", "where the client's CPU for each token would take 85 % of a core"),
)


def measured(runs: Sequence[Measured]) -> Document:
    """One load in full, or one line per load of a sweep; what makes a run invalid is above its numbers."""
    from tonnage.results.metrics import DEFINITIONS

    verdicts = []
    for run in runs:
        items = f", {int(run.load.isl[0])} items each" if run.run_json["endpoint"]["type"] == "infer" else ""
        verdicts.append(Text(text=f"{run.load.words}{items}: {run.validity.verdict}"))
        verdicts += [Text(text=f"invalid: {reason}", tone="warning") for reason in run.validity.reasons]
        verdicts += [Text(text=f"note: {note}") for note in run.validity.notes]
    infers = runs[0].run_json["endpoint"]["type"] == "infer"
    body = (_inferences(runs),) if infers else (_statistics(runs[0]), Text(text=_rates(runs[0]))) if len(runs) == 1 else (_sweep(runs),)
    definitions = Facts(rows=tuple((metric.upper(), DEFINITIONS[f"{metric}_ms"]) for metric in (METRICS[3:] if infers else METRICS)))
    sections = (section("verdict", "", *verdicts), section("numbers", "", *body), section("definitions", "", definitions))
    return Document(title="", subtitle="", sections=sections)


def _statistics(run: Measured) -> Table:
    summary = run.summary.to_json()
    rows = []
    for metric in METRICS:
        values = summary[f"{metric}_ms"]
        rows.append((f"{metric.upper()} ms", *(number(values[s]) if isinstance(values, dict) else ABSENT for s in STATISTICS)))
    return Table(caption="", header=("", *STATISTICS), rows=tuple(rows), spare=("p90", "p50"))


def _rates(run: Measured) -> str:
    s = run.summary
    rates = f"{number(s.requests_per_second)} requests/s, {number(s.output_tokens_per_second)} output tokens/s, {s.counted} completed"
    failed = "".join(f", {count} {kind}" for kind, count in run.summary_json["errors_by_kind"].items())
    energy = run.summary_json.get("energy")
    joules = ""
    if energy:
        joules = f"; {number(energy['mean_gpu_watts'])} W of GPUs, {number(energy['joules_per_output_token'])} J an output token"
    return rates + failed + joules + "".join(f"; {attained_text(one)}" for one in run.good)


def _inferences(runs: Sequence[Measured]) -> Table:
    """One line for each load of a model that is no LLM: an inference is an item."""
    rows = []
    for run in runs:
        s = run.summary
        values = (s.e2e_ms.mean, s.e2e_ms.p50, s.e2e_ms.p95, s.e2e_ms.p99, s.requests_per_second, s.input_tokens_per_second)
        rows.append((run.load.words, f"{int(run.load.isl[0])}", *map(number, values), run.validity.verdict))
    header = ("load", "items", "E2E ms", "p50", "p95", "p99", "requests/s", "inferences/s", "verdict")
    return Table(caption="", header=header, rows=tuple(rows), spare=("p50", "p95"))


def _sweep(runs: Sequence[Measured]) -> Table:
    rows = []
    for run in runs:
        s = run.summary
        values = (s.ttft_ms.mean, s.ttft_ms.p95, s.itl_ms.mean, s.itl_ms.p99, s.tpot_ms.mean, s.e2e_ms.mean)
        rates = (s.requests_per_second, s.output_tokens_per_second)
        rows.append((run.load.words, *map(number, (*values, *rates)), run.validity.verdict))
    return Table(caption="", header=SWEPT, rows=tuple(rows), spare=("ITL ms", "tokens/s", "p95", "p99"))


def selftest(tests: Sequence[SelfTest]) -> Document:
    """One line per number of streams, and what the columns mean."""
    rows = []
    for test in tests:
        values = (test.ttft_ms, test.server_ttft_ms, test.bias_ms, test.bias_p99_ms, test.last_bias_ms, test.cpu_us_per_token)
        rows.append((str(test.streams), *map(number, values), f"{test.ceiling_tokens_per_second:,.0f}"))
    header = ("streams", "TTFT ms", "server's", "bias ms", "p99", "last token", "µs per token", "tokens/s at most")
    table = Table(caption="", header=header, rows=tuple(rows))
    return Document(title="", subtitle="", sections=(section("tests", "", table), section("words", "", Facts(rows=SELF_TEST))))


def maximum(found: Maximum) -> Document:
    """What the search for the highest load found, and every run that it made."""
    remark = ""
    if found.client_limited:
        remark = "The client was too slow for the last load: the server can do more than this machine can ask for."
    elif not found.precise:
        remark = "The runs ended before the interval was narrow; ask for longer runs."
    rows = []
    for trial in found.trials:
        s = trial.measured.summary
        values = (trial.load, s.ttft_ms.p95, s.tpot_ms.mean, s.requests_per_second)
        rows.append((*map(number, values), "passed" if trial.passed else "failed", f"{trial.sure:.2f}", trial.why or ABSENT))
    header = (found.unit, "TTFT p95 ms", "TPOT ms", "requests/s", "verdict", "sure", "why")
    table = Table(caption="", header=header, rows=tuple(rows))
    return Document(title=_found(found), subtitle=remark, sections=(section("trials", "", table),))


def _found(found: Maximum) -> str:
    limits = ", ".join(found.limits)
    if math.isnan(found.load):
        return f"No load met {limits}."
    low, high = found.interval
    between = f"the highest is between {number(low)} and {number(high)} with a confidence of 0.9"
    return f"{number(found.load)} {found.unit} meet {limits}; {between}."


# What the columns of a measurement are called in a table.


METRIC_TITLES = {
    "ttft_ms": "TTFT",
    "ttft_p95_ms": "TTFT p95",
    "itl_ms": "TPOT",
    "itl_p95_ms": "ITL p95",
    "e2e_ms": "E2E",
    "e2e_p95_ms": "E2E p95",
    "requests_s": "requests/s",
    "joules_per_token": "joules per output token",
    "output_tok_s": "tokens/s",
    "peak_gpu_memory_gb": "peak memory",
}
"""By the name that the column has in a file of measured points, where "itl" is the mean time per token of a request: TPOT."""


# Imported runs as a document: one line for each run folder that was made.


HEADER = ("run", "requests", "TTFT ms", "from send", "TPOT ms", "E2E ms", "requests/s", "tokens/s")


def imported(made: Sequence[tuple[Path, Summary]]) -> Document:
    """Folders with their summaries."""
    rows = []
    for folder, s in made:
        latencies = (s.ttft_ms.mean, s.ttft_from_send_ms.mean, s.tpot_ms.mean, s.e2e_ms.mean)
        rows.append((folder.name, str(s.counted), *map(number, (*latencies, s.requests_per_second, s.output_tokens_per_second))))
    return Document(title="", subtitle="", sections=(section("runs", "", Table(caption="", header=HEADER, rows=tuple(rows))),))


# A demonstration as a document: predicted next to measured, then what came of the failure.


LABELS = {"ttft_ms": "TTFT mean ms", "tpot_ms": "TPOT mean ms", "requests_per_second": "requests/s"}


def demonstrated(found: Demonstration) -> Document:
    """What was served, how it compares, and what a failure did."""
    rows = tuple(
        (LABELS[one.metric], number(one.predicted), number(one.measured), f"{one.difference:+.1%}", "agrees" if one.agrees else "differs")
        for one in found.beside
    )
    table = Table(caption="", header=("", "predicted", "measured", "difference", ""), rows=rows)
    reasons = tuple(f"The client calls its measurement {found.client}: {reason}" for reason in found.client_reasons)
    return Document(
        title=_verdict(found),
        subtitle=f"{found.fleet}; {found.load}; {found.requests:,} requests compared.",
        sections=(
            section("beside", "", table, items(reasons, "warning")),
            section("failure", "", Text(text=_failure(found.failure))),
            section("next", "", Text(text=NEXT)),
        ),
    )


NEXT = "Next: tonnage serve, tonnage gateway and tonnage bench do each of these steps for your own model, GPUs and load."


def _verdict(found: Demonstration) -> str:
    if found.verdict == "agree":
        return "Measured over HTTP, the simulated fleet does what the simulator predicts."
    return "The measurement differs from the prediction: a busy machine delivers tokens late (see below)."


def _failure(failure: Failure) -> str:
    returned = "it was not back when the load ended" if failure.back_s is None else f"it served again {failure.back_s:.1f} s later"
    sent = counted(failure.sent, "request")
    return (
        f"{failure.instance} was killed {failure.after_s:.1f} s into the second load, and {returned}. "
        f"Of {sent} {failure.completed:,} completed. "
        f"Streams cut, because they had begun on the killed instance: {failure.failed}. "
        f"Requests sent to another instance, because they had not: {failure.retried}. "
        f"TTFT p95 of that load: {number(failure.ttft_p95_ms)} ms."
    )
