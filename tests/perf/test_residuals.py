"""Tables of residuals: the intervals that they give."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.prediction_error_cases import NOWHERE, regime, width
from tonnage.perf import residuals
from tonnage.perf.residuals import LEVELS, interpolated, residuals_of, shipped_residuals
from tools.fit.residuals import HeldOut, coverage, residual_table


def held_out(
    groups: int, rows: int, *, of_group: float, of_row: float, seed: int = 0
) -> Iterator[HeldOut]:
    """Errors with a part that a group shares; those of "heavy" loads are three times as large."""
    rng = np.random.default_rng(seed)
    for g in range(groups):
        shared = of_group * rng.standard_normal()
        for i in range(rows):
            load = ("light", "heavy")[i % 2]
            error = (1 if load == "light" else 3) * (shared + of_row * rng.standard_normal())
            yield HeldOut(
                metric="e2e_ms",
                log_error=error,
                regime=regime(load),
                group=f"g{g}",
                unseen_gpu=False,
            )


@pytest.mark.accuracy
@pytest.mark.parametrize(("of_group", "of_row"), [(0.05, 0.02), (0.02, 0.05), (0.0, 0.05)])
def test_80_percent_intervals_hold_80_percent_of_groups_that_were_not_seen(
    of_group: float, of_row: float
) -> None:
    seen = list(held_out(30, 60, of_group=of_group, of_row=of_row))
    table = residuals_of(residual_table(seen, "today"))
    inside = []
    for row in held_out(200, 20, of_group=of_group, of_row=of_row, seed=1):
        low, high = table.interval("e2e_ms", 1.0, row.regime)
        inside.append(low <= math.exp(-row.log_error) <= high)
    assert 0.75 <= np.mean(inside) <= 0.85
    assert 75 <= coverage(seen)["e2e_ms"]["loaded"] <= 85
    assert width(table.interval("e2e_ms", 1.0, regime("heavy"))) > 2 * width(
        table.interval("e2e_ms", 1.0, regime("light"))
    )


def test_an_interval_is_of_80_percent_where_no_other_share_is_asked_for() -> None:
    table = residuals_of(residual_table(list(held_out(40, 6, of_group=0.1, of_row=0.1)), "today"))
    usual = table.interval("e2e_ms", 100.0, regime())
    assert usual == table.interval("e2e_ms", 100.0, regime(), share=0.8)
    assert width(table.interval("e2e_ms", 100.0, regime(), share=0.87)) > width(usual)


def test_the_shipped_table_covers_what_its_own_folds_held_out() -> None:
    table = shipped_residuals()
    assert {"ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s"} <= set(table.quantiles)
    of_kind: dict[str, list[float]] = {}
    for metric, kinds in table.report["coverage"].items():
        for kind, percent in kinds.items():
            assert 72 <= percent <= 88, (metric, kind)
            of_kind.setdefault(kind, []).append(percent)
    assert set(of_kind) == {"static", "loaded", "current", "calibrated"}
    assert all(75 <= np.mean(percents) <= 85 for percents in of_kind.values())
    for unseen in ("coverage_unseen_gpu", "coverage_unseen_engine"):
        assert all(
            percent >= 75 for kinds in table.report[unseen].values() for percent in kinds.values()
        )
    for by_regime in table.report["coverage_by_regime"].values():
        for load in ("light", "middle", "heavy", "small batch", "large batch"):
            assert 70 <= by_regime.get(load, {"percent": 80})["percent"] <= 90
    for metric, quantiles in table.quantiles.items():
        for key, values in quantiles.items():
            assert list(values) == sorted(values), (metric, key)
        for load in ("light", "middle", "heavy"):
            known = table.interval(metric, 100.0, regime(load))
            assert known[0] < known[1]
            assert 0.02 < width(known) < 1.0
            # narrower where data are
            assert width(table.interval(metric, 100.0, regime(load, **NOWHERE))) > 1.5 * width(
                known
            )
            assert width(table.interval(metric, 100.0, regime(load), share=0.5)) < width(known)


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_quantiles_rise_with_the_probability(p: float, q: float) -> None:
    values = shipped_residuals().quantiles["e2e_ms"]["loaded"]
    low, high = sorted((p, q))
    assert interpolated(values, low) <= interpolated(values, high) + 1e-12
    assert interpolated(values, 0.1) == pytest.approx(values[LEVELS.index(0.1)])


@given(st.floats(0.0, 0.5))
def test_noise_of_the_run_only_widens(noise: float) -> None:
    low, high = shipped_residuals().interval("ttft_ms", 100.0, regime(), noise=noise)
    plain = shipped_residuals().interval("ttft_ms", 100.0, regime())
    assert low <= plain[0] + 1e-9
    assert high >= plain[1] - 1e-9


def test_a_calibrated_deployment_has_narrower_intervals_and_its_own_left_out_points_count() -> None:
    table, narrower = shipped_residuals(), []
    for metric in ("itl_ms", "e2e_ms"):
        for load in ("light", "middle", "heavy"):
            plain, calibrated = (
                width(table.interval(metric, 1.0, regime(load, calibrated=c)))
                for c in (False, True)
            )
            assert calibrated < 1.2 * plain
            narrower.append(math.log(calibrated / plain))
            good, bad = (
                width(
                    table.interval(
                        metric,
                        1.0,
                        regime(load, calibrated=True, own=((metric, rms, 30),), by_curve=True),
                    )
                )
                for rms in (0.005, 0.3)
            )
            few = width(
                table.interval(metric, 1.0, regime(load, calibrated=True, own=((metric, 0.3, 3),)))
            )
            points = width(
                table.interval(metric, 1.0, regime(load, calibrated=True, own=((metric, 0.3, 30),)))
            )
            assert good < calibrated == few < points < bad
    assert np.mean(narrower) < math.log(0.9)


def test_an_engine_without_rows_widens_no_interval_of_a_calibrated_deployment() -> None:
    table = shipped_residuals()
    for calibrated, wider in ((False, True), (True, False)):
        known, unknown = (
            width(table.interval("itl_ms", 1.0, regime(calibrated=calibrated, known_engine=engine)))
            for engine in (True, False)
        )
        assert (unknown > known) == wider


def test_rates_of_static_batches_err_as_their_token_latency_does_the_other_way() -> None:
    table, batch = shipped_residuals(), regime("small batch")
    assert table.log_error("requests_s", batch, 0.9) == pytest.approx(
        -table.log_error("itl_ms", batch, 0.1)
    )
    assert table.log_error("e2e_ms", batch, 0.9) == table.log_error("itl_ms", batch, 0.9)


def test_the_page_has_the_factors_of_what_was_not_measured() -> None:
    text = (Path(__file__).parents[2] / "docs" / "intervals.md").read_text(encoding="utf-8")
    page = dict(re.findall(r"^\| ([^|]+) \| ([\d.]+)\D", text, re.MULTILINE))
    rows = (
        "generation",
        "the model",
        "vendor",
        "indexers",
        "older",
        "the engine on",
        "the format",
        "experts or",
    )
    factors = [float(next(value for cause, value in page.items() if row in cause)) for row in rows]
    names = (
        "UNSEEN_GENERATION",
        "UNSEEN_MODEL",
        "UNSEEN_OF_VENDOR",
        "UNSEEN_KINDS",
        "OLDER_ENGINE",
    )
    names = (*names, "UNSEEN_ENGINE", "UNSEEN_FORMAT", "UNSEEN_FAMILY")
    assert factors == [getattr(residuals, name) for name in names]
