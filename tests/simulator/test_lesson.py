"""The course's table, the same rules written a second time, and what can never happen."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.cli.simulate import Lesson
from tonnage.errors import InputError
from tonnage.simulator import lesson as module
from tonnage.simulator.lesson import (
    BATCHERS,
    LessonConfig,
    LessonStep,
    run_lesson,
    watch_lesson,
)

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


def test_the_values_of_a_lesson_that_is_given_none() -> None:
    assert asdict(LessonConfig()) == {
        "batcher": "in-flight",
        "slots": 4,
        "prefill_ticks": 2,
        "itl_ticks": 1,
        "prefill_chunks": 1,
        "initial_batch": None,
        "concurrency": None,
        "tick_rate": None,
        "osl_mean": 10,
        "osl_std": 5,
        "seed": 42,
        "until": 100,
    }
    assert BATCHERS == ("static", "in-flight", "one-prefill")
    assert run_lesson(LessonConfig()).made == 100


@pytest.mark.parametrize(
    ("name", "fits", "others"),
    [
        ("slots", (1, 100_000), {"until": 50}),
        ("prefill_ticks", (0, 1e6), {}),
        ("itl_ticks", (0, 1e6), {}),
        ("prefill_chunks", (1, 1_000_000), {}),
        ("osl_mean", (1e-9, 1e9), {}),
        ("osl_std", (0, 1e9), {}),
        ("seed", (0, 2**32 - 1), {}),
        ("until", (1e-9, 1e6), {"slots": 1}),
        ("initial_batch", (1, 1_000_000), {}),
        ("concurrency", (1, 1_000_000), {}),
        ("tick_rate", (1e-9, 10_000), {}),  # a million in 100 ticks
    ],
)
def test_the_least_and_the_largest_of_each_value(name, fits, others) -> None:
    for value in fits:
        assert getattr(LessonConfig(**{name: value}, **others), name) == value
    least, largest = fits
    below = 0 if least == 1e-9 else least - 1
    for wrong in (below, math.nextafter(largest, math.inf) if largest > 2**31 else largest + 1):
        with pytest.raises(InputError, match=name):
            LessonConfig(**{name: wrong}, **others)


def test_a_run_of_five_million_slots_times_ticks_is_the_longest() -> None:
    LessonConfig(slots=1000, until=5000)
    with pytest.raises(InputError, match=r"5000\.5 ticks of 1000 slots .* may be 5,000,000"):
        LessonConfig(slots=1000, until=5000.5)
    for pair in itertools.combinations(("initial_batch", "concurrency", "tick_rate"), 2):
        with pytest.raises(InputError, match=f"{pair[0]} and {pair[1]} are different loads"):
            LessonConfig(**dict.fromkeys(pair, 1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"slots": 0}, "slots: 0 cannot be used; give a whole number from 1 up to 100,000"),
        ({"slots": 2.0}, "slots: 2.0 cannot be used"),
        ({"osl_mean": 0}, "osl_mean: 0 cannot be used; give a number above 0 up to 1,000,000,000"),
        ({"osl_std": True}, "osl_std: True cannot be used; give a number from 0 up to"),
        ({"osl_std": -1}, "osl_std: -1 cannot be used; give a number from 0 up to"),
        ({"batcher": "x"}, "batcher: 'x' is not one of static, in-flight, one-prefill"),
    ],
)
def test_what_to_type_instead(bad, message) -> None:
    with pytest.raises(InputError) as raised:
        LessonConfig(**bad)
    assert str(raised.value).startswith(message)


def test_every_figure_of_a_lesson_by_hand() -> None:
    """Two slots and three requests of four tokens, made at 0. Two prefills of 2 ticks take 4; three
    decodes to 7, where both end; the third is prefilled from 7 to 9 and ends at 12."""
    config = LessonConfig(slots=2, initial_batch=3, osl_mean=4, osl_std=0, until=14)
    result = run_lesson(config)
    assert (result.e2e, result.ttft) == ((7 + 7 + 12) / 3, (4 + 4 + 9) / 3)
    # steps of those with more than one token: 5 to 7 for two, 10 to 12 for one
    assert result.itl == 1.0
    assert (result.made, result.complete, result.running, result.final_queue) == (3, 3, 0, 0)
    assert (result.tokens, result.ticks) == (12, 14.0)
    assert result.requests_per_1k_ticks == 1000 * 3 / 14
    assert result.tokens_per_1k_ticks == 1000 * 12 / 14
    # two slots for 7 ticks and one for 5; each prefill works 2 of the 4 ticks
    assert result.busy_slots == (2 * 7 + 5) / 28
    assert result.useful_work == (2 * 2 + 2 * 3 + 2 + 3) / 28
    assert len(result.steps) == 10
    assert result.to_json() == {
        "e2e": 8.67, "ttft": 5.67, "itl": 1.0, "requests_per_1k_ticks": 214.29,
        "tokens_per_1k_ticks": 857.14, "final_queue": 0, "busy_slots": 0.6786,
        "useful_work": 0.5357,
    }  # fmt: skip
    watched = list(watch_lesson(config))
    assert [step for step, _ in watched] == list(result.steps)
    assert replace(watched[-1][1], steps=result.steps) == result
    before = watched[0][1]
    assert math.isnan(before.e2e)
    assert math.isnan(before.ttft)
    assert (before.ticks, before.running, before.final_queue, before.tokens) == (4.0, 2, 1, 0)
    none = before.to_json()
    assert (none["e2e"], none["ttft"], none["itl"], none["final_queue"]) == (None, None, None, 1)


def test_only_the_first_steps_are_kept_for_drawing(monkeypatch) -> None:
    config = LessonConfig(slots=1, initial_batch=1, osl_mean=500, osl_std=0, until=60)
    whole = run_lesson(config)
    monkeypatch.setattr(module, "_DRAWN_STEPS", 5)
    few = run_lesson(config)
    assert few == replace(whole, steps=whole.steps[:5])
    assert few.slots_text().splitlines()[-3] == "… and 54 ticks more"


@pytest.mark.parametrize(
    ("slots", "queued", "lines"),
    [
        (
            "P=.",
            7,
            ["tick    0    5    10", "slot 1  PPPPPPPPPPPP", "slot 2  =-----------",
             "slot 3  ............", "queue   7    7    7"],
        ),
        (
            "=",
            999,
            ["tick    0    5    10", "slot 1  =-----------", "queue   999  999  999"],
        ),
        # a queue of four digits has ten columns for each
        ("=", 1000, ["tick    0         10", "slot 1  =-----------", "queue   1000      1000"]),
    ],
)  # fmt: skip
def test_a_step_of_twelve_ticks_drawn(slots, queued, lines) -> None:
    step = LessonStep(start=0, duration=12, slots=slots, queued=queued)
    result = replace(run_lesson(LessonConfig(until=1)), steps=(step,), ticks=12)
    legend = (
        "P prefill   = decode, a token   - decode, held up by a step that takes longer   . empty"
    )
    assert result.slots_text().splitlines() == [*lines, "", legend]


def test_a_drawing_has_ten_bands_and_thirty_two_slots() -> None:
    step = LessonStep(start=0, duration=95, slots="=" * 33, queued=0)
    result = replace(run_lesson(LessonConfig(until=1)), steps=(step,), ticks=95)
    lines = result.slots_text(9).splitlines()
    assert lines.count("") == 11
    assert "… and 5 ticks more" in lines
    assert lines[:2] == ["tick     0    5", "slot 1   =--------"]
    assert lines[32:35] == ["slot 32  =--------", "… and 1 slots more", "queue    0    0"]
    exact = replace(result, steps=(replace(step, slots="=" * 32, duration=90),), ticks=90)
    assert "more" not in exact.slots_text(9)
    assert exact.slots_text(9).splitlines()[35] == "tick     9    14"


def test_the_ruler_of_ten_thousand_ticks_has_room_for_five_digits() -> None:
    step = LessonStep(start=0, duration=1, slots="=", queued=0)
    for first, ruler in ((9987, "tick    9987 9992 9997"), (9988, "tick    9988      9998")):
        band = list(module._band([step] * 12, first, 6))
        assert band[0] == ruler


def test_arrivals_at_a_rate_are_even() -> None:
    """0.5 a tick: one at 2, 4, 6 … where steps of one tick begin, none at 0."""
    config = LessonConfig(slots=9, tick_rate=0.5, osl_mean=1, osl_std=0, prefill_ticks=1, until=11)
    made = [result.made for _, result in watch_lesson(config)]
    assert made == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
