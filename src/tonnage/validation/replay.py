"""A run again, on a deployment that is simulated: the same requests, due at the same moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.perf.pipeline import estimated_instance
from tonnage.results.requests import COMPLETED
from tonnage.spec.workload import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.simulator.engine import Engine
    from tonnage.spec.deployment import Deployment

ROUTER = "least-outstanding"
"""The router between instances where none is named."""


def replay(
    requests: Requests, deployment: Deployment, *, gpus_per_system: int, instances: int = 1, router: str = ROUTER, seed: int = 0
) -> Requests:
    """Simulate the completed requests of a run, each due when it was due there and as long as it was there.

    Of requests that were due at the same moment, such as the first ones of a closed loop's clients, each comes when it was sent: a server
    begins with the first of them and takes the others in its next step. Latencies count from the moment when they were due all the same.

    A closed loop is replayed as the arrivals that it made: a simulated engine that is slower than the measured one then
    has a queue that the clients of the run would not have let grow.

    Args:
        requests: the record of the run.
        deployment: one instance, with any parallelism.
        gpus_per_system: stages of a pipeline that do not fit into one system are joined by the network.
        instances: how many share the requests.
        router: what shares them, a name of ``simulator.router.ROUTERS``.
        seed: of the router's random choices.

    Raises:
        InputError: a record without completed requests or without their lengths, or several instances of a deployment
            that is not simulated behind a router.
        DoesNotFit: the memory does not hold the model.
    """
    from tonnage.simulator.kernel import run
    from tonnage.simulator.ranks import pooled, rank_traces

    trace, due_ns = _trace(requests)
    instance = estimated_instance(deployment, gpus_per_system=gpus_per_system, prompt_tokens=round(float(trace.isl.mean())))
    context, memory = deployment.model.max_context, instance.memory
    if instances > 1:
        from tonnage.simulator.engine import Engine

        made = (instance.step, instance.knobs, memory.blocks)
        engines = [Engine(*made, windows=memory.windows, max_context=context) for _ in range(instances)]
        record = _behind_router(trace, engines, deployment, router=router, seed=seed)
    else:
        traces = rank_traces(trace, deployment.parallelism.dp)
        parts = [run(t, instance.step, instance.knobs, memory.blocks, windows=memory.windows, max_context=context) for t in traces]
        record = parts[0] if len(parts) == 1 else pooled(parts)
    return replace(record, due_ns=due_ns, window_ns=requests.window_ns)


def _trace(requests: Requests) -> tuple[Trace, NDArray[np.int64]]:
    """The completed requests as an open loop from time 0 on, in the order in which they come, and when each was due."""
    import numpy as np

    rows = np.flatnonzero(requests.status == COMPLETED)
    if not rows.size:
        raise InputError("the run has no completed request, so that there is nothing to replay")
    due = requests.due_ns[rows]
    _, which, alike = np.unique(due, return_inverse=True, return_counts=True)
    comes = np.where(alike[which] > 1, np.maximum(requests.sent_ns[rows], due), due)
    order = np.argsort(comes, kind="stable")
    rows, due, comes = rows[order], due[order], comes[order]
    isl, osl = requests.isl[rows], requests.osl[rows]
    if min(isl.min(), osl.min()) < 1:
        raise InputError("the run does not say how many tokens its prompts and outputs have, so that they cannot be replayed")
    start = min(int(due.min()), 0)
    return Trace(due_ps=(comes - start) * 1000, isl=isl, osl=osl, concurrency=0, turnaround_ps=0), due - start


def _behind_router(trace: Trace, engines: Sequence[Engine], deployment: Deployment, *, router: str, seed: int) -> Requests:
    if deployment.parallelism.dp > 1 or deployment.speculation is not None:
        raise InputError(
            f"{option('instances')}: several instances with attention ranks or speculative decoding are not simulated behind a router yet; "
            "measure one instance, and say 1"
        )
    from tonnage.simulator.routed import simulate_routed

    return simulate_routed(trace, engines, router, seed=seed).requests
