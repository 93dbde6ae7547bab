"""A whole trace on one engine, from the first request to the last or to the end of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tonnage.perf.step import StepModel
from tonnage.results.requests import Requests
from tonnage.simulator.reference.clients import Clients
from tonnage.simulator.reference.engine import Engine
from tonnage.simulator.reference.job import Job
from tonnage.simulator.reference.prefix_cache import PrefixCache
from tonnage.simulator.reference.ranks import Ranks
from tonnage.simulator.reference.record import requests_of
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import NO_WINDOWS, EngineKnobs, Windows
from tonnage.spec.workload import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a run leaves behind.

    Attributes:
        requests: the record.
        steps: one row per step, the columns of ``StepRecord.steps``.
        jobs: the requests with their times in picoseconds.
        free_blocks: KV blocks that are free at the end.
        cache: the prefix cache at the end; None where there is none.
    """

    requests: Requests
    steps: list[tuple[int, ...]]
    jobs: list[Job]
    free_blocks: int
    cache: PrefixCache | None = None


def run_reference(
    trace: Trace,
    step: StepModel,
    knobs: EngineKnobs,
    kv_blocks: int,
    *,
    windows: Windows = NO_WINDOWS,
    window_ps: int = -1,
    max_context: int = 0,
    tiers: Sequence[Tier] = (),
) -> Reference:
    """Simulate one engine; the arguments are those of ``kernel.run``."""
    return run_ranks([trace], 1, step, knobs, kv_blocks, windows=windows, window_ps=window_ps, max_context=max_context, tiers=tiers)[0]


def run_ranks(
    traces: Sequence[Trace],
    ranks: int,
    step: StepModel,
    knobs: EngineKnobs,
    kv_blocks: int,
    *,
    windows: Windows = NO_WINDOWS,
    window_ps: int = -1,
    max_context: int = 0,
    tiers: Sequence[Tier] = (),
) -> list[Reference]:
    """Simulate the attention ranks of an instance in lockstep; the arguments are those of ``kernel.run_ranks``."""
    engines = []
    for trace in traces:
        seed, contents = trace.seed, trace.contents
        more: dict[str, Any] = {"window_ps": window_ps, "max_context": max_context, "seed": seed, "contents": contents, "tiers": tiers}
        engines.append(Engine(step, knobs, kv_blocks, windows=windows, **more))
    engines += [Engine(step, knobs, kv_blocks, windows=windows, window_ps=window_ps) for _ in range(ranks - len(traces))]
    if ranks > 1:
        Ranks(engines).run(traces)
    else:
        engines[0].answer = Clients(traces[0], engines[0].submit).answer
        engines[0].advance()
    return [_left(engine, trace, window_ps) for engine, trace in zip(engines, traces, strict=False)]


def _left(engine: Engine, trace: Trace, window_ps: int) -> Reference:
    jobs = [job for job in engine.jobs.values() if not engine.beyond(job.due)]
    if trace.contents is not None:
        jobs.sort(key=lambda job: (job.due, job.id))
    requests = requests_of(jobs, engine.gaps, window_ps)
    return Reference(
        requests=requests if trace.contents is None else replace(requests, row=np.array([job.id for job in jobs], np.int64)),
        steps=engine.steps,
        jobs=jobs,
        free_blocks=engine.kv_blocks_free,
        cache=engine.batcher.cache,
    )


def drafted_tokens(step: StepModel) -> int:
    """Guesses of a decode; 0 without speculative decoding."""
    return 0 if step.drafting is None else step.drafting.tokens
