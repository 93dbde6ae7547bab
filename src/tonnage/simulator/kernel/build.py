"""A machine of empty arrays for an engine, and the checks on its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError, option
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS, UNFINISHED, gap_edges_ns
from tonnage.simulator.kernel.blocks import EMPTY, LINE_2, PIECE_2, PLACE_2
from tonnage.simulator.kernel.decoding import CELLS_2
from tonnage.simulator.kernel.front_end import reached
from tonnage.simulator.kernel.memory import (
    NEVER,
    SETTINGS,
    SLOT,
    STATE,
    STEP,
    Lists,
    Log,
    Machine,
    Prices,
    Rows,
    Tallies,
    Watch,
)
from tonnage.simulator.kernel.prefix_cache import NOTE, Cache
from tonnage.simulator.kernel.schedulers import CODES, SCHEDULERS
from tonnage.simulator.request import STEP_COLUMNS
from tonnage.simulator.rules import RATIO_START, mixed, threshold
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import EngineKnobs, Windows
from tonnage.spec.sessions import Contents
from tonnage.units import PS_PER_NS, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.workload import Trace


EDGES = np.append(gap_edges_ns() * PS_PER_NS, NEVER)
"""Where the bins of gaps begin, in picoseconds, and an end that no gap reaches."""


def _coarse() -> NDArray[np.int64]:
    """The bin in which each cell of ``decoding.cell_of`` begins."""
    exponents, steps = np.divmod(np.arange(63 << CELLS_2), 1 << CELLS_2)
    begins = np.ldexp(1.0 + steps / (1 << CELLS_2), exponents)
    return np.clip(np.searchsorted(EDGES, begins, side="right") - 1, 0, GAP_BINS - 1)


COARSE = _coarse()


NO_WATCH = Watch(
    requests=np.zeros(0, np.int64),
    tokens=np.zeros(0, np.int64),
    late=np.zeros((0, 4), np.int64),
    under_way=np.zeros(1, np.int64),
)
"""Of an engine that no router looks at."""


_NOTHING = np.zeros(0, np.int64)
NO_LOG = Log(_NOTHING, _NOTHING, _NOTHING, _NOTHING)
"""Of an engine that does not report."""


def settings(
    step: StepModel,
    knobs: EngineKnobs,
    kv_blocks: int,
    *,
    windows: Windows,
    window_ps: int,
    max_context: int,
    seed: int,
    leaps: bool = True,
    ranks: bool = False,
) -> Any:
    """The record of an engine's settings; ``ranks`` says whether its requests have theirs
    (``ranks.py``).

    Raises:
        InputError: an engine to which requests differ by class or deadline, and which does not
            learn of them.
    """
    if knobs.ranks and not ranks:
        whose = ", ".join(map(option, ("queue_order", "shed")))
        raise InputError(
            f"{whose}: priorities and deadlines are only simulated on a single instance; leave"
            " them out"
        )
    drafting, drafted = step.drafting, 0 if step.drafting is None else step.drafting.tokens
    cfg = np.zeros(1, SETTINGS)[0]
    values = {
        "scheduler": CODES[knobs.scheduler],
        "grows": SCHEDULERS[knobs.scheduler].GROWS and drafted == 0,
        "slots": slots(knobs, drafted),
        "max_tokens": knobs.max_num_tokens,
        "chunked": knobs.chunked_prefill,
        "longest_chunk": knobs.long_prefill_token_threshold,
        "block_tokens": knobs.tokens_per_block,
        "kv_blocks": kv_blocks,
        "max_context": max_context,
        "frontend": to_ps(step.frontend_s),
        "stream": to_ps(step.stream_s),
        "stream_step": to_ps(step.stream_step_s),
        "enter": to_ps(step.enter_s),
        "enter_token": to_ps(step.enter_token_s),
        "window": window_ps,
        "window_tokens": windows.tokens,
        "window_blocks": windows.blocks,
        "receive": knobs.receive_interval,
        "overlap": knobs.overlap_schedule,
        "shortest": knobs.queue_order == "shortest-first",
        "wait_steps": knobs.batch_wait_steps,
        "wait_tokens": math.ceil(knobs.batch_wait_ratio * knobs.max_num_tokens),
        "drafted": drafted,
        "leaps": leaps and drafted == 0,
    }
    if drafting is not None:
        values |= {"passes": drafting.passes, "below": threshold(drafting.acceptance)}
        values["seed"] = int(np.uint64(mixed(seed)).astype(np.int64))
    for name, value in values.items():
        cfg[name] = value
    return cfg


def machine(
    cfg: Any,
    step: StepModel,
    rows: Rows,
    *,
    steps: int = 0,
    log: int = 0,
    stop: NDArray[np.int64] | None = None,
) -> Machine:
    """An idle engine at time 0; ``stop`` is an array of one element that another thread sets to
    1.
    """
    slot_count = int(cfg["slots"])
    draft = np.zeros(COEFFICIENTS) if step.drafting is None else step.drafting.coefficients
    line = np.full((2, slot_count + 1), -1)
    running, ends, crosses, filling, take = np.empty((5, slot_count), np.int64)
    return Machine(
        cfg=cfg,
        state=idle(cfg),
        step=np.zeros(1, STEP)[0],
        slots=np.zeros(slot_count, SLOT),
        rows=rows,
        lists=Lists(running, ends, crosses, filling, take, np.arange(slot_count)[::-1].copy()),
        prices=Prices(plain(step.coefficients, np.float64), plain(draft, np.float64), *line),
        tallies=Tallies(
            gaps=np.zeros((POSITION_BUCKETS, GAP_BINS), np.int64),
            edges=EDGES,
            coarse=COARSE,
            positions=np.zeros(POSITION_BUCKETS, np.int64),
            moved=np.zeros(POSITION_BUCKETS, np.int64),
            phases=np.zeros(int(cfg["block_tokens"]), np.int64),
            steps=np.zeros((steps, STEP_COLUMNS), np.int64),
        ),
        log=NO_LOG if log == 0 else Log(*np.zeros((4, log), np.int64)),
        watch=NO_WATCH,
        stop=np.zeros(1, np.int64) if stop is None else stop,
    )


def idle(cfg: Any) -> Any:
    """The state of an engine at time 0."""
    state = np.zeros(1, STATE)[0]
    state["free"], state["spare"], state["ratio"], state["steady"] = (
        cfg["kv_blocks"],
        cfg["slots"],
        RATIO_START,
        1,
    )
    state["next_arrival"] = state["next_end"] = state["next_cross"] = NEVER
    return state


def send(m: Machine, count: int) -> None:
    """Put the first ``count`` rows on their way; they say when they are sent."""
    m.state["coming"] = count
    set_arrival(m, 0)


def set_arrival(m: Machine, first: int) -> None:
    """Note when the row that is the first of those on their way reaches the engine, if there are
    any.
    """
    s, cfg = m.state, m.cfg
    if s["coming"]:
        s["next_arrival"] = reached(
            s["entered"],
            m.rows.sent[first],
            cfg["frontend"],
            cfg["enter"] + m.rows.isl[first] * cfg["enter_token"],
        )
    else:
        s["next_arrival"] = NEVER


def rows_for(
    isl: NDArray[np.int64],
    osl: NDArray[np.int64],
    ids: NDArray[np.int64],
    sent: NDArray[np.int64],
    *,
    steps: bool = False,
) -> Rows:
    """Rows for requests of these lengths, with nothing done; ``steps`` to note the steps of their
    tokens.
    """
    count = len(isl)
    noted = count if steps else 0
    return Rows(
        isl=isl,
        osl=osl,
        id=ids,
        sent=sent,
        next=np.empty(count, np.int64),
        status=np.full(count, UNFINISHED, np.int8),
        first=np.full(count, -1),
        last=np.full(count, -1),
        generated=np.zeros(count, np.int64),
        preemptions=np.zeros(count, np.int32),
        first_step=np.full(noted, -1),
        last_step=np.full(noted, -1),
        admitted=np.empty(count, np.int64),
    )


def ring_size(count: int) -> int:
    """The least power of two that holds ``count``."""
    return 1 << max(count - 1, 0).bit_length()


def plain(column: NDArray[Any], kind: type) -> NDArray[Any]:
    """The column as the one array type that the loop is compiled for."""
    return np.require(column, dtype=kind, requirements=["C", "W"])


def slots(knobs: EngineKnobs, drafted: int) -> int:
    """Sequences that run at once: engines that hold decodes to a token budget take care that each
    can have one in every step.
    """
    slot_count = knobs.max_batch_size
    return (
        min(slot_count, knobs.max_num_tokens // (drafted + 1))
        if SCHEDULERS[knobs.scheduler].BUDGETED
        else slot_count
    )


def check_engine(step: StepModel, knobs: EngineKnobs, kv_blocks: int) -> None:
    """Refuse what no engine could be.

    Raises:
        InputError: an engine without slots, tokens or blocks, or whose steps do not hold a token
            and its guesses.
    """
    if (
        min(
            knobs.max_batch_size,
            knobs.max_num_tokens,
            knobs.tokens_per_block,
            knobs.receive_interval,
        )
        < 1
        or kv_blocks < 0
    ):
        raise InputError(
            "engine knobs: max_batch_size, max_num_tokens, tokens_per_block and receive_interval"
            " are 1 or more"
        )
    if step.drafting is not None:
        k = step.drafting.tokens
        if knobs.long_prefill_token_threshold > 0:
            raise InputError(
                f"{option('long_prefill_token_threshold')}: is not simulated with speculative"
                " decoding; leave one of the two out"
            )
        if not SCHEDULERS[knobs.scheduler].GUESSES:
            raise InputError(
                f"{option('speculation')}: static batching has no speculative decoding here; use"
                " in-flight batching"
            )
        if k < 1 or k + 1 > knobs.max_num_tokens:
            raise InputError(
                f"{option('speculation')}: k={k} is not possible in steps of"
                f" {knobs.max_num_tokens:,} tokens; write 1 or more, below that"
            )


# The arrays of a prefix cache, empty, and a heap of the requests that are on their way.


MOST_BLOCKS = 2**30
"""Blocks of a cache and its tiers together."""


def cache_of(
    trace: Trace,
    contents: Contents,
    knobs: EngineKnobs,
    windows: Windows,
    cfg: Any,
    tiers: Sequence[Tier],
) -> Cache:
    """An empty cache for the requests of a trace, above its tiers. Raises InputError: more blocks
    or pieces than a name can tell apart.
    """
    scheduler, size, device_blocks = (
        SCHEDULERS[knobs.scheduler],
        knobs.tokens_per_block,
        int(cfg["kv_blocks"]),
    )
    first = np.cumsum([device_blocks, *(tier.blocks for tier in tiers)])
    count, longest = (
        int(first[-1]),
        int((trace.isl + trace.osl).max(initial=1)) + int(cfg["drafted"]),
    )
    if (
        count > MOST_BLOCKS
        or longest // size >= 1 << PLACE_2
        or int(contents.piece.max(initial=0)) >= 1 << PIECE_2
    ):
        raise InputError(
            f"a prefix cache of {count:,} blocks, or requests of {longest:,} tokens: that is more"
            " than can be simulated"
        )
    on = scheduler.NAMES is not None and knobs.prefix_caching
    slots, wide = (
        (int(cfg["slots"]), -(-longest // size) + windows.of(longest) + 1) if on else (0, 0)
    )
    seats = ring_size(4 * (count + device_blocks * scheduler.PARTIAL) + (2 << LINE_2))
    note = np.zeros(1, NOTE)[0]
    note["on"], note["names"], note["partial"] = on, scheduler.NAMES or 0, scheduler.PARTIAL
    note["shift"] = 65 + LINE_2 - seats.bit_length()
    before, after = _rings(first)
    rows, graph, session = len(trace), trace.graph(), plain(trace.session(), np.int64)
    return Cache(
        note=note,
        starts=plain(contents.starts, np.int64),
        piece=plain(contents.piece, np.int64),
        until=plain(contents.until, np.int64),
        held=np.empty((slots, wide), np.int32),
        taken=np.zeros(slots, np.int64),
        known=np.zeros(slots, np.int64),
        windows=np.zeros(slots, np.int64),
        found=np.zeros(wide, np.int64),
        lifted=np.zeros(wide, np.int64),
        refs=np.zeros(device_blocks, np.int32),
        name=np.full(count, EMPTY, np.int64),
        begun=np.full(device_blocks, EMPTY, np.int64),
        begun_until=np.zeros(device_blocks, np.int64),
        before=before,
        after=after,
        names=np.full(seats, EMPTY, np.int64),
        blocks=np.zeros(seats, np.int32),
        first=first,
        lasts=np.array([tier.block_ps for tier in tiers], np.int64),
        latency=np.array([tier.latency_ps for tier in tiers], np.int64),
        hidden=np.array([tier.overlaps for tier in tiers], np.int64),
        cached=np.zeros(rows, np.int64),
        pause=np.full(rows, -1) if trace.pause_ps is None else plain(trace.pause_ps, np.int64),
        followers=plain(graph.starts, np.int64),
        waiting=plain(graph.rows, np.int64),
        waits=graph.waits.astype(np.int64),
        ready=np.zeros(rows, np.int64),
        session=session,
        left=np.bincount(session, minlength=1),
        at=np.zeros(rows + 1, np.int64),
        row=np.zeros(rows + 1, np.int64),
        firsts=trace.firsts(),
    )


def _rings(first: Any) -> tuple[Any, Any]:
    """The blocks of the cache and of each tier in rings, in order, each behind the entry at which
    it begins.
    """
    count, begin = int(first[-1]), 0
    before, after = np.zeros((2, count + len(first)), np.int32)
    for ring, end in enumerate(first):
        order = np.concatenate([[count + ring], np.arange(begin, end)])
        after[order], before[order] = np.roll(order, -1), np.roll(order, 1)
        begin = int(end)
    return before, after


def send_first_turns(m: Machine, trace: Trace) -> int:
    """Send the first request of each conversation, in a closed loop of each client; returns how
    many.
    """
    cache: Cache = m.cache
    firsts, count = cache.firsts, len(cache.firsts)
    if trace.concurrency > 0:
        count = min(trace.concurrency, count)
        m.rows.sent[firsts[:count]] = np.maximum(
            np.arange(1, count + 1) * trace.turnaround_ps, trace.due_ps[firsts[:count]]
        )
        cache.note["begun"] = count
    firsts = firsts[:count][np.argsort(m.rows.sent[firsts[:count]], kind="stable")]
    sent = m.rows.sent[firsts]
    cache.at[:count], cache.row[:count] = sent, firsts
    m.state["coming"] = count
    if count:
        m.state["arrived"] = firsts[0]
        set_arrival(m, firsts[0])
    return count
