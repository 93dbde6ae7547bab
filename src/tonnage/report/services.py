"""A service of models that are not LLMs, simulated or sized, as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.document import Document, Drawing, Lines, Table, Text, items, section
from tonnage.report.drawing.figure import Axis, Plot, Point, Series
from tonnage.report.numbers import ABSENT, counted, number, percent
from tonnage.report.writers.terminal import plot_text

if TYPE_CHECKING:
    from pathlib import Path

    from tonnage.evidence.services import ServiceCalibration
    from tonnage.results.services import ModelResult, ServiceResult, ServiceSweep, SizedService, StreamResult

MOST_ROWS = 12  # combinations in the table; all are in the JSON
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def served(run: ServiceResult) -> Document:
    """A simulated service."""
    return Document(title=run.title, sections=(section("result", "", *_tables(run)),))


def swept(sweep: ServiceSweep) -> Document:
    """A service under several loads: a row for each, and inferences per second against latency as a plot of characters."""
    plot = plot_text(_curve(sweep), 80)
    return Document(
        title=sweep.points[0].title,
        sections=(section("result", "", _points(sweep), Lines(text=plot) if plot else None),),
    )


def _points(sweep: ServiceSweep) -> Table:
    rows = tuple(
        (
            f"{load:g}",
            one.name,
            number(one.items_per_second),
            *(number(getattr(one.latencies, name)) for name in ("mean", "p50", "p95", "p99")),
            percent(sum(point.busy) / len(point.busy)),
        )
        for load, point in zip(sweep.loads, sweep.points, strict=True)
        for one in point.streams
    )
    return Table(header=(sweep.unit, "to", "inferences/s", "mean ms", "p50 ms", "p95 ms", "p99 ms", "GPU busy"), rows=rows)


def _curve(sweep: ServiceSweep) -> Plot:
    """Latency over inferences per second, a line for each stream."""
    streams = [one.name for one in sweep.points[0].streams]
    series = []
    for place, name in enumerate(streams):
        for tone, statistic in enumerate(("mean", "p99")):
            points = []
            for load, point in zip(sweep.loads, sweep.points, strict=True):
                one = point.streams[place]
                seen = getattr(one.latencies, statistic)
                if seen is not None:
                    tip = f"{load:g} {sweep.unit}\n{number(one.items_per_second)} inferences/s\n{statistic} {number(seen)} ms"
                    points.append(Point(x=one.items_per_second, y=seen, tip=tip))
            series.append(Series(name=f"{name}, {statistic}", points=tuple(points), tone=2 * place + tone, line=True))
    title = "Latency against inferences per second"
    return Plot(key="curve", title=title, x=Axis(title="inferences/s"), y=Axis(title="ms", log=True), series=tuple(series))


def _tried(answer: SizedService) -> Table | None:
    """The settings that were compared, the answer first, the others by the servers that they need."""
    if not answer.tried:
        return None
    rows = []
    for one in sorted(answer.tried, key=lambda one: (not one.chosen, one.servers or 10**9, one.use or 0)):
        words = tuple(
            f"{each.instances} × {each.max_batch_size}"
            + ("" if each.max_queue_delay_microseconds is None else f", {each.max_queue_delay_microseconds} µs")
            for each in one.settings
        )
        servers = f"> {answer.servers}" if one.servers is None else "none" if one.servers == 0 else f"{one.servers}"
        rows.append((*words, servers, ABSENT if one.use is None else percent(one.use)))
    names = tuple(each.model for each in answer.tried[0].settings)
    return Table(
        caption=f"{counted(len(rows), 'combination')} of instances × largest batch, queue delay; the best {min(len(rows), MOST_ROWS)}:",
        header=(*names, "servers", "of the limits"),
        rows=tuple(rows[:MOST_ROWS]),
        chosen=0,
        note="Given up as soon as it is known to need more servers than the answer."
        if any(one.servers is None for one in answer.tried)
        else "",
    )


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
    found = section("result", "", Text(text=words, tone="answer"), lines, _tried(answer), one, *_tables(answer.run))
    if answer.curve is None:
        return Document(title=answer.run.title, sections=(found,))
    reading = "One server of the answer at lower and higher rates than its share of the traffic."
    curve = section("curve", "Latency against load", Drawing(figure=_curve(answer.curve), reading=reading, numbers=_points(answer.curve)))
    batches = section("batches", "Batches", *map(_batches, answer.run.models))
    return Document(title=answer.run.title or "A service", sections=(found, curve, batches))


def _batches(model: ModelResult) -> Table:
    whole = sum(model.batches.values())
    rows = tuple((f"{size}", f"{count:,}", percent(count / whole)) for size, count in model.batches.items())
    return Table(caption=f"Batches of {model.name}", header=("items", "batches", "share"), rows=rows)


def _tables(run: ServiceResult) -> tuple[Table, Table, Text]:
    streams = Table(
        header=("requests to", "traffic", "answers/s", *(f"{name} ms" for name in STATISTICS), "rejected", "timed out"),
        rows=tuple(map(_stream, run.streams)),
        spare=("p90 ms", "p50 ms"),
    )
    models = Table(
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


def calibrated(found: ServiceCalibration, output: Path | None) -> Document:
    """The measured times of batches, and how far the file's predictions are from the other loads."""
    times = Table(
        caption="Median time of a batch, with one client:",
        header=("model", "items", "ms", "items/s"),
        rows=tuple(
            (name, f"{size}", number(ms), number(1e3 * size / ms)) for name, table in found.times_ms.items() for size, ms in table.items()
        ),
    )
    loads = Table(
        caption="Loads that were measured too, and what the file predicts of them:",
        header=("model", "load", "items", "mean ms", "predicted", "off", "items/s", "predicted", "off"),
        rows=tuple(
            (
                one.model,
                one.load,
                f"{one.items}",
                *(number(one.measured_ms), number(one.predicted_ms), f"{one.predicted_ms / one.measured_ms - 1:+.0%}"),
                *(number(one.measured_per_second), number(one.predicted_per_second)),
                f"{one.predicted_per_second / one.measured_per_second - 1:+.0%}",
            )
            for one in found.loads
        ),
    )
    written = None if output is None else Text(text=f"{output} holds these times; size and simulate take it. Set its traffic and latency.")
    blocks = (times, loads if found.loads else None, items(found.remarks, "note"), written)
    return Document(sections=(section("times", "", *blocks),))
