"""Of which kind the records of the room are; those that differ hold a state or keep what they have
worked out, or are made of values whose order is plain."""

# ruff: noqa: F401 - the modules are looked through as the globals of this file

from tests.defaults import unlike
from tonnage.sizing import (
    background,
    demand,
    estimate,
    measured,
    mixture,
    precisions,
    question,
    services,
    session_tiers,
    use_cases,
)
from tonnage.sizing.fleet import autoscaling, joint_choice, mixed, placement, purchase, standby
from tonnage.sizing.loads import (
    capacity,
    confidence,
    fleet_check,
    instance,
    load_scan,
    mixed_check,
    runs,
    shared_load,
    trial,
)
from tonnage.sizing.search import deployment_capacity, disaggregated, objectives, search, warm_start


def test_records_are_frozen_and_made_by_keyword() -> None:
    assert unlike(globals(), "sizing") == {
        "fleet.autoscaling.FleetOverHours": {"slots"},
        "fleet.joint_choice._Choice": {"frozen"},
        "loads.confidence.StepErrors": {"slots"},
        "mixture.MixtureRun": {"slots"},
        "search.deployment_capacity.Contender": {"slots"},
        "search.deployment_capacity.Sized": {"slots"},
        "search.disaggregated.PooledContender": {"slots"},
        "search.objectives.MostLoad": {"kw_only"},
        "search.objectives.ShortestAnswers": {"kw_only"},
    }
