"""What is asked of a controller's rule is understood, and what cannot be is one clear line."""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.api.question.changes import Scaling, scaling_of
from tonnage.errors import InputError, InputErrors
from tonnage.spec.scenario import ScalingAsked

ASKED = {"model": "llama-3.1-8b", "isl": 1000, "osl": 200}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"peak_rps": 20, "autoscale": True}, "needs the load by the hour; give"),
        ({"requests": 1e6, "within": "8h", "autoscale": True}, "a job has no hours"),
        ({"profile": [1.0] * 24, "autoscale": True, "load": "closed"}, "a closed loop has no hours"),
        ({"profile": [1.0] * 24, "broken_hours": "5%"}, "goes with"),
        ({"profile": [1.0] * 24, "autoscale": True, "broken_hours": "100%"}, "is not a share of the hours"),
        ({"profile": [1.0] * 24, "autoscale": True, "start_time": "2days"}, "is longer than a day"),
        ({"profile": [1.0] * 24, "autoscale": True, "start_time": "48h"}, "longer than a day"),
    ],
)
def test_what_cannot_be_scaled_is_refused_in_one_line(asked, words) -> None:
    with pytest.raises(InputErrors) as raised:
        api.ask(**ASKED, **asked)
    assert len(raised.value.lines) == 1
    assert words in raised.value.lines[0]


def test_a_share_and_a_start_are_read_and_nothing_is_asked_without_the_switch() -> None:
    assert scaling_of(ScalingAsked(autoscale=True, broken_hours="5%", start_time="3min")) == Scaling(broken_share=0.05, start_s=180.0)
    assert scaling_of(ScalingAsked(autoscale=True, broken_hours=0.1)) == Scaling(broken_share=0.1)
    assert scaling_of(ScalingAsked(autoscale=True)) == Scaling()
    assert scaling_of(ScalingAsked(autoscale=False)) is scaling_of(ScalingAsked()) is None


def test_two_pools_and_several_use_cases_are_not_scaled() -> None:
    scaled = {**ASKED, "profile": [1.0] * 24, "autoscale": True}
    with pytest.raises(InputErrors, match="two pools are not scaled over hours"):
        api.ask(**scaled, disaggregated=True)
    with pytest.raises(InputError, match="autoscale"):
        api.size_use_cases(
            [
                {
                    "model": "llama-3.1-8b",
                    "lengths": {"isl": 1000, "osl": 200},
                    "demand": {"profile": [1.0] * 24},
                    "scaling": {"autoscale": True},
                }
            ]
            * 2
        )
