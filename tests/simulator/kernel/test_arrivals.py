"""How requests come to a compiled engine: clients outside are clients inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.driven_engines import EASY, ENGINES, engine_of, requests_of
from tests.simulator.kernel.compared import assert_same
from tests.strategies import SCHEDULERS, runs
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator.kernel import run
from tonnage.simulator.request import Request


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@EASY
@given(data=st.data())
def test_clients_outside_are_clients_inside(kind, scheduler, data):
    """A closed loop that is driven from outside is that of a run, as long as nobody is rejected."""
    r = replace(data.draw(runs((scheduler,))), window_ps=-1)
    r = replace(
        r,
        trace=replace(
            r.trace, due_ps=np.full(len(r.trace), -1), concurrency=max(r.trace.concurrency, 3)
        ),
    )
    whole = run(r.trace, r.step, r.knobs, r.kv_blocks, windows=r.windows, max_context=r.max_context)
    if (whole.status == REJECTED).any():
        return
    engine, free = engine_of(kind, r), 0
    coming = [
        (request.isl, request.osl)
        for request in requests_of(replace(r.trace, due_ps=np.zeros(len(r.trace), np.int64)))
    ]

    def answer(at: int) -> None:
        nonlocal free
        if coming:
            free = max(at, free) + r.trace.turnaround_ps
            isl, osl = coming.pop(0)
            engine.submit(Request(id=len(r.trace) - len(coming) - 1, isl=isl, osl=osl, at=free))

    for _ in range(r.trace.concurrency):
        answer(0)
    while (event := engine.next_event()) is not None:
        happened = engine.advance(event)
        for at in happened.at[happened.status == COMPLETED].tolist():
            answer(at)
    assert_same(engine.requests(), whole)
