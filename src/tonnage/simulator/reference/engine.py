"""One engine in plain objects: the specification that the kernel is held against.

Time is a whole number of picoseconds. The engine works in steps; whenever one ends there is, in
this order:

1. arrivals: what reached the engine before this instant joins the queue;
2. finishes: every request whose tokens the step completed gets its next one; those with their last
   one leave. With speculative decoding a decode yields one token and
   those guesses before it that were right (``rules.py``), all at this instant: the gaps between
   them are 0, and are counted as such;
3. arrivals at this very instant;
4. admission (``batcher.py`` and a file per scheduler), and the next step begins, if there is
   anything to do. An idle engine begins at the instant of the next arrival with what is there.

With a receive interval the engine looks for arrivals (1 and 3) after a step with prompts, when it
is idle, and else only after so many steps since it last looked; what arrives meanwhile waits
outside.

With ``overlap_schedule`` a step is put together while the one before it runs: it has arrivals up to
the instant at which that one began, and an idle engine begins as without. Finishes come as without,
so that a slot is free one step earlier than in such an engine.

A step with any prefill in it costs ``step_seconds``, rounded once, half to even; a step of decodes
alone costs a(B) + c(B)·C of ``StepModel.decode_line``, where a and c are whole. With guesses the
price is ``drafted_step_seconds``: P, n, B and C of a step count as without, and every one of the B
has k guesses.

What a step gives its sequences goes to the front end, which takes ``stream_step_s`` to take it up,
turns it into text and streams it, ``stream_s`` for one sequence after another, while the engine
goes on. Clients have all tokens of a step when it has done with the last of them, and with those of
every step before: that is the time of a token. A step that ends before the front end begins with
tokens that wait there is taken up with them, within their ``stream_step_s``.

The same front end lets requests in one after another, in the order in which they are sent. One that
enters keeps it busy for ``enter_s`` and ``enter_token_s`` for each token of its prompt, and reaches
the engine when that is over, at least ``frontend_s`` after it began to enter. Where that takes
time, tokens go first: what a step streams puts off all who have not reached the engine by the end
of that step, by the time that this takes, but by three quarters of the step at most. And requests
that reached the engine since the step before began put off the tokens of this one, where the front
end is not done with both before it ends. One that can never fit is rejected when the engine looks
at it.

With ``shed`` a request is also rejected before a step is put together (after 3) if it waits, has
had no token, and would have its first one later than its limit even if that step had its prompt
alone and whole, less what the prefix cache has of it.

The engine pauses between two calls of ``advance``, wherever in a step that may be. It does not
begin a step at the very instant up to which it was advanced, because more may still arrive then: so
requests may be submitted for any instant from ``now`` on, and how the time is cut into calls
changes nothing. A cancelled request gives up its slot and its blocks at once and gets no more
tokens; the step that is under way lasts as long as it would have.

With a window, time ends there: a step whose tokens clients would have later hands out none, and
requests that would be sent later do not exist. What is not complete is unfinished and keeps the
tokens it has.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, get_args

from tonnage.errors import InputError
from tonnage.perf.step import StepModel
from tonnage.results.requests import (
    COMPLETED,
    GAP_BINS,
    POSITION_BUCKETS,
    REJECTED,
    UNFINISHED,
    Requests,
    gap_edges_ns,
)
from tonnage.simulator.reference.batcher import Batcher
from tonnage.simulator.reference.job import NEVER, Job, Prices, Step
from tonnage.simulator.reference.prefix_cache import PrefixCache
from tonnage.simulator.request import CANCELLED, Happened, Request, check_received
from tonnage.simulator.rules import FOURTHS, accepted, threshold
from tonnage.simulator.tiers import Tier
from tonnage.spec.deployment import NO_WINDOWS, EngineKnobs, Scheduler, Windows
from tonnage.spec.sessions import Contents
from tonnage.units import PS_PER_NS, to_ps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


def requests_of(jobs: Sequence[Job], gaps: Gaps, window_ps: int) -> Requests:
    """What has happened to requests, one row each; a cancelled one is unfinished."""
    import numpy as np

    def column(values: list[int]) -> NDArray[np.int64]:
        return np.array(values, dtype=np.int64)

    due = column([job.due // PS_PER_NS for job in jobs])
    return Requests(
        due_ns=due,
        sent_ns=due.copy(),
        first_token_ns=column([job.first_token // PS_PER_NS for job in jobs]),
        last_token_ns=column(
            [job.last_token // PS_PER_NS if job.status == COMPLETED else -1 for job in jobs]
        ),
        isl=column([job.isl for job in jobs]),
        osl=column([job.generated for job in jobs]),
        cached_tokens=column([job.cached for job in jobs]),
        instance=column([-1 if job.status == REJECTED else 0 for job in jobs]).astype(np.int32),
        status=column(
            [UNFINISHED if job.status == CANCELLED else job.status for job in jobs]
        ).astype(np.int8),
        preemptions=column([job.preemptions for job in jobs]).astype(np.int32),
        gaps=gaps.table(),
        window_ns=window_ps // PS_PER_NS if window_ps >= 0 else -1,
        admitted_ns=column(
            [job.admitted // PS_PER_NS if job.first_token >= 0 else -1 for job in jobs]
        ),
    )


# The schedulers, by their names: a file each, whose ``SCHEDULER`` is its ``Batcher``. The names are
# those of ``EngineKnobs.scheduler``; that of a file is its scheduler's, with underscores.


BATCHERS: dict[str, type[Batcher]] = {
    name: import_module(f"{__package__}.{name.replace('-', '_')}").SCHEDULER
    for name in get_args(Scheduler)
}


Entry = tuple[int, int, int, int]
"""Of ``Happened``: id, at, tokens, status."""


class Engine:
    """One engine; ``simulator.engine.Engine`` is the same in compiled form and says what its
    methods do.
    """

    def __init__(
        self,
        step: StepModel,
        knobs: EngineKnobs,
        kv_blocks: int,
        *,
        windows: Windows = NO_WINDOWS,
        window_ps: int = -1,
        max_context: int = 0,
        seed: int = 0,
        answer: Callable[[int, int], None] | None = None,
        contents: Contents | None = None,
        tiers: Sequence[Tier] = (),
    ) -> None:
        """Start idle at time 0.

        ``answer`` is called with a request and the instant at which its client learns of its end.
        With ``window_ps`` time ends there. With ``contents``, which are by the numbers of the
        requests, engines that have a prefix cache use it, and ``tiers`` below it; and of the
        requests that are sent at one instant the one with the lowest number goes first.
        """
        drafting = step.drafting
        self.drafted = 0 if drafting is None else drafting.tokens
        self.below = 0 if drafting is None else threshold(drafting.acceptance)
        self.seed = seed
        self.scheduler = knobs.scheduler
        self.batcher = BATCHERS[knobs.scheduler](
            knobs, kv_blocks, max_context, self.drafted, windows
        )
        self.prices = Prices(step, knobs.max_batch_size)
        self.frontend_ps, self.stream_ps, self.stream_step_ps = (
            to_ps(step.frontend_s),
            to_ps(step.stream_s),
            to_ps(step.stream_step_s),
        )
        self.enter_ps, self.enter_token_ps = to_ps(step.enter_s), to_ps(step.enter_token_s)
        self.entered = self.entering = self.streams = self.puts_off = self.starts = 0
        self.window_ps = window_ps
        self.answer = answer or (lambda _, at: None)
        self.contents = contents
        if contents is not None and knobs.prefix_caching and self.batcher.CACHES:
            partial = self.batcher.PARTIAL
            self.batcher.cache = PrefixCache(
                kv_blocks, knobs.tokens_per_block, contents, tiers, partial=partial
            )
        self.now = 0
        self.time = self.began = self.ends = self.seen = self.seen_next = 0
        self.unheard = 0
        self.over = False
        self.step: Step | None = None
        self.coming: list[Job] = []
        self.jobs: dict[int, Job] = {}
        self.gaps = Gaps()
        self.steps: list[tuple[int, ...]] = []
        self.entries: list[Entry] = []
        self.alone: dict[tuple[int, int], int] = {}
        self.advance_ranks: Callable[[int], None] | None = None

    def submit(self, request: Request) -> None:
        """Send a request."""
        if request.at < self.now or request.id in self.jobs:
            raise InputError(
                f"request {request.id}, sent at {request.at} ps: it was there before, or that is"
                f" past ({self.now} ps)"
            )
        check_received(request, self.scheduler)
        deadline = NEVER if request.ttft_ps < 0 else request.at + request.ttft_ps
        job = Job(
            id=request.id,
            isl=request.isl,
            osl=request.osl,
            due=request.at,
            priority=request.priority,
            deadline=deadline,
        )
        if request.received:
            job.computed, job.generated, job.handed_on = job.isl, 1, True
        self.jobs[job.id] = job
        bisect.insort(
            self.coming, job, key=lambda job: (job.due, 0 if self.contents is None else job.id)
        )

    def cancel(self, request: int) -> bool:
        """Let go of a request; False if it has ended or was never there."""
        job = self.jobs.get(request)
        if job is None or job.ended:
            return False
        if job in self.coming:
            self.coming.remove(job)
            del self.jobs[job.id]
        else:
            self.batcher.cancel(job)
        if self.step is not None:
            self.step.work = [
                (candidate, new) for candidate, new in self.step.work if candidate is not job
            ]
        job.status = CANCELLED
        self.entries.append((job.id, self.now, 0, CANCELLED))
        return True

    def next_event(self) -> int | None:
        """When something will happen next if nothing is submitted; None if nothing will."""
        if self.entries:
            return self.now
        if self.over:
            return None
        if self.step is not None:
            return self.ends
        if self.batcher.running or self.batcher.waiting:
            return self.now if self.hears(self.looks(self.time)) else self.now + 1
        return max(self.now, self.arrival(self.coming[0])) if self.coming else None

    def advance(self, until: int | None = None) -> Happened:
        """Do all that happens up to and including ``until``; without it, all that is left to do."""
        if until is not None and until < self.now:
            raise InputError(
                f"an engine cannot be advanced to {until} ps: it is {self.now} ps there"
            )
        limit = NEVER if until is None else until
        if self.advance_ranks is None:
            while not self.over and self.turn(limit):
                pass
        else:
            self.advance_ranks(limit)
        self.now = max(self.now, self.time) if until is None else until
        entries, self.entries = self.entries, []
        return happened(entries)

    @property
    def running(self) -> list[int]:
        """Requests that have a slot, in the order in which they entered."""
        return [job.id for job in self.batcher.running]

    @property
    def waiting(self) -> list[int]:
        """Requests in the queue, the next to enter first; those on their way are not in it."""
        return [job.id for job in self.batcher.waiting]

    @property
    def kv_blocks_free(self) -> int:
        """KV blocks that nobody holds."""
        return self.batcher.free

    @property
    def kv_blocks_used(self) -> int:
        """KV blocks that requests hold."""
        return self.batcher.kv_blocks - self.batcher.free

    @property
    def last_step_ps(self) -> int:
        """How long the last step took, in picoseconds."""
        return self.steps[-1][1]

    def hold(self, blocks: int) -> int:
        """Take so many free blocks, or as many as there are, for what is still to be read by
        others; how many.
        """
        granted = min(blocks, self.batcher.free)
        self.batcher.free -= granted
        return granted

    def release(self, blocks: int) -> None:
        """Give back blocks that were held."""
        self.batcher.free += blocks

    def requests(self) -> Requests:
        """The record until now, in the order in which requests were sent."""
        return requests_of(
            sorted(self.jobs.values(), key=lambda job: job.due), self.gaps, self.window_ps
        )

    def turn(self, until: int) -> bool:
        """Run one step, or wake up; False where that would pass ``until``, or there is nothing to
        do.
        """
        if self.step is None:
            if not self.listen():
                self.batcher.idle()
                return self.wake(self.wakes(), until)
            if self.time >= until or not self.begin():
                return False
        if self.step is None or self.ends > until:
            return False
        self.end(self.step)
        return True

    def listen(self) -> bool:
        """Take what has come, and reject what is too late; whether there is anything to do."""
        self.take_arrivals(self.looks(self.time))
        if self.batcher.knobs.shed:
            self.shed()
        return bool(self.batcher.running or self.batcher.waiting)

    def wakes(self) -> int:
        """When the next request reaches an idle engine."""
        return max(self.time, self.arrival(self.coming[0])) if self.coming else NEVER

    def wake(self, at: int, until: int) -> bool:
        """An idle engine goes on at an instant; False where that is after ``until``, or the window
        ends first.
        """
        if at > until or at == NEVER:
            return False
        self.unheard = 0
        self.time = self.began = at
        self.over = self.beyond(at)
        return not self.over

    def begin(self) -> bool:
        """Put the next step together; one whose tokens clients would have after the window never
        happens.
        """
        step = self.batcher.schedule()
        self.start(step, self.time + self.prices.of(step))
        if self.beyond(self.seen_next):
            self.stop()
            return False
        self.steps.append(self.row(step, self.tokens_of(step)))
        return True

    def start(self, step: Step, ends: int) -> None:
        """A step begins that ends at ``ends``."""
        for job in self.batcher.running:
            job.admitted = self.time if job.admitted < 0 else job.admitted
        self.step, self.ends, self.seen_next = step, ends, self.streamed(step, ends)

    def stop(self) -> None:
        """The step that has begun never happens, because time ends before it."""
        self.step = None
        self.take_arrivals(self.window_ps)
        self.over = True

    def tokens_of(self, step: Step) -> int:
        """Tokens that a step computes, guesses among them."""
        return step.prefill_tokens + step.decode_sequences * (self.drafted + 1)

    def row(self, step: Step, all_tokens: int) -> tuple[int, ...]:
        """The columns of ``StepRecord.steps`` for the step that has begun."""
        counts = (
            step.prefill_tokens,
            step.prefill_sequences,
            step.decode_sequences,
            step.pairs_2,
            step.context_tokens,
        )
        return (
            self.time,
            self.ends - self.time,
            *counts,
            len(self.batcher.running),
            len(self.batcher.waiting),
            all_tokens,
        )

    def end(self, step: Step) -> None:
        """The step is over: arrivals before this instant, then tokens for all whose work it
        completed.
        """
        self.step = None
        self.began, self.time, self.seen = self.time, self.ends, self.seen_next
        self.unheard = (
            0
            if step.prefill_tokens or not step.decode_sequences
            else (self.unheard + 1) % self.batcher.knobs.receive_interval
        )
        self.take_arrivals(self.looks(self.time - 1))
        if self.enter_ps + self.enter_token_ps:
            self.entered += self.puts_off
        inside, got, worked = list(self.batcher.running), {}, {job.id for job, _ in step.work}
        for job, new in step.work:
            job.computed += new
            if not job.drafts:
                self.batcher.filled(job)
        for job in inside:
            if job.id in worked and job.computed == job.tokens:
                got[job.id] = self.tokens(job)
        self.entries += [
            (job.id, self.seen, got[job.id], job.status) for job in inside if job.id in got
        ]

    def streamed(self, step: Step, ends: int) -> int:
        """When clients have the tokens of a step that ends at ``ends``, and all before them."""
        sequences = sum(job.computed + new == job.tokens for job, new in step.work)
        begins, self.entering = max(self.seen + self.entering, ends), 0
        self.streams = sequences * self.stream_ps
        if sequences and ends >= self.starts:
            self.streams += self.stream_step_ps
            self.starts = begins
        self.puts_off = min(self.streams, (ends - self.time) // 4 * FOURTHS)
        return begins + self.streams

    def beyond(self, instant: int) -> bool:
        """Whether time has ended by then."""
        return 0 <= self.window_ps < instant

    def looks(self, until: int) -> int:
        """Up to when the engine knows what came: until then, or when the last step began."""
        return self.began if self.batcher.knobs.overlap_schedule else until

    def arrival(self, job: Job) -> int:
        """When the next request reaches the engine."""
        return max(self.entered, job.due) + max(self.frontend_ps, self.enters(job))

    def enters(self, job: Job) -> int:
        """How long a request that enters keeps the front end busy."""
        return self.enter_ps + job.isl * self.enter_token_ps

    def hears(self, until: int) -> bool:
        """Whether there is something to be received of what came up to and including ``until``; not
        between two looks.
        """
        return self.unheard == 0 and bool(self.coming) and self.arrival(self.coming[0]) <= until

    def take_arrivals(self, until: int) -> None:
        """Queue what reaches the engine up to and including ``until``, and reject what can never
        fit.
        """
        while self.hears(until):
            job = self.coming.pop(0)
            arrival = self.arrival(job)
            self.entered = max(self.entered, job.due) + self.enters(job)
            self.entering += self.enters(job)
            if self.batcher.never_fits(job):
                job.status = REJECTED
                self.entries.append((job.id, self.time, 0, REJECTED))
                self.answer(job.id, arrival)
            else:
                self.batcher.queue(job)

    def shed(self) -> None:
        """Reject the waiting requests that have had no token and whose first one would be too late
        in a step with their prompt alone.
        """
        for job in [
            job
            for job in self.batcher.waiting
            if job.generated == 0 and self.soonest(job) > job.deadline
        ]:
            self.batcher.waiting.remove(job)
            job.status = REJECTED
            self.entries.append((job.id, self.time, 0, REJECTED))
            self.answer(job.id, self.time)

    def soonest(self, job: Job) -> int:
        """When the client of a waiting request would have its first token if a step with its prompt
        alone began now.
        """
        if job.deadline == NEVER or self.time > job.deadline:
            return self.time
        cached = self.batcher.find(job).tokens
        new = job.isl - cached
        if (new, cached) not in self.alone:
            self.alone[new, cached] = self.prices.of(
                Step(prefill_tokens=new, prefill_sequences=1, pairs_2=new * (2 * cached + new))
            )
        return self.time + self.alone[new, cached] + self.stream_step_ps + self.stream_ps

    def tokens(self, job: Job) -> int:
        """The tokens of a computation that is complete: one, and of a decode the guesses before it
        that were right; how many.
        """
        right = accepted(self.seed, job.id, job.generated, self.batcher.guesses(job), self.below)
        further = min(right, job.osl - job.generated - 1)
        job.computed += further
        for _ in range(further + 1):
            self.token(job)
        return further + 1

    def token(self, job: Job) -> None:
        """One output token; the first comes with the end of the prompt, and the last ends the
        request.
        """
        number = len(self.steps) - 1
        if job.handed_on:
            job.first_token, job.last_token, job.handed_on = self.seen, self.seen, False
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
            self.answer(job.id, self.seen)


def happened(entries: list[Entry]) -> Happened:
    """Entries as columns."""
    import numpy as np

    ids, at, tokens, status = np.array(entries, np.int64).reshape(-1, 4).T
    return Happened(ids=ids, at=at, tokens=tokens, status=status)
