"""Texts that say how a fleet changes while it runs, such as "mtbf=30d repair=2h" and
"metric=outstanding target=20 max=8".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import share_of
from tonnage.errors import InputError, option
from tonnage.simulator.autoscaler import METRICS, Autoscale
from tonnage.simulator.changes import HOURS_PER_DAY, RETRIES, Failures, Restarts
from tonnage.spec.scenario import Mode, ScalingAsked, Scenario
from tonnage.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from tonnage.plan.demand import Demand
    from tonnage.plan.plan import Plan
    from tonnage.sizing.question import Question
    from tonnage.spec.deployment import Deployment


FAIL_EXAMPLE = '"mtbf=30d repair=2h"'
SCALE_EXAMPLE = '"metric=outstanding target=20 min=1 max=8"'
FAIL = ("mtbf", "repair", "crews", "retry")
SCALE = ("metric", "target", "min", "max", "start", "hold", "interval", "warm", "link", "boot")
MOST_INSTANCES = 1_000


def failures_of(text: str) -> Failures:
    """Read "mtbf=30d repair=2h"; ``crews`` (repairs at once) and ``retry`` (none, unanswered or
    all) may follow. Raises InputError.
    """
    where = option("fail")
    settings = _values_of(text, FAIL, where, FAIL_EXAMPLE)
    if not {"mtbf", "repair"} <= set(settings):
        raise InputError(
            f"{where}: '{text}' does not say mtbf and repair; write for example {FAIL_EXAMPLE}"
        )
    retry = settings.get("retry", "unanswered")
    if retry not in RETRIES:
        raise InputError(f"{where}: retry={retry} is none of {', '.join(RETRIES)}")
    mtbf, repair = (_duration(settings[name], name, where) for name in ("mtbf", "repair"))
    if mtbf <= 0:
        raise InputError(
            f"{where}: mtbf={settings['mtbf']} is no time between failures; write for example 30d"
        )
    return Failures(
        mtbf_s=mtbf,
        repair_s=repair,
        crews=_count(settings, "crews", 0, where),
        retry=retry,  # type: ignore[arg-type]
    )


def autoscale_of(text: str, deployment: Deployment) -> Autoscale:
    """Read "metric=outstanding target=20 min=1 max=8"; start, hold, interval, warm, link and boot
    may follow. Raises InputError.

    Without ``start`` it is ``start_seconds``, over ``link`` (bytes per second, such as 1.25GB) and
    with ``boot`` next to the weights.
    """
    from tonnage.perf.pipeline import BOOT_S, LINK_BYTES_S, start_seconds

    where = option("autoscale")
    settings = _values_of(text, SCALE, where, SCALE_EXAMPLE)
    if not {"metric", "target", "max"} <= set(settings):
        raise InputError(
            f"{where}: '{text}' does not say metric, target and max; write for example"
            f" {SCALE_EXAMPLE}"
        )
    if settings["metric"] not in METRICS:
        raise InputError(f"{where}: metric={settings['metric']} is none of {', '.join(METRICS)}")
    target, least, max_instances = (
        _number(settings["target"]),
        _count(settings, "min", 1, where),
        _count(settings, "max", 0, where),
    )
    warm = _count(settings, "warm", 0, where)
    if not (0 < target < 1e12):
        raise InputError(
            f"{where}: target={settings['target']} is not possible; write what one instance is"
            " meant for, above 0"
        )
    if not 1 <= least <= max_instances <= MOST_INSTANCES - warm:
        raise InputError(
            f"{where}: min={least} and max={max_instances} are not possible; write 1 ≤ min ≤ max,"
            f" with warm at most {MOST_INSTANCES:,}"
        )
    times = {
        name: _duration(settings[name], name, where)
        for name in ("start", "hold", "interval", "boot")
        if name in settings
    }
    if times.get("interval", 1.0) < 0.001:
        raise InputError(
            f"{where}: interval={settings['interval']} is too short; write 1ms or more"
        )
    boot, link = (
        times.pop("boot", BOOT_S),
        parse_bytes(settings["link"], f"{where}: link") if "link" in settings else LINK_BYTES_S,
    )
    if link <= 0:
        raise InputError(
            f"{where}: link={settings['link']} moves nothing; write bytes per second, such as"
            " 1.25GB"
        )
    start = times.pop("start", None)
    start = start_seconds(deployment, link, boot) if start is None else start
    named: dict[str, Any] = {f"{name}_s": seconds for name, seconds in times.items()}
    return Autoscale(
        metric=settings["metric"],  # type: ignore[arg-type]
        target=target,
        least=least,
        most=max_instances,
        start_s=start,
        warm=warm,
        **named,
    )


def _values_of(text: str, names: Iterable[str], where: str, example: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in text.split():
        name, sign, value = part.partition("=")
        if not sign or name not in names or name in settings or not value:
            raise InputError(
                f"{where}: '{part}' is not understood; write for example {example}, once each of"
                f" {', '.join(names)}"
            )
        settings[name] = value
    return settings


def _duration(text: str, name: str, where: str) -> float:
    seconds = parse_duration(text, f"{where}: {name}")
    if seconds > 1e10:
        raise InputError(f"{where}: {name}={text} is longer than 300 years; write a shorter time")
    return seconds


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _count(values: dict[str, str], name: str, default: int, where: str) -> int:
    """A whole number of 0 or more."""
    text = values.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InputError(f"{where}: {name}={text} is not a whole number of 0 or more")
    return int(text)


EXAMPLE = (
    '"8-20 max_num_tokens=2048 max_batch_size=64; 22-6 max_model_len=32768; drain=60s start=2min"'
)
KNOBS = ("max_batch_size", "max_num_tokens")
LENGTH = "max_model_len"
TIMES = ("drain", "start")
DRAIN_S = 60.0
LARGEST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Seasons:
    """The settings of a fleet by the hour."""

    by_hour: tuple[int, ...]  # for each hour of the day the place of its settings in the next two
    # an instance with each settings; the first are those of the other hours
    deployments: tuple[Deployment, ...]
    # longest request that each of them takes, prompt and output, in tokens
    contexts: tuple[int, ...]
    restarts: Restarts  # how long it takes to change from one to another


def seasons_of(text: str, deployment: Deployment) -> Seasons:
    """Read parts with hours and knobs, and one with ``drain`` and ``start``, with semicolons
    between. Raises InputError.
    """
    from tonnage.perf.pipeline import start_seconds

    by_hour, deployments, contexts = (
        [0] * HOURS_PER_DAY,
        [deployment],
        [deployment.model.max_context],
    )
    times: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        first, *rest = part.split()
        if "=" in first:
            for word in (first, *rest):
                times[_named(word, TIMES)[0]] = parse_duration(
                    _named(word, TIMES)[1], f"{option('seasons')}: {word.partition('=')[0]}"
                )
            continue
        for hour in _hours(first):
            if by_hour[hour]:
                raise InputError(
                    f"{option('seasons')}: hour {hour} has two settings; let the hours of each part"
                    " begin where others end"
                )
            by_hour[hour] = len(deployments)
        knobs = dict(_setting(word) for word in rest)
        if not knobs:
            raise InputError(
                f"{option('seasons')}: '{part}' sets nothing; write for example {EXAMPLE}"
            )
        contexts.append(
            min(knobs.pop(LENGTH, deployment.model.max_context), deployment.model.max_context)
        )
        deployments.append(replace(deployment, knobs=replace(deployment.knobs, **knobs)))  # type: ignore[arg-type]
    if len(deployments) == 1:
        raise InputError(
            f"{option('seasons')}: '{text}' names no hours; write for example {EXAMPLE}"
        )
    restarts = Restarts(
        drain_s=times.get("drain", DRAIN_S),
        start_s=times["start"] if "start" in times else start_seconds(deployment),
    )
    return Seasons(
        by_hour=tuple(by_hour),
        deployments=tuple(deployments),
        contexts=tuple(contexts),
        restarts=restarts,
    )


def _hours(text: str) -> list[int]:
    """Read "8-20", or "22-6" over midnight, as the hours that begin in it."""
    first, sign, last = text.partition("-")
    if not (sign and first.isascii() and last.isascii() and first.isdigit() and last.isdigit()):
        raise InputError(f"{option('seasons')}: '{text}' are no hours; write for example {EXAMPLE}")
    begin, end = int(first), int(last)
    if begin >= HOURS_PER_DAY or not 0 < end <= HOURS_PER_DAY or begin == end:
        raise InputError(
            f"{option('seasons')}: {text} is not a part of a day; write hours from 0-1 to 23-24, or"
            " 22-6 over midnight"
        )
    return [
        hour % HOURS_PER_DAY for hour in range(begin, end if end > begin else end + HOURS_PER_DAY)
    ]


def _setting(word: str) -> tuple[str, int]:
    name, value = _named(word, (*KNOBS, LENGTH))
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:12]) <= LARGEST):
        raise InputError(f"{option('seasons')}: {word}: write a whole number from 1 to {LARGEST:,}")
    return name, int(value)


def _named(word: str, names: tuple[str, ...]) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not sign or name not in names or not value:
        raise InputError(
            f"{option('seasons')}: '{word}' is not understood; write for example {EXAMPLE}, with"
            f" {', '.join(names)}"
        )
    return name, value


LONGEST_START_S = 86_400.0


def scaling_of(scaling: ScalingAsked) -> tuple[float, float | None] | None:
    """The share of the hours in which a rule may break limits, and the seconds of a start if they
    are given; None without ``autoscale``.

    Raises InputError: a part without ``autoscale``, or a value out of range.
    """
    if not scaling.autoscale:
        alone = next(
            (name for name in ("broken_hours", "start_time") if getattr(scaling, name) is not None),
            None,
        )
        if alone is not None:
            raise InputError(
                f"{option(alone)}: goes with {option('autoscale')}; ask for it too, or leave"
                " this out"
            )
        return None
    start = (
        None
        if scaling.start_time is None
        else parse_duration(scaling.start_time, option("start_time"))
    )
    if start is not None and start > LONGEST_START_S:
        raise InputError(
            f"{option('start_time')}: {scaling.start_time} is longer than a day; write for example"
            " 3min"
        )
    return 0.0 if scaling.broken_hours is None else _share(scaling.broken_hours), start


def check_scaling(scenario: Scenario, demand: Demand | None, mode: Mode) -> None:
    """Refuse a rule where there are no hours to scale over, or nothing to hold. Raises InputError:
    naming what is missing.
    """
    if scaling_of(scenario.scaling) is None or demand is None:
        return
    where = option("autoscale")
    if mode == "offline" or scenario.search.load == "closed":
        what = "a job" if mode == "offline" else "a closed loop"
        raise InputError(
            f"{where}: {what} has no hours to scale over; ask for requests that come by the hour,"
            " or leave this out"
        )
    if demand.profile is None and scenario.demand.trace is None:
        raise InputError(
            f"{where}: needs the load by the hour; give {option('profile')} with 24 or 168 hourly"
            f" loads, {option('users')} with their working hours, or {option('trace')}"
        )


def with_autoscaling(plan: Plan, question: Question, scenario: Scenario) -> Plan:
    """The plan with a rule for its choice, where one was requested."""
    scaling = scaling_of(scenario.scaling)
    if scaling is None:
        return plan
    from tonnage.sizing.fleet.autoscaling import autoscaling

    return replace(
        plan, autoscaling=autoscaling(question, plan, broken_share=scaling[0], start_s=scaling[1])
    )


def _share(text: float | str) -> float:
    """Read 5, "5%" or 0.05 as the share 0.05. Raises InputError: no number from 0 to below 100
    %.
    """
    share, written = share_of(text)
    if not 0 <= share < 1:
        raise InputError(
            f"{option('broken_hours')}: '{written}' is not a share of the hours; write for"
            " example 5%"
        )
    return share
