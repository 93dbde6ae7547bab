"""Measured rows of either kind: static batches, or rows under load."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tonnage.evidence.predict import SEED, Point, read_point, reported_metrics, workload_of
from tonnage.perf import step_terms as at
from tonnage.perf.host import front_end_s, responding_s, streaming_s
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import StepModel
from tonnage.perf.terms import coefficients, resolve
from tonnage.perf.vectorised_step import (
    Steps,
    batch_seconds,
    context_seconds,
    launched_alone,
    prefill_seconds,
    step_seconds,
)
from tonnage.results.requests import COMPLETED, Requests
from tonnage.results.store import read_run
from tonnage.simulator import request as record
from tonnage.simulator import simulate
from tonnage.simulator.first_token import ttft_parts
from tonnage.simulator.kernel import run_instance
from tonnage.simulator.spec import EngineSpec, engine_spec, rank_traces
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Deployment
from tonnage.spec.workload import Trace, Workload
from tonnage.units import PS_PER_S, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.results.metrics import TtftParts
    from tonnage.simulator.request import StepRecord

    Floats = NDArray[np.float64]

    Ints = NDArray[np.int64]


# The metrics that are compared with measurements, and how far each is believed to scatter.


Terms = dict[str, Any]  # The groups of ``terms.json``

METRICS = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s", "output_tok_s")
"""The metrics under load that are fitted; ``itl_ms`` is the TPOT."""

SIGMA = {
    "ttft_ms": 0.09,
    "ttft_p95_ms": 0.14,
    "itl_ms": 0.045,
    "e2e_ms": 0.045,
    "requests_s": 0.06,
    "output_tok_s": 0.06,
}
"""The believed scatter of the logarithm of each metric under load, which the rules of the
simulation leave."""

STATIC_SIGMA = 0.05  # The same for TTFT and token latency of static batches


def robust(residuals: Floats) -> Floats:
    """Residuals whose squares grow only linearly beyond one sigma (pseudo-Huber), so that odd rows
    do not rule the fit.
    """
    return np.asarray(np.sign(residuals) * np.sqrt(2.0 * (np.sqrt(1.0 + residuals**2) - 1.0)))


def column(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    """A column of some rows as float64; NaN where it is empty."""
    return np.array([np.nan if row.get(name) is None else float(row[name]) for row in rows])


# The deployments of measured rows, and what their steps take.


@dataclass(frozen=True, slots=True)
class Deployments:
    """The different deployments among some points, whose coefficients are computed once for all of
    their points.
    """

    unique: tuple[Deployment, ...]  # each deployment once
    of: NDArray[np.int64]  # int64 (points,), the place in ``unique`` of each point's deployment

    @classmethod
    def among(cls, points: Sequence[Point]) -> Deployments:
        """Find the deployments of the points."""
        places: dict[tuple[object, ...], int] = {}
        unique: list[Deployment] = []
        of = []
        for d in (point.deployment for point in points):
            key = (
                d.model.name,
                d.gpu.name,
                d.precision.name,
                d.parallelism,
                d.engine,
                d.knobs.graph_tokens,
            )
            if key not in places:
                places[key] = len(unique)
                unique.append(d)
            of.append(places[key])
        return cls(tuple(unique), np.array(of))

    def coefficients(self, terms: Terms) -> tuple[Floats, Floats]:
        """The coefficients of a step, float64 (deployments, COEFFICIENTS), and the front-end
        seconds, float64 (deployments,).
        """
        rows, fronts = [], []
        for d in self.unique:
            resolved = resolve(
                terms,
                d.model,
                d.gpu,
                d.precision,
                d.parallelism,
                find_engine(d.engine).coefficients,
            )
            rows.append(coefficients(resolved, d.model, d.gpu, d.precision, d.parallelism, d.knobs))
            fronts.append(resolved.host.frontend_s)
        return np.array(rows), np.array(fronts)


# The steps of a simulated run, gathered into bins, so that its metrics are weighted sums of step
# times.


NEAR_P95 = 0.03  # Requests whose TTFT is within this share of the 95th percentile stand for it

# More than any count of sequences in a step, so that (P, n, B) and a share pack into one integer
BIN = 1 << 14

SHARES = 64  # Steps of 1/64 by which shares differ


@dataclass(frozen=True, slots=True)
class Bins:
    """The steps of one simulated row, in bins of equal prefill tokens P, prefill sequences n,
    decode sequences B and share of all ranks.
    """

    # float64 (4, bins): P, n and B of each bin, of attention ranks those of the slowest, and the
    # mean tokens of all over its own
    shape: Floats
    # float64 (4, 3, bins): for each of four spans (TTFT, decode time, the whole run, the p95 TTFT)
    # the number of steps, the sum of their attention pairs A and the sum of their context tokens C,
    # per request
    weights: Floats
    # float64 (4,): seconds of each span that are no whole step: an idle engine, or the rest of the
    # step that ran when the request arrived
    rest: Floats
    metrics: dict[str, float]  # what the simulation itself gave, by column


def gather(run: Requests, log: StepRecord, metrics: dict[str, float], ranks: int = 1) -> Bins:
    """Gather the steps of a run on an instance of ``ranks`` attention ranks into bins."""
    steps = log.steps
    count = len(steps)
    done = np.flatnonzero(run.status == COMPLETED)
    ends = (steps[:, record.START] + steps[:, record.DURATION]) // 1000
    # steps that had ended when the request came
    sent = np.searchsorted(ends, run.due_ns, side="right")
    ttft = (run.first_token_ns - run.due_ns)[done] / 1e9
    decode = (run.last_token_ns - run.first_token_ns)[done] / 1e9
    p95 = metrics["ttft_p95_ms"] / 1e3
    near = done[np.abs(ttft - p95) <= max(NEAR_P95 * p95, float(np.abs(ttft - p95).min()))]
    whole = np.zeros(count)
    whole[: int(log.last_step[done].max()) + 1] = 1.0
    first, last = log.first_step + 1, log.last_step + 1
    spans = [
        _share(sent[done], first[done], count),
        _share(first[done], last[done], count),
        whole,
        _share(sent[near], first[near], count),
    ]
    seconds = steps[:, record.DURATION] / PS_PER_S
    near_ttft = float((run.first_token_ns - run.due_ns)[near].mean()) / 1e9
    actual = np.array([ttft.mean(), decode.mean(), _along(whole, seconds), near_ttft])
    rank_tokens = steps[:, record.PREFILL_TOKENS] + steps[:, record.DECODE_SEQUENCES]
    share = (
        np.minimum(
            np.round(SHARES * steps[:, record.ALL_TOKENS] / (ranks * rank_tokens)), BIN - 1
        ).astype(np.int64)
        if ranks > 1
        else SHARES
    )
    packed = (
        steps[:, record.PREFILL_TOKENS] * BIN + steps[:, record.PREFILL_SEQUENCES]
    ) * BIN + steps[:, record.DECODE_SEQUENCES]
    packed = packed * BIN + share
    _, index, inverse = np.unique(packed, return_index=True, return_inverse=True)
    columns = (record.PREFILL_TOKENS, record.PREFILL_SEQUENCES, record.DECODE_SEQUENCES)
    factors = (
        np.ones(count),
        steps[:, record.PAIRS_2] / 2,
        steps[:, record.CONTEXT_TOKENS].astype(float),
    )
    weights = np.array(
        [[np.bincount(inverse, span * factor) for factor in factors] for span in spans]
    )
    rest = actual - np.array([_along(span, seconds) for span in spans])
    shape = np.array([*(steps[index, i] for i in columns), packed[index] % BIN / SHARES])
    return Bins(shape, weights, rest, metrics)


def _share(begin: NDArray[np.int64], end: NDArray[np.int64], count: int) -> Floats:
    """The share of the spans [begin, end) that cover each step."""
    edges = (
        np.bincount(begin, minlength=count + 1)[: count + 1]
        - np.bincount(end, minlength=count + 1)[: count + 1]
    )
    return np.asarray(edges.cumsum()[:count] / len(begin))


def _along(span: Floats, seconds: Floats) -> float:
    """The seconds of a span. A sum and no dot product: BLAS would start threads, whose spinning
    costs more than a simulation.
    """
    return float((span * seconds).sum())


# Rows under load as residuals that cost microseconds, for a fit that evaluates them thousands of
# times.


MOST_STEPS = 4_000_000  # The most steps of one simulation that are recorded


class LoadedRows:
    """Rows under load, linearised around their last simulation.

    The order of an engine's steps hardly depends on how long they last. So a row is simulated once
    and its steps are gathered into bins; every metric is then a weighted sum of step times, which
    is linear in what the steps of the bins take. The simulation is repeated with the new terms
    until nothing moves (STEP_MODEL.md).
    """

    sigma: ClassVar[Mapping[str, float]] = SIGMA

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        """Look up the rows and read what was measured."""
        self.rows = list(rows)
        self.points = [self.point(row) for row in rows]
        self.deployments = Deployments.among(self.points)
        self.memory = [memory_plan(point.deployment) for point in self.points]
        columns = {name: column(rows, name) for name in METRICS}
        if np.isfinite(columns["requests_s"]).all():  # the same number as tokens per second
            del columns["output_tok_s"]
        self.measured = {
            name: values for name, values in columns.items() if np.isfinite(values).any()
        }
        self.gaps = np.maximum(column(rows, "osl") - 1, 1)
        self.varied = np.array(
            [
                bool(row.get("run")) or point.drawn is not None
                for row, point in zip(rows, self.points, strict=True)
            ]
        )
        self.bins: list[Bins] = []

    def point(self, row: dict[str, Any]) -> Point:
        """The point of a row; subclasses give it the knobs of their benchmarks."""
        return read_point(row)

    def workload(self, i: int, model: StepModel, *, turnaround_s: float) -> Workload | RecordedLoad:
        """The load of row ``i`` with its step model: that of a run folder as it was, where one
        attention rank has all of it.
        """
        point, run = self.points[i], self.rows[i].get("run")
        drawn = workload_of(point, model, turnaround_s=turnaround_s)
        return (
            recorded_load(run, point, drawn.requests, turnaround_s)
            if run and point.ranks == 1
            else drawn
        )

    def simulate(self, terms: Terms) -> None:
        """Simulate every row with these terms and gather its steps."""
        c, front = self.deployments.coefficients(terms)
        self.front = front

        def one(i: int) -> Bins:
            spec, trace, window = self._row_inputs(i, terms, c, front)
            run, log = run_instance(
                spec, rank_traces(trace, spec.ranks), most_steps=MOST_STEPS, window_ps=window
            )
            return gather(run, log, reported_metrics(run), self.points[i].ranks)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            self.bins = list(pool.map(one, range(len(self.points))))
        self.row = np.repeat(np.arange(len(self.bins)), [b.shape.shape[1] for b in self.bins])
        self.shape = np.concatenate([b.shape for b in self.bins], axis=1)
        self.weights = np.concatenate([b.weights for b in self.bins], axis=2)
        self.rest = np.array([b.rest for b in self.bins])
        self.base = self._sums(c) + self.rest

    def _row_inputs(
        self, i: int, terms: Terms, c: Floats, front: Floats
    ) -> tuple[EngineSpec, Trace, int]:
        """The engine of row ``i``, the requests that it gets, and when the run stops, in
        picoseconds.
        """
        point, of, memory = self.points[i], self.deployments.of[i], self.memory[i]
        engine = terms["engines"][find_engine(point.deployment.engine).coefficients]
        streaming = streaming_s(engine, point.deployment)
        responding = responding_s(engine, float(c[of][at.HOST_SEQUENCE]))
        more: dict[str, Any] = {
            "stream_s": streaming,
            "response_s": responding,
            **front_end_s(point.deployment),
        }
        model = StepModel(coefficients=c[of].copy(), frontend_s=float(front[of]), **more)
        load = self.workload(i, model, turnaround_s=engine["turnaround_s"])
        trace, model = load.trace(SEED), model.in_process if load.queued else model
        window = -1 if point.window_s is None else to_ps(point.window_s)
        return engine_spec(point.deployment, model, point.deployment.knobs, memory), trace, window

    def ttft_parts(self, terms: Terms) -> list[TtftParts]:
        """Where the mean TTFT of every row goes with these terms."""
        runs = [
            self._row_inputs(i, terms, *self.deployments.coefficients(terms))
            for i in range(len(self.points))
        ]
        return [
            ttft_parts(simulate.run(spec, trace, window_ps=window), spec)[0]
            for spec, trace, window in runs
        ]

    def _sums(self, c: Floats) -> Floats:
        """The weighted sums of step times of every row for the four spans of ``Bins``, float64
        (rows, 4).
        """
        k = c[self.deployments.of[self.row]].T
        prefill, n, b, share = self.shape
        alone = launched_alone(k, prefill, prefill + b)
        fixed = (
            batch_seconds(k, prefill + b, n + b, share)
            + prefill_seconds(k, prefill)
            + np.where(alone, k[at.EAGER], 0.0)
        )
        seconds = (
            self.weights[:, 0] * fixed
            + self.weights[:, 1] * k[at.ATTENTION]
            + self.weights[:, 2] * context_seconds(k, b)
        )
        least = self.weights[:, 0] * np.where(alone, k[at.LAUNCHES], 0.0)
        return np.array(
            [np.bincount(self.row, values, len(self.bins)) for values in np.maximum(seconds, least)]
        ).T

    def predict(self, terms: Terms) -> dict[str, Floats]:
        """Every measured metric with these terms: the simulated value and its change, which is
        linear in the step times.
        """
        c, front = self.deployments.coefficients(terms)
        now = self._sums(c) + self.rest
        later = (front - self.front)[self.deployments.of]
        ttft, decode, whole, near = now.T
        ttft, near = np.maximum(ttft + later, 1e-4), np.maximum(near + later, 1e-4)
        tpot = 1e3 * decode / self.gaps
        if self.varied.any():  # a mean of ratios, which changes as the decode times do
            scale = np.divide(
                decode, self.base[:, 1], out=np.ones(len(decode)), where=self.base[:, 1] > 0
            )
            tpot = np.where(
                self.varied,
                np.array([b.metrics.get("tpot_ms", np.nan) for b in self.bins]) * scale,
                tpot,
            )
        metrics = {"ttft_ms": 1e3 * ttft, "itl_ms": tpot, "e2e_ms": 1e3 * (ttft + decode)}
        ratios: dict[str, Floats] = {"ttft_p95_ms": near / self.base[:, 3]}
        ratios |= dict.fromkeys(("requests_s", "output_tok_s"), self.base[:, 2] / whole)
        for name, ratio in ratios.items():
            metrics[name] = self.simulated(name) * ratio
        return {name: metrics[name] for name in self.measured}

    def simulated(self, name: str) -> Floats:
        """One metric of every row as the last simulation gave it."""
        return np.array([b.metrics[name] for b in self.bins])

    def residuals(self, terms: Terms) -> Floats:
        """The robust residuals of all measured values, metric by metric."""
        masks = [np.isfinite(measured) for measured in self.measured.values()]
        return np.concatenate(
            [scaled[of] for scaled, of in zip(self._scaled(terms), masks, strict=True)]
        )

    def squares(self, terms: Terms) -> Floats:
        """The sum of the squared robust residuals of every row."""
        return np.asarray(np.nansum(np.square(self._scaled(terms)), axis=0))

    def _scaled(self, terms: Terms) -> list[Floats]:
        """The robust residuals of every row by metric; NaN where nothing was measured."""
        predicted = self.predict(terms)
        return [
            robust(np.log(predicted[name] / measured) / self.sigma[name])
            for name, measured in self.measured.items()
        ]


# Static batches as residuals.


class StaticRows:
    """Static batches, of which TTFT and token latency are compared; both have a closed form of two
    steps.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        """Look up the rows and read what was measured."""
        self.rows = list(rows)
        self.points = [read_point(row).of_rank for row in rows]
        self.deployments = Deployments.among(self.points)
        self.batch = np.array([float(point.batch or 1) for point in self.points])
        self.isl, self.osl = (column(rows, name) for name in ("isl", "osl"))
        self.measured = {name: column(rows, name) for name in ("ttft_ms", "itl_ms")}

    def simulate(self, terms: Terms) -> None:
        """Do nothing, because the closed form needs no simulation."""

    def predict(self, terms: Terms) -> dict[str, Floats]:
        """Both metrics of every row with these terms, in ms."""
        c, front = self.deployments.coefficients(terms)
        k, b, isl, none = c[self.deployments.of].T, self.batch, self.isl, np.zeros(len(self.rows))
        prompts = Steps(
            prefill_tokens=b * isl,
            prefill_sequences=b,
            decode_sequences=none,
            attention_pairs_2=b * isl**2,
            context_tokens=none,
        )
        first = step_seconds(k, prompts) + front[self.deployments.of]
        token = batch_seconds(k, b, b) + context_seconds(k, b) * b * (isl + self.osl / 2)
        return {"ttft_ms": 1e3 * first, "itl_ms": 1e3 * token}

    def residuals(self, terms: Terms) -> Floats:
        """The robust residuals of both metrics."""
        predicted = self.predict(terms)
        return np.concatenate(
            [robust(np.log(predicted[n] / m) / STATIC_SIGMA) for n, m in self.measured.items()]
        )


Rows = StaticRows | LoadedRows

# Takes what is done, how much there is in all, and what was done last
Progress = Callable[[int, int, str], None]


def errors(rows: Rows, terms: Terms) -> dict[str, Floats]:
    """The signed relative errors of every measured metric with these terms; rows under load are
    simulated again.
    """
    rows.simulate(terms)
    predicted = (
        rows.predict(terms)
        if isinstance(rows, StaticRows)
        else {name: rows.simulated(name) for name in rows.measured}
    )
    return {name: predicted[name] / measured - 1.0 for name, measured in rows.measured.items()}


# The load of a run folder as it was: the same lengths in the same order, and in an open loop the
# same moments.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedLoad:
    """The completed requests of a run as a load that can be simulated."""

    # isl, osl: int64 (requests,), tokens of each, in the order in which they were sent
    isl: Ints
    osl: Ints
    due_ps: Ints  # int64 (requests,), when each came; -1 in a closed loop
    concurrency: int  # clients of the closed loop; 0 in an open one
    turnaround_ps: int  # of a client

    @property
    def queued(self) -> bool:
        """Whether all requests are there at the start and no client waits for an answer."""
        return 0 < len(self.isl) <= self.concurrency

    def trace(self, seed: int) -> Trace:
        """The requests; nothing is drawn."""
        return Trace(
            due_ps=self.due_ps,
            isl=self.isl,
            osl=self.osl,
            concurrency=self.concurrency,
            turnaround_ps=self.turnaround_ps,
            seed=seed,
        )


def recorded_load(folder: str, point: Point, requests: int, turnaround_s: float) -> RecordedLoad:
    """The load that a run folder recorded; where a closed loop sends more requests than were
    recorded, they begin again.
    """
    due, isl, osl = _sent(folder, (Path(folder) / "requests.parquet").stat().st_mtime_ns)
    if point.concurrency is None:
        return RecordedLoad(isl=isl, osl=osl, due_ps=due, concurrency=0, turnaround_ps=0)
    count = max(requests, 1) if point.window_s is not None else len(isl)
    return RecordedLoad(
        isl=np.resize(isl, count),
        osl=np.resize(osl, count),
        due_ps=np.full(count, -1, dtype=np.int64),
        concurrency=point.concurrency,
        turnaround_ps=to_ps(turnaround_s),
    )


@cache
def _sent(folder: str, written: int) -> tuple[Ints, Ints, Ints]:
    """Due times in picoseconds, prompts and outputs of the completed requests, by due time;
    ``written`` tells a rewritten record apart.
    """
    requests = read_run(Path(folder)).requests
    rows = np.flatnonzero(requests.status == COMPLETED)
    rows = rows[np.argsort(requests.due_ns[rows], kind="stable")]
    due = requests.due_ns[rows]
    return (
        (due - min(int(due[0]), 0)) * 1000,
        np.maximum(requests.isl[rows], 1),
        np.maximum(requests.osl[rows], 1),
    )
