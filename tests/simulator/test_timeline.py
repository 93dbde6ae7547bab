"""Which request held which slot in which step: the same run as the compiled one, and files that
others open."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.simulator.reference.examples import TICK, VLLM, open_trace
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
    Held,
    TimelineStep,
    chrome_trace,
    read_timeline,
    timeline_table,
)
from tonnage.simulator import timeline as module
from tonnage.simulator.lesson import LessonConfig, LessonStep, run_lesson
from tonnage.simulator.reference import Clients
from tonnage.simulator.timeline import _Recorded, lesson_timeline, simulate_timeline
from tonnage.spec.deployment import EngineKnobs

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


def recorded(knobs: EngineKnobs, blocks: int, *requests: tuple[float, int, int]) -> list:
    """The steps of an engine whose steps take a millisecond, each as what the slots held, the queue
    and what kept more from being in it."""
    engine = _Recorded(TICK, knobs, blocks)
    Clients(open_trace(*requests), engine.submit)
    engine.advance()
    assert [step.duration for step in engine.kept] == [pytest.approx(0.001)] * len(engine.kept)
    return engine.kept


def held_of(step: TimelineStep) -> list[tuple[int, int, str, int]]:
    return [(held.slot, held.request, held.state, held.tokens) for held in step.held]


def test_the_steps_of_two_slots_by_hand() -> None:
    """Four requests for two slots of a budget of 12 tokens: the second prompt is cut, the third
    enters the slot of the first when it has ended, and the last comes to an idle engine."""
    knobs = replace(VLLM, max_batch_size=2, max_num_tokens=12, tokens_per_block=1)
    steps = recorded(knobs, 40, (0, 8, 2), (0, 8, 3), (0.5, 4, 1), (9, 5, 1))
    assert [step.start for step in steps] == pytest.approx([0, 0.001, 0.002, 0.003, 0.009])
    assert [held_of(step) for step in steps] == [
        [(0, 0, PREFILL, 8), (1, 1, PREFILL, 4)],
        [(0, 0, DECODE, 1), (1, 1, PREFILL, 4)],
        [(0, 2, PREFILL, 4), (1, 1, DECODE, 1)],
        [(1, 1, DECODE, 1)],
        [(0, 3, PREFILL, 5)],
    ]
    assert [step.queued for step in steps] == [0, 1, 0, 0, 0]
    assert [step.bound for step in steps] == [TOKENS, SLOTS, NOTHING, NOTHING, NOTHING]
    assert [step.kv_used * 40 for step in steps] == pytest.approx([12, 17, 13, 10, 5])


@pytest.mark.parametrize(
    ("knobs", "blocks", "bound", "states"),
    [
        # a prompt of 8 waits for blocks: 10 are held of 16
        ({}, 16, BLOCKS, [PREFILL]),
        # for tokens: the first one has all 10
        ({"max_num_tokens": 10}, 40, TOKENS, [PREFILL]),
        # TensorRT-LLM sets the answer aside too: 10 and 6, then 8 and 6
        ({"scheduler": "tensorrt-llm"}, 29, BLOCKS, [PREFILL]),
        ({"scheduler": "tensorrt-llm"}, 30, NOTHING, [PREFILL, PREFILL]),
        (
            {"scheduler": "tensorrt-llm", "max_num_tokens": 17, "chunked_prefill": False},
            30,
            TOKENS,
            [PREFILL, WAITING],
        ),
        ({"scheduler": "one-prefill"}, 30, TOKENS, [PREFILL]),
        ({"scheduler": "static"}, 29, BLOCKS, [PREFILL]),
    ],
)
def test_what_kept_the_second_request_out_of_the_first_step(knobs, blocks, bound, states) -> None:
    """Prompts of 10 and 8 tokens with 6 of each answer, blocks of one token."""
    one = replace(VLLM, tokens_per_block=1)
    first = recorded(replace(one, **knobs), blocks, (0, 10, 6), (0, 8, 6))[0]
    assert ([held.state for held in first.held], first.bound) == (states, bound)
    assert first.queued == 2 - len(states)


def test_a_static_batch_keeps_its_slots_until_it_ends() -> None:
    """The second of two requests for eight slots comes while the first runs; tokens play no part."""
    knobs = replace(VLLM, tokens_per_block=1, scheduler="static")
    steps = recorded(knobs, 100, (0, 10, 3), (0.5, 8, 1))
    assert [step.queued for step in steps] == [0, 1, 1, 0]
    assert [step.bound for step in steps] == [NOTHING, SLOTS, SLOTS, NOTHING]


def test_only_the_first_steps_are_kept_and_the_others_are_counted(monkeypatch) -> None:
    """One request after another: a prompt and nine decodes each, in seconds of the model."""
    asked = {"model": "llama-3.1-8b", "isl": 100, "osl": 10, "concurrency": 1, "requests": 3}
    found = simulate(**asked)
    _, whole = simulate_timeline(found.deployment, found.workload, seed=0)
    assert (len(whole.steps), whole.left, whole.unit) == (30, 0, "s")
    assert whole.slots == found.deployment.knobs.max_batch_size
    assert whole.steps[-1].start + whole.steps[-1].duration == pytest.approx(
        found.requests.last_token_ns[-1] / 1e9, rel=0.01
    )
    monkeypatch.setattr(module, "MOST_STEPS", 7)
    record, cut = simulate_timeline(found.deployment, found.workload, seed=0)
    assert (cut.steps, cut.left) == (whole.steps[:7], 23)
    assert (record.last_token_ns == found.requests.last_token_ns).all()


def test_of_several_ranks_the_first_one_is_shown() -> None:
    """Five requests on two ranks: the first one has three of them."""
    asked = {"isl": 100, "osl": 2, "request_rate": 1, "requests": 5, "tp": 1, "dp": 2}
    found = simulate(model="qwen3-30b-a3b", **asked)
    record, timeline = simulate_timeline(found.deployment, found.workload, seed=0)
    trace = found.workload.trace(0)
    assert record.due_ns.tolist() == (trace.due_ps[::2] // 1000).tolist()
    assert len(timeline.steps) == 6


def test_the_lesson_by_hand() -> None:
    """Three requests of four tokens in two slots: the third enters the first slot as soon as it is
    free, and its stay has the next number."""
    result = run_lesson(LessonConfig(slots=2, initial_batch=3, osl_mean=4, osl_std=0, until=14))
    timeline = lesson_timeline(result)
    drawn = [
        ("PP", 0, 4, 1), ("==", 4, 1, 1), ("==", 5, 1, 1), ("==", 6, 1, 1),
        ("P.", 7, 2, 0), ("=.", 9, 1, 0), ("=.", 10, 1, 0), ("=.", 11, 1, 0),
        ("..", 12, 1, 0), ("..", 13, 1, 0),
    ]  # fmt: skip
    stays = {(0, True): 1, (1, True): 2, (0, False): 3}
    assert timeline.steps == tuple(
        TimelineStep(
            start=start,
            duration=duration,
            held=tuple(
                Held(
                    slot=slot,
                    request=stays[slot, start < 7],
                    state=PREFILL if state == "P" else DECODE,
                    tokens=0 if state == "P" else 1,
                )
                for slot, state in enumerate(slots)
                if state != "."
            ),
            queued=queued,
            kv_used=0.0,
            bound=SLOTS if queued else NOTHING,
        )
        for slots, start, duration, queued in drawn
    )
    assert (timeline.slots, timeline.unit, timeline.left) == (2, "ticks", 0)
    assert lesson_timeline(replace(result, ticks=result.ticks + 1)).left == 1
    nothing = lesson_timeline(replace(result, steps=()))
    assert (nothing.steps, nothing.slots, nothing.left) == ((), 0, 1)


def test_a_request_that_follows_another_in_its_slot_is_told_from_it() -> None:
    """A decode that becomes a prompt is another request; a prompt that goes on as decodes is one."""
    steps = [
        LessonStep(start=tick, duration=1, slots=slots, queued=0)
        for tick, slots in enumerate(("P.", "P=", "=P", "P=", ".P"))
    ]
    result = replace(run_lesson(LessonConfig(until=1)), steps=tuple(steps), ticks=5)
    timeline = lesson_timeline(result)
    stays = [[(held.slot, held.request) for held in step.held] for step in timeline.steps]
    assert stays == [
        [(0, 1)],
        [(0, 1), (1, 2)],
        [(0, 1), (1, 3)],
        [(0, 4), (1, 3)],
        [(1, 5)],
    ]
    assert timeline.left == 0
