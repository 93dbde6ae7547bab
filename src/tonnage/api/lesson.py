"""Runs the lesson in ticks with the arguments of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from tonnage.api.asked.arguments import whole_numbers, with_signature
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.simulator.lesson import LessonResult


class LessonArguments(TypedDict, total=False):
    """Everything that ``lesson`` takes: the fields of ``simulator.lesson.LessonConfig``, at their defaults where they are left out."""

    batcher: Literal["static", "in-flight", "one-prefill"]
    """Who may enter a free slot, and when."""
    slots: int
    """Requests that run at once."""
    prefill_ticks: float
    """Ticks to prefill one prompt, alone and whole."""
    itl_ticks: float
    """Ticks of a step that only decodes."""
    prefill_chunks: int
    """Steps that one prefill is divided over."""
    initial_batch: int | None
    """Requests at time 0, with none later."""
    concurrency: int | str | None
    """Requests at any time, running or queued."""
    tick_rate: float | None
    """Requests that arrive per tick, evenly."""
    osl_mean: float
    """Mean output length, in tokens."""
    osl_std: float
    """Standard deviation of the output length, in tokens."""
    seed: int
    """Seed of the output lengths."""
    until: float
    """Ticks to simulate."""


@with_signature(LessonArguments)
def lesson(**asked: Unpack[LessonArguments]) -> LessonResult:
    """Run the course's simulator in ticks.

    Raises:
        InputError: a value that no engine could have.
    """
    from tonnage.simulator.lesson import LessonConfig, run_lesson

    fields: dict[str, Any] = dict(asked)
    if isinstance(fields.get("concurrency"), str):
        clients = whole_numbers(fields["concurrency"], option("concurrency"))
        if len(clients) > 1:
            raise InputError(f"{option('concurrency')}: '{fields['concurrency']}' is a sweep; the lesson takes one number of requests")
        fields["concurrency"] = clients[0]
    return run_lesson(LessonConfig(**fields))
