"""Rows under load as residuals that cost microseconds, for a fit that evaluates them thousands of times."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tonnage.calibration.deployments import Deployments
from tonnage.calibration.recorded_load import RecordedLoad, recorded_load
from tonnage.calibration.residuals import METRICS, SIGMA, Terms, column, robust
from tonnage.calibration.step_bins import Bins, gather
from tonnage.perf import step_terms as at
from tonnage.perf.host import responding_s, streaming_s
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import StepModel
from tonnage.perf.vectorised_step import batch_seconds, context_seconds, launched_alone, prefill_seconds
from tonnage.simulator.kernel import run_recorded
from tonnage.spec.catalog import find_engine
from tonnage.spec.workload import Workload
from tonnage.units import to_ps
from tonnage.validation.load import SEED, workload_of
from tonnage.validation.point import Point, read_point
from tonnage.validation.reported import RATES, reported_metrics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST_STEPS = 4_000_000
"""The most steps of one simulation that are recorded."""


class LoadedRows:
    """Rows under load, linearised around their last simulation.

    The order of an engine's steps hardly depends on how long they last. So a row is simulated once and its steps are gathered into
    bins; every metric is then a weighted sum of step times, which is linear in what the steps of the bins take. The simulation is
    repeated with the new terms until nothing moves (STEP_MODEL.md).
    """

    sigma: ClassVar[Mapping[str, float]] = SIGMA

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        """Look up the rows and read what was measured."""
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
        self.varied = np.array([bool(row.get("run")) for row in rows])
        self.bins: list[Bins] = []

    def point(self, row: dict[str, Any]) -> Point:
        """The point of a row; subclasses give it the knobs of their benchmarks."""
        return read_point(row)

    def workload(self, i: int, model: StepModel, *, turnaround_s: float) -> Workload | RecordedLoad:
        """The load of row ``i`` with its step model: that of a run folder as it was, where one attention rank has all of it."""
        point, run = self.points[i], self.rows[i].get("run")
        drawn = workload_of(point, model, turnaround_s=turnaround_s)
        return recorded_load(run, point, drawn.requests, turnaround_s) if run and point.ranks == 1 else drawn

    def simulate(self, terms: Terms) -> None:
        """Simulate every row with these terms and gather its steps."""
        c, front = self.deployments.coefficients(terms)
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
        """The weighted sums of step times of every row for the four spans of ``Bins``, float64 (rows, 4)."""
        k = c[self.deployments.of[self.row]].T
        prefill, n, b = self.shape
        alone = launched_alone(k, prefill, prefill + b)
        fixed = batch_seconds(k, prefill + b, n + b) + prefill_seconds(k, prefill) + np.where(alone, k[at.EAGER], 0.0)
        each = self.weights[:, 0] * fixed + self.weights[:, 1] * k[at.ATTENTION] + self.weights[:, 2] * context_seconds(k, b)
        least = self.weights[:, 0] * np.where(alone, k[at.LAUNCHES], 0.0)
        return np.array([np.bincount(self.row, values, len(self.bins)) for values in np.maximum(each, least)]).T

    def predict(self, terms: Terms) -> dict[str, Floats]:
        """Every measured metric with these terms: the simulated value and its change, which is linear in the step times."""
        c, front = self.deployments.coefficients(terms)
        now = self._sums(c) + self.rest
        later = (front - self.front)[self.deployments.of]
        ttft, decode, whole, near = now.T
        ttft, near = np.maximum(ttft + later, 1e-4), np.maximum(near + later, 1e-4)
        tpot = 1e3 * decode / self.gaps
        if self.varied.any():  # a mean of ratios, which changes as the decode times do
            scale = np.divide(decode, self.base[:, 1], out=np.ones(len(decode)), where=self.base[:, 1] > 0)
            tpot = np.where(self.varied, np.array([b.metrics.get("tpot_ms", np.nan) for b in self.bins]) * scale, tpot)
        found = {"ttft_ms": 1e3 * ttft, "itl_ms": tpot, "e2e_ms": 1e3 * (ttft + decode)}
        ratios: dict[str, Floats] = {"ttft_p95_ms": near / self.base[:, 3]}
        ratios |= dict.fromkeys(("requests_s", "output_tok_s"), self.base[:, 2] / whole)
        for name, ratio in ratios.items():
            found[name] = self.simulated(name) * ratio
        return {name: found[name] for name in self.measured}

    def simulated(self, name: str) -> Floats:
        """One metric of every row as the last simulation gave it."""
        return np.array([b.metrics[name] for b in self.bins])

    def residuals(self, terms: Terms) -> Floats:
        """The robust residuals of all measured values, metric by metric."""
        known = [np.isfinite(measured) for measured in self.measured.values()]
        return np.concatenate([each[of] for each, of in zip(self._scaled(terms), known, strict=True)])

    def squares(self, terms: Terms) -> Floats:
        """The sum of the squared robust residuals of every row."""
        return np.asarray(np.nansum(np.square(self._scaled(terms)), axis=0))

    def _scaled(self, terms: Terms) -> list[Floats]:
        """The robust residuals of every row by metric; NaN where nothing was measured."""
        found = self.predict(terms)
        return [robust(np.log(found[name] / measured) / self.sigma[name]) for name, measured in self.measured.items()]
