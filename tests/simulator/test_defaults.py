"""What the functions and classes of the simulator take where nothing is given."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

from tonnage.results.requests import UNFINISHED
from tonnage.simulator import (
    autoscaler,
    changes,
    disaggregated,
    engine,
    first_token,
    fleet,
    lesson,
    member,
    pools,
    reference,
    request,
    router,
    services,
    shared_fleet,
    simulate,
    simulated_run,
    spec,
    tiers,
    timeline,
)
from tonnage.simulator.reference import batcher, job, prefix_cache
from tonnage.simulator.reference import engine as plain_engine
from tonnage.simulator.services import queue

MODULES = (
    autoscaler, batcher, changes, disaggregated, engine, first_token, fleet, job, lesson, member,
    plain_engine, pools, prefix_cache, queue, reference, request, router, services, shared_fleet,
    simulate, simulated_run, spec, tiers, timeline,
)  # fmt: skip

NOTHING = 1 << 62

NUMBERS: dict[str, float] = {
    "seed": 0,
    "priority": 0,
    "instances": 1,
    "ranks": 1,
    "share": 1.0,
    "seasons": 1,
    # no limit, no window, no deadline
    "max_context": 0,
    "window_ps": -1,
    "ttft_ps": -1,
    "deadline": NOTHING,
    "status": UNFINISHED,
    # of two pools and of memory below the cache
    "latency_s": 0.0,
    "latency_ps": 0,
    "window_bytes_per_token": 0,
    "window_tokens": 0,
    "state_bytes": 0,
    "block_tokens": 16,
    # of a controller and of failures
    "hold_s": 300.0,
    "interval_s": 15.0,
    "warm": 0,
    "first": 0,
    "crews": 0,
    # what a run has counted before it begins, and moments that have not come
    **dict.fromkeys(
        ("link_free", "waited", "left", "total", "count", "tokens", "computed", "generated",
         "blocks", "preemptions", "cached", "named", "work", "prefill_tokens", "prefill_sequences",
         "decode_sequences", "pairs_2", "context_tokens", "transfer_ps", "overlap_ps", "kept",
         "idle"), 0
    ),
    **dict.fromkeys(
        ("ended", "wake", "admitted", "first_token", "last_token", "first_step", "last_step"), -1
    ),
    "times": 1,
    "width": 100,
}  # fmt: skip
"""One number for each name, wherever it is a parameter; those of the lesson are in its own test."""


def functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions and methods of a module, those that dataclasses are made by among them."""
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        members = vars(thing).items() if inspect.isclass(thing) else ((name, thing),)
        for inner, function in members:
            if inspect.isfunction(function) and function.__name__ != "__new__":
                yield f"{name}.{inner}", function


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_what_is_left_out_is_nothing_off_or_the_number_of_its_name(module: ModuleType) -> None:
    """Flags are off, what may be missing is None or empty, and a number is that of its name. All
    that a function takes can be given by name."""
    checked = 0
    for name, function in functions(module):
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name == "self":
                continue
            checked += 1
            where = f"{name}({parameter.name})"
            assert parameter.kind is not inspect.Parameter.POSITIONAL_ONLY, where
            default: Any = parameter.default
            if default is inspect.Parameter.empty or name.startswith("LessonConfig."):
                continue
            if isinstance(default, int | float) and not isinstance(default, bool):
                assert default == NUMBERS[parameter.name], where
            elif isinstance(default, bool):
                assert default is False, where
    assert checked
