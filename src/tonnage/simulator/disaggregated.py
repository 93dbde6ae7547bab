"""Two deployments as two pools: one computes prompts, the other decodes; and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tonnage.perf.memory import MemoryPlan, memory_plan
from tonnage.perf.terms import step_model
from tonnage.simulator.engine import Engine
from tonnage.simulator.pools import KvLink, check_pools, simulate_pools
from tonnage.simulator.request import RECEIVING
from tonnage.simulator.router import DEFAULT_ROUTER
from tonnage.spec.catalog import system_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.workload import Trace

NETWORK_BYTES_S = 50e9
"""Bytes per second that a GPU sends to another server: one ConnectX-7 port of 400 Gb/s for each GPU (NVIDIA DGX H100 user guide, 2023)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregated:
    """Two pools.

    Attributes:
        prefill, decode: one instance of each pool; of one model.
        prefill_instances, decode_instances: how many.
        link_bytes_s: bytes per second that a GPU sends to one of the other pool; None for NVLink where one NVLink domain holds both pools,
            else a port of 400 Gb/s for each GPU.
        latency_s: from the end of a prompt to the first byte of its cache.
        overlap: whether a layer's cache is sent as soon as it is computed.
    """

    prefill: Deployment
    decode: Deployment
    prefill_instances: int
    decode_instances: int
    link_bytes_s: float | None = None
    latency_s: float = 0.0
    overlap: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of both pools."""
        return self.prefill_instances * self.prefill.parallelism.gpus + self.decode_instances * self.decode.parallelism.gpus

    @property
    def bytes_s(self) -> float:
        """What a GPU sends."""
        if self.link_bytes_s is not None:
            return self.link_bytes_s
        gpu = self.prefill.gpu
        joined = gpu.link == "nvlink" and gpu == self.decode.gpu and self.gpus <= system_of(gpu).gpus
        return gpu.link_gb_s / 2 * 1e9 if joined else NETWORK_BYTES_S


def simulate_disaggregated(plan: Disaggregated, trace: Trace, *, plain: bool = False, router: str = DEFAULT_ROUTER) -> Requests:
    """Simulate requests on both pools; every attention rank of an instance is an engine of its own.

    Args:
        plan: the pools.
        trace: the requests.
        plain: whether the readable simulator runs instead of the compiled one, which gives the same record.
        router: of each pool, one of ``pools.COUNTING``.

    Raises:
        DoesNotFit: the weights exceed the memory.
        InputError: a trace or knobs that cannot be run.
    """
    prefill, decode = _pool(plan.prefill, plan.prefill_instances, plain=plain), _decoding(plan, plain=plain)
    if plain:
        return simulate_pools(trace, prefill, decode, link_of(plan), router)
    return pooled_record(trace, prefill, decode, link_of(plan), router)


def pooled_record(trace: Trace, prefill: Sequence[Engine], decode: Sequence[Engine], link: KvLink, router: str, seed: int = 0) -> Requests:
    """The record of ``simulate_pools`` of compiled engines, as soon as it can be had: by whole fleets where that gives the same."""
    check_pools(prefill, decode, link, router)
    if not trace.concurrency:
        from tonnage.simulator.kernel.pools import run_pools

        machines = ([engine.machine for engine in pool] for pool in (prefill, decode))
        found = run_pools(trace, *machines, link, router, seed=seed)
        if found is not None:
            return found
    return simulate_pools(trace, prefill, decode, link, router, seed=seed)


def link_of(plan: Disaggregated) -> KvLink:
    """The way of a cache: by the bytes of each kind of layer, on whichever side a GPU holds more of them."""
    sides = [memory_plan(plan.prefill), memory_plan(decode_worker(plan.decode))]
    return KvLink(
        bytes_per_token=_most(sides, "kv_bytes_per_token"),
        window_bytes_per_token=_most(sides, "window_bytes_per_token"),
        window_tokens=_most(sides, "window_tokens"),
        state_bytes=_most(sides, "state_bytes"),
        bytes_s=plan.bytes_s,
        latency_s=plan.latency_s,
        layers=plan.prefill.model.layers,
        overlap=plan.overlap,
        block_tokens=plan.prefill.knobs.tokens_per_block,
    )


def _most(sides: list[MemoryPlan], name: str) -> int:
    return max(int(getattr(side, name)) for side in sides)


def decode_worker(deployment: Deployment) -> Deployment:
    """A deployment as it decodes for others: it cuts prompts only where it has lost a cache, and SGLang's follows vLLM's rules."""
    scheduler = deployment.knobs.scheduler
    rules = scheduler if scheduler in RECEIVING else "vllm"
    return replace(deployment, knobs=replace(deployment.knobs, scheduler=rules, chunked_prefill=True, receive_interval=1))


def _pool(deployment: Deployment, instances: int, *, plain: bool, inside: bool = False) -> list[Any]:
    """The engines of a pool; those that get requests from other engines are reached without a front end."""
    from tonnage.simulator import reference

    memory, step = memory_plan(deployment), step_model(deployment)
    if inside:
        step = replace(step, frontend_s=0.0)
    kind: Any = reference.Engine if plain else Engine
    count = instances * deployment.parallelism.dp
    more: dict[str, Any] = {"windows": memory.windows, "max_context": deployment.model.max_context} | (
        {"ends_only": True} if inside and not plain else {}
    )
    return [kind(step, deployment.knobs, memory.blocks, seed=place, **more) for place in range(count)]


def _decoding(plan: Disaggregated, *, plain: bool) -> list[Any]:
    return _pool(decode_worker(plan.decode), plan.decode_instances, plain=plain, inside=True)
