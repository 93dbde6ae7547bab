"""One request of another tool's file, before it becomes a row of the record."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tonnage.errors import InputError
from tonnage.results.table import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRequest:
    """What a file says of one request, in nanoseconds of any one clock.

    Attributes:
        due_ns: when it was due; the moment of sending where the tool keeps no schedule.
        sent_ns: when it was sent.
        events_ns: when each event with output came; of a tool that keeps no single events the first and the last.
        isl, osl: tokens.
        outcome: "" where it completed, "cancelled", or why it failed.
        single: whether every event is there, so that there are gaps between tokens.
    """

    due_ns: int
    sent_ns: int
    events_ns: tuple[int, ...]
    isl: int
    osl: int
    outcome: str = ""
    single: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """What a file says of a run.

    Attributes:
        tool: who wrote it.
        model: the model's name; "" where it does not say.
        concurrency, rate: the load; 0 where it does not say.
        requests: every request that was sent, in the order of sending.
    """

    tool: str
    model: str
    concurrency: int
    rate: float
    requests: tuple[PastRequest, ...]


def moments(start_ns: int, first: float, gaps: list[float], scale: float) -> tuple[int, ...]:
    """The moment of each event, from the first one and the gaps after it; ``scale`` is nanoseconds per unit of these."""
    return tuple(start_ns + round(after * scale) for after in itertools.accumulate([first, *gaps]))


def number(value: Any, where: str, *, least: float = 0.0) -> float:
    """A finite number that is not below the least.

    Raises:
        InputError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 1e300:
        raise InputError(f"{where}: '{shown(str(value))}' is not a number from {least:g}; give the file as the tool wrote it")
    return float(value)
