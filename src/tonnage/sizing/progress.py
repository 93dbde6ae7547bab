"""How far a long search is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

Progress = Callable[[int, int, str], None]
"""Called with (done, in all as far as is known, what was just finished)."""


def no_progress(done: int, total: int, name: str) -> None:
    """Report nothing."""


class Steps:
    """Finished and expected steps of a search; neither number ever falls."""

    def __init__(self, progress: Progress = no_progress) -> None:
        """``progress`` learns of every step."""
        self.progress, self.finished, self.expected = progress, 0, 0

    def expect(self, steps: int) -> None:
        """Expect ``steps`` more."""
        self.expected += steps

    def done(self, name: str) -> None:
        """One more is finished."""
        self.finished += 1
        self.progress(self.finished, max(self.expected, self.finished), name)


# Independent parts of a search on several threads: the simulator's kernel runs outside the
# interpreter lock.


T = TypeVar("T")
R = TypeVar("R")


def parallel(
    work: Callable[[T], R], jobs: Sequence[T], workers: int | None = None
) -> Iterator[tuple[T, R]]:
    """Each job with its result, as they end; ``workers`` None for as many as there are cores, 1 for
    the caller's own thread.

    Raises KeyboardInterrupt: passed on once the running jobs have ended; the others are left out.
    """
    if workers == 1:
        yield from ((job, work(job)) for job in jobs)
        return
    with ThreadPoolExecutor(max_workers=workers or os.cpu_count()) as pool:
        futures: dict[Future[R], T] = {pool.submit(work, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
