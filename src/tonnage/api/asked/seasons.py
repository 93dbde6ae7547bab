"""Texts that say how the limits of an engine change with the hour, such as "8-20 max_num_tokens=2048; drain=60s start=2min"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.simulator.seasons import HOURS_PER_DAY, Restarts
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment

EXAMPLE = '"8-20 max_num_tokens=2048 max_batch_size=64; 22-6 max_model_len=32768; drain=60s start=2min"'
KNOBS = ("max_batch_size", "max_num_tokens")
LENGTH = "max_model_len"
TIMES = ("drain", "start")
DRAIN_S = 60.0
LARGEST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Seasons:
    """The settings of a fleet by the hour.

    Attributes:
        by_hour: for each hour of the day the place of its settings in the next two.
        deployments: an instance with each settings; the first are those of the other hours.
        contexts: longest request that each of them takes, prompt and output, in tokens.
        restarts: how long it takes to change from one to another.
    """

    by_hour: tuple[int, ...]
    deployments: tuple[Deployment, ...]
    contexts: tuple[int, ...]
    restarts: Restarts


def seasons_of(text: str, deployment: Deployment) -> Seasons:
    """Read the settings: parts with hours and knobs, and one with ``drain`` and ``start``, with semicolons between.

    Raises:
        InputError: naming what is wrong.
    """
    from tonnage.perf.pipeline import start_seconds

    by_hour, deployments, contexts = [0] * HOURS_PER_DAY, [deployment], [deployment.model.max_context]
    times: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        first, *rest = part.split()
        if "=" in first:
            for word in (first, *rest):
                times[_named(word, TIMES)[0]] = parse_duration(_named(word, TIMES)[1], f"{option('seasons')}: {word.partition('=')[0]}")
            continue
        for hour in _hours(first):
            if by_hour[hour]:
                raise InputError(f"{option('seasons')}: hour {hour} has two settings; let the hours of each part begin where others end")
            by_hour[hour] = len(deployments)
        knobs = dict(_setting(word) for word in rest)
        if not knobs:
            raise InputError(f"{option('seasons')}: '{part}' sets nothing; write for example {EXAMPLE}")
        contexts.append(min(knobs.pop(LENGTH, deployment.model.max_context), deployment.model.max_context))
        deployments.append(replace(deployment, knobs=replace(deployment.knobs, **knobs)))  # type: ignore[arg-type]
    if len(deployments) == 1:
        raise InputError(f"{option('seasons')}: '{text}' names no hours; write for example {EXAMPLE}")
    restarts = Restarts(drain_s=times.get("drain", DRAIN_S), start_s=times["start"] if "start" in times else start_seconds(deployment))
    return Seasons(by_hour=tuple(by_hour), deployments=tuple(deployments), contexts=tuple(contexts), restarts=restarts)


def _hours(text: str) -> list[int]:
    """Read "8-20", or "22-6" over midnight, as the hours that begin in it."""
    first, sign, last = text.partition("-")
    if not (sign and first.isascii() and last.isascii() and first.isdigit() and last.isdigit()):
        raise InputError(f"{option('seasons')}: '{text}' are no hours; write for example {EXAMPLE}")
    begin, end = int(first), int(last)
    if begin >= HOURS_PER_DAY or not 0 < end <= HOURS_PER_DAY or begin == end:
        raise InputError(f"{option('seasons')}: {text} is not a part of a day; write hours from 0-1 to 23-24, or 22-6 over midnight")
    return [hour % HOURS_PER_DAY for hour in range(begin, end if end > begin else end + HOURS_PER_DAY)]


def _setting(word: str) -> tuple[str, int]:
    name, value = _named(word, (*KNOBS, LENGTH))
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:12]) <= LARGEST):
        raise InputError(f"{option('seasons')}: {word}: write a whole number from 1 to {LARGEST:,}")
    return name, int(value)


def _named(word: str, known: tuple[str, ...]) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not sign or name not in known or not value:
        raise InputError(f"{option('seasons')}: '{word}' is not understood; write for example {EXAMPLE}, with {', '.join(known)}")
    return name, value
