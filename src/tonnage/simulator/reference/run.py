"""A whole trace on one engine, from the first request to the last or to the end of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.perf.step import StepModel
from tonnage.results.requests import Requests
from tonnage.simulator.reference.clients import Clients
from tonnage.simulator.reference.engine import Engine
from tonnage.simulator.reference.job import Job
from tonnage.simulator.reference.prefix_cache import PrefixCache
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
    engine = Engine(
        step,
        knobs,
        kv_blocks,
        windows=windows,
        window_ps=window_ps,
        max_context=max_context,
        seed=trace.seed,
        contents=trace.contents,
        tiers=tiers,
    )
    engine.answer = Clients(trace, engine.submit).answer
    engine.advance()
    jobs = [job for job in engine.jobs.values() if not engine.beyond(job.due)]
    if trace.contents is not None:
        jobs.sort(key=lambda job: (job.due, job.id))
    return Reference(
        requests=requests_of(jobs, engine.gaps, window_ps),
        steps=engine.steps,
        jobs=jobs,
        free_blocks=engine.kv_blocks_free,
        cache=engine.batcher.cache,
    )


def drafted_tokens(step: StepModel) -> int:
    """Guesses of a decode; 0 without speculative decoding."""
    return 0 if step.drafting is None else step.drafting.tokens
