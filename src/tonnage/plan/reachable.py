"""How near the deployments come to limits that none of them meets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tonnage.plan.identity import Identity
from tonnage.plan.limit import Limit
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What one deployment reaches at its lightest load.

    Attributes:
        limit: the limit that asks for it; None for the time in which a job has to be done.
        asked_ms: at most so many milliseconds.
        value_ms: what is reached, in milliseconds.
        deployment: which deployment reaches it.
    """

    __pydantic_config__ = FORBID

    limit: Limit | None
    asked_ms: float
    value_ms: float
    deployment: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachable:
    """How near the deployments come to limits that none of them meets.

    The lightest load is one request at a time, of a job a single request, and of a benchmark the measured load that comes nearest.

    Attributes:
        best: for each limit the lowest value that any deployment reaches.
        nearest: every limited value of the deployment that exceeds its limits by the smallest factor.
    """

    __pydantic_config__ = FORBID

    best: tuple[Reached, ...]
    nearest: tuple[Reached, ...]


def nearest_of(found: Iterable[tuple[Reached, ...]]) -> Reachable | None:
    """The best value for each limit and the deployment nearest to all, from the values of each deployment; None where there are none."""
    known = [values for values in found if values]
    if not known:
        return None
    limits = dict.fromkeys(one.limit for values in known for one in values)
    best = tuple(min((one for values in known for one in values if one.limit == limit), key=_excess) for limit in limits)
    return Reachable(best=best, nearest=min(known, key=lambda values: max(map(_excess, values))))


def _excess(one: Reached) -> float:
    return one.value_ms / one.asked_ms
