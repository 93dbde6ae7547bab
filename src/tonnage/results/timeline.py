"""Which request held which slot in which step: the record behind a picture of an engine at work,
simulated or the lesson's.

As a file it is a table with one row per step and slot that was held (``timeline_table``), or a
trace of events that Perfetto and Chrome open (``chrome_trace``): a thread for each slot, and
counters of the queue, of the KV blocks and of the tokens in a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.results.store import parquet_table

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

# What a request does in a step: it computes its prompt, it decodes, or it has a slot and waits. A
# slot without a request is empty.
PREFILL, DECODE, WAITING = "prefill", "decode", "waiting"

# What kept more from being in a step: nothing, the number of slots, the token budget, or the KV
# cache
NOTHING, SLOTS, TOKENS, BLOCKS = "nothing", "slots", "tokens", "KV blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A slot that a request held in one step: its number, the request, what it did, and how many
    tokens were computed for it.
    """

    slot: int
    request: int
    state: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineStep:
    """One step."""

    # start, duration: in the unit of the timeline
    start: float
    duration: float
    held: tuple[Held, ...]  # the slots that requests held
    queued: int  # requests that waited for a slot
    kv_used: float  # KV blocks that requests held, as a share of all
    bound: str  # what kept more from being in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The steps of an engine, in order."""

    steps: tuple[TimelineStep, ...]  # the first of them, all where ``left`` is 0
    slots: int  # that the engine has
    unit: str  # of times: "s", or "ticks" of the lesson
    left: int = 0  # steps that are not in it


def timeline_table(timeline: Timeline) -> pa.Table:
    """A row for each slot held in each step; a step in which none was held has one row with slot
    −1.
    """
    import pyarrow as pa

    rows = [
        (
            number,
            step.start,
            step.duration,
            occupant.slot,
            occupant.request,
            occupant.state,
            occupant.tokens,
            step.queued,
            step.kv_used,
            step.bound,
        )
        for number, step in enumerate(timeline.steps)
        for occupant in step.held or (Held(slot=-1, request=-1, state="empty", tokens=0),)
    ]
    names = (
        "step",
        "start",
        "duration",
        "slot",
        "request",
        "state",
        "tokens",
        "queued",
        "kv_used",
        "bound",
    )
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    return table.replace_schema_metadata(
        {"slots": str(timeline.slots), "unit": timeline.unit, "left": str(timeline.left)}
    )


def read_timeline(path: Path) -> Timeline:
    """The timeline of a file that ``timeline_table`` was written to. Raises InputError: it is no
    such file.
    """
    import pyarrow as pa

    try:
        table = parquet_table(path)
        metadata = {
            key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()
        }
        steps: dict[int, list[dict[str, Any]]] = {}
        for row in table.to_pylist():
            steps.setdefault(row["step"], []).append(row)
        return Timeline(
            steps=tuple(_step(rows) for _, rows in sorted(steps.items())),
            slots=int(metadata["slots"]),
            unit=metadata["unit"],
            left=int(metadata["left"]),
        )
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
        why = " ".join(str(error).split())[:80]
        raise InputError(
            f"{option('timeline')}: {path} is no timeline ({why}); name the .parquet file that"
            " simulate wrote"
        ) from None


def _step(rows: list[dict[str, Any]]) -> TimelineStep:
    first = rows[0]
    return TimelineStep(
        start=first["start"],
        duration=first["duration"],
        held=tuple(
            Held(**{name: row[name] for name in ("slot", "request", "state", "tokens")})
            for row in rows
            if row["slot"] >= 0
        ),
        queued=first["queued"],
        kv_used=first["kv_used"],
        bound=first["bound"],
    )


def chrome_trace(timeline: Timeline) -> dict[str, Any]:
    """The timeline as trace events (Chrome's JSON format, which Perfetto reads); times in
    microseconds, a tick is a millisecond.

    Consecutive steps in which a request did the same in the same slot are one event.
    """
    scale = 1e6 if timeline.unit == "s" else 1e3
    events: list[dict[str, Any]] = [_named("process_name", 0, "engine")]
    slots = sorted({occupant.slot for step in timeline.steps for occupant in step.held})
    events += [_named("thread_name", slot + 1, f"slot {slot + 1}") for slot in slots]
    for slot in slots:
        events += _of_slot(timeline, slot, scale)
    for step in timeline.steps:
        at = {"ph": "C", "pid": 1, "ts": step.start * scale}
        events.append({**at, "name": "queue", "args": {"requests": step.queued}})
        events.append(
            {**at, "name": "KV blocks", "args": {"percent": round(100 * step.kv_used, 3)}}
        )
        events.append(
            {
                **at,
                "name": "tokens in the step",
                "args": {"tokens": sum(occupant.tokens for occupant in step.held)},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": thread, "name": what, "args": {"name": name}}


def _of_slot(timeline: Timeline, slot: int, scale: float) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    last: tuple[int, str, float] | None = None
    for step in timeline.steps:
        for occupant in step.held:
            if occupant.slot != slot:
                continue
            if last is not None and last == (occupant.request, occupant.state, step.start):
                events[-1]["dur"] = (step.start + step.duration) * scale - events[-1]["ts"]
                events[-1]["args"]["tokens"] += occupant.tokens
                events[-1]["args"]["steps"] += 1
            else:
                events.append(
                    {
                        "ph": "X",
                        "pid": 1,
                        "tid": slot + 1,
                        "name": f"{occupant.state} {occupant.request}",
                        "cat": occupant.state,
                        "ts": step.start * scale,
                        "dur": step.duration * scale,
                        "args": {
                            "request": occupant.request,
                            "tokens": occupant.tokens,
                            "steps": 1,
                            "bound": step.bound,
                        },
                    }
                )
            last = (occupant.request, occupant.state, step.start + step.duration)
    return events
