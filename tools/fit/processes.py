"""Fits that do not depend on each other, side by side in processes of their own.

The fold of a cross-validation needs nothing that another one finds. Each process is a fresh
interpreter, so that this works alike on every system, and it stays for the next folds. What comes
back is in the order of the tasks, so that the answer does not depend on how many processes there
are.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Processes:
    """Some processes, which begin when the first tasks come; with one, everything is done in the
    caller's own.
    """

    def __init__(self, count: int = 1) -> None:
        """Set how many there are."""
        self.count = count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(
        self,
        work: Callable[[Task], Result],
        tasks: Sequence[Task],
        waiting_for: Callable[[int], None],
    ) -> list[Result]:
        """What a function returns for each task.

        Args:
            work: a function of a module, or a partial one of its arguments; they and what it
                returns can be pickled.
            tasks: its last argument, one each.
            waiting_for: called with the place of each task before its result is waited for.
        """
        if self.count < 2 or len(tasks) < 2:
            found = []
            for place, task in enumerate(tasks):
                waiting_for(place)
                found.append(work(task))
            return found
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.count, mp_context=get_context("spawn"), initializer=_begin
            )
        futures = [self._pool.submit(work, task) for task in tasks]
        for place, future in enumerate(futures):
            waiting_for(place)
            future.result()
        return [future.result() for future in futures]


def _begin() -> None:
    """Leave an interrupt to the process that waits, and load the compiled kernels once."""
    from tonnage.simulator.kernel import warm_up

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm_up()
