"""A whole trace on one engine, from the first request to the last or to the end of a window."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError, option
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED, Requests
from tonnage.simulator.kernel.build import (
    cache_of,
    check_engine,
    machine,
    plain,
    ring_size,
    rows_for,
    send,
    send_first_turns,
    settings,
)
from tonnage.simulator.kernel.driven import grouped as in_lockstep
from tonnage.simulator.kernel.driven import loop_for
from tonnage.simulator.kernel.memory import NEVER, NOBODY, Log, Machine, Rows
from tonnage.simulator.kernel.ranks import BY_CLASS, BY_DEADLINE, BY_TIME, NOTE, Ranks
from tonnage.simulator.request import CANCELLED, StepRecord
from tonnage.simulator.rules import is_for_reference
from tonnage.simulator.spec import EngineSpec, pooled
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import NO_WINDOWS, EngineKnobs, Windows
from tonnage.spec.sessions import ENDLESS, of_rows
from tonnage.spec.workload import Trace
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The classes and limits of a trace in arrays.


ORDERS = {"priority": BY_CLASS, "deadline": BY_DEADLINE}


def ranks_of(trace: Trace, knobs: EngineKnobs, slots: int, *, drafted: bool) -> Ranks:
    """What an engine learns of the requests of a trace; without classes all are of one, and without
    limits none has one.

    Raises:
        InputError: an engine or a trace that the reference alone simulates with them.
    """
    if is_for_reference(knobs, drafted=drafted, shares=trace.contents is not None):
        whose = ", ".join(map(option, ("queue_order", "shed")))
        raise InputError(
            f"{whose}: not compiled where prompts have something in common, and in vLLM with"
            " speculative decoding; the readable simulator has them"
        )
    count = len(trace)
    note = np.zeros(1, NOTE)
    note["order"], note["shed"] = ORDERS.get(knobs.queue_order, BY_TIME), knobs.shed
    note["sorted"], note["soonest"] = knobs.scheduler != "sglang", NEVER
    priority = (
        np.zeros(count, np.int64)
        if trace.priority is None
        else plain(np.unique(trace.priority, return_inverse=True)[1], np.int64)
    )
    return Ranks(
        note=note,
        priority=priority,
        ttft=np.full(count, -1) if trace.ttft_ps is None else plain(trace.ttft_ps, np.int64),
        key=np.zeros(count, np.int64),
        latest=np.full(count, NEVER),
        waits=np.zeros(count, np.int8),
        newest=np.full(int(priority.max(initial=0)) + 1, -1),
        given=np.zeros(slots, np.int64),
    )


# The record of a machine's requests.


def requests_of(rows: Rows, count: int, gaps: NDArray[np.int64], window_ps: int = -1) -> Requests:
    """What has happened to the first ``count`` requests; an unfinished one has no last token, and
    what was cancelled is unfinished.

    The rows are of no use afterwards: the record has their columns, because ten million rows are 80
    MB each. Their lengths and the instants at which they are sent are left as they are; those may
    be the columns of a trace.
    """
    status, first_ns, last_ns = rows.status[:count], rows.first[:count], rows.last[:count]
    for column in (first_ns, last_ns):
        np.floor_divide(column, PS_PER_NS, out=column)
    done, sent_ns = status == COMPLETED, rows.sent[:count] // PS_PER_NS
    osl, instance, admitted = rows.osl[:count], np.zeros(count, np.int32), rows.admitted[:count]
    if not done.all():
        admitted = np.where(first_ns < 0, -1, admitted)
        last_ns[~done] = -1
        osl = np.where(done, osl, rows.generated[:count])
        instance[status == REJECTED] = -1
        status = np.where(status == CANCELLED, np.int8(UNFINISHED), status)
    return Requests(
        due_ns=sent_ns,
        sent_ns=sent_ns,
        first_token_ns=first_ns,
        last_token_ns=last_ns,
        isl=rows.isl[:count],
        osl=osl,
        cached_tokens=np.zeros(count, np.int64),
        instance=instance,
        status=status,
        preemptions=rows.preemptions[:count],
        gaps=gaps,
        window_ns=window_ps // PS_PER_NS if window_ps >= 0 else -1,
        admitted_ns=admitted,
    )


def run(
    trace: Trace,
    step: StepModel,
    knobs: EngineKnobs,
    kv_blocks: int,
    *,
    windows: Windows = NO_WINDOWS,
    window_ps: int = -1,
    max_context: int = 0,
) -> Requests:
    """Simulate one engine.

    Args:
        trace: the requests; ``due_ps`` in order.
        step: what a step costs.
        knobs: the engine's scheduler and limits.
        kv_blocks: blocks of ``knobs.tokens_per_block`` tokens that the KV cache has.
        windows: blocks that a sequence holds for its sliding windows, next to those of its context.
        window_ps: when the run stops: tokens after this moment do not happen, rows sent after it
            are left out, and what is not complete is unfinished; -1 to run to the end.
        max_context: longest prompt plus output; a longer request is rejected; 0 for no such limit.

    Returns:
        The record. Nanoseconds are whole picoseconds divided by 1,000, rounded down. ``osl`` counts
        the tokens that were produced; an unfinished request has them and no ``last_token_ns``.

    Raises:
        InputError: due times out of order, lengths below one token, an engine without slots, tokens
            or blocks, or whose steps do not hold a token and its guesses; priorities or deadlines
            with what they are not compiled with.
    """
    return run_recorded(
        trace,
        step,
        knobs,
        kv_blocks,
        windows=windows,
        window_ps=window_ps,
        max_context=max_context,
        most_steps=0,
    )[0]


def run_recorded(
    trace: Trace,
    step: StepModel,
    knobs: EngineKnobs,
    kv_blocks: int,
    *,
    most_steps: int,
    windows: Windows = NO_WINDOWS,
    window_ps: int = -1,
    max_context: int = 0,
    stop: NDArray[np.int64] | None = None,
    leaps: bool = True,
    tiers: Sequence[Tier] = (),
) -> tuple[Requests, StepRecord]:
    """Run as ``run`` does, and record the first ``most_steps`` steps (72 bytes each).

    ``stop`` is an int64 array of one element: another thread that sets it to 1 ends the run between
    two steps, and what it returns is then of no use. Without ``leaps`` every step is taken by
    itself, which changes nothing but the time that it takes. ``tiers`` are memory below the KV
    cache, where requests have something in common.
    """
    more: Any = {
        "windows": windows,
        "window_ps": window_ps,
        "max_context": max_context,
        "stop": stop,
        "leaps": leaps,
        "tiers": tiers,
    }
    [requests], steps = run_ranks([trace], 1, step, knobs, kv_blocks, most_steps=most_steps, **more)
    return requests, steps


def run_ranks(
    traces: Sequence[Trace],
    ranks: int,
    step: StepModel,
    knobs: EngineKnobs,
    kv_blocks: int,
    *,
    most_steps: int = 0,
    windows: Windows = NO_WINDOWS,
    window_ps: int = -1,
    max_context: int = 0,
    stop: NDArray[np.int64] | None = None,
    leaps: bool = True,
    tiers: Sequence[Tier] = (),
    grouped: bool = False,
) -> tuple[list[Requests], StepRecord]:
    """The attention ranks of an instance in lockstep (``reference.Ranks``); one rank alone is an
    engine.

    Args:
        traces: the requests of each rank that has any.
        ranks: how many there are; those beyond the traces are idle.
        step, knobs, kv_blocks, windows, window_ps, max_context: of each rank, as in ``run``.
        most_steps, stop, leaps, tiers: as in ``run_recorded``.
        grouped: whether one rank is simulated by the loop of several, which changes nothing but the
            time that it takes.

    Returns:
        The record of each trace, and that of the instance's steps, with the requests of all traces
        one after another.
    """
    check_engine(step, knobs, kv_blocks)
    machines = []
    for trace in [*traces, *[_nobody(traces[0])] * (ranks - len(traces))]:
        check_trace(trace)
        limits: Any = {"windows": windows, "window_ps": window_ps, "max_context": max_context}
        cfg = settings(
            step, knobs, kv_blocks, **limits, seed=trace.seed, leaps=leaps, ranks=knobs.ranks
        )
        machines.append(
            _machine(trace, step, knobs, cfg, windows, tiers, most_steps=most_steps, stop=stop)
        )
    steps = machines[0].tallies.steps
    machines = [
        m._replace(stop=machines[0].stop, tallies=m.tallies._replace(steps=steps)) for m in machines
    ]
    if grouped or ranks > 1:
        machines = in_lockstep(machines, knobs)
    loop = loop_for(machines[0])
    loop.enter(loop.address(machines[0]), machines[0], NEVER, NOBODY)
    records = [_record_of(m, trace, window_ps) for m, trace in zip(machines, traces, strict=False)]
    number = int(machines[0].state["round"] + machines[0].state["alone"])
    first, last = (
        np.concatenate([getattr(rows, name) for _, rows in records])
        for name in ("first_step", "last_step")
    )
    return [record for record, _ in records], StepRecord(
        steps=steps[: min(number, len(steps))], count=number, first_step=first, last_step=last
    )


def run_instance(
    spec: EngineSpec,
    traces: Sequence[Trace],
    *,
    most_steps: int = 0,
    window_ps: int = -1,
    stop: NDArray[np.int64] | None = None,
) -> tuple[Requests, StepRecord]:
    """The requests of an instance as one record, and its first ``most_steps`` steps, of requests
    that were given to its attention ranks already: one trace for each that gets any. The other
    arguments are those of ``run_ranks``.
    """
    parts, steps = run_ranks(
        traces,
        spec.ranks,
        spec.step,
        spec.knobs,
        spec.blocks,
        most_steps=most_steps,
        windows=spec.windows,
        window_ps=window_ps,
        max_context=spec.max_context,
        stop=stop,
        tiers=spec.tiers,
    )
    if spec.ranks == 1:
        return parts[0], steps
    order = (
        np.argsort(np.concatenate([part.due_ns for part in parts]), kind="stable")
        if most_steps
        else np.zeros(0, np.int64)
    )
    return pooled(parts), replace(
        steps, first_step=steps.first_step[order], last_step=steps.last_step[order]
    )


def _nobody(trace: Trace) -> Trace:
    """A trace like this one without requests."""
    none, contents = np.zeros(0, np.int64), None if trace.contents is None else of_rows([])
    return Trace(due_ps=none, isl=none, osl=none, concurrency=0, turnaround_ps=0, contents=contents)


def _machine(
    trace: Trace,
    step: StepModel,
    knobs: EngineKnobs,
    cfg: Any,
    windows: Windows,
    tiers: Sequence[Tier],
    *,
    most_steps: int,
    stop: NDArray[np.int64] | None,
) -> Machine:
    """An engine at time 0 with the requests of a trace on their way."""
    due, isl, osl = (plain(column, np.int64) for column in (trace.due_ps, trace.isl, trace.osl))
    if trace.concurrency > 0:
        due = due.copy()
    if trace.contents is not None:
        due = np.full(len(trace), -1)
        due[trace.firsts()] = trace.due_ps[trace.firsts()]
    numbers = isl if step.drafting is None else np.arange(len(trace))  # only guesses ask for them
    rows = rows_for(isl, osl, numbers, due, steps=most_steps > 0)
    m = machine(cfg, step, rows, steps=most_steps, stop=stop)
    if knobs.ranks:
        m = m._replace(
            ranks=ranks_of(trace, knobs, len(m.slots), drafted=step.drafting is not None)
        )
    if trace.contents is None:
        send(m, _first(m, trace) if trace.concurrency > 0 else len(trace))
        return m
    m = m._replace(cache=cache_of(trace, trace.contents, knobs, windows, cfg, tiers))
    clients = send_first_turns(m, trace)
    if trace.concurrency > 0:
        m.cfg["concurrency"], m.cfg["turnaround"] = trace.concurrency, trace.turnaround_ps
        m.state["program_free"] = clients * trace.turnaround_ps
    return m


def _record_of(m: Machine, trace: Trace, window_ps: int) -> tuple[Requests, Rows]:
    """The record of a run, and its rows; of requests with shared prompts the sent ones, in that
    order.
    """
    if trace.contents is None:
        count = int(m.state["arrived"] + m.state["coming"])
        if window_ps >= 0:
            count = int(np.searchsorted(m.rows.sent[:count], window_ps, side="right"))
        rows = m.rows._replace(
            first_step=m.rows.first_step[:count], last_step=m.rows.last_step[:count]
        )
        return requests_of(rows, count, m.tallies.gaps, window_ps), rows
    sent = m.rows.sent
    # who waited for a client to the end has only the moment at which it was due
    if trace.concurrency > 0:
        sent[m.cache.firsts[int(m.cache.note["begun"]) :]] = -1
    there = np.flatnonzero((sent >= 0) & ((sent <= window_ps) | (window_ps < 0)))
    order = there[np.argsort(sent[there], kind="stable")]
    columns: Any = (column[order] if len(column) else column for column in m.rows)
    rows = Rows(*columns)
    record = requests_of(rows, len(order), m.tallies.gaps, window_ps)
    return replace(record, cached_tokens=m.cache.cached[order], row=order), rows


def _first(m: Machine, trace: Trace) -> int:
    """Give a machine the clients of a closed loop, who send their first requests one after another;
    how many.
    """
    count = min(trace.concurrency, len(trace))
    m.rows.sent[:count] = np.maximum(
        np.arange(1, count + 1) * trace.turnaround_ps, trace.due_ps[:count]
    )
    m.cfg["concurrency"], m.cfg["turnaround"] = trace.concurrency, trace.turnaround_ps
    m.state["program_free"] = count * trace.turnaround_ps
    return count


def check_trace(trace: Trace) -> None:
    """Refuse what nobody could send. Raises InputError: due times out of order, or lengths below
    one token.
    """
    if len(trace) and (int(trace.isl.min()) < 1 or int(trace.osl.min()) < 1):
        raise InputError("lengths: a prompt and an output have one token or more")
    due = trace.due_ps if trace.pause_ps is None else trace.due_ps[trace.firsts()]
    if (
        trace.concurrency == 0
        and len(due)
        and (int(due[0]) < 0 or bool(np.any(due[1:] < due[:-1])))
    ):
        raise InputError("arrivals: due times are 0 or more and in order")


def warm_up(*, shares: bool = False, ranks: bool = False, grouped: bool = False) -> None:
    """Compile a loop (``driven.loop_of``), or load it from numba's cache, by a run of one
    request.
    """
    ones = np.ones(1, np.int64)
    contents = of_rows([[(0, ENDLESS)]]) if shares else None
    trace = Trace(
        due_ps=np.zeros(1, np.int64),
        isl=ones,
        osl=ones,
        concurrency=0,
        turnaround_ps=0,
        contents=contents,
    )
    knobs = EngineKnobs(
        scheduler="static",
        max_batch_size=1,
        max_num_tokens=1,
        chunked_prefill=False,
        tokens_per_block=1,
        kv_rule="free_gpu_memory_fraction",
        kv_fraction=0.9,
        shed=ranks,
    )
    collects = gc.isenabled()
    # the compiler makes millions of objects that stay, which the collector would visit again and
    # again: a quarter of the time
    gc.disable()
    try:
        run_ranks(
            [trace],
            2 if grouped else 1,
            StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0),
            knobs,
            2,
        )
    finally:
        if collects:
            gc.enable()


# A machine whose requests are not known when it is made: more rows, and a log that is read and
# emptied.


def grown(m: Machine, count: int, *, log: int) -> Machine:
    """The machine with room for so many rows, and for ``log`` entries next to what one turn of its
    loop may write.
    """
    size = len(m.log.at)
    needed = int(m.cfg["slots"]) + count - int(m.state["arrived"]) + log
    if needed > size:
        m = m._replace(log=Log(*np.zeros((4, ring_size(needed)), np.int64)))
    if count <= len(m.rows.isl):
        return m
    rows = rows_for(*np.zeros((4, ring_size(count)), np.int64))
    columns: Any = zip(m.rows, rows, strict=True)
    for old, new in columns:
        new[: len(old)] = old
    return m._replace(rows=rows)


def without_first(m: Machine, count: int) -> None:
    """Take the first rows, whose requests have all ended, out of the memory; those behind them move
    up.

    Of an engine by itself, without a prefix cache: nobody else knows the places of its rows.
    """
    s, rows = m.state, m.rows
    last = int(s["arrived"] + s["coming"])
    fresh: Any = rows_for(*np.zeros((4, count), np.int64))
    columns: Any = zip(rows, fresh, strict=True)
    for column, new in columns:
        if column.size:
            column[: last - count] = column[count:last].copy()
            column[last - count : last] = new
    rows.next[: last - count] -= count
    s["arrived"] -= count
    if s["queued"]:
        s["head"] -= count
        s["tail"] -= count
    m.slots["row"][m.lists.running[: s["running"]]] -= count


def copied(rows: Rows) -> Rows:
    """Separate rows."""
    columns: Any = (column.copy() for column in rows)
    return Rows(*columns)


def log_of(m: Machine) -> NDArray[np.int64]:
    """Entries of the log: number of the request, when, tokens, status; int64 of shape (4,
    entries).
    """
    rows, *columns = (column[: m.state["logged"]] for column in m.log)
    return np.array([m.rows.id[rows], *columns])
