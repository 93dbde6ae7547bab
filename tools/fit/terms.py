"""What the fit may move and from where it starts: one entry per term, fixed before any scoring.

A term is a positive number; the fit moves its logarithm. ``PRIORS`` gives each its start value and
the relative spread that is believed of it; the fit pays (log ratio / spread)² for moving it. The
efficiencies of a GPU are its generation's times two small corrections, so that a GPU without data
gets its generation's mean. Start values: STEP_MODEL.md (four studies of the same measurements), for
decode attention by head and for small and large all-reduces our own look at the static batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.perf.links import link_kind
from tonnage.spec.catalog import find_engine, find_gpu
from tools.fit.formats import FORMATS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Deployment

Prior = tuple[float, float]
"""A start value, and the spread of its logarithm."""

PRIOR_WEIGHT = 2.0
"""The weight of a term's distance from its start value, which counts in spreads, in every stage of
the fit."""

STATIC, NIM, CURRENT = "tensorrt-llm-0.9", "nim-2024", "tensorrt-llm-0.15"
"""The groups of engine terms that the first stage fits (``EnginePreset.coefficients``)."""

SHARED: dict[str, Prior] = {
    "norm": (1.5, 0.3),
    "activation": (1.4, 0.3),
    "attention": (0.43, 0.3),
    "expert_compute": (0.8, 0.2),
    "power_compute": (0.33, 0.3),
    "power_memory": (0.2, 0.5),
}

KINDS_OF_LAYERS: dict[str, float] = {
    "gathered": 0.6,
    "index": 0.4,
    "scan": 0.2,
    "state_bandwidth": 0.6,
    "state_layer": 1.0,
    "sparse_layer": 1.0,
    "state_prefill_s": 1e-3,
}
"""What the newer kinds of layers reach, of which this stage has no rows: estimates by analogy with
gathers and small kernels, and with what latent attention launches in a step with prompts (0.8 to
1.4 ms a layer)."""

# Compute efficiencies are of a card of 1 W per TFLOP/s, memory efficiencies of 0.2 W per GB/s
# (``perf.terms``).
GENERATIONS: dict[str, dict[str, Prior]] = {
    "Ampere": {
        "compute_16": (0.72, 0.15),
        "memory_16": (0.8, 0.15),
        "attention": (1.0, 0.2),
        "head_arithmetic": (1.4, 0.4),
        "link": (1.0, 0.2),
        "latency": (1.2, 0.3),
    },
    "Hopper": {
        "compute_16": (0.72, 0.15),
        "memory_16": (0.8, 0.15),
        "compute_8": (0.72, 0.15),
        "memory_8": (0.75, 0.15),
    },
    "Ada": {
        "compute_16": (0.72, 0.15),
        "memory_16": (0.75, 0.05),
        "compute_8": (0.72, 0.15),
        "memory_8": (0.75, 0.15),
        "attention": (1.0, 0.2),
        "head_arithmetic": (4.0, 0.4),
    },
}

OF_GPU: dict[str, Prior] = {"compute": (1.0, 0.1), "memory": (1.0, 0.06)}
"""Of every GPU in the data; and per number of bits that it was measured in:"""

OF_GPU_BITS: dict[str, Prior] = {"compute": (1.0, 0.05), "memory": (1.0, 0.05)}

LINKS: dict[str, dict[str, Prior]] = {
    "nvlink": {
        "efficiency": (0.7, 0.3),
        "power": (0.5, 0.5),
        "small": (0.5, 0.5),
        "large": (1.7, 0.4),
    },
    "pcie": {
        "efficiency": (0.55, 0.3),
        "power": (0.5, 0.5),
        "small": (0.5, 0.5),
        "large": (1.7, 0.4),
        "latency": (2.0, 0.5),
        "tp4": (1.0, 0.2),
        "tp8": (0.9, 0.25),
    },
    "bridge": {
        "efficiency": (0.55, 0.3),
        "power": (0.5, 0.5),
        "small": (0.5, 0.5),
        "large": (1.7, 0.4),
        "latency": (1.5, 0.5),
        "tp4": (1.2, 0.2),
        "tp8": (0.9, 0.25),
    },
}

# ``expert_hopper``: grouped kernels of 2024 used Ampere's matrix instructions, which reach 0.63 of
# Hopper's rate (arXiv 2402.13499, recalled). ``sequence_ampere``: the hosts of A100 machines (EPYC
# of 2019) against those of H100 machines, whose single threads are about 1.5 times as fast
# (recalled). ``block_bytes_s``: NCCL's tuning counts 24 GB/s per block and channel on Ampere
# (``graph/tuning.cc``, recalled).
ENGINES: dict[str, dict[str, Prior]] = {
    STATIC: {
        "kv_bandwidth": (0.8, 0.3),
        "kv_8bit": (1.0, 0.2),
        "kv_single": (1.2, 0.2),
        "head_arithmetic": (0.0105, 0.4),
        "walk_s": (5e-9, 0.5),
        "allreduce_s": (8e-6, 0.5),
        "block_bytes_s": (24e9, 0.3),
        "layer_s": (40e-6, 0.5),
        "step_s": (0.3e-3, 0.7),
        "sequence_s": (7e-6, 0.5),
        "prefill_s": (1.3e-3, 0.5),
        "expert_spread": (0.004, 0.7),
        "expert_layer_s": (30e-6, 0.5),
        "expert_hopper": (0.63, 0.1),
    },
    NIM: {
        "kv_bandwidth": (0.8, 0.25),
        "kv_8bit": (1.0, 0.15),
        "head_arithmetic": (0.0105, 0.3),
        "head_8bit": (1.0, 0.2),
        "walk_s": (5e-9, 0.5),
        "allreduce_s": (11e-6, 0.5),
        "layer_s": (35e-6, 0.5),
        "step_s": (1.0e-3, 0.7),
        "sequence_s": (23e-6, 0.7),
        "sequence_ampere": (1.5, 0.3),
        "prefill_s": (2e-3, 0.7),
        "prefill_ranks_s": (2e-3, 0.7),
        "frontend_s": (1.5e-3, 0.5),
    },
    CURRENT: {
        "kv_bandwidth": (0.9, 0.06),
        "sequence_s": (6e-6, 0.3),
        "step_s": (0.6e-3, 0.2),
        "prefill_s": (0.5e-3, 0.3),
        "compute": (1.08, 0.08),
        "expert_compute": (1.0, 0.3),
    },
}

GELU_CHAIN = 18.0
"""Elements that GELU reads and writes per element in TensorRT-LLM's networks: ``gelu`` of its
``functional.py`` is 0.5·x·(tanh(c·(x + 0.044715·pow(x, 3))) + 1), eight operations on single
elements, two of which have two inputs that are tensors (10 read, 8 written). That TensorRT leaves
them apart, GPT-J in 16 bits shows on A100 and on H100."""

CONSTANT_ENGINES: dict[str, dict[str, float]] = {
    STATIC: {
        "expert_first": 1.0,
        "expert_memory": 1.0,
        "frontend_s": 0.0,
        "turnaround_s": 0.0,
        "gelu": GELU_CHAIN,
    },
    NIM: {
        "kv_single": 1.2,
        "expert_spread": 1.0,
        "expert_memory": 1.0,
        "turnaround_s": 1.6e-3,
        "stream_s": 75e-6,
        "gelu": GELU_CHAIN,
    },
    CURRENT: {
        "gelu": GELU_CHAIN,
        "kv_8bit": 1.0,
        "kv_single": 1.0,
        "head_arithmetic": 0.0,
        "walk_s": 0.0,
        "expert_spread": 1.0,
        "expert_memory": 1.0,
        "frontend_s": 2e-3,
        "turnaround_s": 0.0,
    },
}
"""Terms that no data here can tell, and ``expert_first``: in the static file's batches both choices
of a token are the same expert, as decode times below what two experts' bytes allow on five GPUs
show. 1.6 ms of serial turnaround is a study's value, and so are about 80 µs of NIM's front end per
streamed token (STEP_MODEL.md: a guess from rows above 9,500 tokens/s, which none here is)."""

TIED = {
    CURRENT: ("layer_s", "allreduce_s"),
    NIM: ("block_bytes_s", "expert_hopper", "expert_layer_s"),
}
"""Terms taken from another engine: what throughput alone cannot tell from a cost per step, and what
no row tells, from the static engine."""

IN_FLIGHT = "tensorrt-llm-0.10"
DERIVED: dict[str, tuple[str, dict[str, float]]] = {
    IN_FLIGHT: (STATIC, {"expert_first": 0.0, "expert_spread": 1.0, "frontend_s": 2e-3}),
}
"""Presets that no row is of, from which they are taken, and what differs. In-flight batching of
TensorRT-LLM 0.10 to 0.13 has the kernels and hosts of its static batches, behind a server, under
tokens that choose their experts apart. A study of open loops on such versions found TPOT within 10
% with the host terms of static batches, 20 to 30 % low with those of 0.15 (STEP_MODEL.md)."""

MEAN: dict[str, float] = {
    "compute_16": 0.72,
    "compute_8": 0.72,
    "memory_16": 0.78,
    "memory_8": 0.76,
    "attention": 1.0,
    "head_arithmetic": 1.0,
    "link": 1.0,
    "latency": 1.0,
    "watts_compute": 1.0,
    "watts_memory": 0.2,
}
"""The terms of a generation that nobody measured, about the mean of the measured ones, for a card
of 1 W per TFLOP/s and 0.2 W per GB/s."""

TRANSFERRED: dict[str, dict[str, float]] = {
    "Volta": {"compute_16": 0.6, "memory_16": 0.72, "memory_8": 0.72},
    "Turing": {"compute_16": 0.55, "memory_16": 0.72, "memory_8": 0.72},
    "Blackwell": {
        "compute_16": 0.6,
        "compute_8": 0.57,
        "memory_16": 0.74,
        "memory_8": 0.74,
        "attention": 0.85,
    },
    "Blackwell Ultra": {
        "compute_16": 0.6,
        "compute_8": 0.57,
        "memory_16": 0.74,
        "memory_8": 0.74,
        "attention": 0.85,
    },
    "CDNA3": {
        "compute_16": 0.42,
        "compute_8": 0.4,
        "memory_16": 0.72,
        "memory_8": 0.72,
        "attention": 0.7,
    },
    "CDNA4": {
        "compute_16": 0.5,
        "compute_8": 0.48,
        "memory_16": 0.72,
        "memory_8": 0.72,
        "attention": 0.7,
    },
    "Gaudi3": {"compute_16": 0.6, "compute_8": 0.55, "memory_16": 0.7, "memory_8": 0.7},
}
"""Of Blackwell, arithmetic is a study's. The bandwidth is what Llama 3.1 8B in 16 bits on one B200
leaves for its weights of 3.93 ms a token (vllm.ai/blog, 2026-04-22, vLLM 0.19.1), host terms taken
off; 8 bits are taken to reach as much."""

MEANT = {
    "Volta": "v100-sxm2-32gb",
    "Turing": "t4",
    "Blackwell": "b200-sxm-180gb",
    "Blackwell Ultra": "b300-sxm-270gb",
    "CDNA3": "mi300x",
    "CDNA4": "mi355x",
    "Gaudi3": "gaudi3",
}
"""The card whose efficiencies ``TRANSFERRED`` holds; those of others of its generation follow by
their watts."""

ORIGINS = {
    "Ampere": "efficiencies transferred from the Ampere GPUs that were measured (A100)",
    "Hopper": (
        "efficiencies transferred from the Hopper GPUs that were measured (H100, H200, GH200)"
    ),
    "Ada": "efficiencies transferred from the Ada GPUs that were measured (L40, L40S)",
    "Volta": "datasheet roofline with estimated efficiencies",
    "Turing": "datasheet roofline with estimated efficiencies",
    "Blackwell": "datasheet roofline with efficiencies that a study fitted to B200",
    "Blackwell Ultra": "datasheet roofline with efficiencies that a study fitted to B200",
    "CDNA3": (
        "datasheet roofline with estimated efficiencies (largest measured matrix rate 51 % of the"
        " datasheet's)"
    ),
    "CDNA4": (
        "datasheet roofline with estimated efficiencies (largest measured matrix rate 63 % of the"
        " datasheet's)"
    ),
    "Gaudi3": "datasheet roofline with estimated efficiencies",
}
"""What a prediction for an unmeasured GPU says about its numbers, by generation."""

SIBLINGS = {
    "a100-sxm-40gb": "a100-sxm-80gb",
    "a100-pcie-40gb": "a100-pcie-80gb",
    "a30-24gb": "a100-pcie-80gb",
    "a10-24gb": "a100-pcie-80gb",
    "h100-pcie-80gb": "h100-nvl-94gb",
    "h200-nvl-141gb": "h100-nvl-94gb",
    "gh200-144gb-hbm3e": "gh200-96gb-hbm3",
    "rtx-6000-ada": "l40s",
    "l20": "l40s",
    "l4": "l40s",
}
"""The measured GPU that an unmeasured one is most like: the same chip, or the same form factor and
power class."""

BRIDGELESS = ("a100-pcie-80gb",)
"""GPUs that can have NVLink bridges and had none where they were measured."""

READ_OFF = {"a10g-24gb": {"memory": 0.83}}
"""Corrections of GPUs to their generation that users' measurements tell, of which no row is fitted.
A10G, whose GDDR6 carries its own error correction: three models of 3B with vLLM and with
TensorRT-LLM, 16 batches of up to four, ask for 76 % of the datasheet's bandwidth from both engines
(Subrahmanyam2305/LLM-serve, 2026-11-28). A100 and its watts would have given 84 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Fitted terms as a vector of logarithms.

    Attributes:
        names: "group.name.term", or "shared.term".
        start, spread: float64 of the same length.
        base: the groups that hold all other terms; the constants and ties of this file if not
            given.
    """

    names: tuple[str, ...]
    start: NDArray[np.float64]
    spread: NDArray[np.float64]
    base: dict[str, Any] | None = None

    def free(self, engines: Iterable[str]) -> NDArray[np.int64]:
        """The places of the terms about which rows of these engines tell: all but those of other
        engines.
        """
        import numpy as np

        allowed = tuple(f"engines.{engine}." for engine in engines)
        return np.array(
            [
                i
                for i, n in enumerate(self.names)
                if not n.startswith("engines.") or n.startswith(allowed)
            ]
        )

    def only(self, engine: str) -> NDArray[np.int64]:
        """The places of the terms of one engine."""
        import numpy as np

        return np.array([i for i, n in enumerate(self.names) if n.startswith(f"engines.{engine}.")])

    def reaches(self, name: str, deployment: Deployment) -> bool:
        """Whether a term can change what the steps of a deployment take; terms that reach none in
        common are moved together.
        """
        group, _, rest = name.partition(".")
        owner, _, term = rest.rpartition(".")
        gpu, tp = deployment.gpu, deployment.parallelism.tp
        measured = (
            gpu.name
            if any(n.startswith(f"gpus.{gpu.name}.") for n in self.names)
            else SIBLINGS.get(gpu.name, "")
        )
        match group:
            case "architectures":
                return owner == gpu.arch
            case "gpus":
                return owner == measured
            case "links":
                return tp > 1 and owner == link_kind(
                    {"bridge": 0.0} if measured in BRIDGELESS else {}, gpu, tp
                )
            case "engines":
                preset = find_engine(deployment.engine).coefficients
                giver = DERIVED[preset][0] if preset in DERIVED else preset
                return owner == giver or (owner == STATIC and term in TIED.get(giver, ()))
        return True

    def terms(self, x: NDArray[np.float64]) -> dict[str, Any]:
        """The groups of terms that a vector stands for."""
        import numpy as np

        found = constants() if self.base is None else deepcopy(self.base)
        for name, value in zip(self.names, np.exp(x).tolist(), strict=True):
            group, _, rest = name.partition(".")
            if group == "shared":
                found["shared"][rest] = value
            else:
                owner, _, term = rest.rpartition(".")
                found[group].setdefault(owner, {})[term] = value
        engines = found["engines"]
        for taker, terms in (TIED if self.base is None else {}).items():
            engines[taker] |= {term: engines[STATIC][term] for term in terms}
        return with_derived(found) if self.base is None else found


def with_derived(terms: dict[str, Any]) -> dict[str, Any]:
    """The same groups, with the engines of ``DERIVED`` added."""
    engines: dict[str, dict[str, float]] = terms["engines"]
    return {
        **terms,
        "engines": {
            **engines,
            **{name: {**engines[giver], **own} for name, (giver, own) in DERIVED.items()},
        },
    }


def constants() -> dict[str, Any]:
    """The groups of terms with all that is not fitted."""
    return {
        "shared": dict(KINDS_OF_LAYERS),
        "architectures": {
            "*": dict(MEAN),
            **{name: {**values, **_watts(name)} for name, values in TRANSFERRED.items()},
        },
        "gpus": (
            {name: {"bridge": 0.0} for name in BRIDGELESS}
            | {name: dict(terms) for name, terms in READ_OFF.items()}
        ),
        "siblings": dict(SIBLINGS),
        "links": {"nvlink": {"latency": 1.0}},
        "engines": {name: dict(values) for name, values in CONSTANT_ENGINES.items()},
        "formats": {name: dict(values) for name, values in FORMATS.items()},
    }


def _watts(generation: str) -> dict[str, float]:
    """The watts per TFLOP/s and per GB/s of the card to which a generation's efficiencies
    belong.
    """
    gpu = find_gpu(MEANT[generation])
    if gpu.tdp_w is None:
        return {}
    return {
        "watts_compute": gpu.tdp_w / gpu.fp16_tflops,
        "watts_memory": gpu.tdp_w / gpu.memory_bandwidth_gb_s,
    }


def layout(measured: Iterable[tuple[str, str]]) -> Layout:
    """The terms that the first stage fits, given which GPUs were measured in which bits ("8" or
    "16").
    """
    import numpy as np

    priors: dict[str, Prior] = {f"shared.{term}": prior for term, prior in SHARED.items()}
    for group, named in (("architectures", GENERATIONS), ("links", LINKS), ("engines", ENGINES)):
        priors |= {
            f"{group}.{name}.{term}": prior
            for name, terms in named.items()
            for term, prior in terms.items()
        }
    for gpu, bits in sorted(set(measured)):
        priors |= {f"gpus.{gpu}.{term}": prior for term, prior in OF_GPU.items()}
        priors |= {f"gpus.{gpu}.{term}_{bits}": prior for term, prior in OF_GPU_BITS.items()}
    start, spread = (np.array([prior[i] for prior in priors.values()]) for i in (0, 1))
    return Layout(names=tuple(priors), start=np.log(start), spread=spread)
