"""The slots of an engine step by step, read off the readable simulator, which gives the same record
as the compiled one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tonnage.results.timeline import (
    BLOCKS,
    DECODE,
    NOTHING,
    PREFILL,
    SLOTS,
    TOKENS,
    WAITING,
    Held,
    Timeline,
    TimelineStep,
)
from tonnage.simulator.reference import Clients
from tonnage.simulator.reference.engine import Engine
from tonnage.simulator.spec import instance_spec, rank_traces
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    from tonnage.results.requests import Requests
    from tonnage.simulator.lesson import LessonResult
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.workload import Workload

MOST_STEPS = 100_000
"""Steps that are kept where no number is requested."""


@dataclass(slots=True, eq=False)
class _Places:
    """Which slot each request has: the lowest free one when it enters."""

    of: dict[int, int] = field(default_factory=dict)

    def update(self, running: list[int]) -> None:
        inside = set(running)
        self.of = {number: slot for number, slot in self.of.items() if number in inside}
        occupied = set(self.of.values())
        free = (slot for slot in range(len(running) + len(occupied) + 1) if slot not in occupied)
        for number in running:
            if number not in self.of:
                self.of[number] = next(free)


class _Recorded(Engine):
    """The reference engine, which keeps what every step held."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.places = _Places()
        self.kept: list[TimelineStep] = []

    def begin(self) -> bool:
        """Put the next step together, and note it."""
        begun = super().begin()
        if begun and self.step is not None and len(self.kept) < MOST_STEPS:
            self.kept.append(self.look())
        return begun

    def look(self) -> TimelineStep:
        """The step that begins."""
        batcher, step = self.batcher, self.step
        work = {} if step is None else {job.id: new for job, new in step.work}
        self.places.update([job.id for job in batcher.running])
        held_slots = tuple(
            Held(
                slot=self.places.of[job.id],
                request=job.id,
                state=WAITING if job.id not in work else DECODE if job.decodes else PREFILL,
                tokens=work.get(job.id, 0),
            )
            for job in batcher.running
        )
        return TimelineStep(
            start=self.time / PS_PER_S,
            duration=(self.ends - self.time) / PS_PER_S,
            held=tuple(sorted(held_slots, key=lambda occupant: occupant.slot)),
            queued=len(batcher.waiting),
            kv_used=1 - batcher.free / batcher.kv_blocks if batcher.kv_blocks else 0.0,
            bound=self.bound(sum(work.values()), held_slots),
        )

    def bound(self, tokens: int, slots: tuple[Held, ...]) -> str:
        """What kept more from being in the step: the first of the waiting requests, else a prompt
        that was cut or left out. A static batch keeps its slots until it ends.
        """
        batcher = self.batcher
        cut = (
            any(occupant.state == WAITING for occupant in slots)
            or tokens >= batcher.knobs.max_num_tokens
        )
        if not batcher.waiting:
            return TOKENS if cut else NOTHING
        if len(batcher.running) >= batcher.slots:
            return SLOTS
        first = batcher.waiting[0]
        needed = first.isl + (
            first.osl
            if batcher.knobs.scheduler in ("tensorrt-llm", "one-prefill", "static")
            else first.generated
        )
        if batcher.lacks(first, needed) > batcher.free:
            return BLOCKS
        return SLOTS if batcher.knobs.scheduler == "static" else TOKENS


def simulate_timeline(
    deployment: Deployment, workload: Workload, *, seed: int
) -> tuple[Requests, Timeline]:
    """As ``simulate``, with the first steps of the engine; of an instance with attention ranks the
    first rank and its requests.
    """
    spec = instance_spec(deployment, workload)
    trace = rank_traces(workload.trace(seed), spec.ranks)[0]
    clients: list[Clients] = []

    def told(*what: int) -> None:
        clients[0].answer(*what)

    engine = _Recorded(
        spec.step,
        spec.knobs,
        spec.blocks,
        windows=spec.windows,
        max_context=spec.max_context,
        seed=trace.seed,
        contents=trace.contents,
        answer=told,
    )
    clients.append(Clients(trace, engine.submit))
    engine.advance()
    remaining = len(engine.steps) - len(engine.kept)
    return engine.requests(), Timeline(
        steps=tuple(engine.kept), slots=engine.batcher.slots, unit="s", left=remaining
    )


def lesson_timeline(result: LessonResult) -> Timeline:
    """The lesson's steps; it numbers no requests, so that a request is the number of its slot's
    stays.
    """
    steps: list[TimelineStep] = []
    before = "." * len(result.steps[0].slots) if result.steps else ""
    stays = [0] * len(before)
    count = 0
    for step in result.steps:
        held_slots = []
        for slot, state in enumerate(step.slots):
            if state != "." and (before[slot] == "." or (state == "P" and before[slot] == "=")):
                count += 1
                stays[slot] = count
            if state != ".":
                held_slots.append(
                    Held(
                        slot=slot,
                        request=stays[slot],
                        state=PREFILL if state == "P" else DECODE,
                        tokens=int(state == "="),
                    )
                )
        before = step.slots
        bound = SLOTS if step.queued else NOTHING
        steps.append(
            TimelineStep(
                start=step.start,
                duration=step.duration,
                held=tuple(held_slots),
                queued=step.queued,
                kv_used=0.0,
                bound=bound,
            )
        )
    end = steps[-1].start + steps[-1].duration if steps else 0.0
    return Timeline(
        steps=tuple(steps), slots=len(before), unit="ticks", left=int(end < result.ticks)
    )
