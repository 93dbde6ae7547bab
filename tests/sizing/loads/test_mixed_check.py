"""Systems of several kinds behind one router."""

from __future__ import annotations

import numpy as np
import pytest

from tests.questions import question
from tonnage.sizing.fleet.existing import strongest, whole_fleet
from tonnage.sizing.loads.mixed_check import MixedAtPeak
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.search.search import Search


def mixed_fleet(router: str = "least-outstanding") -> MixedAtPeak:
    asked = question(tp="1", have="1xdgx-h100,2x8xl40s", router=router)
    search = Search(question=asked, runs=Runs(asked.slo), rows=False)
    kinds = [(strongest(search, owned), owned.count) for owned in asked.have]
    fleet = whole_fleet([(sized, count) for sized, count in kinds if sized is not None], 300.0)
    assert isinstance(fleet, MixedAtPeak)
    return fleet


def test_every_request_is_served_once_by_one_of_the_kinds() -> None:
    fleet = mixed_fleet()
    record, bounds, simulated = fleet.record()
    assert bounds == (0, 8, 24)
    assert (
        len(np.unique(record.due_ns)) == len(record) == int(0.97 * simulated) - int(0.2 * simulated)
    )
    assert set(np.unique(record.instance)) == set(range(24))
    assert (record.last_token_ns > record.due_ns).all()
    (fast, of_fast), (slow, of_slow) = fleet.of_kinds()
    assert fast + slow == pytest.approx(1)
    whole = fleet.seen(3).summary.ttft_ms.mean
    parts = fast * (of_fast.ttft_ms.mean or 0) + slow * (of_slow.ttft_ms.mean or 0)
    assert whole == pytest.approx(parts, rel=1e-6)


def test_weights_give_requests_in_proportion_to_what_instances_carry() -> None:
    fleet = mixed_fleet("weighted")
    (fast, _), (slow, _) = fleet.of_kinds()
    carried = [weight * count for weight, count in zip(fleet.weights, fleet.counts, strict=True)]
    assert fast / slow == pytest.approx(carried[0] / carried[1], rel=0.02)
