"""Kernel and reference on one run, compared to the last bit."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import event

from tests.deployments import knobs_of
from tests.strategies import ROOFLINE, Run
from tonnage.perf.step import StepModel
from tonnage.results.requests import STATUS_NAMES, Requests
from tonnage.simulator.kernel import run_recorded
from tonnage.simulator.reference import run_reference
from tonnage.simulator.request import STEP_COLUMNS

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
