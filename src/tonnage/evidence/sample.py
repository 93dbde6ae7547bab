"""Factors on the shipped terms that explain a few measured points: least squares with a prior on
every factor.

What moves is the logarithm of a factor. It starts at 0, which means as shipped, and moving it costs
(logarithm / width)². The widths say how far an engine's build, clocks or host were from what the
terms were fitted on, for groups that were left out of the fit. So whatever the points cannot tell
stays as shipped. Between simulations the rows are linear in what their steps take
(``loaded_rows``). The client's turnaround shifts arrivals and no step, so it enters by the
difference of two simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tonnage.evidence.predict import read_point
from tonnage.evidence.rows import (
    SIGMA,
    STATIC_SIGMA,
    LoadedRows,
    Rows,
    StaticRows,
    Terms,
    column,
    robust,
)
from tonnage.perf.matrices import matrix_rate
from tonnage.perf.ranges import fitted_engine
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms_file import ACTS_ON, OF_THE_GPU, overlaid, with_own_terms
from tonnage.spec.calibration import MULTIPLIERS, OWN_TERMS, Calibration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Residuals = Callable[[Floats], Floats]


# Nonlinear least squares in numpy: Levenberg–Marquardt as a trust region, for the few dozen
# residuals of a calibration. The method is that of Moré, "The Levenberg-Marquardt algorithm:
# implementation and theory" (1978). Every step minimises the linearised residuals inside a ball
# whose radius grows where the linear model predicts well and shrinks where it does not. A singular
# value decomposition of the Jacobian gives the step for any damping, and Newton's method finds the
# damping whose step has the length of the radius. Priors need no code of their own here: the caller
# appends them as further residuals. ``tests/evidence/test_sample.py`` compares the solutions
# with those of ``scipy.optimize.least_squares``.


# The search ends when the sum of squares, or the solution itself, changes by less than this share
# in one step
TOLERANCE = 1e-8

# Step of the finite differences, relative to the size of a variable, of at least 1
DIFFERENCE = float(np.sqrt(np.finfo(float).eps))

# Actual over predicted decrease below which the radius shrinks, and above which it may grow
POOR, GOOD = 0.25, 0.75

# Share of the radius from which a step counts as one that the radius has cut short
AT_THE_EDGE = 0.95

RADIUS_ERROR, MOST_NEWTON_STEPS = 0.01, 20
"""How exactly a damped step has the length of the radius, and how many Newton steps may go into
that."""

# Where the damping starts if some direction changes no residual, relative to the largest that can
# be needed
LEAST_DAMPING = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Where a search ended."""

    x: Floats  # float64 (n,), the solution
    residuals: Floats  # float64 (m,), the residuals there
    jacobian: Floats  # float64 (m, n), their derivatives there
    # how often the residuals were requested, those of the finite differences not counted
    evaluations: int
    converged: bool  # False where the evaluations were used up before the tolerance was reached

    @property
    def cost(self) -> float:
        """Half the sum of the squared residuals."""
        return 0.5 * float(self.residuals @ self.residuals)


def least_squares(
    residuals: Residuals, start: Floats, *, scale: Floats, evaluations: int
) -> Solution:
    """The vector that makes the sum of squared residuals smallest, searched from ``start``.

    Args:
        residuals: gives float64 (m,) for a float64 (n,), with m ≥ n and finite values at ``start``.
        start: where the search begins, float64 (n,).
        scale: the size of a typical move of each variable, float64 (n,), above 0: the radius is
            measured in it.
        evaluations: how often the residuals may be asked for, those of the finite differences not
            counted.

    Returns:
        A local minimum, or the best vector found where the evaluations were used up.

    Raises:
        ValueError: the residuals are not finite at ``start``.
    """
    x, at_x = start.astype(float), residuals(start)
    if not np.isfinite(at_x).all():
        raise ValueError("the residuals are not finite where the search begins")
    model = _Model(differences(residuals, x, at_x), at_x, scale)
    radius = float(np.linalg.norm(x / scale)) or 1.0
    used, converged = 1, False
    while used < evaluations and not converged:
        if np.abs(model.gradient).max() < TOLERANCE:
            converged = True
            break
        step = model.step(radius)
        candidate = x + scale * step
        at_candidate = residuals(candidate)
        used += 1
        length = float(np.linalg.norm(step))
        if not np.isfinite(at_candidate).all():
            radius = POOR * length
            continue
        cost = 0.5 * float(at_x @ at_x)
        decrease, predicted = cost - 0.5 * float(at_candidate @ at_candidate), model.decrease(step)
        ratio = decrease / predicted if predicted > 0 else 0.0
        still = np.linalg.norm(scale * step) < TOLERANCE * (TOLERANCE + np.linalg.norm(x))
        converged = bool(still or (decrease < TOLERANCE * cost and ratio > POOR))
        radius = _next_radius(radius, ratio, length)
        if decrease > 0:
            x, at_x = candidate, at_candidate
            model = _Model(differences(residuals, x, at_x), at_x, scale)
    return Solution(
        x=x, residuals=at_x, jacobian=model.jacobian, evaluations=used, converged=converged
    )


def differences(residuals: Residuals, x: Floats, at: Floats) -> Floats:
    """The Jacobian by forward differences, float64 (m, n), at ``x`` (n,), where the value is ``at``
    (m,).
    """
    columns = []
    for i, value in enumerate(x):
        moved = x.copy()
        moved[i] += DIFFERENCE * max(1.0, abs(value)) * (1.0 if value >= 0 else -1.0)
        columns.append((residuals(moved) - at) / (moved[i] - value))
    return np.array(columns).T


def _next_radius(radius: float, ratio: float, length: float) -> float:
    """The radius after a step of that length, whose decrease was ``ratio`` times the predicted
    one.
    """
    if ratio < POOR:
        return POOR * length
    return 2.0 * radius if ratio > GOOD and length > AT_THE_EDGE * radius else radius


class _Model:
    """The residuals linearised around one point; steps are in scaled variables."""

    def __init__(self, jacobian: Floats, residuals: Floats, scale: Floats) -> None:
        self.jacobian, self.residuals, self.scaled = jacobian, residuals, jacobian * scale
        self.gradient = jacobian.T @ residuals
        left_vectors, self.singular, self.right = np.linalg.svd(self.scaled, full_matrices=False)
        self.along = left_vectors.T @ residuals

    def decrease(self, step: Floats) -> float:
        """How much a step lowers half the sum of squares of the linear model."""
        change = self.scaled @ step
        return -float(change @ self.residuals + 0.5 * change @ change)

    def step(self, radius: float) -> Floats:
        """The step of at most the radius's length that lowers the linear model most."""
        s, pull = self.singular, self.singular * self.along
        low, high = 0.0, float(np.linalg.norm(pull)) / radius
        damping = LEAST_DAMPING * high
        if s[-1] > np.finfo(float).eps * len(self.residuals) * s[0]:
            free = self._damped(0.0)
            if np.linalg.norm(free) <= radius:
                return free
            damping = 0.0
        for _ in range(MOST_NEWTON_STEPS):
            damping = damping if low <= damping <= high else 0.5 * (low + high)
            lengths = pull / (s**2 + damping)
            length = float(np.linalg.norm(lengths))
            excess = length - radius
            if abs(excess) < RADIUS_ERROR * radius:
                break
            low, high = (damping, high) if excess > 0 else (low, damping)
            damping += excess / radius * length**2 / float(lengths**2 @ (1.0 / (s**2 + damping)))
        damped_step = self._damped(damping)
        return np.asarray(damped_step * (radius / np.linalg.norm(damped_step)))

    def _damped(self, damping: float) -> Floats:
        """The minimum of the linear model plus damping times the squared length."""
        return np.asarray(
            -self.right.T @ (self.singular * self.along / (self.singular**2 + damping))
        )


START_WIDTH = 0.1
"""The width of the logarithm of each factor before any group has been looked at; the fit learns
widths from groups that it left out."""

UNSEEN = 2.5  # How many times as wide the prior is for a GPU or an engine that no fitted row is of

# The weight of a residual: E2E, TPOT and requests/s of one point are nearly one number, and points
# of one curve are alike
WEIGHT = 0.5

ROUNDS, EVALUATIONS = 3, 40

# By how much the logarithm of the turnaround differs between the two simulations
TURNAROUND_STEP = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Factors that explain some rows."""

    names: tuple[str, ...]  # the terms
    x: Floats  # float64 (terms,), the logarithms of their factors
    # float64 (terms,), the posterior width of each over its prior width: 1 where the rows say
    # nothing about it
    shrinkage: Floats

    def multipliers(self) -> dict[str, float]:
        """The factors by term, rounded to four digits as a file holds them."""
        return _rounded(zip(self.names, np.exp(self.x).tolist(), strict=True))


def _rounded(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values}


@dataclass(slots=True)
class _Part:
    """The rows of one kind, and the places that they have among all rows."""

    rows: Rows
    places: NDArray[np.int64]
    shifted: LoadedRows | None = None
    slopes: dict[str, Floats] = field(default_factory=dict)


class Sample:
    """Measured rows of one engine preset on one GPU; ``loaded`` reads and simulates those under
    load.
    """

    loaded: ClassVar[type[LoadedRows]] = LoadedRows

    def __init__(
        self,
        rows: Sequence[dict[str, Any]],
        terms: Terms,
        *,
        preset: str,
        gpu: str,
        widths: Mapping[str, float] | None = None,
    ) -> None:
        """Look up the rows, all of one preset and GPU, and find the factors on the groups ``terms``
        that act on them.

        ``widths`` are the prior's of the logarithm of each factor; the learned ones of the fit if
        not given.
        """
        self.rows, self.terms, self.preset, self.gpu = list(rows), terms, preset, gpu
        static = np.array([row.get("batch") is not None for row in self.rows])
        self.parts: list[_Part] = []
        if static.any():
            places = np.flatnonzero(static)
            self.parts.append(_Part(StaticRows([self.rows[i] for i in places]), places))
        if not static.all():
            places = np.flatnonzero(~static)
            mine = [self.rows[i] for i in places]
            self.parts.append(_Part(self.loaded(mine), places, self.loaded(mine)))
        self.names = self._tellable()
        unseen = {True: gpu not in terms["gpus"], False: not fitted_engine(preset, gpu)}
        prior_widths = shipped_residuals().widths if widths is None else widths
        of_one = [prior_widths.get(name, START_WIDTH) for name in self.names]
        self.widths = np.array(
            [
                w * (UNSEEN if unseen[n in OF_THE_GPU] else 1.0)
                for n, w in zip(self.names, of_one, strict=True)
            ]
        )

    def _tellable(self) -> tuple[str, ...]:
        """The factors that act on any of these rows."""
        engine = self.terms["engines"][self.preset]
        points = [point for part in self.parts for point in part.rows.points]
        names = []
        for name in MULTIPLIERS:
            acts = name in OF_THE_GPU or any(engine.get(term, 0.0) for term, _ in ACTS_ON[name])
            if name == "allreduce_s":
                acts = acts and any(point.deployment.parallelism.tp > 1 for point in points)
            if name == "turnaround_s":
                acts = acts and any(point.concurrency is not None for point in points)
            if acts:
                names.append(name)
        return tuple(names)

    def at(self, x: Floats) -> Terms:
        """The terms with the factors of a vector."""
        factors = tuple(zip(self.names, np.exp(x).tolist(), strict=True))
        return overlaid(
            self.terms,
            Calibration(preset=self.preset, gpu=self.gpu, multipliers=factors, data=""),
            self.gpu,
        )

    def simulate(self, x: Floats) -> None:
        """Simulate every row with these factors, and once more with a slower client."""
        terms = self.at(x)
        for part in self.parts:
            part.rows.simulate(terms)
            if part.shifted is not None and "turnaround_s" in self.names:
                moved = x.copy()
                moved[self.names.index("turnaround_s")] += TURNAROUND_STEP
                part.shifted.simulate(self.at(moved))
                now = part.rows.predict(terms)
                part.slopes = {
                    name: np.log(part.shifted.simulated(name) / now[name]) / TURNAROUND_STEP
                    for name in now
                }

    def slopes(self) -> dict[str, Floats]:
        """How much the logarithm of every metric changes per unit of the logarithm of each factor,
        as shipped: float64 (rows, terms).

        The rows are simulated for it; measurements do not count.
        """
        shipped = np.zeros(len(self.names))
        self.simulate(shipped)
        by_metric: dict[str, Floats] = {}
        for part in self.parts:
            for name in part.rows.measured:

                def logarithm(x: Floats, part: _Part = part, name: str = name) -> Floats:
                    return np.asarray(np.log(part.rows.predict(self.at(x))[name]))

                slopes = differences(logarithm, shipped, logarithm(shipped))
                if name in part.slopes:
                    slopes[:, self.names.index("turnaround_s")] = part.slopes[name]
                by_metric.setdefault(name, np.full((len(self.rows), len(self.names)), np.nan))[
                    part.places
                ] = slopes
        return by_metric

    def residuals(self, x: Floats, around: Floats, keep: NDArray[np.bool_]) -> Floats:
        """The robust residuals of the rows that are kept, linearised around the last simulation."""
        terms = self.at(x)
        moved = 0.0
        if "turnaround_s" in self.names:
            place = self.names.index("turnaround_s")
            moved = float(x[place] - around[place])
        residual_parts = []
        for part in self.parts:
            predicted = part.rows.predict(terms)
            for name, measured in part.rows.measured.items():
                usable = np.isfinite(measured) & keep[part.places]
                error = np.log(predicted[name][usable] / measured[usable])
                if name in part.slopes:
                    error = error + moved * part.slopes[name][usable]
                residual_parts.append(
                    WEIGHT
                    * robust(
                        error / (SIGMA[name] if isinstance(part.rows, LoadedRows) else STATIC_SIGMA)
                    )
                )
        return np.concatenate(residual_parts)

    def values(self, x: Floats) -> dict[str, float]:
        """The factors of a vector by term, rounded to four digits as a file holds them."""
        return _rounded(zip(self.names, np.exp(x).tolist(), strict=True))

    def vector(self, values: Mapping[str, float]) -> Floats:
        """The vector of some factors."""
        return np.log([values[name] for name in self.names])

    def shipped_errors(self, keep: NDArray[np.bool_]) -> dict[str, Floats]:
        """The errors of the kept rows with the shipped terms."""
        return self.errors(np.zeros(len(self.names)), keep)

    def errors(self, x: Floats, keep: NDArray[np.bool_]) -> dict[str, Floats]:
        """Logarithms of predicted over measured values of the kept rows, simulated with these
        factors; NaN where not measured.
        """
        return self.errors_with(self.at(x), keep)

    def errors_with(self, terms: Terms, keep: NDArray[np.bool_]) -> dict[str, Floats]:
        """The same with any terms."""
        by_metric: dict[str, Floats] = {}
        for part in self.parts:
            places = part.places[keep[part.places]]
            if not places.size:
                continue
            mine = [self.rows[i] for i in places]
            rows: Rows = type(part.rows)(mine)
            rows.simulate(terms)
            predicted = rows.predict(terms)
            for name, measured in rows.measured.items():
                values = by_metric.setdefault(name, np.full(len(self.rows), np.nan))
                values[places] = np.log(predicted[name] / measured)
        return by_metric


def fit_sample(
    sample: Sample,
    keep: NDArray[np.bool_],
    *,
    strength: float = 1.0,
    rounds: int = ROUNDS,
    start: Floats | None = None,
) -> Fitted:
    """The factors that explain the kept rows best.

    Args:
        sample: the rows.
        keep: bool (rows,), which rows to explain.
        strength: multiplies the prior's widths; a small one keeps the factors near 1.
        rounds: how often all rows are simulated; 0 fits around the last simulation.
        start: the logarithms at which the search begins; those of the shipped terms if not given.
    """
    width = strength * sample.widths
    x = np.zeros(len(width)) if start is None else start.copy()
    around = x.copy()
    jacobian = np.zeros((0, len(width)))
    for _ in range(max(rounds, 1)):
        if rounds:
            sample.simulate(x)
            around = x.copy()

        def objective(y: Floats, around: Floats = around) -> Floats:
            return np.concatenate([sample.residuals(y, around, keep), y / width])

        solution = least_squares(objective, x, scale=width, evaluations=EVALUATIONS)
        x, jacobian = solution.x, solution.jacobian
    posterior = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))
    return Fitted(names=sample.names, x=x, shrinkage=posterior / width)


# New terms that explain eight or more loads of one deployment: the same least squares, from starts
# that the loads suggest. What moves is the logarithm of a term over its start. The prior is wide, a
# factor of three to four either way: it holds only what the loads cannot tell, such as how much of
# a step's constant part is weights and how much the host. Starts come from the lightest and the
# heaviest load, so that the simulations, around which the rows are linear, begin near the measured
# machine. The turnaround is not searched: it is small, and only keeps clients whose requests end
# together from sending the next ones at the same instant.


# The number of different loads below which own terms are not fitted: there are eight of them
FEWEST_LOADS = 8

WIDTHS = {"attention": 0.7, "kv_bandwidth": 0.7}
# The prior's width of the logarithm of each term; attention is held nearer to the other shares of
# the datasheet
WIDTH = 1.3

LEAST_SHARE, MOST_SHARE = 1e-5, 0.9  # Between which a share of the datasheet's rates starts

CONSTANT, WEIGHTS, PROMPT, SEQUENCE, ONCE, TURNAROUND = 0.6, 0.3, 0.7, 0.5, 0.1, 0.02
"""Parts of the lightest load at which terms start: of a token the host and the weights; of the
first token the prompt's arithmetic; of what a further client adds to a token the host's part; of
the first token the front end, the rest of a prefill, and the turnaround."""


class OwnSample(Sample):
    """Measured rows of one engine preset on one GPU, explained by their own terms."""

    def __init__(
        self, rows: Sequence[dict[str, Any]], terms: Terms, *, preset: str, gpu: str
    ) -> None:
        """Look up rows under load with TTFT and TPOT, of one GPU and preset, and find where the
        terms start.
        """
        super().__init__(rows, terms, preset=preset, gpu=gpu, widths={})
        self.start = starts(self.rows)
        absent = (
            {"turnaround_s"}
            if any(row["tp"] > 1 for row in self.rows)
            else {"turnaround_s", "allreduce_s"}
        )
        self.names = tuple(name for name in OWN_TERMS if name not in absent)
        self.widths = np.array([WIDTHS.get(name, WIDTH) for name in self.names])

    def values(self, x: Floats) -> dict[str, float]:
        """The terms of a vector, rounded to four digits as a file holds them."""
        return _rounded(self._all(x).items())

    def vector(self, values: Mapping[str, float]) -> Floats:
        """The vector of some terms."""
        return np.log([values[name] / self.start[name] for name in self.names])

    def at(self, x: Floats) -> Terms:
        """The groups of ``terms.json`` with the terms of a vector."""
        return with_own_terms(self.terms, self._all(x), self.preset)

    def shipped_errors(self, keep: NDArray[np.bool_]) -> dict[str, Floats]:
        """The errors of the kept rows with what would be transferred to this hardware."""
        return self.errors_with(self.terms, keep)

    def _all(self, x: Floats) -> dict[str, float]:
        """The terms of a vector, with the turnaround, which is not searched."""
        terms = {
            name: self.start[name] * factor
            for name, factor in zip(self.names, np.exp(x).tolist(), strict=True)
        }
        return {**terms, "turnaround_s": self.start["turnaround_s"]}


def starts(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Where the terms start: parts of what the lightest and the heaviest load took."""
    ttft, tpot, isl = (
        column([dict(row) for row in rows], name) for name in ("ttft_ms", "itl_ms", "isl")
    )
    load = np.array(
        [
            float(
                row.get("concurrency")
                or (row.get("request_rate") or 0.0) * (row.get("e2e_ms") or 0.0) / 1e3
            )
            for row in rows
        ]
    )
    complete = np.flatnonzero(np.isfinite(ttft) & np.isfinite(tpot))
    light, heavy = complete[np.argmin(load[complete])], complete[np.argmax(load[complete])]
    token, first = tpot[light] / 1e3, ttft[light] / 1e3
    more = (tpot[heavy] - tpot[light]) / 1e3 / max(load[heavy] - load[light], 1.0)
    d = read_point(rows[int(light)]).deployment
    precision, tp = d.gpu.executes(d.precision), d.parallelism.tp
    prompt = 2 * d.model.common_parameters * isl[light] / (tp * matrix_rate(d.gpu, precision))
    weights = (
        d.model.common_parameters
        * precision.weight_bytes
        / (tp * d.gpu.memory_bandwidth_gb_s * 1e9)
    )
    compute, memory = (
        float(np.clip(share, LEAST_SHARE, MOST_SHARE))
        for share in (prompt / (PROMPT * first), weights / (WEIGHTS * token))
    )
    return {
        "compute": compute,
        "memory": memory,
        "attention": compute,
        "kv_bandwidth": memory,
        "allreduce_s": ONCE * token / d.model.layers,
        "step_s": CONSTANT * token,
        "sequence_s": SEQUENCE * max(more, token / 1e3),
        "prefill_s": ONCE * first,
        "frontend_s": ONCE * first,
        "turnaround_s": TURNAROUND * first,
    }
