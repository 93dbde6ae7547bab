"""One row of a measured table, predicted: its deployment, its load, and every metric that it could have measured.

Three kinds of load. ``batch`` is one static batch, priced in closed form. ``concurrency`` is a
closed loop: all clients start together, each sends its next request when the last is answered,
paced by the client's serial turnaround; where there are no more requests than clients, the benchmark runs in the engine's own
process and nothing is streamed. ``request_rate`` is an open loop with Poisson arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tonnage.perf.memory import static_peak_bytes
from tonnage.perf.pipeline import PricedInstance, priced
from tonnage.perf.step import StepModel, batch_seconds, context_seconds, step_seconds
from tonnage.perf.terms import client_turnaround_s, step_model
from tonnage.spec.calibration import Calibration
from tonnage.spec.catalog import find_engine, find_gpu, find_model, system_of
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Workload
from tonnage.units import PS_PER_S, to_ps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests

STATIC_ENGINE = "tensorrt-llm-0.9"
"""Preset of a row with a ``batch`` and no engine."""

LOADED_ENGINE = "tensorrt-llm"
"""Preset of a row with ``concurrency`` or ``request_rate`` and no engine."""

IN_FLIGHT_OF_OLD = "tensorrt-llm-0.10"
"""Preset of such a row on an engine whose preset is of static batches."""

ROUNDS = 10
"""Requests per client of a closed loop that says neither ``requests`` nor ``window_s``: what benchmarks commonly send."""

OPEN_REQUESTS, OPEN_SECONDS, OPEN_MOST = 1_000, 60.0, 20_000
"""An open loop that does not say ``requests`` has this many, or as many as arrive in this many seconds, up to a most."""

SEED = 0
"""Of the arrivals of an open loop."""

RATES = ("requests_s", "output_tok_s")
"""Metrics that the attention ranks of an instance have together; of the others each has its own."""

PERCENTILES = (50, 90, 95, 99)

Load = Callable[[StepModel, float], Workload]
"""The workload of a row, from its step model and the seconds of the client's turnaround."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A row with its names looked up.

    Attributes:
        deployment: model, GPUs, precision, engine and its default knobs.
        isl, osl: tokens.
        batch, concurrency, request_rate: the load; the other two are None.
        requests, window_s: as in the row; None where it does not say.
    """

    deployment: Deployment
    isl: int
    osl: int
    batch: int | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    requests: int | None = None
    window_s: float | None = None

    @property
    def load(self) -> str:
        """One of "static", "closed" and "open"."""
        return "static" if self.batch is not None else "closed" if self.concurrency is not None else "open"

    @property
    def ranks(self) -> int:
        """Attention ranks that share the load."""
        return self.deployment.parallelism.dp

    @property
    def instance(self) -> PricedInstance:
        """What its steps cost and its memory holds, in as many stages as it has.

        Raises:
            DoesNotFit: the memory does not hold the model.
            InputError: a parallelism that is not priced.
        """
        return priced(self.deployment, gpus_per_system=system_of(self.deployment.gpu).gpus, prompt_tokens=self.isl)

    @property
    def of_rank(self) -> Point:
        """What one attention rank of the deployment has of the load, the fullest where it does not divide evenly."""
        dp = self.ranks
        if dp == 1:
            return self
        batch, clients, requests = (None if n is None else math.ceil(n / dp) for n in (self.batch, self.concurrency, self.requests))
        rate = None if self.request_rate is None else self.request_rate / dp
        return replace(self, batch=batch, concurrency=clients, requests=requests, request_rate=rate)


def read_point(row: Mapping[str, Any], calibration: Calibration | None = None) -> Point:
    """The point of a row of ``results.measured_rows.read_measured``, under a calibration if there is one.

    Raises:
        UnknownName: model, GPU, precision or engine are in no catalog; ``kind`` says which.
    """
    model, gpu = find_model(str(row["model"])), find_gpu(str(row["gpu"]))
    precision = find_precision(str(row["precision"]))
    static = row.get("batch") is not None
    engine = find_engine(str(row.get("engine") or (STATIC_ENGINE if static else LOADED_ENGINE)))
    if not static and engine.knobs.scheduler == "static":
        engine = find_engine(IN_FLIGHT_OF_OLD)
    knobs = default_knobs(engine, gpu)
    if static and knobs.scheduler != "static":
        knobs = replace(knobs, scheduler="static", max_num_tokens=max(knobs.max_num_tokens, row["batch"] * row["isl"]))
    deployment = Deployment(
        model=model,
        gpu=gpu,
        precision=precision,
        parallelism=Parallelism(tp=row["tp"], pp=row.get("pp") or 1, dp=row.get("dp") or 1, ep=row.get("ep") or 1),
        engine=engine.name,
        knobs=knobs,
        calibration=calibration,
    )
    return Point(
        deployment=deployment,
        isl=row["isl"],
        osl=row["osl"],
        batch=row.get("batch"),
        concurrency=row.get("concurrency"),
        request_rate=row.get("request_rate"),
        requests=row.get("requests"),
        window_s=row.get("window_s"),
    )


def predict(point: Point, load: Load | None = None) -> dict[str, float]:
    """Every metric by the name of its column: latencies in ms, rates per second, memory in GB.

    Args:
        point: the row.
        load: its workload, where that is not ``workload_of``; not for a static batch.

    Raises:
        DoesNotFit: the memory does not hold the model, or not one such request.
        InputError: a parallelism that is not priced.
    """
    found = _static(point.of_rank) if point.batch is not None else _loaded(point.of_rank, load)
    for name in RATES:
        if name in found:
            found[name] *= point.ranks
    return found


def decoding(point: Point) -> dict[str, float]:
    """TPOT of a closed loop whose prompts are taken elsewhere, in ms: every client of a worker decodes, and a token takes a step.

    Its metrics are those of ``predict`` as far as a decode pool alone has them. The mean is over the steps of a request.

    Raises:
        DoesNotFit: the memory does not hold the model.
        InputError: a parallelism that is not priced.
    """
    rank = point.of_rank
    clients, steps = rank.concurrency or 1, max(rank.osl - 1, 1)
    context = round(clients * (rank.isl + (steps + 1) / 2))
    seconds = step_seconds(rank.instance.step.coefficients, 0, 0, clients, 0, context)
    return {"itl_ms": 1e3 * seconds}


def static_latencies_s(step: StepModel, batch: int, isl: int, osl: int) -> tuple[float, float]:
    """TTFT and end-to-end seconds of one static batch of equal requests, nothing streamed, in closed form.

    Equal to the simulator's to the picosecond: the prefill of all prompts in one step, then
    ``osl − 1`` decode steps whose contexts grow by one token each.
    """
    c = step.coefficients
    prefill = to_ps(step_seconds(c, batch * isl, batch, 0, batch * isl * isl, 0))
    steps = osl - 1
    context = batch * (steps * isl + steps * (steps + 1) // 2)
    decode = steps * round(batch_seconds(c, batch, batch) * PS_PER_S) + round(context_seconds(c, batch) * PS_PER_S) * context
    first = to_ps(step.frontend_s) + prefill
    return first / PS_PER_S, (first + decode) / PS_PER_S


def _static(point: Point) -> dict[str, float]:
    batch, isl, osl = point.batch or 1, point.isl, point.osl
    peak = static_peak_bytes(point.deployment, batch, isl, osl)
    ttft, e2e = static_latencies_s(step_model(point.deployment).in_process, batch, isl, osl)
    tpot = (e2e - ttft) / (osl - 1) if osl > 1 else math.nan
    found = {"requests_s": batch / e2e, "output_tok_s": batch * osl / e2e, "peak_gpu_memory_gb": peak / 1e9}
    for name, value in (("ttft", ttft), ("itl", tpot), ("tpot", tpot), ("e2e", e2e)):
        found[f"{name}_ms"] = 1e3 * value
        found |= {f"{name}_p{p}_ms": 1e3 * value for p in PERCENTILES}
    return found


def _loaded(point: Point, load: Load | None) -> dict[str, float]:
    from tonnage.simulator.kernel import run

    instance = point.instance
    plan, step = instance.memory, instance.step
    turnaround_s = client_turnaround_s(point.deployment)
    workload = workload_of(point, step, turnaround_s=turnaround_s) if load is None else load(step, turnaround_s)
    trace = workload.trace(SEED)
    window = -1 if point.window_s is None or point.concurrency is None else to_ps(point.window_s)
    model = step.in_process if workload.queued else step
    record = run(trace, model, instance.knobs, plan.blocks, windows=plan.windows, window_ps=window)
    return measured_metrics(record)


def workload_of(point: Point, step: StepModel, *, turnaround_s: float) -> Workload:
    """The load that a benchmark of that row sends: see the module's constants for what it does not say."""
    if point.concurrency is not None:
        arrivals: ClosedLoop | OpenLoop = ClosedLoop(concurrency=point.concurrency, turnaround_s=turnaround_s)
        requests = point.requests or ROUNDS * point.concurrency
        if point.window_s is not None:
            alone = static_latencies_s(step, 1, point.isl, point.osl)[1]
            requests = point.concurrency * (2 + math.ceil(point.window_s / alone))
    else:
        rate = point.request_rate or 1.0
        arrivals = OpenLoop(rate=rate)
        requests = point.requests or round(min(max(OPEN_REQUESTS, OPEN_SECONDS * rate), OPEN_MOST))
    return Workload(isl=Lengths(mean=point.isl), osl=Lengths(mean=point.osl), arrivals=arrivals, requests=requests)


def measured_metrics(record: Requests) -> dict[str, float]:
    """What a benchmark reports of a run: latencies over the completed requests, rates up to the last completion.

    GenAI-Perf divides by the time from the start to the last answer that it counts, not by the
    nominal window; so do the rates here. NaN where nothing completed.
    """
    import numpy as np

    from tonnage.results.metrics import gap_percentile_ns
    from tonnage.results.requests import COMPLETED

    rows = np.flatnonzero(record.status == COMPLETED)
    if not rows.size:
        return {}
    due, first, last, osl = (c[rows] for c in (record.due_ns, record.first_token_ns, record.last_token_ns, record.osl))
    seconds = (int(last.max()) - max(int(record.due_ns.min()), 0)) / 1e9
    found = {"requests_s": rows.size / seconds, "output_tok_s": int(osl.sum()) / seconds}
    found |= _latencies("ttft", first - due) | _latencies("e2e", last - due)
    several = osl > 1
    if several.any():
        per_token = (last - first)[several] / (osl[several] - 1)
        found |= _latencies("tpot", per_token)
        found["itl_ms"] = found["tpot_ms"]
        found |= {f"itl_p{p}_ms": gap_percentile_ns(record.gaps, p) / 1e6 for p in PERCENTILES}
    return found


def _latencies(name: str, nanoseconds: NDArray[np.int64] | NDArray[np.float64]) -> dict[str, float]:
    import numpy as np

    values = np.percentile(nanoseconds, PERCENTILES)
    return {f"{name}_ms": float(nanoseconds.mean()) / 1e6} | {
        f"{name}_p{p}_ms": float(v) / 1e6 for p, v in zip(PERCENTILES, values, strict=True)
    }
