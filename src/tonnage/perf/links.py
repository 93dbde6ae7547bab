"""Links between the GPUs of an instance: which kind they are, and how long all-reduces over them
take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.perf import step_terms as at
from tonnage.perf.matrices import ACTIVATION_BYTES

if TYPE_CHECKING:
    from tonnage.perf.terms_file import Group, TermGroups
    from tonnage.spec.deployment import Deployment, Parallelism
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model


ONE_SHOT_BYTES = {2: 16e6, 4: 1e6}
"""Largest message of a one-shot all-reduce over NVLink, by the number of GPUs; 0.5 MB for more GPUs
(TensorRT-LLM, ``customAllReduceKernels``)."""

TWO_SHOT_BYTES, TWO_SHOT_THREADS, TWO_SHOT_BLOCKS, FEWER_BLOCKS, THREAD_BYTES = (
    8e6,
    1024,
    24,
    16,
    16,
)
"""The two-shot all-reduce of TensorRT-LLM 0.9 over NVLink by more than two GPUs
(``customAllReduceKernels``): largest message, threads of a block, most blocks, the most of powers
of two, and bytes that a thread takes at once."""

LOW_LATENCY_BYTES = 0.8e6
"""The same over PCIe, times the number of GPUs. There NCCL leaves its low-latency protocol, as step
times of L40S and H100 NVL show."""

CHANGE_BYTES = 64 * 2**20
"""Message from which NCCL gets more out of two bridged pairs of GPUs: below, they reach no more
than eight GPUs do. Step times of H100 NVL at TP 4 show it, prompts and batches of Llama 2 70B and
of Falcon 180B alike: 60.8 MB are slow, 67.1 MB fast. That NCCL changes its algorithm there is our
reading."""

STAGED_LATENCY, STAGED_POWER, STAGED_BYTES = 3.3, 0.6, 0.9
"""All-reduces over PCIe between GPUs that the driver does not let read each other's memory
(GeForce), over those with peer access: times the latency for two GPUs, the power of (GPUs − 1) in
the latency, and the bandwidth divided by it. Read off six runs of Llama 3.1 8B with vLLM 0.8.5 on
two and four RTX 4090 at 1 to 8 requests/s (IOG-Foundation/llm-inference-benchmarks, 2026-11-28): 52
µs and 9.4 GB/s. Hosts differ by up to a factor of two, which is in the interval
(``perf.residuals.ELSEWHERE``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTerms:
    """What all-reduces reach between the GPUs of a tensor-parallel group; all are fitted."""

    bytes_s: float  # bytes/s per GPU and direction that all-reduces reach
    slow_bytes_s: float  # the same for messages below ``CHANGE_BYTES``
    small_bytes_s: float  # the same for small all-reduces, which move (tp − 1) copies
    small_bytes: float  # largest message of a small all-reduce, in bytes
    one_shot_tokens: float  # tokens of a step up to which every all-reduce is a small one
    # small_s, large_s: latency of a small and of a large all-reduce
    small_s: float
    large_s: float
    # bytes/s of one block of the two-shot all-reduce; 0 where the kernel is another
    block_bytes_s: float


def link_terms(groups: TermGroups, tp: int) -> LinkTerms:
    """The terms of all-reduces between ``tp`` GPUs."""
    engine, gpu, kind = groups.engine, groups.gpu, link_kind(groups.own, groups.gpu, tp)
    link = groups.links[kind]
    link_bytes = link_bytes_s(kind, gpu, tp) * groups.own.get("link", 1.0)
    full_bytes_s = link_bytes * of_generation(groups, kind, "link")
    wire = wire_bytes_s(kind, gpu, tp)
    latency = latency_s(groups, kind, tp)
    if kind == "pcie":
        slower = engine.get("pcie_bytes", 1.0) * (STAGED_BYTES if staged(gpu, tp) else 1.0)
        full_bytes_s, link_bytes = full_bytes_s / slower, link_bytes / slower
    one_shot = kind == "nvlink" and "one_shot" in engine
    one_shot_tokens = engine.get("one_shot_tokens", 0.0) if one_shot else 0.0
    small_bytes = ONE_SHOT_BYTES.get(tp, 0.5e6) if kind == "nvlink" else LOW_LATENCY_BYTES / tp
    return LinkTerms(
        bytes_s=min(full_bytes_s * link["efficiency"] * link.get(f"tp{tp}", 1.0), wire),
        slow_bytes_s=min(full_bytes_s * link["efficiency"] * below_change(link, kind, tp), wire),
        small_bytes_s=min(
            link_bytes * engine["one_shot"] if one_shot else full_bytes_s * link["small"], wire
        ),
        small_bytes=0.0 if one_shot_tokens else small_bytes,
        one_shot_tokens=one_shot_tokens,
        small_s=latency,
        large_s=latency * link["large"],
        block_bytes_s=engine.get("block_bytes_s", 0.0) if kind == "nvlink" else 0.0,
    )


def dispatch_terms(groups: TermGroups, gpus: int) -> tuple[float, float]:
    """Latency and bandwidth of a dispatch over all GPUs of an instance: those of a large
    all-reduce, times the engine's ``dispatch``.
    """
    gpu, kind = groups.gpu, link_kind(groups.own, groups.gpu, gpus)
    link = groups.links[kind]
    bytes_s = (
        link_bytes_s(kind, gpu, gpus) * groups.generation["link"] * groups.own.get("link", 1.0)
    )
    reached = min(
        bytes_s * link["efficiency"] * link.get(f"tp{gpus}", 1.0), wire_bytes_s(kind, gpu, gpus)
    )
    return (
        latency_s(groups, kind, gpus) * link["large"] * groups.engine.get("dispatch", 1.0),
        reached,
    )


def latency_s(groups: TermGroups, kind: str, gpus: int) -> float:
    """Latency, in seconds, of a small all-reduce between ``gpus`` GPUs."""
    link = groups.links[kind]
    slower, power = (
        (STAGED_LATENCY, STAGED_POWER) if staged(groups.gpu, gpus) else (1.0, link["power"])
    )
    slower *= groups.engine.get("pcie_latency", 1.0) if kind == "pcie" else 1.0
    latency: float = (
        slower
        * groups.engine["allreduce_s"]
        * link["latency"]
        * of_generation(groups, kind, "latency")
        * (gpus - 1) ** power
    )
    return latency


def of_generation(groups: TermGroups, kind: str, term: str) -> float:
    """What a GPU generation's own fabric does to all-reduces; nothing where NCCL takes them over
    PCIe.
    """
    return (
        1.0
        if kind == "pcie" and "pcie_latency" in groups.engine
        else float(groups.generation[term])
    )


def largest_of(count: int) -> float:
    """Expected largest of ``count`` standard normal draws (Blom, Statistical Estimates and
    Transformed Beta-Variables, 1958).
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def over_pcie(gpu: Gpu, tp: int) -> bool:
    """Whether a tensor-parallel group sends its sums over PCIe as far as nobody states otherwise:
    bridges may be missing.
    """
    return tp > 1 and (
        gpu.tp_link(tp) == "pcie" or (gpu.link == "nvlink-bridge" and not gpu.bridged)
    )


def staged(gpu: Gpu, tp: int) -> bool:
    """Whether these sums go through the host's memory."""
    return not gpu.p2p and over_pcie(gpu, tp)


def below_change(link: Group, kind: str, tp: int) -> float:
    """Correction of the bandwidth of messages below ``CHANGE_BYTES`` for a number of GPUs; two
    bridged pairs have that of eight GPUs.
    """
    return link.get("tp8" if kind == "bridge" and tp == 4 else f"tp{tp}", 1.0)


def link_kind(group: Group, gpu: Gpu, tp: int) -> str:
    """The group of ``links`` for a tensor-parallel group: "nvlink", "pcie", or "bridge" for pairs
    joined by PCIe.

    ``bridge`` 0 of a GPU says that the measured cards had no NVLink bridge, and GeForce cards have
    one only where a user states it.
    """
    if (
        gpu.link == "nvlink-bridge"
        and not gpu.bridged
        and (group.get("bridge", 1.0) == 0.0 or not gpu.p2p)
    ):
        return "pcie"
    if gpu.tp_link(tp) == "pcie":
        return "bridge" if gpu.link == "nvlink-bridge" else "pcie"
    return "nvlink"


def link_bytes_s(kind: str, gpu: Gpu, tp: int) -> float:
    """The bandwidth that efficiencies are shares of. In a mesh it is that of all links of a GPU:
    the kernel reaches no more of them.
    """
    return (
        gpu.tp_link_bytes_s(max(tp, gpu.mesh_gpus)) if kind == "nvlink" else gpu.pcie_gb_s / 2 * 1e9
    )


def wire_bytes_s(kind: str, gpu: Gpu, tp: int) -> float:
    """What the wires between the GPUs of a part of a mesh carry at most; infinite elsewhere."""
    return gpu.tp_link_bytes_s(tp) if kind == "nvlink" and tp < gpu.mesh_gpus else math.inf


def add_communication(
    c: list[float], terms: LinkTerms, model: Model, parallelism: Parallelism
) -> None:
    """Put the all-reduces of a step into a coefficient array.

    There are two per layer, and one where attention and MLP run side by side or the experts'
    outputs are combined in another way. Small ones are one-shot kernels, used where they are
    faster; some engines use them up to a number of tokens in any case. Norms over all heads add an
    all-reduce of two numbers per token (vLLM ``MiniMaxText01RMSNormTP``), which is latency alone.
    """
    tp = parallelism.tp
    reduces = model.layers if model.parallel_block else model.mixing_layers + model.inner_layers
    if parallelism.dp > 1:
        reduces -= model.expert_layers
    sums = model.layers * terms.small_s if model.joint_norms else 0.0
    token_bytes = ACTIVATION_BYTES * model.hidden
    c[at.COMM_STEP] = reduces * terms.small_s + sums
    c[at.COMM_SMALL] = reduces * token_bytes * (tp - 1) / terms.small_bytes_s
    c[at.SMALL_TOKENS] = terms.small_bytes / token_bytes
    c[at.ONE_SHOT_TO] = terms.one_shot_tokens
    c[at.COMM_LARGE] = reduces * terms.large_s + sums
    moved = reduces * token_bytes * 2 * (tp - 1) / tp
    c[at.COMM_TOKEN] = moved / terms.bytes_s
    c[at.COMM_SLOW] = max(moved / terms.slow_bytes_s - c[at.COMM_TOKEN], 0.0)
    c[at.SLOW_TO] = CHANGE_BYTES / token_bytes if c[at.COMM_SLOW] > 0.0 else 0.0
    if terms.block_bytes_s > 0.0 and tp > 2:
        _starvation(c, terms, model, tp, reduces)


def _starvation(c: list[float], terms: LinkTerms, model: Model, tp: int, reduces: int) -> None:
    """A two-shot all-reduce splits its threads evenly over at most 24 blocks.

    Beyond 16 blocks of work a hidden size with a larger odd factor leaves no such split but by that
    factor (29 of 14,848), and then each block carries that many blocks' bytes, in and out.
    """
    odd = model.hidden // (model.hidden & -model.hidden)
    if odd <= TWO_SHOT_BLOCKS:
        return
    token_bytes = ACTIVATION_BYTES * model.hidden
    block_bytes = TWO_SHOT_THREADS * THREAD_BYTES * tp
    c[at.STARVED] = reduces * 2 * odd * block_bytes / terms.block_bytes_s
    c[at.STARVED_FROM] = FEWER_BLOCKS * block_bytes / token_bytes
    c[at.STARVED_TO] = TWO_SHOT_BYTES / token_bytes


# Which parallelisms a model allows: how its heads and experts can be split over GPUs.


def check_split(deployment: Deployment) -> None:
    """Refuse a parallelism that the model does not allow.

    Raises InputError: ``tp`` does not divide the query heads or does not go into the key/value
    heads; the experts cannot be spread as asked; ``pp`` is not 1.
    """
    model, tp, pp = deployment.model, deployment.parallelism.tp, deployment.parallelism.pp
    if pp != 1:
        raise InputError(
            f"{option('pp')}: pipeline parallelism of {pp} is not estimated here; use 1"
        )
    _check_experts(model, deployment.parallelism)
    if tp >= 1 and _splits(model, tp):
        return
    right = ", ".join(str(n) for n in range(1, 17) if _splits(model, n))
    raise InputError(
        f"{option('tp')}: {model.name} with {model.heads} query and {model.kv_heads} key/value"
        f" heads cannot be split over {tp} GPUs; use {right}"
    )


def _check_experts(model: Model, parallelism: Parallelism) -> None:
    """Refuse degrees of data-parallel attention and expert parallelism that the model does not
    allow.
    """
    dp, ep, gpus = parallelism.dp, parallelism.ep, parallelism.stage_gpus
    if dp < 1 or ep < 1:
        raise InputError(
            f"{option('dp' if dp < 1 else 'ep')}: must be 1 or more, not {min(dp, ep)}"
        )
    if (dp > 1 or ep > 1) and not model.is_moe:
        name, what = ("dp", "replicate it instead") if dp > 1 else ("ep", f"use {option('tp')}")
        raise InputError(f"{option(name)}: {model.name} has no experts to spread over GPUs; {what}")
    if gpus % ep:
        right = ", ".join(
            str(n) for n in range(1, gpus + 1) if gpus % n == 0 and model.experts % n == 0
        )
        raise InputError(
            f"{option('ep')}: {ep} groups of experts do not divide TP {parallelism.tp} × DP {dp} ="
            f" {gpus} GPUs; use {right}"
        )
    if model.experts % ep:
        raise InputError(
            f"{option('ep')}: {model.experts} experts of {model.name} cannot be spread over {ep}"
            " groups evenly"
        )
    if (dp > 1 or ep > 1) and model.ffn % parallelism.moe_tp:
        raise InputError(
            f"{option('ep')}: experts of width {model.ffn} cannot be split over"
            f" {parallelism.moe_tp} GPUs; use a larger {option('ep')}"
        )


def _splits(model: Model, tp: int) -> bool:
    """Whether every GPU gets the same number of heads of every layer."""
    return all(layer_group.mixer.splits(tp) for layer_group in model.by_kind)
