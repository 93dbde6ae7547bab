"""Recorded sessions at each speed and time to first token, and what to do with a session that
waits: admit no more than fit, and keep its cache, or not.

All of it is read from the loads of one lattice, so that cells of the table share their runs. Short
runs decide, as where deployments are compared.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tonnage.plan.demand import Admission, HowKept, KeptCache, SessionTiers, SpeedTier
from tonnage.sizing.explain import with_tiers
from tonnage.sizing.loads.instance import QUICK
from tonnage.spec.deployment import Limit, Slo
from tonnage.spec.kv_tiers import OFF

if TYPE_CHECKING:
    from tonnage.sizing.search.deployment_capacity import Contender, Sized
    from tonnage.spec.recorded_sessions import RecordedSessions

SLOWDOWNS = (1.2, 1.5, 2.0, 3.0)
"""Speeds of the table: how many times as long as alone the answers of nine sessions in ten take at
most."""

FIRST_TOKENS_S = (2.0, 5.0, 10.0)
"""Its times to the first token of a further request, in seconds, at the 95th percentile."""

OVER = (1.25, 1.5)
"""Sessions that want to run at once, over the number that the limits allow."""


def session_tiers(best: Sized) -> SessionTiers | None:
    """The table of a deployment, and what keeping caches buys; None without recorded sessions."""
    recorded = best.contender.instance.recorded_sessions
    if recorded is None:
        return None
    # the checked fleet of the choice may carry less than its instances by themselves, and short
    # runs show more or less than long ones: the cell of the question's limits is the choice
    quick = _quick_rate(best, best.contender.question.slo)
    share = best.rate / quick if quick else 1.0
    rates = {
        (slowdown, seconds): share * _quick_rate(best, _limits(slowdown, seconds))
        for seconds in FIRST_TOKENS_S
        for slowdown in SLOWDOWNS
    }
    speeds = tuple(
        SpeedTier(
            slowdown_p90=slowdown,
            further_ttft_p95_ms=1e3 * seconds,
            per_system=_per_system(best, rate),
            systems=_systems(best, rate),
        )
        for (slowdown, seconds), rate in rates.items()
    )
    return SessionTiers(
        speeds=speeds, kept=_kept(best, recorded), admission=_admission(best, recorded)
    )


def _limits(slowdown: float, seconds: float) -> Slo:
    return (
        Limit(metric="further_ttft", statistic="p95", seconds=seconds),
        Limit(metric="slowdown", statistic="p90", seconds=slowdown),
    )


def _quick_rate(best: Sized, slo: Slo) -> float:
    """Requests per second of one instance inside limits by short runs, at the confidence of the
    choice; 0 where none are.
    """
    contender = replace(best.contender, question=replace(best.contender.question, slo=slo))
    slowdown = contender.as_asked if best.level is None else contender.slowdown(best.level)
    return contender.capacity(1, slowdown, care=QUICK).rate


def _rate(best: Sized, contender: Contender) -> float:
    """The rate of sessions by runs as long as those of the choice, inside the limits of the
    question.
    """
    needed = contender.needed(best.slowdown, care=best.care)
    return needed[1].rate if isinstance(needed, tuple) else 0.0


def _per_system(best: Sized, rate: float) -> float:
    recorded = best.contender.instance.recorded_sessions
    pace = 1.0 if recorded is None else recorded.pace
    return rate / pace * best.instances / best.systems


def _systems(best: Sized, rate: float) -> int | None:
    """Systems that carry the sessions of the question; None where an instance carries none."""
    contender = best.contender
    return contender.layout.carrying(contender.load, rate).systems if rate else None


def _kept(best: Sized, recorded: RecordedSessions) -> tuple[KeptCache, ...]:
    """Sessions of a system by what becomes of the cache of one that waits."""
    contender = best.contender
    cached = with_tiers(contender, OFF)
    cache = _rate(best, cached)
    largest = np.maximum.reduceat(recorded.isl + recorded.osl, recorded.starts[:-1]).mean()
    pinned = math.floor(cached.instance.memory.tokens / float(largest)) * recorded.pace
    deployment = cached.ready.trial.deployment
    none = replace(deployment, knobs=replace(deployment.knobs, prefix_caching=False))
    computing = contender.runs.instance(none, cached.ready.instance.traffic)
    recompute = _rate(best, replace(cached, ready=replace(cached.ready, instance=computing)))
    rates: dict[HowKept, float] = {
        "recompute": recompute,
        "pin": min(pinned, cache),
        "cache": cache,
    }
    if contender.instance.below[1]:
        rates["offload"] = _rate(best, contender)
    whole = _rate(best, contender)
    share = min(1.0, best.rate / whole) if whole else 1.0  # as the fleet of the choice was checked
    return tuple(
        KeptCache(
            how=how,
            per_system=_per_system(best, share * rate),
            systems=_systems(best, share * rate),
        )
        for how, rate in rates.items()
    )


def _admission(best: Sized, recorded: RecordedSessions) -> tuple[Admission, ...]:
    """What more sessions than the limits allow see without admission, and how long one waits with
    it.
    """
    contender = best.contender
    lasts = float(recorded.lasts_s.mean())
    admissions = []
    for over in OVER:
        summary = contender.seen(best.instances, over * best.rate, QUICK).summary
        sessions = summary.sessions
        slowdown = None if sessions is None else sessions.slowdown_ms.p90
        admissions.append(
            Admission(
                over=over,
                slowdown_p90=None if slowdown is None else slowdown / 1e3,
                further_ttft_p95_ms=None if sessions is None else sessions.further_ttft_ms.p95,
                wait_seconds=(over - 1) * lasts,
            )
        )
    return tuple(admissions)
