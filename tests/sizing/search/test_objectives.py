"""What deployments compete for: the rate to beat."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.plan.candidates import candidate
from tests.questions import best, contender, question
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.reason import Behind
from tonnage.sizing.search.objectives import FewestGpus, MostLoad
from tonnage.sizing.search.search import _used


def test_the_rate_to_beat_is_that_of_fewer_whole_systems_or_fewer_exactly() -> None:
    chosen = best(question(tp="1", peak_rps=1500))
    one, aim = contender(tp="2", peak_rps=1500), FewestGpus()
    needed = aim.rate_to_beat(one, chosen)
    fewer = aim.rate_to_save(one, chosen)
    assert fewer == pytest.approx(1500 / (4 * (chosen.systems - 1)))
    assert needed == pytest.approx(min(fewer, max(1500 / (4 * chosen.systems), 2 * chosen.rate)))
    assert aim.rate_to_save(one, replace(chosen, systems=1)) == float("inf")
    assert MostLoad(3).rate_to_beat(one, replace(chosen, systems=3)) == pytest.approx(
        24 * chosen.capacity.rate / 12
    )


def test_how_much_a_limit_breaks_counts_at_a_load_that_is_needed() -> None:
    """A deployment whose limit breaks only above what it has to carry is as near as one that meets
    it."""
    breach = Breach(limit=Limit(metric="ttft", statistic="p95", milliseconds=300.0), value_ms=600.0)
    behind = Behind(
        breach=breach, requests_per_second=10.0, per_gpu=1.0, other=candidate().identity
    )
    assert [_used(behind, needed) for needed in (5.0, 10.0, 20.0)] == [1.0, 2.0, 2.0]
    assert _used(None, 10.0) == math.inf
