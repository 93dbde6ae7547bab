"""What the server said of itself while a run lasted: requests running and waiting, KV cache, GPU, over the time of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.report.document import Drawing, Table
from tonnage.report.drawing.figure import Axis, Plot, Point, Series
from tonnage.report.numbers import number

if TYPE_CHECKING:
    from tonnage.report.runs.shown_run import Readings, ShownRun

MOST = 120
"""Readings of a line at most; of a longer run an even share is drawn."""
SECONDS = "seconds since the start of the run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One line of a figure.

    Attributes:
        name: what a reader sees.
        series: the names of Prometheus that say it, without labels, of whichever engine.
        summed: whether several servers or GPUs are added up; otherwise their mean counts.
        scale: by which a value is multiplied.
    """

    name: str
    series: tuple[str, ...]
    summed: bool = True
    scale: float = 1.0


GAUGES: tuple[tuple[str, str, str, tuple[Gauge, ...]], ...] = (
    (
        "server-requests",
        "Requests inside the server",
        "requests",
        (
            Gauge(name="running", series=("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running")),
            Gauge(
                name="waiting",
                series=(
                    "vllm:num_requests_waiting",
                    "sglang:num_queue_reqs",
                    "trtllm_num_requests_waiting",
                    "nv_inference_pending_request_count",
                ),
            ),
        ),
    ),
    (
        "server-kv",
        "KV cache in use",
        "per cent",
        (
            Gauge(
                name="KV cache in use",
                series=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization"),
                summed=False,
                scale=100.0,
            ),
        ),
    ),
    ("server-power", "GPU power", "W", (Gauge(name="power of all GPUs", series=("DCGM_FI_DEV_POWER_USAGE", "nv_gpu_power_usage")),)),
    ("server-gpu", "GPU use", "per cent", (Gauge(name="use of the GPUs, mean", series=("DCGM_FI_DEV_GPU_UTIL",), summed=False),)),
)
"""By figure: key, title, unit and lines. Names as vLLM, SGLang, TensorRT-LLM, Triton and the DCGM exporter write them."""


def server_figures(run: ShownRun) -> Iterator[Drawing]:
    """A figure for each group of gauges that the server had."""
    for key, title, unit, gauges in GAUGES:
        lines = {gauge.name: line for gauge in gauges if (line := _line(run.server, gauge))}
        if lines:
            yield _drawing(key, title, unit, lines)


def _line(server: Readings, gauge: Gauge) -> tuple[tuple[float, float], ...]:
    """Seconds and value, all labels of a moment together; empty where nothing was read twice."""
    rows = next((server[name] for name in gauge.series if name in server), ())
    by_moment: dict[float, list[float]] = {}
    for moment, value in rows:
        by_moment.setdefault(moment, []).append(value * gauge.scale)
    found = [(moment, sum(values) / (1 if gauge.summed else len(values))) for moment, values in sorted(by_moment.items())]
    step = -(-len(found) // MOST)
    return tuple(found[::step]) if len(found) > 1 else ()


def _drawing(key: str, title: str, unit: str, lines: Mapping[str, tuple[tuple[float, float], ...]]) -> Drawing:
    series = tuple(
        Series(
            name=name,
            points=tuple(Point(x=x, y=y, tip=f"{name}: {number(y)} {unit}\nat {number(x)} s") for x, y in line),
            tone=tone,
            line=True,
        )
        for tone, (name, line) in enumerate(lines.items())
    )
    rows = tuple(
        (name, number(min(v)), number(sum(v) / len(v)), number(max(v))) for name, line in lines.items() if (v := [y for _, y in line])
    )
    return Drawing(
        figure=Plot(key=key, title=title, x=Axis(title=SECONDS), y=Axis(title=unit), series=series),
        reading="",
        numbers=Table(caption=f"{title} in numbers, {unit}", header=("", "least", "mean", "most"), rows=rows, folded=True),
    )
