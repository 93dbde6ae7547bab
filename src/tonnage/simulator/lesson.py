"""The course's simulator of an engine, in ticks: the first thing to read about batching.

An engine has a few slots. A request waits in a queue, enters a free slot, is prefilled (its prompt
is read, in one chunk or several), and then decodes one token a step until its output is complete.
All slots share each step, so a long prefill makes every decoding request next to it wait: that is
the whole tension between TTFT and ITL, and the three batchers are three answers to it.

    static       nobody enters until all slots are empty
    in-flight    a request enters as soon as a slot is free
    one-prefill  the same, but at most one request is in prefill

Rules of the real engines are in ``simulator.reference``; here a tick is a tick and nothing runs out
of memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from numpy.random import RandomState

from tonnage.errors import InputError, option
from tonnage.notebook import InNotebooks

Batcher = Literal["static", "in-flight", "one-prefill"]
BATCHERS: tuple[Batcher, ...] = get_args(Batcher)

_DRAWN_STEPS = 2_000  # the record of more would only fill memory
_MOST_SLOT_TICKS = 5_000_000  # some ten seconds
_MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonConfig:
    """An engine, a load and how long to watch; give at most one load, none means an initial batch
    of 100.

    Raises:
        InputError: a value that no engine could have, or a run that would take too long.
    """

    batcher: Batcher = "in-flight"  # who may enter a free slot, and when
    slots: int = 4  # requests that run at once
    prefill_ticks: float = 2  # ticks to prefill one prompt, alone and whole
    itl_ticks: float = 1  # ticks of a step that only decodes
    prefill_chunks: int = 1  # steps that one prefill is divided over
    initial_batch: int | None = None  # this many requests at time 0 and none later
    concurrency: int | None = None  # always this many requests, running or queued
    tick_rate: float | None = None  # requests that arrive per tick, evenly
    osl_mean: float = 10  # mean output length, in tokens
    osl_std: float = 5  # its standard deviation, in tokens; no output is shorter than 1
    seed: int = 42  # of the output lengths
    until: float = 100  # no step begins at this tick or later

    def __post_init__(self) -> None:
        if self.batcher not in BATCHERS:
            raise InputError(
                f"{option('batcher')}: '{self.batcher}' is not one of {', '.join(BATCHERS)}"
            )
        _whole(option("slots"), self.slots, 1, 100_000)
        _number(option("prefill_ticks"), self.prefill_ticks, 0, 1e6)
        _number(option("itl_ticks"), self.itl_ticks, 0, 1e6)
        _whole(option("prefill_chunks"), self.prefill_chunks, 1, 1_000_000)
        _number(option("osl_mean"), self.osl_mean, 0, 1e9, above=True)
        _number(option("osl_std"), self.osl_std, 0, 1e9)
        _whole(option("seed"), self.seed, 0, 2**32 - 1)
        _number(option("until"), self.until, 0, 1e6, above=True)
        if self.slots * self.until > _MOST_SLOT_TICKS:
            raise InputError(
                f"{option('until')}: {self.until} ticks of {self.slots} slots take too long; slots"
                f" × until may be {_MOST_SLOT_TICKS:,}"
            )
        _check_load(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonStep:
    """One step as it is drawn."""

    start: float  # tick at which it began
    duration: float  # ticks that it lasted
    slots: str  # one character per slot: "P" prefill, "=" decode, "." empty
    queued: int  # requests that waited meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonResult(InNotebooks):
    """The result of the lesson; times in ticks, a mean over nothing is NaN."""

    e2e: float  # mean time from the request's making to its last token, over complete requests
    ttft: float  # mean time from its making to its first token, over requests that have one
    # mean duration of a step, over each step of each request that had more than one token
    itl: float
    requests_per_1k_ticks: float  # complete requests per 1,000 ticks
    tokens_per_1k_ticks: float  # tokens per 1,000 ticks, those of requests still running included
    final_queue: int  # requests that waited when the time was up
    made: int  # requests made
    complete: int  # requests complete
    running: int  # requests in a slot when the time was up
    tokens: int  # tokens put out
    # share of all slots over all ticks that held a request; the course calls it GPU utilisation
    busy_slots: float
    # share in which a slot did work of its request, and did not wait for a longer step to end
    useful_work: float
    ticks: float  # when the last step ended; the rates divide by it
    steps: tuple[LessonStep, ...]  # the first steps, for drawing

    def to_json(self) -> dict[str, float | int | None]:
        """The six figures, to two decimals as the course prints them, and the two shares; None
        where nothing was measured.
        """
        means = {"e2e": self.e2e, "ttft": self.ttft, "itl": self.itl}
        return {
            **{
                name: None if math.isnan(value) else round(value, 2)
                for name, value in means.items()
            },
            "requests_per_1k_ticks": round(self.requests_per_1k_ticks, 2),
            "tokens_per_1k_ticks": round(self.tokens_per_1k_ticks, 2),
            "final_queue": self.final_queue,
            "busy_slots": round(self.busy_slots, 4),
            "useful_work": round(self.useful_work, 4),
        }

    def slots_text(self, width: int = 100) -> str:
        """The slots over time: a row per slot, a column per tick, the queue below; at most ``10 ×
        width`` ticks.
        """
        drawn = list(_ticks(self.steps, 10 * width))
        label = max(len(f"slot {len(self.steps[0].slots)}"), len("queue"))
        lines: list[str] = []
        for first in range(0, len(drawn), width):
            lines += [*_band(drawn[first : first + width], first, label), ""]
        if len(drawn) < self.ticks:
            lines += [f"… and {self.ticks - len(drawn):,.0f} ticks more", ""]
        lines.append(
            "P prefill   = decode, a token   - decode, held up by a step that takes longer   ."
            " empty"
        )
        return "\n".join(lines)


@dataclass(slots=True, kw_only=True)
class _Request:
    """One request on its way through the engine."""

    made_at: float
    osl: int
    chunks_left: int
    tokens: int = 0

    @property
    def in_prefill(self) -> bool:
        return self.chunks_left > 0

    def advance(self) -> None:
        """Compute one prefill chunk, the last of which gives the first token, or make one token."""
        if self.in_prefill:
            self.chunks_left -= 1
        if not self.in_prefill:
            self.tokens += 1


@dataclass(slots=True)
class _Mean:
    """A mean that grows with each value; NaN as long as there is none."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float, times: int = 1) -> None:
        self.total += value * times
        self.count += times

    @property
    def value(self) -> float:
        return self.total / self.count if self.count else math.nan


class _Engine:
    """Slots, a queue and the current measurements."""

    def __init__(self, config: LessonConfig) -> None:
        self.config = config
        self.lengths = RandomState(config.seed)
        self.slots: list[_Request | None] = [None] * config.slots
        self.queue: deque[_Request] = deque()
        self.now = 0.0
        self.last_load = 0.0
        self.made = 0
        self.tokens = 0
        self.busy = self.useful = 0.0
        self.ttft = _Mean()
        self.e2e = _Mean()
        self.itl = _Mean()

    def running(self) -> list[_Request]:
        return [request for request in self.slots if request is not None]

    def advance(self) -> None:
        """Rules 1 and 2: everybody moves on; anyone who is complete leaves at once, static
        included.
        """
        for slot, request in enumerate(self.slots):
            if request is None:
                continue
            before = request.tokens
            request.advance()
            self.tokens += request.tokens - before
            if before == 0 and request.tokens == 1:
                self.ttft.add(self.now - request.made_at)
            if request.tokens == request.osl:
                self.e2e.add(self.now - request.made_at)
                self.slots[slot] = None

    def load(self) -> None:
        """Rule 3: new requests join the queue."""
        config = self.config
        if config.concurrency is not None:
            count = config.concurrency - len(self.running()) - len(self.queue)
        elif config.tick_rate is not None:
            gap = 1 / config.tick_rate
            count = int(self.now // gap - self.last_load // gap)
        else:
            count = (
                (100 if config.initial_batch is None else config.initial_batch)
                if self.now == 0
                else 0
            )
        self.last_load = self.now
        for _ in range(count):
            osl = int(max(self.lengths.normal(config.osl_mean, config.osl_std), 1))
            self.queue.append(
                _Request(made_at=self.now, osl=osl, chunks_left=config.prefill_chunks)
            )
            self.made += 1

    def fill(self) -> None:
        """Rule 4: free slots take from the queue, in ascending order, if the batcher allows."""
        running = self.running()
        if self.config.batcher == "static" and running:
            return
        allowed = len(self.queue)
        if self.config.batcher == "one-prefill":
            allowed = 0 if any(request.in_prefill for request in running) else 1
        for slot, request in enumerate(self.slots):
            if request is None and allowed and self.queue:
                self.slots[slot] = self.queue.popleft()
                allowed -= 1

    def step(self) -> LessonStep:
        """Rules 5, 6 and 7: the step lasts as long as its prefills together, or as its decodes."""
        running = self.running()
        chunk = self.config.prefill_ticks / self.config.prefill_chunks
        prefills = sum(request.in_prefill for request in running)
        decodes = len(running) - prefills
        duration = max(prefills * chunk, self.config.itl_ticks if decodes else 0.0, 1.0)
        self.busy += len(running) * duration
        self.useful += prefills * chunk + decodes * self.config.itl_ticks
        self.itl.add(duration, times=sum(request.tokens > 1 for request in running))
        start, self.now = self.now, self.now + duration
        drawn = "".join(
            "." if request is None else "P" if request.in_prefill else "=" for request in self.slots
        )
        return LessonStep(start=start, duration=duration, slots=drawn, queued=len(self.queue))

    def result(self, steps: tuple[LessonStep, ...] = ()) -> LessonResult:
        """The result up to now."""
        return LessonResult(
            e2e=self.e2e.value,
            ttft=self.ttft.value,
            itl=self.itl.value,
            requests_per_1k_ticks=1000 * self.e2e.count / self.now,
            tokens_per_1k_ticks=1000 * self.tokens / self.now,
            final_queue=len(self.queue),
            made=self.made,
            complete=self.e2e.count,
            running=len(self.running()),
            tokens=self.tokens,
            busy_slots=self.busy / (self.config.slots * self.now),
            useful_work=self.useful / (self.config.slots * self.now),
            ticks=self.now,
            steps=steps,
        )


def run_lesson(config: LessonConfig) -> LessonResult:
    """Run the engine until its time is up; the last step is not followed by another advance."""
    engine = _Engine(config)
    steps = tuple(step for place, step in enumerate(_steps(engine)) if place < _DRAWN_STEPS)
    return engine.result(steps)


def watch_lesson(config: LessonConfig) -> Iterator[tuple[LessonStep, LessonResult]]:
    """Each step, and what has happened up to its end: what ``run_lesson`` says where the time is up
    then.
    """
    engine = _Engine(config)
    for step in _steps(engine):
        yield step, engine.result()


def _steps(engine: _Engine) -> Iterator[LessonStep]:
    while engine.now < engine.config.until:
        engine.advance()
        engine.load()
        engine.fill()
        yield engine.step()


def _ticks(steps: tuple[LessonStep, ...], most_ticks: int) -> Iterator[LessonStep]:
    """The step under way at tick 0, 1, 2, …; a step lasts a tick or more, so that none is
    missed.
    """
    tick = 0
    for step in steps:
        continued = False
        while tick < min(step.start + step.duration, most_ticks):
            slots = step.slots.replace("=", "-") if continued else step.slots
            yield LessonStep(start=tick, duration=1, slots=slots, queued=step.queued)
            tick, continued = tick + 1, True


MOST_SLOTS = 32
"""Slots that a drawing shows."""


def _band(ticks: list[LessonStep], first: int, label: int) -> Iterator[str]:
    """Draw one width of the picture: a ruler, the slots, the length of the queue."""
    slots = len(ticks[0].slots)
    stride = 5 if max(tick.queued for tick in ticks) < 1_000 and first + len(ticks) < 10_000 else 10
    yield (
        f"{'tick':<{label}}  "
        + "".join(f"{first + i:<{stride}}" for i in range(0, len(ticks), stride)).rstrip()
    )
    for slot in range(min(slots, MOST_SLOTS)):
        yield f"{f'slot {slot + 1}':<{label}}  " + "".join(tick.slots[slot] for tick in ticks)
    if slots > MOST_SLOTS:
        yield f"… and {slots - MOST_SLOTS} slots more"
    yield (
        f"{'queue':<{label}}  "
        + "".join(f"{ticks[i].queued:<{stride}}" for i in range(0, len(ticks), stride)).rstrip()
    )


def _whole(flag: str, value: object, least: int, highest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= highest:
        raise InputError(
            f"{flag}: {value} cannot be used; give a whole number from {least} up to {highest:,}"
        )


def _number(flag: str, value: object, least: float, highest: float, *, above: bool = False) -> None:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not least <= value <= highest
        or (above and value == least)
    ):
        start = "above" if above else "from"
        raise InputError(
            f"{flag}: {value} cannot be used; give a number {start} {least:g} up to {highest:,.0f}"
        )


def _check_load(config: LessonConfig) -> None:
    loads = {
        option("initial_batch"): config.initial_batch,
        option("concurrency"): config.concurrency,
        option("tick_rate"): config.tick_rate,
    }
    flags = [flag for flag, value in loads.items() if value is not None]
    if len(flags) > 1:
        raise InputError(f"{' and '.join(flags)} are different loads; give one of them")
    if config.initial_batch is not None:
        _whole(option("initial_batch"), config.initial_batch, 1, _MOST_REQUESTS)
    if config.concurrency is not None:
        _whole(option("concurrency"), config.concurrency, 1, _MOST_REQUESTS)
    if config.tick_rate is not None:
        _number(option("tick_rate"), config.tick_rate, 0, _MOST_REQUESTS / config.until, above=True)
