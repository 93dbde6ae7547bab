"""What a report needs of a plan's JSON, found where it is and left out where it is not.

A plan may be older than a part of the report, or have come from measured points, which know no memory and no terms.
Everything here answers None or nothing then; nothing guesses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tonnage.report.numbers import number, plain

Json = Mapping[str, Any]

FRONT_END_FELT = 0.3
"""Share of its time from which a busy front end is said."""

METRICS = ("ttft", "itl", "tpot", "e2e")
_LIMIT = re.compile(r"^(TTFT|ITL|TPOT|E2E) (\w+) ≤ ([\d.,]+) (µs|ms|s)$")
_MILLISECONDS = {"µs": 1e-3, "ms": 1.0, "s": 1e3}
_MEMORY = re.compile(r"([\d.,]+) GB ([^+(]+?)(?: per GPU)?(?= \+|\s*\(|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A latency limit: metric ("ttft"), statistic ("p95"), milliseconds, and all of it in words."""

    metric: str
    statistic: str
    milliseconds: float
    words: str


def at(value: Any, *path: str) -> Any:
    """What lies under these keys, or None where one is missing."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def figure_of(value: Any, *path: str) -> float | None:
    """The number under these keys; None where there is none, or it is not finite."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return float(found)


def words_of(value: Any, *path: str) -> str:
    """The text under these keys; "" where there is none."""
    found = at(value, *path)
    return "" if found is None else str(found)


def listed(value: Any, *path: str) -> tuple[Any, ...]:
    """The list under these keys; empty where there is none."""
    found = at(value, *path)
    return tuple(found) if isinstance(found, Sequence) and not isinstance(found, str) else ()


def limits(plan: Json) -> tuple[Limit, ...]:
    """The latency limits that count, as far as they can be read."""
    found = []
    for words in listed(plan, "scenario", "limits_that_count") or listed(plan, "scenario", "limits"):
        match = _LIMIT.match(str(words))
        if match:
            milliseconds = float(match.group(3).replace(",", "")) * _MILLISECONDS[match.group(4)]
            found.append(Limit(metric=match.group(1).lower(), statistic=match.group(2), milliseconds=milliseconds, words=str(words)))
    return tuple(found)


def memory_parts(plan: Json) -> tuple[tuple[str, float], ...]:
    """Where the memory of one GPU goes: names and gigabytes."""
    explained = listed(plan, "explain", "memory")
    if explained:
        return tuple((words_of(part, "part"), (figure_of(part, "bytes_per_gpu") or 0.0) / 1e9) for part in explained)
    line = words_of(plan, "choice", "memory")
    return tuple((name.strip(), float(size.replace(",", ""))) for size, name in _MEMORY.findall(line))


def deployment(candidate: Json) -> str:
    """Such as "FP8, TP 2, vllm on h100-sxm-80gb"."""
    where = f"{words_of(candidate, 'precision').upper()}, TP {words_of(candidate, 'tp')}{further_degrees(candidate, ', ')}"
    return f"{where}, {words_of(candidate, 'engine')} on {words_of(candidate, 'gpu')}"


def further_degrees(candidate: Json, joint: str) -> str:
    """Degrees above 1 of pipeline, attention ranks and expert groups, each after ``joint``: ", DP 8, EP 8"."""
    degrees = ((name, figure_of(candidate, name) or 1) for name in ("pp", "dp", "ep"))
    return "".join(f"{joint}{name.upper()} {degree:.0f}" for name, degree in degrees if degree > 1)


def gpus(candidate: Json) -> int:
    """GPUs bought."""
    return round((figure_of(candidate, "systems") or 0) * (figure_of(candidate, "gpus_per_system") or 0))


def same(one: Json | None, other: Json | None) -> bool:
    """Whether two candidates are one deployment."""
    keys = ("model", "gpu", "system", "precision", "tp", "pp", "dp", "ep", "engine", "knobs")
    return one is not None and other is not None and all(one.get(key) == other.get(key) for key in keys)


def latency(candidate: Json) -> str:
    """The latencies of a candidate that are known, in words."""
    parts = []
    for metric in METRICS:
        known = [f"{s} {number(v)}" for s in ("mean", "p95", "p99") if (v := figure_of(candidate, f"{metric}_ms", s)) is not None]
        if known:
            parts.append(f"{metric.upper()} {', '.join(known)} ms")
    return "; ".join(parts)


def tip(candidate: Json) -> str:
    """The whole configuration of a candidate, one fact a line."""
    rate, per_8 = (figure_of(candidate, f"requests_per_second_per_{of}") for of in ("instance", "8_gpus"))
    count, exact = figure_of(candidate, "systems"), figure_of(candidate, "systems_exact")
    lines = [
        deployment(candidate),
        f"{plain(count)} × {words_of(candidate, 'system')}, exactly {number(exact)}; {words_of(candidate, 'instances')} instances",
        f"{number(rate)} requests/s an instance, {number(per_8)} per 8 GPUs",
        *latency(candidate).split("; "),
        f"ends at: {words_of(candidate, 'binds')}",
        knobs(candidate),
    ]
    return "\n".join(line for line in lines if line)


def knobs(candidate: Json) -> str:
    """The engine's knobs in words; "" where they are not known."""
    given = at(candidate, "knobs")
    if not isinstance(given, Mapping):
        return ""
    chunked = "chunked prefill" if given.get("chunked_prefill") else "prefill in one piece"
    batch, tokens = (figure_of(given, name) for name in ("max_batch_size", "max_num_tokens"))
    return f"max batch {plain(batch)}, {plain(tokens)} tokens a step, {chunked}"
