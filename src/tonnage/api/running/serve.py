"""``tonnage serve``: which simulated engine is served, from names, numbers and a plan."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from tonnage.api.question.deployment import deployment_of, link_asked
from tonnage.api.running.plans import Instances, planned
from tonnage.bench.prompts import TokenizerFile
from tonnage.errors import InputError, option
from tonnage.perf.memory import memory_plan
from tonnage.perf.pipeline import estimated_instance
from tonnage.serve.arguments import OpenvinoArguments, SimulatedArguments
from tonnage.serve.dialect import DIALECTS, dialect_of, settings_of, version_of
from tonnage.serve.faults import Fault, parse_fault
from tonnage.serve.openvino import OpenvinoServed, Pipeline, Settings, context_of
from tonnage.serve.prefix import CachedEngine
from tonnage.serve.server import Served
from tonnage.serve.tokens import FileTokens, Fours
from tonnage.serve.transfer import Role
from tonnage.simulator.disaggregated import NETWORK_BYTES_S, decode_worker, link_between
from tonnage.simulator.pools import KvLink
from tonnage.simulator.router import ROUTERS
from tonnage.simulator.spec import spec_of
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Deployment
from tonnage.spec.lengths import parse_lengths

NEWEST = "vllm"  # The engine whose rules are followed where none is named

# How long answers are that end by themselves: mean and standard deviation of Azure's traces of 2023
# of that name (shared/data/traces)
ANSWERS = {"chat": "lognormal:211,163", "code": "lognormal:28,60"}


def serve_simulated(**asked: Any) -> Served:
    """What to serve; ``asked`` has fields of ``serve.arguments.SimulatedArguments``. Raises
    InputError: what cannot be used.
    """
    a = SimulatedArguments(**asked)
    if a.emulate not in DIALECTS:
        raise InputError(
            f"{option('emulate')}: no engine is emulated as '{a.emulate}'; there are"
            f" {', '.join(DIALECTS)}"
        )
    if a.runner not in ("generate", "pooling"):
        raise InputError(
            f"{option('runner')}: '{a.runner}' is not known; write generate or pooling"
        )
    _check(a.router, speed=a.speed, instances=a.instances or 1)
    instances = _deployed(
        a.plan,
        model=a.model,
        gpu=a.gpu,
        precision=a.precision,
        tp=a.tp,
        engine=a.rules,
        coefficients=a.coefficients,
    )
    transfers = _transfers(instances.deployment, a.kv_role, a.kv_link, overlap=a.kv_overlap)
    decodes = a.kv_role == "consumer"
    if decodes:
        instances = replace(instances, deployment=decode_worker(instances.deployment))
    deployment, count, caching = (
        instances.deployment,
        a.instances or instances.instances,
        a.prefix_caching and not decodes,
    )
    context = min(a.max_model_len or deployment.model.max_context, deployment.model.max_context)
    return Served(
        engine=engines_of(instances, caching=caching, inside=decodes),
        transfers=transfers,
        instances=count,
        router=a.router,
        model=a.served_model_name or deployment.model.name,
        max_context=context,
        lengths=parse_lengths(
            a.osl or ANSWERS["code" if "code" in deployment.model.name else "chat"], option("osl")
        ),
        reasons=a.reasoning_parser is not None,
        events=a.kv_events,
        events_again=a.kv_events_replay,
        events_topic=a.kv_events_topic,
        most_waiting=a.max_waiting,
        tokens=(
            Fours(deployment.model.vocab)
            if a.tokenizer is None
            else FileTokens(TokenizerFile(Path(a.tokenizer)))
        ),
        speed=a.speed,
        faults=_faults(a.fault, count * deployment.parallelism.dp if a.rank_ports else count),
        seed=a.seed,
        ranks=deployment.parallelism.dp,
        rank_ports=a.rank_ports,
        **_copies(deployment),
        dialect=dialect_of(a.emulate, find_engine(deployment.engine).family),
        settings=settings_of(deployment, a.emulate, context, caching=caching),
        version=version_of(deployment.engine),
        width=deployment.model.hidden if a.runner == "pooling" else 0,
        host=a.host,
        port=a.port,
    )


def _copies(deployment: Deployment) -> dict[str, Any]:
    """What an adapter takes of each GPU, and how long it and the weights are on their way over
    PCIe.

    An adapter of rank r has r · (m + n) weights of two bytes for a matrix of m × n: those of
    attention, and of the MLP of a dense model. vLLM divides half of them among the GPUs of tensor
    parallelism (0.32.0 config/lora.py, ``fully_sharded_loras``, read 2026-11-25).
    """
    model, memory, bytes_s = (
        deployment.model,
        memory_plan(deployment),
        deployment.gpu.pcie_gb_s / 2 * 1e9,
    )
    sides = model.attention_parameters / model.hidden + 4 * model.mixing_layers * model.hidden
    if not model.is_moe:
        matrices = model.expert_parameters / (model.hidden * model.ffn)  # of all layers
        sides += matrices * (model.hidden + model.ffn)
    share = 0.5 + 0.5 / deployment.parallelism.tp
    block = memory.kv_bytes_per_token * deployment.knobs.tokens_per_block

    def adapter(rank: int) -> tuple[int, float]:
        size = 2 * rank * sides * share
        return math.ceil(size / block), size / bytes_s

    return {"adapter_cost": adapter, "weights_s": memory.weight_bytes / bytes_s}


def _transfers(
    deployment: Deployment, role: str | None, link: str | None, *, overlap: bool
) -> tuple[Role, KvLink] | None:
    """The side of prefill and decode apart that is served, and the link to the other one."""
    if role is None:
        for name, is_set in (("kv_link", link is not None), ("kv_overlap", overlap)):
            if is_set:
                raise InputError(
                    f"{option(name)}: belongs to prefill and decode apart; add {option('kv_role')}"
                    " producer or consumer"
                )
        return None
    if role not in ("producer", "consumer"):
        raise InputError(
            f"{option('kv_role')}: '{role}' is not known; write producer (prefill) or consumer"
            " (decode)"
        )
    memory = memory_plan(deployment)
    return cast("Role", role), link_between(
        memory, memory, bytes_s=link_asked(link) or NETWORK_BYTES_S, overlap=overlap
    )


def _check(router: str, **numbers: float) -> None:
    """Refuse a router that there is not, and numbers that are not above 0."""
    if router not in ROUTERS:
        raise InputError(
            f"{option('router')}: no router is called '{router}'; there are {', '.join(ROUTERS)}"
        )
    for name, value in numbers.items():
        if not value > 0:
            raise InputError(f"{option(name)}: {value} is not possible; write a number above 0")


def _faults(texts: Sequence[str], instances: int) -> tuple[Fault, ...]:
    """The faults, of instances that there are."""
    faults = tuple(parse_fault(text) for text in texts)
    for text, fault in zip(texts, faults, strict=True):
        if fault.instance is not None and fault.instance >= instances:
            raise InputError(
                f'{option("fault")}: "{text}": there is no instance {fault.instance}; they count'
                f" from 0 to {instances - 1}"
            )
        if fault.kind == "crash" and instances > 1:
            crash = (
                f"a crash ends a process; add {option('processes')}, so that each instance has one"
            )
            raise InputError(f'{option("fault")}: "{text}": {crash}')
    return faults


def engines_of(
    instances: Instances, *, caching: bool = True, inside: bool = False
) -> Callable[[], CachedEngine]:
    """The factory of idle engines: of an instance, or of one of its attention ranks.

    Pipeline stages are one engine with longer rounds (``perf.pipeline``), guesses of a drafter are
    part of its steps. An engine that gets requests from others (``inside``) is reached without a
    front end. Raises InputError: a deployment that cannot be simulated.
    """
    deployment = instances.deployment
    instance = estimated_instance(
        deployment, gpus_per_system=instances.gpus_per_system, prompt_tokens=instances.prompt_tokens
    )
    spec = spec_of(deployment, instance, tiers=instances.tiers)
    if inside:
        spec = replace(spec, step=spec.step.inside)
    if not caching:
        spec = replace(spec, knobs=replace(spec.knobs, prefix_caching=False))
    return lambda: CachedEngine(spec)


def _deployed(plan: str | Path | None, **said: Any) -> Instances:
    """The deployment and the number of its instances, by names or of a plan."""
    if plan is None:
        if said["model"] is None:
            raise InputError(
                f"{option('model')}: is needed; give a catalog id, or a plan ({option('plan')})"
            )
        gpu = said["gpu"] or "h100-sxm-80gb"
        deployment = deployment_of(
            model=said["model"],
            gpu=gpu,
            precision=said["precision"] or "",
            tp=said["tp"] or 1,
            engine=said["engine"] or NEWEST,
            coefficients=said["coefficients"],
        )
        return Instances(
            deployment=deployment,
            instances=1,
            gpus_per_system=deployment.parallelism.gpus,
            prompt_tokens=1,
        )
    flag_name = next(
        (name for name in ("model", "gpu", "precision", "tp", "engine") if said[name] is not None),
        None,
    )
    if flag_name is not None:
        raise InputError(
            f"{option('rules' if flag_name == 'engine' else flag_name)}: a plan says it; leave one"
            " of the two out"
        )
    return planned(plan, coefficients=said["coefficients"])


EXTRA = "needs OpenVINO GenAI; install the extra: pip install 'tonnage[openvino]'"
PRECISIONS = ("auto", "fp32")


def serve_openvino(**asked: Any) -> OpenvinoServed:
    """Load a model; ``asked`` has fields of ``serve.arguments.OpenvinoArguments``. Raises
    InputError: what cannot be used.
    """
    a = OpenvinoArguments(**asked)
    if a.model is None:
        raise InputError(
            f"{option('model')}: is needed; give a GGUF file, or a folder with a model in"
            " OpenVINO's format"
        )
    precision = a.precision or "auto"
    if precision not in PRECISIONS:
        raise InputError(
            f"{option('precision')}: '{precision}' is not served by OpenVINO; write"
            f" {' or '.join(PRECISIONS)}"
        )
    _check_whole(
        1,
        max_batch_size=a.max_batch_size,
        max_num_tokens=a.max_num_tokens,
        kv_cache_gb=a.kv_cache_gb,
    )
    _check_whole(0, threads=a.threads, default_osl=a.default_osl, max_waiting=a.max_waiting)
    if importlib.util.find_spec("openvino_genai") is None:
        raise InputError(f"{option('engine')}: openvino {EXTRA}")
    path = Path(a.model)
    if a.max_model_len is not None:
        _check_whole(2, max_model_len=a.max_model_len)
    context = context_of(path) if a.max_model_len is None or not path.exists() else a.max_model_len
    limits = {
        "max_batch_size": a.max_batch_size,
        "max_num_tokens": a.max_num_tokens,
        "kv_cache_gb": a.kv_cache_gb,
        "threads": a.threads,
    }
    chosen: Literal["auto", "fp32"] = "fp32" if precision == "fp32" else "auto"
    settings = Settings(model=path, prefix_caching=a.prefix_caching, precision=chosen, **limits)
    return OpenvinoServed(
        pipeline=Pipeline(settings),
        model=a.served_model_name or path.stem,
        max_context=context,
        default_osl=a.default_osl,
        most_waiting=a.max_waiting,
        host=a.host,
        port=a.port,
    )


def _check_whole(least: int, **numbers: int) -> None:
    for name, value in numbers.items():
        if value < least:
            raise InputError(
                f"{option(name)}: {value} is not possible; write a whole number, {least} or more"
            )
