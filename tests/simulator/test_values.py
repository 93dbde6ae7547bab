"""Of which kind the records of the room are; those that differ hold a state or keep what they have
worked out, or are made of values whose order is plain."""

# ruff: noqa: F401 - the modules are looked through as the globals of this file

from tests.defaults import unlike
from tonnage.simulator import (
    autoscaler,
    changes,
    disaggregated,
    lesson,
    member,
    pools,
    reference,
    request,
    services,
    simulated_run,
    spec,
    tiers,
    timeline,
)
from tonnage.simulator.reference import job
from tonnage.simulator.services import queue


def test_records_are_frozen_and_made_by_keyword() -> None:
    assert unlike(globals(), "simulator") == {
        "lesson._Mean": {"frozen", "kw_only"},
        "lesson._Request": {"frozen"},
        "member.Live": {"eq", "frozen"},
        "pools._Member": {"eq", "frozen"},
        "reference.job.Job": {"eq", "frozen"},
        "reference.job.Step": {"frozen"},
        "services._Model": {"eq", "frozen", "kw_only"},
        "services._Request": {"eq", "frozen", "kw_only"},
        "services.queue.Batch": {"eq"},
        "services.queue.Ticket": {"eq", "frozen"},
        "services.queue._Level": {"eq", "frozen", "kw_only"},
        "spec.EngineSpec": {"eq"},
        "timeline._Places": {"eq", "frozen", "kw_only"},
    }
