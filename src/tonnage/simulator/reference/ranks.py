"""Attention ranks of one instance in lockstep: each has its queue and its KV cache, and all meet at the experts of every layer.

So a step of the instance is a step of every rank and lasts as long as that of the slowest; a rank with nothing to do runs an empty batch,
and one rank's prompts hold up the tokens of all. What the experts compute depends on the tokens of all ranks (``share`` of
``step_seconds``). A request that comes is heard by its rank when the step ends, also where that rank is idle. The window ends for all
ranks at once: a step is not taken if the clients of any rank would have its tokens later.

With ``rank_wait_steps`` the prompts of a step are held while all ranks decode and not all of them have prompts, until so many steps in a
row have passed since prompts were last computed or held the last time (TensorRT-LLM, ``_balance_adp_requests`` of py_executor.py).

The record of steps is one for all: what the slowest rank computed, who was in any rank, and the tokens of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.simulator.reference.clients import Clients
from tonnage.simulator.reference.engine import Engine
from tonnage.simulator.reference.job import NEVER, Step

if TYPE_CHECKING:
    from tonnage.spec.workload import Trace


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
        """Give each of the first ranks the requests of a trace, with its clients, and do all that is to do."""
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
            engine.end(engine.step or Step())
        return True

    def _begin(self, busy: Sequence[bool]) -> bool:
        """Put the next step of every rank together; it lasts as long as the slowest rank's, also where no rank computes a token."""
        held, steps = self._holds(), []
        for engine, has_work in zip(self.engines, busy, strict=True):
            engine.batcher.held = held
            steps.append(engine.batcher.schedule() if has_work else Step())
        tokens = [engine.tokens_of(step) for engine, step in zip(self.engines, steps, strict=True)]
        lasts = [0] * len(steps)
        for i, (engine, step) in enumerate(zip(self.engines, steps, strict=True)):
            if tokens[i] or (busy[i] and not any(tokens)):
                lasts[i] = engine.prices.of(step, sum(tokens) / (len(tokens) * tokens[i]) if tokens[i] else 1.0)
        time = self.engines[0].time
        for engine, step in zip(self.engines, steps, strict=True):
            engine.start(step, time + max(lasts))
        if any(engine.beyond(engine.seen_next) for engine in self.engines):
            for engine in self.engines:
                engine.stop()
            return False
        slowest = lasts.index(max(lasts))
        row = list(self.engines[slowest].row(steps[slowest], sum(tokens)))
        row[7:9] = [sum(len(of) for of in (e.batcher.running for e in self.engines)), sum(len(e.batcher.waiting) for e in self.engines)]
        self.steps.append(tuple(row))
        return True

    def _holds(self) -> bool:
        """Whether prompts wait in this step until all ranks have some."""
        batchers = [engine.batcher for engine in self.engines]
        if batchers[0].knobs.rank_wait_steps == 0 or all(batcher.has_prompts for batcher in batchers):
            self.waited = 0
            return False
        self.waited += 1
        if self.waited >= batchers[0].knobs.rank_wait_steps or not all(batcher.has_decodes for batcher in batchers):
            self.waited = 0
            return False
        return True
