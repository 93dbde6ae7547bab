"""The simulator as it runs: ``rules.py``, ``sglang_rules.py`` and ``tokens.py`` in one compiled loop over the steps of one engine.

The loop is compiled by numba on first use and kept on disk where the installation or the user's
cache folder can be written; it holds no interpreter lock, so that threads run several at once.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from tonnage import units
from tonnage.errors import InputError, option
from tonnage.perf import step as step_module
from tonnage.perf import step_terms
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.results import requests as requests_module
from tonnage.results.requests import COMPLETED, GAP_BINS, POSITION_BUCKETS, REJECTED, Requests, gap_edges_ns
from tonnage.simulator import layout, rules, sglang, sglang_rules, tokens
from tonnage.simulator import steps as steps_module
from tonnage.simulator.acceptance import mixed, threshold
from tonnage.simulator.layout import (
    ALONE,
    BASE,
    BELOW,
    BLOCK_TOKENS,
    CHUNKED,
    CONCURRENCY,
    DRAFTED,
    FIRST,
    FIRST_STEP,
    FREE,
    FRONTEND,
    GENERATED,
    HEAD,
    KV_BLOCKS,
    LAST,
    LAST_STEP,
    MAX_CONTEXT,
    MAX_TOKENS,
    NEVER,
    NEXT_ARRIVAL,
    NEXT_EVENT,
    NEXT_SEND,
    OVERLAP,
    PASSES,
    PREEMPTIONS,
    RATIO,
    RECEIVE,
    REQUEST_ROWS,
    ROUND,
    RUNNING,
    SCHEDULER,
    SEED,
    SENT,
    SETTINGS,
    SGLANG,
    SLOTS,
    STACK,
    STATE,
    STATIC,
    STATUS,
    STREAM,
    TAIL,
    TENSORRT_LLM,
    TURNAROUND,
    UNHEARD,
    UNTIL,
    VLLM,
    WAIT_STEPS,
    WAIT_TOKENS,
    WINDOW,
    WINDOW_BLOCKS,
    WINDOW_TOKENS,
)
from tonnage.simulator.rules import (
    begin,
    schedule_static,
    schedule_tensorrt_llm,
    schedule_vllm,
    take_arrivals,
)
from tonnage.simulator.sglang import RATIO_START
from tonnage.simulator.sglang_rules import schedule_sglang
from tonnage.simulator.steps import PREFILL_TOKENS, STEP_COLUMNS, StepRecord
from tonnage.simulator.tokens import (
    end_step,
    price,
    record,
    streamed,
)
from tonnage.spec.deployment import NO_WINDOWS, EngineKnobs, Windows
from tonnage.spec.workload import Trace
from tonnage.units import PS_PER_NS, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EDGES = gap_edges_ns()
_CODES = {"static": STATIC, "tensorrt-llm": TENSORRT_LLM, "vllm": VLLM, "sglang": SGLANG}


def _fingerprint() -> int:
    """Checksum of the sources that the compiled loop is made of: a change in any of them compiles it anew."""
    files = [
        __file__,
        *(
            str(module.__file__)
            for module in (layout, rules, sglang, sglang_rules, tokens, steps_module, step_module, step_terms, requests_module, units)
        ),
    ]
    return zlib.crc32(b"".join(Path(file).read_bytes() for file in files))


def _build(version: int) -> Callable[..., Any]:
    """The loop, with ``version`` as part of its key in numba's cache."""

    def loop(
        cfg,
        c,
        draft,
        due,
        isl,
        osl,
        table,
        queue,
        running,
        filling,
        take,
        stack,
        line_a,
        line_c,
        state,
        positions,
        phases,
        made,
        gaps,
        edges,
        steps,
        stop,
    ):
        window = cfg[WINDOW]
        state[FREE] = cfg[KV_BLOCKS]
        state[NEXT_EVENT] = NEVER
        state[RATIO] = RATIO_START
        begin(cfg, state, table, due)
        now = np.int64(0)
        began = now
        while stop[0] == 0:
            take_arrivals(cfg, state, table, isl, osl, queue, began if cfg[OVERLAP] else now)
            if state[RUNNING] == 0 and state[STACK] == 0 and state[HEAD] == state[TAIL]:
                state[RATIO] = RATIO_START
                if state[NEXT_ARRIVAL] == state[NEXT_SEND]:
                    break
                state[UNHEARD] = 0
                now = max(now, table[SENT, state[NEXT_ARRIVAL]] + cfg[FRONTEND])
                began = now
                if 0 <= window < now:
                    break
                continue
            for k in range(STEP_COLUMNS):
                made[k] = 0
            if cfg[SCHEDULER] == STATIC:
                schedule_static(cfg, state, table, isl, osl, queue, running, filling, take, made)
            elif cfg[SCHEDULER] == TENSORRT_LLM:
                schedule_tensorrt_llm(cfg, state, table, isl, osl, queue, running, filling, take, made)
            elif cfg[SCHEDULER] == SGLANG:
                schedule_sglang(cfg, state, table, isl, osl, queue, running, filling, take, made, positions, phases)
            else:
                schedule_vllm(cfg, state, table, isl, queue, stack, running, filling, take, made, positions, phases)
            lasts = price(cfg, c, draft, line_a, line_c, made)
            seen = streamed(cfg, state, table, isl, filling, take, now + lasts)
            if 0 <= window < seen:
                take_arrivals(cfg, state, table, isl, osl, queue, window)
                break
            record(state, made, steps, now, lasts)
            began = now
            now += lasts
            state[UNHEARD] = 0 if made[PREFILL_TOKENS] > 0 else (state[UNHEARD] + 1) % cfg[RECEIVE]
            take_arrivals(cfg, state, table, isl, osl, queue, began if cfg[OVERLAP] else now - 1)
            end_step(cfg, state, table, isl, osl, running, filling, take, gaps, edges, positions, phases, seen)
        for i in range(state[RUNNING]):
            r = running[i]
            if table[UNTIL, r] < NEVER:
                table[GENERATED, r] = state[ROUND] - table[BASE, r]
        return state[ROUND] + state[ALONE], state[NEXT_SEND], version

    return loop


def _compiled() -> Any:
    """The loop behind numba, kept on disk if any place for it can be written.

    It allocates nothing, so numba's counting of references (``_nrt``) is left out: it made the loop ten times slower.
    """
    loop = _build(_fingerprint())
    compiler: Any = njit
    try:
        return compiler(nogil=True, cache=True, _nrt=False)(loop)
    except RuntimeError:  # no place for a cache
        return compiler(nogil=True, _nrt=False)(loop)


_loop = _compiled()


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
        windows: blocks that a sequence holds for its sliding windows, beside those of its context.
        window_ps: when the run stops: tokens after this moment do not happen, rows sent after it are
            left out, and what is not complete is unfinished; -1 to run to the end.
        max_context: longest prompt plus output; a longer request is rejected; 0 for no such limit.

    Returns:
        The record. Nanoseconds are whole picoseconds divided by 1,000, rounded down. ``osl`` counts
        the tokens that were produced; an unfinished request has them and no ``last_token_ns``.

    Raises:
        InputError: due times out of order, lengths below one token, an engine without slots, tokens or blocks, or whose
            steps do not hold a token and its guesses.
    """
    return run_recorded(trace, step, knobs, kv_blocks, windows=windows, window_ps=window_ps, max_context=max_context, most_steps=0)[0]


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
) -> tuple[Requests, StepRecord]:
    """As ``run``, with the first ``most_steps`` steps recorded (72 bytes each).

    ``stop`` is an int64 array of one element: another thread that sets it to 1 ends the run between
    two steps, and what it returns is then of no use.
    """
    check_run(trace, step, knobs, kv_blocks)
    count, drafting = len(trace), step.drafting
    drafted = 0 if drafting is None else drafting.tokens
    cfg = np.zeros(SETTINGS, np.int64)
    cfg[SCHEDULER], cfg[SLOTS], cfg[MAX_TOKENS] = _CODES[knobs.scheduler], slots(knobs, drafted), knobs.max_num_tokens
    cfg[CHUNKED], cfg[BLOCK_TOKENS], cfg[KV_BLOCKS] = knobs.chunked_prefill, knobs.tokens_per_block, kv_blocks
    cfg[MAX_CONTEXT], cfg[FRONTEND], cfg[WINDOW] = max_context, to_ps(step.frontend_s), window_ps
    cfg[STREAM], cfg[WINDOW_BLOCKS], cfg[WINDOW_TOKENS] = to_ps(step.stream_s), windows.blocks, windows.tokens
    cfg[TURNAROUND], cfg[CONCURRENCY], cfg[RECEIVE] = trace.turnaround_ps, trace.concurrency, knobs.receive_interval
    cfg[OVERLAP] = knobs.overlap_schedule
    cfg[WAIT_STEPS], cfg[WAIT_TOKENS] = knobs.batch_wait_steps, math.ceil(knobs.batch_wait_ratio * knobs.max_num_tokens)
    draft = np.zeros(COEFFICIENTS) if drafting is None else drafting.coefficients
    if drafting is not None:
        cfg[DRAFTED], cfg[PASSES], cfg[BELOW] = drafted, drafting.passes, threshold(drafting.acceptance)
        cfg[SEED] = np.uint64(mixed(trace.seed)).astype(np.int64)
    table = np.empty((REQUEST_ROWS, count), np.int64)
    gaps = np.zeros((POSITION_BUCKETS, GAP_BINS), np.int64)
    steps = np.zeros((most_steps, STEP_COLUMNS), np.int64)
    due, isl, osl = (_plain(column, np.int64) for column in (trace.due_ps, trace.isl, trace.osl))
    prices = _plain(step.coefficients, np.float64), _plain(draft, np.float64)
    halt = np.zeros(1, np.int64) if stop is None else stop
    most = cfg[SLOTS]
    queue, (running, filling, take, stack) = np.empty(count, np.int64), np.empty((4, most), np.int64)
    line_a, line_c = np.full((2, most + 1), -1)
    state, positions, phases, made = (np.zeros(n, np.int64) for n in (STATE, POSITION_BUCKETS, knobs.tokens_per_block, STEP_COLUMNS))
    scratch = queue, running, filling, take, stack, line_a, line_c, state, positions, phases, made
    number, sent, _ = _loop(cfg, *prices, due, isl, osl, table, *scratch, gaps, _EDGES, steps, halt)
    table = table[:, :sent]
    if window_ps >= 0:
        table = table[:, : int(np.searchsorted(table[SENT], window_ps, side="right"))]
    record = StepRecord(
        steps=steps[: min(number, most_steps)], count=int(number), first_step=table[FIRST_STEP].copy(), last_step=table[LAST_STEP].copy()
    )
    return _requests(table, isl, gaps, window_ps), record


def _requests(table: NDArray[np.int64], isl: NDArray[np.int64], gaps: NDArray[np.int64], window_ps: int) -> Requests:
    sent_ns, status = table[SENT] // PS_PER_NS, table[STATUS]
    last = np.where(status == COMPLETED, table[LAST], -1)
    return Requests(
        due_ns=sent_ns,
        sent_ns=sent_ns.copy(),
        first_token_ns=table[FIRST] // PS_PER_NS,
        last_token_ns=last // PS_PER_NS,
        isl=isl[: table.shape[1]].copy(),
        osl=table[GENERATED].copy(),
        cached_tokens=np.zeros(table.shape[1], np.int64),
        instance=np.where(status == REJECTED, -1, 0).astype(np.int32),
        status=status.astype(np.int8),
        preemptions=table[PREEMPTIONS].astype(np.int32),
        gaps=gaps,
        window_ns=window_ps // PS_PER_NS if window_ps >= 0 else -1,
    )


def slots(knobs: EngineKnobs, drafted: int = 0) -> int:
    """Sequences that run at once: engines that hold decodes to a token budget take care that each can have one in every step."""
    return (
        knobs.max_batch_size
        if knobs.scheduler in ("static", "sglang")
        else min(knobs.max_batch_size, knobs.max_num_tokens // (drafted + 1))
    )


def check_run(trace: Trace, step: StepModel, knobs: EngineKnobs, kv_blocks: int) -> None:
    """Refuse what no engine could run.

    Raises:
        InputError: as ``run``.
    """
    if min(knobs.max_batch_size, knobs.max_num_tokens, knobs.tokens_per_block, knobs.receive_interval) < 1 or kv_blocks < 0:
        raise InputError("engine knobs: max_batch_size, max_num_tokens, tokens_per_block and receive_interval are 1 or more")
    if step.drafting is not None:
        k = step.drafting.tokens
        if knobs.scheduler == "static":
            raise InputError(f"{option('speculation')}: static batching has no speculative decoding here; use in-flight batching")
        if k < 1 or k + 1 > knobs.max_num_tokens:
            raise InputError(
                f"{option('speculation')}: k={k} is not possible in steps of {knobs.max_num_tokens:,} tokens; write 1 or more, below that"
            )
    if len(trace) and (int(trace.isl.min()) < 1 or int(trace.osl.min()) < 1):
        raise InputError("lengths: a prompt and an output have one token or more")
    if trace.concurrency == 0 and len(trace) and (int(trace.due_ps[0]) < 0 or bool(np.any(trace.due_ps[1:] < trace.due_ps[:-1]))):
        raise InputError("arrivals: due times are 0 or more and in order")


def _plain(column: NDArray[Any], kind: type) -> NDArray[Any]:
    """The column as the one array type that the loop is compiled for."""
    return np.require(column, dtype=kind, requirements=["C", "W"])


def is_compiled() -> bool:
    """Whether ``run`` starts at once: compiled in this process, or found in numba's cache on disk."""
    if _loop.signatures:
        return True
    try:
        cache = _loop._cache
        index = cache._cache_file._load_index()
        return any(key[1:] == cache._index_key(None, _loop.targetctx.codegen())[1:] for key in index)
    except (AttributeError, OSError):
        return False


def warm_up() -> None:
    """Compile the loop, or load it from numba's cache, by a run of one request."""
    one = np.ones(1, np.int64)
    trace = Trace(due_ps=np.zeros(1, np.int64), isl=one, osl=one, concurrency=0, turnaround_ps=0)
    knobs = EngineKnobs(
        scheduler="static",
        max_batch_size=1,
        max_num_tokens=1,
        chunked_prefill=False,
        tokens_per_block=1,
        kv_rule="free_gpu_memory_fraction",
        kv_fraction=0.9,
    )
    run(trace, StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0), knobs, 2)
