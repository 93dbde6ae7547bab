"""``tonnage serve``: which simulated engine is served, from names, numbers and a plan."""

from __future__ import annotations

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
from tonnage.serve.dialect import DIALECTS, settings_of, version_of
from tonnage.serve.faults import Fault, parse_fault
from tonnage.serve.openvino import OpenvinoServed, Pipeline, Settings, context_of
from tonnage.serve.prefix import CachedEngine
from tonnage.serve.server import Served
from tonnage.serve.tokens import FileTokens, Fours, Tokens
from tonnage.serve.transfer import Role
from tonnage.simulator.disaggregated import NETWORK_BYTES_S, decode_worker, link_between
from tonnage.simulator.pools import KvLink
from tonnage.simulator.router import ROUTERS
from tonnage.simulator.spec import spec_of
from tonnage.spec.deployment import Deployment
from tonnage.spec.lengths import parse_lengths

NEWEST = "vllm"  # The engine whose rules are followed where none is named

ANSWERS = {"chat": "lognormal:211,163", "code": "lognormal:28,60"}
"""How long answers are that end by themselves: mean and standard deviation of Azure's traces of 2023 of that name (shared/data/traces)."""


def serve_simulated(
    *,
    model: str | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    tp: int | None = None,
    rules: str | None = None,
    plan: str | Path | None = None,
    instances: int | None = None,
    router: str = "least-outstanding",
    speed: float = 1.0,
    tokenizer: str | Path | None = None,
    osl: str | None = None,
    max_model_len: int | None = None,
    reasoning_parser: str | None = None,
    runner: str = "generate",
    prefix_caching: bool = True,
    kv_events: str = "",
    kv_events_replay: str = "",
    kv_events_topic: str = "",
    kv_role: str | None = None,
    kv_link: str | None = None,
    kv_overlap: bool = False,
    rank_ports: bool = False,
    max_waiting: int = 0,
    served_model_name: str | None = None,
    coefficients: str | Path | None = None,
    emulate: str = "vllm",
    fault: Sequence[str] = (),
    seed: int = 0,
    host: str = "127.0.0.1",
    port: int = 8000,
) -> Served:
    """What to serve.

    Args:
        model, gpu, precision, tp: the deployment by catalog names (default: h100-sxm-80gb, the published format, TP 1).
        rules: engine preset whose scheduler and step times are simulated (default: the newest of vLLM).
        plan: a plan as ``tonnage size --json`` wrote it: its choice in place of all these, and its number of instances.
        instances: how many engines there are behind the router.
        router: which instance gets a request (``simulator.router``).
        speed: how many times as fast as the wall's the simulated time runs.
        tokenizer: local ``tokenizer.json``; 4 characters are a token without one.
        osl: how long answers are that end by themselves, such as 200 or "lognormal:211,163" (default: as in Azure's traces of 2023).
        max_model_len: prompt plus output at most, in tokens (default: what the model allows).
        reasoning_parser: any name, as vLLM has it: the model thinks before it answers.
        runner: as vLLM has it: generate, or pooling for a model that embeds.
        prefix_caching: whether equal beginnings of prompts share their KV blocks.
        kv_events, kv_events_replay, kv_events_topic: ZeroMQ addresses at which the caches' events are published and sent again, such as
            ``tcp://*:5557``, and the topic before them.
        kv_role: for prefill and decode apart, whether it computes prompts for others or decodes what others computed: producer or consumer.
        kv_link: bytes per second that a GPU sends to the other side, such as "50GB/s" (default: a port of 400 Gb/s).
        kv_overlap: whether a layer's KV cache is sent as soon as it is computed.
        rank_ports: whether every engine, each attention rank of each instance, has a separate port, from ``port`` on.
        max_waiting: requests that may wait when another comes; 0 for no limit.
        served_model_name: the name that clients use (default: the model's).
        coefficients: file that ``calibrate`` wrote.
        emulate: the engine whose errors, replies and names of metrics clients see: vllm, tensorrt-llm, sglang, nim or triton.
        fault: what goes wrong, such as "slow factor=5 instance=1 from=10s" (``serve.faults``).
        seed: of which requests faults meet.
        host, port: where to listen.

    Raises InputError: anything that cannot be used, in one line.
    """
    if emulate not in DIALECTS:
        raise InputError(f"{option('emulate')}: no engine is emulated as '{emulate}'; there are {', '.join(DIALECTS)}")
    if runner not in ("generate", "pooling"):
        raise InputError(f"{option('runner')}: '{runner}' is not known; write generate or pooling")
    _check(router, speed=speed, instances=instances or 1)
    asked = _deployed(plan, model=model, gpu=gpu, precision=precision, tp=tp, engine=rules, coefficients=coefficients)
    transfers = _transfers(asked.deployment, kv_role, kv_link, overlap=kv_overlap)
    if kv_role == "consumer":
        asked, prefix_caching = replace(asked, deployment=decode_worker(asked.deployment)), False
    deployment, count = asked.deployment, instances or asked.instances
    context = min(max_model_len or deployment.model.max_context, deployment.model.max_context)
    return Served(
        engine=engines_of(asked, caching=prefix_caching, inside=kv_role == "consumer"),
        transfers=transfers,
        instances=count,
        router=router,
        model=served_model_name or deployment.model.name,
        max_context=context,
        lengths=parse_lengths(osl or ANSWERS["code" if "code" in deployment.model.name else "chat"], option("osl")),
        reasons=reasoning_parser is not None,
        events=kv_events,
        events_again=kv_events_replay,
        events_topic=kv_events_topic,
        most_waiting=max_waiting,
        tokens=_tokens(tokenizer, deployment.model.vocab),
        speed=speed,
        faults=_faults(fault, count * deployment.parallelism.dp if rank_ports else count),
        seed=seed,
        ranks=deployment.parallelism.dp,
        rank_ports=rank_ports,
        **_copies(deployment),
        dialect=DIALECTS[emulate],
        settings=settings_of(deployment, emulate, context, caching=prefix_caching),
        version=version_of(deployment.engine),
        width=deployment.model.hidden if runner == "pooling" else 0,
        host=host,
        port=port,
    )


def _copies(deployment: Deployment) -> dict[str, Any]:
    """What an adapter takes of each GPU, and how long it and the weights are on their way over PCIe.

    An adapter of rank r has r · (m + n) weights of two bytes for a matrix of m × n: those of attention, and of the MLP of a dense model.
    vLLM divides half of them among the GPUs of tensor parallelism (0.32.0 config/lora.py, ``fully_sharded_loras``, read 2026-11-25).
    """
    model, memory, bytes_s = deployment.model, memory_plan(deployment), deployment.gpu.pcie_gb_s / 2 * 1e9
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


def _transfers(deployment: Deployment, role: str | None, link: str | None, *, overlap: bool) -> tuple[Role, KvLink] | None:
    """The side of prefill and decode apart that is served, and the link to the other one."""
    if role is None:
        for name, given in (("kv_link", link is not None), ("kv_overlap", overlap)):
            if given:
                raise InputError(f"{option(name)}: belongs to prefill and decode apart; add {option('kv_role')} producer or consumer")
        return None
    if role not in ("producer", "consumer"):
        raise InputError(f"{option('kv_role')}: '{role}' is not known; write producer (prefill) or consumer (decode)")
    memory = memory_plan(deployment)
    return cast("Role", role), link_between(memory, memory, bytes_s=link_asked(link) or NETWORK_BYTES_S, overlap=overlap)


def _check(router: str, **numbers: float) -> None:
    """Refuse a router that there is not, and numbers that are not above 0."""
    if router not in ROUTERS:
        raise InputError(f"{option('router')}: no router is called '{router}'; there are {', '.join(ROUTERS)}")
    for name, value in numbers.items():
        if not value > 0:
            raise InputError(f"{option(name)}: {value} is not possible; write a number above 0")


def _faults(texts: Sequence[str], instances: int) -> tuple[Fault, ...]:
    """The faults, of instances that there are."""
    found = tuple(parse_fault(text) for text in texts)
    for text, one in zip(texts, found, strict=True):
        if one.instance is not None and one.instance >= instances:
            raise InputError(f'{option("fault")}: "{text}": there is no instance {one.instance}; they count from 0 to {instances - 1}')
        if one.kind == "crash" and instances > 1:
            raise InputError(
                f'{option("fault")}: "{text}": a crash ends a process; add {option("processes")}, so that each instance has one'
            )
    return found


def engines_of(asked: Instances, *, caching: bool = True, inside: bool = False) -> Callable[[], CachedEngine]:
    """What makes idle engines: an instance, or one attention rank of it.

    Pipeline stages are one engine with longer rounds (``perf.pipeline``), guesses of a drafter are part of its steps. An engine that gets
    requests from others (``inside``) is reached without a front end. Raises InputError: a deployment that cannot be simulated.
    """
    deployment = asked.deployment
    one = estimated_instance(deployment, gpus_per_system=asked.gpus_per_system, prompt_tokens=asked.prompt_tokens)
    spec = spec_of(deployment, one, tiers=asked.tiers)
    if inside:
        spec = replace(spec, step=replace(spec.step, frontend_s=0.0))
    if not caching:
        spec = replace(spec, knobs=replace(spec.knobs, prefix_caching=False))
    return lambda: CachedEngine(spec)


def _deployed(plan: str | Path | None, **said: Any) -> Instances:
    """The deployment and the number of its instances, by names or of a plan."""
    if plan is None:
        if said["model"] is None:
            raise InputError(f"{option('model')}: is needed; give a catalog id, or a plan ({option('plan')})")
        gpu = said["gpu"] or "h100-sxm-80gb"
        found = deployment_of(
            model=said["model"],
            gpu=gpu,
            precision=said["precision"] or "",
            tp=said["tp"] or 1,
            engine=said["engine"] or NEWEST,
            coefficients=said["coefficients"],
        )
        return Instances(deployment=found, instances=1, gpus_per_system=found.parallelism.gpus, prompt_tokens=1)
    given = next((name for name in ("model", "gpu", "precision", "tp", "engine") if said[name] is not None), None)
    if given is not None:
        raise InputError(f"{option('rules' if given == 'engine' else given)}: a plan says it; leave one of the two out")
    return planned(plan, coefficients=said["coefficients"])


def _tokens(tokenizer: str | Path | None, vocabulary: int) -> Tokens:
    if tokenizer is None:
        return Fours(vocabulary)
    return FileTokens(TokenizerFile(Path(tokenizer)))


EXTRA = "needs OpenVINO GenAI; install the extra: pip install 'tonnage[openvino]'"
PRECISIONS = ("auto", "fp32")


def serve_openvino(
    *,
    model: str | Path | None = None,
    precision: str = "auto",
    max_batch_size: int = 32,
    max_num_tokens: int = 256,
    kv_cache_gb: int = 1,
    prefix_caching: bool = True,
    threads: int = 0,
    max_model_len: int | None = None,
    default_osl: int = 0,
    max_waiting: int = 0,
    served_model_name: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
) -> OpenvinoServed:
    """Load a model; what to serve.

    Args:
        model: a GGUF file, or a folder with a model in OpenVINO's format.
        precision: "auto", or "fp32" for weights and KV cache alike.
        max_batch_size: requests that share a step.
        max_num_tokens: tokens of a step.
        kv_cache_gb: memory of the KV cache in GB.
        prefix_caching: whether blocks of equal prompt beginnings are shared.
        threads: CPU threads; 0 for OpenVINO's choice.
        max_model_len: prompt plus output at most (default: what the model's file says).
        default_osl: output tokens of a request that sets no limit; 0 for as many as the context leaves.
        max_waiting: requests that may wait when another comes; 0 for no limit.
        served_model_name: the name that clients use (default: the file's).
        host, port: where to listen.

    Raises InputError: anything that cannot be used, in one line.
    """
    import importlib.util

    if model is None:
        raise InputError(f"{option('model')}: is needed; give a GGUF file, or a folder with a model in OpenVINO's format")
    if precision not in PRECISIONS:
        raise InputError(f"{option('precision')}: '{precision}' is not served by OpenVINO; write {' or '.join(PRECISIONS)}")
    _check_whole(1, max_batch_size=max_batch_size, max_num_tokens=max_num_tokens, kv_cache_gb=kv_cache_gb)
    _check_whole(0, threads=threads, default_osl=default_osl, max_waiting=max_waiting)
    if importlib.util.find_spec("openvino_genai") is None:
        raise InputError(f"{option('engine')}: openvino {EXTRA}")
    path = Path(model)
    if max_model_len is not None:
        _check_whole(2, max_model_len=max_model_len)
    context = context_of(path) if max_model_len is None or not path.exists() else max_model_len
    chosen: Literal["auto", "fp32"] = "fp32" if precision == "fp32" else "auto"
    settings = Settings(
        model=path,
        max_batch_size=max_batch_size,
        max_num_tokens=max_num_tokens,
        kv_cache_gb=kv_cache_gb,
        prefix_caching=prefix_caching,
        precision=chosen,
        threads=threads,
    )
    return OpenvinoServed(
        pipeline=Pipeline(settings),
        model=served_model_name or path.stem,
        max_context=context,
        default_osl=default_osl,
        most_waiting=max_waiting,
        host=host,
        port=port,
    )


def _check_whole(least: int, **numbers: int) -> None:
    for name, value in numbers.items():
        if value < least:
            raise InputError(f"{option(name)}: {value} is not possible; write a whole number, {least} or more")
