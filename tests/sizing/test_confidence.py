import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.perf.regime import Regime
from tonnage.perf.residuals import LEVELS, Residuals
from tonnage.sizing.confidence import Confidence, confidence, critical_factor

REGIME = Regime(load="light", mix="prompt", family="dense")


def table(sigma: float, bias: float = 0.0) -> Residuals:
    from statistics import NormalDist

    values = tuple(bias + sigma * NormalDist().inv_cdf(level) for level in LEVELS)
    metrics = ("ttft_ms", "itl_ms", "e2e_ms", "requests_s")
    return Residuals(quantiles={m: {"loaded": values} for m in metrics}, stretch={}, unseen_gpu={}, report={})


def asked(needed: float, *, sigma: float = 0.1, bias: float = 0.0, binds: str = "saturation", power: float = 1.0) -> Confidence:
    """An instance that carries 10 requests/s, over factor**power; 100 requests/s are needed in all, one instance a system."""
    return confidence(
        rate=10.0,
        needed_rate=needed,
        binds=binds,
        regime=REGIME,
        residuals=table(sigma, bias),
        rates_at=lambda factors: [10.0 / factor**power for factor in factors],
        systems_for=lambda rate: math.ceil(100 / rate),
    )


def test_at_exactly_its_capacity_the_chance_is_even() -> None:
    found = asked(10.0)
    assert found.meets == pytest.approx(0.5, abs=0.002)
    assert found.systems == {"50": 10, "80": 11, "95": 12}  # 100/s over 10 / e^(0.1 z)
    assert found.step_factors["95"] == pytest.approx(math.exp(0.1645), abs=1e-3)


def test_headroom_in_units_of_the_scatter_is_the_chance() -> None:
    assert asked(10.0 * math.exp(-0.1)).meets == pytest.approx(0.841, abs=0.005)
    assert asked(10.0 * math.exp(0.1)).meets == pytest.approx(0.159, abs=0.005)
    assert asked(10.0 * math.exp(-0.1), power=2.0).meets == pytest.approx(0.691, abs=0.005)
    assert asked(5.0).meets > 0.99


@pytest.mark.parametrize(
    ("binds", "metric"), [("TTFT p95 ≤ 500 ms", "ttft_ms"), ("TPOT mean ≤ 30 ms", "itl_ms"), ("saturation", "requests_s")]
)
def test_what_binds_says_whose_errors_count_and_their_sign(binds: str, metric: str) -> None:
    """Latencies predicted 10 % too low, or rates 10 % too high: fewer than half of the instances do as predicted."""
    bias = 0.1 if metric == "requests_s" else -0.1
    found = asked(10.0, binds=binds, bias=bias)
    assert found.metric == metric
    assert found.meets == pytest.approx(0.159, abs=0.005)
    assert found.step_factors["50"] == pytest.approx(math.exp(0.1), abs=1e-3)


def test_where_slower_steps_meet_the_limits_at_no_load_there_is_no_number() -> None:
    found = confidence(
        rate=10.0,
        needed_rate=9.0,
        binds="TTFT p95 ≤ 50 ms",
        regime=REGIME,
        residuals=table(0.1),
        rates_at=lambda factors: [10.0 if factor < 1.05 else 0.0 for factor in factors],
        systems_for=lambda rate: math.ceil(100 / rate),
    )
    assert found.systems == {"50": 10, "80": None, "95": None}
    assert 0.5 < found.meets < 0.8
    assert "none at 80 %" in found.text()


@given(st.floats(2.0, 20.0), st.floats(2.0, 20.0))
def test_more_is_never_surer(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert asked(low).meets >= asked(high).meets


def test_the_critical_factor_between_and_beyond_what_was_simulated() -> None:
    line = [(1.0, 10.0), (1.1, 10 / 1.1), (1.2, 10 / 1.2)]
    assert critical_factor(line, 9.5) == pytest.approx(10 / 9.5)
    assert critical_factor(line, 5.0) == pytest.approx(2.0)
    assert critical_factor(line, 20.0) == pytest.approx(0.5)
    assert critical_factor([(1.0, 0.0)], 5.0) == 1.0
    assert critical_factor([(1.0, 10.0)], 5.0) == pytest.approx(2.0)
