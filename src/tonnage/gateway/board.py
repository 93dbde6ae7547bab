"""Numbers that several workers of one gateway write and read at the same time."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

CELL = 8
"""Bytes of a number. A processor reads and writes eight bytes that lie on a multiple of eight at once, so that no number is ever torn."""


class Tally:
    """One number of each worker for each of several things; a worker changes its own alone, so that no change is lost."""

    __slots__ = ("_alone", "_own", "_rows")

    def __init__(self, rows: list[memoryview[float]], worker: int) -> None:
        """Over the rows of all workers, of which one is this worker's own."""
        self._rows, self._own = rows, rows[worker]
        self._alone = len(rows) == 1

    def add(self, place: int, amount: float = 1.0) -> None:
        """Change this worker's number."""
        self._own[place] += amount

    def own(self, place: int) -> float:
        """This worker's number."""
        return float(self._own[place])

    def total(self, place: int) -> float:
        """The sum over all workers."""
        return float(self._own[place]) if self._alone else float(sum(row[place] for row in self._rows))

    def totals(self) -> list[float]:
        """The sums over all workers, in order."""
        if self._alone:
            return list(self._own)
        return [sum(column) for column in zip(*self._rows, strict=True)]

    def clear(self) -> None:
        """Begin this worker's numbers at 0 again."""
        for place in range(len(self._own)):
            self._own[place] = 0.0


class Board:
    """A piece of memory that is given out in order, so that workers that ask for the same things find them in the same places."""

    def __init__(self, cells: int, *, path: Path | None = None, worker: int = 0, workers: int = 1) -> None:
        """All zero when its file is new.

        Args:
            cells: numbers that each worker may ask for, and as many again that all share.
            path: of the file that the workers share; None for a worker that is alone.
            worker, workers: which one this is, counted from 0, and of how many.
        """
        self._cells, self._worker, self._workers = cells, worker, workers
        size = cells * (workers + 1) * CELL
        if path is None:
            memory = memoryview(bytearray(size))
        else:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.ftruncate(descriptor, size)
                memory = memoryview(mmap.mmap(descriptor, size))
            finally:
                os.close(descriptor)
        self._memory = memory.cast("d")
        self._given = self._shared = 0

    def tally(self, count: int = 1, *, now: bool = False) -> Tally:
        """A number of each worker for each of ``count`` things.

        Args:
            count: how many.
            now: whether they say how things are rather than what has happened: a worker that was restarted begins them at 0.
        """
        start, self._given = self._given, self._given + count
        if self._given > self._cells:
            raise ValueError(f"the board has {self._cells} numbers for each worker")
        rows = [self._memory[row * self._cells + start :][:count] for row in range(self._workers)]
        found = Tally(rows, self._worker)
        if now:
            found.clear()
        return found

    def shared(self, count: int) -> memoryview[float]:
        """One number for each of ``count`` things, which every worker may write."""
        start, self._shared = self._shared, self._shared + count
        if self._shared > self._cells:
            raise ValueError(f"the board has {self._cells} numbers that are shared")
        return self._memory[self._workers * self._cells + start :][:count]
