"""What waits for a model: priority levels, of which each has a policy, and the batch that may
leave.

The rules are those of Triton's dynamic batcher (``src/dynamic_batch_scheduler.cc`` and
``scheduler_utils.cc`` of triton-inference-server/core, as of 2026-06-09). Two things are simpler
here: a batch is put together when an instance is idle, never before; and a request whose time is up
at that very instant is expired.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tonnage.spec.service import DynamicBatching, QueuePolicy
from tonnage.units import to_ps

NO_DEADLINE = 1 << 62


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """One request in the queue of one model."""

    request: int  # number of the request
    stage: int  # of its way
    items: int  # that it adds to a batch
    since: int  # when it entered the queue, in picoseconds
    deadline: int = NO_DEADLINE  # when its time in the queue is up


class Formed(NamedTuple):
    """What a look at the queue gave."""

    batch: list[Ticket]  # the requests that leave together; empty where none does yet
    expired: list[Ticket]  # requests that are rejected because their time is up
    # when to look again if nothing comes, in picoseconds; None where there is nothing to wait for
    wake: int | None


@dataclass(slots=True, eq=False)
class _Level:
    policy: QueuePolicy
    fresh: deque[Ticket] = field(default_factory=deque)
    delayed: deque[Ticket] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self.fresh) + len(self.delayed)


class ModelQueue:
    """The queue of one model; without dynamic batching every request is a single batch."""

    def __init__(self, batching: DynamicBatching | None, max_batch_size: int) -> None:
        """Start empty."""
        self.rules = batching or DynamicBatching()
        self.most = max_batch_size
        self.alone = batching is None
        self.delay = to_ps(self.rules.max_queue_delay_microseconds / 1e6)
        self.preferred = frozenset(self.rules.preferred_batch_size or (max_batch_size,))
        numbers = range(1, self.rules.priority_levels + 1) if self.rules.priority_levels else (0,)
        self.levels = {
            n: _Level(self.rules.priority_queue_policy.get(n, self.rules.default_queue_policy))
            for n in numbers
        }

    def __len__(self) -> int:
        """Requests that wait."""
        return sum(map(len, self.levels.values()))

    def enter(self, ticket: Ticket, level: int, timeout_s: float) -> bool:
        """Let a request in, with a level (0: the default) and a timeout (0: none) that sets its
        deadline; False where the level is full.
        """
        where = (
            self.levels[level or self.rules.default_priority_level]
            if self.rules.priority_levels
            else self.levels[0]
        )
        policy = where.policy
        if policy.max_queue_size and len(where) >= policy.max_queue_size:
            return False
        allowed = policy.default_timeout_microseconds / 1e6
        if policy.allow_timeout_override and timeout_s > 0:
            allowed = min(timeout_s, allowed or timeout_s)
        if allowed > 0:
            ticket.deadline = ticket.since + to_ps(allowed)
        where.fresh.append(ticket)
        return True

    def form(self, now: int) -> Formed:
        """The next batch, for an instance that is idle."""
        expired: list[Ticket] = []
        if self.alone:
            batch = self.levels[0].fresh
            return Formed([batch.popleft()] if batch else [], expired, None)
        pending: list[Ticket] = []
        size = best = marked = 0
        full = False
        for ticket in self._walk(now, expired):
            if pending:
                if size + ticket.items > max(self.preferred) and best == 0:
                    best, marked = size, len(pending)
                if size + ticket.items > self.most:
                    full = True
                    break
            pending.append(ticket)
            size += ticket.items
            if size in self.preferred:
                best, marked = size, len(pending)
        late = (
            self.delay > 0
            and bool(pending)
            and now - min(ticket.since for ticket in pending) >= self.delay
        )
        if best and not late:
            return Formed(self._take(pending[:marked]), expired, None)
        if not pending:
            return Formed([], expired, None)
        if full or size >= max(self.preferred) or late or self.delay == 0:
            return Formed(self._take(pending), expired, None)
        wake = min(
            min(ticket.since for ticket in pending) + self.delay,
            *(ticket.deadline for ticket in pending),
        )
        return Formed([], expired, wake)

    def _walk(self, now: int, expired: list[Ticket]) -> Iterator[Ticket]:
        """The requests in order; those whose time is up are taken out on the way, or put behind the
        others of their level.
        """
        for level in self.levels.values():
            place = 0
            while place < len(level.fresh):
                ticket = level.fresh[place]
                if ticket.deadline > now:
                    place += 1
                    yield ticket
                    continue
                del level.fresh[place]
                if level.policy.timeout_action == "DELAY":
                    ticket.deadline = NO_DEADLINE
                    level.delayed.append(ticket)
                else:
                    expired.append(ticket)
            yield from tuple(level.delayed)

    def _take(self, batch: list[Ticket]) -> list[Ticket]:
        """Take the requests of a batch out; they are the first of their levels."""
        remaining = len(batch)
        for level in self.levels.values():
            for waiting in (level.fresh, level.delayed):
                while remaining and waiting and waiting[0] is batch[len(batch) - remaining]:
                    waiting.popleft()
                    remaining -= 1
        return batch


# Requests that one instance of a model computes together.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """One batch on its GPU."""

    model: str
    gpu: int
    tickets: list[Ticket]

    @property
    def items(self) -> int:
        """Its size."""
        return sum(ticket.items for ticket in self.tickets)
