"""Services of models that are not LLMs, simulated: dynamic batching as Triton has it, several
models on a GPU, pipelines.

A service runs under its traffic, event by event. Time is a whole number of picoseconds. At one
instant batches end first, then requests come, then batches are put together, models in the order in
which the service names them. A batch goes to the idle instance whose GPU has the fewest batches,
the lowest number among equals.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError, option
from tonnage.results.requests import (
    COMPLETED,
    FAILED,
    GAP_BINS,
    POSITION_BUCKETS,
    REJECTED,
    UNFINISHED,
    Requests,
)
from tonnage.simulator.rules import draw, threshold
from tonnage.simulator.services.queue import Batch, ModelQueue, Ticket
from tonnage.spec.service import ServedModel, Service, Stage, taken_stages
from tonnage.units import LONGEST_S, PS_PER_NS, PS_PER_S, to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SharedGpu:
    """A GPU that several batches share: each has an equal part of its speed.

    With k batches at once the GPU works at 1 + overlap·(k − 1) times the speed that it has with
    one. Of a GPU on which batches take turns (overlap 0) this is processor sharing, the usual model
    of kernels of several processes in time slices.

    Attributes:
        version: of the batches on it; an end that was foretold for an earlier one does not come.
        busy_ps: time in which it had a batch.
    """

    def __init__(self, overlap: float) -> None:
        """Start idle at time 0."""
        self.overlap = overlap
        self.version = 0
        self.busy_ps = 0
        self._now = 0
        self._done = 0.0
        self._batches: list[tuple[float, int, Batch]] = []
        self._entered = 0

    def __len__(self) -> int:
        """The number of running batches."""
        return len(self._batches)

    def start(self, batch: Batch, work_ps: int, now: int) -> None:
        """Start a batch that takes ``work_ps`` picoseconds on an otherwise idle GPU."""
        self._go_on(now)
        self._entered += 1
        heapq.heappush(self._batches, (self._done + work_ps, self._entered, batch))
        self.version += 1

    def next_end(self) -> int | None:
        """When the first of the batches ends if no other begins, in picoseconds; None on an idle
        GPU.
        """
        if not self._batches:
            return None
        return self._now + max(math.ceil((self._batches[0][0] - self._done) / self._speed()), 0)

    def ended(self, now: int) -> list[Batch]:
        """Take out the batches that have ended by now, in the order in which they end."""
        self._go_on(now)
        batches = []
        while self._batches and self._batches[0][0] <= self._done + 0.5:
            batches.append(heapq.heappop(self._batches)[2])
        self.version += 1
        if not self._batches:
            self._done = 0.0
        return batches

    def _speed(self) -> float:
        """The speed of each batch."""
        running = len(self._batches)
        return (1.0 + self.overlap * (running - 1)) / running

    def _go_on(self, now: int) -> None:
        if self._batches:
            self._done += (now - self._now) * self._speed()
            self.busy_ps += now - self._now
        self._now = now


END, COME, LOOK = range(3)
"""Kinds of events, in the order in which they happen at one instant."""

APART_PS = 1_000_000
"""Clients of a closed loop start one microsecond after another: no two threads send at the same
instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRun:
    """What happened."""

    # the record: ``isl`` is the items of a request, ``osl`` 1, and its one token the answer; one
    # that found a full queue is rejected, one whose time in a queue was up has failed
    requests: Requests
    stream: NDArray[np.int64]  # of each request, its place among those of the service
    batches: dict[str, dict[int, int]]  # by model, how many batches had so many items
    # by model, the mean time in its queue of requests that left it in a batch, in seconds
    waited_s: dict[str, float]
    busy: tuple[float, ...]  # by GPU, the share of the time in which it had a batch

    def latencies_s(self, stream: int | None = None) -> NDArray[np.float64]:
        """Seconds from request to answer of one stream, in order of requests; infinite where no
        answer came.
        """
        record = self.requests
        seconds = np.where(
            record.status == COMPLETED, (record.last_token_ns - record.due_ns) / 1e9, np.inf
        )
        return seconds if stream is None else seconds[self.stream == stream]


@dataclass(slots=True, eq=False)
class _Request:
    number: int
    stream: int
    due: int
    left: list[int]
    to_end: int
    taken: list[bool]
    passes: list[int]
    status: int = UNFINISHED
    ended: int = -1


@dataclass(slots=True, eq=False)
class _Model:
    spec: ServedModel
    queue: ModelQueue
    idle: dict[int, int]
    wake: int = -1
    waited: int = 0
    left: int = 0
    batches: Counter[int] = field(default_factory=Counter)
    order: list[Ticket] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)


class _Run:
    """The state of a run."""

    def __init__(
        self, service: Service, dues: Sequence[NDArray[np.int64]], most_events: int, seed: int = 0
    ) -> None:
        self.service = service
        self.seed = seed
        self.models = {
            name: _Model(
                spec,
                ModelQueue(spec.batching, spec.max_batch_size),
                dict.fromkeys(spec.gpus, spec.instances),
            )
            for name, spec in service.models.items()
        }
        self.gpus = [SharedGpu(service.overlap) for _ in range(service.gpus)]
        self.dues = dues
        self.most = most_events
        self.requests: list[_Request] = []
        self.events: list[tuple[int, int, int, int]] = []
        self.pushed = 0
        self.now = 0
        self.dirty: set[str] = set()
        self.next_stages = [_followers(stream.stages) for stream in service.streams]
        self.open_left = sum(map(len, dues))

    def push(self, at: int, kind: int, what: int) -> None:
        self.pushed += 1
        heapq.heappush(self.events, (at, kind, self.pushed, what))

    def go(self) -> None:
        """From the first request to the last answer."""
        self.cursor = [0] * len(self.service.streams)
        for place, stream in enumerate(self.service.streams):
            for client in range(stream.concurrency):
                self.push(client * APART_PS, COME, place)
            if len(self.dues[place]):
                self.push(int(self.dues[place][0]), COME, place)
        names = list(self.models)
        while self.events:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                _, kind, _, what = heapq.heappop(self.events)
                if kind == COME:
                    self.come(what)
                elif kind == END:
                    self.end(what)
                else:
                    self.dirty.add(names[what])
            for name in names:
                if name in self.dirty:
                    self.dispatch(name, names)
            self.dirty.clear()

    def come(self, place: int) -> None:
        """A request of a stream comes; an open stream's next one is on its way."""
        stream = self.service.streams[place]
        if stream.concurrency:
            open_ended = any(map(len, self.dues))
            if len(self.requests) >= self.most and not (open_ended and self.open_left):
                return
        else:
            self.open_left -= 1
            self.cursor[place] += 1
            if self.cursor[place] < len(self.dues[place]):
                self.push(int(self.dues[place][self.cursor[place]]), COME, place)
        number, stages = len(self.requests), stream.stages
        waits, passes = [len(stage.after) for stage in stages], [0] * len(stages)
        draws = {
            at: draw(self.seed, number, at) < threshold(stage.share)
            for at, stage in enumerate(stages)
            if stage.share < 1
        }
        request = _Request(
            number, place, self.now, waits, len(stages), taken_stages(stages, draws), passes
        )
        self.requests.append(request)
        for stage, definition in enumerate(stream.stages):
            if not definition.after:
                self.enter(request, stage)

    def enter(self, request: _Request, stage: int) -> None:
        """A request joins the queue of a stage's model, or passes the stage by."""
        if request.status != UNFINISHED:
            return
        if not request.taken[stage]:
            self.go_on(request, stage)
            return
        stream = self.service.streams[request.stream]
        name = stream.stages[stage].model
        model = self.models[name]
        ticket = Ticket(request=request.number, stage=stage, items=stream.items, since=self.now)
        if not model.queue.enter(ticket, stream.level, stream.timeout_s):
            self.close(request, REJECTED)
            return
        if model.queue.rules.preserve_ordering:
            model.order.append(ticket)
        self.dirty.add(name)

    def dispatch(self, name: str, names: list[str]) -> None:
        """Put batches of a model together while instances are idle."""
        model = self.models[name]
        while len(model.queue) and (gpu := self.idle_gpu(model)) >= 0:
            formed = model.queue.form(self.now)
            for ticket in formed.expired:
                self.let_go(model, ticket)
                self.close(self.requests[ticket.request], FAILED)
            if not formed.batch:
                if formed.wake is not None and formed.wake != model.wake:
                    model.wake = formed.wake
                    self.push(formed.wake, LOOK, names.index(name))
                return
            batch = Batch(model=name, gpu=gpu, tickets=formed.batch)
            model.idle[gpu] -= 1
            model.batches[batch.items] += 1
            model.left += len(formed.batch)
            model.waited += sum(self.now - ticket.since for ticket in formed.batch)
            self.gpus[gpu].start(batch, to_ps(model.spec.time.of(batch.items)), self.now)
            self.foretell(gpu)

    def idle_gpu(self, model: _Model) -> int:
        """The GPU with an idle instance that has the fewest batches; -1 where none is idle."""
        idle_gpus = [gpu for gpu, idle in model.idle.items() if idle]
        return min(idle_gpus, key=lambda gpu: (len(self.gpus[gpu]), gpu)) if idle_gpus else -1

    def foretell(self, gpu: int) -> None:
        """Note when the next batch of a GPU ends, as things are now."""
        at = self.gpus[gpu].next_end()
        if at is not None:
            self.push(at, END, gpu + self.gpus[gpu].version * len(self.gpus))

    def end(self, what: int) -> None:
        """A batch has ended, unless another one began on its GPU meanwhile."""
        version, gpu = divmod(what, len(self.gpus))
        if version != self.gpus[gpu].version:
            return
        for batch in self.gpus[gpu].ended(self.now):
            model = self.models[batch.model]
            model.idle[gpu] += 1
            self.dirty.add(batch.model)
            if not model.queue.rules.preserve_ordering:
                for ticket in batch.tickets:
                    self.answer(ticket)
                continue
            model.answered.update(map(id, batch.tickets))
            self.release(model)
        self.foretell(gpu)

    def release(self, model: _Model) -> None:
        """Answer in the order of requests, as far as all before have been computed."""
        count = 0
        for ticket in model.order:
            if id(ticket) not in model.answered:
                break
            model.answered.discard(id(ticket))
            self.answer(ticket)
            count += 1
        del model.order[:count]

    def let_go(self, model: _Model, ticket: Ticket) -> None:
        if model.queue.rules.preserve_ordering:
            model.order.remove(ticket)
            self.release(model)

    def answer(self, ticket: Ticket) -> None:
        """A request has gone through a stage; a share of them goes through it again."""
        request = self.requests[ticket.request]
        if request.status != UNFINISHED:
            return
        again = self.service.streams[request.stream].stages[ticket.stage].again
        request.passes[ticket.stage] += 1
        if again and draw(
            self.seed, request.number, (request.passes[ticket.stage] << 16) + ticket.stage
        ) < threshold(again):
            self.enter(request, ticket.stage)
        else:
            self.go_on(request, ticket.stage)

    def go_on(self, request: _Request, stage: int) -> None:
        """A stage of a request is over: the stages that waited for it begin, and with the last of
        all it has its answer.
        """
        request.to_end -= 1
        if request.to_end == 0:
            self.close(request, COMPLETED)
            return
        for later in self.next_stages[request.stream][stage]:
            request.left[later] -= 1
            if request.left[later] == 0:
                self.enter(request, later)

    def close(self, request: _Request, status: int) -> None:
        """A request has its answer, or will have none; a client of a closed loop sends the next
        one.
        """
        if request.status != UNFINISHED:
            return
        request.status, request.ended = status, self.now
        stream = self.service.streams[request.stream]
        if stream.concurrency:
            self.push(self.now + to_ps(stream.turnaround_s), COME, request.stream)


def run_service(service: Service, *, requests: int, seed: int) -> ServiceRun:
    """Simulate a service.

    Args:
        service: models, GPUs and traffic.
        requests: how many in all; open streams have their share by their rates, and clients of
            closed ones send as long as those last.
        seed: of the arrivals; the same seed gives the same run, and another rate stretches the same
            gaps.

    Raises:
        InputError: fewer requests than one, or a run that would take more than ``LONGEST_S``;
            closed streams without any answer.
    """
    if requests < 1:
        raise InputError(
            f"{option('requests')}: {requests} is not a number of requests; write 1 or more"
        )
    run = _Run(service, _arrivals(service, requests, seed), requests, seed)
    for stream in service.streams:
        if stream.concurrency and any(
            _bounded(service.models[stage.model]) for stage in stream.stages
        ):
            raise InputError(
                "traffic: clients of a closed loop ask again at once, so that a bounded queue would"
                " turn them away for ever"
            )
    run.go()
    return _record(run)


def _bounded(model: ServedModel) -> bool:
    batching = model.batching
    return batching is not None and any(policy.max_queue_size for policy in batching.policies)


def _followers(stages: Sequence[Stage]) -> list[list[int]]:
    """The stages that wait for each stage."""
    followers: list[list[int]] = [[] for _ in stages]
    for place, stage in enumerate(stages):
        for before in stage.after:
            followers[before].append(place)
    return followers


def _arrivals(service: Service, requests: int, seed: int) -> list[NDArray[np.int64]]:
    """When the requests of each stream come; none of a closed one."""
    total = sum(stream.rate for stream in service.streams)
    streams = np.random.SeedSequence(seed).spawn(len(service.streams))
    arrivals = []
    for stream, stem in zip(service.streams, streams, strict=True):
        count = max(round(requests * stream.rate / total), 1) if stream.rate else 0
        gaps = np.random.default_rng(stem).standard_exponential(count) * (
            PS_PER_S / stream.rate if stream.rate else 0.0
        )
        if gaps.sum() > LONGEST_S * PS_PER_S:
            raise InputError(
                f"{option('requests')}: {count:,} at {stream.rate:g} a second take longer than"
                f" {LONGEST_S:,} s; ask for fewer"
            )
        arrivals.append(np.rint(gaps).astype(np.int64).cumsum())
    return arrivals


def _record(run: _Run) -> ServiceRun:
    rows = run.requests
    status = np.array([row.status for row in rows], np.int8)
    due = np.array([row.due for row in rows], np.int64) // PS_PER_NS
    ended = np.where(
        status == COMPLETED, np.array([row.ended for row in rows], np.int64) // PS_PER_NS, -1
    )
    items = np.array([run.service.streams[row.stream].items for row in rows], np.int64)
    zeros = np.zeros(len(rows), np.int64)
    record = Requests(
        due_ns=due,
        sent_ns=due,
        first_token_ns=ended,
        last_token_ns=ended,
        isl=items,
        osl=(status == COMPLETED).astype(np.int64),
        cached_tokens=zeros,
        instance=np.where(status == REJECTED, -1, 0).astype(np.int32),
        status=status,
        preemptions=zeros.astype(np.int32),
        gaps=np.zeros((POSITION_BUCKETS, GAP_BINS), np.int64),
    )
    used = {name: model for name, model in run.models.items() if model.left}
    return ServiceRun(
        requests=record,
        stream=np.array([row.stream for row in rows], np.int64),
        batches={name: dict(sorted(model.batches.items())) for name, model in used.items()},
        waited_s={name: model.waited / model.left / PS_PER_S for name, model in used.items()},
        busy=tuple(gpu.busy_ps / max(run.now, 1) for gpu in run.gpus),
    )


__all__ = ["ServiceRun", "run_service"]
