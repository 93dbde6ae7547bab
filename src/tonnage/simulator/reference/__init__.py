"""The simulator as a reader reads it: one engine in plain objects, a file per scheduler; here a
whole trace on one engine or on ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tonnage.perf.step import StepModel
from tonnage.results.requests import Requests
from tonnage.simulator.reference.engine import Engine, requests_of
from tonnage.simulator.reference.job import NEVER, Job, Step
from tonnage.simulator.reference.prefix_cache import PrefixCache
from tonnage.simulator.request import Request
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import NO_WINDOWS, EngineKnobs, Windows
from tonnage.spec.workload import Trace

__all__ = ["Engine", "Reference", "run_ranks", "run_reference"]


# The clients of a trace: who sends its requests to an engine, and when.


class Waiting:
    """The requests of a trace that wait for others to end, and the sessions that are not over."""

    def __init__(self, trace: Trace) -> None:
        """Start with no request ended."""
        graph = trace.graph()
        self.starts, self.rows, self.waits = (
            graph.starts.tolist(),
            graph.rows.tolist(),
            graph.waits.tolist(),
        )
        self.pause = [0] * len(trace) if trace.pause_ps is None else trace.pause_ps.tolist()
        self.ready = [0] * len(trace)
        self.session = trace.session().tolist()
        self.left = Counter(self.session)

    def ended(self, number: int, now: int) -> list[tuple[int, int]]:
        """The requests that waited for one alone, or for it last, and when each is sent."""
        self.left[self.session[number]] -= 1
        free = []
        for row in self.rows[self.starts[number] : self.starts[number + 1]]:
            self.waits[row] -= 1
            self.ready[row] = max(self.ready[row], now)
            if self.waits[row] == 0:
                free.append((row, self.ready[row] + self.pause[row]))
        return free

    def over(self, number: int) -> bool:
        """Whether all requests of a request's session have ended."""
        return self.left[self.session[number]] == 0


class Clients:
    """Drives an engine with a trace: it submits requests, and answers the ends of earlier ones.

    In an open loop a request is sent when it is due. In a closed loop the client program is serial:
    clients are free at time 0 and after each of their requests, and the program sends the next
    request, in order of ids, ``turnaround_ps`` after the client was free and the program had done
    with the one before, whichever is later. That is also when it is due. The client of a rejected
    request is free at once: when the request had reached the engine.

    A first request may say when it is due at the earliest, so that a run begins with sessions that
    are under way. Where every request says so and a client takes no time, this is an open loop with
    a cap: the clients are the most requests in flight, and one that is due while all are busy waits
    for the next that is free.

    Of a session only the first request is sent like that. Each further one is sent its pause after
    the end of the last that it waits for, and the client of a closed loop is free when all of the
    session have ended.
    """

    def __init__(self, trace: Trace, submit: Callable[[Request], None]) -> None:
        """Send what is sent whatever happens."""
        self.trace = trace
        self.submit = submit
        self.waiting = Waiting(trace)
        self.begun = 0
        self.program_free = 0
        self.firsts = trace.firsts().tolist()
        if trace.concurrency:
            for _ in range(trace.concurrency):
                self.begin(0)
        else:
            for number in self.firsts:
                self._send(number, int(trace.due_ps[number]))

    def answer(self, number: int, now: int) -> None:
        """A request has ended: the session goes on, or its client is free."""
        for row, at in self.waiting.ended(number, now):
            self._send(row, at)
        if self.waiting.over(number):
            self.begin(now)

    def begin(self, now: int) -> None:
        """A client of a closed loop is free and sends the next first turn, if there is one; an open
        loop has no clients.
        """
        if self.trace.concurrency and self.begun < len(self.firsts):
            self.program_free = max(now, self.program_free) + self.trace.turnaround_ps
            first = self.firsts[self.begun]
            self._send(first, max(self.program_free, int(self.trace.due_ps[first])))
            self.begun += 1

    def _send(self, number: int, due: int) -> None:
        trace = self.trace
        priority = 0 if trace.priority is None else int(trace.priority[number])
        ttft_ps = -1 if trace.ttft_ps is None else int(trace.ttft_ps[number])
        isl, osl = int(trace.isl[number]), int(trace.osl[number])
        self.submit(
            Request(id=number, isl=isl, osl=osl, at=due, priority=priority, ttft_ps=ttft_ps)
        )


# Attention ranks of one instance in lockstep: each has its queue and its KV cache, and all meet at
# the experts of every layer. So a step of the instance is a step of every rank and lasts as long as
# that of the slowest; a rank with nothing to do runs an empty batch, and one rank's prompts hold up
# the tokens of all. What the experts compute depends on the tokens of all ranks (``share`` of
# ``step_seconds``). A request that comes is heard by its rank when the step ends, also where that
# rank is idle. The window ends for all ranks at once: a step is not taken if the clients of any
# rank would have its tokens later. With ``rank_wait_steps`` the prompts of a step are held while
# all ranks decode and not all of them have prompts, until so many steps in a row have passed since
# prompts were last computed or held the last time (TensorRT-LLM, ``_balance_adp_requests`` of
# py_executor.py). With ``pads_ranks`` every rank of a captured step is filled up to the tokens of
# the fullest, and the experts compute these too; nobody waits for what a rank's other matrices do
# with them. The record of steps is one for all: what the slowest rank computed, who was in any
# rank, and the tokens of all.


class Ranks:
    """The engines of an instance, one for each attention rank; whichever is advanced, all are."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        """Take idle engines at time 0, all of one kind."""
        self.engines = list(engines)
        self.waited = 0
        self.steps: list[tuple[int, ...]] = []
        for engine in self.engines:
            engine.advance_ranks, engine.steps = self.advance, self.steps

    def run(self, traces: Sequence[Trace]) -> None:
        """Give each of the first ranks the requests of a trace, with its clients, and do all that
        is to do.
        """
        for engine, trace in zip(self.engines, traces, strict=False):
            engine.answer = Clients(trace, engine.submit).answer
        self.advance(NEVER)

    def advance(self, until: int) -> None:
        """Do all that happens in any rank up to and including ``until``."""
        while not self.engines[0].over and self._turn(until):
            pass
        for engine in self.engines:
            engine.now = max(engine.now, engine.time) if until == NEVER else until

    def _turn(self, until: int) -> bool:
        first = self.engines[0]
        if first.step is None:
            busy = [engine.listen() for engine in self.engines]
            for engine, has_work in zip(self.engines, busy, strict=True):
                if not has_work:
                    engine.batcher.idle()
            if not any(busy):
                at = min(engine.wakes() for engine in self.engines)
                woken = [engine.wake(at, until) for engine in self.engines]
                return all(woken)
            if first.time >= until or not self._begin(busy):
                return False
        if first.ends > until:
            return False
        for engine in self.engines:
            step = engine.step or Step()
            before = engine.seen
            engine.end(step)
            if not engine.tokens_of(step):  # clients see nothing of it
                engine.seen = before
        return True

    def _begin(self, busy: Sequence[bool]) -> bool:
        """Put the next step of every rank together; it lasts as long as the slowest rank's, also
        where no rank computes a token.
        """
        holding, steps = self._holds(), []
        for engine, has_work in zip(self.engines, busy, strict=True):
            engine.batcher.held = holding
            steps.append(engine.batcher.schedule() if has_work else Step())
        tokens = [engine.tokens_of(step) for engine, step in zip(self.engines, steps, strict=True)]
        computed, lasts = self._computed(steps, tokens), [0] * len(steps)
        for i, (engine, step) in enumerate(zip(self.engines, steps, strict=True)):
            if tokens[i] or (busy[i] and not computed):
                lasts[i] = engine.prices.of(
                    step, computed / (len(tokens) * tokens[i]) if tokens[i] else 1.0
                )
        time = self.engines[0].time
        for engine, step in zip(self.engines, steps, strict=True):
            engine.start(step, time + max(lasts))
        if any(engine.beyond(engine.seen_next) for engine in self.engines):
            for engine in self.engines:
                engine.stop()
            return False
        slowest = lasts.index(max(lasts))
        row = list(self.engines[slowest].row(steps[slowest], computed))
        row[7:9] = [
            sum(len(of) for of in (e.batcher.running for e in self.engines)),
            sum(len(e.batcher.waiting) for e in self.engines),
        ]
        self.steps.append(tuple(row))
        return True

    def _computed(self, steps: Sequence[Step], tokens: Sequence[int]) -> int:
        """The tokens that the experts compute for all ranks, including the tokens that fill up a
        captured step.
        """
        knobs, largest = self.engines[0].batcher.knobs, max(tokens)
        captured = largest <= knobs.graph_tokens or not any(step.prefill_tokens for step in steps)
        return len(tokens) * largest if knobs.pads_ranks and captured else sum(tokens)

    def _holds(self) -> bool:
        """Whether prompts wait in this step until all ranks have some."""
        batchers = [engine.batcher for engine in self.engines]
        if batchers[0].knobs.rank_wait_steps == 0 or all(
            batcher.has_prompts for batcher in batchers
        ):
            self.waited = 0
            return False
        self.waited += 1
        if self.waited >= batchers[0].knobs.rank_wait_steps or not all(
            batcher.has_decodes for batcher in batchers
        ):
            self.waited = 0
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The result of a reference run."""

    requests: Requests  # the record
    steps: list[tuple[int, ...]]  # one row per step, the columns of ``StepRecord.steps``
    jobs: list[Job]  # the requests with their times in picoseconds
    free_blocks: int  # KV blocks that are free at the end
    cache: PrefixCache | None = None  # the prefix cache at the end; None where there is none


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
    return run_ranks(
        [trace],
        1,
        step,
        knobs,
        kv_blocks,
        windows=windows,
        window_ps=window_ps,
        max_context=max_context,
        tiers=tiers,
    )[0]


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
    """Simulate the attention ranks of an instance in lockstep; the arguments are those of
    ``kernel.run_ranks``.
    """
    engines = []
    for trace in traces:
        seed, contents = trace.seed, trace.contents
        more: dict[str, Any] = {
            "window_ps": window_ps,
            "max_context": max_context,
            "seed": seed,
            "contents": contents,
            "tiers": tiers,
        }
        engines.append(Engine(step, knobs, kv_blocks, windows=windows, **more))
    engines += [
        Engine(step, knobs, kv_blocks, windows=windows, window_ps=window_ps)
        for _ in range(ranks - len(traces))
    ]
    if ranks > 1:
        Ranks(engines).run(traces)
    else:
        engines[0].answer = Clients(traces[0], engines[0].submit).answer
        engines[0].advance()
    return [
        _record_of(engine, trace, window_ps) for engine, trace in zip(engines, traces, strict=False)
    ]


def _record_of(engine: Engine, trace: Trace, window_ps: int) -> Reference:
    jobs = [job for job in engine.jobs.values() if not engine.beyond(job.due)]
    if trace.contents is not None:
        jobs.sort(key=lambda job: (job.due, job.id))
    requests = requests_of(jobs, engine.gaps, window_ps)
    return Reference(
        requests=requests
        if trace.contents is None
        else replace(requests, row=np.array([job.id for job in jobs], np.int64)),
        steps=engine.steps,
        jobs=jobs,
        free_blocks=engine.kv_blocks_free,
        cache=engine.batcher.cache,
    )
