"""Two deployments as two pools: one computes prompts, the other decodes; and what is between
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tonnage.perf.memory import MemoryPlan, memory_plan
from tonnage.simulator.pools import KvLink, check_pools, simulate_pools
from tonnage.simulator.request import RECEIVING
from tonnage.simulator.router import DEFAULT_ROUTER
from tonnage.simulator.spec import EngineSpec, spec_of
from tonnage.spec.catalog import system_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.results.requests import Requests
    from tonnage.simulator.engine import Engine
    from tonnage.spec.deployment import Deployment, EngineKnobs
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.workload import Trace

NETWORK_BYTES_S = 50e9
"""Bytes per second that a GPU sends to another server: one ConnectX-7 port of 400 Gb/s for each GPU
(NVIDIA DGX H100 user guide, 2023)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregated:
    """Two pools."""

    # prefill, decode: one instance of each pool; of one model
    prefill: Deployment
    decode: Deployment
    # prefill_instances, decode_instances: how many
    prefill_instances: int
    decode_instances: int
    # bytes per second that a GPU sends to one of the other pool; None for NVLink where one NVLink
    # domain holds both pools, else a port of 400 Gb/s for each GPU
    link_bytes_s: float | None = None
    latency_s: float = 0.0  # from the end of a prompt to the first byte of its cache
    overlap: bool = False  # whether a layer's cache is sent as soon as it is computed

    @property
    def gpus(self) -> int:
        """GPUs of both pools."""
        return (
            self.prefill_instances * self.prefill.parallelism.gpus
            + self.decode_instances * self.decode.parallelism.gpus
        )

    @property
    def bytes_s(self) -> float:
        """The bytes per second that a GPU sends."""
        if self.link_bytes_s is not None:
            return self.link_bytes_s
        gpu = self.prefill.gpu
        return sent_bytes_s(
            gpu, together=gpu == self.decode.gpu and self.gpus <= system_of(gpu).gpus
        )


def sent_bytes_s(gpu: Gpu, *, together: bool) -> float:
    """Bytes per second that a GPU sends to one of the other pool; ``together`` where both are in
    one system.
    """
    return gpu.link_gb_s / 2 * 1e9 if together and gpu.link == "nvlink" else NETWORK_BYTES_S


def simulate_disaggregated(plan: Disaggregated, trace: Trace, *, plain: bool = False) -> Requests:
    """Simulate requests on both pools; every attention rank of an instance is a separate engine.

    ``plain`` takes the readable simulator, which gives the same record.

    Raises DoesNotFit: the weights exceed the memory; InputError: a trace or knobs that cannot be
    run.
    """
    decode = decode_worker(plan.decode)
    sides = memory_plan(plan.prefill), memory_plan(decode)
    counts = (
        plan.prefill_instances * plan.prefill.parallelism.dp,
        plan.decode_instances * decode.parallelism.dp,
    )
    first = pool_engines(spec_of(plan.prefill), counts[0], plain=plain)
    second = pool_engines(spec_of(decode), counts[1], inside=True, plain=plain)
    link = link_between(
        *sides, bytes_s=plan.bytes_s, latency_s=plan.latency_s, overlap=plan.overlap
    )
    return (simulate_pools if plain else pooled_record)(trace, first, second, link, DEFAULT_ROUTER)


def pooled_record(
    trace: Trace, prefill: Sequence[Engine], decode: Sequence[Engine], link: KvLink, router: str
) -> Requests:
    """The record of ``simulate_pools`` of idle compiled engines: by whole fleets where these give
    it, in a small part of the time.
    """
    check_pools(prefill, decode, link, router)
    if not trace.concurrency:
        from tonnage.simulator.kernel.pools import run_pools

        first, second = ([engine.machine for engine in pool] for pool in (prefill, decode))
        requests = run_pools(trace, first, second, link, router)
        if requests is not None:
            return requests
    return simulate_pools(trace, prefill, decode, link, router)


def link_between(
    prefill: MemoryPlan,
    decode: MemoryPlan,
    *,
    bytes_s: float,
    latency_s: float = 0.0,
    overlap: bool = False,
) -> KvLink:
    """The way of a cache: by the bytes of each kind of layer, on whichever side a GPU holds more of
    them.
    """

    def most(name: str) -> int:
        return max(int(getattr(side, name)) for side in (prefill, decode))

    return KvLink(
        bytes_per_token=most("kv_bytes_per_token"),
        window_bytes_per_token=most("window_bytes_per_token"),
        window_tokens=most("window_tokens"),
        state_bytes=most("state_bytes"),
        bytes_s=bytes_s,
        latency_s=latency_s,
        layers=prefill.deployment.model.layers,
        overlap=overlap,
        block_tokens=prefill.deployment.knobs.tokens_per_block,
    )


def decode_worker(deployment: Deployment) -> Deployment:
    """A deployment as it decodes for others: it cuts prompts only where it has lost a cache, and
    SGLang's follows vLLM's rules.
    """
    return replace(deployment, knobs=decode_knobs(deployment.knobs))


def decode_knobs(knobs: EngineKnobs) -> EngineKnobs:
    """The knobs of such a deployment."""
    rules = knobs.scheduler if knobs.scheduler in RECEIVING else "vllm"
    return replace(knobs, scheduler=rules, chunked_prefill=True, receive_interval=1)


def pool_engines(
    spec: EngineSpec, count: int, *, inside: bool = False, plain: bool = False
) -> list[Any]:
    """The engines of a pool; engines that get requests ``inside``, from other engines, are reached
    without a front end.
    """
    from tonnage.simulator.engine import engine_of

    if inside:
        spec = replace(spec, step=spec.step.inside)
    return [
        spec.plain_engine(seed=place) if plain else engine_of(spec, seed=place, ends_only=inside)
        for place in range(count)
    ]
