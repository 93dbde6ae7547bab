import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evidence.calibrate_cases import METRICS, TRUTH, Row, measured, with_factors
from tests.questions import plans_with
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.evidence.calibrate import (
    DETERMINED,
    CalibrationReport,
    TtftError,
    _Calibrating,
    _distance,
    _mape,
    _no_metric_worse,
    calibrate,
    ttft_errors,
)
from tonnage.evidence.rows import SIGMA, LoadedRows, errors
from tonnage.evidence.sample import Sample, fit_sample
from tonnage.evidence.score import score
from tonnage.formats.measured_files import read_measured
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms_file import overlaid, shipped
from tonnage.results.metrics import TtftParts
from tonnage.spec.calibration import OWN_METRICS, read_calibration
from tools.fit.data import FILES
from tools.fit.fitting import WEIGHTS, rows_of
from tools.fit.solving import solve
from tools.fit.terms import NIM, STATIC, layout

few_parts = plans_with()


DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


needs_data = pytest.mark.skipif(
    not DATA.is_dir(),
    reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; calibration is not checked on them",
)


def mape(rows: list[Row], terms: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(100 * np.nanmean(np.abs(values)))
        for name, values in errors(LoadedRows(rows), terms).items()
    }


def terms_of(report: CalibrationReport, terms: dict[str, Any] | None = None) -> dict[str, Any]:
    return overlaid(terms or shipped(), report.calibration, report.calibration.gpu)


@pytest.fixture(scope="module")
def machine() -> CalibrationReport:
    """A machine whose terms are not the shipped ones, calibrated on one curve."""
    return calibrate(measured(800, 100, with_factors(TRUTH)), data="a made machine")


def test_one_curve_of_a_made_machine_predicts_its_other_curves(machine: CalibrationReport) -> None:
    assert (machine.kept, machine.strength) == (True, 1.0)  # as wide as the learned widths
    truth = with_factors(TRUTH)
    for isl, osl in ((200, 200), (2000, 100), (3000, 50)):
        rows = measured(isl, osl, truth, clients=(1, 8, 64))
        before, after = mape(rows, shipped()), mape(rows, terms_of(machine))
        for name in ("e2e_ms", "requests_s", "itl_ms"):
            assert after[name] < 0.45 * before[name]
            assert after[name] < 4.0


def test_what_the_points_tell_lies_near_the_truth_and_the_rest_is_said_to_be_open(
    machine: CalibrationReport,
) -> None:
    for name, width in machine.shrinkage.items():
        assert 0 < width <= 1.01
        moved, true = np.log(machine.factors[name]), np.log(TRUTH.get(name, 1.0))
        if width < DETERMINED:
            left = width * machine.strength * shipped_residuals().widths[name]
            assert abs(moved - true) < 2.5 * left
    assert min(machine.shrinkage.values()) < 0.75
    assert machine.shrinkage["frontend_s"] > 0.9
    open_terms = next(line for line in machine.verdict() if line.startswith("not determined"))
    assert "frontend_s" in open_terms


def test_the_residuals_shrink_and_are_listed_point_by_point(machine: CalibrationReport) -> None:
    assert all(machine.after[name] < machine.before[name] for name in ("e2e_ms", "requests_s"))
    assert all(
        machine.left_out[name] < machine.left_out_before[name] for name in ("e2e_ms", "requests_s")
    )
    assert [row["concurrency"] for row in machine.rows] == [1, 2, 4, 8, 16, 32, 64]
    assert max(abs(row["after"]["e2e_ms"]) for row in machine.rows) < max(
        abs(row["before"]["e2e_ms"]) for row in machine.rows
    )
    assert machine.units == "point"


def test_the_errors_of_each_point_are_those_of_the_terms_before_and_after(
    machine: CalibrationReport,
) -> None:
    rows = measured(800, 100, with_factors(TRUTH))
    for key, terms in (("before", shipped()), ("after", terms_of(machine))):
        for name, values in errors(LoadedRows(rows), terms).items():
            percent = [row[key][name] for row in machine.rows]
            np.testing.assert_allclose(percent, 100 * values, rtol=0.01, atol=0.02)


def test_the_factors_are_those_of_the_strength_that_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One strength has by far the smallest errors but for one metric, which it makes worse: another
    one is taken, with its factors."""
    usual, fits = _Calibrating._without_each, {}
    seen: dict[str, Any] = {}

    def without_each(self: _Calibrating, strength: float) -> tuple[Any, Any]:
        fitted, _ = usual(self, strength)
        fits[strength] = self.sample.values(fitted.x)
        before = seen["before"] = self.sample.shipped_errors(self.all)
        rejected, kept, *_ = self.strengths
        left_out = {
            name: values * {rejected: 0.01, kept: 0.5}.get(strength, 0.9)
            for name, values in before.items()
        }
        if strength == rejected:
            left_out["ttft_p95_ms"] = before["ttft_p95_ms"] * 1.5
        return fitted, left_out

    monkeypatch.setattr(_Calibrating, "_without_each", without_each)
    report = calibrate(
        measured(800, 100, with_factors(TRUTH), clients=(1, 4, 16, 64)), data="a made machine"
    )
    assert report.kept
    assert report.strength == list(fits)[1]
    assert report.factors == fits[report.strength] != fits[next(iter(fits))]
    assert dict(report.calibration.multipliers) == report.factors
    before = seen["before"]
    assert report.calibration.left_out == spread_of({n: 0.5 * v for n, v in before.items()})
    assert report.left_out == {
        name: pytest.approx(100 * np.abs(np.expm1(0.5 * values)).mean(), abs=6e-4)
        for name, values in before.items()
    }


def spread_of(errors: dict[str, Any]) -> tuple[tuple[str, float, int], ...]:
    """The root mean square of the metrics that a calibration keeps, with the number of points."""
    return tuple(
        (name, pytest.approx(np.sqrt(np.mean(errors[name] ** 2)), abs=6e-5), len(errors[name]))
        for name in sorted(OWN_METRICS)
        if name in errors
    )


def test_a_fit_that_predicts_left_out_points_no_better_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, seen = _Calibrating._without_each, dict[str, Any]()

    def without_each(self: _Calibrating, strength: float) -> tuple[Any, Any]:
        seen["before"] = self.sample.shipped_errors(self.all)
        fitted, _ = usual(self, strength)
        return fitted, {name: values * (1 + strength) for name, values in seen["before"].items()}

    monkeypatch.setattr(_Calibrating, "_without_each", without_each)
    points = measured(800, 100, with_factors(TRUTH), clients=(1, 8, 64))
    report = calibrate(points, data="a made machine")
    assert (report.kept, report.strength) == (False, 0.0)
    assert not report.calibration.by_curve  # each point was left out in turn
    assert report.calibration.multipliers == report.calibration.terms == ()
    assert report.calibration.left_out == spread_of(seen["before"])
    assert report.after == report.before == report.left_out_before
    # the figures shown are those of the more careful fit
    assert report.left_out["e2e_ms"] == pytest.approx(
        100 * np.abs(np.expm1(1.5 * seen["before"]["e2e_ms"])).mean(), abs=6e-4
    )
    assert all(row["before"] == row["after"] for row in report.rows)


def test_errors_are_summed_up_by_metric() -> None:
    found = {"e2e_ms": np.log([1.1, 0.8, np.nan]), "itl_ms": np.log([1.3, 1.1, 1.2])}
    assert _mape(found) == {"e2e_ms": 15.0, "itl_ms": 20.0}
    of_sigma = np.abs(found["e2e_ms"][:2]).mean() / SIGMA["e2e_ms"]
    other = np.abs(found["itl_ms"]).mean() / SIGMA["itl_ms"]
    assert _distance(found) == pytest.approx((of_sigma + other) / 2)
    assert _distance({"e2e_ms": np.array([SIGMA["e2e_ms"], -3 * SIGMA["e2e_ms"]])}) == (
        pytest.approx(2.0)
    )


@pytest.mark.parametrize(
    ("growth", "no_worse"),
    [
        ([0.1, 0.1, 0.4], False),  # 0.2 on average, with a standard error of 0.1
        ([0.3, -0.3, 0.1], True),  # 0.03 and 0.18
        ([0.1, 0.1, 0.1], False),
        ([0.0, 0.0, 0.0], True),
        ([-0.1, -0.2, -0.1], True),
    ],
)
def test_a_metric_is_worse_where_its_errors_grow_by_more_than_they_scatter(
    growth: list[float], no_worse: bool
) -> None:
    before = {"e2e_ms": np.array([1.0, -1.0, 1.0, np.nan]), "itl_ms": np.zeros(4)}
    signs = np.sign(before["e2e_ms"])
    after = {"e2e_ms": before["e2e_ms"] + signs * [*growth, 9.0], "itl_ms": np.zeros(4)}
    assert _no_metric_worse(before, after) is no_worse
    assert _no_metric_worse(dict(reversed(before.items())), after) is no_worse


def test_parts_of_a_ttft_that_are_off_are_those_that_are_sure_and_felt() -> None:
    """Five rows under five loads: what is added to one part is found in it."""
    parts = [
        TtftParts(
            statistic="mean",
            front_end_ms=10.0,
            queue_ms=queue,
            prefill_ms=prefill,
            shared_ms=5.0,
            handover_ms=0.0,
            saved_ms=0.0,
        )
        for prefill, queue in ((20, 5), (40, 5), (80, 25), (20, 95), (160, 195))
    ]
    sums = [part.front_end_ms + part.prefill_ms + part.queue_ms + 5.0 for part in parts]
    found = ttft_errors(sums, parts)
    assert [error.part for error in found] == ["front end", "prefill", "queue"]
    assert [error.seconds for error in found] == pytest.approx([0.0] * 3, abs=1e-9)
    assert [error.predicted for error in found] == pytest.approx([0.01, 0.064, 0.07])
    assert not any(error.off for error in found)
    slow = [total + 400.0 for total in sums]
    front, prefill, queue = ttft_errors(slow, parts)
    assert front.off
    assert front.seconds == pytest.approx(0.4, rel=0.05)
    assert not prefill.off
    assert not queue.off
    assert front.width < 0.1
    doubled = [total + part.queue_ms + 5.0 for total, part in zip(sums, parts, strict=True)]
    front, prefill, queue = ttft_errors(doubled, parts)
    assert queue.off
    assert queue.seconds == pytest.approx(0.07, rel=0.3)
    assert ttft_errors(sums[:2], parts[:2]) == ()
    assert len(ttft_errors(sums[:3], parts[:3])) == 3


def slower_by(seconds: float) -> dict[str, Any]:
    """The shipped terms with a front end that takes so much longer."""
    engine = shipped()["engines"]["nim-2024"]
    return {
        **shipped(),
        "engines": {
            **shipped()["engines"],
            "nim-2024": {**engine, "frontend_s": engine["frontend_s"] + seconds},
        },
    }


@pytest.mark.parametrize("lengths", [(800,), (200, 3000)])
def test_a_slow_front_end_is_named_and_fitted(lengths: tuple[int, ...], tmp_path: Path) -> None:
    """A hundred times the shipped one, which no build of an engine is: the same 150 ms at every
    length and load."""
    truth = slower_by(0.15)
    report = calibrate(
        [row for isl in lengths for row in measured(isl, 100, truth, (1, 4, 16, 64))],
        data="a slow API server",
    )
    assert report.kept
    assert [(one.part, one.off) for one in report.ttft] == [
        ("front end", True),
        ("prefill", False),
        ("queue", False),
    ]
    assert report.ttft[0].seconds == pytest.approx(0.15, rel=0.2)
    assert report.factors["frontend_s"] * shipped()["engines"]["nim-2024"][
        "frontend_s"
    ] == pytest.approx(0.1514, rel=0.05)
    assert sum("the front end is off, by +" in line for line in report.verdict()) == 1
    unseen = measured(1500, 50, truth, clients=(1, 8, 32))
    assert mape(unseen, terms_of(report))["ttft_ms"] < 2.0 < mape(unseen, shipped())["ttft_ms"]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(report.to_json("2026-11-26")), encoding="utf-8")
    assert read_calibration(file).multipliers == report.calibration.multipliers


def ttft_rows(
    front: float = 0.0, prefill: float = 1.0, queue: float = 1.0
) -> tuple[TtftError, ...]:
    """What is said of rows at three lengths and three loads, of which parts take longer than
    predicted."""
    parts = [
        TtftParts(
            statistic="mean",
            front_end_ms=15.0,
            queue_ms=wait,
            prefill_ms=own,
            shared_ms=wait / 2,
            handover_ms=0.0,
            saved_ms=0.0,
        )
        for own in (10.0, 40.0, 200.0)
        for wait in (2.0, 20.0, 100.0)
    ]
    return ttft_errors(
        [
            15 + front + prefill * of.prefill_ms + queue * (of.queue_ms + of.shared_ms)
            for of in parts
        ],
        parts,
    )


@pytest.mark.parametrize(
    ("longer", "part", "seconds"),
    [
        ({"front": 150.0}, "front end", 0.15),
        ({"prefill": 1.6}, "prefill", 0.05),
        ({"queue": 1.8}, "queue", 0.0488),
    ],
)
def test_the_part_of_a_ttft_that_is_off_is_told_by_how_its_error_grows(
    longer: dict[str, float], part: str, seconds: float
) -> None:
    found = ttft_rows(**longer)
    assert [one.part for one in found if one.off] == [part]
    assert next(one.seconds for one in found if one.off) == pytest.approx(seconds, rel=0.2)
    assert not any(one.off for one in ttft_rows())
    assert ttft_errors([1.0, 2.0], []) == ()


def test_measurements_of_the_shipped_machine_leave_the_shipped_terms() -> None:
    report = calibrate(measured(800, 100, shipped()), data="the shipped machine")
    assert not report.kept
    assert report.calibration.multipliers == ()
    assert "shipped terms stay" in report.verdict()[0]
    assert max(abs(np.log(list(report.factors.values())))) < 0.02


def test_scatter_without_a_cause_never_makes_unseen_points_much_worse() -> None:
    """Points with 10 % of noise: whatever is kept predicts the clean points nearly as well as the
    shipped terms, which are the truth."""
    worse = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        clean = measured(800, 100, shipped(), clients=(1, 3, 8, 20, 50))
        noisy = [
            {
                **row,
                **{
                    name: row[name] * float(np.exp(0.1 * rng.standard_normal()))
                    for name in METRICS[:3]
                },
            }
            for row in clean
        ]
        for row, factor in zip(noisy, np.exp(0.1 * rng.standard_normal(5)).tolist(), strict=True):
            row["e2e_ms"], row["requests_s"] = row["e2e_ms"] * factor, row["requests_s"] / factor
        report = calibrate(noisy, data="noise")
        worse.append(mape(clean, terms_of(report))["e2e_ms"])
    assert max(worse) < 6.0
    assert np.mean(worse) < 3.0


def test_static_batches_are_calibrated_too() -> None:
    what = {
        "model": "llama-2-7b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp16",
        "tp": 1,
        "isl": 512,
        "osl": 64,
    }
    rows = [{**what, "batch": b, "ttft_ms": 1.0, "itl_ms": 1.0} for b in (1, 4, 16, 64)]
    sample = Sample(rows, shipped(), preset=STATIC, gpu="h100-sxm-80gb")
    assert "turnaround_s" not in sample.names
    assert "allreduce_s" not in sample.names
    truth = np.array([np.log(0.9) if name == "compute" else 0.0 for name in sample.names])
    found = sample.parts[0].rows.predict(sample.at(truth))
    rows = [
        {**row, **{name: float(values[i]) for name, values in found.items()}}
        for i, row in enumerate(rows)
    ]
    fitted = fit_sample(
        Sample(rows, shipped(), preset=STATIC, gpu="h100-sxm-80gb"), np.ones(4, dtype=bool)
    )
    factors = fitted.multipliers()
    assert 0.9 < factors["compute"] < 0.975
    assert fitted.shrinkage[fitted.names.index("compute")] < 0.9
    assert all(abs(np.log(factor)) < 0.06 for name, factor in factors.items() if name != "compute")


@pytest.mark.parametrize(
    ("change", "count", "word"),
    [
        ({}, 2, ": 2 usable points; give at least 3"),
        ({"gpu": "l40s"}, 4, "GPUs"),
        ({"engine": "vllm"}, 4, "engines"),
        ({"requests_s": 1e-9}, 4, "not steady"),
    ],
)
def test_points_that_cannot_be_calibrated_are_refused(change: Row, count: int, word: str) -> None:
    rows = measured(200, 20, shipped(), clients=(1, 2, 3, 4)[:count])
    changed = (
        [{**row, **change} for row in rows]
        if "requests_s" in change
        else [{**rows[0], **change}, *rows[1:]]
    )
    with pytest.raises(InputError, match=word):
        calibrate(changed, data="bad")


def test_lengths_that_no_cache_holds_are_left_out_and_said() -> None:
    rows = measured(200, 20, shipped(), clients=(1, 2, 3, 4))
    report = calibrate(
        [*rows, {**rows[0], "osl": 10_000_000}, {**rows[1], "isl": 10_000_000}], data="odd lengths"
    )
    assert report.remarks == (
        "2 points are left out, because the KV cache holds no request of their lengths",
    )
    assert (
        report.to_json("2026-11-28")["multipliers"]
        == calibrate(rows, data="odd lengths").to_json("2026-11-28")["multipliers"]
    )
    with pytest.raises(
        InputError,
        match=(
            r"calibrate: 1 usable points; give at least 3 .*; 3 points are left out, because the KV"
            r" cache"
        ),
    ):
        calibrate(
            [{**row, "osl": 10_000_000} if row is not rows[0] else row for row in rows],
            data="odd lengths",
        )


def csv_of(rows: list[Row], path: Path) -> Path:
    names = [
        "model",
        "gpu",
        "precision",
        "tp",
        "engine",
        "isl",
        "osl",
        "concurrency",
        "requests",
        *METRICS,
    ]
    path.write_text(
        "\n".join([",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)])
        + "\n",
        encoding="utf-8",
    )
    return path


def test_the_command_writes_what_score_and_simulate_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = measured(800, 100, with_factors(TRUTH), clients=(1, 4, 16, 64))
    file, mine = csv_of(rows, tmp_path / "points.csv"), tmp_path / "my.json"
    assert run(["calibrate", str(file), "--output", str(mine)]) == 0
    printed = capsys.readouterr().out
    assert "Not determined" in printed
    assert "left out" in printed
    document = json.loads(mine.read_text())
    assert document["schema"] == "tonnage.calibration/1"
    assert set(document) >= {"preset", "multipliers", "residuals", "loo", "data", "date"}
    plain, with_it = score(rows), score(rows, calibration=read_calibration(mine))
    assert with_it.overall["e2e_ms"].mape < 0.5 * plain.overall["e2e_ms"].mape
    assert any("calibrated on" in remark for remark in with_it.remarks)
    assert run(["score", str(file), "--coefficients", str(mine), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["e2e_ms"]["mape"] == pytest.approx(
        with_it.overall["e2e_ms"].mape
    )
    asked = [
        "simulate",
        "--model",
        "llama-3-8b",
        "--engine",
        "nim-2024",
        "--isl",
        "800",
        "--osl",
        "100",
        "--concurrency",
        "4",
        "--json",
    ]
    assert run([*asked, "--coefficients", str(mine)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["e2e_ms"]["mean"] == pytest.approx(rows[1]["e2e_ms"], rel=0.05)
    assert any("calibrated on 4 points of points.csv" in mark for mark in found["marks"])
    assert run([*asked, "--coefficients", str(file)]) == 2
    assert run(["calibrate"]) == 2


def test_what_was_calibrated_is_taken_wherever_something_is_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points, mine = (
        csv_of(
            measured(800, 100, with_factors(TRUTH), clients=(1, 8, 32)), tmp_path / "points.csv"
        ),
        tmp_path / "my.json",
    )
    assert run(["calibrate", str(points), "--output", str(mine)]) == 0
    calibration = read_calibration(mine)
    if not calibration.multipliers:
        pytest.fail("three points of a machine 30 % off were not kept")
    capsys.readouterr()
    said = [
        "--model=llama-3-8b",
        "--gpu=h100-sxm-80gb",
        "--precision=fp16",
        "--tp=1",
        "--engine=nim-2024",
    ]
    lengths = ["--isl=800", "--osl=100"]
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "model: llama-3-8b\nlengths: {isl: 800, osl: 100}\ndemand: {peak_rps: 20}\nsearch: {gpu:"
        " h100-sxm-80gb, precision: fp16, tp: 1, engine: nim-2024, coefficients: my.json}\n",
        encoding="utf-8",
    )
    for asked in (
        ["simulate", *said, *lengths, "--concurrency=4", f"--coefficients={mine}", "--json"],
        ["size", *said, *lengths, "--peak-rps=20", f"--coefficients={mine}", "--json"],
        ["size", str(scenario), "--json"],
        ["score", str(points), f"--coefficients={mine}", "--json"],
    ):
        assert run(asked) == 0, asked
        assert "calibrated on 3 points of points.csv" in capsys.readouterr().out


@pytest.fixture(scope="module")
def nim() -> list[Row]:
    return [
        row
        for row in read_measured(DATA / FILES[NIM])
        if row["requests_s"] * row["e2e_ms"] / 1e3 / row["concurrency"] >= 0.95
    ]


def curves(rows: list[Row]) -> list[list[Row]]:
    keys = [(row["model"], row["gpu"], row["isl"], row["osl"]) for row in rows]
    return [
        [row for row, k in zip(rows, keys, strict=True) if k == key] for key in dict.fromkeys(keys)
    ]


@pytest.fixture(scope="module")
def without_a_group(nim: list[Row]) -> tuple[dict[str, Any], list[Row]]:
    """Terms fitted without Llama 3 8B on H100, and its rows."""
    out = [row for row in nim if (row["model"], row["gpu"]) == ("llama-3-8b", "h100-sxm-80gb")]
    kept = {
        STATIC: read_measured(DATA / FILES[STATIC])[::8],
        NIM: [row for row in nim if row not in out],
    }
    found = layout(
        {("h100-sxm-80gb", "16"), ("h100-sxm-80gb", "8"), ("a100-sxm-80gb", "16"), ("l40s", "16")}
    )
    parts = [(WEIGHTS[engine], rows_of(engine, rows)) for engine, rows in kept.items()]
    return found.terms(solve(found, parts, found.start, found.free(kept))), out


@pytest.mark.accuracy
@needs_data
def test_one_measured_curve_predicts_the_other_five_of_a_group_that_no_fit_has_seen(
    without_a_group: tuple[dict[str, Any], list[Row]],
) -> None:
    terms, group = without_a_group
    before, after = [], []
    for curve in curves(group)[:5:2]:
        rest = [row for row in group if row not in curve]
        before.append(mape(rest, terms))
        after.append(mape(rest, terms_of(calibrate(curve, terms=terms, data="a curve"), terms)))
    mean = {
        name: (np.mean([b[name] for b in before]), np.mean([a[name] for a in after]))
        for name in METRICS
    }
    for name, most in (("e2e_ms", 5.0), ("requests_s", 5.0), ("ttft_ms", 13.0)):
        assert mean[name][1] < mean[name][0]
        assert mean[name][1] < most


@pytest.mark.accuracy
@needs_data
def test_never_worse_than_uncalibrated_on_held_out_rows_of_the_same_file(
    nim: list[Row], without_a_group: tuple[dict[str, Any], list[Row]]
) -> None:
    """Every other point of each curve is predicted from the rest, with the shipped terms and with
    terms that have not seen it."""
    terms, group = without_a_group
    for base, rows in ((shipped(), nim), (terms, group)):
        gains = []
        for curve in curves(rows)[::2]:
            known, unseen = curve[::2], curve[1::2]
            if len(known) < 3:
                continue
            before = mape(unseen, base)
            after = mape(unseen, terms_of(calibrate(known, terms=base, data="half a curve"), base))
            gains.append(
                np.mean([(after[name] - before[name]) / (100 * SIGMA[name]) for name in METRICS])
            )
        assert np.mean(gains) < 0
        # of the believed scatter: single waves of requests fall into other steps
        assert max(gains) < 0.15


def wrong(row: Row) -> Row:
    """A point of a machine that something else kept busy: steady, and 60 % too slow."""
    return {
        **row,
        **{name: 1.6 * row[name] for name in METRICS[:4]},
        "requests_s": row["requests_s"] / 1.6,
    }


def test_one_wrong_point_among_those_of_a_made_machine_makes_no_unseen_curve_worse() -> None:
    truth = with_factors(TRUTH)
    rows = [wrong(row) if row["concurrency"] == 8 else row for row in measured(800, 100, truth)]
    unseen = measured(200, 200, truth, clients=(1, 8, 64))
    report = calibrate(rows, data="one wrong")
    before, after = mape(unseen, shipped()), mape(unseen, terms_of(report))
    assert all(after[name] <= before[name] + 0.5 for name in ("itl_ms", "e2e_ms", "requests_s"))
    assert all(abs(np.log(factor)) < 0.6 for factor in report.factors.values())


@pytest.mark.accuracy
@needs_data
def test_few_points_and_one_wrong_point_make_held_out_curves_of_the_group_no_worse(
    without_a_group: tuple[dict[str, Any], list[Row]],
) -> None:
    terms, group = without_a_group
    gains = []
    for curve in curves(group)[:5:2]:
        unseen = [row for row in group if row not in curve]
        before = mape(unseen, terms)
        for known in (
            curve[::3],
            [wrong(row) if i == 2 else row for i, row in enumerate(curve[::2])],
        ):
            assert 3 <= len(known) <= 5
            after = mape(unseen, terms_of(calibrate(known, terms=terms, data="few"), terms))
            gains.append(
                np.mean([(after[name] - before[name]) / (100 * SIGMA[name]) for name in METRICS])
            )
    assert np.mean(gains) < 0.01
    assert max(gains) < 0.1


def test_the_file_says_what_was_measured_and_how_far_left_out_points_were_off(
    machine: CalibrationReport, tmp_path: Path
) -> None:
    document = machine.to_json("2026-11-21")
    file = tmp_path / "my.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    read = read_calibration(file)
    assert read.deployments == ("llama-3-8b fp16 tp1",)
    assert {name: n for name, _, n in read.left_out} == dict.fromkeys(METRICS, 7)
    assert not read.by_curve
    for name, rms, _ in read.left_out:
        assert 0.5 * machine.left_out[name] / 100 < rms < 3 * machine.left_out[name] / 100
    for change in (
        {"deployments": "x"},
        {"left_out_errors": {"ttft_ms": {"rms": -1, "points": 3}}},
        {"left_out_errors": [1]},
    ):
        file.write_text(json.dumps({**document, **change}), encoding="utf-8")
        with pytest.raises(InputError, match=r"my\.json: (deployments|left_out_errors)"):
            read_calibration(file)
