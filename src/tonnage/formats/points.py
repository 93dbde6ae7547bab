"""A measured point is a deployment under one load, with its metrics; sizing from measurements chooses among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.formats.measured_files import InvalidRuns, Measurement, Values, measurements
from tonnage.formats.table import LATENCIES, STATISTICS, latency_column

if TYPE_CHECKING:
    from tonnage.spec.deployment import LimitMetric, Statistic

STEADY = 0.95
"""Requests/s × mean E2E over clients from which a closed loop counts as steady."""


def steadiness(clients: float | None, requests_s: float | None, e2e_ms: float | None) -> float | None:
    """Requests/s × mean E2E over the clients of a closed loop: 1 when they were always waiting for an answer (Little's law).

    Below ``STEADY`` a run was not steady: it still ramped up, or drained. None where it cannot be told, as of an open loop.
    """
    if clients is None or requests_s is None or e2e_ms is None:
        return None
    return requests_s * e2e_ms / 1e3 / clients


def is_steady(row: Mapping[str, Any]) -> bool:
    """Whether a row of our columns is steady; a row that cannot tell counts as steady."""
    found = steadiness(row.get("concurrency"), row.get("requests_s"), row.get("e2e_ms"))
    return found is None or bool(found >= STEADY)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """One measured point.

    Attributes:
        model, gpu, precision, engine: as the file writes them.
        tp, pp: parallel degrees; the instance that was measured has tp × pp GPUs.
        isl, osl: prompt and output lengths in tokens.
        concurrency: clients of the closed loop; None where the load was a rate.
        request_rate: requests per second sent; None where the load was a closed loop.
        latencies_ms: by metric ("ttft", "itl", "tpot", "e2e") and statistic ("mean", "p50", … "p99"), in
            milliseconds; what was not measured is absent.
        requests_s: completed requests per second; None where neither it nor the tokens were measured.
        output_tok_s: output tokens per second; None where it was not measured.
        source: where the point comes from: the file's own word for it, or file and line.
    """

    model: str
    gpu: str
    precision: str
    engine: str
    tp: int
    pp: int
    isl: int
    osl: int
    concurrency: int | None
    request_rate: float | None
    latencies_ms: Mapping[str, Mapping[str, float]]
    requests_s: float | None
    output_tok_s: float | None
    source: str

    @property
    def load(self) -> str:
        """The load in words, such as "closed loop of 10 clients"."""
        if self.concurrency is None:
            return f"open loop at {self.request_rate:g} requests/s"
        return f"closed loop of {self.concurrency} client{'s' if self.concurrency > 1 else ''}"

    @property
    def load_size(self) -> float:
        """What the points of one curve are in order of: clients, or requests per second."""
        return float(self.concurrency if self.concurrency is not None else self.request_rate or 0.0)

    def statistic_ms(self, metric: LimitMetric, statistic: Statistic) -> float | None:
        """One statistic in milliseconds, or None where it was not measured."""
        return self.latencies_ms.get(metric, {}).get(statistic)

    @property
    def steadiness(self) -> float | None:
        """Requests/s × mean E2E over the clients; None where it cannot be told."""
        return steadiness(self.concurrency, self.requests_s, self.statistic_ms("e2e", "mean"))

    @property
    def steady(self) -> bool:
        """Whether the point is steady; a point that cannot tell counts as steady."""
        return self.steadiness is None or self.steadiness >= STEADY


def read_points(path: Path | str, given: Values | None = None, invalid: InvalidRuns | None = None) -> list[MeasuredPoint]:
    """The measured points of a file or folder of any format that ``measured_files`` knows.

    What a plain column ``itl_…`` holds is taken for single gaps, what GenAI-Perf calls "inter token latency" for a TPOT;
    where a point has one of the two, the mean stands for both (they are one number at a fixed output length). Requests/s
    that were not measured follow from tokens/s at that length.

    Args:
        given: values for what the file does not say: any of model, gpu, precision, tp, pp, isl, osl, engine,
            concurrency. A length measured as a mean counts as the given one when within 5 %.
        invalid: as in ``measurements``; where every run is INVALID and left out, that is an error.

    Raises:
        InputError: naming file, line and column, and what would be right.
    """
    known = dict(given or {})
    invalid = invalid or InvalidRuns()
    found = list(measurements(path, known, invalid))
    invalid.check(found)
    if not any(name in one.values for one in found for name in ("requests_s", "output_tok_s")):
        raise InputError(f"{path}: missing column requests_s; sizing from measurements needs the requests per second of each point")
    return [_point(one, known) for one in found]


def _point(measurement: Measurement, given: Values) -> MeasuredPoint:
    merged = measurement.completed(given)
    if "batch" in merged:
        raise InputError(f"{measurement.where}: has a static batch; sizing needs concurrency (clients of a closed loop) or request_rate")
    requests_s, tokens_s = merged.get("requests_s"), merged.get("output_tok_s")
    return MeasuredPoint(
        model=str(merged["model"]),
        gpu=str(merged["gpu"]),
        precision=str(merged["precision"]).lower(),
        engine=str(merged.get("engine", "not stated")),
        tp=merged["tp"],
        pp=merged.get("pp", 1),
        isl=merged["isl"],
        osl=merged["osl"],
        concurrency=merged.get("concurrency"),
        request_rate=merged.get("request_rate"),
        latencies_ms=_latencies(measurement.values),
        requests_s=requests_s if requests_s is not None or tokens_s is None else tokens_s / merged["osl"],
        output_tok_s=tokens_s,
        source=str(merged.get("source", measurement.where)),
    )


def _latencies(values: Values) -> dict[str, dict[str, float]]:
    """What was measured, by metric and statistic; one of ITL and TPOT lends the other its mean."""
    measured = {m: {s: float(values[c]) for s in STATISTICS if (c := latency_column(m, s)) in values} for m in LATENCIES}
    for one, other in (("itl", "tpot"), ("tpot", "itl")):
        if not measured[one] and "mean" in measured[other]:
            measured[one] = {"mean": measured[other]["mean"]}
    return measured
