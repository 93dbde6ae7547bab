"""Reads the question of ``tonnage.simulate``: one deployment and its loads, from a scenario and
arguments next to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import (
    Faults,
    LengthsFound,
    Many,
    ScenarioLike,
    document_of,
    images_of,
    lengths_found,
    only,
    only_whole_number,
    plain,
    rates,
    replays_lengths,
    slo,
    spread_of,
)
from tonnage.api.question.changes import Seasons, autoscale_of, failures_of, seasons_of
from tonnage.api.question.classes import with_classes
from tonnage.api.question.deployment import (
    BY_CONTENT,
    deployment_of,
    engines_meant,
    pools_of,
    router_of,
    scheduler_of,
    usual_engine,
)
from tonnage.api.question.loads import (
    loads_of,
    modulated_loads,
    sessions_of_file,
    window_of,
    workload_of,
)
from tonnage.api.question.sessions import (
    check_sessions,
    longest_pause_of,
    served_by,
    sessions_of,
    simulated_tiers,
)
from tonnage.errors import InputError, InputErrors, option
from tonnage.simulator.autoscaler import Autoscale
from tonnage.simulator.changes import HOUR_S, Failures
from tonnage.simulator.router import ROUTERS
from tonnage.simulator.tiers import Tier
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.deployment import Alike, Deployment, Slo
from tonnage.spec.lengths import check_context
from tonnage.spec.precision import find_precision
from tonnage.spec.scenario import SHARES, DemandAsked, Scenario, SimulationAsked
from tonnage.spec.use_cases import with_defaults
from tonnage.spec.workload import (
    Arrivals,
    ClosedLoop,
    HourlyArrivals,
    OpenLoop,
    Simulated,
    TraceArrivals,
    Workload,
)
from tonnage.spec.written_numbers import number_of

if TYPE_CHECKING:
    from tonnage.simulator.disaggregated import Disaggregated
    from tonnage.spec.model import Model
    from tonnage.spec.recorded_sessions import RecordedSessions


DEFAULT_GPU = "h100-sxm-80gb"
# Engine knobs that a scenario has
KNOBS = (
    *(
        "max_batch_size",
        "max_num_tokens",
        "chunked_prefill",
        "prefix_caching",
        "stream_interval",
        "front_ends",
    ),
    "long_prefill_token_threshold",
)


# Leaves of a search that ``deployment_of`` reads by itself
OF_DEPLOYMENT = (
    "coefficients",
    "step_model",
    "speculation",
    "lora",
    "power_cap",
    "gpu_clock",
    "link",
    "host_speed",
    "max_model_len",
)


MOST_INSTANCES = 1_000

# arguments that no scenario has; ``requests`` there is the size of a job
OWN = tuple(leaf.name for leaf in fields(SimulationAsked))

# Leaves that are no knobs of an engine
LOADS = (
    "concurrency",
    "request_rate",
    "requests",
    "window",
    "batcher",
    "instances",
    "fail",
    "autoscale",
    "seasons",
)


CHANGING = ("fail", "autoscale", "seasons")  # what changes a fleet while it serves


# leaves in which the groups of a fleet may differ
OF_GROUP = ("gpu", "tp", "pp", "precision", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One deployment and the loads that it is simulated under."""

    deployment: Deployment  # one instance
    workloads: tuple[Workload, ...]  # one per point
    window_s: float | None  # seconds in which completions count; None for the whole run
    seed: int  # of every random draw
    instances: int = 1  # which share each load; 1 is an instance by itself
    # groups that the instances fall into; empty where all are of the deployment
    unlike: tuple[Alike, ...] = ()
    router: str = "least-outstanding"  # what shares it
    pools: Disaggregated | None = None  # two pools in its place
    tiers: tuple[Tier, ...] = ()  # memory below the KV cache of each instance
    failures: Failures | None = None  # how the instances fail; None where they do not
    # how a controller scales them; None where all serve all the time
    autoscale: Autoscale | None = None
    limits: Slo = ()  # whose violations are counted
    # settings of the engines by the hour; None where they are the same at all hours
    seasons: Seasons | None = None

    @property
    def groups(self) -> tuple[Alike, ...]:
        """The instances by what they are."""
        return self.unlike or (Alike(deployment=self.deployment, instances=self.instances),)

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """The deployment of each group of instances."""
        return tuple(group.deployment for group in self.groups)

    @property
    def weights(self) -> list[float] | None:
        """The weight of each instance; None where all are alike."""
        return [group.weight for group in self.unlike for _ in range(group.instances)] or None

    @property
    def changes(self) -> bool:
        """Whether the fleet changes while it serves."""
        return self.failures is not None or self.autoscale is not None or self.seasons is not None


def simulation_of(scenario: ScenarioLike, question: Mapping[str, object]) -> Simulation:
    """Understand a scenario as a simulation: its model, lengths and knobs, and the one deployment
    that its search names.

    The load is given by name: a scenario's demand is what all instances together carry.

    Raises InputErrors: everything that cannot be used, or several deployments where one is
    simulated.
    """
    from tonnage.spec.scenario_file import displaced, scenario_of

    document, source = document_of(scenario)
    arguments = plain(question)
    run_arguments = {name: arguments.pop(name) for name in OWN if name in arguments}
    if arguments.get("trace") is not None and arguments.get("arrivals") is None:
        arguments["arrivals"] = "trace"
    written = scenario_of(displaced(document, arguments), arguments, source)
    full_scenario, _ = with_defaults(written)
    faults = Faults(source, {**dict.fromkeys(OWN, True), **arguments})
    unlike = faults.of(_groups, full_scenario, run_arguments)
    deployment = (
        unlike[0].deployment if unlike else _deployment(full_scenario, run_arguments, faults)
    )
    lengths = _lengths(full_scenario, deployment, faults)
    if deployment is not None and lengths is not None:
        deployment = replace(deployment, images=lengths.pictured)
    sessions = faults.of(sessions_of, full_scenario) if lengths is not None else None
    tiers = (
        faults.of(simulated_tiers, full_scenario.search.kv_tiers, deployment)
        if deployment is not None
        else None
    )
    faults.check(full_scenario, run_arguments)
    faults.of(_check_load, full_scenario, run_arguments)
    InputErrors.raise_if(faults.messages)
    if lengths is None or deployment is None:
        raise InputError("nothing was asked")
    simulation = _simulation(full_scenario, run_arguments, deployment, lengths, unlike or ())
    if simulation.workloads[0].recorded is not None:
        _check_shared(simulation)
    if sessions is not None:
        first = simulation.workloads[0]
        recorded = isinstance(first.arrivals, TraceArrivals) or first.pairs is not None
        _check_shared(simulation)
        check_sessions(sessions, deployment.model, first.isl, first.osl, recorded=recorded)
        simulation = replace(
            simulation,
            workloads=tuple(
                replace(workload, sessions=sessions) for workload in simulation.workloads
            ),
        )
    several = simulation.instances > 1 or simulation.pools is not None or simulation.changes
    alone = not several and deployment.parallelism.dp == 1 and sessions is None
    drafted = deployment.speculation is not None
    workloads = with_classes(
        simulation.workloads,
        full_scenario.search.classes,
        deployment.knobs,
        simulation.limits,
        alone=alone,
        drafted=drafted,
    )
    simulation = replace(simulation, workloads=workloads)
    arrivals = workloads[0].arrivals
    if (
        isinstance(arrivals, OpenLoop)
        and arrivals.in_flight
        and (not alone or workloads[0].recorded is not None)
    ):
        raise InputError(
            f"{option('concurrency')}: with {option('request_rate')} it caps the requests in flight"
            " of one instance, without sessions and attention ranks; leave one of the two out"
        )
    if simulation.workloads[0].shares and simulation.changes:
        flags = ", ".join(map(option, CHANGING))
        raise InputError(
            f"{flags}: cannot be combined with shared prompts yet ({option('turns')},"
            f" {option('shared_prefix')}, a trace with hash_ids); leave out one of the two"
        )
    if simulation.router in BY_CONTENT and not simulation.workloads[0].shares:
        blind = ", ".join(name for name in ROUTERS if name not in BY_CONTENT)
        raise InputError(
            f"{option('router')}: {simulation.router} looks at what prompts share, and these share"
            f" nothing; give {option('turns')}, {option('shared_prefix')} or a trace with hash_ids,"
            f" or choose one of {blind}"
        )
    if tiers and not simulation.workloads[0].shares:
        raise InputError(
            f"{option('kv_tiers')}: keep what prompts share, and these share nothing; give"
            f" {option('turns')} or the like"
        )
    return _reaching_a_change(replace(simulation, tiers=tiers or ()))


def _reaching_a_change(simulation: Simulation) -> Simulation:
    """Return the simulation unchanged. Raises InputError: it has seasons, and ends in the one in
    which it begins.
    """
    by_hour = () if simulation.seasons is None else simulation.seasons.by_hour
    changes = [hour for hour, season in enumerate(by_hour) if season != by_hour[0]]
    requests, arrivals = simulation.workloads[0].requests, simulation.workloads[0].arrivals
    if (
        changes
        and isinstance(arrivals, OpenLoop)
        and requests < arrivals.rate * changes[0] * HOUR_S
    ):
        raise InputError(
            f"{option('seasons')}: {requests:,} requests at {arrivals.rate:g}/s end before the"
            f" first change, at {changes[0]} h; give {option('requests')}"
            f" {math.ceil(arrivals.rate * (changes[0] + 1) * HOUR_S)} or more"
        )
    return simulation


def _check_shared(simulation: Simulation) -> None:
    """Refuse what is not simulated where requests follow one another."""
    whose = ", ".join(option(n) for n in ("turns", "shared_prefix", "trace"))
    if simulation.pools is not None:
        raise InputError(
            f"{whose}: two pools are simulated without shared prompts so far; leave out"
            f" {option('disaggregated')}"
        )
    if simulation.deployment.parallelism.dp > 1:
        raise InputError(
            f"{whose}: attention ranks with KV caches of their own are simulated without shared"
            " prompts so far"
        )


def _simulation(
    scenario: Scenario,
    arguments: Mapping[str, Any],
    deployment: Deployment,
    lengths: LengthsFound,
    unlike: tuple[Alike, ...],
) -> Simulation:
    from tonnage.perf.terms import client_turnaround_s

    cv = 1.0 if scenario.search.cv is None else scenario.search.cv
    loads: Sequence[Simulated]
    recorded = sessions_asked(scenario, deployment.model)
    alone = arguments.get("concurrency") is None and arguments.get("request_rate") is None
    if recorded is not None and not alone:
        loads = loads_of(
            arguments.get("concurrency"),
            arguments.get("request_rate"),
            "poisson",
            cv,
            client_turnaround_s(deployment),
        )
    elif recorded is not None:
        loads = [TraceArrivals(recording=recorded.recording)]
    elif scenario.search.arrivals == "trace":
        loads = _replayed(scenario, arguments)
    elif scenario.search.arrivals == "profile":
        loads = _by_the_hour(scenario, arguments)
    elif scenario.search.arrivals == "mmpp":
        loads = modulated_loads(scenario.search.mmpp, arguments)
    elif scenario.search.mmpp is not None:
        raise InputError(
            f"{option('mmpp')}: belongs to {option('arrivals')} mmpp; add that, or leave it out"
        )
    else:
        process = scenario.search.arrivals or "poisson"
        loads = loads_of(
            arguments.get("concurrency"),
            arguments.get("request_rate"),
            process,
            cv,
            client_turnaround_s(deployment),
        )
    window_s = window_of(arguments.get("window"), loads)
    if recorded is None:
        check_context(deployment.model, lengths.isl, lengths.osl, lengths.pairs)
    pools = pools_of(arguments, scenario.search, deployment)
    if pools is not None and any(arguments.get(name) is not None for name in CHANGING):
        raise InputError(
            f"{option('disaggregated')}: two pools neither fail nor change so far; leave out"
            f" {', '.join(map(option, CHANGING))}"
        )
    request_limit = (
        arguments.get("requests")
        if recorded is None or window_s is not None
        else arguments.get("requests", len(recorded.isl))
    )
    workloads = tuple(
        replace(workload_of(lengths, load, request_limit, window_s), recorded=recorded)
        for load in loads
    )
    if recorded is not None and (pairs := recorded.recording.pairs()) is not None:
        isl, osl = pairs.lengths()
        workloads = tuple(replace(workload, isl=isl, osl=osl) for workload in workloads)
    return Simulation(
        deployment=deployment,
        workloads=workloads,
        window_s=window_s,
        seed=scenario.seed or 0,
        pools=pools,
        limits=slo(
            ttft=scenario.limits.ttft,
            itl=scenario.limits.itl,
            tpot=scenario.limits.tpot,
            e2e=scenario.limits.e2e,
            attain=scenario.limits.attain,
        ),
        **_fleet(arguments, scenario.search.router, deployment, loads, unlike),
    )


def sessions_asked(scenario: Scenario, model: Model) -> RecordedSessions | None:
    """The recorded sessions that a demand names, as a model can serve them; None where it names
    none. Raises InputError.
    """
    recorded = sessions_of_file(scenario.demand)
    if recorded is None or not replays_lengths(scenario.lengths):
        return None
    pause = scenario.sessions.longest_pause
    cut = (
        recorded if pause is None else recorded.paused_at_most(longest_pause_of(scenario.sessions))
    )
    return served_by(cut, model)


def _replayed(scenario: Scenario, arguments: Mapping[str, Any]) -> list[Arrivals]:
    """The trace of the demand, once as it came, or stretched to each rate that is given."""
    from tonnage.api.question.sizing import recording_of

    recording = recording_of(scenario.demand)
    if recording is None:
        raise InputError(
            f"{option('arrivals')}: trace needs a file of recorded requests; give a scenario whose"
            " demand has a trace"
        )
    if arguments.get("concurrency") is not None:
        raise InputError(
            f"{option('concurrency')}: clients of a closed loop replay no trace; give"
            f" {option('request_rate')} or neither"
        )
    rate = arguments.get("request_rate")
    stretched = (
        [recording]
        if rate is None
        else [recording.at_mean(mean_rate) for mean_rate in rates(rate, option("request_rate"))]
    )
    return [
        TraceArrivals(recording=stretched_recording, lengths=replays_lengths(scenario.lengths))
        for stretched_recording in stretched
    ]


def _by_the_hour(scenario: Scenario, arguments: Mapping[str, Any]) -> list[Simulated]:
    """The profile of the demand, as it is or with each mean that is given."""
    from tonnage.api.question.sizing import demand_asked

    hours = demand_asked(scenario.demand).profile if scenario.demand.profile is not None else None
    if hours is None or arguments.get("concurrency") is not None:
        raise InputError(
            f"{option('arrivals')}: profile needs the hourly loads of {option('profile')} and an"
            " open loop"
        )
    once, rate = HourlyArrivals(hours=tuple(hours)), arguments.get("request_rate")
    return (
        [once]
        if rate is None
        else [once.at_mean(mean_rate) for mean_rate in rates(rate, option("request_rate"))]
    )


# between two groups: a plus inside a format has no spaces around it
_GROUP = re.compile(r"\s+\+\s+")


def _groups(scenario: Scenario, arguments: Mapping[str, Any]) -> tuple[Alike, ...]:
    """The groups of "2 gpu=h100 weight=3 + 1 gpu=l40s"; empty where one number is of all. Raises
    InputErrors: what cannot be used.
    """
    text = str(arguments.get("instances", 1))
    if number_of(text) is not None:
        return ()
    where, faults, groups = (
        option("instances"),
        Faults("", {**dict.fromkeys(OWN, True), **dict.fromkeys(OF_GROUP, True)}),
        [],
    )
    for part in _GROUP.split(text.strip()):
        count, *settings = part.split()
        pairs = dict(setting.partition("=")[::2] for setting in settings)
        weight = number_of(pairs.pop("weight", "1"))
        unknown = [name for name, value in pairs.items() if name not in OF_GROUP or not value]
        if unknown or not weight or weight <= 0 or not count.isdecimal():
            form = f"a number, then any of {', '.join(OF_GROUP)} and weight"
            raise InputError(
                f"{where}: '{part}' is no group of instances; write {form}, such as \"2 gpu=h100"
                ' weight=3 + 1 gpu=l40s"'
            )
        deployment = _deployment(
            replace(scenario, search=replace(scenario.search, **pairs)), arguments, faults
        )
        if deployment is not None:
            groups.append(Alike(deployment=deployment, instances=int(count), weight=weight))
    InputErrors.raise_if(faults.messages)
    return tuple(groups)


def _fleet(
    arguments: Mapping[str, Any],
    balance: str | None,
    deployment: Deployment,
    loads: Sequence[Simulated],
    unlike: tuple[Alike, ...],
) -> dict[str, Any]:
    router = router_of(balance, by_content=True)
    number = (
        float(sum(group.instances for group in unlike))
        if unlike
        else number_of(str(arguments.get("instances", 1)))
    )
    if number is None or not number.is_integer() or not 1 <= number <= MOST_INSTANCES:
        raise InputError(
            f"{option('instances')}: {arguments['instances']} is not possible; write a whole"
            f" number from 1 to {MOST_INSTANCES:,}"
        )
    instances = int(number)
    failures = None if arguments.get("fail") is None else failures_of(arguments["fail"])
    autoscale = (
        None
        if arguments.get("autoscale") is None
        else autoscale_of(arguments["autoscale"], deployment)
    )
    if autoscale is not None and "instances" in arguments:
        raise InputError(
            f"{option('instances')}: {option('autoscale')} says how many there are, with min and"
            " max; leave this out"
        )
    instances = instances if autoscale is None else autoscale.instances
    seasons = (
        None if arguments.get("seasons") is None else seasons_of(arguments["seasons"], deployment)
    )
    if unlike and (autoscale is not None or seasons is not None):
        raise InputError(
            f"{option('instances')}: unlike ones are neither scaled nor changed by the hour; write"
            " a number"
        )
    if seasons is not None and (failures is not None or autoscale is not None):
        raise InputError(
            f"{option('seasons')}: simulated without {option('fail')} and {option('autoscale')} so"
            " far; leave these out"
        )
    if seasons is not None and instances * len(seasons.deployments) > MOST_INSTANCES:
        raise InputError(
            f"{option('seasons')}: {len(seasons.deployments)} settings of {instances} instances are"
            f" more than {MOST_INSTANCES:,}"
        )
    if instances == 1 and failures is None and autoscale is None and seasons is None:
        return {}
    if (
        isinstance(loads[0], ClosedLoop)
        or deployment.parallelism.dp > 1
        or deployment.speculation is not None
    ):
        raise InputError(
            f"{option('instances')}: several instances share an open loop"
            f" ({option('request_rate')}), without attention ranks and speculative decoding so far"
        )
    changing = {"failures": failures, "autoscale": autoscale, "seasons": seasons}
    return {"instances": instances, "unlike": unlike, "router": router, **changing}


def _lengths(
    scenario: Scenario, deployment: Deployment | None, faults: Faults
) -> LengthsFound | None:
    lengths_asked, trace, recording = scenario.lengths, scenario.demand.trace, None
    if trace is not None and replays_lengths(lengths_asked):
        from tonnage.api.question.sizing import recording_of

        recording = faults.of(recording_of, scenario.demand)
    whole = (
        lengths_asked.pairs is not None or lengths_asked.mixture is not None or trace is not None
    )
    missing = [
        name for name in ("isl", "osl") if getattr(lengths_asked, name) is None and not whole
    ]
    missing = [*(["model"] if scenario.model is None else []), *missing]
    if missing:
        example = f"{option('model')} llama-3.1-8b {option('isl')} 2000 {option('osl')} 200"
        faults.say(f"{', '.join(option(name) for name in missing)}: missing; for example {example}")
    images = None if deployment is None else images_of(lengths_asked, [deployment.model], faults)
    lengths = lengths_found(lengths_asked, recording, faults, images)
    spread = None if lengths_asked.spread is None else faults.of(spread_of, lengths_asked.spread)
    return lengths if lengths is None or spread is None else lengths.spread(spread)


def _deployment(
    scenario: Scenario, arguments: Mapping[str, Any], faults: Faults
) -> Deployment | None:
    """The one deployment that the scenario's search names."""
    search = scenario.search
    names: dict[str, Any] = {
        "model": faults.of(only, scenario.model, "model") if scenario.model is not None else None
    }
    shares: dict[str, float | None] = {rule: getattr(search, rule) for rule in SHARES}
    names["gpu"] = faults.of(only, search.gpu or DEFAULT_GPU, "gpu")
    names["precision"] = (
        "" if search.precision is None else faults.of(only, search.precision, "precision")
    )
    layout = scenario.layout or ""
    engines: Many | None = search.engine or engines_meant(shares)
    if not engines and None not in names.values():
        engines = faults.of(_usual_engine, **names, layout=layout)
    names["engine"] = faults.of(only, engines, "engine") if engines else None
    degrees: dict[str, Any] = {
        name: faults.of(_degree, getattr(search, name), name) for name in ("tp", "pp", "dp", "ep")
    }
    if any(value is None for value in (*names.values(), *degrees.values())):
        return None
    knobs = {name: faults.of(_knob, getattr(search, name), name) for name in KNOBS}
    knobs |= {name: arguments.get(name) for name in OWN if name not in LOADS}
    knobs |= {"queue_order": search.queue_order, "shed": search.shed}
    knobs["scheduler"] = faults.of(scheduler_of, arguments.get("batcher"), names["engine"])
    whose = {
        "layout": layout,
        **{name: getattr(search, name) for name in OF_DEPLOYMENT},
    }
    return faults.of(deployment_of, **names, **degrees, knobs=knobs, shares=shares, **whose)


def _usual_engine(model: str, layout: str, gpu: str, precision: str) -> str:
    """The engine of an instance where nobody names one."""
    chosen = precision or find_model(model, layout).usual_precision
    return usual_engine(find_gpu(gpu), find_precision(chosen))


def _degree(values: Many | None, name: str) -> int:
    return 1 if values is None else only_whole_number(values, name)


def _knob(value: Any, name: str) -> Any:
    """The value of an engine's knob: a switch as it is, a number in any form that a scenario may
    have.
    """
    if value is None or isinstance(value, bool | int):
        return value
    return only_whole_number(value, name)


def _check_load(scenario: Scenario, arguments: Mapping[str, Any]) -> None:
    """Refuse a scenario whose demand would have to be the load: that is what all instances together
    carry.
    """
    if (
        scenario.search.arrivals in ("trace", "profile", "mmpp")
        or scenario.demand == DemandAsked()
        or arguments.get("concurrency") is not None
        or arguments.get("request_rate") is not None
    ):
        return
    from tonnage.api.question.sizing import demand_asked, recording_of

    rate = demand_asked(scenario.demand, recording_of(scenario.demand)).sizing_requests_per_second
    raise InputError(
        f"{option('concurrency')}, {option('request_rate')}: neither given; the demand of {rate:g}"
        " requests/s is for all instances together, so say what comes to the one that is simulated"
    )
