"""What the fit of current engines moves on dense rows, and from where: one entry per term, fixed
before any scoring.

A term of an engine is a value that all current engines share, times a small correction of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tonnage.evidence.rows import Terms
from tonnage.spec.catalog import find_engine
from tools.fit.formats import FORMATS
from tools.fit.silicon import streaming
from tools.fit.terms import CURRENT, Layout, Prior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Deployment

VLLM, TRTLLM_RC, TRTLLM, SGLANG = "vllm", "tensorrt-llm-1.0", "tensorrt-llm-1.1", "sglang"
ENGINES = (VLLM, TRTLLM_RC, TRTLLM, SGLANG)


LAMPORT = (TRTLLM_RC, TRTLLM)
"""Engines whose all-reduces write to all GPUs at once, without a barrier (``ONE_SHOT``)."""

VLLM_010, VLLM_012 = "vllm-0.10", "vllm-0.12"
EARLIER: dict[str, dict[str, Prior]] = {
    VLLM_010: {
        "kv_8bit_hopper": (0.7, 0.15),
        "layer_kv_8bit_hopper_s": (12.6e-6, 0.3),
        "launch_layer_blackwell": (1.0, 0.4),
    },
    VLLM_012: {"schedule_s": (0.46e-3, 0.5)},
}
"""Terms that an earlier vLLM has beside those of vLLM, or that multiply them. Their start values
are what its developers published:

- ``kv_8bit_hopper``, times ``kv_8bit``: attention on Hopper reads an FP8 cache at a cost per token
  of 63 % of 16 bits in 0.10.2 and of 54 % in 0.19.1 with four query heads a KV head (vllm.ai/blog,
  2026-04-22), of 100 and of 72 % with eight (github.com/vllm-project/flash-attention/pull/96): of
  the bandwidth that 16 bits reach, a mean of 0.63 and of 0.80, over the 0.9 of ``kv_8bit``.
- ``layer_kv_8bit_hopper_s``, seconds per layer: the same post has FP8 ahead of 16 bits from 24,889
  tokens on in 0.10.2 and from 7,010 in 0.19.1: 0.40 and 0.14 ms a step of 32 layers.
- ``schedule_s``, seconds per step: scheduling that does not overlap with a step costs 0.46 ms of
  it, which other versions keep (github.com/vllm-project/vllm/pull/25444: 5.98 against 6.20
  requests/s of 128 tokens, ten at a time). It overlaps by default from 0.14 on, and did in
  InferenceMAX's runs of 0.10.2.
- ``launch_layer_blackwell``, times ``launch_layer_s``: those runs have mixed steps without any CUDA
  graph on B200 (``FULL_DECODE_ONLY`` without ``splitting_ops``), and nobody says what that costs.
"""

NCCL = {"pcie_latency": 3.0, "pcie_bytes": 2.0}
USERS: dict[str, dict[str, float]] = {
    VLLM: NCCL | {"schedule_s": 0.46e-3, "frontend_s": 8e-3},
    SGLANG: NCCL,
    VLLM_010: {"expert_layer_4bit_s": 80e-6, "piece_layer_s": 190e-6},
}
"""Terms that users' measurements tell, of which no row is fitted (``./benchmark field``,
2026-11-28). Over PCIe vLLM and SGLang leave all-reduces to NCCL: Qwen2.5 32B on two A100 PCIe
(dennislee22/vLLM-benchmarking) and Llama 3.3 70B on two H100 PCIe (IOG-Foundation) ask for 16 µs
and half the bandwidth of the kernels that the links were fitted to. Of an earlier vLLM, what layers
of experts in four bits took longer in 0.9 and 0.10, before their kernels were fused. gpt-oss 20B on
H100, H200, MI300X and B200 asks for 60 to 100 µs a layer (sariekr/gpu_conc), DeepSeek R1 in AWQ on
eight H100 for 130 (tenstorrent/tt-inference-server#356). Until 0.11 graphs ended before attention:
the 24 layers of gpt-oss take 4.5 ms on H200 and on B200 alike, 190 µs each, and ten requests of
Qwen3 Coder 30B take 350 µs a layer where whole graphs take 230 (vllm-project/vllm pull/25444, which
made these the default). A front end of vLLM takes 4 to 8 ms before a lone prompt of 128 tokens
(tenstorrent/tt-inference-server#125 and #521), 12 to 14 in open loops of longer ones
(nerdalert/vllm-bench-automation) and 20 for one a second (kubernetes-sigs/inference-perf); dense
rows of the fit, of four to eight clients, ask for 7.5, and rows of experts for 10."""

TODAY = {"kv_8bit_hopper": 0.89, "layer_kv_8bit_hopper_s": 4.4e-6}
"""The same terms of vLLM from 0.12 on, about which no row here tells."""

COMMON: dict[str, Prior] = {
    "kv_bandwidth": (0.9, 0.1),
    "kv_8bit": (0.9, 0.1),
    "compute_8": (1.0, 0.1),
    "compute_16": (1.05, 0.07),
    "compute_blocks": (0.85, 0.15),
    "memory": (1.0, 0.05),
    "attention": (1.0, 0.3),
    "allreduce_s": (3e-6, 0.6),
    "layer_s": (35e-6, 0.3),
    "layer_narrow_s": (6e-6, 0.5),
    "layer_norms_s": (8e-6, 0.5),
    "layer_fp4_s": (6e-6, 0.5),
    "layer_blocks_s": (8e-6, 0.5),
    "step_s": (0.3e-3, 0.5),
    "sequence_s": (18e-6, 0.5),
    "prefill_s": (0.7e-3, 0.5),
    "prefill_layer_s": (20e-6, 1.0),
    "launch_layer_s": (400e-6, 0.5),
    "frontend_s": (25e-3, 0.5),
}
"""What all current engines share; ``compute``, ``memory`` and ``attention`` are relative to the
shared terms.

``compute_blocks`` is FP8 scaled by blocks (Qwen3) against FP8 scaled by matrix (Llama).
Start values: STEP_MODEL.md, rounded over its engines. Guesses: two kernels of 3 to 4 µs that narrow
activations, two more to 4 bits, four of 2 µs that scale by blocks before the matrices of a layer,
where scales of whole matrices are fused with the norms, and two that normalise heads
(``layer_narrow_s``, ``layer_fp4_s``, ``layer_blocks_s``, ``layer_norms_s``); steps with prompts run
without CUDA graphs (``prefill_layer_s``), and about 40 kernels a layer that Python launches at 10
µs each are the least that such a step takes (``launch_layer_s``). """

OWN = {
    "kv_bandwidth": 0.05,
    "kv_8bit": 0.05,
    "compute_8": 0.08,
    "compute_16": 0.08,
    "memory": 0.03,
    "attention": 0.1,
    "allreduce_s": 0.2,
    "layer_s": 0.15,
    "step_s": 0.3,
    "sequence_s": 0.3,
    "prefill_s": 0.3,
    "prefill_layer_s": 0.3,
    "launch_layer_s": 0.3,
    "frontend_s": 0.2,
}
"""The spread of the logarithm of an engine's own correction."""

ONE_SHOT_TOKENS = 128.0
ONE_SHOT: dict[str, Prior] = {"one_shot": (0.6, 0.3)}
BARRIER_FREE: dict[str, Prior] = {"allreduce_s": (0.74, 0.2)}
"""All-reduces of TensorRT-LLM 1.0 and 1.1. Up to 128 tokens they are one-shot, whatever they cost,
and NCCL's beyond (github.com/NVIDIA/TensorRT-LLM/pull/5432), until pull/7870 looked up what had
been measured to be faster.

- ``one_shot``: share of a GPU's links that they reach; the start value is what small all-reduces of
  0.9 do.
- ``allreduce_s``, the correction of these engines: without a barrier 16 KB take 3.4 to 4.4 µs on
  two to eight H200 and 5.1 to 5.8 µs on B200, with one (vLLM 0.19) 4.5 to 5.7 and 7.0 to 8.2 µs
  (``custom_allreduce_perf.parquet`` of aiconfigurator-core 0.12, TensorRT-LLM 1.2.0rc5): 0.74 of
  it.
"""

BLACKWELL: dict[str, Prior] = {
    "compute_8": (0.57, 0.2),
    "memory_8": (0.74, 0.12),
    "attention": (0.85, 0.3),
    "latency": (1.0, 0.3),
    "link": (1.0, 0.2),
}
"""The start values are those of a study; that of the bandwidth is a published point
(``TRANSFERRED`` of ``terms.py``)."""

ULTRA = "Blackwell Ultra"
"""The generation without dense rows of its own that takes Blackwell's terms: the same kernels run
there."""

FP4 = "nvfp4"
FP4_ULTRA = f"{FP4} {ULTRA}"
OF_FP4: dict[str, Prior] = {"compute": (0.79, 0.2), "memory": (0.80, 0.15)}
"""The shares of Blackwell's 8-bit efficiencies that NVFP4 reaches; of Blackwell Ultra's by the
ratio of what kernels reach."""

CONSTANT = {"kv_single": 1.0, "head_arithmetic": 0.0, "walk_s": 0.0, "turnaround_s": 0.0}
EXPERTS = ("expert_compute", "expert_memory", "expert_spread")
"""Terms taken from TensorRT-LLM 0.15, because no row here has experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconLayout(Layout):
    """The shared values, the corrections and Blackwell's terms as a vector of logarithms; ``terms``
    multiplies them for every engine.

    Attributes:
        front_end: engines whose seconds per streamed token were chosen by rows.
    """

    front_end: tuple[str, ...] = ()

    def terms(self, x: NDArray[np.float64]) -> Terms:
        """The groups of ``perf.terms`` for a vector."""
        found = deepcopy(self.base or {})
        value = dict(zip(self.names, np.exp(x).tolist(), strict=True))
        for engine in ENGINES:
            own = found["engines"].setdefault(engine, {})
            for term in dict.fromkeys((*COMMON, *OWN)):
                own[term] = value.get(f"current.{term}", 1.0) * value.get(f"{engine}.{term}", 1.0)
            own |= USERS.get(engine, {})
        for engine in LAMPORT:
            found["engines"][engine] |= {
                "one_shot_tokens": ONE_SHOT_TOKENS,
                **{term: value[f"lamport.{term}"] for term in ONE_SHOT},
            }
        for earlier, priors in EARLIER.items():
            found["engines"][earlier] = (
                found["engines"][VLLM]
                | {term: value[f"{earlier}.{term}"] for term in priors}
                | USERS.get(earlier, {})
            )
        for generation in ("Blackwell", ULTRA):
            found["architectures"][generation] |= {
                term: value[f"Blackwell.{term}"] for term in BLACKWELL
            }
        for name in (FP4, FP4_ULTRA):
            found["formats"][name] = {
                term: value[f"{FP4}.{term}"] * FORMATS[name][term] / FORMATS[FP4][term]
                for term in OF_FP4
            }
        return found

    def reaches(self, name: str, deployment: Deployment) -> bool:
        """Whether a term can change what the steps of a deployment take; the correction of an
        engine reaches that engine alone.
        """
        owner, preset = name.rpartition(".")[0], find_engine(deployment.engine).coefficients
        if owner in ENGINES:
            return terms_of(preset) == owner
        if owner in ("Blackwell", FP4):
            return deployment.gpu.arch.startswith("Blackwell")
        if owner == "lamport":
            return preset in LAMPORT
        return owner not in EARLIER or preset == owner

    def streaming(self, seconds: Mapping[str, float]) -> SiliconLayout:
        """The same layout with the seconds that the front ends of some engines take per streamed
        token.
        """
        base = deepcopy(self.base or {})
        for engine, value in seconds.items():
            base["engines"][terms_of(engine)]["stream_s"] = value
        return replace(
            self, base=base, front_end=tuple(sorted({terms_of(engine) for engine in seconds}))
        )


def silicon_layout(terms: Terms) -> SiliconLayout:
    """The terms that the fit moves, on top of other fitted terms that stay as they are."""
    base = {
        group: deepcopy(values)
        for group, values in terms.items()
        if group not in ("origins", "report")
    }
    experts = {term: base["engines"][CURRENT][term] for term in EXPERTS}
    for engine in ENGINES:
        base["engines"][engine] = {
            **CONSTANT,
            **experts,
            "stream_s": streaming.START,
            **(TODAY if engine == VLLM else {}),
            **USERS.get(engine, {}),
        }
    groups = (("current", COMMON), ("lamport", ONE_SHOT), ("Blackwell", BLACKWELL), (FP4, OF_FP4))
    priors = {f"{group}.{term}": prior for group, named in groups for term, prior in named.items()}
    own = (
        (engine, term) for engine in ENGINES for term in OWN if term not in USERS.get(engine, {})
    )
    priors |= {f"{engine}.{term}": (1.0, OWN[term]) for engine, term in own}
    priors |= {
        f"{engine}.{term}": prior for engine in LAMPORT for term, prior in BARRIER_FREE.items()
    }
    priors |= {
        f"{earlier}.{term}": prior
        for earlier, own in EARLIER.items()
        for term, prior in own.items()
    }
    start, spread = (np.array([prior[i] for prior in priors.values()]) for i in (0, 1))
    return SiliconLayout(names=tuple(priors), start=np.log(start), spread=spread, base=base)


def terms_of(coefficients: str) -> str:
    """The engine whose corrections a group of engine terms has; for an earlier version it is the
    later one.
    """
    return VLLM if coefficients in EARLIER else coefficients
