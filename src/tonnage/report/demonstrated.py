"""A demonstration as a document: predicted beside measured, then what came of the failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Table, Text
from tonnage.report.numbers import counted, number

if TYPE_CHECKING:
    from tonnage.serve.demonstration import Demonstration, Failure

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
