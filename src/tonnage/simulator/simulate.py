"""A workload on a deployment, simulated: prices and memory come from ``perf``, the rules from the
kernel.

Runs happen in threads: the kernel holds no interpreter lock, so several points use several cores,
and an interrupt from the keyboard stops them between two steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tonnage.simulator import reference
from tonnage.simulator.kernel import is_compiled, run_instance, warm_up
from tonnage.simulator.kernel.build import check_engine
from tonnage.simulator.kernel.driven import loop_of
from tonnage.simulator.rules import is_for_reference
from tonnage.simulator.spec import EngineSpec, instance_spec, pooled, rank_traces
from tonnage.simulator.tiers import Tier
from tonnage.spec.workload import ClosedLoop, OpenLoop, Trace, TraceArrivals, Workload
from tonnage.units import PS_PER_NS, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import Deployment

Point = tuple["Deployment", "Workload"]
"""One run of ``simulate_many``."""

Progress = Callable[[int, int, str], None]
"""Takes the points done, the points in all, and the name of the point that ended."""

SOON_TOKENS = 1_500_000
"""Output tokens that the plain simulator makes in some five seconds: 2.2 to 5 µs each, where the
compiler takes about as long (CPU time of one core, 2026-11-22)."""

LOOK_TOKENS = 3
"""Tokens in whose time the plain fleet looks at one instance."""

_WAKE_S = 0.2
"""How often the waiting main thread looks up, so that an interrupt is noticed on every platform."""


def simulate(
    deployment: Deployment, workload: Workload, *, seed: int, window_s: float | None = None
) -> Requests:
    """What happens to the requests of a workload on one instance.

    Args:
        deployment: model, GPUs, engine and knobs.
        workload: lengths and arrivals.
        seed: of every random draw; the same seed gives the same record.
        window_s: when the run stops, in seconds; requests that are not complete by then are
            unfinished, and in a closed loop those not yet sent are left out: give ``workload`` more
            requests than the window can take. None to run until every request has ended.

    Raises:
        DoesNotFit: the weights exceed the memory.
        InputError: a workload or knobs that cannot be run.
    """
    return simulate_many([(deployment, workload)], seed=seed, window_s=window_s)[0]


def simulate_many(
    points: Sequence[Point],
    *,
    seed: int,
    window_s: float | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    tiers: Sequence[Tier] = (),
) -> list[Requests]:
    """The same for several deployments and workloads at once, with common random numbers.

    Args:
        points: pairs of a deployment and a workload.
        seed: of every random draw.
        window_s: as in ``simulate``, for every point.
        progress: called in the calling thread with (done, total, name) after each point.
        workers: threads; one per core if not given.
        tiers: memory below the KV cache of each instance, where prompts share something.

    Returns:
        One record per point, in the order of ``points``; it does not depend on ``workers``.

    Raises:
        DoesNotFit, InputError: as ``simulate``, for the first point in trouble.
        KeyboardInterrupt: passed on once the running points have stopped.
    """
    if answers_soon(points):
        runs = []
        for done, point in enumerate(points, 1):
            runs.append(_simulate_point(point, seed, window_s, tiers, None))
            if progress is not None:
                progress(done, len(points), _name(point[1]))
        return runs
    for shares, ranks, grouped in {_loop(point) for point in points if not _is_plain(point)}:
        warm_up(shares=shares, ranks=ranks, grouped=grouped)
    stop = np.zeros(1, np.int64)
    pool = ThreadPoolExecutor(max_workers=workers or min(len(points), os.cpu_count() or 1) or 1)
    try:
        futures = [
            pool.submit(_simulate_point, point, seed, window_s, tiers, stop) for point in points
        ]
        _watch(futures, points, progress)
        return [future.result() for future in futures]
    finally:
        stop[0] = 1
        pool.shutdown(wait=True, cancel_futures=True)


def answers_soon(points: Sequence[Point], instances: int = 1) -> bool:
    """Whether the plain simulator answers before the compiler would: nothing is compiled yet, and
    few tokens are requested.

    What is not compiled at all is always its business. ``instances`` that share a workload are
    looked at whenever a request comes.
    """
    if all(map(_is_plain, points)):
        return True
    work = 0.0
    for _, workload in points:
        if isinstance(workload.arrivals, TraceArrivals):
            return False
        outputs = (
            workload.osl.mean
            if workload.pairs is None
            else sum(workload.pairs.osl) / len(workload.pairs.osl)
        )
        work += workload.requests * (outputs + LOOK_TOKENS * (instances - 1))
    loops = {_loop(point) for point in points if not _is_plain(point)}
    return work <= SOON_TOKENS and not all(
        is_compiled(loop_of(shares=shares, ranks=ranks, grouped=grouped))
        for shares, ranks, grouped in loops
    )


def _loop(point: Point) -> tuple[bool, bool, bool]:
    """Which loop runs a point, by the arguments of ``loop_of``."""
    deployment, workload = point
    return workload.shares, deployment.knobs.ranks, deployment.parallelism.dp > 1


def _is_plain(point: Point) -> bool:
    """Whether the reference alone simulates a point."""
    deployment, workload = point
    return is_for_reference(
        deployment.knobs, drafted=deployment.speculation is not None, shares=workload.shares
    )


def _simulate_point(
    point: Point,
    seed: int,
    window_s: float | None,
    tiers: Sequence[Tier],
    stop: NDArray[np.int64] | None,
) -> Requests:
    """One point; without ``stop`` by the reference, which gives the same record."""
    deployment, workload = point
    plain = stop is None or _is_plain(point)
    trace = workload.trace(seed)
    spec = instance_spec(deployment, workload, tiers=tiers)
    record = run(
        spec, trace, window_ps=-1 if window_s is None else to_ps(window_s), plain=plain, stop=stop
    )
    capped = isinstance(workload.arrivals, OpenLoop) and workload.arrivals.in_flight
    return replace(record, due_ns=trace.due_ps // PS_PER_NS) if capped else record


def run(
    spec: EngineSpec,
    trace: Trace,
    *,
    window_ps: int = -1,
    plain: bool = False,
    stop: NDArray[np.int64] | None = None,
) -> Requests:
    """The requests of a trace on an instance: on each attention rank its share. Raises InputError:
    what cannot be run.

    ``window_ps`` says when the run stops; -1 to run to the end. ``plain`` takes the reference,
    which needs no compiler and gives the same record. ``stop`` is that of ``kernel.run_recorded``.
    """
    traces = rank_traces(trace, spec.ranks)
    if not plain:
        return run_instance(spec, traces, window_ps=window_ps, stop=stop)[0]
    check_engine(spec.step, spec.knobs, spec.blocks)
    ran = reference.run_ranks(
        traces,
        spec.ranks,
        spec.step,
        spec.knobs,
        spec.blocks,
        windows=spec.windows,
        window_ps=window_ps,
        max_context=spec.max_context,
        tiers=spec.tiers,
    )
    return pooled([rank.requests for rank in ran]) if spec.ranks > 1 else ran[0].requests


def _watch(
    futures: list[Future[Requests]], points: Sequence[Point], progress: Progress | None
) -> None:
    """Wait for all, telling of each; the first failure ends the wait."""
    names = {future: _name(workload) for future, (_, workload) in zip(futures, points, strict=True)}
    pending, done = set(futures), 0
    while pending:
        ended, pending = wait(pending, timeout=_WAKE_S, return_when=FIRST_COMPLETED)
        for future in ended:
            future.result()
            done += 1
            if progress is not None:
                progress(done, len(futures), names[future])


def _name(workload: Workload) -> str:
    """Such as "concurrency 10" or "4 requests/s"."""
    arrivals = workload.arrivals
    return (
        f"concurrency {arrivals.concurrency}"
        if isinstance(arrivals, ClosedLoop)
        else f"{arrivals.rate:g} requests/s"
    )
