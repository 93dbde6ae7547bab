"""How many instances two pools need, and in which ratio: the fewest GPUs on which every limit holds, found by simulation.

The first token waits for both pools. The fewest prefill instances that hold its limit with no wait in the other pool are a bound; from
there on a further prefill instance or two may spare decode instances, and is tried: behind each the fewest decode instances are found.
Beside it stands the number of instances that do both, under the same arrivals and the same limits.

The statistics are over the middle of a run, from a tenth to nine tenths of its requests. A run has as many requests as come in a minute,
between ``FEWEST`` and ``MOST``; one in which the later half of the requests takes twice as long as the earlier one is overloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError, option
from tonnage.perf.memory import memory_plan
from tonnage.perf.terms import step_model
from tonnage.results.metrics import Summary, summarize
from tonnage.results.requests import COMPLETED
from tonnage.simulator.disaggregated import Disaggregated, simulate_disaggregated
from tonnage.simulator.engine import Engine
from tonnage.simulator.routed import simulate_routed
from tonnage.sizing.loads.limits import strain

if TYPE_CHECKING:
    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import Deployment, Slo
    from tonnage.spec.workload import Trace, Workload

FEWEST, MOST = 1_000, 6_000
MOST_INSTANCES = 128
FURTHER = 2
"""Prefill instances beyond the fewest that are tried."""
GROWTH = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledAnswer:
    """What one deployment needs as two pools.

    Attributes:
        pools: the deployment, and how many instances of it are in each pool.
        summary: what requests see there.
        together: instances that do both; None where no number meets the limits, or where the deployment has attention ranks.
    """

    pools: Disaggregated
    summary: Summary
    together: int | None


def size_pools(
    deployment: Deployment, workload: Workload, slo: Slo, *, seed: int, link_bytes_s: float | None = None, overlap: bool = False
) -> PooledAnswer | None:
    """The fewest instances of a deployment in two pools; None where no number meets the limits.

    Args:
        deployment: of both pools.
        workload: an open loop at the load that is sized for.
        slo: limits, one on the first token or on the whole answer among them.
        seed: of every random draw.
        link_bytes_s: bytes per second that a GPU sends to the other pool; None for what the hardware has.
        overlap: whether a layer's cache is sent as soon as it is computed.

    Raises:
        DoesNotFit: the weights exceed the memory.
        InputError: no limit that binds the prefill pool.
    """
    firsts = tuple(limit for limit in slo if limit.metric == "ttft")
    whole = any(limit.metric == "e2e" for limit in slo)
    if not firsts and not whole:
        raise InputError(f"{option('ttft')}: missing; without a limit on the first token nothing says how large the prefill pool has to be")
    trace = workload.trace(seed)
    one = Disaggregated(
        prefill=deployment, decode=deployment, prefill_instances=1, decode_instances=1, link_bytes_s=link_bytes_s, overlap=overlap
    )
    alone = replace(trace, osl=np.ones(len(trace), np.int64))

    def prompts(count: int) -> bool:
        return _holds(simulate_disaggregated(replace(one, prefill_instances=count), alone), firsts)

    fewest = least(prompts)
    if fewest is None:
        return None
    best: Disaggregated | None = None
    for prefill in range(fewest, fewest + FURTHER + 1):
        most = MOST_INSTANCES if best is None else best.prefill_instances + best.decode_instances - prefill - 1
        if most < 1:
            break

        def decodes(count: int, prefill: int = prefill) -> bool:
            return _holds(simulate_disaggregated(replace(one, prefill_instances=prefill, decode_instances=count), trace), slo)

        decode = least(decodes, most)
        if decode is not None:
            best = replace(one, prefill_instances=prefill, decode_instances=decode)
    if best is None:
        return None
    found = summarize(simulate_disaggregated(best, trace), window="steady")
    return PooledAnswer(pools=best, summary=found, together=_together(deployment, trace, slo))


def least(holds: Callable[[int], bool], most: int = MOST_INSTANCES) -> int | None:
    """The least number for which something holds that holds for every larger one too; None where it does not for ``most``."""
    low, high = 0, 1
    while not holds(min(high, most)):
        if high >= most:
            return None
        low, high = high, 2 * high
    high = min(high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _together(deployment: Deployment, trace: Trace, slo: Slo) -> int | None:
    """Instances that take prompts and decode, behind a router that looks at outstanding requests."""
    if deployment.parallelism.dp > 1 or deployment.speculation is not None:
        return None
    memory, step, context = memory_plan(deployment), step_model(deployment), deployment.model.max_context

    def holds(count: int) -> bool:
        engines = [Engine(step, deployment.knobs, memory.blocks, windows=memory.windows, max_context=context) for _ in range(count)]
        return _holds(simulate_routed(trace, engines).requests, slo)

    return least(holds)


def _holds(record: Requests, slo: Slo) -> bool:
    """Whether every request is answered inside the limits, and no queue grows."""
    if not (record.status == COMPLETED).all() or grows(record):
        return False
    return strain(summarize(record, window="steady"), slo) <= 1


def grows(record: Requests) -> bool:
    """Whether the later half of the requests takes far longer than the earlier one, as it does where more come than are answered."""
    e2e = (record.last_token_ns - record.due_ns).astype(np.float64)
    half = len(e2e) // 2
    return half > 0 and bool(e2e[half:].mean() > GROWTH * e2e[:half].mean())
