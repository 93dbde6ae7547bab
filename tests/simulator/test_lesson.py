"""The course's table, the same rules written a second time, and what can never happen."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.cli.simulate import Lesson
from tonnage.errors import InputError
from tonnage.simulator.lesson import BATCHERS, LessonConfig, run_lesson

FIGURES = ("e2e", "ttft", "itl", "requests_per_1k_ticks", "tokens_per_1k_ticks")

COURSE = [
    (LessonConfig(batcher="static"), (58.16, 52.80, 1.00, 190.00, 1680.00)),
    (LessonConfig(batcher="in-flight"), (58.44, 52.90, 1.39, 267.33, 2376.24)),
    (LessonConfig(batcher="in-flight", prefill_chunks=2), (57.42, 54.51, 1.14, 310.00, 2730.00)),
    (LessonConfig(batcher="one-prefill", prefill_chunks=2), (55.94, 52.13, 1.00, 360.00, 3170.00)),
    (
        LessonConfig(batcher="one-prefill", prefill_chunks=2, concurrency=6),
        (15.14, 7.87, 1.00, 360.00, 3170.00),
    ),
    (
        LessonConfig(batcher="one-prefill", prefill_chunks=2, tick_rate=0.46),
        (17.66, 11.03, 1.00, 350.00, 3060.00),
    ),
]

LOADS: list[dict[str, Any]] = [
    {},
    {"initial_batch": 3},
    {"initial_batch": 17},
    {"concurrency": 1},
    {"concurrency": 6},
    {"tick_rate": 0.1},
    {"tick_rate": 0.46},
    {"tick_rate": 3.0},
]
ENGINES: list[dict[str, Any]] = [
    {},
    {"prefill_chunks": 2},
    {"prefill_chunks": 3, "prefill_ticks": 4},
    {"slots": 1, "prefill_ticks": 3},
    {"slots": 7, "itl_ticks": 2},
    {"osl_mean": 1, "osl_std": 0},
    {"osl_mean": 3, "osl_std": 9, "seed": 7, "until": 333},
    {"prefill_ticks": 0.5, "itl_ticks": 0.25, "until": 60.5},
    {"until": 1},
]


def mean(values: list[float]) -> float | None:
    return round(float(np.mean(values)), 2) if values else None


def told_again(c: LessonConfig) -> dict[str, float | int | None]:
    """The rules of the issue as parallel columns, a row per request, nothing shared with the code
    under test."""
    random = np.random.RandomState(c.seed)
    born: list[float] = []
    length: list[int] = []
    passes: list[int] = []  # prefill chunks and decode tokens so far
    slot_of: dict[int, int] = {}
    waiting: list[int] = []
    ttft: dict[int, float] = {}
    e2e: dict[int, float] = {}
    gaps: list[float] = []
    k = c.prefill_chunks
    t = previous = held = worked = 0.0

    def tokens(i: int) -> int:
        return max(passes[i] - k + 1, 0)

    def enough_inside() -> bool:
        if c.batcher == "one-prefill":
            return any(passes[i] < k for i in slot_of)
        return False

    while t < c.until:
        for i in slot_of:
            passes[i] += 1
        for i in sorted(slot_of):
            if tokens(i) >= 1:
                ttft.setdefault(i, t - born[i])
            if tokens(i) >= length[i]:
                e2e[i] = t - born[i]
                del slot_of[i]
        if c.concurrency:
            new = c.concurrency - len(slot_of) - len(waiting)
        else:
            new = (
                round(t // (1 / c.tick_rate) - previous // (1 / c.tick_rate))
                if c.tick_rate
                else 0
                if born
                else c.initial_batch or 100
            )
        previous = t
        for _ in range(new):
            waiting.append(len(born))
            born, passes = [*born, t], [*passes, 0]
            length.append(int(max(random.normal(c.osl_mean, c.osl_std), 1)))
        if c.batcher != "static" or not slot_of:
            for slot in sorted(set(range(c.slots)) - set(slot_of.values())):
                if waiting and not enough_inside():
                    slot_of[waiting.pop(0)] = slot
        prefills = [c.prefill_ticks / k for i in slot_of if passes[i] < k]
        decodes = [c.itl_ticks for i in slot_of if passes[i] >= k]
        duration = max(sum(prefills), *decodes, 1)
        held += duration * len(slot_of)
        worked += sum(prefills) + sum(decodes)
        gaps += [duration for i in slot_of if tokens(i) > 1]
        t += duration
    every = sum(tokens(i) for i in range(len(born)))
    return {
        "e2e": mean(list(e2e.values())),
        "ttft": mean(list(ttft.values())),
        "itl": mean(gaps),
        "requests_per_1k_ticks": round(len(e2e) / t * 1000, 2),
        "tokens_per_1k_ticks": round(every / t * 1000, 2),
        "final_queue": len(waiting),
        "busy_slots": round(held / t / c.slots, 4),
        "useful_work": round(worked / t / c.slots, 4),
    }


@pytest.mark.parametrize(("config", "expected"), COURSE)
def test_the_courses_table(config: LessonConfig, expected: tuple[float, ...]) -> None:
    got = run_lesson(config).to_json()
    assert tuple(got[figure] for figure in FIGURES) == expected


@pytest.mark.parametrize("batcher", BATCHERS)
def test_the_rules_told_again_give_the_same(batcher: str) -> None:
    for load, engine in itertools.product(LOADS, ENGINES):
        config = LessonConfig(batcher=batcher, **load, **engine)
        assert run_lesson(config).to_json() == told_again(config), config


@given(
    batcher=st.sampled_from(BATCHERS),
    slots=st.integers(1, 9),
    prefill_ticks=st.sampled_from([0, 0.5, 1, 2, 5]),
    itl_ticks=st.sampled_from([0, 1, 3]),
    chunks=st.integers(1, 5),
    load=st.sampled_from(LOADS),
    seed=st.integers(0, 2**32 - 1),
    until=st.floats(0.5, 150),
)
def test_nothing_is_lost_and_no_slot_is_shared(**drawn: Any) -> None:
    chunks, load = drawn.pop("chunks"), drawn.pop("load")
    config = LessonConfig(prefill_chunks=chunks, **load, **drawn)
    result = run_lesson(config)
    assert result.made == result.complete + result.running + result.final_queue
    assert result.ticks >= config.until
    assert result.tokens >= result.complete
    assert all(len(step.slots) == config.slots and step.duration >= 1 for step in result.steps)
    assert [step.start for step in result.steps[1:]] == [
        step.start + step.duration for step in result.steps[:-1]
    ]
    if config.batcher == "one-prefill":
        assert all(step.slots.count("P") <= 1 for step in result.steps)
    if config.batcher == "static":
        entered = [
            after
            for before, after in itertools.pairwise(result.steps)
            if before.slots.count(".") > after.slots.count(".")
        ]
        assert all("=" not in step.slots for step in entered)


def test_the_slots_drawn() -> None:
    result = run_lesson(LessonConfig(slots=2, initial_batch=3, osl_mean=4, osl_std=0, until=14))
    assert result.slots_text().splitlines() == [
        "tick    0    5    10",
        "slot 1  PPPP===PP===..",
        "slot 2  PPPP===.......",
        "queue   1    1    0",
        "",
        "P prefill   = decode, a token   - decode, held up by a step that takes longer   . empty",
    ]
    assert "… and 4 ticks more" in result.slots_text(width=1)
    step = run_lesson(LessonConfig(slots=2, initial_batch=2, osl_mean=1, osl_std=0, until=2))
    assert len(step.steps) == 1
    assert step.slots_text().splitlines()[1].startswith("slot 1  PP")


@pytest.mark.parametrize(
    ("bad", "flag"),
    [
        ({"batcher": "dynamic"}, "batcher"),
        ({"slots": 0}, "slots"),
        ({"slots": True}, "slots"),
        ({"prefill_ticks": -1}, "prefill_ticks"),
        ({"itl_ticks": math.inf}, "itl_ticks"),
        ({"prefill_chunks": 0}, "prefill_chunks"),
        ({"initial_batch": 10**9}, "initial_batch"),
        ({"concurrency": -6}, "concurrency"),
        ({"tick_rate": math.nan}, "tick_rate"),
        ({"tick_rate": 1e9}, "tick_rate"),
        ({"initial_batch": 5, "concurrency": 6}, "concurrency"),
        ({"osl_mean": "ten"}, "osl_mean"),
        ({"osl_std": -5}, "osl_std"),
        ({"seed": -1}, "seed"),
        ({"until": 0}, "until"),
        ({"until": 1e18}, "until"),
        ({"until": 1e6, "slots": 1000}, "until"),
    ],
)
def test_bad_input_is_one_line_with_its_flag(bad: dict[str, Any], flag: str) -> None:
    with pytest.raises(InputError) as raised:
        LessonConfig(**bad)
    assert flag in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_help_names_the_values_of_a_lesson_that_is_given_none() -> None:
    named = {
        one.name: re.search(r"default: ([\d.]+)[ )]", str(one.metadata)) for one in fields(Lesson)
    }
    said = {
        name: float(found[1].rstrip("."))
        for name, found in named.items()
        if found and name != "initial_batch"
    }
    assert len(said) == 7
    assert said == {name: getattr(LessonConfig(), name) for name in said}
