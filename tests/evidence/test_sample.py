"""Our own least squares beside scipy's, which is the oracle here and is not needed to calibrate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from tests.evidence.calibrate_cases import MACHINE, METRICS
from tonnage.evidence import sample
from tonnage.evidence.calibrate import CalibrationReport, calibrate
from tonnage.evidence.predict import read_point
from tonnage.evidence.sample import Solution, _Model, _next_radius, differences, least_squares
from tonnage.formats.measured_files import read_measured
from tonnage.perf.matrices import matrix_rate
from tonnage.perf.terms_file import shipped

Floats = NDArray[np.float64]
CURVE = Path(__file__).resolve().parents[2] / "examples" / "nim-llama-3-8b-h100-fp8.csv"
TIMES = np.linspace(0.0, 4.0, 25)


def rosenbrock(x: Floats) -> Floats:
    return np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def powell(x: Floats) -> Floats:
    """Powell's function, whose Jacobian is singular at the solution."""
    a, b, c, d = x
    return np.array(
        [a + 10.0 * b, np.sqrt(5.0) * (c - d), (b - 2.0 * c) ** 2, np.sqrt(10.0) * (a - d) ** 2]
    )


def decay(x: Floats) -> Floats:
    """An exponential with an offset against data that it cannot meet."""
    data = 2.5 * np.exp(-1.3 * TIMES) + 0.5 + 0.1 * np.sin(9.0 * TIMES)
    return np.asarray(x[0] * np.exp(-x[1] * TIMES) + x[2] - data)


def scipys(
    residuals: Callable[[Floats], Floats], start: Floats, *, scale: Floats, evaluations: int
) -> Solution:
    found = optimize.least_squares(residuals, start, x_scale=scale, max_nfev=evaluations)
    return Solution(
        x=found.x,
        residuals=found.fun,
        jacobian=found.jac,
        evaluations=found.nfev,
        converged=found.status > 0,
    )


@pytest.mark.parametrize(
    ("problem", "start"),
    [
        (rosenbrock, [-1.2, 1.0]),
        (rosenbrock, [3.0, -4.0]),
        (decay, [1.0, 1.0, 0.0]),
        (decay, [4.0, 0.5, 1.0]),
    ],
    ids=["rosenbrock", "rosenbrock from afar", "decay", "decay from afar"],
)
def test_the_solution_is_scipys(problem: Callable[[Floats], Floats], start: list[float]) -> None:
    scale = np.ones(len(start))
    ours = least_squares(problem, np.array(start), scale=scale, evaluations=200)
    theirs = scipys(problem, np.array(start), scale=scale, evaluations=200)
    assert ours.converged
    assert ours.x == pytest.approx(theirs.x, rel=1e-5, abs=1e-8)
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-9, abs=1e-20)
    assert ours.jacobian == pytest.approx(theirs.jacobian, rel=1e-4, abs=1e-5)
    assert ours.residuals == pytest.approx(problem(ours.x))


def test_a_singular_jacobian_at_the_solution_is_no_obstacle() -> None:
    found = least_squares(
        powell, np.array([3.0, -1.0, 0.0, 1.0]), scale=np.ones(4), evaluations=200
    )
    assert np.abs(found.x).max() < 0.01
    assert found.cost < 1e-9


def test_a_variable_that_changes_nothing_stays_where_it_was() -> None:
    found = least_squares(
        lambda x: decay(x[:3]), np.array([1.0, 1.0, 0.0, 7.0]), scale=np.ones(4), evaluations=100
    )
    assert found.x[3] == 7.0
    assert found.x[:3] == pytest.approx(
        scipys(decay, np.array([1.0, 1.0, 0.0]), scale=np.ones(3), evaluations=100).x, rel=1e-5
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 20), st.floats(0.1, 10.0))
def test_a_linear_problem_with_priors_has_its_normal_equations(
    seed: int, n: int, more: int, width: float
) -> None:
    """The priors stand as residual rows, as a calibration appends them."""
    rng = np.random.default_rng(seed)
    matrix, data = rng.standard_normal((n + more, n)), rng.standard_normal(n + more)
    widths = width * np.exp(rng.standard_normal(n))
    found = least_squares(
        lambda x: np.concatenate([matrix @ x - data, x / widths]),
        np.zeros(n),
        scale=widths,
        evaluations=100,
    )
    exact = np.linalg.solve(matrix.T @ matrix + np.diag(widths**-2.0), matrix.T @ data)
    assert found.x == pytest.approx(exact, rel=1e-6, abs=1e-6 * width)


def test_steps_to_where_nothing_is_known_are_taken_back() -> None:
    """The logarithm of a negative number is no residual."""
    with np.errstate(all="ignore"):
        found = least_squares(
            lambda x: np.log(x) - np.log(0.01), np.array([5.0]), scale=np.ones(1), evaluations=100
        )
    assert found.x == pytest.approx([0.01], rel=1e-6)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="not finite"):
        least_squares(np.log, np.array([-1.0]), scale=np.ones(1), evaluations=10)


def test_differences_are_derivatives() -> None:
    x = np.array([1.5, -0.7])
    exact = [[-20.0 * x[0], 10.0], [-1.0, 0.0]]
    assert differences(rosenbrock, x, rosenbrock(x)) == pytest.approx(
        np.array(exact), rel=1e-6, abs=1e-6
    )


def calibrated_by(solver: Any, monkeypatch: pytest.MonkeyPatch) -> CalibrationReport:
    monkeypatch.setattr(sample, "least_squares", solver)
    return calibrate(read_measured(CURVE), data="the example")


def test_a_calibration_has_the_multipliers_that_scipy_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = (calibrated_by(solver, monkeypatch) for solver in (least_squares, scipys))
    assert ours.kept == theirs.kept
    assert ours.strength == theirs.strength
    assert ours.factors == pytest.approx(theirs.factors, rel=1e-4)
    assert ours.shrinkage == pytest.approx(theirs.shrinkage, abs=2e-3)
    for name, error in theirs.left_out.items():
        assert ours.left_out[name] == pytest.approx(error, abs=0.02), name


@given(seed=st.integers(0, 10**6), share=st.floats(0.05, 0.9))
def test_a_step_within_the_radius_lowers_the_model_as_much_as_the_best_of_that_length(
    seed: int, share: float
) -> None:
    """The best has the damping at which its length is the radius, as scipy's root finder has it."""
    rng = np.random.default_rng(seed)
    jacobian, residuals = rng.normal(size=(8, 3)) * [1.0, 10.0, 100.0], rng.normal(size=8)
    model = _Model(jacobian, residuals, np.ones(3))

    def damped(damping: float) -> Floats:
        return np.asarray(
            -np.linalg.solve(jacobian.T @ jacobian + damping * np.eye(3), jacobian.T @ residuals)
        )

    radius = share * float(np.linalg.norm(damped(0.0)))
    best = damped(
        optimize.brentq(lambda damping: np.linalg.norm(damped(damping)) - radius, 0.0, 1e9)
    )
    step = model.step(radius)
    assert np.linalg.norm(step) == pytest.approx(radius)
    assert 0.99 * model.decrease(best) <= model.decrease(step) <= (1 + 1e-6) * model.decrease(best)
    assert model.step(2.0 * radius / share) == pytest.approx(damped(0.0), rel=1e-6)


@pytest.mark.parametrize(
    ("ratio", "length", "radius"),
    [
        (-1.0, 2.0, 0.5),  # worse than before
        (0.24, 2.0, 0.5),
        (0.26, 2.0, 2.0),
        (0.74, 2.0, 2.0),
        (0.76, 1.8, 2.0),  # the radius did not cut it short
        (0.76, 1.92, 4.0),
    ],
)
def test_the_radius_follows_how_well_the_linear_model_predicts(
    ratio: float, length: float, radius: float
) -> None:
    assert _next_radius(2.0, ratio, length) == pytest.approx(radius)


def test_own_terms_start_at_parts_of_the_lightest_and_the_heaviest_load() -> None:
    """One client takes 40 ms for a prompt and 8 ms for a token, 33 clients 16 ms; the one with
    neither is left out."""
    row = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1}
    row |= {"engine": "vllm", "isl": 1_000, "osl": 100}
    rows = [
        row | {"concurrency": 33, "ttft_ms": 90.0, "itl_ms": 16.0},
        row | {"concurrency": 1, "ttft_ms": 40.0, "itl_ms": 8.0},
        row | {"request_rate": 4.0, "e2e_ms": 2_000.0, "ttft_ms": 50.0, "itl_ms": 9.0},
        row | {"concurrency": 500, "ttft_ms": None, "itl_ms": 90.0},
    ]
    found = sample.starts(rows)
    d = read_point(rows[1]).deployment
    precision = d.gpu.executes(d.precision)
    prompt_s = 2 * d.model.common_parameters * 1_000 / matrix_rate(d.gpu, precision)
    weights_s = d.model.common_parameters * 1.0 / (d.gpu.memory_bandwidth_gb_s * 1e9)
    compute, memory = (
        min(max(share, sample.LEAST_SHARE), sample.MOST_SHARE)
        for share in (prompt_s / (sample.PROMPT * 0.04), weights_s / (sample.WEIGHTS * 8e-3))
    )
    assert found == pytest.approx(
        {
            "compute": compute,
            "memory": memory,
            "attention": compute,
            "kv_bandwidth": memory,
            "allreduce_s": sample.ONCE * 8e-3 / d.model.layers,
            "step_s": sample.CONSTANT * 8e-3,
            "sequence_s": sample.SEQUENCE * 8e-3 / 32,
            "prefill_s": sample.ONCE * 0.04,
            "frontend_s": sample.ONCE * 0.04,
            "turnaround_s": sample.TURNAROUND * 0.04,
        }
    )
    flat = [rows[1], rows[0] | {"itl_ms": 8.0}]
    assert sample.starts(flat)["sequence_s"] == pytest.approx(sample.SEQUENCE * 8e-6)
    pair = sample.starts([one | {"tp": 2} for one in rows])
    assert pair["allreduce_s"] == found["allreduce_s"]
    assert pair["compute"] == pytest.approx(max(found["compute"] / 2, sample.LEAST_SHARE))


def visited(start: float, *, scale: float = 1.0, evaluations: int = 20) -> tuple[list[float], Any]:
    """Where a search for 10 looks on a straight line, without its finite differences."""
    places: list[float] = []

    def line(x: Floats) -> Floats:
        places.append(round(float(x[0]), 4))
        return np.array([x[0] - 10.0])

    found = least_squares(line, np.array([start]), scale=np.array([scale]), evaluations=evaluations)
    return list(dict.fromkeys(places)), found


def test_the_first_step_is_as_long_as_the_start_and_the_next_ones_twice_as_long_each() -> None:
    """A linear model predicts itself, so that the radius doubles until it holds the solution."""
    places, found = visited(0.5)
    assert places == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert (found.evaluations, found.converged) == (6, True)
    assert found.x == pytest.approx([10.0])
    assert found.residuals == pytest.approx([0.0], abs=1e-6)
    assert found.jacobian == pytest.approx(np.array([[1.0]]))
    assert visited(0.0)[0] == [0.0, 1.0, 3.0, 7.0, 10.0]
    # in units of the scale: 0.25 of them, a move of 0.5
    assert visited(0.5, scale=2.0)[0] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert visited(0.0, scale=0.5)[0][:3] == [0.0, 0.5, 1.5]
    assert visited(-4.0)[0] == [-4.0, 0.0, 8.0, 10.0]
    places, short = visited(0.5, evaluations=3)
    assert places == [0.5, 1.0, 2.0]
    assert (short.evaluations, short.converged) == (3, False)
    assert short.cost == pytest.approx(32.0)
    there = visited(10.0)[1]
    assert (there.evaluations, there.converged) == (1, True)


def test_differences_step_away_from_zero_by_the_size_of_a_variable() -> None:
    step = float(np.sqrt(np.finfo(float).eps))
    seen: list[list[float]] = []

    def noted(x: Floats) -> Floats:
        seen.append(x.tolist())
        return x

    differences(noted, np.array([4.0, -0.5, 0.0]), np.array([4.0, -0.5, 0.0]))
    assert seen == [
        [pytest.approx(4.0 + 4 * step, rel=1e-15), -0.5, 0.0],
        [4.0, pytest.approx(-0.5 - step, rel=1e-15), 0.0],
        [4.0, -0.5, pytest.approx(step, rel=1e-15)],
    ]


OWN_ROW = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1}
OWN_ROW |= {"engine": "vllm", "isl": 1_000, "osl": 100}


@pytest.mark.parametrize(("rate", "more"), [(40.0, 8e-3 / 79), (0.25, 8e-3 / 32.5)])
def test_requests_at_a_rate_are_as_many_as_are_in_flight(rate: float, more: float) -> None:
    """Of 2 s each: at 40 a second 80, the heaviest load beside 1 client and 33; at one in four
    seconds half a one, the lightest."""
    rows = [
        OWN_ROW | {"concurrency": 33, "ttft_ms": 90.0, "itl_ms": 16.0 if rate < 1 else 10.0},
        OWN_ROW | {"concurrency": 1, "ttft_ms": 40.0, "itl_ms": 8.0 if rate > 1 else 12.0},
        OWN_ROW
        | {"request_rate": rate, "e2e_ms": 2_000.0, "ttft_ms": 50.0}
        | {"itl_ms": 16.0 if rate > 1 else 8.0},
    ]
    half_known = OWN_ROW | {"concurrency": 0.1, "ttft_ms": 1.0}
    found = sample.starts([half_known, *rows])
    assert found["sequence_s"] == pytest.approx(sample.SEQUENCE * more)
    assert found["frontend_s"] == pytest.approx(0.1 * (0.04 if rate > 1 else 0.05))


def test_parts_of_the_lightest_load_at_which_terms_start() -> None:
    """0.6 of a token for the host, half of what a client adds, a tenth of the first token for each
    of its parts, and a fiftieth for the turnaround; shares stay between 1e-5 and 0.9."""
    rows = [
        OWN_ROW | {"concurrency": 1, "ttft_ms": 40.0, "itl_ms": 8.0},
        OWN_ROW | {"concurrency": 21, "ttft_ms": 90.0, "itl_ms": 16.0},
    ]
    found = sample.starts(rows)
    assert found["step_s"] == pytest.approx(0.0048)
    assert found["sequence_s"] == pytest.approx(0.5 * 8e-3 / 20)
    assert found["prefill_s"] == found["frontend_s"] == pytest.approx(0.004)
    assert found["turnaround_s"] == pytest.approx(0.0008)
    assert found["allreduce_s"] == pytest.approx(0.1 * 8e-3 / 32)
    # 6.98 billion weights of a byte in 0.3 of 8 ms at 3.35 TB/s, and twice as many operations for
    # each of 1,000 tokens in 0.7 of 40 ms at 1,979 TFLOPS
    assert found["memory"] == found["kv_bandwidth"] == pytest.approx(6.98 / 8.04, rel=1e-3)
    assert found["compute"] == found["attention"] == pytest.approx(7.054 / 28, rel=1e-3)
    assert sample.starts([row | {"itl_ms": 1.0} for row in rows])["memory"] == 0.9
    slow = sample.starts([row | {"ttft_ms": 1e9, "itl_ms": 1e9} for row in rows])
    assert slow["compute"] == slow["attention"] == slow["memory"] == 1e-5


def test_widths_of_what_no_fitted_row_is_of_are_two_and_a_half_times_as_wide() -> None:
    """Of a GPU its efficiencies, of an engine its host; a term without a learned width has 0.1."""
    terms = shipped()
    row = {**MACHINE, "isl": 800, "osl": 100, "concurrency": 4, **dict.fromkeys(METRICS, 1.0)}
    widths = {"compute": 0.2, "step_s": 0.3}

    def of(**changed: Any) -> dict[str, float]:
        made = sample.Sample(
            [row],
            changed.get("terms", terms),
            preset="nim-2024",
            gpu="h100-sxm-80gb",
            widths=widths,
        )
        return dict(zip(made.names, made.widths.tolist(), strict=True))

    seen = of()
    assert (seen["compute"], seen["step_s"], seen["memory"]) == (0.2, 0.3, 0.1)
    assert "allreduce_s" not in seen
    assert "turnaround_s" in seen
    gpus = {name: of_gpu for name, of_gpu in terms["gpus"].items() if name != "h100-sxm-80gb"}
    unseen = of(terms={**terms, "gpus": gpus})
    assert unseen["compute"] == pytest.approx(0.5)
    assert unseen["memory"] == pytest.approx(0.25)
    assert unseen["step_s"] == 0.3
    wide = sample.Sample([row | {"tp": 2}], terms, preset="nim-2024", gpu="h100-sxm-80gb")
    assert "allreduce_s" in wide.names
    rate = {name: value for name, value in row.items() if name != "concurrency"}
    open_loop = sample.Sample(
        [rate | {"request_rate": 1.0}], terms, preset="nim-2024", gpu="h100-sxm-80gb"
    )
    assert "turnaround_s" not in open_loop.names


def test_a_vector_of_logarithms_and_the_factors_of_a_file_turn_into_each_other() -> None:
    made = sample.Sample(
        [{**MACHINE, "isl": 800, "osl": 100, "batch": 4, "ttft_ms": 1.0, "itl_ms": 1.0}],
        shipped(),
        preset="nim-2024",
        gpu="h100-sxm-80gb",
    )
    x = np.linspace(-0.2, 0.3, len(made.names))
    values = made.values(x)
    assert values == {
        name: float(f"{np.exp(value):.4g}") for name, value in zip(made.names, x, strict=True)
    }
    assert made.vector(values) == pytest.approx(x, abs=1e-3)
    fitted = sample.Fitted(names=made.names, x=x, shrinkage=np.ones(len(x)))
    assert fitted.multipliers() == values
    assert made.vector(dict.fromkeys(made.names, 1.0)).tolist() == [0.0] * len(x)
    terms = made.at(x)
    engine, step = terms["engines"]["nim-2024"], shipped()["engines"]["nim-2024"]["step_s"]
    assert engine["step_s"] == pytest.approx(step * values["step_s"], rel=1e-3)


def test_a_step_that_is_hardly_too_long_is_the_free_one_cut_to_the_radius() -> None:
    """Within a hundredth of the radius no damping is searched for; beyond, the step turns."""
    model = _Model(np.diag([1.0, 3.0]), np.array([-4.0, -2.0]), np.ones(2))
    free = np.array([4.0, 2.0 / 3.0])
    length = float(np.linalg.norm(free))
    assert model.step(length) == pytest.approx(free, rel=1e-12)
    assert model.step(length * 0.995) == pytest.approx(free * 0.995, rel=1e-12)
    turned = model.step(length * 0.5)
    assert np.linalg.norm(turned) == pytest.approx(length * 0.5)
    assert turned[1] / turned[0] > 1.3 * free[1] / free[0]
    assert model.decrease(free) == pytest.approx((16 + 4) / 2)
    assert model.gradient.tolist() == [-4.0, -6.0]
