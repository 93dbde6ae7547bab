"""Two pools under an open loop, compiled: the records are those of ``simulator/pools.py`` to the
last bit, where this file gives one.

Nothing that happens in the decode pool reaches the prefill pool. So the prefill pool is a separate
fleet that makes one token of each request; its ends and the link say when each cache arrives; and
the decode pool is a fleet whose requests come then, with their caches.

Only blocks that wait for a transfer act on what comes later: an engine that is short of them lets
prompts in later than it would. The fleet of the prefill pool knows of no transfers. What it gives
counts where, with the blocks of all transfers taken away, there are still enough for whatever an
engine can compute in one step; elsewhere ``simulate_pools`` has to drive the engines from event to
event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tonnage.results.requests import COMPLETED, REJECTED, Requests
from tonnage.simulator.changes import NO_CHANGES
from tonnage.simulator.kernel.driven import drive, drive_fleet
from tonnage.simulator.kernel.fleet import AT_ONCE, arguments
from tonnage.simulator.kernel.memory import HANDED_ON, Machine
from tonnage.simulator.kernel.run import check_trace, requests_of
from tonnage.simulator.kernel.schedulers import CODES
from tonnage.simulator.router import check_fleet
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.simulator.kernel.members import Fleet
    from tonnage.simulator.pools import KvLink
    from tonnage.spec.workload import Trace

ANY_LENGTH = (CODES["vllm"], CODES["sglang"])
"""Schedulers that compute prompts strictly in turn, however short; the others may take one of less
than a block ahead of its turn."""


class Prefilled(NamedTuple):
    """The result of the prefill pool for each request."""

    # when its only token was there, in picoseconds; -1 for one that was rejected
    at: NDArray[np.int64]
    lasted: NDArray[np.int64]  # how long the step took that completed its prompt, in picoseconds
    status: NDArray[np.int8]  # of ``results.requests``
    admitted: NDArray[np.int64]  # when its prompt began to be computed, in nanoseconds
    chosen: NDArray[np.int64]  # its engine
    gaps: NDArray[np.int64]  # the histogram


def run_pools(
    trace: Trace,
    prefill: Sequence[Machine],
    decode: Sequence[Machine],
    link: KvLink,
    router: str,
    *,
    seed: int = 0,
) -> Requests | None:
    """Simulate the requests of an open loop on two pools.

    Args:
        trace: an open loop; ``due_ps`` in order.
        prefill, decode: machines at time 0; their settings and prices are taken, and they stay as
            they are.
        link: between any two of them.
        router: of each pool; one that looks at nothing but requests.
        seed: of the routers' random choices.

    Returns:
        The record of ``simulate_pools``; None where blocks that wait for a transfer might be
        missed.

    Raises:
        InputError: a closed loop, due times out of order, or lengths below one token.
    """
    check_fleet(trace, prefill, router)
    check_trace(trace)
    prefilled = _prefilled(trace, prefill, router, seed)
    arrived, by_engine = _arrivals(trace, prefilled, len(prefill), link)
    if not _blocks_last(trace, prefilled, arrived, by_engine, prefill, link):
        return None
    order = np.argsort(arrived, kind="stable")[int((arrived < 0).sum()) :]
    handed = replace(trace, due_ps=arrived[order], isl=trace.isl[order], osl=trace.osl[order])
    return _record(trace, prefilled, order, _decoded(handed, order, decode, router, seed))


def _prefilled(trace: Trace, engines: Sequence[Machine], router: str, seed: int) -> Prefilled:
    """The prefill pool: every request for one token."""
    fleet, chosen = _driven(
        replace(trace, osl=np.ones(len(trace), np.int64)), engines, router, seed
    )
    rows = fleet.rows
    at = np.where(rows.status == COMPLETED, rows.last, -1)
    return Prefilled(
        at=at,
        lasted=rows.next,
        status=rows.status,
        admitted=rows.admitted,
        chosen=chosen,
        gaps=fleet.tallies.gaps,
    )


def _decoded(
    handed: Trace, numbers: NDArray[np.int64], engines: Sequence[Machine], router: str, seed: int
) -> Requests:
    """The decode pool: requests that come with their caches, each with its number among all."""
    fleet, chosen = _driven(handed, engines, router, seed, numbers)
    return replace(
        requests_of(fleet.rows, len(handed), fleet.tallies.gaps), instance=chosen.astype(np.int32)
    )


def _driven(
    trace: Trace,
    engines: Sequence[Machine],
    router: str,
    seed: int,
    handed: NDArray[np.int64] | None = None,
) -> tuple[Fleet, NDArray[np.int64]]:
    """A fleet from the first request to the last token, and the engine of each request; those of
    ``handed`` come with their caches.
    """
    fleet, view, memory, routing = arguments(
        trace, engines, router, seed, None, None, NO_CHANGES, drive.address
    )
    if handed is not None:
        fleet.rows.first[:], fleet.rows.generated[:] = HANDED_ON, 1
        if bool((fleet.cfg["drafted"] > 0).any()):
            fleet.rows.id[:] = handed
    for until in range(0, len(trace) + AT_ONCE, AT_ONCE):
        drive_fleet(fleet, view, memory, routing, min(until, len(trace)))
    return fleet, routing.chosen


def _arrivals(
    trace: Trace, prefilled: Prefilled, engines: int, link: KvLink
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """When the cache of each request has arrived, in picoseconds, -1 where none is sent; and what
    each engine made, in that order.

    An engine sends one cache after another, in the order in which it computed the prompts.
    """
    order = np.lexsort((prefilled.at, prefilled.chosen))
    order = order[prefilled.at[order] >= 0]
    by_engine = np.split(order, np.searchsorted(prefilled.chosen[order], np.arange(1, engines)))
    takes = link.takes_ps(trace.isl, prefilled.lasted)
    arrived = np.full(len(trace), -1)
    for numbers in by_engine:
        sends = numbers[trace.osl[numbers] > 1]
        sent = takes[sends].cumsum()
        arrived[sends] = sent + np.maximum.accumulate(prefilled.at[sends] - sent + takes[sends])
    return arrived, by_engine


def _blocks_last(
    trace: Trace,
    prefilled: Prefilled,
    arrived: NDArray[np.int64],
    prefill_blocks: list[NDArray[np.int64]],
    engines: Sequence[Machine],
    link: KvLink,
) -> bool:
    """Whether every engine has blocks for all that one step may compute, next to those of the
    caches that it sends.
    """
    if not len(trace):
        return True
    shortest, longest = int(trace.isl.min()), int(trace.isl.max())
    blocks = -(-trace.isl // link.block_tokens)
    for numbers, machine in zip(prefill_blocks, engines, strict=True):
        cfg = machine.cfg
        if cfg["shortest"] or (
            cfg["scheduler"] not in ANY_LENGTH and shortest < int(cfg["block_tokens"])
        ):
            return False
        if cfg["enter"] + cfg["enter_token"] > 0:
            # requests may have put off the tokens: no step ended before its prompt's first one
            # began and it lasted so long
            begin = np.maximum.accumulate(
                prefilled.admitted[numbers] * PS_PER_NS + prefilled.lasted[numbers]
            )
        else:
            begin = _ended_after(prefilled.at[numbers], int(cfg["stream"]), int(cfg["stream_step"]))
        end = arrived[numbers]
        sends = end >= 0
        if int(cfg["kv_blocks"]) < _most_held(
            begin[sends], end[sends], blocks[numbers[sends]]
        ) + _step_blocks(cfg, shortest, longest):
            return False
    return True


def _step_blocks(cfg: Any, shortest: int, longest: int) -> int:
    """KV blocks with which an engine lets in all prompts that one step may compute, whole or in
    part, whatever its scheduler keeps back.
    """
    size, windows, part = (
        int(cfg["block_tokens"]),
        int(cfg["window_blocks"]),
        int(cfg["longest_chunk"]),
    )
    whole = longest // size + 2 + windows
    if part > 0:
        return min(int(cfg["slots"]), int(cfg["max_tokens"]) // min(part, shortest) + 2) * (
            whole + 2
        )
    prompts = min(int(cfg["slots"]), int(cfg["max_tokens"]) // shortest + 2)
    return int(cfg["max_tokens"]) // size + prompts * (3 + windows) + 2 * whole


def _most_held(begin: NDArray[np.int64], end: NDArray[np.int64], blocks: NDArray[np.int64]) -> int:
    """The most blocks of one engine that wait for transfers at once, from when each begins to wait
    to when it ends, both in order.
    """
    cumulative = np.concatenate([np.zeros(1, np.int64), blocks.cumsum()])
    return int((cumulative[1:] - cumulative[end.searchsorted(begin)]).max(initial=0))


def _ended_after(at: NDArray[np.int64], stream: int, stream_step: int) -> NDArray[np.int64]:
    """Instants before which the steps did not end whose tokens clients had then, in order: earlier
    by what the front end took for them.

    A front end that was behind does not tell when a step ended; it was after the last one that is
    known.
    """
    if stream + stream_step == 0 or not len(at):
        return at
    steps, which, count = np.unique(at, return_inverse=True, return_counts=True)
    ends = steps - count * stream - stream_step
    certain = np.concatenate([np.ones(1, bool), ends[1:] > steps[:-1]])
    return np.asarray(np.maximum.accumulate(np.where(certain, ends, 0))[which])


def _record(
    trace: Trace, prefill_result: Prefilled, order: NDArray[np.int64], decoded: Requests
) -> Requests:
    """The record of both pools for all requests, in the order of the trace."""
    done = prefill_result.status == COMPLETED
    prefilled, first, last = (np.where(done, prefill_result.at // PS_PER_NS, -1) for _ in range(3))
    status, instance = prefill_result.status.copy(), prefill_result.chosen.astype(np.int32)
    preemptions = np.zeros(len(trace), np.int32)
    columns = (
        decoded.first_token_ns,
        decoded.last_token_ns,
        decoded.status,
        decoded.instance,
        decoded.preemptions,
    )
    whole: tuple[NDArray[Any], ...] = (first, last, status, instance, preemptions)
    for column, values in zip(whole, columns, strict=True):
        column[order] = values
    due = trace.due_ps // PS_PER_NS
    return Requests(
        due_ns=due,
        sent_ns=due,
        first_token_ns=first,
        last_token_ns=last,
        isl=trace.isl,
        osl=np.where(status == COMPLETED, trace.osl, 0),
        cached_tokens=np.zeros(len(trace), np.int64),
        instance=np.where(status == REJECTED, -1, instance).astype(np.int32),
        status=status,
        preemptions=preemptions,
        gaps=prefill_result.gaps + decoded.gaps,
        admitted_ns=np.where(done, prefill_result.admitted, -1),
        prefilled_ns=prefilled,
    )
