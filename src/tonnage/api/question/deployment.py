"""Makes a deployment of the names that people use for its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, option
from tonnage.perf.measured_steps import check_source, checked_source
from tonnage.perf.pipeline import largest_stage
from tonnage.simulator.router import DEFAULT_ROUTER, ROUTERS
from tonnage.spec.calibration import read_calibration
from tonnage.spec.catalog import find_engine, find_gpu, find_model, newer_than_known
from tonnage.spec.catalog.checkpoints import as_run
from tonnage.spec.catalog.entries import host_speed_of
from tonnage.spec.deployment import (
    Deployment,
    EngineKnobs,
    KvRule,
    Parallelism,
    Scheduler,
    parse_adapters,
    parse_speculation,
)
from tonnage.spec.engine import EnginePreset, default_knobs
from tonnage.spec.hardware import FABRICS, Gpu, capped, clocked, hosted, linked
from tonnage.spec.precision import Precision, find_precision
from tonnage.spec.scenario import (
    MEMORY,
    ScalingAsked,
    Scenario,
    SearchAsked,
    StandbyAsked,
    simulated_leaves,
)
from tonnage.units import parse_bytes

if TYPE_CHECKING:
    from tonnage.simulator.disaggregated import Disaggregated
    from tonnage.sizing.question import Pools
    from tonnage.spec.model import Model
    from tonnage.spec.step_times import StepSource


# Tried in this order where nobody says which engine runs an instance
USUAL_ENGINES = ("tensorrt-llm", "vllm", "vllm-0.19", "vllm-0.10", "sglang")


def usual_engine(gpu: Gpu, precision: Precision) -> str:
    """The first of the usual engines that runs on a GPU, in a number format if one of them does."""
    on_gpu = [name for name in USUAL_ENGINES if not find_engine(name).excluded(gpu)]
    able = [name for name in on_gpu if not find_engine(name).lacks(precision)]
    return next(iter((*able, *on_gpu, *USUAL_ENGINES)))


def deployment_of(
    *,
    model: str,
    layout: str = "",
    gpu: str,
    precision: str = "",
    tp: int,
    engine: str,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    knobs: Mapping[str, int | bool | float | str | None] | None = None,
    coefficients: str | Path | None = None,
    step_model: str | Path | None = None,
    speculation: str | None = None,
    lora: str | None = None,
    power_cap: str | None = None,
    gpu_clock: float | None = None,
    link: str | None = None,
    host_speed: float | str | None = None,
    max_model_len: int | None = None,
    shares: Mapping[str, float | None] | None = None,
) -> Deployment:
    """A deployment by catalog names, with any of the engine's knobs set, a calibration's file, and
    another source of step times.

    Without a ``precision`` it is the format that the model is published in
    (``Model.usual_precision``). ``shares`` are of the memory, by name (``SHARE_OF``).

    Raises InputError: an unknown name, a knob that cannot be, or a file that is no calibration.
    """
    found_model = with_context(find_model(model, layout), max_model_len)
    found_gpu, spec = find_gpu(gpu), find_engine(engine)
    if excluded := spec.excluded(found_gpu):
        usual = usual_engine(found_gpu, find_precision(precision or found_model.usual_precision))
        raise InputError(
            f"{option('engine')}: {spec.name} does not run on {excluded} accelerators; choose"
            f" another, such as {usual}"
        )
    found_precision = as_run(
        find_precision(precision or found_model.usual_precision), found_model, spec, found_gpu
    )
    if lacking := found_gpu.lacks(found_precision):
        raise InputError(
            f"{option('precision')}: {found_gpu.name} ({found_gpu.arch}) has {lacking} for"
            f" {found_precision.name}; choose another"
        )
    if lacking := spec.lacks(found_precision):
        raise InputError(f"{option('precision')}: {lacking}; choose another")
    set_knobs = {name: value for name, value in (knobs or {}).items() if value is not None}
    for leaf in simulated_leaves():
        if fault := leaf.fault(set_knobs.get(leaf.name)):
            raise InputError(f"{option(leaf.name)}: {fault}")
    defaults = default_knobs(spec, found_gpu, dp)
    share = shares_of(shares or {}, (spec,)).get(defaults.kv_rule, defaults.kv_fraction)
    chosen: EngineKnobs = replace(defaults, **{"kv_fraction": share, **set_knobs})  # type: ignore[arg-type]
    _check_waits(chosen, spec.name)
    if chosen.long_prefill_token_threshold > 0 and chosen.scheduler != "vllm":
        raise InputError(
            f"{option('long_prefill_token_threshold')}: {spec.name} has no such setting, vLLM does"
            f" ({option('engine')} vllm)"
        )
    calibration = None if coefficients is None else read_calibration(coefficients)
    source = None if step_model is None else checked_source(step_model)
    check_source(source, calibration, 1)
    (found_gpu,) = limited(
        (found_gpu if link is None else linked(found_gpu, link, tp),), power_cap, gpu_clock, source
    )
    (found_gpu,) = in_hosts((found_gpu,), host_speed, source)
    deployment = Deployment(
        model=found_model,
        gpu=found_gpu,
        precision=found_precision,
        parallelism=Parallelism(tp=tp, pp=pp, dp=dp, ep=ep),
        engine=spec.name,
        newer_engine=engine if newer_than_known(engine) else "",
        knobs=chosen,
        calibration=calibration,
        step_source=source,
        speculation=parse_speculation(speculation),
        adapters=parse_adapters(lora),
    )
    largest_stage(deployment)
    return deployment


SHARE_OF: dict[KvRule, str] = {
    "free_gpu_memory_fraction": "tensorrt-llm",
    "gpu_memory_utilization": "vllm",
    "mem_fraction_static": "sglang",
}
"""The engine that has each share of the memory as a setting."""


def engines_meant(values: Mapping[str, object]) -> tuple[str, ...]:
    """The engines whose share of the memory is among values by name: no other is tried where none
    is named.
    """
    return tuple(engine for rule, engine in SHARE_OF.items() if values.get(rule) is not None)


def shares_of(
    values: Mapping[str, float | None], engines: Sequence[EnginePreset]
) -> dict[KvRule, float]:
    """The shares of the memory among values by name. Raises InputError: a share that cannot be, or
    that none of the engines has.
    """
    shares: dict[KvRule, float] = {}
    for rule, engine in SHARE_OF.items():
        share = values.get(rule)
        if share is None:
            continue
        if not MEMORY.allows(share):
            raise InputError(f"{option(rule)}: {MEMORY.fault(share)}, such as 0.9")
        if engines and all(preset.kv_rule != rule for preset in engines):
            instead = f"write {option(engines[0].kv_rule)} {share:g} or {option('engine')} {engine}"
            raise InputError(f"{option(rule)}: {engines[0].name} has no such setting; {instead}")
        shares[rule] = round(share, 6)
    return shares


def with_context(model: Model, context: int | None) -> Model:
    """The model with a shorter context. Raises InputError: it is below two tokens, or longer than
    the model's.
    """
    if context is None:
        return model
    if context < 2:
        raise InputError(
            f"{option('max_model_len')}: {context} is not possible; write tokens of a prompt and"
            " its output, 2 or more"
        )
    if context > model.max_context:
        raise InputError(
            f"{option('max_model_len')}: {context:,} is longer than the context of {model.name};"
            f" write at most {model.max_context}"
        )
    return replace(model, max_context=context)


def _check_waits(knobs: EngineKnobs, engine: str) -> None:
    """Refuse settings by which requests wait that the engine does not have, or that do not go
    together.
    """
    waits = knobs.batch_wait_steps > 0, knobs.batch_wait_ratio > 0
    if knobs.receive_interval > 1 and knobs.scheduler != "sglang":
        raise InputError(
            f"{option('receive_interval')}: {engine} has no such setting, SGLang does"
            f" ({option('engine')} sglang); leave it out"
        )
    if any(waits) and knobs.scheduler != "tensorrt-llm":
        raise InputError(
            f"{option('batch_wait_steps')}, {option('batch_wait_ratio')}: {engine} has no such"
            " settings, TensorRT-LLM does; leave them out"
        )
    if any(waits) != all(waits):
        raise InputError(
            f"{option('batch_wait_steps')}, {option('batch_wait_ratio')}: "
            "go together, the ratio above 0 and at most 1, for example 20 and 0.9"
        )


def joined(gpus: Sequence[Gpu], link: str | None, tp: int) -> tuple[Gpu, ...]:
    """The GPUs with the link over PCIe that is requested; those with NVLink keep theirs. Raises
    InputError: as ``linked``.
    """
    if link is None or all(gpu.link in FABRICS for gpu in gpus):
        return tuple(gpus if link is None else (linked(gpu, link, tp) for gpu in gpus))
    return tuple(gpu if gpu.link in FABRICS else linked(gpu, link, tp) for gpu in gpus)


def stated(
    gpus: Sequence[Gpu], search: SearchAsked, tp: int, source: StepSource | None
) -> tuple[Gpu, ...]:
    """The GPUs with the link, the power limit, the clocks and the host that a question states.
    Raises InputError.
    """
    return in_hosts(
        limited(joined(gpus, search.link, tp), search.power_cap, search.gpu_clock, source),
        search.host_speed,
        source,
    )


def in_hosts(
    gpus: Sequence[Gpu], host: float | str | None, source: StepSource | None
) -> tuple[Gpu, ...]:
    """The GPUs in hosts of the speed, or with the CPU, that is requested. Raises InputError: no
    such speed, an unknown CPU, or step times that have their host in them.
    """
    if host is None:
        return tuple(gpus)
    if source is not None:
        raise InputError(
            f"{option('host_speed')}: step times of {source.name} have their host in them; leave"
            " one of the two out"
        )
    speed = host_speed_of(host)
    return tuple(hosted(gpu, speed) for gpu in gpus)


def limited(
    gpus: Sequence[Gpu], power_cap: str | None, gpu_clock: float | None, source: StepSource | None
) -> tuple[Gpu, ...]:
    """The GPUs under the power limit or the locked clocks that are requested. Raises InputError."""
    name = "gpu_clock" if power_cap is None else "power_cap"
    if power_cap is not None and gpu_clock is not None:
        raise InputError(
            f"{option('gpu_clock')}: {option('power_cap')} sets the clock too; leave one of the"
            " two out"
        )
    if source is not None and (power_cap is not None or gpu_clock is not None):
        raise InputError(
            f"{option(name)}: scales the fitted step times; drop {option('step_model')}, or leave"
            " this out"
        )
    if gpu_clock is not None:
        return tuple(clocked(gpu, gpu_clock) for gpu in gpus)
    if power_cap is None:
        return tuple(gpus)
    slower = tuple(capped(gpu, power_cap) for gpu in gpus)
    if slower == tuple(gpus):
        boards = ", ".join(f"{gpu.tdp_w:g} W of {gpu.name}" for gpu in gpus)
        raise InputError(
            f"{option('power_cap')}: {power_cap} is no lower than the board power ({boards}); lower"
            " it, or leave it out"
        )
    return slower


def scheduler_of(batcher: str | None, engine: str) -> Scheduler | None:
    """The scheduler that a batching strategy means on an engine."""
    if batcher is None:
        return None
    if batcher == "static":
        return "static"
    if batcher == "one-prefill":
        return "one-prefill"
    preset_scheduler = find_engine(engine).knobs.scheduler
    if batcher == "max-utilization":
        if preset_scheduler not in ("tensorrt-llm", "static"):
            raise InputError(
                f"{option('batcher')}: max-utilization is a capacity policy of TensorRT-LLM;"
                f" {engine} has none, leave it out"
            )
        return "max-utilization"
    return "tensorrt-llm" if preset_scheduler == "static" else preset_scheduler


MOST_POOL_INSTANCES = 1_000


def pools_of(
    arguments: Mapping[str, Any], search: SearchAsked, deployment: Deployment
) -> Disaggregated | None:
    """The two pools that are requested, both of the one deployment; None where none are. Raises
    InputError.
    """
    pool_counts = search.disaggregated
    if pool_counts is None or pool_counts is False:
        for name in ("kv_link", "kv_overlap"):
            if getattr(search, name) is not None:
                raise InputError(
                    f"{option(name)}: is of two pools; add {option('disaggregated')} 1:2"
                )
        return None
    if (
        str(arguments.get("instances", 1)) != "1"
        or arguments.get("window") is not None
        or deployment.knobs.scheduler == "static"
    ):
        raise InputError(
            f"{option('disaggregated')}: goes with in-flight batching, without"
            f" {option('instances')} or {option('window')}"
        )
    if deployment.parallelism.pp > 1:
        raise InputError(
            f"{option('disaggregated')}: two pools are simulated without pipeline stages; leave out"
            f" {option('pp')}"
        )
    from tonnage.simulator.disaggregated import Disaggregated

    prefill, decode = _numbers(pool_counts)
    return Disaggregated(
        prefill=(
            deployment if deployment.speculation is None else replace(deployment, speculation=None)
        ),
        decode=deployment,
        prefill_instances=prefill,
        decode_instances=decode,
        link_bytes_s=link_asked(search.kv_link),
        overlap=bool(search.kv_overlap),
    )


def sized_pools(scenario: Scenario, *, mode: str, shares: bool) -> Pools | None:
    """Read how two pools are to be sized; None where none are requested. Raises InputError."""
    from tonnage.simulator.pools import COUNTING
    from tonnage.sizing.question import Pools

    search_asked = scenario.search
    if not search_asked.disaggregated:
        return None
    away = f"drop {option('disaggregated')}, or"
    counting = f"choose from {', '.join(COUNTING)}"
    refused = (
        (
            mode == "offline",
            f"a job is not sized in two pools; {away} ask for a peak with latency limits",
        ),
        (
            search_asked.load == "closed",
            f"a closed loop is not sized in two pools; {away} write {option('load')} open",
        ),
        (
            scenario.demand.trace is not None,
            (
                f"recorded arrivals are not sized in two pools; {away} describe them by"
                f" {option('peak_rps')}"
            ),
        ),
        (
            shares,
            (
                f"prompts that share something are not sized in two pools; {away} leave out what"
                " they share"
            ),
        ),
        (
            search_asked.speculation is not None,
            f"speculative decoding is not sized in two pools; {away} drop {option('speculation')}",
        ),
        (
            scenario.benchmarks is not None,
            f"benchmarks measure instances that do both; {away} drop {option('benchmarks')}",
        ),
        (
            search_asked.router not in (None, *COUNTING),
            f"a router of two pools counts requests; {option('router')}: {counting}",
        ),
        (
            _any(scenario.standby),
            (
                f"what stands by for failures is not sized in two pools; {away} add systems with"
                f" {option('spare')}"
            ),
        ),
        (
            _any(scenario.scaling),
            f"two pools are not scaled over hours; {away} drop {option('autoscale')}",
        ),
    )
    reason = next((why for applies, why in refused if applies), None)
    if reason is not None:
        raise InputError(f"{option('disaggregated')}: {reason}")
    return Pools(
        link_bytes_s=link_asked(search_asked.kv_link), overlap=bool(search_asked.kv_overlap)
    )


def _any(part: StandbyAsked | ScalingAsked) -> bool:
    return any(getattr(part, leaf.name) is not None for leaf in fields(part))


def _numbers(value: object) -> tuple[int, int]:
    parts = str(value).split(":")
    if len(parts) != 2 or not all(
        part.isdecimal() and 1 <= int(part) <= MOST_POOL_INSTANCES for part in parts
    ):
        raise InputError(
            f"{option('disaggregated')}: '{value}' is not two numbers of instances; write"
            " prefill:decode, such as 1:2"
        )
    return int(parts[0]), int(parts[1])


def link_asked(value: object) -> float | None:
    """Bytes per second that a GPU sends to the other pool, such as "50GB/s"; None where nothing is
    given. Raises InputError.
    """
    if value is None:
        return None
    bytes_per_second = parse_bytes(str(value).strip().removesuffix("/s"), option("kv_link"))
    if bytes_per_second <= 0:
        raise InputError(
            f"{option('kv_link')}: '{value}' is not possible; write bytes per second and GPU above"
            " 0, such as 50GB/s"
        )
    return float(bytes_per_second)


BY_CONTENT = ("prefix-aware", "session")  # routers that look at what requests have in common


def router_of(name: str | None, *, by_content: bool = False, default: str = DEFAULT_ROUTER) -> str:
    """A router by its name; the default where none is named.

    Args:
        by_content: whether the requests may have something in common, which ``BY_CONTENT`` look at.

    Raises InputError: no router that the requests can be routed by.
    """
    routers = [router for router in ROUTERS if by_content or router not in BY_CONTENT]
    plain = None if name is None else name.strip().lower().replace("_", "-").replace(" ", "-")
    if plain is not None and plain not in routers:
        raise InputError(
            f"{option('router')}: '{name}' is not a router; choose from {', '.join(routers)}"
        )
    return plain or default
