"""Understands how many recorded sessions there are, in the units of people, and what goes with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import Faults
from tonnage.api.question.sessions import asked_tiers
from tonnage.errors import InputError, InputErrors, option
from tonnage.spec.kv_tiers import USUAL
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.plan.demand import Demand
    from tonnage.sizing.question import Question
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision
    from tonnage.spec.recorded_sessions import RecordedSessions
    from tonnage.spec.scenario import DemandAsked, Scenario, SessionsAsked

LONGEST_PAUSE_S = 600.0
"""Recorded pauses are cut to this for sizing: a person who is away longer holds no session."""

SHARE_ACTIVE = 0.2
"""Share of the engineers who are in a session at the same time, where the question gives none."""

UNITS = ("sessions", "sessions_per_hour", "engineers")
OF_SESSIONS = ("first_ttft", "further_ttft", "slowdown")
MOST_SESSIONS = 1e7


def sessions_questions(
    scenario: Scenario, held: RecordedSessions, models: Mapping[Model, tuple[Precision, ...]], rest: Mapping[str, Any], faults: Faults
) -> tuple[Question, ...]:
    """A question for each model, about sessions from a file, as the model can serve them. Raises InputErrors: all that cannot be used.

    Args:
        models: each with the formats that are tried where none is named.
        rest: limits, and what may be combined.
    """
    from tonnage.sizing.question import Question, Sharing

    faults.of(check_sessions_alone, scenario)
    cut = held.paused_at_most(faults.of(longest_pause_of, scenario.sessions) or 0.0)
    demand = faults.of(sessions_demand, scenario.demand, cut)
    tiers = faults.of(asked_tiers, scenario.search.kv_tiers, USUAL) or USUAL
    found = []
    for model, precisions in models.items():
        own = faults.of(served_by, cut, model)
        pairs = None if own is None else own.recording.pairs()
        if own is not None and pairs is not None and demand is not None:
            isl, osl = pairs.lengths()
            asked = {**rest, "precisions": rest["precisions"] or precisions, "sharing": Sharing(recorded=own, tiers=tiers), "tune": False}
            found.append(Question(model=model, isl=isl, osl=osl, pairs=pairs, demand=demand, **asked))
    InputErrors.raise_if(faults.messages)
    return tuple(found)


def longest_pause_of(asked: SessionsAsked) -> float:
    """Seconds to which recorded pauses are cut. Raises InputError: no duration."""
    return LONGEST_PAUSE_S if asked.longest_pause is None else parse_duration(asked.longest_pause, option("longest_pause"))


def check_no_sessions(scenario: Scenario) -> None:
    """Refuse what belongs to recorded sessions where the trace is none of these. Raises InputError: naming it."""
    said = [name for name in (*UNITS, "share_active") if getattr(scenario.demand, name) is not None]
    said += [name for name in OF_SESSIONS if getattr(scenario.limits, name) is not None]
    said += ["longest_pause"] if scenario.sessions.longest_pause is not None else []
    if said:
        raise InputError(f"{option(said[0])}: belongs to recorded sessions; give {option('trace')} a file of them (docs/workload.md)")


def check_sessions_alone(scenario: Scenario) -> None:
    """Refuse what is not sized with recorded sessions. Raises InputError: naming it."""
    demand, search = scenario.demand, scenario.search
    others = ("peak_rps", "mean_rps", "users", "calls_per_year", "profile", "requests", "peak_percentile", "peak_factor")
    said = [name for name in others if getattr(demand, name) is not None]
    said += [name for name in ("isl", "osl", "pairs", "mixture", "images") if getattr(scenario.lengths, name) is not None]
    said += [name for name in ("turns", "shared_prefix", "tool_calls") if getattr(scenario.sessions, name) is not None]
    said += [name for name in ("disaggregated", "speculation", "arrivals", "load") if getattr(search, name) is not None]
    said += ["autoscale"] if scenario.scaling.autoscale else []
    said += [name for name in ("have", "benchmarks") if getattr(scenario, name) is not None]
    if search.router not in (None, "session"):
        said.append("router")
    if said:
        raise InputError(f"{option(said[0])}: recorded sessions are sized without it; leave it out")


def sessions_demand(asked: DemandAsked, held: RecordedSessions) -> Demand:
    """How many sessions there are at once, as requests per second at the pace that was recorded.

    Raises:
        InputError: not one of the units, or a number that cannot be.
    """
    from tonnage.plan.demand import Demand, DemandSource
    from tonnage.sizing.demand import WORKING_DAYS, WORKING_HOURS, working_week

    given = [name for name in UNITS if getattr(asked, name) is not None]
    if len(given) != 1:
        named = ", ".join(map(option, UNITS))
        what = "none is given" if not given else "several are given"
        raise InputError(f"{named}: {what}; say with one of them how many recorded sessions there are, such as {option('sessions')} 400")
    if asked.share_active is not None and asked.engineers is None:
        raise InputError(f"{option('share_active')}: goes with {option('engineers')}; add for example {option('engineers')} 400")
    lasts_h = float(held.lasts_s.mean()) / 3600
    share = SHARE_ACTIVE if asked.share_active is None else asked.share_active
    if not 0 < share <= 1:
        raise InputError(f"{option('share_active')}: {share:g} is not a share; write a number above 0, at most 1")
    value = float(getattr(asked, given[0]))
    sessions = value * {"sessions": 1.0, "sessions_per_hour": lasts_h, "engineers": share}[given[0]]
    if not (math.isfinite(value) and 0 < sessions <= MOST_SESSIONS):
        raise InputError(f"{option(given[0])}: {value:g} is not possible; write above 0, at most {MOST_SESSIONS:,.0f} sessions at once")
    rate = sessions * held.pace
    hours = WORKING_HOURS if asked.working_hours is None else asked.working_hours
    days = WORKING_DAYS if asked.working_days is None else asked.working_days
    week = working_week(rate, hours, round(days))
    source = DemandSource(
        kind="sessions",
        requests_per_second=rate,
        trace=held.source,
        trace_change=held.change,
        trace_requests=len(held.isl),
        sessions=sessions,
        engineers=asked.engineers,
        working_hours=hours,
        session_seconds=lasts_h * 3600,
        session_requests=held.requests,
    )
    mean = math.fsum(week) / len(week)
    return replace(
        Demand(peak_requests_per_second=rate, sizing_requests_per_second=rate, source=source), mean_requests_per_second=mean, profile=week
    )


def served_by(held: RecordedSessions, model: Model) -> RecordedSessions:
    """The sessions without the requests that exceed a model's context. Raises InputError: no request is left."""
    if not (held.isl + held.osl <= model.max_context).any():
        raise InputError(f"{option('trace')}: every request of {held.source} exceeds the {model.max_context:,} tokens of {model.name}")
    return held.within(model.max_context)
