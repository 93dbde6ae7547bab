"""Texts that say how a fleet changes while it runs, such as "mtbf=30d repair=2h" and "metric=outstanding target=20 max=8"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.simulator.autoscaler import METRICS, Autoscale
from tonnage.simulator.failures import RETRIES, Failures
from tonnage.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment

FAIL_EXAMPLE = '"mtbf=30d repair=2h"'
SCALE_EXAMPLE = '"metric=outstanding target=20 min=1 max=8"'
FAIL = ("mtbf", "repair", "crews", "retry")
SCALE = ("metric", "target", "min", "max", "start", "hold", "interval", "warm", "link", "boot")
MOST_INSTANCES = 1_000


def failures_of(text: str) -> Failures:
    """Read "mtbf=30d repair=2h"; ``crews`` (repairs at once) and ``retry`` (none, unanswered or all) may follow.

    Raises:
        InputError: naming what is wrong.
    """
    where = option("fail")
    given = _given(text, FAIL, where, FAIL_EXAMPLE)
    if not {"mtbf", "repair"} <= set(given):
        raise InputError(f"{where}: '{text}' does not say mtbf and repair; write for example {FAIL_EXAMPLE}")
    retry = given.get("retry", "unanswered")
    if retry not in RETRIES:
        raise InputError(f"{where}: retry={retry} is none of {', '.join(RETRIES)}")
    mtbf, repair = (_duration(given[name], name, where) for name in ("mtbf", "repair"))
    if mtbf <= 0:
        raise InputError(f"{where}: mtbf={given['mtbf']} is no time between failures; write for example 30d")
    return Failures(mtbf_s=mtbf, repair_s=repair, crews=_count(given, "crews", 0, where), retry=retry)  # type: ignore[arg-type]


def autoscale_of(text: str, deployment: Deployment) -> Autoscale:
    """Read "metric=outstanding target=20 min=1 max=8"; start, hold, interval, warm, link and boot may follow.

    Without ``start`` it is that of ``perf.start``, over ``link`` (bytes per second, such as 1.25GB) and with ``boot`` beside the weights.

    Raises:
        InputError: naming what is wrong.
    """
    from tonnage.perf.pipeline import BOOT_S, LINK_BYTES_S, start_seconds

    where = option("autoscale")
    given = _given(text, SCALE, where, SCALE_EXAMPLE)
    if not {"metric", "target", "max"} <= set(given):
        raise InputError(f"{where}: '{text}' does not say metric, target and max; write for example {SCALE_EXAMPLE}")
    if given["metric"] not in METRICS:
        raise InputError(f"{where}: metric={given['metric']} is none of {', '.join(METRICS)}")
    target, least, most = _number(given["target"]), _count(given, "min", 1, where), _count(given, "max", 0, where)
    warm = _count(given, "warm", 0, where)
    if not (0 < target < 1e12):
        raise InputError(f"{where}: target={given['target']} is not possible; write what one instance is meant for, above 0")
    if not 1 <= least <= most <= MOST_INSTANCES - warm:
        raise InputError(f"{where}: min={least} and max={most} are not possible; write 1 ≤ min ≤ max, with warm at most {MOST_INSTANCES:,}")
    times = {name: _duration(given[name], name, where) for name in ("start", "hold", "interval", "boot") if name in given}
    if times.get("interval", 1.0) < 0.001:
        raise InputError(f"{where}: interval={given['interval']} is too short; write 1ms or more")
    boot, link = times.pop("boot", BOOT_S), parse_bytes(given["link"], f"{where}: link") if "link" in given else LINK_BYTES_S
    if link <= 0:
        raise InputError(f"{where}: link={given['link']} moves nothing; write bytes per second, such as 1.25GB")
    start = times.pop("start", None)
    start = start_seconds(deployment, link, boot) if start is None else start
    named: dict[str, Any] = {f"{name}_s": seconds for name, seconds in times.items()}
    return Autoscale(metric=given["metric"], target=target, least=least, most=most, start_s=start, warm=warm, **named)  # type: ignore[arg-type]


def _given(text: str, known: Iterable[str], where: str, example: str) -> dict[str, str]:
    """The parts of a text by their names."""
    found: dict[str, str] = {}
    for part in text.split():
        name, sign, value = part.partition("=")
        if not sign or name not in known or name in found or not value:
            raise InputError(f"{where}: '{part}' is not understood; write for example {example}, once each of {', '.join(known)}")
        found[name] = value
    return found


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


def _count(given: dict[str, str], name: str, default: int, where: str) -> int:
    """A whole number of 0 or more."""
    text = given.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InputError(f"{where}: {name}={text} is not a whole number of 0 or more")
    return int(text)
