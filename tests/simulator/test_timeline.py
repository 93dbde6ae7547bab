"""Which request held which slot in which step: the same run as the compiled one, and files that
others open."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from tonnage.api import simulate
from tonnage.api.simulation import write_timeline
from tonnage.cli.main import run
from tonnage.results.store import write_run
from tonnage.results.timeline import (
    BLOCKS,
    DECODE,
    NOTHING,
    PREFILL,
    SLOTS,
    TOKENS,
    WAITING,
    chrome_trace,
    read_timeline,
    timeline_table,
)
from tonnage.simulator.lesson import LessonConfig, run_lesson
from tonnage.simulator.timeline import lesson_timeline, simulate_timeline

ASKED = {"model": "llama-3.1-8b", "isl": 700, "osl": 30, "concurrency": 12, "requests": 40}


@pytest.fixture(scope="module")
def pair():
    found = simulate(**ASKED, max_batch_size=8, max_num_tokens=2048)
    record, timeline = simulate_timeline(found.deployment, found.workload, seed=0)
    return found, record, timeline


def test_the_steps_are_those_of_the_run(pair):
    found, record, timeline = pair
    assert (record.last_token_ns == found.requests.last_token_ns).all()
    assert timeline.left == 0
    table = timeline_table(timeline).to_pydict()
    decoded = np.bincount(
        np.array(table["request"])[np.array(table["state"]) == DECODE], minlength=40
    )
    assert decoded.tolist() == [29] * 40
    prefilled = np.array(table["tokens"])[np.array(table["state"]) == PREFILL]
    assert prefilled.sum() == 40 * 700


def test_a_report_of_the_run_holds_its_slots(pair, tmp_path, capsys):
    """Written as data, read again, and drawn in the run's report; what is no timeline is
    refused."""
    found, _, timeline = pair
    write_run(tmp_path / "run", found.scenario(), found.requests, found.summary, {})
    write_timeline(tmp_path / "slots.parquet", timeline, "")
    assert read_timeline(tmp_path / "slots.parquet") == timeline
    page, slots = tmp_path / "page.html", str(tmp_path / "slots.parquet")
    assert run(["report", str(tmp_path / "run"), "--timeline", slots, "--output", str(page)]) == 0
    text = page.read_text()
    assert "Which slot did what" in text
    assert "Queue and KV cache" in text
    assert text.index("Time to first token") < text.index("Queue and KV cache")
    assert run(["report", str(tmp_path / "run"), "--timeline", slots, "--markdown"]) == 0
    assert "Slots" in capsys.readouterr().out
    assert run(["report", str(tmp_path / "run"), "--timeline", str(page)]) == 2
    assert "is no timeline" in capsys.readouterr().err


def test_a_slot_has_one_request_at_a_time_and_it_stays_there(pair):
    timeline = pair[2]
    where: dict[int, int] = {}
    for step in timeline.steps:
        assert len({held.slot for held in step.held}) == len(step.held) <= 8
        for held in step.held:
            assert where.setdefault(held.request, held.slot) == held.slot
    used = [step.kv_used for step in timeline.steps]
    assert 0 <= min(used) < max(used) < 0.1, "eight requests of 730 tokens in the memory of an H100"
    for sooner, later in pairwise(timeline.steps):
        assert sooner.start + sooner.duration == pytest.approx(later.start)
    assert SLOTS in {step.bound for step in timeline.steps} <= {NOTHING, SLOTS, TOKENS, BLOCKS}
    first = timeline.steps[0]
    assert [[held.state for held in first.held].count(state) for state in (PREFILL, WAITING)] == [
        3,
        5,
    ]


def check_trace(trace):
    """The trace event format:
    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (read
    2026-11)."""
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    needed = {
        "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
        "C": {"name", "ts", "pid", "args"},
        "M": {"name", "pid", "tid", "args"},
    }
    threads = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert threads == {
        event["tid"]: f"slot {event['tid']}" for event in trace["traceEvents"] if event["ph"] == "X"
    }
    for event in trace["traceEvents"]:
        assert set(event) - {"ph"} == needed[event["ph"]]
        assert isinstance(event["name"], str)
        assert all(event[key] >= 0 for key in ("ts", "dur") if key in event)
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    threads: dict[int, float] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            assert event["ts"] >= threads.get(event["tid"], 0.0) - 1e-6
            threads[event["tid"]] = event["ts"] + event["dur"]


def test_the_trace_has_the_form_that_perfetto_reads(pair):
    timeline = pair[2]
    trace = json.loads(json.dumps(chrome_trace(timeline)))
    check_trace(trace)
    done = sum(event["args"]["steps"] for event in trace["traceEvents"] if event["ph"] == "X")
    assert done == sum(len(step.held) for step in timeline.steps)
    assert sum(event["ph"] == "C" for event in trace["traceEvents"]) == 3 * len(timeline.steps)
    # seconds are microseconds in it
    assert last_of(trace) == pytest.approx(1e6 * timeline.steps[-1].start)


def last_of(trace):
    return max(event["ts"] for event in trace["traceEvents"] if event["ph"] == "C")


def test_the_lesson_has_one_too():
    result = run_lesson(LessonConfig(batcher="static"))
    timeline = lesson_timeline(result)
    check_trace(chrome_trace(timeline))
    assert last_of(chrome_trace(timeline)) == 1e3 * timeline.steps[-1].start  # ticks are ms
    assert "".join(
        "P" if held.state == PREFILL else "=" for held in timeline.steps[0].held
    ) == result.steps[0].slots.replace(".", "")
    assert len({held.request for step in timeline.steps for held in step.held}) >= result.complete


@pytest.mark.parametrize("suffix", ["parquet", "json", "html"])
def test_simulate_writes_it(tmp_path, suffix, capsys):
    target = tmp_path / f"slots.{suffix}"
    flags = [
        "--model",
        "llama-3.1-8b",
        "--isl",
        "700",
        "--osl",
        "10",
        "--concurrency",
        "4",
        "--requests",
        "8",
    ]
    assert run(["simulate", *flags, "--timeline", str(target)]) == 0
    if suffix == "parquet":
        assert pq.read_table(target).num_rows > 20
    elif suffix == "json":
        check_trace(json.loads(target.read_text()))
    else:
        assert "slot 1" in target.read_text(encoding="utf-8")
    assert run(["simulate", "--ticks", "--timeline", str(target)]) == 0
    assert run(["simulate", "--ticks", "--timeline", str(tmp_path / "slots.png")]) == 2
    assert "--timeline" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == [target.name]
