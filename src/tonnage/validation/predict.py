"""The metrics of one row of a measured table, predicted.

A static batch has a closed form. Rows under load are simulated: a closed loop with the client's serial turnaround, or an open loop with
Poisson arrivals (``load``). What a benchmark reports of such a run is defined in ``reported``.
"""

from __future__ import annotations

import math

from tonnage.perf.memory import static_peak_bytes
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import client_turnaround_s, step_model
from tonnage.units import to_ps
from tonnage.validation.load import SEED, Load, workload_of
from tonnage.validation.point import Point
from tonnage.validation.reported import RATES, reported_metrics
from tonnage.validation.static_batch import static_latencies_s


def predict(point: Point, load: Load | None = None) -> dict[str, float]:
    """Predict every metric of a row, by the name of its column: latencies in ms, rates per second, memory in GB.

    Args:
        point: the row.
        load: gives the row's workload, where that is not the one of ``workload_of``; it is not used for a static batch.

    Raises:
        DoesNotFit: the memory does not hold the model, or not one request of these lengths.
        InputError: the parallelism is not one that can be predicted.
    """
    found = _static(point.of_rank) if point.batch is not None else _loaded(point.of_rank, load)
    for name in RATES:
        if name in found:
            found[name] *= point.ranks
    return found


def decoding(point: Point) -> dict[str, float]:
    """Predict the TPOT of a closed loop whose prompts are taken elsewhere, in ms.

    All clients of a worker decode at once, and a token takes one step; the mean is over the steps of a request. The metrics are
    those of ``predict`` as far as a decode pool alone has them.

    Raises:
        DoesNotFit: the memory does not hold the model.
        InputError: the parallelism is not one that can be predicted.
    """
    rank = point.of_rank
    clients, steps = rank.concurrency or 1, max(rank.osl - 1, 1)
    context = round(clients * (rank.isl + (steps + 1) / 2))
    seconds = step_seconds(rank.instance.step.coefficients, 0, 0, clients, 0, context)
    return {"itl_ms": 1e3 * seconds}


def _static(point: Point) -> dict[str, float]:
    batch, isl, osl = point.batch or 1, point.isl, point.osl
    peak = static_peak_bytes(point.deployment, batch, isl, osl)
    ttft, e2e = static_latencies_s(step_model(point.deployment).in_process, batch, isl, osl)
    tpot = (e2e - ttft) / (osl - 1) if osl > 1 else math.nan
    found = {"requests_s": batch / e2e, "output_tok_s": batch * osl / e2e, "peak_gpu_memory_gb": peak / 1e9}
    for name, value in (("ttft", ttft), ("itl", tpot), ("tpot", tpot), ("e2e", e2e)):
        found[f"{name}_ms"] = 1e3 * value
        found |= {f"{name}_p{p}_ms": 1e3 * value for p in (50, 90, 95, 99)}
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
    return reported_metrics(record)
