"""What measuring the choice of a plan would buy: fewer systems on average, before anybody has
measured.

Steps take F times as long as predicted, and F is distributed as the held-out errors say
(``sizing.loads.confidence``). Of the variance of its logarithm a calibration leaves a share k²:
that of the errors of calibrated predictions, and of the rest as much as the points cannot tell
(``design``). What it finds is as wide as the variance that it takes away: the law of total
variance. So if it finds a time at the quantile q of what it may find, the number of systems at a
confidence p afterwards is the one at the factor

    log f(p) = median + sqrt(1 − k²) · (Q(q) − median) + k · (Q(p) − median),

where Q are the quantiles of the logarithm now. The expected number is the mean over q: what an
experiment is worth before it is made (Raiffa and Schlaifer, "Applied Statistical Decision Theory",
1961). With k = 1 nothing changes, and p and q together never say more than Q.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tonnage.errors import InputError
from tonnage.evidence.predict import Point
from tonnage.evidence.rows import SIGMA, LoadedRows
from tonnage.evidence.sample import WEIGHT, Sample
from tonnage.perf.pipeline import start_seconds
from tonnage.perf.residuals import FEWEST_OWN
from tonnage.perf.terms_file import shipped
from tonnage.plan.candidate import BESIDE, MOST_TIMES, Candidate, percent_key
from tonnage.plan.sensitivity import Measurement, Sweep
from tonnage.sizing.loads.confidence import Slowdown, StepErrors, factors_at, metric_of
from tonnage.sizing.loads.instance import QUICK, Instance
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.sizing.search.search_space import narrowed, prepare
from tonnage.spec.catalog import find_engine, find_gpu

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.plan.plan import Plan
    from tonnage.sizing.loads.runs import Runs
    from tonnage.sizing.question import Question

    Floats = NDArray[np.float64]


FOUND = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of what a calibration may find at which the load of an instance is looked at; between
them it is interpolated."""

# Quantiles over which the number of systems is averaged
OUTCOMES = tuple((i + 0.5) / 40 for i in range(40))

HALF_OF = (0.1, 0.9)
"""The quantiles between which the widths of two distributions are compared: the 80 % interval that
is calibrated on held-out rows."""

LEAST_SECONDS, LIFETIMES, STEP_SECONDS = 60, 10, 10
"""How long each load of a sweep sends: so long at least, so many times the time of a request, in
whole steps."""


def with_measurement(plan: Plan, question: Question, runs: Runs) -> Plan:
    """The plan with what measuring its choice would buy; from ``runs``, its search's memory, all
    loads but a few short ones are read.
    """
    return replace(plan, measurement=measurement(question, plan, runs))


def measurement(question: Question, plan: Plan, runs: Runs) -> Measurement | None:
    """What measuring the choice would buy; None where it cannot be said.

    It applies to a choice whose number of systems is predicted with the shipped terms, at a
    confidence. A job and a replayed recording are left out: their loads are not read from runs of
    one instance.
    """
    choice = plan.choice
    if (
        choice is None
        or not question.deepen
        or plan.existing is not None
        or not _measurable(question, choice)
    ):
        return None
    contender, clients = contender_of(question, choice, runs), choice.concurrency_per_instance
    if contender is None or clients is None:
        return None
    deciding = metric_of(choice.binds)
    rate = choice.sized_rate if question.load == "open" else None
    points = design(contender.running, deciding, rate=rate, clients=clients)
    if points is None:
        return None
    return _Outcomes(contender=contender, choice=choice, points=points).measurement(deciding)


def _measurable(question: Question, choice: Candidate) -> bool:
    """Whether the deployment is one that can be measured and calibrated, and that nobody has
    calibrated yet.
    """
    uncalibrated = question.calibration is None and question.step_source is None
    of_sessions = question.sharing is not None and question.sharing.recorded is not None
    traffic = question.recording is None and not question.offline and not of_sessions
    if (
        not (uncalibrated and traffic)
        or choice.confidence is None
        or len(choice.pools) != 1
        or choice.knobs is None
    ):
        return False
    if (
        choice.parallelism.pp > 1
        or choice.engine != choice.engine_preset
        or choice.knobs.scheduler == "static"
    ):
        return False
    try:
        return find_gpu(choice.gpu).name == choice.gpu
    except InputError:  # hardware that a file describes gets new terms
        return False


def contender_of(question: Question, choice: Candidate, runs: Runs) -> Contender | None:
    """The chosen deployment under the load of the question, with the runs of the search."""
    narrowed_question = narrowed(question, choice)
    for candidate in prepare(narrowed_question, runs):
        if (
            isinstance(candidate, Ready)
            and candidate.trial.deployment.knobs == choice.knobs
            and candidate.trial.deployment.speculation is None
        ):
            return Contender(question=narrowed_question, ready=candidate, runs=runs)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Afterwards(StepErrors):
    """The errors of a prediction after a calibration that finds steps at a quantile of what it may
    find.
    """

    kept: float  # the width that is left, as a share of that of the errors now
    found: float  # the quantile

    def factor(self, p: float) -> float:
        """As without a calibration, with the width that is left around what was found."""
        middle, low, high = (
            math.log(super(Afterwards, self).factor(quantile)) for quantile in (0.5, self.found, p)
        )
        return math.exp(
            middle + math.sqrt(1 - self.kept**2) * (low - middle) + self.kept * (high - middle)
        )


def width_left(errors: StepErrors, variance_left: float) -> float:
    """The width of a prediction's error after a calibration, over that before; ``variance_left`` is
    the share of its variance that stays.
    """
    calibrated = replace(errors, regime=replace(errors.regime, calibrated=True))
    before, after = (
        math.log(step_errors.factor(HALF_OF[1]) / step_errors.factor(HALF_OF[0]))
        for step_errors in (errors, calibrated)
    )
    share = min((after / before) ** 2, 1.0)
    return math.sqrt(share + (1 - share) * variance_left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcomes:
    """The systems that a load takes after calibrations of the choice."""

    contender: Contender  # the choice under its load
    choice: Candidate  # as the plan has it
    points: Design  # that are measured

    def measurement(self, deciding: str) -> Measurement:
        """The statements about them; ``deciding`` is the metric that ends the load."""
        question, sweeps = self.contender.question, tuple(self._sweeps())
        confidence, now = question.confidence, self._now()
        systems_at = {
            level: self._systems(self._rate(self._after(level, 0.5)))
            for level in sorted({*BESIDE, confidence})
        }
        return Measurement(
            model=self.contender.instance.deployment.model.name,
            confidence=confidence,
            sweeps=sweeps,
            seconds=self._seconds(sweeps),
            left=self.points.left_of[deciding],
            systems=now,
            after=self._between(
                now, {percent_key(level): count for level, count in systems_at.items()}
            ),
            expected_systems=None
            if now.get(percent_key(confidence)) is None
            else self._expected(confidence),
        )

    def _now(self) -> dict[str, int | None]:
        """Systems at each confidence, with all standby ones."""
        confidence = self.choice.confidence
        systems = {} if confidence is None else confidence.systems
        return {
            level: None if count is None else count + self._standby
            for level, count in systems.items()
        }

    @property
    def _standby(self) -> int:
        """Standby systems, which the confidence does not count."""
        return 0 if self.choice.standby is None else self.choice.standby.extra_systems

    @property
    def _level(self) -> float | None:
        """The confidence that decided the number of systems; None where the prediction as it is
        did.
        """
        confidence, requested_level = self.choice.confidence, self.contender.question.confidence
        levels = sorted(
            {level for level in (*BESIDE, requested_level) if level <= requested_level},
            reverse=True,
        )
        return next(
            (
                level
                for level in levels
                if confidence is not None and confidence.systems.get(percent_key(level)) is not None
            ),
            None,
        )

    def _after(self, level: float, quantile: float) -> Slowdown:
        """The factors by which times are longer at a confidence, after a calibration that finds
        them at a quantile.
        """
        errors = self.contender.errors
        after = {
            name: Afterwards(
                metric=step_errors.metric,
                regime=step_errors.regime,
                residuals=step_errors.residuals,
                kept=width_left(step_errors, self.points.left_of.get(name, 1.0)),
                found=quantile,
            )
            for name, step_errors in errors.items()
        }
        return factors_at(after, level).times(self.contender.question.step_factor)

    def _capacity(self, slowdown: Slowdown) -> float:
        return self.contender.capacity(self.choice.instances, slowdown, care=QUICK).rate

    def _rate(self, slowdown: Slowdown) -> float:
        """Requests per second of one instance: those of short runs, scaled so that now they are
        what the plan counts on; 0 for none.
        """
        level = self._level
        capacity = self._capacity(
            self.contender.as_asked if level is None else self.contender.slowdown(level)
        )
        return self._capacity(slowdown) * (
            self.choice.sized_rate / capacity if capacity > 0 else 1.0
        )

    def _systems(self, rate: float) -> int | None:
        """Systems of instances that carry ``rate`` each, spare and standby ones included; None
        where nobody would buy them.
        """
        contender = self.contender
        if rate <= 0:
            return None
        systems = (
            contender.layout.carrying(contender.load, rate).systems
            + contender.question.spare
            + self._standby
        )
        return systems if systems <= MOST_TIMES * self.choice.systems else None

    def _between(
        self, now: Mapping[str, int | None], systems: Mapping[str, int | None]
    ) -> dict[str, int | None]:
        """The systems afterwards, no further from those at 50 % than now: a difference beyond is
        scatter of runs.
        """
        middle = now.get(percent_key(BESIDE[0]))
        bounded: dict[str, int | None] = {}
        for level, after in systems.items():
            before = now.get(level)
            count = after if after is None or middle is None else max(after, middle)
            bounded[level] = (
                before if count is None else count if before is None else min(count, before)
            )
        return bounded

    def _expected(self, level: float) -> float:
        """The mean number of systems at a confidence, between the loads of ``FOUND``; one that
        nobody would buy counts as the most.
        """
        least = self.contender.load / (MOST_TIMES * self.choice.instances)
        rates = [max(self._rate(self._after(level, quantile)), least) for quantile in FOUND]
        between = np.exp(np.interp(OUTCOMES, FOUND, np.log(rates)))
        most_systems = MOST_TIMES * self.choice.systems
        counts = [self._systems(float(rate)) or most_systems for rate in between]
        return float(np.mean(counts))

    def _sweeps(self) -> list[Sweep]:
        """The points by their lengths, in the order of their choice."""
        kinds: dict[tuple[int, int], list[int]] = {}
        for place, point in enumerate(self.points.points):
            kinds.setdefault((point.isl, point.osl), []).append(place)
        return [
            Sweep(
                isl=isl,
                osl=osl,
                concurrency=tuple(sorted(self.points.points[i].clients for i in places)),
                seconds=self._sending(places),
            )
            for (isl, osl), places in kinds.items()
        ]

    def _sending(self, places: list[int]) -> int:
        """Seconds that each load of a sweep sends."""
        longest = LIFETIMES * max(self.points.e2e_s[place] for place in places)
        return math.ceil(max(longest, LEAST_SECONDS) / STEP_SECONDS) * STEP_SECONDS

    def _seconds(self, sweeps: tuple[Sweep, ...]) -> float:
        """Seconds that an instance takes to start and to answer all of them."""
        sending = sum(len(sweep.concurrency) * sweep.seconds for sweep in sweeps)
        return start_seconds(self.contender.instance.deployment) + sending + sum(self.points.e2e_s)


# Which points of a deployment to measure, so that a calibration on them tells most about one load:
# a c-optimal design, found greedily.


POINTS = 10
"""Points of a design: as many as the curves had from which the errors of calibrated predictions
were learned (docs/intervals.md)."""

SHAPES = ((1.0, 1.0), (0.25, 1.0), (1.0, 0.25), (0.25, 4.0))
"""Lengths that may be measured, of prompts and outputs, in times those of the question; no request
is longer than its longest."""

SHORTEST = 16  # Fewest tokens of a length that is shorter than that of the question

ABOVE, MOST_CLIENTS = 2, 512
"""Clients of a point at most: in times the requests in flight at the answer's load, and of what one
benchmark client can keep up."""

# Requests of each client of a simulated point, and those of the load
ROUNDS, LOAD_REQUESTS = 3, 1_000

# What a benchmark measures of each point
METRICS = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoad:
    """A closed loop: prompt and output tokens of every request, and clients."""

    isl: int
    osl: int
    clients: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Points to measure."""

    points: tuple[ClosedLoad, ...]  # in the order in which they were chosen
    e2e_s: tuple[float, ...]  # the mean time of a request of each of them, in seconds, as predicted
    # share of the variance of the deciding metric at the load that is left after so many of the
    # points, from none (1.0) on
    left: tuple[float, ...]
    left_of: Mapping[str, float]  # the same after all of them, of each metric


class _PredictedRows(LoadedRows):
    """Points that nobody has measured: each row holds its ``Point``."""

    def point(self, row: dict[str, Any]) -> Point:
        point: Point = row["point"]
        return point


class _PredictedSample(Sample):
    loaded: ClassVar[type[LoadedRows]] = _PredictedRows


def design(
    instance: Instance, deciding: str, *, rate: float | None, clients: float
) -> Design | None:
    """The points that tell most about a metric of an instance under the load of an answer; None
    where fewer than six can be measured.

    Args:
        instance: the measured instance.
        deciding: the metric, such as "itl_ms" or "requests_s".
        rate: requests per second of the instance's open loop; None where it is a closed one.
        clients: requests in flight under that load.
    """
    grid = tuple(_grid(instance, clients))
    if len(grid) < FEWEST_OWN:
        return None
    deployment, (isl, osl) = instance.deployment, _lengths(instance)
    requests = max(LOAD_REQUESTS, round(ROUNDS * clients))
    load = Point(
        deployment=deployment,
        isl=isl,
        osl=osl,
        request_rate=rate,
        concurrency=None if rate is not None else max(round(clients), 1),
        requests=requests,
    )
    points = [
        Point(
            deployment=deployment,
            isl=closed_load.isl,
            osl=closed_load.osl,
            concurrency=closed_load.clients,
            requests=ROUNDS * closed_load.clients,
        )
        for closed_load in grid
    ]
    rows = [_row(point) for point in (*points, load)]
    sample = _PredictedSample(
        rows, shipped(), preset=find_engine(deployment.engine).coefficients, gpu=deployment.gpu.name
    )
    slopes = {name: values * sample.widths for name, values in sample.slopes().items()}
    sensitivities = np.stack(
        [values[:-1] * WEIGHT / SIGMA[name] for name, values in slopes.items()], axis=2
    )
    target_slopes = {name: values[-1] for name, values in slopes.items()}
    chosen, remaining, information = greedy(sensitivities, target_slopes[deciding])
    e2e_s = sample.parts[0].rows.simulated("e2e_ms") / 1e3  # type: ignore[union-attr]
    return Design(
        points=tuple(grid[place] for place in chosen),
        e2e_s=tuple(float(e2e_s[place]) for place in chosen),
        left=tuple(remaining),
        left_of={
            name: _variance_left(information, vector) for name, vector in target_slopes.items()
        },
    )


def _lengths(instance: Instance) -> tuple[int, int]:
    """The mean prompt, as far as it has to be computed, and the mean output, which has a second
    token.
    """
    return max(round(instance.computed), 1), max(round(instance.traffic.osl.mean), 2)


def _grid(instance: Instance, clients: float) -> Iterator[ClosedLoad]:
    """Every point that could be measured: what the KV cache and the slots hold, from one client to
    beyond the load of the answer.
    """
    traffic, memory, ranks = instance.traffic, instance.memory, instance.deployment.parallelism.dp
    longest = (
        traffic.pairs.longest
        if traffic.pairs is not None
        else traffic.isl.longest + traffic.osl.longest
    )
    means = _lengths(instance)
    shapes = (
        tuple(
            max(round(share * mean), min(mean, SHORTEST))
            for share, mean in zip(shape, means, strict=True)
        )
        for shape in SHAPES
    )
    for isl, osl in dict.fromkeys(shapes):
        if isl + osl > longest:
            continue
        capacity = ranks * min(
            memory.blocks // memory.request_blocks(isl + osl), instance.knobs.max_batch_size
        )
        count = 1
        while count <= min(capacity, ABOVE * max(clients, 1.0), MOST_CLIENTS):
            yield ClosedLoad(isl=isl, osl=osl, clients=count)
            count *= 2


def _row(point: Point) -> dict[str, Any]:
    """A row of a calibration in which each metric counts as measured, which its slopes do not look
    at.
    """
    d = point.deployment
    load = {"batch": None, "concurrency": point.concurrency, "request_rate": point.request_rate}
    return {
        "point": point,
        "model": d.model.name,
        "isl": point.isl,
        "osl": point.osl,
        **load,
        **dict.fromkeys(METRICS, 1.0),
    }


def greedy(informative: Floats, goal: Floats) -> tuple[list[int], list[float], Floats]:
    """Points in the order in which each leaves the least variance, the share left after each, and
    the information of all.

    Args:
        informative: float64 (points, terms, metrics), slopes in units of each metric's scatter and
            each factor's width.
        goal: float64 (terms,), the slopes of what is to be known.
    """
    information, chosen = np.eye(goal.size), list[int]()
    remaining = [1.0]
    point_information = informative @ informative.transpose(0, 2, 1)
    while len(chosen) < min(POINTS, len(informative)):
        vectors = np.broadcast_to(goal[:, None], (len(informative), goal.size, 1))
        variances = (np.linalg.solve(information + point_information, vectors)[:, :, 0] * goal).sum(
            axis=1
        )
        variances[chosen] = np.inf
        place = int(np.argmin(variances))
        chosen.append(place)
        information = information + point_information[place]
        remaining.append(min(_variance_left(information, goal), remaining[-1]))
    return chosen, remaining, information


def _variance_left(information: Floats, goal: Floats) -> float:
    """The share of a variance that is left; all of it where no factor acts on it."""
    before = float((goal * goal).sum())
    return (
        min(float((goal * np.linalg.solve(information, goal)).sum()) / before, 1.0)
        if before > 0
        else 1.0
    )
