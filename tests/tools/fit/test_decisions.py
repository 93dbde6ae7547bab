"""What predictions decide along a measured curve, and what a plan counts on at its usual
confidence."""

from __future__ import annotations

import pytest

from tonnage.perf.residuals import Regime
from tools.fit.decisions import decided, decisions, surely

CURVE = [("curve", clients, 2.0 * clients, 1.6 * clients) for clients in (4.0, 8.0, 16.0, 32.0)]
"""A token takes 2 ms a client, and is predicted to take four fifths of that."""


def test_a_decision_is_the_predicted_load_inside_a_limit_over_the_measured_one() -> None:
    made = decisions(CURVE)
    assert [decision.ratio for decision in made] == pytest.approx([1.25] * 6)
    # 10, 15, 20, 30, 40 and 60 ms are met by 5, 7.5, 10, 15, 20 and 30 clients; 6.25, 9.4, 12.5,
    # 18.75, 25 and 37.5 are promised
    assert [decision.same for decision in made] == [True, False, True, False, True, False]
    assert [decision.broken for decision in made] == [False, True, False, True, False, True]
    assert decisions(CURVE[:2]) == []
    found = decided(CURVE, [1.25] * len(CURVE))
    assert (found["decisions"], found["median"], found["near"], found["too much"]) == (
        6,
        1.25,
        0.0,
        100.0,
    )
    assert (found["sure median"], found["sure too much"]) == (1.0, 0.0)
    assert (found["same"], found["broken"], found["sure broken"]) == (50.0, 50.0, 0.0)
    assert decided(CURVE[:2], [1.0, 1.0]) == {"decisions": 0}
    assert decided(CURVE, [1.0] * len(CURVE), ["kind"] * len(CURVE))["near at level"] == 100.0
    known = Regime(load="light", mix="output", family="moe", current=True)
    unseen = Regime(load="light", mix="output", family="moe", current=True, known_model=False)
    assert 1.0 < surely(known) < surely(unseen)
