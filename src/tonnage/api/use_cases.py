"""``tonnage.size`` for several use cases of one model on one fleet: one pool for all, or one for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tonnage.api.asked.aims import reserve_of
from tonnage.api.asked.arguments import with_signature
from tonnage.api.asked.typed_arguments import SizeArguments
from tonnage.api.size import Asked, answer, ask
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from datetime import date

    from tonnage.api.asked.documents import ScenarioLike
    from tonnage.plan.use_cases import UseCases
    from tonnage.sizing.fleet.standby import Reserve
    from tonnage.sizing.planner import Progress

OF_ONE_PLAN = ("have", "growth", "benchmarks", "budget", "max_kw", "max_racks", "autoscale", "broken_hours", "start_time")
"""What is asked of one plan alone, and not of a fleet of several use cases."""


@with_signature(SizeArguments)
def size_use_cases(
    scenarios: Sequence[ScenarioLike],
    *,
    progress: Progress | None = None,
    command: str = "",
    today: date | None = None,
    **asked: Unpack[SizeArguments],
) -> UseCases:
    """Whether several use cases take fewer GPUs in one pool or apart, each inside its own limits.

    Args:
        scenarios: two or more, each a file, nested values or a ``Scenario`` of one model.
        progress: as in ``size``.
        command, today: as typed, and the day, for the plans to name.
        asked: values in place of what every scenario says.

    Raises:
        InputErrors: everything that cannot be used, each with its place.
    """
    understood = [ask(one, **asked) for one in scenarios]
    names = _names(understood)
    for name, one in zip(names, understood, strict=True):
        _check(name, one)
    reserve = _check_together(names, understood)
    return answer_use_cases(names, understood, reserve, progress=progress, command=command, today=today)


def answer_use_cases(
    names: Sequence[str],
    understood: Sequence[Asked],
    reserve: Reserve | None = None,
    *,
    progress: Progress | None = None,
    command: str = "",
    today: date | None = None,
) -> UseCases:
    """The answer of use cases that are understood already, with what stands by; other arguments as in ``size_use_cases``."""
    from tonnage.sizing.use_cases import Asked as Case
    from tonnage.sizing.use_cases import use_cases

    plans = [answer(one, progress=progress, command=command, today=today)[0] for one in understood]
    cases = [Case(name=name, question=one.questions[0], plan=plan) for name, one, plan in zip(names, understood, plans, strict=True)]
    told = None if progress is None else (lambda text: progress(0, 0, text))
    return use_cases(cases, reserve=reserve) if told is None else use_cases(cases, told, reserve)


def _names(understood: Sequence[Asked]) -> tuple[str, ...]:
    """A name for each use case: its title, or that of its file, or its number; numbered where two are alike."""
    found = [one.scenario.title or Path(one.source).stem or f"use case {place}" for place, one in enumerate(understood, 1)]
    return tuple(name if found.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(found, 1))


def _check(name: str, one: Asked) -> None:
    """Refuse what is asked of one plan alone.

    Raises:
        InputError: naming the use case.
    """
    if len(one.questions) != 1:
        raise InputError(f"{name}: {option('model')} names several; several use cases go on one fleet of one model each")
    if one.questions[0].sharing is not None:
        raise InputError(f"{name}: several use cases are sized for prompts that share nothing so far; leave out what they share")
    if one.questions[0].pools is not None:
        raise InputError(f"{name}: {option('disaggregated')} sizes two pools for one use case; drop it, or give one scenario")
    parts = (one.scenario, one.scenario.choice, one.scenario.scaling)
    idle = next((key for key in OF_ONE_PLAN for part in parts if getattr(part, key, None) is not None), None)
    if idle is not None:
        raise InputError(f"{name}: {option(idle)} is for one use case alone; leave it out, or size this scenario by itself")


def _check_together(names: Sequence[str], understood: Sequence[Asked]) -> Reserve | None:
    """What stands by for the fleet of all; refuse what the use cases ask differently, and objectives that compare no arrangements.

    Raises:
        InputError: naming the use case, or the objective.
    """
    first, gpus = understood[0].scenario, {gpu.name for one in understood for gpu in one.questions[0].gpus}
    for name, one in zip(names, understood, strict=True):
        if one.scenario.standby != first.standby:
            raise InputError(
                f"{name}: {option('availability')} or what belongs to it differs from {names[0]}; write the same in every file"
            )
        if one.scenario.choice.objective != first.choice.objective:
            raise InputError(f"{name}: {option('objective')} differs from {names[0]}; write the same in every file")
    aim = first.choice.objective or "gpus"
    if aim == "latency":
        raise InputError(f"{option('objective')}: latency is of one use case, as a shared pool is sized for the fewest GPUs; drop it")
    if aim != "gpus" and len(gpus) > 1:
        raise InputError(
            f"{option('objective')}: several use cases are arranged on the fewest GPUs, which is the least {aim} on one type of GPU only; "
            f"give one {option('gpu')} of {', '.join(sorted(gpus))}"
        )
    return reserve_of(first.standby)
