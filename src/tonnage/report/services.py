"""A service of models that are not LLMs, simulated or sized, as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.document import Document, Drawing, Lines, Table, Text, document, items, section
from tonnage.report.drawing.figure import Axis, Plot, Point, Series
from tonnage.report.numbers import ABSENT, STATISTICS, counted, number, percent, statistics
from tonnage.report.writers.terminal import plot_text

if TYPE_CHECKING:
    from pathlib import Path

    from tonnage.evidence.services import ServiceCalibration
    from tonnage.results.services import ModelResult, ServiceResult, ServiceSweep, SizedService

MOST_ROWS = 12  # combinations in the table; all are in the JSON


def served(run: ServiceResult) -> Document:
    """A simulated service."""
    return document(section("result", "", *_tables(run)), title=run.title)


def swept(sweep: ServiceSweep) -> Document:
    """A service under several loads: a row for each, and inferences per second against latency as a
    plot of characters.
    """
    plot = plot_text(_curve(sweep), 80)
    return document(
        section("result", "", _points(sweep), Lines(plot) if plot else None),
        title=sweep.points[0].title,
    )


def _points(sweep: ServiceSweep) -> Table:
    rows = []
    for load, point in zip(sweep.loads, sweep.points, strict=True):
        for stream in point.streams:
            values = (
                stream.items_per_second,
                *(getattr(stream.latencies, name) for name in ("mean", "p50", "p95", "p99")),
            )
            rows.append(
                (
                    f"{load:g}",
                    stream.name,
                    *map(number, values),
                    percent(sum(point.busy) / len(point.busy)),
                )
            )
    return Table(
        header=(
            sweep.unit,
            "to",
            "inferences/s",
            "mean ms",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "GPU busy",
        ),
        rows=tuple(rows),
    )


def _curve(sweep: ServiceSweep) -> Plot:
    """Latency over inferences per second, a line for each stream."""
    series = []
    for place, stream in enumerate(sweep.points[0].streams):
        for tone, statistic in enumerate(("mean", "p99")):
            points = []
            for load, point in zip(sweep.loads, sweep.points, strict=True):
                stream_result = point.streams[place]
                latency = getattr(stream_result.latencies, statistic)
                if latency is not None:
                    tip = (
                        f"{load:g} {sweep.unit}\n{number(stream_result.items_per_second)}"
                        f" inferences/s\n{statistic} {number(latency)} ms"
                    )
                    points.append(Point(stream_result.items_per_second, latency, tip))
            series.append(
                Series(
                    f"{stream.name}, {statistic}", tuple(points), tone=2 * place + tone, line=True
                )
            )
    title = "Latency against inferences per second"
    return Plot("curve", title, Axis("inferences/s"), Axis("ms", log=True), tuple(series))


def _tried(answer: SizedService) -> Table | None:
    """The settings that were compared, the answer first, the others by the servers that they
    need.
    """
    if not answer.tried:
        return None
    rows = []
    for combination in sorted(
        answer.tried,
        key=lambda candidate: (
            not candidate.chosen,
            candidate.servers or 10**9,
            candidate.use or 0,
        ),
    ):
        words = tuple(
            f"{setting.instances} × {setting.max_batch_size}"
            + (
                ""
                if setting.max_queue_delay_microseconds is None
                else f", {setting.max_queue_delay_microseconds} µs"
            )
            for setting in combination.settings
        )
        servers = (
            f"> {answer.servers}"
            if combination.servers is None
            else "none"
            if combination.servers == 0
            else f"{combination.servers}"
        )
        rows.append(
            (*words, servers, ABSENT if combination.use is None else percent(combination.use))
        )
    caption = (
        f"{counted(len(rows), 'combination')} of instances × largest batch, queue delay; the best"
        f" {min(len(rows), MOST_ROWS)}:"
    )
    header = (*(setting.model for setting in answer.tried[0].settings), "servers", "of the limits")
    gave_up = any(tried_settings.servers is None for tried_settings in answer.tried)
    note = (
        "Given up as soon as it is known to need more servers than the answer." if gave_up else ""
    )
    return Table(caption=caption, header=header, rows=tuple(rows[:MOST_ROWS]), chosen=0, note=note)


def sized(answer: SizedService) -> Document:
    """A sized service: the number first, then what one server does at its share."""
    servers, gpus = counted(answer.servers, "server"), counted(answer.gpus, "GPU")
    words = (
        f"{servers} of {counted(answer.gpus_each, 'GPU')}: {gpus}. By arithmetic alone it would be"
        f" {answer.least} at least."
    )
    if answer.servers == 0:
        words = "No number of servers meets the limits: an all but idle server misses them too."
    fewer = (
        (f"With {counted(answer.servers - 1, 'server')}: {'; '.join(answer.one_fewer)}.",)
        if answer.one_fewer
        else ()
    )
    lines = items((*(f"{sentence}." for sentence in answer.met), *fewer))
    text = Text("One of these servers with its share of the traffic:")
    result_section = section(
        "result", "", Text(words, tone="answer"), lines, _tried(answer), text, *_tables(answer.run)
    )
    if answer.curve is None:
        return document(result_section, title=answer.run.title)
    reading = "One server of the answer at lower and higher rates than its share of the traffic."
    curve = section(
        "curve",
        "Latency against load",
        Drawing(_curve(answer.curve), reading, _points(answer.curve)),
    )
    batches = section("batches", "Batches", *map(_batches, answer.run.models))
    return document(result_section, curve, batches, title=answer.run.title or "A service")


def _batches(model: ModelResult) -> Table:
    whole = sum(model.batches.values())
    rows = tuple(
        (f"{size}", f"{count:,}", percent(count / whole)) for size, count in model.batches.items()
    )
    return Table(
        caption=f"Batches of {model.name}", header=("items", "batches", "share"), rows=rows
    )


def _tables(run: ServiceResult) -> tuple[Table, Table, Text]:
    header = (
        "requests to",
        "traffic",
        "answers/s",
        *(f"{name} ms" for name in STATISTICS),
        "rejected",
        "timed out",
    )
    stream_rows = tuple(
        (
            *(stream.name, stream.asked, number(stream.answered_per_second)),
            *(*statistics(stream.latencies), str(stream.rejected), str(stream.expired)),
        )
        for stream in run.streams
    )
    streams = Table(header=header, rows=stream_rows, spare=("p90 ms", "p50 ms"))
    rows = tuple(
        (
            model.name,
            f"{sum(model.batches.values()):,}",
            number(model.mean_batch),
            str(max(model.batches)),
            number(model.waited_ms),
        )
        for model in run.models
    )
    models = Table(header=("model", "batches", "mean batch", "largest", "mean wait ms"), rows=rows)
    return streams, models, Text(f"GPU busy: {', '.join(map(percent, run.busy))} of the time")


def calibrated(service_calibration: ServiceCalibration, output: Path | None) -> Document:
    """The measured times of batches, and how far the file's predictions are from the other
    loads.
    """
    rows = tuple(
        (name, f"{size}", number(ms), number(1e3 * size / ms))
        for name, table in service_calibration.times_ms.items()
        for size, ms in table.items()
    )
    times = Table(
        caption="Median time of a batch, with one client:",
        header=("model", "items", "ms", "items/s"),
        rows=rows,
    )

    def beside(measured: float, predicted: float) -> tuple[str, str, str]:
        return number(measured), number(predicted), f"{predicted / measured - 1:+.0%}"

    header = (
        "model",
        "load",
        "items",
        "mean ms",
        "predicted",
        "off",
        "items/s",
        "predicted",
        "off",
    )
    measured = tuple(
        (
            *(load.model, load.load, f"{load.items}", *beside(load.measured_ms, load.predicted_ms)),
            *beside(load.measured_per_second, load.predicted_per_second),
        )
        for load in service_calibration.loads
    )
    loads = Table(
        caption="Loads that were measured too, and what the file predicts of them:",
        header=header,
        rows=measured,
    )
    written = (
        None
        if output is None
        else Text(
            f"{output} holds these times; size and simulate take it. Set its traffic and latency."
        )
    )
    blocks = (
        times,
        loads if service_calibration.loads else None,
        items(service_calibration.remarks, "note"),
        written,
    )
    return document(section("times", "", *blocks))
