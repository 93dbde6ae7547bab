"""The loop of one engine: leaps over steps are every one of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.in_turn import in_turn
from tests.simulator.kernel.compared import ENGINE, MODEL, both
from tests.strategies import MS, SCHEDULERS, coefficient_array
from tonnage.perf.step import StepModel
from tonnage.simulator.kernel.loop import steps_within
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Workload

CHANGES = [
    {},
    {"overlap_schedule": True},
    {"receive_interval": 7},
    {"overlap_schedule": True, "receive_interval": 30},
]


@pytest.mark.parametrize(
    ("scheduler", "change", "stream"), in_turn(SCHEDULERS, CHANGES, [0.0, 0.0003, 0.0041], one_of=6)
)
def test_a_leap_over_thousands_of_steps_is_every_one_of_them(scheduler, change, stream):
    """Outputs of hundreds of tokens at a few requests in flight, where nearly every step is one of
    a leap."""
    lengths = {
        "isl": Lengths(kind="lognormal", mean=200, std=150),
        "osl": Lengths(kind="lognormal", mean=400, std=500),
    }
    trace = Workload(**lengths, arrivals=OpenLoop(rate=2.0), requests=20).trace(5)
    engine, step = replace(ENGINE, scheduler=scheduler, **change), replace(MODEL, stream_s=stream)
    for blocks in (120, 10_000):
        both(trace, step, engine, blocks)
        both(trace, step, engine, blocks, window_ps=12_345 * MS)


@pytest.mark.parametrize("longer", [0, 1, 7, 10**7])
def test_how_many_steps_have_ended_by_an_instant_is_counted(longer):
    first = 10**6
    ends = np.cumsum(first + longer * np.arange(60))
    for instant in {int(at) + beside for at in ends for beside in (-1, 0, 1)} | {-5, 0, 1}:
        for most in (1, 2, 30, 60):
            assert steps_within.py_func(first, longer, instant, most) == min(
                int((ends <= instant).sum()), most
            )


def test_a_leap_that_no_whole_number_holds_is_taken_in_steps() -> None:
    step = StepModel(coefficients=coefficient_array(host_step=100_000.0), frontend_s=0.0)
    trace = Workload(
        isl=Lengths(mean=5), osl=Lengths(mean=40), arrivals=ClosedLoop(concurrency=2), requests=2
    ).trace(0)
    both(trace, step, ENGINE, 100)
