"""The prefix cache, compiled, is the reference's."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.simulator.kernel.compared import both
from tests.simulator.reference.shared_prompts import conserved
from tests.strategies import SCHEDULERS, Run, examples, shared_runs


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(examples(0.4), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_on_some_runs_where_prompts_share(scheduler, data):
    compare(data.draw(shared_runs((scheduler,))))


@pytest.mark.accuracy
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_where_prompts_share(scheduler, data):
    compare(data.draw(shared_runs((scheduler,))))


def compare(r: Run) -> None:
    options = {
        "windows": r.windows,
        "window_ps": r.window_ps,
        "max_context": r.max_context,
        "tiers": r.tiers,
    }
    requests, _, expected = both(r.trace, r.step, r.knobs, r.kv_blocks, **options)
    event(f"found: {bool(requests.cached_tokens.any())}")
    event(f"pre-empted: {bool(requests.preemptions.any())}")
    event(f"sessions: {r.trace.pause_ps is not None}")
    if expected.cache is not None and r.window_ps < 0:
        conserved(expected.cache, expected.free_blocks, r.kv_blocks)
