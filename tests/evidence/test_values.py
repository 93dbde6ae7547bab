"""Of which kind the records of the room are; those that differ hold a state or keep what they have
worked out, or are made of values whose order is plain."""

# ruff: noqa: F401 - the modules are looked through as the globals of this file

from tests.defaults import unlike
from tonnage.evidence import (
    calibrate,
    compare,
    measurement,
    predict,
    replay,
    rows,
    sample,
    score,
    services,
)


def test_records_are_frozen_and_made_by_keyword() -> None:
    assert unlike(globals(), "evidence") == {
        "rows.Bins": {"kw_only"},
        "rows.Deployments": {"kw_only"},
        "rows.RecordedLoad": {"eq"},
        "sample._Part": {"frozen", "kw_only"},
    }
