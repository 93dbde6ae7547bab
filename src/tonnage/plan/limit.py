"""Latency limits: what was asked, how far it is used, by what it is broken, and what ends the load of an instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.deployment import Limit as Asked
from tonnage.spec.deployment import LimitMetric, Statistic
from tonnage.spec.typed_values import FORBID

BoundKind = Literal["limit", "saturation", "throughput", "highest-measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One latency limit: a statistic of a metric ("ttft", "itl", "tpot" or "e2e") that must not exceed so many milliseconds."""

    __pydantic_config__ = FORBID

    metric: LimitMetric
    statistic: Statistic
    milliseconds: float

    @property
    def seconds(self) -> float:
        """The limit in seconds."""
        return self.milliseconds / 1e3


def limit_of(asked: Asked) -> Limit:
    """A limit of a question as a value of the plan."""
    return Limit(metric=asked.metric, statistic=asked.statistic, milliseconds=1e3 * asked.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """One limit at a stated load: the value there in milliseconds, and the share of the limit that it uses; None where undefined."""

    __pydantic_config__ = FORBID

    limit: Limit
    value_ms: float | None
    used: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A limit and the value that breaks it, in milliseconds; None where the value was not measured."""

    __pydantic_config__ = FORBID

    limit: Limit
    value_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What ends the load that an instance can carry.

    Attributes:
        kind: "limit"; "saturation", where every limit holds up to it; "throughput" of a job; or "highest-measured", the last point
            of a benchmark.
        limit: which one; None for the other kinds.
    """

    __pydantic_config__ = FORBID

    kind: BoundKind
    limit: Limit | None = None


SATURATION = Bound(kind="saturation")
THROUGHPUT = Bound(kind="throughput")
HIGHEST_MEASURED = Bound(kind="highest-measured")


def bound_by(limit: Asked) -> Bound:
    """The bound that a limit of the question is."""
    return Bound(kind="limit", limit=limit_of(limit))
