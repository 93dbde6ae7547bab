"""The terms that the points of 2026 move: what AMD's generations and newer kinds of layers reach,
and AMD's own engine.

A term of a generation of AMD is what it was before, times what all of AMD share, times the
generation's own correction. The two are believed to be alike in size: what one generation shows is
half taken for AMD's, and a generation without points is halfway between that and a GPU of NVIDIA. A
newer kind of layer has one efficiency for all models and engines. All older terms are held.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.spec.catalog import find_engine
from tools.fit.formats import FORMATS
from tools.fit.terms import KINDS_OF_LAYERS, Layout, Prior, constants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Deployment

Terms = dict[str, Any]

KINDS: dict[str, float] = {
    "sparse_layer": 0.4,
    "state_layer": 0.4,
    "gathered": 0.5,
    "index": 0.5,
    "scan": 0.7,
    "state_bandwidth": 0.3,
    "state_prefill_s": 0.7,
}
"""The spread of the efficiencies of the newer kinds of layers."""

VENDOR: dict[str, float] = {
    "compute_8": 0.3,
    "compute_16": 0.3,
    "memory_8": 0.15,
    "memory_16": 0.15,
    "attention": 0.4,
    "kv": 0.3,
    "layer": 0.4,
    "sequence": 0.5,
    "expert_compute": 0.5,
    "expert_memory": 0.2,
    "latency": 0.7,
    "link": 0.4,
    "blocks": 1.0,
    "launch": 0.7,
}
"""The spread of what all generations of AMD share, relative to what a datasheet's estimate or an
engine on NVIDIA gives."""

OWN: dict[str, float] = {
    term: VENDOR[term]
    for term in ("compute_8", "memory_8", "layer", "kv", "expert_memory", "latency", "blocks")
}
"""The spread of a generation's own correction: that of what both share."""

GENERATIONS = ("CDNA3", "CDNA4")
GIVER = "sglang-0.5.9"
ENGINE, ENGINE_OWN = (
    "atom",
    {
        "layer_s": 0.2,
        "sequence_s": 0.3,
        "kv_bandwidth": 0.15,
        "expert_compute": 0.3,
        "expert_memory": 0.1,
    },
)
"""AMD's engine, and the spread of its corrections to the terms that it starts from."""

EARLIER, EARLIER_OWN = ("vllm-0.10", "vllm-0.12"), {"compute": 0.5, "compute_4": 0.5}
"""Versions of 2025, and the spread of what their matrix products reached on all of AMD, relative to
the newest; in 4 bits apart, as Llama 3.3 70B took as long a token in them as in 8."""
EARLIER_KEYS = {
    "compute_cdna3": "compute",
    "compute_cdna4": "compute",
    "compute_cdna4_mxfp4": "compute_4",
}

OF_FP4, FP4_OWN = "mxfp4 CDNA4", {"compute": 0.2, "expert_compute": 0.3}
"""The format that CDNA4 multiplies at twice the rate of FP8, and the spread of what matrices and
those of experts reach of that. Where it is as fast as FP8, an engine's experts gain what they do
over dense matrices (``expert_compute_mxfp4``); here dense ones gain too."""

ULTRA, ULTRA_OWN = "Blackwell Ultra", {"layer": 0.1}
"""The generation that takes Blackwell's terms, and the spread of its own: kernels that start sooner
on later boards and hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernLayout(Layout):
    """These terms as a vector of logarithms, over other terms that stay as they are."""

    def terms(self, x: NDArray[np.float64]) -> Terms:
        """The groups of ``perf.terms`` for a vector."""
        found = deepcopy(self.base or {})
        value = dict(zip(self.names, np.exp(x).tolist(), strict=True))
        found["shared"] |= {term: found["shared"][term] * value[f"kinds.{term}"] for term in KINDS}
        for generation in GENERATIONS:
            own = found["architectures"][generation]
            common = found["architectures"]["*"]
            for term in VENDOR:
                before = own.get(term, common.get(term, 1.0))
                own[term] = before * value[f"AMD.{term}"] * value.get(f"{generation}.{term}", 1.0)
        engine = found["engines"][ENGINE]
        engine |= {term: engine[term] * value[f"{ENGINE}.{term}"] for term in ENGINE_OWN}
        for version in EARLIER:
            found["engines"][version] |= {
                key: value[f"earlier.{term}"] for key, term in EARLIER_KEYS.items()
            }
        form, generation = OF_FP4.split()
        gain = found["formats"][OF_FP4]["compute"]
        found["formats"][OF_FP4]["compute"] = gain * value[f"{OF_FP4}.compute"]
        found["architectures"][generation][f"expert_compute_{form}"] = (
            value[f"{OF_FP4}.expert_compute"] / gain
        )
        found["architectures"][ULTRA] |= {term: value[f"{ULTRA}.{term}"] for term in ULTRA_OWN}
        return found

    def reaches(self, name: str, deployment: Deployment) -> bool:
        """Whether a term can change what the steps of a deployment take."""
        owner, arch = name.partition(".")[0], deployment.gpu.arch
        preset, of_amd = find_engine(deployment.engine).coefficients, arch in GENERATIONS
        if owner in (ENGINE, "earlier"):
            return preset == ENGINE if owner == ENGINE else of_amd and preset in EARLIER
        if owner == OF_FP4:
            return f"{deployment.precision.weight_format} {arch}" == OF_FP4
        return of_amd if owner == "AMD" else owner not in (*GENERATIONS, ULTRA) or owner == arch


def modern_layout(terms: Terms) -> ModernLayout:
    """The terms that the stage moves. They start at estimates, and AMD's engine at the terms of the
    newest SGLang.
    """
    base = {
        group: deepcopy(values)
        for group, values in terms.items()
        if group not in ("origins", "report")
    }
    fresh = constants()
    base["shared"] |= KINDS_OF_LAYERS
    base["architectures"] |= {
        generation: fresh["architectures"][generation] for generation in GENERATIONS
    }
    base["engines"][ENGINE] = deepcopy(base["engines"][GIVER])
    base["formats"][OF_FP4] = dict(FORMATS[OF_FP4])
    spreads = {f"kinds.{term}": spread for term, spread in KINDS.items()} | {
        f"AMD.{term}": spread for term, spread in VENDOR.items()
    }
    spreads |= {
        f"{generation}.{term}": spread for generation in GENERATIONS for term, spread in OWN.items()
    }
    spreads |= {f"{ENGINE}.{term}": spread for term, spread in ENGINE_OWN.items()}
    spreads |= {f"earlier.{term}": spread for term, spread in EARLIER_OWN.items()}
    spreads |= {f"{OF_FP4}.{term}": spread for term, spread in FP4_OWN.items()}
    spreads |= {f"{ULTRA}.{term}": spread for term, spread in ULTRA_OWN.items()}
    priors: dict[str, Prior] = {name: (1.0, spread) for name, spread in spreads.items()}
    start, spread = (np.array([prior[i] for prior in priors.values()]) for i in (0, 1))
    return ModernLayout(names=tuple(priors), start=np.log(start), spread=spread, base=base)
