"""Small runs by number, for what is compared without numba: hypothesis draws a run in as long as the
kernel and its reference take for it together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.deployments import knobs_of
from tests.simulator.kernel.hand_worked import trace_of
from tests.strategies import MS, ROOFLINE, Run, coefficient_array
from tonnage.perf import step_terms as at
from tonnage.perf.step import Drafting, StepModel
from tonnage.simulator.rules import is_for_reference
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import Scheduler, Windows
from tonnage.spec.sessions import ENDLESS, follows_of, of_rows
from tonnage.spec.workload import Trace

KINDS = ("alone", "sharing", "sessions", "classes")
"""Requests that have nothing in common, or a beginning, or follow one another, or differ in rank."""


GUESSES = Drafting(tokens=2, acceptance=0.6, passes=1, coefficients=ROOFLINE * 0.1)

NO_LIMITS = {"windows": Windows(blocks=0, tokens=0), "window_ps": -1, "max_context": 0}

TICKS = StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), frontend_s=0.0)
"""Steps of a millisecond, whatever they compute."""


def half_ms(*rows: tuple[float, int, int]) -> Trace:
    """``trace_of``, with halves of a millisecond."""
    trace = trace_of(*((round(2 * at), isl, osl) for at, isl, osl in rows))
    return replace(trace, due_ps=trace.due_ps // 2)


class Draws:
    """Values by a seed."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def of(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def lengths(self, count: int, *longest: int) -> np.ndarray:
        most = self.of(*longest)
        return self.rng.integers(self.of(1, 1, most), most + 1, count)


def small_run(scheduler: Scheduler, kind: str, number: int) -> tuple[Run, list[Trace], int]:
    """An engine in little memory or in much, the traces of its attention ranks, and how many these
    are; most are one."""
    draws = Draws(number, KINDS.index(kind), len(scheduler))
    traces = [_trace(draws, kind) for _ in range(draws.of(1, 1, 2, 3) if kind != "sessions" else 1)]
    trace = traces[0]
    longest = max(int((each.isl + each.osl).max()) for each in traces)
    block = draws.of(1, 2, 4)
    knobs = knobs_of(
        draws.of(1, 2, 4, 8),
        max(draws.of(4, 9, 24, 64), 1 if draws.of(True, False) else longest),
        block=block,
        scheduler=scheduler,
        chunked_prefill=draws.of(True, True, False),
        receive_interval=draws.of(1, 1, 2, 5),
        overlap_schedule=draws.of(True, False),
        batch_wait_steps=draws.of(0, 0, 1, 3),
        batch_wait_ratio=draws.of(0.0, 0.3, 0.9),
        queue_order=draws.of("fcfs", "shortest-first"),
        long_prefill_token_threshold=draws.of(0, 0, 1, 3, 8),
        prefix_caching=draws.of(True, True, True, False),
        rank_wait_steps=draws.of(0, 1, 2, 5),
        pads_ranks=draws.of(True, False),
        graph_tokens=draws.of(0, 8, 40),
    )
    if kind == "classes":
        knobs = replace(
            knobs,
            queue_order=draws.of("priority", "deadline", "fcfs", "shortest-first"),
            shed=draws.of(True, False, False),
        )
    step = _step(draws)
    drafts = draws.of(True, False, False) and scheduler != "static"
    if drafts and not is_for_reference(knobs, drafted=True, shares=False):
        guesses = draws.of(1, 2, 5)
        knobs = replace(
            knobs,
            max_num_tokens=max(knobs.max_num_tokens, guesses + 1),
            long_prefill_token_threshold=0,
        )
        step = replace(
            step,
            drafting=Drafting(
                tokens=guesses,
                acceptance=draws.of(0.7, 0.4, 0.0, 1.0),
                passes=draws.of(0, 1, 3),
                coefficients=ROOFLINE * 0.1,
            ),
        )
    tiers = [
        Tier(blocks=blocks, block_ps=77_777_777, latency_ps=latency, overlaps=overlaps)
        for blocks, latency, overlaps in draws.of(
            [], [(3, 0, False)], [(4, 5_555_555_555, True), (20, 0, False)]
        )
    ]
    run = Run(
        trace=trace,
        step=step,
        knobs=knobs,
        kv_blocks=-(-round(draws.of(1.0, 1.3, 1.7, 2.5, 8.0, 0.7) * longest) // block) + 1,
        windows=Windows(blocks=draws.of(0, 0, 1, 3), tokens=draws.of(0, 1, longest // 2)),
        window_ps=draws.of(-1, -1, -1, 40 * MS, 123_456_789_012),
        max_context=draws.of(0, 0, 0, longest - 1),
        tiers=tuple(tiers),
    )
    return run, traces, len(traces) + draws.of(0, 0, 1)


def _step(draws: Draws) -> StepModel:
    """Whole milliseconds a step, where everything happens at once, or no round number."""
    timing = {
        "frontend_s": draws.of(0.0, 0.001, 0.0123456789),
        "stream_s": draws.of(0.0, 0.0, 0.0005, 0.0041),
        "stream_step_s": draws.of(0.0, 0.0, 0.001, 0.00087654321),
        "enter_s": draws.of(0.0, 0.0, 0.002, 0.0061234567),
        "enter_token_s": draws.of(0.0, 1e-4),
    }
    if draws.of(True, False, False):
        return StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), **timing)
    scale = draws.rng.uniform(0.3, 3.0, len(ROOFLINE))
    scale[at.NORM] = 1.0
    scale[at.EXPERT_MISS] = 1.0
    return StepModel(coefficients=ROOFLINE * scale, **timing)


def _trace(draws: Draws, kind: str) -> Trace:
    count = draws.of(2, 5, 9, 14)
    isl, osl = draws.lengths(count, 4, 18, 30), draws.lengths(count, 1, 9, 40)
    spread = draws.of(1, 20, 90)
    due = np.sort(draws.rng.integers(0, 2 * spread, count) * (MS // 2))
    trace = Trace(
        due_ps=due, isl=isl, osl=osl, concurrency=0, turnaround_ps=0, seed=draws.of(3, 2**70)
    )
    if draws.of(True, False, False) and kind != "sessions":
        trace = replace(
            trace,
            due_ps=draws.of(np.full(count, -1), due),
            concurrency=draws.of(1, 3, 6),
            turnaround_ps=draws.of(0, MS, 1_234_567_891),
        )
    if kind == "classes":
        classes = draws.rng.integers(0, 3, count)
        limits = np.array([-1, draws.of(2, 30) * MS, draws.of(9, 200) * MS])
        return replace(trace, priority=classes, ttft_ps=limits[classes])
    if kind == "alone":
        return trace
    cut = draws.of(1, 3, 4, 8)
    rows, further, pauses, waits = [], False, [], []
    for row in range(count):
        pieces = [(row, ENDLESS)]
        shared = min(int(draws.rng.integers(0, 4)) * cut, int(isl[row]))
        if shared:
            more = [(2000 + draws.of(1, 2), shared)] if shared > cut else []
            pieces = [(1000 + draws.of(1, 1, 2), min(cut, shared)), *more, *pieces]
        rows.append(pieces)
        further = kind == "sessions" and row > 0 and draws.of(True, True, False)
        pauses.append(draws.of(0, 5 * MS) if further else -1)
        first = max(place for place, pause in enumerate(pauses) if pause < 0)
        before = set(draws.rng.integers(first, row, 2).tolist()) if further else set()
        waits.append(sorted(before))
    trace = replace(trace, contents=of_rows(rows))
    if kind == "sharing":
        return trace
    clients = draws.of(0, 0, 2)
    return replace(
        trace,
        pause_ps=np.array(pauses),
        due_ps=np.full(count, -1) if clients else np.where(np.array(pauses) < 0, due, -1),
        concurrency=clients,
        turnaround_ps=draws.of(0, MS) if clients else 0,
        follows=draws.of(None, follows_of(waits)),
    )
