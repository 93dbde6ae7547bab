"""The points that a measurement takes: what they leave of a variance, beside the closed form of linear Gaussian inference."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import contenders, question
from tonnage.evidence.measurement import POINTS, Afterwards, design, greedy, width_left
from tonnage.perf.residuals import LEVELS, SCALE, Residuals
from tonnage.sizing.loads.confidence import StepErrors, step_errors


@given(slope=st.floats(0.01, 20.0), count=st.integers(1, 12))
def test_equal_points_of_one_factor_leave_what_the_closed_form_says(slope: float, count: int) -> None:
    """The variance of a normal mean with prior variance 1 after n measurements of precision s² is 1 / (1 + n s²)."""
    _, left, _ = greedy(np.full((count, 1, 1), slope), np.array([2.0]))
    assert left == pytest.approx([1 / (1 + n * slope**2) for n in range(min(count, POINTS) + 1)])


@given(seed=st.integers(0, 10_000), points=st.integers(6, 20), terms=st.integers(1, 6), metrics=st.integers(1, 4))
def test_what_is_left_is_the_posterior_variance_and_never_grows(seed: int, points: int, terms: int, metrics: int) -> None:
    rng = np.random.default_rng(seed)
    told, wanted = rng.normal(size=(points, terms, metrics)), rng.normal(size=terms)
    chosen, left, _ = greedy(told, wanted)
    assert len(chosen) == len(set(chosen)) == min(points, POINTS)
    assert all(0 <= after <= before + 1e-12 for before, after in pairwise(left))
    for count in (1, len(chosen)):  # the covariance of a posterior, by conditioning on the measured values
        h = np.concatenate([told[i].T for i in chosen[:count]])
        posterior = np.eye(terms) - h.T @ np.linalg.solve(h @ h.T + np.eye(len(h)), h)
        assert left[count] == pytest.approx(wanted @ posterior @ wanted / (wanted @ wanted), abs=1e-9)
    first = [wanted @ np.linalg.solve(np.eye(terms) + one @ one.T, wanted) for one in told]
    assert first[chosen[0]] == pytest.approx(min(first))


def test_the_points_of_a_deployment_fit_into_it_and_tell_of_the_load() -> None:
    contender = contenders(question(tp="1"))[0]
    found = design(contender.running, "itl_ms", rate=10.0, clients=40.0)
    assert found is not None
    assert len(found.points) == len(set(found.points)) == POINTS
    assert all(one.isl + one.osl <= 2 * (1000 + 100) for one in found.points)
    assert max(one.clients for one in found.points) <= 80
    assert found.left[0] == 1.0
    assert found.left[-1] == found.left_of["itl_ms"] < 0.5
    assert found.left[-1] < found.left[3] < found.left[1]
    few = design(contender.running, "itl_ms", rate=0.1, clients=0.2)
    assert few is None or len(few.points) >= 6


def _normal(width: float) -> StepErrors:
    """Errors that are normal with that standard deviation, and half of it after a calibration."""
    plain = tuple(width * z for z in SCALE)
    table = {"itl_ms": {"loaded": plain, "calibrated": tuple(z / 2 for z in plain)}}
    regime = step_errors(question(), contenders(question(tp="1"))[0].ready.trial.deployment)["requests_s"].regime
    known = replace(regime, known_gpu=True, known_engine=True, known_model=True, known_format=True, known_family=True, current=False)
    return StepErrors(metric="itl_ms", regime=known, residuals=Residuals(quantiles=table, stretch={}, unseen_gpu={}))


def test_what_is_found_and_what_is_left_add_up_to_the_errors_now() -> None:
    """Law of total variance: normal findings and a normal rest make the normal errors of today."""
    errors = _normal(0.2)
    share = width_left(errors, 0.0)
    assert share == pytest.approx(0.5)
    assert width_left(errors, 1.0) == pytest.approx(1.0)
    assert width_left(errors, 0.0) < width_left(errors, 0.3) < width_left(errors, 0.6) < 1.0
    spread = []
    for p in (0.1, 0.5, 0.9):
        after = Afterwards(metric=errors.metric, regime=errors.regime, residuals=errors.residuals, kept=share, found=p)
        assert math.log(after.factor(0.9) / after.factor(0.5)) == pytest.approx(share * 0.2 * NormalDist().inv_cdf(0.9))
        spread.append(math.log(after.factor(0.5)))
    found = (spread[2] - spread[0]) / (2 * NormalDist().inv_cdf(0.9))
    assert math.hypot(found, share * 0.2) == pytest.approx(0.2)
    nothing = Afterwards(metric=errors.metric, regime=errors.regime, residuals=errors.residuals, kept=1.0, found=0.95)
    assert [nothing.factor(p) for p in LEVELS] == pytest.approx([errors.factor(p) for p in LEVELS])
