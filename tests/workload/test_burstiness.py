"""Burstiness: the dispersion of counts, and rates that drift."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.workload.described import assert_reproduced
from tonnage import api
from tonnage.workload.burstiness import burstiness


def test_poisson_counts_have_a_dispersion_of_one() -> None:
    due = np.random.default_rng(0).exponential(0.1, 200_000).cumsum()
    found = burstiness(due - due[0])
    assert found.cv == pytest.approx(1, rel=0.02)
    for one in found.dispersion:
        assert one.index == pytest.approx(1, abs=4 * np.sqrt(2 / one.intervals))
    assert found.hourly_peak_to_mean == pytest.approx(1, abs=0.05)


def test_a_rate_that_drifts_is_no_poisson_process(tmp_path: Path) -> None:
    """An hour whose rate doubles and halves again every ten minutes: gaps nearly exponential,
    minutes far from it."""
    rng = np.random.default_rng(5)
    gaps = rng.exponential(1.0, 15_000)
    due, now = [], 0.0
    for gap in gaps:
        now += gap / (4.0 + 1.3 * math.sin(2 * math.pi * now / 600))
        due.append(now)
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "timestamp,isl,osl\n"
        + "".join(f"{moment:.6f},{rng.integers(100, 200)},50\n" for moment in due)
    )
    found = api.describe_workload(trace).fitted_arrivals
    assert (found.process, found.disagreement) == ("trace", "counts")
    assert found.dispersion_error > 2
    api.fit_workload(trace, tmp_path / "scenario.yaml")
    assert_reproduced(trace, tmp_path / "scenario.yaml")
