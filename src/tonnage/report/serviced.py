"""A simulated or sized service as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Table, Text
from tonnage.report.numbers import counted, number, percent

if TYPE_CHECKING:
    from tonnage.results.services import ServiceResult, SizedService, StreamResult

STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def served(run: ServiceResult) -> Document:
    """A simulated service."""
    return Document(title=run.title, subtitle="", sections=(section("result", "", *_tables(run)),))


def sized(answer: SizedService) -> Document:
    """A sized service: the number first, then what one server does at its share."""
    servers, gpus = counted(answer.servers, "server"), counted(answer.gpus, "GPU")
    if answer.servers == 0:
        words = "No number of servers meets the limits: an all but idle server misses them too."
    else:
        words = f"{servers} of {counted(answer.gpus_each, 'GPU')}: {gpus}. By arithmetic alone it would be {answer.least} at least."
    fewer = (f"With {counted(answer.servers - 1, 'server')}: {'; '.join(answer.one_fewer)}.",) if answer.one_fewer else ()
    lines = items((*(f"{one}." for one in answer.met), *fewer))
    one = Text(text="One of these servers with its share of the traffic:")
    return Document(
        title=answer.run.title, subtitle="", sections=(section("result", "", Text(text=words), lines, one, *_tables(answer.run)),)
    )


def _tables(run: ServiceResult) -> tuple[Table, Table, Text]:
    streams = Table(
        caption="",
        header=("requests to", "traffic", "answers/s", *(f"{name} ms" for name in STATISTICS), "rejected", "timed out"),
        rows=tuple(map(_stream, run.streams)),
        spare=("p90 ms", "p50 ms"),
    )
    models = Table(
        caption="",
        header=("model", "batches", "mean batch", "largest", "mean wait ms"),
        rows=tuple(
            (one.name, f"{sum(one.batches.values()):,}", number(one.mean_batch), str(max(one.batches)), number(one.waited_ms))
            for one in run.models
        ),
    )
    busy = ", ".join(percent(share) for share in run.busy)
    return streams, models, Text(text=f"GPU busy: {busy} of the time")


def _stream(one: StreamResult) -> tuple[str, ...]:
    statistics = (number(getattr(one.latencies, name)) for name in STATISTICS)
    return (one.name, one.asked, number(one.answered_per_second), *statistics, str(one.rejected), str(one.expired))
