"""What predictions decide along a measured curve, and what a plan counts on at its usual confidence."""

from __future__ import annotations

import pytest

from tonnage.perf.residuals import Regime
from tools.fit.decisions import decided, decisions, surely

CURVE = [("curve", clients, 2.0 * clients, 1.6 * clients) for clients in (4.0, 8.0, 16.0, 32.0)]
"""A token takes 2 ms a client, and is predicted to take four fifths of that."""


def test_a_decision_is_the_predicted_load_inside_a_limit_over_the_measured_one() -> None:
    assert decisions(CURVE) == pytest.approx([1.25] * 6)
    assert decisions(CURVE[:2]) == []
    found = decided(CURVE, [1.25] * len(CURVE))
    assert (found["decisions"], found["median"], found["near"], found["too much"]) == (6, 1.25, 0.0, 100.0)
    assert (found["sure median"], found["sure too much"]) == (1.0, 0.0)
    assert decided(CURVE[:2], [1.0, 1.0]) == {"decisions": 0}
    assert decided(CURVE, [1.0] * len(CURVE), ["kind"] * len(CURVE))["near at level"] == 100.0
    known = Regime(load="light", mix="output", family="moe", current=True)
    unseen = Regime(load="light", mix="output", family="moe", current=True, known_model=False)
    assert 1.0 < surely(known) < surely(unseen)
