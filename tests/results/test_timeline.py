"""A picture of an engine at work as a table and as trace events, by hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tonnage.errors import InputError
from tonnage.results.timeline import (
    Held,
    Timeline,
    TimelineStep,
    chrome_trace,
    read_timeline,
    timeline_table,
)


def step(
    start: float, duration: float, *held: tuple[int, int, str, int], queued: int = 0
) -> object:
    """A step from ``start`` on; held slots as (slot, request, state, tokens)."""
    return TimelineStep(
        start=start,
        duration=duration,
        held=tuple(
            Held(slot=slot, request=request, state=state, tokens=tokens)
            for slot, request, state, tokens in held
        ),
        queued=queued,
        kv_used=len(held) / 8,
        bound="slots" if queued else "nothing",
    )


STEPS = (
    step(0.0, 0.5, (0, 7, "prefill", 100), (2, 8, "waiting", 0), queued=3),
    step(0.5, 0.25, (0, 7, "decode", 1), (2, 8, "prefill", 40)),
    step(0.75, 0.25, (0, 7, "decode", 1)),
    step(1.0, 0.5),  # nobody holds a slot
    step(1.5, 0.5, (0, 7, "decode", 1)),  # after a pause
    step(2.0, 0.5, (0, 9, "decode", 1)),
)
TIMELINE = Timeline(steps=STEPS, slots=4, unit="s", left=5)  # type: ignore[arg-type]


def test_a_row_for_each_slot_that_is_held_and_one_for_a_step_without_any() -> None:
    table = timeline_table(TIMELINE)
    assert table.schema.metadata == {b"slots": b"4", b"unit": b"s", b"left": b"5"}
    assert table.slice(0, 2).to_pylist() == [
        {
            "step": 0,
            "start": 0.0,
            "duration": 0.5,
            "queued": 3,
            "bound": "slots",
            "slot": slot,
            "request": request,
            "state": state,
            "tokens": tokens,
            "kv_used": 0.25,
        }
        for slot, request, state, tokens in ((0, 7, "prefill", 100), (2, 8, "waiting", 0))
    ]
    assert table.column_names == [
        *("step", "start", "duration", "slot", "request", "state", "tokens"),
        *("queued", "kv_used", "bound"),
    ]
    columns = table.to_pydict()
    assert columns["step"] == [0, 0, 1, 1, 2, 3, 4, 5]
    (empty,) = (row for row in table.to_pylist() if row["step"] == 3)
    assert [empty[name] for name in ("slot", "request", "state", "tokens", "queued")] == [
        *(-1, -1, "empty", 0, 0)
    ]
    whole = Timeline(steps=(), slots=1, unit="ticks")
    assert timeline_table(whole).schema.metadata[b"left"] == b"0"


def test_a_file_of_a_timeline_comes_back_and_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "slots.parquet"
    table = timeline_table(TIMELINE)
    pq.write_table(table.take([7, 0, 1, 2, 3, 4, 5, 6]), file)  # in whatever order
    assert read_timeline(file) == TIMELINE
    for other, why in (
        (table.replace_schema_metadata(None), "'slots'"),
        (table.replace_schema_metadata({"slots": "x", "unit": "s", "left": "0"}), "invalid"),
        (pa.table({"a": [1]}), "'step'"),
    ):
        pq.write_table(other, file)
        with pytest.raises(InputError) as refused:
            read_timeline(file)
        assert f"{file} is no timeline ({why}" in str(refused.value)
        assert str(refused.value).endswith("name the .parquet file that simulate wrote")
    with pytest.raises(InputError, match="is no timeline"):
        read_timeline(tmp_path / "nowhere.parquet")


def event(slot: int, request: int, state: str, ts: float, dur: float, **args: object) -> object:
    return {
        "ph": "X",
        "pid": 1,
        "tid": slot + 1,
        "name": f"{state} {request}",
        "cat": state,
        "ts": ts,
        "dur": dur,
        "args": {"request": request, **args},
    }


def test_trace_events_join_steps_in_which_a_request_goes_on() -> None:
    trace = chrome_trace(TIMELINE)
    events = trace["traceEvents"]
    assert trace["displayTimeUnit"] == "ms"
    assert events[:3] == [
        {"ph": "M", "pid": 1, "tid": tid, "name": name, "args": {"name": label}}
        for tid, name, label in (
            (0, "process_name", "engine"),
            (1, "thread_name", "slot 1"),
            (3, "thread_name", "slot 3"),
        )
    ]
    assert events[3:9] == [
        event(0, 7, "prefill", 0.0, 5e5, tokens=100, steps=1, bound="slots"),
        event(0, 7, "decode", 5e5, 5e5, tokens=2, steps=2, bound="nothing"),
        event(0, 7, "decode", 1.5e6, 5e5, tokens=1, steps=1, bound="nothing"),
        event(0, 9, "decode", 2e6, 5e5, tokens=1, steps=1, bound="nothing"),
        event(2, 8, "waiting", 0.0, 5e5, tokens=0, steps=1, bound="slots"),
        event(2, 8, "prefill", 5e5, 2.5e5, tokens=40, steps=1, bound="nothing"),
    ]
    counters = events[9:]
    assert counters[:3] == [
        {"ph": "C", "pid": 1, "ts": 0.0, "name": name, "args": args}
        for name, args in (
            ("queue", {"requests": 3}),
            ("KV blocks", {"percent": 25.0}),
            ("tokens in the step", {"tokens": 100}),
        )
    ]
    assert [counter["ts"] for counter in counters[::3]] == [0, 5e5, 7.5e5, 1e6, 1.5e6, 2e6]
    ticks = chrome_trace(Timeline(steps=STEPS, slots=4, unit="ticks"))  # type: ignore[arg-type]
    assert ticks["traceEvents"][4]["ts"] == 500.0  # a tick is a millisecond
