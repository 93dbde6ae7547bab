"""Runs the lesson in ticks with the arguments of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.api.arguments import whole_numbers
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.simulator.lesson import LessonResult


def lesson(**flags: Any) -> LessonResult:
    """The course's simulator in ticks; the arguments are the fields of ``simulator.lesson.LessonConfig``.

    Raises:
        InputError: a value that no engine could have.
    """
    from tonnage.simulator.lesson import LessonConfig, run_lesson

    if isinstance(flags.get("concurrency"), str):
        clients = whole_numbers(flags["concurrency"], option("concurrency"))
        if len(clients) > 1:
            raise InputError(f"{option('concurrency')}: '{flags['concurrency']}' is a sweep; the lesson takes one number of requests")
        flags["concurrency"] = clients[0]
    return run_lesson(LessonConfig(**flags))
