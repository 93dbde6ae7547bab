"""Of which kind the records of the room are; those that differ hold a state or keep what they have
worked out, or are made of values whose order is plain."""

# ruff: noqa: F401 - the modules are looked through as the globals of this file

from tests.defaults import unlike
from tonnage.cost import break_even, horizon, options, plan_cost


def test_records_are_frozen_and_made_by_keyword() -> None:
    assert unlike(globals(), "cost") == {
        "horizon.Market": {"slots"},
        "horizon.Month": {"slots"},
    }
