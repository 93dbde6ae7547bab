"""What a mixture of experts adds to a step: its matrices, the copies of its tokens, and the tokens' way to their experts.

Each rank of data-parallel attention (``Parallelism.dp``) brings T tokens to a step, so that dp · T tokens choose experts together; where
ranks bring different numbers, T is the mean (``share`` of ``step_seconds``). Of E experts of which a token chooses k, those that no token
chose are not read. With random choices the expected touched share after t tokens is 1 − (1 − k/E)^t; with choices that resemble each
other (``spread`` below 1) it is less. The experts of one of the ``ep`` groups are at times touched more than the mean, and the step waits
for the fullest group: with n = E/ep experts in each, the counts are binomial, and the largest of ep such counts lies some standard
deviations above the mean (``largest_of``, ``EXPERT_UNEVEN``). Routers also favour some experts, so that the arithmetic and the
copies of tokens on the fullest GPU are ``skew`` above the mean per doubling of ``ep``.

The experts' matrices are kernels of their own: their arithmetic and reading are joined apart from those of the dense matrices.

With tensor parallelism alone the experts' outputs are summed by the all-reduce of ``links``. With data-parallel attention,
tokens travel to the GPUs of their experts and back: one dispatch and one combine per layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from tonnage.perf import step_terms as at
from tonnage.perf.formats import format_name
from tonnage.perf.links import dispatch_terms

if TYPE_CHECKING:
    from tonnage.perf.terms_file import TermGroups
    from tonnage.spec.deployment import Parallelism
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision

TOKEN_BYTES = 2.0
"""Bytes of one element of a token that is sent to its experts; engines that dispatch in FP8 save half of one direction."""

NARROW, WIDE = 2_880, 14_336
"""Inner width of the widest experts that current engines are fitted on (gpt-oss), and of Mixtral 8x7B's."""

SKEW = 0.05
"""How far the fullest GPU's tokens are above the mean per doubling of ``ep``, as a share; an estimate for engines without rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTerms:
    """Efficiencies and times of the experts; all are fitted or neutral.

    Attributes:
        compute, memory: share of rate and bandwidth that expert matrices reach, relative to dense ones.
        spread: how independent the tokens' choices of experts are: 0 if all tokens choose alike, 1 if they choose at random.
        first: experts that one token touches; 0 means as many as it chooses.
        rows: passes through memory of every token's copy for each of its experts.
        layer_s: seconds per step that a layer of experts takes longer than a dense one (router, sorting, launches); may be negative.
        each_s: seconds per step that each expert of a layer adds.
        sequence_s: host seconds per sequence beyond those of a dense model; may be negative.
        prefill_s: seconds that a layer of experts takes longer still in a step with prefill.
        skew: how far the fullest GPU is above the mean per doubling of ``ep``.
        dispatch_s: latency of one dispatch or combine.
        dispatch_bytes_s: bytes/s per GPU and direction that they reach.
    """

    compute: float
    memory: float
    spread: float
    first: float = 0.0
    rows: float = 0.0
    layer_s: float = 0.0
    each_s: float = 0.0
    sequence_s: float = 0.0
    prefill_s: float = 0.0
    skew: float = SKEW
    dispatch_s: float = 0.0
    dispatch_bytes_s: float = math.inf


def expert_terms(groups: TermGroups, model: Model, precision: Precision, gpus: int) -> ExpertTerms:
    """The terms of experts of an engine on a GPU, in a precision as the GPU executes it, over the ``gpus`` of an instance.

    What a generation saves per layer are kernels that fuse a layer of experts in its own formats, but for a format of which the
    engine says otherwise. Weights that are unpacked to 16 bits go through the kernels of every generation (Marlin, Triton).
    """
    engine, kernels, form = groups.engine, groups.kernels, format_name(precision)
    saved = engine.get(f"expert_layer_{kernels}_{form}", engine.get(f"expert_layer_{kernels}", 1.0))
    layer = engine.get("expert_layer", 1.0) * (1.0 if precision.unpacked else saved)
    any_width = groups.shared["expert_compute"] * engine.get(f"expert_{kernels}", 1.0) * groups.generation.get("expert_compute", 1.0)
    any_width *= groups.generation.get(f"expert_compute_{form}", 1.0)
    narrow = any_width * engine.get("expert_compute", 1.0) * engine.get(f"expert_compute_{form}", 1.0)
    wide = engine.get("expert_compute_wide")
    dispatch_s, dispatch_bytes_s = dispatch_terms(groups, gpus)
    return ExpertTerms(
        compute=narrow if wide is None else by_width(narrow, any_width * wide, model.ffn),
        memory=engine["expert_memory"] * engine.get(f"expert_memory_{form}", 1.0) * groups.generation.get("expert_memory", 1.0),
        spread=engine["expert_spread"],
        rows=engine.get("expert_rows", 0.0),
        layer_s=(engine["layer_s"] * (layer - 1.0) + engine.get("expert_layer_s", 0.0)) * groups.generation.get("layer", 1.0),
        each_s=engine.get("expert_each_s", 0.0),
        sequence_s=engine["sequence_s"] * (engine.get("expert_sequence", 1.0) - 1.0) * groups.generation.get("sequence", 1.0),
        prefill_s=engine.get("expert_prefill_s", 0.0),
        first=engine.get("expert_first", 0.0),
        skew=engine.get("expert_skew", SKEW),
        dispatch_s=dispatch_s,
        dispatch_bytes_s=dispatch_bytes_s,
    )


def by_width(narrow: float, wide: float, width: int) -> float:
    """The share of dense arithmetic that experts of an inner width reach, interpolated between narrow and wide experts.

    Current engines are fitted on experts up to ``NARROW`` wide, whose matrices are too small to fill a GPU. Experts
    of ``WIDE`` and more reach what Mixtral's do; between the two the logarithm is interpolated.
    """
    share = min(max(math.log(width / NARROW) / math.log(WIDE / NARROW), 0.0), 1.0)
    return narrow if share == 0.0 else narrow ** (1.0 - share) * wide**share


def add_experts(
    c: list[float],
    *,
    terms: ExpertTerms,
    model: Model,
    precision: Precision,
    parallelism: Parallelism,
    flops_s: float,
    bytes_s: tuple[float, float],
) -> None:
    """Put the experts into a coefficient array.

    Args:
        c: the array, with the dense matrices already in it.
        flops_s: FLOP/s that dense matrices reach on the GPUs of a rank.
        bytes_s: bytes/s of one GPU's memory by the datasheet, and the share that dense weights reach.
    """
    dp, ep = parallelism.dp, parallelism.ep
    bandwidth, memory = bytes_s
    fullest = 1.0 + terms.skew * math.log2(ep)
    chosen = model.experts_per_token * model.expert_parameters
    c[at.EXPERT_FLOPS] = fullest * (2 * chosen / (flops_s * terms.compute))
    reached = bandwidth * min(memory * terms.memory, 1.0)
    c[at.EXPERT_BYTES] = model.experts * model.expert_parameters * precision.weight_bytes / (parallelism.stage_gpus * reached)
    miss = 1.0 - model.experts_per_token / model.experts
    c[at.EXPERT_MISS] = miss**terms.spread
    c[at.EXPERT_REST] = (1.0 - (terms.first or model.experts_per_token) / model.experts) / c[at.EXPERT_MISS]
    c[at.EXPERT_MISS] **= dp
    c[at.EXPERT_UNEVEN] = largest_of(ep) * math.sqrt(ep / model.experts)
    layers = model.expert_layers
    copies = fullest * dp * model.experts_per_token / ep
    c[at.ACTIVATION] += terms.rows * TOKEN_BYTES * layers * model.expert_width * copies / bandwidth
    c[at.HOST_STEP] += (terms.layer_s + terms.each_s * model.experts) * layers
    c[at.HOST_SEQUENCE] += terms.sequence_s
    c[at.HOST_PREFILL] += terms.prefill_s * layers


def add_dispatch(c: list[float], terms: ExpertTerms, model: Model, parallelism: Parallelism) -> None:
    """Put dispatch and combine into a coefficient array; each GPU of a rank sends its share of the rank's tokens."""
    layers = model.expert_layers
    sent = TOKEN_BYTES * model.expert_width * remote_copies(model, parallelism) / parallelism.tp
    for once, each in at.MESSAGES:
        c[once] += 2 * layers * terms.dispatch_s
        c[each] += 2 * layers * sent / terms.dispatch_bytes_s


def largest_of(count: int) -> float:
    """Expected largest of ``count`` standard normal draws (Blom, Statistical Estimates and Transformed Beta-Variables, 1958)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def remote_copies(model: Model, parallelism: Parallelism) -> float:
    """Mean number of other GPUs that a token is sent to: the GPUs of the groups that hold one of its experts."""
    ep, gpus = parallelism.ep, parallelism.stage_gpus
    groups = ep * (1.0 - (1.0 - 1.0 / ep) ** model.experts_per_token)
    return groups * parallelism.moe_tp * (1.0 - 1.0 / gpus)
