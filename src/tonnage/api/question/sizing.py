"""From a written scenario to a question: names looked up, files read, texts understood; every error
at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tonnage.api.question.arguments import (
    Faults,
    Many,
    attainments,
    confidence_asked,
    images_of,
    lengths_found,
    listed,
    replays_lengths,
    slo,
    spread_of,
    whole_numbers,
)
from tonnage.api.question.changes import check_scaling
from tonnage.api.question.deployment import (
    SHARE_OF,
    engines_meant,
    shares_of,
    sized_pools,
    stated,
    usual_engine,
    with_context,
)
from tonnage.api.question.horizon import check_buying
from tonnage.api.question.loads import recording_from, sessions_of_file
from tonnage.api.question.objectives import (
    aim_of,
    growth_of,
    overrides_of,
    places,
    reserve_of,
    says_no_load,
)
from tonnage.api.question.sessions import (
    check_lengths,
    check_load,
    check_no_sessions,
    sessions_questions,
    shared_blocks,
    sharing_of,
    sized_router,
    spread_lengths,
)
from tonnage.deploy.checkpoint import judged
from tonnage.errors import InputError, InputErrors, UnknownName, option
from tonnage.perf.measured_steps import check_source, checked_source
from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.limit import limit_of
from tonnage.plan.notes import DefaultPart, OlderPreset, UseCaseDefaults
from tonnage.sizing.demand import carried_by_existing, demand_of
from tonnage.sizing.question import Owned, Question, Sharing, decides
from tonnage.spec.calibration import read_calibration
from tonnage.spec.catalog import (
    find_engine,
    find_gpu,
    find_model,
    find_system,
    gpu_of,
    machine_meant,
    newer_than_known,
    system_of,
)
from tonnage.spec.deployment import (
    LIMITED,
    METRICS,
    Limit,
    Slo,
    parse_adapters,
    parse_limit,
    parse_speculation,
)
from tonnage.spec.hardware import Gpu, System
from tonnage.spec.lengths import WORDS_PER_TOKEN, parse_lengths
from tonnage.spec.model import Model
from tonnage.spec.precision import PRECISIONS, Precision, find_precision
from tonnage.spec.recording import Recording, load_regions, profile_hours
from tonnage.spec.scenario import (
    DEFAULT_GPUS,
    DemandAsked,
    LengthsAsked,
    LimitsAsked,
    Mode,
    Scenario,
    SearchAsked,
    UseCase,
)
from tonnage.spec.targets import target_runs
from tonnage.spec.use_cases import Defaults, with_defaults
from tonnage.spec.workload import checked_cv
from tonnage.units import format_duration, parse_duration

DEFAULT_PRECISIONS = ("fp16", "fp8")  # what is tried of a model that is published in 16 bits
ALONE: UseCase = "chatbot"  # the use case of existing systems where requests are not described
EVERY = "all"  # what stands for every number format; BF16 is as fast as FP16
# What of the search ``tonnage simulate`` alone understands
OF_SIMULATE = ("long_prefill_token_threshold", "queue_order", "shed", "mmpp")
DEFAULT_TPS = "1,2,4,8"
DEFAULT_ENGINES = "tensorrt-llm,vllm"


def questions_of(
    written: Scenario, *, source: str = "", flags: Mapping[str, object] | None = None
) -> tuple[Question, ...]:
    """Read the questions of a scenario, one per model. Raises InputErrors: everything that cannot
    be used.
    """
    scenario, defaults = with_defaults(_alone(written))
    remarks = () if defaults is None else (_note(defaults),)
    faults = Faults(source, flags)
    _check_given(scenario, faults)
    names = _names(scenario.model, option("model"), faults)
    models = [faults.named(option("model"), _model, name, scenario) for name in names]
    model_notes = [faults.of(judged, name) for name in names]
    recorded_sessions = faults.of(sessions_of_file, scenario.demand)
    if recorded_sessions is not None:
        rest = {
            "slo": _limits(scenario.limits, faults),
            **_search(scenario, faults, Sharing(recorded=recorded_sessions)),
        }
        _check_choice(scenario, "streaming", faults)
        known_models = tuple(model for model in models if model is not None)
        return sessions_questions(
            scenario,
            recorded_sessions,
            {model: usual_precisions(model, rest["gpus"]) for model in known_models},
            rest,
            faults,
        )
    faults.of(check_no_sessions, scenario)
    recorded = faults.of(recording_of, scenario.demand)
    recording = None if recorded is None else shared_blocks(recorded, scenario)
    lengths = lengths_found(
        scenario.lengths, recording, faults, images_of(scenario.lengths, models, faults)
    )
    lengths = (
        None if lengths is None else faults.of(spread_lengths, lengths, scenario, recording, models)
    )
    sharing = None if lengths is None else faults.of(sharing_of, scenario, lengths, recording)
    demand = (
        None
        if recording is None and scenario.demand.trace is not None
        else faults.of(_demand, scenario, recording)
    )
    mode = scenario.mode or (
        "offline" if demand is not None and demand.offline_requests is not None else "streaming"
    )
    limits = _limits(scenario.limits, faults)
    _check_limits(
        limits,
        mode,
        demand,
        faults,
        "mode" if defaults is None or defaults.mode is None else "use_case",
    )
    for model in models if lengths is not None else ():
        if model is not None and lengths is not None:
            faults.of(check_lengths, model, lengths, sharing)
    rest = _search(scenario, faults, sharing)
    faults.of(check_load, sharing, scenario, mode, rest["load"])
    rest["pools"] = faults.of(sized_pools, scenario, mode=mode, shares=sharing is not None)
    _check_choice(scenario, mode, faults)
    faults.of(check_scaling, scenario, demand, mode)
    InputErrors.raise_if(faults.messages)
    if lengths is None or demand is None:
        raise InputError("nothing was asked")
    whole = (
        lengths.isl
        if sharing is None or sharing.recording is not None
        else sharing.best(lengths.osl).isl
    )
    arguments: dict[str, Any] = {"isl": whole, "osl": lengths.osl, "pairs": lengths.pairs}
    arguments |= {"sharing": sharing, "images": lengths.pictured}
    arguments |= {
        "demand": demand,
        "slo": limits,
        "mode": mode,
        "recording": recording,
        "regions": regions_of(scenario.demand, demand),
        "replays_lengths": replays_lengths(scenario.lengths),
    }
    named = rest.pop("precisions")
    questions: list[Question] = []
    for model, note in zip(models, model_notes, strict=True):
        if model is not None:
            model_precisions = (
                find_precision(model.usual_precision if note is None else note.precision),
            )
            # a checkpoint of compress, next to its original
            usual = model_precisions if any(model_notes) else usual_precisions(model, rest["gpus"])
            notes = (
                *remarks,
                *_older_presets(scenario),
                *lengths.remarks,
                *(() if note is None else (note,)),
            )
            questions.append(
                Question(model=model, precisions=named or usual, remarks=notes, **arguments, **rest)
            )
    return tuple(questions)


def _older_presets(scenario: Scenario) -> tuple[OlderPreset, ...]:
    """The presets that answer for newer versions of their engines."""
    names = (
        ()
        if scenario.search.engine is None
        else _names(scenario.search.engine, option("engine"), Faults())
    )
    return tuple(
        OlderPreset(requested=name, preset=preset)
        for name in names
        if (preset := newer_than_known(name))
    )


def _model(name: str, scenario: Scenario) -> Model:
    """A model by its name, in the scenario's layout, with the context that engines are to be
    started with.
    """
    return with_context(find_model(name, scenario.layout or ""), scenario.search.max_model_len)


def usual_precisions(model: Model, gpus: Sequence[Gpu]) -> tuple[Precision, ...]:
    """The formats that are tried where none is named.

    They are FP16 and FP8 where the model is published in 16 bits; else the published one, and FP16
    next to it where one of the GPUs cannot compute in that.
    """
    precision = find_precision(model.usual_precision)
    if precision.weight_format in DEFAULT_PRECISIONS[:1]:
        return tuple(find_precision(name) for name in DEFAULT_PRECISIONS)
    return (
        (precision,)
        if all(gpu.supports(precision) for gpu in gpus)
        else (precision, find_precision(DEFAULT_PRECISIONS[0]))
    )


def _alone(written: Scenario) -> Scenario:
    """The scenario; where it names a model and systems that exist and says nothing of their load,
    that of a chat.
    """
    load_parts = (
        written.use_case,
        written.lengths.isl,
        written.lengths.osl,
        written.lengths.pairs or written.lengths.mixture,
    )
    if _of_existing(written) and all(part is None for part in load_parts):
        return replace(written, use_case=ALONE)
    return written


def _of_existing(scenario: Scenario) -> bool:
    """Whether the question is what systems that exist carry, without any load that is requested."""
    return scenario.have is not None and says_no_load(scenario.demand)


def _demand(scenario: Scenario, recording: Recording | None) -> Demand:
    """The demand, or that there is none in addition to systems that exist."""
    if scenario.demand.concurrency is not None:
        return _at_once(scenario)
    if not _of_existing(scenario):
        return demand_asked(scenario.demand, recording)
    needing = next(
        (name for name in ("growth", "benchmarks") if getattr(scenario, name) is not None), None
    )
    if needing is not None:
        raise InputError(
            f"{option(needing)}: needs today's load beside {option('have')}; add for example"
            f" {option('peak_rps')} 20"
        )
    return carried_by_existing()


def _note(defaults: Defaults) -> UseCaseDefaults:
    limits = tuple(map(limit_of, defaults.limits))
    parts = tuple(DefaultPart(part=name, written=text) for name, text in defaults.parts.items())
    return UseCaseDefaults(
        use_case=defaults.use_case,
        mode=defaults.mode,
        isl=defaults.isl,
        osl=defaults.osl,
        limits=limits,
        parts=parts,
    )


def _check_given(scenario: Scenario, faults: Faults) -> None:
    """Refuse a question that leaves out what it cannot do without."""
    lengths_asked, replayed = (
        scenario.lengths,
        scenario.demand.trace is not None or scenario.lengths.pairs is not None,
    )
    replayed = replayed or lengths_asked.mixture is not None
    needed = {
        "model": scenario.model,
        "isl": lengths_asked.isl or replayed,
        "osl": lengths_asked.osl or replayed,
    }
    missing = [name for name, value in needed.items() if value is None or value is False]
    if missing:
        flags = f"{option('model')} llama-3.1-8b {option('isl')} 2000 {option('osl')} 200"
        example = "model: llama-3.1-8b, lengths: {isl: 2000, osl: 200}" if faults.source else flags
        keys = ", ".join(faults.keys.get(name, option(name)) for name in missing)
        faults.messages.append(
            f"{f'{faults.source}: ' if faults.source else ''}{keys}: missing; for example {example}"
        )


def _names(values: Many | None, where: str, faults: Faults) -> tuple[str, ...]:
    return () if values is None else faults.of(listed, values, where) or ()


def recording_of(demand: DemandAsked) -> Recording | None:
    """The trace that a demand names, stretched to its mean. Raises InputError: the file is none."""
    if demand.trace is None:
        return None
    recording = recording_from(demand.trace, option("trace"), demand.trace_unit)
    if demand.mean_rps is not None and 0 < demand.mean_rps < 1e9:
        return recording.at_mean(demand.mean_rps)
    return recording


def _at_once(scenario: Scenario) -> Demand:
    """A demand of ``concurrency`` requests in flight, written as the rate at which answers of one
    second keep so many; ``api.sizing.answer`` finds the rate of the choice's.
    """
    demand_asked = scenario.demand
    conflicts = [
        leaf.name
        for leaf in fields(demand_asked)
        if leaf.name != "concurrency" and getattr(demand_asked, leaf.name) is not None
    ]
    conflicts += [
        name for name in ("benchmarks", "have", "growth") if getattr(scenario, name) is not None
    ]
    conflicts += ["load"] if scenario.search.load == "closed" else []
    if conflicts:
        raise InputError(
            f"{option('concurrency')} and {option(conflicts[0])}: do not go together; give one of"
            " them"
        )
    count = demand_asked.concurrency or 0.0
    if not (math.isfinite(count) and 1 <= count <= MOST_AT_ONCE):
        raise InputError(
            f"{option('concurrency')}: {count:g} is not possible; write a number from 1 to"
            f" {MOST_AT_ONCE:,.0f}"
        )
    source = DemandSource(kind="concurrency", requests_per_second=count, concurrency=count)
    return Demand(peak_requests_per_second=count, sizing_requests_per_second=count, source=source)


MOST_AT_ONCE = 1e7


def regions_of(
    demand_leaves: DemandAsked, demand: Demand
) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """The regions of a profile with requests per second in each hour; none where it has none."""
    if not isinstance(demand_leaves.profile, str) or demand.profile is None:
        return ()
    regions = load_regions(demand_leaves.profile, option("profile"))
    whole = max(map(math.fsum, zip(*regions.values(), strict=True)), default=1.0)
    scale = max(demand.profile) / whole
    return tuple((name, tuple(scale * hour for hour in hours)) for name, hours in regions.items())


def demand_asked(demand: DemandAsked, recording: Recording | None = None) -> Demand:
    """The demand that a scenario asks for. Raises InputError: the scenario contradicts itself, or
    gives too little.
    """
    if demand.concurrency is not None:
        raise InputError(
            f"{option('concurrency')}: its rate is found by simulation, for {option('peak_rps')} of"
            " a prediction; give that here"
        )
    profile = demand.profile
    hours = None if profile is None else profile_hours(profile, option("profile"))
    return demand_of(
        peak_rps=demand.peak_rps,
        mean_rps=demand.mean_rps,
        percentile=demand.peak_percentile,
        factor=demand.peak_factor,
        users=demand.users,
        requests_per_user_day=demand.requests_per_user_day,
        working_hours=demand.working_hours,
        working_days=demand.working_days,
        calls_per_year=demand.calls_per_year,
        requests_per_call=demand.requests_per_call,
        profile=hours,
        trace=recording,
        requests=demand.requests,
        within_s=None if demand.within is None else parse_duration(demand.within, option("within")),
    )


def _limits(latency: LimitsAsked, faults: Faults) -> Slo:
    """Every limit that can be read; none twice."""
    limits: list[Limit] = []
    for metric in (*METRICS, *LIMITED):
        texts = getattr(latency, metric) or ()
        for text in [texts] if isinstance(texts, str) else texts:
            limit = faults.of(parse_limit, metric, text)
            if limit is not None and any(
                (earlier_limit.metric, earlier_limit.statistic) == (metric, limit.statistic)
                for earlier_limit in limits
            ):
                faults.say(
                    f"{option(metric)}: {limit.statistic} is limited twice; keep one of them"
                )
            elif limit is not None:
                limits.append(limit)
    joint = faults.of(attainments, latency.attain)
    return (*limits, *(joint or ()))


def _check_limits(
    limits: Slo, mode: Mode, demand: Demand | None, faults: Faults, leaf: str
) -> None:
    """Refuse limits that contradict the mode, which the leaf ``leaf`` set, or each other."""
    idle = [str(limit) for limit in limits if not decides(limit, mode)]
    if idle:
        what = f"nobody sees the first tokens, the last one decides ({option('e2e')})"
        what = "only the throughput of a job counts" if mode == "offline" else what
        faults.say(
            f"{option(leaf)}: {mode} contradicts the limit {', '.join(idle)}: {what}; leave one of"
            " them out"
        )
    elif mode == "offline" and demand is not None and demand.offline_requests is None:
        faults.say(
            f"{option(leaf)}: offline asks for a job; give {option('requests')} and"
            f" {option('within')} instead of a rate"
        )
    if demand is not None and demand.offline_requests is not None and mode != "offline":
        faults.say(
            f"{option(leaf)}: {mode} contradicts {option('requests')} and {option('within')}, which"
            f" make a job; give a rate, or {option('mode')} offline"
        )
    for first in [limit for limit in limits if limit.metric in ("ttft", "tpot")]:
        for last in [
            limit
            for limit in limits
            if limit.metric == "e2e"
            and limit.statistic == first.statistic
            and first.seconds > limit.seconds
        ]:
            faults.say(
                f"{option(first.metric)}: {first} contradicts {last}: the whole answer would be"
                f" done before; lower it below {format_duration(last.seconds)} or leave it out"
            )


def _search(scenario: Scenario, faults: Faults, sharing: Sharing | None = None) -> dict[str, Any]:
    """Read what the search may combine, and the options of the answer."""
    search_asked = scenario.search
    bought = faults.named(option("system"), shapes, search_asked.system) or ()
    gpus_from_systems = search_asked.gpu is None and (
        scenario.have is not None or bool(search_asked.system)
    )
    gpus = (
        () if gpus_from_systems else _names(search_asked.gpu or DEFAULT_GPUS, option("gpu"), faults)
    )
    precisions = _names(search_asked.precision, option("precision"), faults)
    precisions = (
        tuple(name for name in PRECISIONS if name != "bf16")
        if precisions == (EVERY,)
        else precisions
    )
    runs = (
        None
        if search_asked.deploy_on is None
        else faults.of(target_runs, search_asked.deploy_on, at="deploy_on")
    )
    engines_named = search_asked.engine or engines_meant(_shares(search_asked))
    engines = _names(engines_named or DEFAULT_ENGINES, option("engine"), faults)
    if runs is not None and search_asked.engine is None:
        engines = tuple(name for name in engines if name in runs.engines)
    if runs is not None and search_asked.disaggregated and not runs.pools:
        faults.say(
            f"{option('disaggregated')}: {search_asked.deploy_on} does not run two pools; write"
            f" {option('deploy_on')} dynamo or llm-d"
        )
    have = faults.named(option("have"), owned, scenario.have) if scenario.have is not None else ()
    growth = faults.of(growth_of, scenario.growth) if scenario.growth is not None else None
    chosen: dict[str, Any] = {
        "gpus": tuple(faults.named(option("gpu"), find_gpu, name) for name in gpus),
        "precisions": tuple(
            faults.named(option("precision"), find_precision, name) for name in precisions
        ),
        "engines": tuple(
            engine.name
            for name in engines
            if (engine := faults.named(option("engine"), find_engine, name))
        ),
        "tps": faults.of(
            whole_numbers, DEFAULT_TPS if search_asked.tp is None else search_asked.tp, option("tp")
        ),
        "pps": _counts(search_asked.pp, option("pp"), faults),
        "dps": _counts(search_asked.dp, option("dp"), faults),
        "eps": _counts(search_asked.ep, option("ep"), faults),
        "max_batch_sizes": _counts(search_asked.max_batch_size, option("max_batch_size"), faults),
        "max_num_tokens": _counts(search_asked.max_num_tokens, option("max_num_tokens"), faults),
        "chunked_prefill": search_asked.chunked_prefill,
        "stream_interval": search_asked.stream_interval,
        "front_ends": search_asked.front_ends,
        "max_model_len": search_asked.max_model_len,
        "load": search_asked.load or "open",
        "process": (
            "poisson"
            if search_asked.arrivals in (None, "mmpp", "trace", "profile")
            else search_asked.arrivals
        ),
        "cv": 1.0 if search_asked.cv is None else search_asked.cv,
        "spare": scenario.spare or 0,
        "confidence": faults.of(confidence_asked, scenario.confidence),
        "seed": scenario.seed or 0,
        "router": faults.of(
            sized_router, search_asked.router, sharing, search_asked.deploy_on or ""
        ),
        "deploy_on": search_asked.deploy_on or "",
        "objective": scenario.choice.objective or "gpus",
        "prefix_caching": search_asked.prefix_caching,
        "have": have or (),
        "growth_per_month": growth,
        "speculation": faults.of(parse_speculation, search_asked.speculation),
        "adapters": faults.of(parse_adapters, search_asked.lora),
        "calibration": (
            None
            if search_asked.coefficients is None
            else faults.of(read_calibration, search_asked.coefficients)
        ),
        "step_source": (
            None
            if search_asked.step_model is None
            else faults.of(checked_source, search_asked.step_model)
        ),
    }
    chosen["shares"] = tuple(
        (
            faults.of(
                shares_of, _shares(search_asked), [find_engine(name) for name in chosen["engines"]]
            )
            or {}
        ).items()
    )
    chosen["systems"] = bought = (*bought, *filter(None, map(machine_meant, gpus)))
    if bought:
        chosen["gpus"] = tuple(dict.fromkeys((*chosen["gpus"], *map(gpu_of, bought))))
    if have:
        bought_gpus = chosen["gpus"]
        chosen["gpus"] = tuple(
            dict.fromkeys((*chosen["gpus"], *(gpu_of(owned.system) for owned in have)))
        )
        chosen["addable"] = tuple(gpu.name for gpu in bought_gpus or chosen["gpus"] if gpu)
    if all(chosen["gpus"]):
        if not engines_named:
            chosen["engines"] = _with_older(chosen["engines"], chosen["gpus"])
        chosen["gpus"] = (
            faults.of(
                stated,
                chosen["gpus"],
                search_asked,
                max(chosen["tps"] or (1,)),
                chosen["step_source"],
            )
            or ()
        )
    choices = [len(chosen[kind] or ()) for kind in ("gpus", "engines", "tps")]
    formats = len(DEFAULT_PRECISIONS if search_asked.precision is None else precisions)
    faults.of(
        check_source, chosen["step_source"], chosen["calibration"], math.prod(choices) * formats
    )
    _check_numbers(scenario, faults)
    _check_unsized(scenario, faults)
    _check_mix(scenario, faults.of(places, scenario.where), faults)
    return chosen


def _check_mix(scenario: Scenario, ways: tuple[str, ...] | None, faults: Faults) -> None:
    """Refuse a purchase of two kinds where systems exist, were measured, or are not bought."""
    partner = next((name for name in ("have", "benchmarks") if getattr(scenario, name)), None)
    if scenario.mix and partner is not None:
        faults.say(
            f"{option('mix')} and {option(partner)}: a purchase of two kinds is predicted, and"
            " without what exists; leave one of the two out"
        )
    elif scenario.mix and ways and "on-prem" not in ways:
        faults.say(
            f"{option('mix')}: compares systems that are bought; add on-prem to {option('where')},"
            " or leave one of the two out"
        )


def _with_older(engines: tuple[str, ...], gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """The engines, and those of GPUs that none of them runs on any more."""
    fp16 = find_precision("fp16")
    older = (
        find_engine(usual_engine(gpu, fp16)).name
        for gpu in gpus
        if all(find_engine(name).excluded(gpu) for name in engines)
    )
    return tuple(dict.fromkeys((*older, *engines)))


def _shares(search: SearchAsked) -> dict[str, float | None]:
    return {rule: getattr(search, rule) for rule in SHARE_OF}


def _check_choice(scenario: Scenario, mode: Mode, faults: Faults) -> None:
    """Refuse options of the choice, of standby systems and of purchases that cannot be met or have
    no effect.
    """
    aim, reserve = faults.of(aim_of, scenario.choice), faults.of(reserve_of, scenario.standby)
    of_existing = _of_existing(scenario)
    faults.of(check_buying, scenario, of_existing=of_existing, offline=mode == "offline")
    if of_existing and (aim is not None or reserve is not None):
        parts = (scenario.choice, scenario.standby, scenario.scaling)
        name = next(
            (
                leaf.name
                for part in parts
                for leaf in fields(part)
                if getattr(part, leaf.name) is not None
            ),
            "objective",
        )
        faults.say(
            f"{option(name)}: {option('have')} without a load chooses nothing; give the load too,"
            f" such as {option('peak_rps')} 20"
        )
    if aim is not None and aim.objective == "latency" and mode == "offline":
        faults.say(
            f"{option('objective')}: latency does not apply to an offline job; write gpus, cost or"
            " power"
        )


def _counts(values: Many | None, where: str, faults: Faults) -> tuple[int, ...]:
    return () if values is None else faults.of(whole_numbers, values, where) or ()


def _check_unsized(scenario: Scenario, faults: Faults) -> None:
    """Refuse what only a simulation has so far, what belongs to two pools, and prices that cannot
    be.
    """
    if scenario.search.classes is not None:
        faults.say(
            f"{option('classes')}: several classes are sized together, from one scenario, by"
            " `tonnage size` or tonnage.api.size_use_cases; leave them out here"
        )
    alone = [name for name in OF_SIMULATE if getattr(scenario.search, name) is not None]
    if alone or scenario.search.arrivals == "mmpp":
        named = ", ".join(map(option, alone or ["arrivals"]))
        faults.say(
            f"{named}: systems are sized without this so far; leave it out, and see by `tonnage"
            " simulate` what one instance does"
        )
    pools = [
        name for name in ("kv_link", "kv_overlap") if getattr(scenario.search, name) is not None
    ]
    if pools and not scenario.search.disaggregated:
        faults.say(
            f"{', '.join(map(option, pools))}: of two pools; add {option('disaggregated')}, or"
            " leave it out"
        )
    if scenario.prices is not None:
        from tonnage.spec.catalog.price_list import problems

        price_overrides = faults.of(overrides_of, scenario)
        if price_overrides is not None:
            overrides, where = price_overrides
            at = f"{faults.source}: " if faults.source and "prices" in faults.keys else ""
            faults.messages += [f"{at}{problem}" for problem in problems(overrides, where)]


def _check_numbers(scenario: Scenario, faults: Faults) -> None:
    faults.check(scenario)
    search_asked = scenario.search
    limit = next(
        (name for name in ("power_cap", "gpu_clock") if getattr(search_asked, name) is not None),
        None,
    )
    if limit is not None and scenario.benchmarks is not None:
        faults.say(
            f"{option(limit)}: {option('benchmarks')} were measured without it; leave one of the"
            " two out"
        )
    if (
        search_asked.cv is not None
        and faults.of(checked_cv, search_asked.cv) is not None
        and search_asked.arrivals != "gamma"
    ):
        faults.say(
            f"{option('cv')}: belongs to {option('arrivals')} gamma; add that, or leave it out"
        )
    if search_asked.arrivals == "trace" and scenario.demand.trace is None:
        faults.say(
            f"{option('arrivals')}: trace needs a file of recorded requests; give {option('trace')}"
        )
    if scenario.demand.trace is not None and (
        search_asked.arrivals not in (None, "trace") or search_asked.load == "closed"
    ):
        faults.say(
            f"{option('trace')} and {option('arrivals')}, {option('load')}: a trace brings its own"
            " arrivals; leave the others out"
        )


_OWNED = re.compile(r"^(\d{1,6})(?:\s*[x×]\s*|\s+)(.+)$")


def owned(text: str | None) -> tuple[Owned, ...]:
    """Read "3xdgx-h100", or several with commas between. Raises InputError: not a number of known
    systems.
    """
    holdings: list[Owned] = []
    for part in listed(text or "", option("have")):
        match = _OWNED.match(part)
        if not match or int(match.group(1)) < 1:
            raise InputError(
                f"{option('have')}: '{part}' is not a number of systems; write for example"
                " 3xdgx-h100, 3x4xl40s or 16xh100"
            )
        holdings += _owned_systems(int(match.group(1)), match.group(2))
    return tuple(sorted(holdings, key=lambda holding: holding.system.gpus))


def _owned_systems(count: int, name: str) -> list[Owned]:
    """The systems that ``count`` of a name are: systems by their own name, and GPUs by theirs, in
    whole systems of the catalog with a smaller one for the rest.
    """
    try:
        return [Owned(count=count, system=find_system(name))]
    except UnknownName as error:
        try:
            gpu = find_gpu(name)
        except UnknownName:
            raise error from None
    whole, rest = divmod(count, system_of(gpu).gpus)
    full = [Owned(count=whole, system=system_of(gpu))] if whole else []
    return full + ([Owned(count=1, system=find_system(f"{rest}x{gpu.name}"))] if rest else [])


def shapes(values: Many | None) -> tuple[System, ...]:
    """The servers to buy in, one of each GPU at most. Raises UnknownName: no such server;
    InputError: two of one GPU.
    """
    systems: list[System] = []
    for name in () if values is None else listed(values, option("system")):
        system = find_system(name)
        twin = next(
            (listed_system.name for listed_system in systems if listed_system.gpu == system.gpu),
            None,
        )
        if twin is not None:
            raise InputError(
                f"{option('system')}: {twin} and {system.name} hold the same GPU; ask for one of"
                " them at a time"
            )
        systems.append(system)
    return tuple(systems)


def check_leaf(name: str, text: str, context: Mapping[str, Any]) -> None:
    """Refuse one answer by itself; ``context`` has earlier answers of the same form. Raises
    InputErrors: it could not be used.
    """
    from tonnage.spec.scenario_file import scenario_of

    scenario = scenario_of({}, {**context, name: text})
    faults = Faults()
    if name == "model":
        for model_name in _names(scenario.model, option("model"), faults):
            faults.named(option("model"), find_model, model_name, scenario.layout or "")
    elif name in LengthsAsked.__dataclass_fields__:
        lengths = scenario.lengths
        lengths_found(
            lengths
            if name in ("pairs", "mixture")
            else replace(lengths, isl=lengths.isl or 1, osl=1),
            None,
            faults,
        )
        if name == "spread":
            faults.of(spread_of, text)
        if name == "osl":
            faults.of(parse_lengths, text, option("osl"), WORDS_PER_TOKEN)
    elif name in DemandAsked.__dataclass_fields__:
        completed = replace(scenario.demand, **_COMPLETED.get(name, {}))
        recording = faults.of(recording_of, completed)
        if recording is not None or completed.trace is None:
            faults.of(demand_asked, completed, recording)
    elif name in METRICS:
        faults.of(slo, **{name: text})
    else:
        _search(scenario, faults)
    InputErrors.raise_if(faults.messages)


# What a leaf needs next to it to be checked alone
_COMPLETED: dict[str, dict[str, Any]] = {
    "users": {"requests_per_user_day": 1.0},
    "requests": {"within": "1h"},
}
