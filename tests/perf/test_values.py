"""Of which kind the records of the room are; those that differ hold a state or keep what they have
worked out, or are made of values whose order is plain."""

# ruff: noqa: F401 - the modules are looked through as the globals of this file

from tests.defaults import unlike
from tonnage.perf import (
    aiconfigurator,
    attention,
    fitted_terms,
    host,
    images_and_adapters,
    kernels,
    links,
    matrices,
    measured_steps,
    memory,
    pipeline,
    power,
    residuals,
    step,
    step_terms,
    terms,
    terms_file,
    vectorised_step,
)


def test_records_are_frozen_and_made_by_keyword() -> None:
    assert unlike(globals(), "perf") == {
        "fitted_terms.Vocabulary": {"kw_only"},
        "kernels.Step": {"kw_only"},
    }
