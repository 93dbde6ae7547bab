"""Prefix caches: the kernel is the reference, what is found is what an oracle finds, and no block is lost."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.simulator.test_kernel import both
from tests.strategies import SCHEDULERS, Run, shared_runs


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_where_prompts_share(scheduler, data):
    compare(data.draw(shared_runs((scheduler,))))


@pytest.mark.accuracy
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_on_a_thousand_runs_that_share(scheduler, data):
    compare(data.draw(shared_runs((scheduler,))))


def compare(r: Run) -> None:
    options = {"windows": r.windows, "window_ps": r.window_ps, "max_context": r.max_context, "tiers": r.tiers}
    requests, _, expected = both(r.trace, r.step, r.knobs, r.kv_blocks, **options)
    event(f"found: {bool(requests.cached_tokens.any())}")
    event(f"pre-empted: {bool(requests.preemptions.any())}")
    event(f"sessions: {r.trace.pause_ps is not None}")
    assert (requests.cached_tokens < requests.isl).all()
    if expected.cache is not None and r.window_ps < 0:
        conserved(expected.cache, expected.free_blocks, r.kv_blocks)


def conserved(cache, free: int, blocks: int) -> None:
    """Nobody holds a block any more, each is there once, and names and blocks are of one mind."""
    assert set(cache.refs) <= {0}
    assert sorted(cache.idle) == list(range(blocks))
    assert free == blocks
    assert {name: block for block, name in cache.named.items()} == cache.names
    for tier, names in zip(cache.tiers, cache.below, strict=True):
        assert len(names) <= tier.blocks
        assert not names.keys() & cache.names.keys()
