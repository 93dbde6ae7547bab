"""Hypothesis strategies for the values that the simulator takes; small, and rich in ties and
shortages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tonnage.perf import step_terms as at
from tonnage.perf.step import Drafting, StepModel
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.simulator.rules import is_for_reference
from tonnage.simulator.tiers import Tier
from tonnage.spec.arrivals import TrafficClass, with_classes
from tonnage.spec.deployment import EngineKnobs, Scheduler, Windows
from tonnage.spec.sessions import ENDLESS, Follows, Pause, Sessions, follows_of, of_rows
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Trace, Workload

MS = 1_000_000_000
"""Picoseconds of a millisecond."""

SCHEDULERS: tuple[Scheduler, ...] = get_args(Scheduler)


def examples(share: float) -> settings:
    """Settings of a property of which an example takes long: that share of the examples that the
    profile has (tests/conftest.py)."""
    most = max(1, round(share * settings.default.max_examples))
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def coefficient_array(**seconds: float) -> np.ndarray:
    """Coefficients by their names in ``perf/step_terms.py``, in lower case; the rest is 0 and the
    exponent 1.5."""
    array = np.zeros(COEFFICIENTS)
    array[at.NORM] = 1.5
    for name, value in seconds.items():
        array[getattr(at, name.upper())] = value
    return array


ROOFLINE = coefficient_array(
    linear_flops=2.3e-5,
    linear_bytes=3.1e-3,
    expert_flops=1.3e-5,
    expert_bytes=1.7e-3,
    expert_miss=0.75,
    head_flops=1.1e-6,
    head_bytes=2.9e-4,
    activation=1.3e-7,
    attention=1.7e-9,
    context=3.3e-8,
    walk=7.7e-7,
    comm_step=1.9e-4,
    comm_token=2.1e-7,
    host_step=5.7e-4,
    host_sequence=2.3e-5,
    host_prefill=9.1e-4,
)
"""A step of everything, of about 5 ms and of no round number."""


@st.composite
def step_models(draw: st.DrawFn) -> StepModel:
    """The roofline, scaled by irregular factors, or whole milliseconds a step, where everything
    happens at once."""
    front_end = {
        "frontend_s": draw(st.sampled_from([0.0, 0.001, 0.0123456789])),
        "stream_s": draw(st.sampled_from([0.0, 0.0, 0.0005, 0.00123456789])),
        "stream_step_s": draw(st.sampled_from([0.0, 0.0, 0.001, 0.00087654321])),
        "enter_s": draw(st.sampled_from([0.0, 0.0, 0.002, 0.0061234567])),
        "enter_token_s": draw(st.sampled_from([0.0, 1e-4])),
    }
    if draw(st.booleans()):
        return StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), **front_end)
    scale = draw(st.lists(st.floats(0.1, 3.0), min_size=COEFFICIENTS, max_size=COEFFICIENTS))
    coefficients = ROOFLINE * np.array(scale)
    coefficients[at.NORM] = draw(st.floats(1.0, 4.0))
    coefficients[at.EXPERT_MISS] = draw(st.floats(0.0, 1.0))
    if draw(st.booleans()):
        coefficients[[at.STARVED, at.STARVED_FROM, at.STARVED_TO]] = 1.1e-3, 2.0, 9.0
    if draw(st.booleans()):
        coefficients[[at.HOST_LEAST, at.HOST_LEAST_SEQUENCE]] = (
            7.3e-3,
            draw(st.sampled_from([0.0, 1.9e-5])),
        )
    if draw(st.booleans()):
        coefficients[[at.COMM_SLOW, at.SLOW_TO]] = 1.3e-5, 6.0
    if draw(st.booleans()):
        coefficients[[at.COMM_SMALL, at.SMALL_TOKENS, at.ONE_SHOT_TO]] = (
            1.7e-5,
            draw(st.sampled_from([0.0, 9.0])),
            5.0,
        )
    if draw(st.booleans()):
        coefficients[[at.HEADS, at.WAVE, at.GROUPED_FROM]] = (
            5.1e-8,
            0.37,
            draw(st.sampled_from([3.3, 1e9])),
        )
    if draw(st.booleans()):
        coefficients[[at.EXPERT_FLOPS, at.EXPERT_BYTES]] = 0.0
    if draw(st.booleans()):
        coefficients[[at.LAUNCHES, at.EAGER]] = (
            draw(st.sampled_from([4.1e-3, 8.3e-3])),
            draw(st.sampled_from([0.0, 1.9e-3])),
        )
        coefficients[at.GRAPHED_TO] = draw(st.sampled_from([0.0, 11.0]))
    return StepModel(coefficients=coefficients, **front_end)


@st.composite
def draftings(draw: st.DrawFn) -> Drafting:
    """One guess or several, right never, always or sometimes, by no pass of a drafter or
    several."""
    scale = draw(st.floats(0.0, 0.5))
    coefficients = ROOFLINE * scale
    coefficients[at.NORM] = 1.5
    coefficients[at.EXPERT_MISS] = 0.75
    acceptance = draw(st.sampled_from([0.7, 0.4, 0.9, 0.0, 1.0]))
    return Drafting(
        tokens=draw(st.sampled_from([1, 2, 3, 7])),
        acceptance=acceptance,
        passes=draw(st.sampled_from([0, 1, 3])),
        coefficients=coefficients,
    )


@st.composite
def traces(draw: st.DrawFn, most: int = 40) -> Trace:
    """Open loops, some with a cap, closed ones, fixed and mixed lengths; times partly on a grid of
    half milliseconds."""
    count = draw(st.sampled_from([n for n in (7, 20, 40, 2, 1) if n <= most]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    isl, osl = (
        _lengths(rng, count, draw(st.sampled_from([30, 90, 5, 1])), draw(st.booleans()))
        for _ in range(2)
    )
    if draw(st.booleans()):
        turnaround = draw(st.sampled_from([0, MS // 2, MS, 1_234_567_891]))
        capped = draw(st.booleans())
        due = (
            np.sort(rng.integers(0, 200 * MS, count))
            if capped
            else np.full(count, -1, dtype=np.int64)
        )
        return Trace(
            due_ps=due,
            isl=isl,
            osl=osl,
            concurrency=draw(st.integers(1, 12)),
            turnaround_ps=0 if capped else turnaround,
        )
    spread = draw(st.sampled_from([1, 20, 200, 2000]))
    due = (
        rng.integers(0, 2 * spread, count) * (MS // 2)
        if draw(st.booleans())
        else rng.integers(0, spread * MS, count)
    )
    return Trace(due_ps=np.sort(due), isl=isl, osl=osl, concurrency=0, turnaround_ps=0)


def _lengths(rng: np.random.Generator, count: int, longest: int, fixed: bool) -> np.ndarray:
    return np.full(count, longest) if fixed else rng.integers(1, longest + 1, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The arguments of ``kernel.run``."""

    trace: Trace
    step: StepModel
    knobs: EngineKnobs
    kv_blocks: int
    windows: Windows
    window_ps: int
    max_context: int
    tiers: tuple[Tier, ...] = ()


@st.composite
def shared_runs(draw: st.DrawFn, schedulers: tuple[Scheduler, ...] = SCHEDULERS) -> Run:
    """The same with requests that have something in common, and some of them turns of
    conversations."""
    run = draw(runs(schedulers))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, block = len(run.trace), run.knobs.tokens_per_block
    tiers = draw(st.sampled_from([(), (), (3,), (7, 20), (0, 5), (500,)]))
    latency, overlaps = (
        draw(st.sampled_from([0, 5_555_555_555])),
        draw(st.sampled_from([(False, False), (True, True), (True, False)])),
    )
    tiers = tuple(
        Tier(
            blocks=n,
            block_ps=(place + 1) * 77_777_777,
            latency_ps=latency,
            overlaps=overlaps[place],
        )
        for place, n in enumerate(tiers)
    )
    caching = draw(st.sampled_from([True, True, True, True, False]))
    if draw(st.booleans()):
        common = draw(st.sampled_from([1, 2, 5]))
        cut = draw(st.sampled_from([block, 1, 3, 2 * block]))
        rows = []
        for number, isl in enumerate(run.trace.isl.tolist()):
            pieces, family = [(number, ENDLESS)], int(rng.integers(common))
            shared = min(int(rng.integers(0, 6)) * cut, isl - 1 + int(rng.integers(2)))
            if shared:
                further = [(2000 + family, shared)] if shared > cut else []
                pieces = [(1000 + family, min(cut, shared)), *further, *pieces]
            rows.append(pieces)
        trace = replace(run.trace, contents=of_rows(rows))
    else:
        sessions = Sessions(
            prefix_tokens=draw(st.sampled_from([0, 1, 13, 4 * block])),
            prefix_share=draw(st.sampled_from([1.0, 0.5])),
            prefixes=draw(st.sampled_from([1, 3])),
            turns=Lengths(kind="uniform", mean=2.5, std=1.2),
            think=Pause(
                mean_s=draw(st.sampled_from([0.0, 0.01, 0.3])), exponential=draw(st.booleans())
            ),
            tool_calls=draw(st.sampled_from([0, 1])),
            tool=Pause(mean_s=0.005),
        )
        isl, osl = (
            Lengths(kind="uniform", mean=mean, std=mean / 3)
            for mean in draw(st.sampled_from([(20, 12), (7, 20), (3, 1)]))
        )
        closed = ClosedLoop(
            concurrency=draw(st.integers(1, 8)), turnaround_s=draw(st.sampled_from([0.0, 0.001]))
        )
        arrivals = draw(st.sampled_from([closed, OpenLoop(rate=20.0), OpenLoop(rate=300.0)]))
        workload = Workload(isl=isl, osl=osl, arrivals=arrivals, requests=count, sessions=sessions)
        trace = replace(workload.trace(int(rng.integers(2**31))), seed=run.trace.seed)
        if draw(st.booleans()):
            trace = replace(trace, follows=_graph(trace, rng))
    return replace(run, trace=trace, tiers=tiers, knobs=replace(run.knobs, prefix_caching=caching))


def _graph(trace: Trace, rng: np.random.Generator) -> Follows:
    """Each further request of a session waits for one or two of those before it: so some run beside
    others, and some wait for both."""
    sessions = trace.session()
    waits = []
    for row, session in enumerate(sessions.tolist()):
        begin = int(np.searchsorted(sessions, session))
        waits.append(sorted(set(rng.integers(begin, row, 2).tolist())) if row > begin else [])
    return follows_of(waits)


@st.composite
def runs(draw: st.DrawFn, schedulers: tuple[Scheduler, ...] = SCHEDULERS) -> Run:
    """Engines whose slots, budgets and caches are of the order of what is asked of them; some
    requests never fit."""
    trace = draw(traces())
    longest = int((trace.isl + trace.osl).max())
    budget = draw(st.sampled_from([1.0, 0.3, 0.9, 1.2, 2.5, 10.0])) * longest
    block = draw(st.sampled_from([1, 2, 4, 16]))
    cache = draw(st.sampled_from([1.0, 1.1, 1.3, 1.7, 2.0, 3.0, 6.0, 1000.0, 0.6])) * longest
    knobs = EngineKnobs(
        scheduler=draw(st.sampled_from(schedulers)),
        max_batch_size=draw(st.sampled_from([8, 20, 3, 2, 1])),
        max_num_tokens=max(1, round(budget)),
        chunked_prefill=draw(st.booleans()),
        tokens_per_block=block,
        kv_rule="free_gpu_memory_fraction",
        kv_fraction=0.9,
        receive_interval=draw(st.sampled_from([1, 1, 2, 5, 30])),
        overlap_schedule=draw(st.booleans()),
        batch_wait_steps=draw(st.sampled_from([0, 0, 1, 3, 20])),
        batch_wait_ratio=draw(st.sampled_from([0.0, 0.3, 0.9])),
        queue_order=draw(st.sampled_from(["fcfs", "fcfs", "shortest-first"])),
        long_prefill_token_threshold=draw(
            st.sampled_from(
                [0, 0, 1, 3, max(1, round(budget / 4)), max(1, round(budget / 2)), longest]
            )
        ),
    )
    window = draw(
        st.sampled_from([-1, -1, -1, 0, 15 * MS // 2, 40 * MS, 123_456_789_012, 700 * MS])
    )
    context = draw(st.sampled_from([0, 0, 0, 0, longest, longest - 1]))
    blocks = -(-round(cache) // block)
    step = draw(step_models())
    if knobs.scheduler != "static" and draw(st.integers(0, 2)) == 0:
        step = replace(step, drafting=draw(draftings()))
        trace = replace(trace, seed=draw(st.integers(0, 2**70)))
        budget = max(knobs.max_num_tokens, step.drafting.tokens + 1)
        knobs = replace(knobs, max_num_tokens=budget, long_prefill_token_threshold=0)
    kept = Windows(
        blocks=draw(st.sampled_from([0, 0, 1, 3])),
        tokens=draw(st.sampled_from([0, 1, longest // 2, longest])),
    )
    return Run(
        trace=trace,
        step=step,
        knobs=knobs,
        kv_blocks=blocks,
        windows=kept,
        window_ps=window,
        max_context=context,
    )


@st.composite
def ranked_runs(draw: st.DrawFn, schedulers: tuple[Scheduler, ...] = SCHEDULERS) -> Run:
    """The same with classes, deadlines and shedding in all combinations, often in little memory."""
    run = draw(runs(schedulers))
    classes = (
        TrafficClass(name="a", share=0.4, ttft_s=draw(st.sampled_from([None, 0.001, 0.05, 0.5]))),
        TrafficClass(name="b", share=0.6, ttft_s=draw(st.sampled_from([None, 0.02, 0.2]))),
    )
    order = draw(st.sampled_from(["priority", "deadline", "priority", "fcfs", "shortest-first"]))
    knobs = replace(run.knobs, queue_order=order, shed=draw(st.sampled_from([False, False, True])))
    kv_blocks = run.kv_blocks
    if draw(st.booleans()):
        longest = int((run.trace.isl + run.trace.osl).max())
        kv_blocks = -(
            -round(draw(st.sampled_from([1.0, 1.1, 1.3, 1.7, 2.0, 2.5])) * longest)
            // knobs.tokens_per_block
        )
        knobs = replace(
            knobs,
            max_batch_size=draw(st.sampled_from([20, 8, 4])),
            max_num_tokens=max(knobs.max_num_tokens, longest),
        )
    step = run.step
    if is_for_reference(knobs, drafted=step.drafting is not None, shares=False):
        step = replace(step, drafting=None)
    return replace(
        run,
        trace=with_classes(run.trace, classes, draw(st.integers(0, 100))),
        knobs=knobs,
        kv_blocks=kv_blocks,
        step=step,
    )
