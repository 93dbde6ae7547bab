"""Tables of residuals: the intervals that they give."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.perf.prediction_error_cases import NOWHERE, regime, width
from tonnage.errors import DataErrors
from tonnage.perf import residuals
from tonnage.perf.residuals import (
    LEVELS,
    Regime,
    Residuals,
    interpolated,
    like,
    metric_elsewhere,
    residuals_of,
    shipped_residuals,
)
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


def test_a_regime_of_which_nothing_else_is_known() -> None:
    """A deployment of which everything was measured, as it was measured."""
    assert asdict(Regime(load="light", mix="prompt", family="dense")) == {
        "load": "light",
        "mix": "prompt",
        "family": "dense",
        "known_gpu": True,
        "few_of_vendor": False,
        "known_generation": True,
        "known_model": True,
        "newer_kinds": False,
        "known_layout": True,
        "known_engine": True,
        "before_rows": False,
        "known_format": True,
        "known_family": True,
        "first_support": False,
        "differs": 1.0,
        "apart": frozenset(),
        "current": False,
        "calibrated": False,
        "own_terms": False,
        "own": (),
        "by_curve": False,
    }
    assert regime().on_unknown_gpu == regime(**NOWHERE)


@pytest.mark.parametrize(
    ("known", "names"),
    [
        ({"load": "light"}, ("loaded", "light", "light, prompt", "light, prompt, dense")),
        (
            {"load": "small batch", "calibrated": True},
            ("static", "small batch", "small batch, prompt", "small batch, prompt, dense"),
        ),
        (
            {"load": "large batch", "mix": "output", "family": "moe"},
            ("static", "large batch", "large batch, output", "large batch, output, moe"),
        ),
        (
            {"load": "open", "current": True},
            (
                "current",
                "current, open",
                "current, open, prompt",
                "current, open, prompt, dense",
            ),
        ),
        (
            {"load": "open", "current": True, "calibrated": True},
            (
                "calibrated",
                "calibrated, open",
                "calibrated, open, prompt",
                "calibrated, open, prompt, dense",
            ),
        ),
    ],
)
def test_names_of_a_regime(known: dict[str, Any], names: tuple[str, ...]) -> None:
    assert regime(**known).names() == names


@pytest.mark.parametrize(
    ("known", "causes"),
    [
        ({}, {"host"}),
        ({"known_model": False}, {"host", "light weights"}),
        ({"known_engine": False}, {"host", "light weights"}),
        ({"known_family": False}, {"host", "light weights"}),
        ({"family": "moe"}, {"host"}),
        ({"family": "moe", "known_model": False}, {"host"}),
        ({"family": "moe", "known_family": False}, {"host", "light weights", "four bits"}),
    ],
)
def test_what_rows_tell_is_no_cause(known: dict[str, Any], causes: set[str]) -> None:
    """Of a dense model its own rows tell how small steps are, of experts any row of them; nothing
    tells of four bits of a dense one."""
    apart = frozenset({"host", "light weights", "four bits"})
    more = {"four bits"} if known.get("family") != "moe" else set()
    assert regime(apart=apart, **known).causes == causes | more


MIDDLE, SPREAD = 0.1, 0.2


def normal(spread: float = SPREAD) -> tuple[float, ...]:
    """Quantiles of errors that are normal."""
    return tuple(MIDDLE + spread * NormalDist().inv_cdf(level) for level in LEVELS)


METRICS = ("ttft_ms", "itl_ms", "requests_s")
TABLE = Residuals(
    quantiles={
        name: dict.fromkeys(("loaded", "static", "calibrated"), normal()) for name in METRICS
    },
    stretch={"itl_ms": {"loaded": 1.25, "heavy": 2.0}},
    unseen_gpu={"itl_ms": {"loaded": 3.0, "static": 5.0}, "ttft_ms": {"static": 5.0}},
    unseen_engine={"ttft_ms": {"loaded": 1.7}},
)


def together(*factors: float) -> float:
    """Independent causes: what each adds to the square of the width adds up."""
    return math.sqrt(1 + sum(factor**2 - 1 for factor in factors))


@pytest.mark.parametrize(
    ("known", "metric", "faster", "slower"),
    [
        ({}, "ttft_ms", 1.0, 1.0),
        # groups of rows that the table has not seen, by load or by its kind
        ({}, "itl_ms", 1.25, 1.25),
        ({"load": "heavy"}, "itl_ms", 2.0, 2.0),
        ({"load": "small batch"}, "itl_ms", 1.0, 1.0),
        ({"known_gpu": False, "load": "small batch"}, "itl_ms", 5.0, 5.0),
        ({"known_gpu": False}, "itl_ms", 3.75, 3.75),
        ({"known_gpu": False}, "ttft_ms", 5.0, 5.0),
        # never as sure as what was measured
        ({"known_gpu": False}, "requests_s", 1.1, 1.1),
        ({"known_gpu": False, "few_of_vendor": True}, "ttft_ms", 3.0, 3.0),
        ({"few_of_vendor": True}, "ttft_ms", 1.0, 1.0),
        ({"known_generation": False}, "ttft_ms", 4.0, 4.0),
        ({"known_model": False}, "ttft_ms", 1.1, 1.3),
        ({"known_model": False}, "requests_s", 1.1, 1.3),
        ({"known_model": False, "newer_kinds": True}, "ttft_ms", 1.1, 2.0),
        ({"known_model": False, "few_of_vendor": True}, "ttft_ms", 2.1, 2.2),
        (
            {"known_model": False, "few_of_vendor": True, "newer_kinds": True},
            "ttft_ms",
            1.3,
            4.0,
        ),
        ({"known_engine": False}, "ttft_ms", 1.7, 1.7),
        ({"known_engine": False}, "itl_ms", 2.75, 2.75),
        ({"known_engine": False, "calibrated": True}, "requests_s", 1.0, 1.0),
        # a table without errors of engines of today has those of others, as of an unknown one
        ({"current": True}, "requests_s", 2.2, 2.2),
        ({"before_rows": True}, "ttft_ms", 4.3, 4.3),
        ({"known_format": False}, "ttft_ms", 1.5, 1.5),
        ({"known_family": False}, "ttft_ms", 2.1, 2.1),
        ({"known_layout": False}, "ttft_ms", 2.1, 2.1),
        (
            {"known_format": False, "known_family": False, "known_model": False},
            "ttft_ms",
            together(1.5, 2.1, 1.1),
            together(1.5, 2.1, 1.3),
        ),
        # where two step models differ, 0.6 of the logarithm of the ratio
        (
            {"differs": 1.5},
            "requests_s",
            math.hypot(1, 0.6 * math.log(1.5) / 0.2),
            math.hypot(1, 0.6 * math.log(1.5) / 0.2),
        ),
        ({"differs": 1.5}, "ttft_ms", 1.0, 1.0),
        # images before a release may be slower, by 0.2, or 0.46 of other vendors
        ({"first_support": True}, "ttft_ms", 1.0, math.sqrt(2)),
        ({"first_support": True}, "requests_s", 1.0, math.sqrt(2)),
        ({"first_support": True, "few_of_vendor": True}, "ttft_ms", 1.0, math.hypot(1, 2.3)),
        ({"calibrated": True, "current": True}, "ttft_ms", 1.2, 1.2),
        ({"calibrated": True}, "ttft_ms", 1.0, 1.0),
        # left-out points of the calibration itself: 20 of the table, or 60, against their number
        (
            {"calibrated": True, "own": (("ttft_ms", 0.1, 6),), "by_curve": True},
            "ttft_ms",
            math.sqrt((20 + 6 / 4) / 26),
            math.sqrt((20 + 6 / 4) / 26),
        ),
        (
            {"calibrated": True, "own": (("itl_ms", 9.0, 9), ("ttft_ms", 0.4, 30))},
            "ttft_ms",
            math.sqrt((60 + 30 * 4) / 90),
            math.sqrt((60 + 30 * 4) / 90),
        ),
        ({"calibrated": True, "own": (("ttft_ms", 0.1, 5),)}, "ttft_ms", 1.0, 1.0),
        ({"own": (("ttft_ms", 0.1, 6),)}, "ttft_ms", 1.0, 1.0),
    ],
)
def test_how_much_wider_each_side_is_by_hand(
    known: dict[str, Any], metric: str, faster: float, slower: float
) -> None:
    """A prediction of less than the measurement is on the slower side; of a rate, of more."""
    usual = SPREAD * NormalDist().inv_cdf(0.9)
    below, above = (TABLE.log_error(metric, regime(**known), p) - MIDDLE for p in (0.1, 0.9))
    sides = (-below, above) if metric == "requests_s" else (above, -below)
    assert sides == pytest.approx((faster * usual, slower * usual), rel=1e-12)


@pytest.mark.parametrize(
    ("cause", "factors"),
    [
        ("host", (2.3, 1.0, 1.0)),
        ("pcie", (3.5, 3.5, 3.5)),
        ("burst", (3.8, 5.7, 1.0)),
        ("light weights", (1.0, 4.1, 4.3)),
        ("four bits", (3.0, 3.0, 3.0)),
        ("ranks", (2.0, 2.0, 2.0)),
    ],
)
def test_what_sets_a_deployment_apart_widens_each_metric_by_hand(
    cause: str, factors: tuple[float, ...]
) -> None:
    """Of a family that no row is of, so that no rows tell of light weights either."""
    kind = regime(known_family=False, apart=frozenset({cause}))
    for metric, factor in zip(METRICS, factors, strict=True):
        stretch = 1.25 if metric == "itl_ms" else 1.0
        assert TABLE.log_error(metric, kind, 0.9) - MIDDLE == pytest.approx(
            stretch * together(factor, 2.1) * SPREAD * NormalDist().inv_cdf(0.9)
        )


def test_an_interval_by_hand() -> None:
    """Errors of 0.1 ± 0.2: measured is less by a factor of e^0.1 in the middle."""
    z = NormalDist().inv_cdf(0.9)
    assert TABLE.interval("ttft_ms", 100.0, regime()) == pytest.approx(
        (100 * math.exp(-0.1 - 0.2 * z), 100 * math.exp(-0.1 + 0.2 * z))
    )
    noisy = z * math.hypot(0.2, 0.15)
    assert TABLE.interval("ttft_ms", 100.0, regime(), noise=0.15) == pytest.approx(
        (100 * math.exp(-0.1 - noisy), 100 * math.exp(-0.1 + noisy))
    )
    half = NormalDist().inv_cdf(0.75)
    slower = regime(known_model=False)
    assert TABLE.interval("ttft_ms", 1.0, slower, share=0.5, noise=0.1) == pytest.approx(
        (
            math.exp(-0.1 - half * math.hypot(0.1, 0.22)),
            math.exp(-0.1 + half * math.hypot(0.1, 0.26)),
        )
    )
    assert math.isnan(TABLE.log_error("power_w", regime(), 0.5))
    assert (TABLE.knows("power_w"), TABLE.knows("tpot_ms")) == (False, True)


def test_terms_of_ones_own_loads_have_the_errors_of_these_by_hand() -> None:
    """Student's t of 3 degrees at 0.9 is 1.638, and of 8 degrees 1.397; two equal runs differ by a
    hundredth."""
    own = (("itl_ms", 0.2, 3), ("ttft_ms", 0.004, 8))
    kind = regime(calibrated=True, own_terms=True, own=own)
    for metric, error in (("itl_ms", 0.2 * 1.638), ("ttft_ms", 0.01 * 1.397)):
        assert TABLE.log_error(metric, kind, 0.9) == pytest.approx(error, rel=1e-3)
    # what was not measured has the largest
    assert TABLE.log_error("requests_s", kind, 0.9) == pytest.approx(0.2 * 1.638, rel=1e-3)
    none = regime(calibrated=True, own_terms=True)
    assert TABLE.log_error("itl_ms", none, 0.5) == pytest.approx(MIDDLE)


def test_which_regime_of_the_table_is_taken() -> None:
    """The narrowest that is there; without its kind that of loads, or the first one."""

    def middle(quantiles: dict[str, float], **known: Any) -> float:
        table = Residuals(
            quantiles={
                "ttft_ms": {key: (value,) * len(LEVELS) for key, value in quantiles.items()}
            },
            stretch={},
            unseen_gpu={},
        )
        return table.log_error("ttft_ms", regime(**known), 0.5)

    keys = {"loaded": 1.0, "light": 2.0, "light, prompt": 3.0, "light, prompt, dense": 4.0}
    assert middle(keys) == 4.0
    assert middle(keys, family="moe") == 3.0
    assert middle(keys, mix="output") == 2.0
    assert middle(keys, load="heavy") == 1.0
    assert middle(keys, current=True) == 1.0
    assert middle({"static": 5.0, "loaded": 1.0}, calibrated=True) == 1.0
    assert middle({"calibrated": 6.0, "loaded": 1.0}, calibrated=True) == 6.0
    assert middle({"static": 5.0, "current": 7.0}) == 5.0


@pytest.mark.parametrize(
    ("metric", "tabulated", "column"),
    [
        ("ttft_ms", "ttft_ms", "ttft_ms"),
        ("ttft_p95_ms", "ttft_p95_ms", "ttft_ms"),
        ("ttft_p50_ms", "ttft_ms", "ttft_ms"),
        ("itl_p99_ms", "itl_ms", "itl_ms"),
        ("tpot_ms", "itl_ms", "itl_ms"),
        ("e2e_p90_ms", "e2e_ms", "itl_ms"),
        ("requests_s", "requests_s", "requests_s"),
        ("output_tok_s", "requests_s", "itl_ms"),
        ("power_w", None, "itl_ms"),
    ],
)
def test_which_errors_a_column_has(metric: str, tabulated: str | None, column: str) -> None:
    table = dict.fromkeys(("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s"))
    assert like(metric, table) == tabulated
    assert metric_elsewhere(metric) == column


def test_quantiles_between_and_beyond_those_of_the_table_by_hand() -> None:
    values = normal()
    for p in (1e-6, 0.001, 0.025, 0.3, 0.5, 0.62, 0.975, 0.99, 1 - 1e-6):
        assert interpolated(values, p) == pytest.approx(MIDDLE + SPREAD * NormalDist().inv_cdf(p))
    assert interpolated(values, 0.0) == interpolated(values, 1e-6)
    assert interpolated(values, 1.0) == interpolated(values, 1 - 1e-6)
    bent = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0)
    share = (NormalDist().inv_cdf(0.8) - NormalDist().inv_cdf(0.75)) / (
        NormalDist().inv_cdf(0.9) - NormalDist().inv_cdf(0.75)
    )
    assert interpolated(bent, 0.8) == pytest.approx(3 * share)
    ends = (-5.0, *[0.0] * 7, 5.0)
    outside = NormalDist().inv_cdf(0.96) - NormalDist().inv_cdf(0.95)
    last = NormalDist().inv_cdf(0.975) - NormalDist().inv_cdf(0.95)
    assert interpolated(ends, 0.96) == pytest.approx(5 * outside / last)
    assert interpolated(ends, 0.04) == pytest.approx(-5 * outside / last)


def test_a_table_with_unknown_keys_is_refused_line_by_line() -> None:
    nine = [0.0] * len(LEVELS)
    document = {
        "quantiles": {"ttft_ms": {"loaded": nine, "light, prompts": nine, "open": nine[1:]}},
        "stretch": {"power_w": {"loaded": 1.0}},
        "unseen_gpu": {"itl_ms": {"loaded, dense": 1.0, "slow": 2.0}},
        "unseen_engine": {"itl_ms": {"": 1.0}},
        "widths": {"step_s": 0.1, "speed": 0.2},
    }
    with pytest.raises(DataErrors) as caught:
        residuals_of(document, "r.json")
    lines = list(caught.value.lines)
    assert lines[:-1] == [
        "r.json: quantiles.ttft_ms.light, prompts: unknown key",
        "r.json: stretch.power_w: unknown key",
        "r.json: unseen_gpu.itl_ms.slow: unknown key",
        "r.json: unseen_engine.itl_ms.: unknown key",
        "r.json: quantiles.ttft_ms.open: holds no 9 quantiles",
    ]
    assert lines[-1].startswith("r.json: widths.speed: unknown key; known here: ")
