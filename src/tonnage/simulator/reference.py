"""One engine under a load, in plain objects: the specification that the kernel is held against.

Time is a whole number of picoseconds. The engine works in steps; whenever one ends there is, in this order:

1. arrivals: what reached the engine before this instant joins the queue;
2. finishes: every request whose tokens the step completed gets its next one; those with their last one
   leave, and in a closed loop their clients are free. With speculative decoding a decode yields one token and
   those guesses before it that were right (``acceptance.py``), all at this instant: the gaps between them are 0,
   and are counted as such;
3. arrivals at this very instant;
4. admission (``batchers.py``, ``sglang.py``), and the next step begins, if there is anything to do. An idle engine
   begins at the instant of the next arrival with what is there.

With a receive interval the engine looks for arrivals (1 and 3) after a step with prompts, when it is idle, and else only after so
many steps since it last looked; what arrives meanwhile waits outside.

With ``overlap_schedule`` a step is put together while the one before it runs: it has arrivals up to the instant at which that one
began, and an idle engine begins as without. Finishes come as without, so that a slot is free one step earlier than in such an engine.

A step with any prefill in it costs ``step_seconds``, rounded once, half to even; a step of decodes
alone costs a(B) + c(B)·C of ``StepModel.decode_line``, where a and c are whole. With guesses the price is
``drafted_step_seconds``: P, n, B and C of a step count as without, and every one of the B has k guesses.

What a step gives its sequences goes to the front end, which turns it into text and streams it, ``stream_s`` for one sequence
after another, while the engine goes on. Clients have all tokens of a step when it has done with the last of
them, and with those of every step before: that is the time of a token, and when a client of a closed loop is free.

A request reaches the engine ``frontend_s`` after it was sent. In an open loop it is sent when it is due. In a
closed loop the client program is serial: clients are free at time 0 and after each of their requests,
and the program sends the next request, in order of ids, ``turnaround_ps`` after the client was free
and the program had done with the one before, whichever is later. That is also when it is due.

A request that can never fit is rejected when it reaches the engine; its client goes on at once.

With a window, time ends there: a step whose tokens clients would have later hands out none, and requests that would be
sent later do not exist. What is not complete is unfinished and keeps the tokens it has.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.perf.step import StepModel
from tonnage.results.requests import COMPLETED, GAP_BINS, POSITION_BUCKETS, REJECTED, Requests, gap_edges_ns
from tonnage.simulator.acceptance import accepted, threshold
from tonnage.simulator.batchers import Batcher, Job, Static, Step, TensorRtLlm, Vllm
from tonnage.simulator.sglang import Sglang
from tonnage.spec.deployment import NO_WINDOWS, EngineKnobs, Windows
from tonnage.spec.workload import Trace
from tonnage.units import PS_PER_NS, to_ps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCHERS: dict[str, type[Batcher]] = {"static": Static, "tensorrt-llm": TensorRtLlm, "vllm": Vllm, "sglang": Sglang}
"""By ``EngineKnobs.scheduler``."""


class Source:
    """Where requests come from; ``sent`` grows in the order in which they are sent, which is that of their ids."""

    def __init__(self, trace: Trace) -> None:
        """Send what is sent whatever happens."""
        self.trace = trace
        self.sent: list[Job] = []
        self.program_free = 0
        if trace.concurrency:
            for _ in range(trace.concurrency):
                self.client_free(0)
        else:
            for due in trace.due_ps:
                self._send(int(due))

    def client_free(self, now: int) -> None:
        """A client of a closed loop can send the next request, if there is one; an open loop has no clients."""
        if self.trace.concurrency and len(self.sent) < len(self.trace):
            self.program_free = max(now, self.program_free) + self.trace.turnaround_ps
            self._send(self.program_free)

    def _send(self, due: int) -> None:
        id_ = len(self.sent)
        self.sent.append(Job(id=id_, isl=int(self.trace.isl[id_]), osl=int(self.trace.osl[id_]), due=due))


class Prices:
    """Picoseconds of steps."""

    def __init__(self, step: StepModel, max_batch_size: int) -> None:
        """Round the decode line once."""
        self.step = step
        a, c = step.decode_line(max_batch_size)
        self.a, self.c = [int(v) for v in a], [int(v) for v in c]

    def of(self, step: Step) -> int:
        """What a step costs."""
        p, n, b = step.prefill_tokens, step.prefill_sequences, step.decode_sequences
        if p == 0:
            return self.a[b] + self.c[b] * step.context_tokens
        return to_ps(float(self.step.seconds(p, n, b, step.pairs_2, step.context_tokens)))


class Gaps:
    """The histogram of single gaps: whole nanoseconds, rounded down, by output position and bin."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self.edges = gap_edges_ns().tolist()
        self.counts: dict[tuple[int, int], int] = {}

    def add(self, position: int, gap_ps: int) -> None:
        """Count the gap after output token ``position``, counted from 1."""
        bucket = min(position.bit_length() - 1, POSITION_BUCKETS - 1)
        place = bucket, bisect.bisect_right(self.edges, gap_ps // PS_PER_NS) - 1
        self.counts[place] = self.counts.get(place, 0) + 1

    def table(self) -> NDArray[np.int64]:
        """Counts of shape (POSITION_BUCKETS, GAP_BINS)."""
        import numpy as np

        table = np.zeros((POSITION_BUCKETS, GAP_BINS), np.int64)
        for place, count in self.counts.items():
            table[place] = count
        return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a run leaves behind.

    Attributes:
        requests: the record.
        steps: one row per step, the columns of ``StepRecord.steps``.
        jobs: the requests with their times in picoseconds.
        free_blocks: KV blocks that are free at the end.
    """

    requests: Requests
    steps: list[tuple[int, ...]]
    jobs: list[Job]
    free_blocks: int


class Engine:
    """One engine, its load, and the clock."""

    def __init__(self, source: Source, batcher: Batcher, prices: Prices, window_ps: int) -> None:
        """Start at time 0."""
        drafting = prices.step.drafting
        self.below = 0 if drafting is None else threshold(drafting.acceptance)
        self.source = source
        self.batcher = batcher
        self.prices = prices
        self.frontend_ps, self.stream_ps = to_ps(prices.step.frontend_s), to_ps(prices.step.stream_s)
        self.window_ps = window_ps
        self.now = 0
        self.began = 0
        self.seen = 0
        self.arrived = 0
        self.unheard = 0
        self.gaps = Gaps()
        self.steps: list[tuple[int, ...]] = []

    def run(self) -> None:
        """Step until nothing is left to do, or the window ends."""
        while True:
            self.take_arrivals(self.looks(self.now))
            if not self.batcher.running and not self.batcher.waiting:
                self.batcher.idle()
                if self.arrived == len(self.source.sent):
                    return
                self.unheard = 0
                self.now = self.began = max(self.now, self.next_arrival())
                if self.beyond(self.now):
                    return
                continue
            step = self.batcher.schedule()
            lasts = self.prices.of(step)
            seen = self.streamed(step, self.now + lasts)
            if self.beyond(seen):
                self.take_arrivals(self.window_ps)
                return
            self.record(step, lasts)
            self.began = self.now
            self.now += lasts
            self.seen = seen
            self.unheard = 0 if step.prefill_tokens else (self.unheard + 1) % self.batcher.knobs.receive_interval
            self.take_arrivals(self.looks(self.now - 1))
            self.end(step)

    def streamed(self, step: Step, ends: int) -> int:
        """When clients have the tokens of a step that ends at ``ends``, and all before them."""
        sequences = sum(job.computed + new == job.tokens for job, new in step.work)
        return max(self.seen, ends) + sequences * self.stream_ps

    def beyond(self, instant: int) -> bool:
        """Whether time has ended by then."""
        return 0 <= self.window_ps < instant

    def looks(self, until: int) -> int:
        """Up to when the engine knows what came: until then, or when the last step began."""
        return self.began if self.batcher.knobs.overlap_schedule else until

    def next_arrival(self) -> int:
        """When the next request on its way reaches the engine."""
        return self.source.sent[self.arrived].due + self.frontend_ps

    def take_arrivals(self, until: int) -> None:
        """Queue what reaches the engine up to and including ``until``, and reject what can never fit; not between two looks."""
        while self.unheard == 0 and self.arrived < len(self.source.sent) and self.next_arrival() <= until:
            arrival = self.next_arrival()
            job = self.source.sent[self.arrived]
            self.arrived += 1
            if self.batcher.never_fits(job):
                job.status = REJECTED
                self.source.client_free(arrival)
            else:
                self.batcher.waiting.append(job)

    def end(self, step: Step) -> None:
        """The step is over: tokens for all whose work it completed."""
        for job, new in step.work:
            job.computed += new
            if job.computed == job.tokens:
                self.tokens(job)

    def tokens(self, job: Job) -> None:
        """The tokens of a computation that is complete: one, and of a decode the guesses before it that were right."""
        right = accepted(self.source.trace.seed, job.id, job.generated, self.batcher.guesses(job), self.below)
        further = min(right, job.osl - job.generated - 1)
        job.computed += further
        for _ in range(further + 1):
            self.token(job)

    def token(self, job: Job) -> None:
        """One output token; the first comes with the end of the prompt, and the last ends the request."""
        number = len(self.steps) - 1
        if job.generated == 0:
            job.first_token, job.first_step = self.seen, number
        else:
            self.gaps.add(job.generated, self.seen - job.last_token)
        job.generated += 1
        job.drafts = True
        job.last_token = self.seen
        if job.generated == job.osl:
            job.status, job.last_step = COMPLETED, number
            self.batcher.leave(job)
            self.source.client_free(self.seen)

    def record(self, step: Step, lasts: int) -> None:
        """Keep the composition of a step."""
        made = step.prefill_tokens, step.prefill_sequences, step.decode_sequences, step.pairs_2, step.context_tokens
        self.steps.append((self.now, lasts, *made, len(self.batcher.running), len(self.batcher.waiting)))


def drafted_tokens(step: StepModel) -> int:
    """Guesses of a decode; 0 without speculative decoding."""
    return 0 if step.drafting is None else step.drafting.tokens


def run_reference(
    trace: Trace,
    step: StepModel,
    knobs: EngineKnobs,
    kv_blocks: int,
    *,
    windows: Windows = NO_WINDOWS,
    window_ps: int = -1,
    max_context: int = 0,
) -> Reference:
    """Simulate one engine; the arguments are those of ``kernel.run``."""
    batcher = BATCHERS[knobs.scheduler](knobs, kv_blocks, max_context, drafted_tokens(step), windows)
    engine = Engine(Source(trace), batcher, Prices(step, knobs.max_batch_size), window_ps)
    engine.run()
    jobs = [job for job in engine.source.sent if not engine.beyond(job.due)]
    return Reference(requests=_requests(jobs, engine.gaps, window_ps), steps=engine.steps, jobs=jobs, free_blocks=batcher.free)


def _requests(jobs: Sequence[Job], gaps: Gaps, window_ps: int) -> Requests:
    import numpy as np

    def column(values: list[int]) -> NDArray[np.int64]:
        return np.array(values, dtype=np.int64)

    due = column([job.due // PS_PER_NS for job in jobs])
    return Requests(
        due_ns=due,
        sent_ns=due.copy(),
        first_token_ns=column([job.first_token // PS_PER_NS for job in jobs]),
        last_token_ns=column([job.last_token // PS_PER_NS if job.status == COMPLETED else -1 for job in jobs]),
        isl=column([job.isl for job in jobs]),
        osl=column([job.generated for job in jobs]),
        cached_tokens=column([0] * len(jobs)),
        instance=column([-1 if job.status == REJECTED else 0 for job in jobs]).astype(np.int32),
        status=column([job.status for job in jobs]).astype(np.int8),
        preemptions=column([job.preemptions for job in jobs]).astype(np.int32),
        gaps=gaps.table(),
        window_ns=window_ps // PS_PER_NS if window_ps >= 0 else -1,
    )
