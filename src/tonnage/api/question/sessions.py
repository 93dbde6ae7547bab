"""Understands what requests share and how they follow one another, recorded sessions, and the
memory below the KV cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import Faults, LengthsFound, as_text, replays_lengths, spread_of
from tonnage.api.question.deployment import BY_CONTENT, router_of
from tonnage.errors import InputError, InputErrors, option
from tonnage.simulator.router import DEFAULT_ROUTER
from tonnage.simulator.tiers import Tier, tiers_of
from tonnage.spec.catalog import system_of
from tonnage.spec.catalog.entries import offloadings, recorded_lengths
from tonnage.spec.kv_tiers import OFF, USUAL, KvTiers, parse_kv_tiers
from tonnage.spec.lengths import (
    WORDS_PER_TOKEN,
    Lengths,
    Spread,
    check_context,
    parse_lengths,
    parse_part,
)
from tonnage.spec.model import Model
from tonnage.spec.recording import Recording
from tonnage.spec.scenario import DemandAsked, Mode, Scenario, SessionsAsked
from tonnage.spec.sessions import Pause, Sessions, block_tokens, parse_pause
from tonnage.spec.targets import TARGETS
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.plan.demand import Demand
    from tonnage.sizing.question import Load, Question, Sharing
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.hardware import System
    from tonnage.spec.precision import Precision
    from tonnage.spec.recorded_sessions import RecordedSessions

MOST_TURNS = 1_000


def sessions_of(scenario: Scenario) -> Sessions | None:
    """The sessions that a scenario asks for; None where requests have nothing to do with one
    another. Raises InputError.
    """
    sessions_asked = scenario.sessions
    if replace(sessions_asked, longest_pause=None, session_tiers=None) == SessionsAsked():
        return None
    words = scenario.lengths.words_per_token or WORDS_PER_TOKEN
    prefix = _prefix(sessions_asked, words)
    turns = (
        Lengths(mean=1.0)
        if sessions_asked.turns is None
        else parse_lengths(as_text(sessions_asked.turns), option("turns"))
    )
    if turns.longest > MOST_TURNS:
        raise InputError(
            f"{option('turns')}: '{sessions_asked.turns}' is more than {MOST_TURNS:,} turns of one"
            " conversation; write fewer"
        )
    calls = 0 if sessions_asked.tool_calls is None else sessions_asked.tool_calls
    if sessions_asked.think_time is not None and turns.longest <= 1:
        raise InputError(
            f"{option('think_time')}: is the time between two turns; give {option('turns')} too"
        )
    if not calls and (
        sessions_asked.tool_delay is not None or sessions_asked.tool_tokens is not None
    ):
        raise InputError(
            f"{option('tool_delay')}, {option('tool_tokens')}: belong to tools; give"
            f" {option('tool_calls')} too"
        )
    result = (
        None
        if sessions_asked.tool_tokens is None
        else parse_lengths(as_text(sessions_asked.tool_tokens), option("tool_tokens"), words)
    )
    return Sessions(
        prefix_tokens=prefix,
        prefix_share=1.0
        if sessions_asked.shared_prefix_share is None
        else sessions_asked.shared_prefix_share,
        prefixes=1 if sessions_asked.shared_prefixes is None else sessions_asked.shared_prefixes,
        turns=turns,
        think=_pause(sessions_asked.think_time, "think_time"),
        tool_calls=calls,
        tool=_pause(sessions_asked.tool_delay, "tool_delay"),
        tool_tokens=result,
    )


def _prefix(sessions: SessionsAsked, words: float) -> int:
    """Tokens of the shared prefix."""
    share, number = sessions.shared_prefix_share, sessions.shared_prefixes
    if sessions.shared_prefix is None:
        if share is not None or number is not None:
            raise InputError(
                f"{option('shared_prefix')}: missing; say how many tokens are shared, for example"
                " 1000"
            )
        return 0
    count, tokens = parse_part(as_text(sessions.shared_prefix), option("shared_prefix"), words)
    if round(count * tokens) < 1:
        raise InputError(
            f"{option('shared_prefix')}: '{sessions.shared_prefix}' is below one token; write 1 or"
            " more"
        )
    return round(count * tokens)


def _pause(text: str | None, name: str) -> Pause:
    return Pause() if text is None else parse_pause(text, option(name))


def asked_tiers(text: str | None, unless: KvTiers = OFF) -> KvTiers:
    """Memory below the KV cache as a question asks for it, or ``unless`` where it says nothing.
    Raises InputError: another form.
    """
    return parse_kv_tiers(text, tuple(offloading.name for offloading in offloadings())) or unless


def simulated_tiers(text: str | None, deployment: Deployment) -> tuple[Tier, ...]:
    """The same for one instance of a deployment. Raises InputError as well: the system lacks one;
    DoesNotFit: weights exceed the memory.
    """
    kv_tiers = asked_tiers(text)
    return () if kv_tiers.off else tiers_below(kv_tiers, deployment, system_of(deployment.gpu))


def tiers_below(tiers: KvTiers, deployment: Deployment, system: System) -> tuple[Tier, ...]:
    """Memory below the KV cache of each attention rank on a system. Raises as above."""
    from tonnage.perf.memory import memory_plan

    block = deployment.knobs.tokens_per_block
    return tiers_of(
        tiers,
        deployment,
        memory_plan(deployment),
        memories=system.kv_tiers,
        gpus_per_system=system.gpus,
        block_tokens=block,
    )


OF_SESSIONS = ("turns", "shared_prefix")


def shared_blocks(recording: Recording, scenario: Scenario) -> Recording:
    """The recording with the ids of its blocks only where they say something: they fit the lengths,
    and some of them come again.
    """
    from tonnage.sizing.question import found_tokens

    blocks, isl = recording.blocks, recording.isl
    replayable = (
        blocks
        and isl
        and replays_lengths(scenario.lengths)
        and block_tokens(blocks, isl) is not None
    )
    return (
        recording if replayable and found_tokens(blocks, isl) > 0 else replace(recording, blocks=())
    )


def sharing_of(
    scenario: Scenario, lengths: LengthsFound, recording: Recording | None
) -> Sharing | None:
    """Read what the prompts of a scenario share; None if they share nothing. Raises InputError."""
    from tonnage.sizing.question import Sharing

    sessions, tiers = sessions_of(scenario), asked_tiers(scenario.search.kv_tiers)
    whose = ", ".join(map(option, OF_SESSIONS))
    if sessions is not None and (recording is not None or lengths.pairs is not None):
        raise InputError(
            f"{whose}: recorded requests have their own; give {option('isl')} and {option('osl')}"
            " without a trace or pairs"
        )
    if sessions is not None and (not sessions.single or sessions.prefix_tokens):
        return Sharing(sessions=sessions, new=lengths.isl, tiers=tiers)
    if recording is not None and recording.blocks:
        return Sharing(recording=recording, tiers=tiers)
    if not tiers.off:
        raise InputError(
            f"{option('kv_tiers')}: keep what prompts share, and these share nothing; give"
            f" {option('turns')} or the like"
        )
    return None


def check_lengths(model: Model, lengths: LengthsFound, sharing: Sharing | None) -> None:
    """Refuse requests, or whole conversations, that exceed the model's context. Raises InputError:
    with the longest of them.
    """
    if sharing is None or sharing.sessions is None:
        check_context(model, lengths.isl, lengths.osl, lengths.pairs)
    else:
        check_sessions(sharing.sessions, model, lengths.isl, lengths.osl)


def check_sessions(
    sessions: Sessions, model: Model, isl: Lengths, osl: Lengths, *, recorded: bool = False
) -> None:
    """Refuse sessions of ``recorded`` requests, or that exceed the model's context. Raises
    InputError: with the longest of them.
    """
    whose, longest = ", ".join(map(option, OF_SESSIONS)), sessions.longest(isl, osl)
    if recorded:
        raise InputError(
            f"{whose}: recorded requests have their own; give {option('isl')} and {option('osl')}"
            " without a trace or pairs"
        )
    if longest > model.max_context:
        raise InputError(
            f"{whose}: a conversation comes to {longest:,} tokens, more than the context of"
            f" {model.name}, {model.max_context:,}; ask for fewer turns or shorter ones"
        )


# Shares by which lengths vary around a mean without a given spread; a smaller one where the context
# leaves no more room. Equal requests end together and come back together, and the queue that
# follows is an artefact: with 2,000 and 200 tokens exactly, the p95 of TTFT of eight instances at
# 85 % load is twice that of lengths within 20 %; a log-normal distribution hardly differs from
# these.
SPREADS = (0.2, 0.1, 0.05, 0.02)


def spread_lengths(
    lengths: LengthsFound,
    scenario: Scenario,
    recording: Recording | None,
    models: Sequence[Model | None],
) -> LengthsFound:
    """The lengths with single numbers as means, around which they vary: as far as every model's
    context has room for the longest.

    They vary as ``spread`` says; where it says nothing as recorded traffic of the use case does, or
    by the first of ``SPREADS``.
    """
    if (spread_text := scenario.lengths.spread) is not None:
        spread = lengths.spread(spread_of(spread_text))
        for model in models:
            if (
                model is not None
                and spread.isl.longest + spread.osl.longest
                > model.max_context
                >= lengths.isl.longest + lengths.osl.longest
            ):
                raise InputError(
                    f"{option('spread')}: requests as spread as '{spread_text}' come to"
                    f" {spread.isl.longest + spread.osl.longest:,} tokens, more than the context of"
                    f" {model.name}, {model.max_context:,}; write 20%, or exact"
                )
        return spread
    recorded = [row for row in recorded_lengths().values() if scenario.use_case in row.use_cases]
    spreads: tuple[Spread, ...] = (*recorded, *SPREADS)
    for trial_spread in spreads:
        spread = lengths.spread(trial_spread)
        try:
            sharing = sharing_of(scenario, spread, recording)
            for model in models:
                if model is not None:
                    check_lengths(model, spread, sharing)
        except InputError:
            continue
        return spread
    return lengths


def check_load(sharing: Sharing | None, scenario: Scenario, mode: Mode, load: Load) -> None:
    """Refuse jobs and closed loops of conversations, and a controller of instances with caches.
    Raises InputError: one of them.
    """
    if sharing is not None and scenario.scaling.autoscale:
        raise InputError(
            f"{option('autoscale')}: is found for prompts that share nothing so far; leave it out,"
            " or what they share"
        )
    if sharing is not None and sharing.follows and mode == "offline":
        raise InputError(
            f"{option('turns')}: the requests of a job are all there at its start and follow no"
            " other; leave this out"
        )
    if sharing is not None and sharing.follows and load == "closed":
        raise InputError(
            f"{option('turns')}: conversations are sized as an open loop; leave out"
            f" {option('load')} closed"
        )


def sized_router(name: str | None, sharing: Sharing | None, deploy_on: str = "") -> str:
    """The router of a plan; where none is named, one that real fleets have: least outstanding
    requests.

    A deployment target has the routers of ``spec.targets``, and its first one where none is named
    and prompts share nothing. Of conversations it is the hashing of sessions, and of a trace whose
    prompts name their blocks one that looks at prompts.

    Raises InputError: no router, or one that looks at what prompts share where these share nothing.
    """
    follows = sharing is not None and sharing.follows
    usual = (
        "session"
        if follows
        else (
            "prefix-aware"
            if sharing is not None and sharing.recording is not None
            else DEFAULT_ROUTER
        )
    )
    router = router_of(name, by_content=sharing is not None or name in BY_CONTENT, default=usual)
    if sharing is None and router in BY_CONTENT:
        raise InputError(
            f"{option('router')}: {router} looks at what prompts share, and these share nothing;"
            f" give {option('turns')}, {option('shared_prefix')} or a trace with hash_ids, or"
            " another router"
        )
    runs = TARGETS.get(deploy_on)
    if runs is None or router in runs.routers:
        return router
    if name is None:
        return (
            "prefix-aware"
            if sharing is not None and "prefix-aware" in runs.routers
            else runs.routers[0]
        )
    raise InputError(
        f"{option('router')}: {deploy_on} has no router like {router}; write"
        f" {' or '.join(runs.routers)}, or another {option('deploy_on')}"
    )


# recorded pauses are cut to this for sizing: a person who is away longer holds no session
LONGEST_PAUSE_S = 600.0

# share of the engineers who are in a session at the same time, where the question gives none
SHARE_ACTIVE = 0.2

UNITS = ("sessions", "sessions_per_hour", "engineers")
LIMITS_OF_SESSIONS = ("first_ttft", "further_ttft", "slowdown")
MOST_SESSIONS = 1e7


def sessions_questions(
    scenario: Scenario,
    recorded_sessions: RecordedSessions,
    models: Mapping[Model, tuple[Precision, ...]],
    rest: Mapping[str, Any],
    faults: Faults,
) -> tuple[Question, ...]:
    """A question for each model, about sessions from a file, as the model can serve them. Raises
    InputErrors: all that cannot be used.

    Args:
        models: each with the formats that are tried where none is named.
        rest: limits, and what may be combined.
    """
    from tonnage.sizing.question import Question, Sharing

    faults.of(check_sessions_alone, scenario)
    cut = recorded_sessions.paused_at_most(faults.of(longest_pause_of, scenario.sessions) or 0.0)
    demand = faults.of(sessions_demand, scenario.demand, cut)
    tiers = faults.of(asked_tiers, scenario.search.kv_tiers, USUAL) or USUAL
    questions = []
    for model, precisions in models.items():
        model_sessions = faults.of(served_by, cut, model)
        pairs = None if model_sessions is None else model_sessions.recording.pairs()
        if model_sessions is not None and pairs is not None and demand is not None:
            isl, osl = pairs.lengths()
            arguments = {
                **rest,
                "precisions": rest["precisions"] or precisions,
                "sharing": Sharing(recorded=model_sessions, tiers=tiers),
                "tune": False,
                "session_tiers": bool(scenario.sessions.session_tiers),
            }
            questions.append(
                Question(model=model, isl=isl, osl=osl, pairs=pairs, demand=demand, **arguments)
            )
    InputErrors.raise_if(faults.messages)
    return tuple(questions)


def longest_pause_of(sessions: SessionsAsked) -> float:
    """Seconds to which recorded pauses are cut. Raises InputError: no duration."""
    return (
        LONGEST_PAUSE_S
        if sessions.longest_pause is None
        else parse_duration(sessions.longest_pause, option("longest_pause"))
    )


def check_no_sessions(scenario: Scenario) -> None:
    """Refuse what belongs to recorded sessions where the trace is none of these. Raises InputError:
    naming it.
    """
    leaf_names = [
        name for name in (*UNITS, "share_active") if getattr(scenario.demand, name) is not None
    ]
    leaf_names += [
        name for name in LIMITS_OF_SESSIONS if getattr(scenario.limits, name) is not None
    ]
    leaf_names += [
        name
        for name in ("longest_pause", "session_tiers")
        if getattr(scenario.sessions, name) is not None
    ]
    if leaf_names:
        raise InputError(
            f"{option(leaf_names[0])}: belongs to recorded sessions; give {option('trace')} a file"
            " of them (docs/workload.md)"
        )


def check_sessions_alone(scenario: Scenario) -> None:
    """Refuse what is not sized with recorded sessions. Raises InputError: naming it."""
    demand, search = scenario.demand, scenario.search
    demand_names = (
        "peak_rps",
        "mean_rps",
        "users",
        "calls_per_year",
        "profile",
        "requests",
        "peak_percentile",
        "peak_factor",
    )
    leaf_names = [name for name in demand_names if getattr(demand, name) is not None]
    leaf_names += [
        name
        for name in ("isl", "osl", "pairs", "mixture", "images")
        if getattr(scenario.lengths, name) is not None
    ]
    leaf_names += [
        name
        for name in ("turns", "shared_prefix", "tool_calls")
        if getattr(scenario.sessions, name) is not None
    ]
    leaf_names += [
        name
        for name in ("disaggregated", "speculation", "arrivals", "load")
        if getattr(search, name) is not None
    ]
    leaf_names += ["autoscale"] if scenario.scaling.autoscale else []
    leaf_names += [name for name in ("have", "benchmarks") if getattr(scenario, name) is not None]
    if search.router not in (None, "session"):
        leaf_names.append("router")
    if leaf_names:
        raise InputError(
            f"{option(leaf_names[0])}: recorded sessions are sized without it; leave it out"
        )


def sessions_demand(demand: DemandAsked, recorded_sessions: RecordedSessions) -> Demand:
    """How many sessions there are at once, as requests per second at the pace that was recorded.
    Raises InputError.
    """
    from tonnage.plan.demand import Demand, DemandSource
    from tonnage.sizing.demand import WORKING_DAYS, WORKING_HOURS, working_week

    unit_names = [name for name in UNITS if getattr(demand, name) is not None]
    if len(unit_names) != 1:
        what = "several are given" if unit_names else "none is given"
        such = (
            "say with one of them how many recorded sessions there are, such as"
            f" {option('sessions')} 400"
        )
        raise InputError(f"{', '.join(map(option, UNITS))}: {what}; {such}")
    if demand.share_active is not None and demand.engineers is None:
        raise InputError(
            f"{option('share_active')}: goes with {option('engineers')}; add for example"
            f" {option('engineers')} 400"
        )
    lasts_h = float(recorded_sessions.lasts_s.mean()) / 3600
    share = SHARE_ACTIVE if demand.share_active is None else demand.share_active
    value = float(getattr(demand, unit_names[0]))
    sessions = (
        value * {"sessions": 1.0, "sessions_per_hour": lasts_h, "engineers": share}[unit_names[0]]
    )
    if not (math.isfinite(value) and 0 < sessions <= MOST_SESSIONS):
        raise InputError(
            f"{option(unit_names[0])}: {value:g} is not possible; write above 0, at most"
            f" {MOST_SESSIONS:,.0f} sessions at once"
        )
    rate = sessions * recorded_sessions.pace
    hours = WORKING_HOURS if demand.working_hours is None else demand.working_hours
    days = WORKING_DAYS if demand.working_days is None else demand.working_days
    week = working_week(rate, hours, round(days))
    source = DemandSource(
        kind="sessions",
        requests_per_second=rate,
        trace=recorded_sessions.source,
        trace_change=recorded_sessions.change,
        trace_requests=len(recorded_sessions.isl),
        sessions=sessions,
        engineers=demand.engineers,
        working_hours=hours,
        session_seconds=lasts_h * 3600,
        session_requests=recorded_sessions.requests,
    )
    mean = math.fsum(week) / len(week)
    return Demand(
        peak_requests_per_second=rate,
        sizing_requests_per_second=rate,
        mean_requests_per_second=mean,
        source=source,
        profile=week,
    )


def served_by(recorded_sessions: RecordedSessions, model: Model) -> RecordedSessions:
    """The sessions without the requests that exceed a model's context. Raises InputError: no
    request is left.
    """
    if not (recorded_sessions.isl + recorded_sessions.osl <= model.max_context).any():
        raise InputError(
            f"{option('trace')}: every request of {recorded_sessions.source} exceeds the"
            f" {model.max_context:,} tokens of {model.name}"
        )
    return recorded_sessions.within(model.max_context)
