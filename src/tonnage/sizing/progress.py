"""How far a long search is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""Called with (done, in all as far as is known, what was just finished)."""


def no_progress(done: int, total: int, name: str) -> None:
    """Report nothing."""


class Steps:
    """The steps of a search that are done, of those that are known to come; neither number ever falls."""

    def __init__(self, progress: Progress = no_progress) -> None:
        """``progress`` is told of every step."""
        self.progress, self.finished, self.expected = progress, 0, 0

    def expect(self, steps: int) -> None:
        """So many more will come."""
        self.expected += steps

    def done(self, name: str) -> None:
        """One more is finished."""
        self.finished += 1
        self.progress(self.finished, max(self.expected, self.finished), name)
