"""Kernel and reference on one run, compared to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.strategies import ROOFLINE, Run, ranked_runs, runs, shared_runs
from tonnage.perf.step import StepModel
from tonnage.results.requests import STATUS_NAMES, Requests
from tonnage.simulator import reference
from tonnage.simulator.kernel import run_recorded
from tonnage.simulator.reference import run_reference
from tonnage.simulator.request import STEP_COLUMNS
from tonnage.spec.deployment import Scheduler
from tonnage.spec.workload import Trace

ENGINE = knobs_of(64, 512)
MODEL = StepModel(coefficients=ROOFLINE, frontend_s=0.002)


def assert_same(one: Requests, other: Requests) -> None:
    for field in fields(Requests):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "window_ns" or a is None:
            assert a == b
        else:
            assert a.dtype == b.dtype, field.name
            np.testing.assert_array_equal(a, b, err_msg=field.name)


def both(trace, step, engine, blocks, **options):
    """Run kernel, step by step and with leaps, and reference, compare everything, give back what
    they agree on."""
    expected = run_reference(trace, step, engine, blocks, **options)
    for leaps in (False, True):
        requests, record = run_recorded(
            trace, step, engine, blocks, most_steps=100_000, leaps=leaps, **options
        )
        assert_same(requests, expected.requests)
        assert record.count == len(record.steps) == len(expected.steps)
        np.testing.assert_array_equal(
            record.steps, np.array(expected.steps, dtype=np.int64).reshape(-1, STEP_COLUMNS)
        )
        np.testing.assert_array_equal(record.first_step, [job.first_step for job in expected.jobs])
        np.testing.assert_array_equal(record.last_step, [job.last_step for job in expected.jobs])
    return requests, record, expected


SHAPES = {"alone": runs, "sharing": shared_runs, "classes": ranked_runs}


@st.composite
def instances(draw: st.DrawFn, kind: str, scheduler: Scheduler) -> tuple[Run, list[Trace], int]:
    """A run, the traces of the ranks that have requests, and the number of ranks; one is an engine."""
    run = draw(SHAPES[kind]((scheduler,)))
    others = [draw(SHAPES[kind]((scheduler,))).trace for _ in range(draw(st.integers(0, 2)))]
    knobs = replace(
        run.knobs,
        rank_wait_steps=draw(st.sampled_from([0, 0, 1, 2, 5, 30])),
        pads_ranks=draw(st.booleans()),
        graph_tokens=draw(st.sampled_from([0, 8, 40])),
    )
    ranks = 1 + len(others) + draw(st.integers(0, 1))
    return replace(run, knobs=knobs), [run.trace, *others], ranks


def same_ranks(
    run_ranks: Callable[..., Any], run: Run, traces: list[Trace], ranks: int, *, leaps: bool
) -> None:
    """The ranks of an instance by a kernel and by the reference: records, and the steps of all."""
    options = {
        "windows": run.windows,
        "window_ps": run.window_ps,
        "max_context": run.max_context,
        "tiers": run.tiers,
    }
    arguments = (traces, ranks, run.step, run.knobs, run.kv_blocks)
    expected = reference.run_ranks(*arguments, **options)
    records, steps = run_ranks(*arguments, most_steps=100_000, leaps=leaps, **options)
    for record, rank in zip(records, expected, strict=True):
        assert_same(record, rank.requests)
    np.testing.assert_array_equal(
        steps.steps, np.array(expected[0].steps, dtype=np.int64).reshape(-1, STEP_COLUMNS)
    )
    assert steps.count == len(steps.steps)
    assert steps.first_step.tolist() == [job.first_step for rank in expected for job in rank.jobs]
    assert steps.last_step.tolist() == [job.last_step for rank in expected for job in rank.jobs]


CLASSES_COMPILED = pytest.mark.accuracy
"""The loop of classes and deadlines is compiled for a quarter of a minute, for these tests alone;
``./check --accuracy`` has the time."""


def compare(r: Run) -> None:
    requests, _, _ = both(
        r.trace,
        r.step,
        r.knobs,
        r.kv_blocks,
        windows=r.windows,
        window_ps=r.window_ps,
        max_context=r.max_context,
    )
    for status in np.unique(requests.status):
        event(STATUS_NAMES[status])
    if requests.preemptions.any():
        event("pre-empted")
    event(f"order: {r.knobs.queue_order}, shed: {r.knobs.shed}")
    event(f"guesses: {r.step.drafting is not None}")
    event(f"windows: {r.windows.blocks > 0}")
