"""One engine that can be driven step by step: by a router, by two pools with a transfer between
them, by a server on a wall clock.

Requests are submitted as they come, time is advanced as far as the driver knows what came, and what
happened is handed back in columns. Where the cuts between two calls of ``advance`` lie changes
nothing: the records are those of one run to the end.

    engine = Engine(step_model(deployment), deployment.knobs, memory_plan(deployment).blocks)
    engine.submit(Request(id=0, isl=512, osl=128, at=0))
    while (instant := engine.next_event()) is not None:
        happened = engine.advance(instant)

This is the compiled kernel; ``reference.Engine`` has the same methods and gives the same answers to
the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError
from tonnage.results.requests import UNFINISHED, Requests
from tonnage.simulator.kernel.build import check_engine, machine, rows_for, set_arrival, settings
from tonnage.simulator.kernel.driven import drive
from tonnage.simulator.kernel.memory import (
    BETWEEN,
    ENDS,
    HANDED_ON,
    NEVER,
    TOKENS,
    UNDER_WAY,
    Machine,
)
from tonnage.simulator.kernel.run import copied, grown, log_of, requests_of, without_first
from tonnage.simulator.request import CANCELLED, Happened, Request, check_received
from tonnage.spec.deployment import NO_WINDOWS, EngineKnobs, Windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.perf.step import StepModel
    from tonnage.simulator.spec import EngineSpec

_ROWS = 64
_LOG = 4096
_NOBODY = -1


class Engine:
    """One engine, from an idle start at time 0.

    Attributes:
        now: the instant up to which it was advanced, in picoseconds.
    """

    def __init__(
        self,
        step: StepModel,
        knobs: EngineKnobs,
        kv_blocks: int,
        *,
        windows: Windows = NO_WINDOWS,
        max_context: int = 0,
        seed: int = 0,
        ends_only: bool = False,
    ) -> None:
        """Make an engine.

        Args:
            step: what a step costs.
            knobs: the engine's scheduler and limits.
            kv_blocks: blocks of ``knobs.tokens_per_block`` tokens that the KV cache has.
            windows: blocks that a sequence holds for its sliding windows, next to those of its
                context.
            max_context: longest prompt plus output; a longer request is rejected; 0 for no such
                limit.
            seed: of what is drawn: which guesses of a drafter are right.
            ends_only: whether ``advance`` tells of the ends of requests alone, which is far faster:
                steps that are alike are taken at once.

        Raises:
            InputError: an engine without slots, tokens or blocks, or whose steps do not hold a
                token and its guesses.
        """
        check_engine(step, knobs, kv_blocks)
        cfg = settings(
            step,
            knobs,
            kv_blocks,
            windows=windows,
            window_ps=-1,
            max_context=max_context,
            seed=seed,
            leaps=ends_only,
        )
        cfg["reporting"] = ENDS if ends_only else TOKENS
        self.now = 0
        self._scheduler = knobs.scheduler
        self._machine: Machine = machine(
            cfg, step, rows_for(*np.zeros((4, _ROWS), np.int64)), log=_LOG
        )
        self._new: list[Request] = []
        self._row: dict[int, int] = {}
        self._cancelled: list[tuple[int, int]] = []
        self._preempted = 0

    def submit(self, request: Request) -> None:
        """Send a request to the engine, now or later; of those sent at one instant, the one
        submitted first goes first.

        Raises:
            InputError: a request that would be sent before ``now``, or whose number another one
                has.
        """
        if request.at < self.now or request.id in self._row:
            raise InputError(
                f"request {request.id}, sent at {request.at} ps: it was there before, or that is"
                f" past ({self.now} ps)"
            )
        check_received(request, self._scheduler)
        self._row[request.id] = _NOBODY
        self._new.append(request)

    def cancel(self, request: int) -> bool:
        """Let go of a request at ``now``: it gets no more tokens and gives up its slot and blocks;
        the step under way goes on.

        One that the engine has not received yet leaves no row in the record.

        Returns:
            False if it has ended or was never there.
        """
        self._send()
        m, row = self._machine, self._row.get(request, _NOBODY)
        if row == _NOBODY:
            return False
        if row >= m.state["arrived"]:
            self._withdraw(row)
        elif m.rows.status[row] != UNFINISHED:
            return False
        else:
            drive.enter(drive.address(m), m, self.now, row)
        self._cancelled.append((request, self.now))
        return True

    def forget(self) -> int:
        """Drop the oldest requests from the record, up to the first that has not ended; what
        happens next does not change.

        A server that runs for days does not keep every request. ``requests`` gives the rest, and
        the gaps of all.

        Returns:
            How many were dropped.
        """
        self._send()
        m = self._machine
        live: list[int] = [
            int(m.state["arrived"]),
            *self._slots()["row"].tolist(),
            *self._waiting_rows().tolist(),
        ]
        count = min(live)
        if count:
            self._preempted += int(m.rows.preemptions[:count].sum())
            for number in m.rows.id[:count].tolist():
                del self._row[number]
            without_first(m, count)
            self._row = {
                number: row - count if row >= 0 else row for number, row in self._row.items()
            }
        return count

    def next_event(self) -> int | None:
        """The instant in picoseconds at which something may happen next if nothing is submitted;
        None if nothing will.

        It is never later than what the next ``advance`` reports. Where a step is about to begin it
        is the next picosecond.
        """
        self._send()
        s, cfg = self._machine.state, self._machine.cfg
        if self._cancelled:
            return self.now
        if s["phase"] == UNDER_WAY:
            return int(s["ends"])
        if s["running"] or s["queued"]:
            looks = s["began"] if cfg["overlap"] else s["now"]
            return self.now if s["unheard"] == 0 and s["next_arrival"] <= looks else self.now + 1
        return max(self.now, int(s["next_arrival"])) if s["next_arrival"] < NEVER else None

    def advance(self, until: int | None = None) -> Happened:
        """Do all that happens up to and including ``until``; without it, all that is left to do.

        A step does not begin at ``until`` itself: requests may still be submitted for that instant,
        and are in it.

        Args:
            until: picoseconds.

        Raises:
            InputError: an instant before ``now``.
        """
        if until is not None and until < self.now:
            raise InputError(
                f"an engine cannot be advanced to {until} ps: it is {self.now} ps there"
            )
        self._send()
        m = self._machine
        parts = [_cancelled(self._cancelled)]
        self._cancelled = []
        while True:
            drive.enter(drive.address(m), m, NEVER if until is None else until, _NOBODY)
            parts.append(_read(m))
            if not _was_full(m, len(parts[-1][0])):
                break
        self.now = max(self.now, int(m.state["now"])) if until is None else until
        ids, at, tokens, status = np.concatenate(parts, axis=1)
        return Happened(ids=ids, at=at, tokens=tokens, status=status)

    @property
    def machine(self) -> Machine:
        """The engine in the kernel's memory, for simulations of many like it."""
        return self._machine

    @property
    def running(self) -> NDArray[np.int64]:
        """Requests that have a slot, in the order in which they entered."""
        rows: NDArray[np.int64] = self._slots()["row"]
        return self._machine.rows.id[rows]

    @property
    def waiting(self) -> NDArray[np.int64]:
        """Requests in the queue, the next to enter first; those on their way are not in it."""
        return self._machine.rows.id[self._waiting_rows()]

    @property
    def kv_blocks_free(self) -> int:
        """KV blocks that no request holds."""
        return int(self._machine.state["free"])

    @property
    def kv_blocks_used(self) -> int:
        """KV blocks that requests hold."""
        return int(self._machine.cfg["kv_blocks"] - self._machine.state["free"])

    @property
    def tokens_per_block(self) -> int:
        """Tokens of a KV block."""
        return int(self._machine.cfg["block_tokens"])

    @property
    def coming(self) -> NDArray[np.int64]:
        """Requests that are on their way to the queue, in the order of time."""
        self._send()
        return self._machine.rows.id[int(self._machine.state["arrived"]) : self._sent()]

    @property
    def queue(self) -> NDArray[np.int64]:
        """Requests that have no slot: those of the queue, and those on their way to it."""
        return np.concatenate([self.waiting, self.coming])

    @property
    def queued(self) -> int:
        """The number of requests without a slot: in the queue, and on their way to it."""
        return int(self._machine.state["queued"] + self._machine.state["coming"]) + len(self._new)

    def preemptions(self, request: int | None = None) -> int:
        """The preemptions of a request; without one, those of all."""
        self._send()
        counts = self._machine.rows.preemptions
        if request is None:
            return self._preempted + int(counts[: self._sent()].sum())
        row = self._row.get(request, _NOBODY)
        return 0 if row == _NOBODY else int(counts[row])

    @property
    def last_step_ps(self) -> int:
        """The duration of the last step, in picoseconds."""
        return int(self._machine.state["lasts"])

    def hold(self, blocks: int) -> int:
        """Take ``blocks`` free blocks, or all that there are, for what others have yet to read;
        returns how many.
        """
        granted = min(blocks, self.kv_blocks_free)
        self._machine.state["free"] -= granted
        return granted

    def release(self, blocks: int) -> None:
        """Give back blocks that were held."""
        self._machine.state["free"] += blocks

    def requests(self) -> Requests:
        """The record until now, in the order in which requests were sent; a cancelled one is
        unfinished.
        """
        self._send()
        return requests_of(
            copied(self._machine.rows), self._sent(), self._machine.tallies.gaps.copy()
        )

    def _sent(self) -> int:
        """The number of rows that have been sent."""
        return int(self._machine.state["arrived"] + self._machine.state["coming"])

    def _slots(self) -> NDArray[Any]:
        """The slots of the requests that run, in the order in which they entered."""
        m = self._machine
        slots: NDArray[Any] = m.slots[m.lists.running[: m.state["running"]]]
        return slots

    def _waiting_rows(self) -> NDArray[np.int64]:
        m = self._machine
        rows, row = np.empty(int(m.state["queued"]), np.int64), int(m.state["head"])
        for place in range(len(rows)):
            rows[place] = row
            row = int(m.rows.next[row])
        return rows

    def _send(self) -> None:
        """Put what was submitted on its way: among the rows that the engine has not received, in
        the order of time.
        """
        if not self._new:
            return
        new, self._new = self._new, []
        first, last = int(self._machine.state["arrived"]), self._sent()
        self._machine = grown(self._machine, last + len(new), log=_LOG)
        rows = self._machine.rows
        columns = np.array(
            [(r.isl, r.osl, r.id, r.at, HANDED_ON if r.received else -1) for r in new], np.int64
        ).T
        if last > first and columns[3].min() >= rows.sent[last - 1]:
            first = last
        columns = np.concatenate(
            [np.array([column[first:last] for column in (*rows[:4], rows.first)]), columns], axis=1
        )
        self._put(columns[:, np.argsort(columns[3], kind="stable")], first)
        if self._machine.cfg["leaps"] and self._machine.state["phase"] == UNDER_WAY:
            # steps that are under way together are cut where the new ones are heard
            drive.enter(drive.address(self._machine), self._machine, self.now, _NOBODY)

    def _withdraw(self, row: int) -> None:
        """Take a request that is on its way out of the rows."""
        rows, first, last = self._machine.rows, int(self._machine.state["arrived"]), self._sent()
        del self._row[int(rows.id[row])]
        columns = np.array([column[first:last] for column in (*rows[:4], rows.first)])
        self._put(np.delete(columns, row - first, axis=1), first)

    def _put(self, columns: NDArray[np.int64], first: int) -> None:
        """Write the last rows again, from ``first`` on: lengths, numbers and when they are sent."""
        rows, s, last = self._machine.rows, self._machine.state, first + columns.shape[1]
        for column, values in zip((*rows[:4], rows.first), columns, strict=True):
            column[first:last] = values
        rows.generated[first:last] = columns[4] == HANDED_ON
        self._row |= {int(number): first + i for i, number in enumerate(columns[2])}
        s["coming"] = last - s["arrived"]
        set_arrival(self._machine, int(s["arrived"]))


def _cancelled(entries: list[tuple[int, int]]) -> NDArray[np.int64]:
    return (
        np.array([(number, at, 0, CANCELLED) for number, at in entries], np.int64).reshape(-1, 4).T
    )


def _read(m: Machine) -> NDArray[np.int64]:
    """Take the entries out of the log."""
    columns = log_of(m)
    m.state["logged"] = 0
    return columns


def _was_full(m: Machine, read: int) -> bool:
    """Whether the engine stopped because the log might not have held what came next."""
    return (
        m.state["phase"] == BETWEEN
        and read > 0
        and read + int(m.state["coming"]) + int(m.cfg["slots"]) > m.log.at.size
    )


def engine_of(spec: EngineSpec, *, seed: int = 0, ends_only: bool = False) -> Engine:
    """The engine of a spec at time 0; the arguments are those of ``Engine``."""
    more: dict[str, Any] = {"windows": spec.windows, "max_context": spec.max_context}
    return Engine(spec.step, spec.knobs, spec.blocks, seed=seed, ends_only=ends_only, **more)
