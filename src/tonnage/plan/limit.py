"""Latency limits: how far they are used, what breaks them, and what ends the load of an
instance.
"""

from __future__ import annotations

from typing import Literal

from tonnage.plan.document import Shown
from tonnage.spec.deployment import LIMITED, LimitMetric, Statistic
from tonnage.spec.deployment import Limit as Asked
from tonnage.spec.scenario import Objective
from tonnage.spec.typed_values import strict
from tonnage.spec.workload import Process

BoundKind = Literal["limit", "saturation", "throughput", "highest-measured"]


@strict
class Limit(Shown):
    """One latency limit: a statistic of a metric ("ttft", "itl", "tpot" or "e2e") that must not
    exceed so many milliseconds.

    Joint attainment ("attain", "share") has the ratio to its parts that is allowed, in thousandths,
    in place of milliseconds.
    """

    WHERE_ASKED = ("share", "parts")

    metric: LimitMetric
    statistic: Statistic
    milliseconds: float
    # of the requests that must meet all parts at once; None but for joint attainment
    share: float | None = None
    # metric and milliseconds of each of its limits; likewise
    parts: tuple[tuple[LimitMetric, float], ...] | None = None

    @property
    def seconds(self) -> float:
        """The limit in seconds."""
        return self.milliseconds / 1e3

    @property
    def name(self) -> str:
        """The limited quantity, such as "TTFT p95", or "attainment of 95%"."""
        name = LIMITED.get(self.metric, self.metric.upper())
        return (
            f"{name} {self.statistic}"
            if self.share is None
            else f"attainment of {100 * self.share:g}%"
        )

    @property
    def asked(self) -> Asked:
        """Convert to the form that a question has."""
        parts = tuple((metric, milliseconds / 1e3) for metric, milliseconds in self.parts or ())
        return Asked(
            metric=self.metric,
            statistic=self.statistic,
            seconds=self.seconds,
            share=self.share,
            parts=parts,
        )

    def __str__(self) -> str:
        """Write the limit as a question does, such as "TTFT p95 ≤ 500 ms"."""
        return str(self.asked)


def limit_of(objective: Asked) -> Limit:
    """A limit of a question as a value of the plan."""
    parts = tuple((metric, 1e3 * seconds) for metric, seconds in objective.parts) or None
    return Limit(
        metric=objective.metric,
        statistic=objective.statistic,
        milliseconds=1e3 * objective.seconds,
        share=objective.share,
        parts=parts,
    )


@strict
class LimitUse:
    """One limit at a stated load: the value there in milliseconds, and the share of the limit that
    it uses; None where undefined.
    """

    limit: Limit
    value_ms: float | None
    used: float | None


@strict
class Breach:
    """A limit and the value that breaks it, in milliseconds; None where the value was not
    measured.
    """

    limit: Limit
    value_ms: float | None

    @property
    def broken(self) -> bool:
        """Whether the value is above the limit, as far as it was measured."""
        return self.value_ms is None or self.value_ms > self.limit.milliseconds


@strict
class Bound:
    """The limit or resource that ends the load of an instance."""

    # "limit"; "saturation", where every limit holds up to it; "throughput" of a job; or
    # "highest-measured", the last point of a benchmark
    kind: BoundKind
    limit: Limit | None = None  # which one; None for the other kinds


SATURATION = Bound(kind="saturation")
THROUGHPUT = Bound(kind="throughput")
HIGHEST_MEASURED = Bound(kind="highest-measured")


def bound_by(limit: Asked) -> Bound:
    """The bound that a limit of the question is."""
    return Bound(kind="limit", limit=limit_of(limit))


BudgetOf = Literal["purchase", "year"]

# Kilowatts of a rack where nothing is given: four DGX H100 of 10.2 kW (NVIDIA DGX SuperPOD
# reference architecture for DGX H100, 2023)
RACK_KW = 42.0


@strict
class Aim:
    """The aim of a choice."""

    # what to minimise: GPUs, the cost of a year, the power of the systems, or the latency at the
    # peak
    objective: Objective = "gpus"
    # most that may be spent; None for no limit. ``budget_of`` says on what: the purchase, or a year
    # of serving.
    budget_usd: float | None = None
    budget_of: BudgetOf = "purchase"
    max_kw: float | None = None  # most kW that the systems may draw together; None for no limit
    max_racks: int | None = None  # most racks that they may be in; None for no limit
    rack_kw: float = RACK_KW  # kW that one rack can feed and cool


LoadKind = Literal["open", "closed", "trace", "queued"]


@strict
class Load:
    """The arrival of requests at one instance."""

    # "open": on a schedule; "closed": from clients that wait for their answers; "trace": a share of
    # recorded traffic; "queued": all at once, as a job
    kind: LoadKind
    # of an open loop, or the mean of a trace's share; None elsewhere
    requests_per_second: float | None = None
    clients: float | None = None  # of a closed loop; None elsewhere
    process: Process | None = None  # of the arrivals in a simulated open loop; None elsewhere
    cv: float | None = None  # coefficient of variation of gamma arrivals; None elsewhere
    measured: bool = False  # whether a benchmark measured it; otherwise it was simulated
