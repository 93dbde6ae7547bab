"""Measured rows as residuals that cost microseconds: what the fit evaluates a few thousand times.

Static batches are two steps in closed form. For rows under load the order of an engine's steps
hardly depends on how long they last, so a row is simulated once, its steps are gathered into bins of
equal (P, n, B), and every metric becomes a weighted sum of step times: linear in the durations of the
bins. The simulation is repeated with the new terms until nothing moves (STEP_MODEL.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tonnage.perf import step_terms as at
from tonnage.perf.efficiencies import resolve
from tonnage.perf.host import responding_s, streaming_s
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import StepModel
from tonnage.perf.terms import coefficients
from tonnage.perf.vectorised_step import Steps, batch_seconds, context_seconds, launched_alone, prefill_seconds, step_seconds
from tonnage.results.requests import COMPLETED
from tonnage.simulator import steps as record
from tonnage.simulator.kernel import run_recorded
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Deployment
from tonnage.spec.workload import Workload
from tonnage.units import PS_PER_S, to_ps
from tonnage.validation.load import SEED, workload_of
from tonnage.validation.point import Point, read_point
from tonnage.validation.reported import RATES, reported_metrics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.simulator.steps import StepRecord

    Floats = NDArray[np.float64]

Terms = dict[str, Any]
"""The groups of ``perf.terms``."""

METRICS = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s", "output_tok_s")
"""What is fitted; ``itl_ms`` is the TPOT."""

SIGMA = {"ttft_ms": 0.09, "ttft_p95_ms": 0.14, "itl_ms": 0.045, "e2e_ms": 0.045, "requests_s": 0.06, "output_tok_s": 0.06}
"""Believed scatter of the logarithm of each metric under load: what the rules themselves leave."""

STATIC_SIGMA = 0.05
"""The same for TTFT and token latency of static batches."""

MOST_STEPS = 4_000_000
NEAR_P95 = 0.03
"""Requests whose TTFT is this near to the 95th percentile stand for it."""

BIN = 1 << 14
"""More than any count of sequences in a step, so that (P, n, B) packs into one integer."""


def robust(residuals: Floats) -> Floats:
    """Residuals whose squares grow linearly beyond one sigma (pseudo-Huber), so that odd rows do not rule."""
    return np.asarray(np.sign(residuals) * np.sqrt(2.0 * (np.sqrt(1.0 + residuals**2) - 1.0)))


@dataclass(frozen=True, slots=True)
class Deployments:
    """The different deployments of some points, whose coefficients are computed together."""

    unique: tuple[Deployment, ...]
    of: NDArray[np.int64]

    @classmethod
    def among(cls, points: Sequence[Point]) -> Deployments:
        """Those of the points, and which point has which."""
        found: dict[tuple[object, ...], int] = {}
        unique: list[Deployment] = []
        of = []
        for d in (point.deployment for point in points):
            key = (d.model.name, d.gpu.name, d.precision.name, d.parallelism, d.engine, d.knobs.graph_tokens)
            if key not in found:
                found[key] = len(unique)
                unique.append(d)
            of.append(found[key])
        return cls(tuple(unique), np.array(of))

    def prices(self, terms: Terms) -> tuple[Floats, Floats]:
        """Coefficient arrays of shape (deployments, COEFFICIENTS), and their front-end seconds."""
        rows, fronts = [], []
        for d in self.unique:
            found = resolve(terms, d.model, d.gpu, d.precision, d.parallelism, find_engine(d.engine).coefficients)
            rows.append(coefficients(found, d.model, d.gpu, d.precision, d.parallelism, d.knobs))
            fronts.append(found.host.frontend_s)
        return np.array(rows), np.array(fronts)


def column(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    """A column as floats; NaN where it is empty."""
    return np.array([np.nan if row.get(name) is None else float(row[name]) for row in rows])


class StaticRows:
    """Static batches: TTFT and token latency."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        """Look the rows up once."""
        self.rows = list(rows)
        self.points = [read_point(row).of_rank for row in rows]
        self.deployments = Deployments.among(self.points)
        self.batch = np.array([float(point.batch or 1) for point in self.points])
        self.isl, self.osl = (column(rows, name) for name in ("isl", "osl"))
        self.measured = {name: column(rows, name) for name in ("ttft_ms", "itl_ms")}

    def simulate(self, terms: Terms) -> None:
        """Nothing to do: the closed form is exact."""

    def predict(self, terms: Terms) -> dict[str, Floats]:
        """Both metrics in ms."""
        c, front = self.deployments.prices(terms)
        k, b, isl, none = c[self.deployments.of].T, self.batch, self.isl, np.zeros(len(self.rows))
        prompts = Steps(
            prefill_tokens=b * isl, prefill_sequences=b, decode_sequences=none, attention_pairs_2=b * isl**2, context_tokens=none
        )
        first = step_seconds(k, prompts) + front[self.deployments.of]
        token = batch_seconds(k, b, b) + context_seconds(k, b) * b * (isl + self.osl / 2)
        return {"ttft_ms": 1e3 * first, "itl_ms": 1e3 * token}

    def residuals(self, terms: Terms) -> Floats:
        """Robust residuals of both metrics."""
        found = self.predict(terms)
        return np.concatenate([robust(np.log(found[n] / m) / STATIC_SIGMA) for n, m in self.measured.items()])


@dataclass(frozen=True, slots=True)
class Bins:
    """The steps of one simulated row, gathered.

    Attributes:
        shape: int64 (3, bins): P, n and B.
        weights: (4, 3, bins): for TTFT, decode time, the whole run and the p95 TTFT: steps, their A and their C, per request.
        rest: seconds of each of the four that are no step: idle engine, part of the step that ran when the request came.
        metrics: what the simulation itself gave.
    """

    shape: NDArray[np.int64]
    weights: Floats
    rest: Floats
    metrics: dict[str, float]


def gather(run: Requests, log: StepRecord, metrics: dict[str, float]) -> Bins:
    """Bins of one run; see the module."""
    steps = log.steps
    count = len(steps)
    done = np.flatnonzero(run.status == COMPLETED)
    ends = (steps[:, record.START] + steps[:, record.DURATION]) // 1000
    sent = np.searchsorted(ends, run.due_ns, side="right")  # steps that had ended when the request came
    ttft = (run.first_token_ns - run.due_ns)[done] / 1e9
    decode = (run.last_token_ns - run.first_token_ns)[done] / 1e9
    p95 = metrics["ttft_p95_ms"] / 1e3
    near = done[np.abs(ttft - p95) <= max(NEAR_P95 * p95, float(np.abs(ttft - p95).min()))]
    whole = np.zeros(count)
    whole[: int(log.last_step[done].max()) + 1] = 1.0
    first, last = log.first_step + 1, log.last_step + 1
    spans = [_share(sent[done], first[done], count), _share(first[done], last[done], count), whole, _share(sent[near], first[near], count)]
    seconds = steps[:, record.DURATION] / PS_PER_S
    near_ttft = float((run.first_token_ns - run.due_ns)[near].mean()) / 1e9
    actual = np.array([ttft.mean(), decode.mean(), float(whole @ seconds), near_ttft])
    packed = (steps[:, record.PREFILL_TOKENS] * BIN + steps[:, record.PREFILL_SEQUENCES]) * BIN + steps[:, record.DECODE_SEQUENCES]
    _, index, inverse = np.unique(packed, return_index=True, return_inverse=True)
    columns = (record.PREFILL_TOKENS, record.PREFILL_SEQUENCES, record.DECODE_SEQUENCES)
    factors = (np.ones(count), steps[:, record.PAIRS_2] / 2, steps[:, record.CONTEXT_TOKENS].astype(float))
    weights = np.array([[np.bincount(inverse, span * factor) for factor in factors] for span in spans])
    rest = actual - np.array([float(span @ seconds) for span in spans])
    return Bins(np.array([steps[index, i] for i in columns]), weights, rest, metrics)


def _share(begin: NDArray[np.int64], end: NDArray[np.int64], count: int) -> Floats:
    """How many of the spans [begin, end) cover each step, per span."""
    edges = np.bincount(begin, minlength=count + 1)[: count + 1] - np.bincount(end, minlength=count + 1)[: count + 1]
    return np.asarray(edges.cumsum()[:count] / len(begin))


class LoadedRows:
    """Rows under load, linearised around the last simulation."""

    sigma: ClassVar[Mapping[str, float]] = SIGMA

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        """Look the rows up once."""
        self.rows = list(rows)
        whole = [self.point(row) for row in rows]
        self.points = [point.of_rank for point in whole]
        self.deployments = Deployments.among(self.points)
        self.memory = [memory_plan(point.deployment) for point in self.points]
        columns = {name: column(rows, name) for name in METRICS}
        if np.isfinite(columns["requests_s"]).all():  # the same number as tokens per second
            del columns["output_tok_s"]
        ranks = np.array([point.ranks for point in whole])
        columns |= {name: columns[name] / ranks for name in RATES if name in columns}
        self.measured = {name: values for name, values in columns.items() if np.isfinite(values).any()}
        self.gaps = np.maximum(column(rows, "osl") - 1, 1)
        self.bins: list[Bins] = []

    def point(self, row: dict[str, Any]) -> Point:
        """The point of a row."""
        return read_point(row)

    def workload(self, i: int, model: StepModel, *, turnaround_s: float) -> Workload:
        """The load of row ``i``."""
        return workload_of(self.points[i], model, turnaround_s=turnaround_s)

    def simulate(self, terms: Terms) -> None:
        """Run every row with these terms and gather its steps."""
        c, front = self.deployments.prices(terms)
        self.front = front

        def one(i: int) -> Bins:
            point, of, memory = self.points[i], self.deployments.of[i], self.memory[i]
            engine = terms["engines"][find_engine(point.deployment.engine).coefficients]
            streaming = streaming_s(engine, point.deployment)
            responding = responding_s(engine, float(c[of][at.HOST_SEQUENCE]))
            model = StepModel(coefficients=c[of].copy(), frontend_s=float(front[of]), stream_s=streaming, response_s=responding)
            load = self.workload(i, model, turnaround_s=engine["turnaround_s"])
            trace, model = load.trace(SEED), model.in_process if load.queued else model
            window = -1 if point.window_s is None else to_ps(point.window_s)
            run, log = run_recorded(
                trace, model, point.deployment.knobs, memory.blocks, windows=memory.windows, most_steps=MOST_STEPS, window_ps=window
            )
            return gather(run, log, reported_metrics(run))

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            self.bins = list(pool.map(one, range(len(self.points))))
        self.row = np.repeat(np.arange(len(self.bins)), [b.shape.shape[1] for b in self.bins])
        self.shape = np.concatenate([b.shape for b in self.bins], axis=1).astype(float)
        self.weights = np.concatenate([b.weights for b in self.bins], axis=2)
        self.rest = np.array([b.rest for b in self.bins])
        self.base = self._sums(c) + self.rest

    def _sums(self, c: Floats) -> Floats:
        """The four weighted sums of step times of every row, shape (rows, 4)."""
        k = c[self.deployments.of[self.row]].T
        prefill, n, b = self.shape
        alone = launched_alone(k, prefill, prefill + b)
        fixed = batch_seconds(k, prefill + b, n + b) + prefill_seconds(k, prefill) + np.where(alone, k[at.EAGER], 0.0)
        each = self.weights[:, 0] * fixed + self.weights[:, 1] * k[at.ATTENTION] + self.weights[:, 2] * context_seconds(k, b)
        least = self.weights[:, 0] * np.where(alone, k[at.LAUNCHES], 0.0)
        return np.array([np.bincount(self.row, values, len(self.bins)) for values in np.maximum(each, least)]).T

    def predict(self, terms: Terms) -> dict[str, Floats]:
        """Every measured metric, linear in the step times: simulated value plus its change."""
        c, front = self.deployments.prices(terms)
        now = self._sums(c) + self.rest
        later = (front - self.front)[self.deployments.of]
        ttft, decode, whole, near = now.T
        ttft, near = np.maximum(ttft + later, 1e-4), np.maximum(near + later, 1e-4)
        found = {"ttft_ms": 1e3 * ttft, "itl_ms": 1e3 * decode / self.gaps, "e2e_ms": 1e3 * (ttft + decode)}
        ratios: dict[str, Floats] = {"ttft_p95_ms": near / self.base[:, 3]}
        ratios |= dict.fromkeys(("requests_s", "output_tok_s"), self.base[:, 2] / whole)
        for name, ratio in ratios.items():
            found[name] = self.simulated(name) * ratio
        return {name: found[name] for name in self.measured}

    def simulated(self, name: str) -> Floats:
        """A metric as the last simulation gave it."""
        return np.array([b.metrics[name] for b in self.bins])

    def residuals(self, terms: Terms) -> Floats:
        """Robust residuals of every measured metric."""
        known = [np.isfinite(measured) for measured in self.measured.values()]
        return np.concatenate([each[of] for each, of in zip(self._scaled(terms), known, strict=True)])

    def squares(self, terms: Terms) -> Floats:
        """The squared robust residuals of every row, together."""
        return np.asarray(np.nansum(np.square(self._scaled(terms)), axis=0))

    def _scaled(self, terms: Terms) -> list[Floats]:
        """Robust residuals of every row by metric; NaN where nothing was measured."""
        found = self.predict(terms)
        return [robust(np.log(found[name] / measured) / self.sigma[name]) for name, measured in self.measured.items()]


Rows = StaticRows | LoadedRows
Progress = Callable[[int, int, str], None]


def errors(rows: Rows, terms: Terms) -> dict[str, Floats]:
    """Signed relative errors of every measured metric with these terms, rows under load simulated anew."""
    rows.simulate(terms)
    found = rows.predict(terms) if isinstance(rows, StaticRows) else {name: rows.simulated(name) for name in rows.measured}
    return {name: found[name] / measured - 1.0 for name, measured in rows.measured.items()}
