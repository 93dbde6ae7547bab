"""What the host does for a step and for a request: scheduling, launching kernels, and the front
end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.perf import step_terms as at
from tonnage.perf.matrices import scaled_by_blocks
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.entries import host_cpus
from tonnage.spec.layers import WITH_LATENT, WITH_STATE

if TYPE_CHECKING:
    from tonnage.perf.terms_file import Group, TermGroups
    from tonnage.spec.deployment import Deployment, EngineKnobs
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision

BITS_4, BITS_8, BITS_16 = 4, 8, 16

CHOOSING = {"sparse-latent": 1.0, "compressed": 1.3, "block-sparse": 0.4}
"""Kinds of layers that choose or compress what they attend to, and what that launches relative to
an indexer of tokens.

An indexer adds about twelve kernels to those of attention and MLP: three matrices, a norm,
rotations, narrowing, its cache, scores, the choice and its addresses. Compressed attention has six
more in every layer and five more with the indexer, which is in half of its layers. Choosing blocks
takes five, as the index heads are part of the matrix of queries and keys. Counted in vLLM's model
files of DeepSeek V3.2, DeepSeek V4 and MiniMax M3 (recalled): estimates, and of blocks no row
tells."""

WITH_INDEXER = tuple(CHOOSING)

STREAMS_S = 31e-6
"""Seconds that hyper-connections take in a layer, whatever the engine: 34 µs on B200 and 29 on
H200, timed alone (source as of ``coefficients/kernels.json``)."""

SPARSE_LATENT = ("sparse-latent", "compressed")
"""Kinds that launch the kernels of latent attention, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTerms:
    """Seconds of the host; all are fitted."""

    # layers_s, step_s, sequence_s, prefill_s: for all layers, per step, per sequence of a step, and
    # per step with prefill
    layers_s: float
    step_s: float
    sequence_s: float
    prefill_s: float
    schedule_s: float  # to schedule a step where that does not overlap with the step before
    launch_s: float  # to launch the kernels of a step with prefill one by one
    # what such a step takes longer per layer, and for what latent attention and layers with a state
    # launch
    eager_s: float
    frontend_s: float  # see ``StepModel``
    # least_s, least_sequence_s: least duration of a step, and per sequence, for a slower host than
    # the measured ones, else 0
    least_s: float = 0.0
    least_sequence_s: float = 0.0
    pieces_s: float = 0.0  # least duration of a step whose graphs end before attention


def host_terms(groups: TermGroups, model: Model, precision: Precision, tp: int) -> HostTerms:
    """The host's terms for a model, in a precision as the GPU executes it.

    What a host does while nothing runs on the GPU takes as much longer as its cores are slower.
    What it does for the next step meanwhile is hidden until that alone takes longer than the step.
    """
    engine, kernels, launch = groups.engine, groups.kernels, groups.generation.get("launch", 1.0)
    slower = 1.0 / groups.gpu.host_speed
    layers_s = (
        _layer_s(groups, model, precision)
        * _launched_layers(groups, model)
        * groups.generation.get("layer", 1.0)
    )
    layers_s += STREAMS_S * model.layers if model.residual_streams > 1 else 0.0
    sequence_s = (
        engine["sequence_s"]
        * engine.get(f"sequence_{kernels}", 1.0)
        * groups.generation.get("sequence", 1.0)
    )
    return HostTerms(
        layers_s=layers_s,
        step_s=engine["step_s"],
        schedule_s=engine.get("schedule_s", 0.0) * slower,
        sequence_s=sequence_s,
        prefill_s=(engine["prefill_s"] + (engine.get("prefill_ranks_s", 0.0) if tp > 1 else 0.0))
        * slower,
        launch_s=engine.get("launch_layer_s", 0.0)
        * engine.get(f"launch_layer_{kernels}", 1.0)
        * launch
        * model.layers
        * slower,
        eager_s=(
            _eager_s(groups, model) * launch + engine.get("prefill_layer_s", 0.0) * model.layers
        )
        * slower,
        frontend_s=engine["frontend_s"] * slower,
        least_s=(engine["step_s"] + layers_s) * slower if slower > 1.0 else 0.0,
        least_sequence_s=sequence_s * slower if slower > 1.0 else 0.0,
        pieces_s=engine.get("piece_layer_s", 0.0) * model.layers * slower,
    )


def _eager_s(groups: TermGroups, model: Model) -> float:
    """Seconds that a step with prefill takes longer for what latent attention, and a scan over the
    states of a prompt, launch.
    """
    seconds_by_kind = dict.fromkeys(WITH_LATENT, groups.engine.get("latent_prefill_s", 0.0))
    seconds_by_kind |= dict.fromkeys(WITH_STATE, groups.shared.get("state_prefill_s", 0.0))
    return sum(
        layer_group.layers * seconds_by_kind.get(layer_group.mixer.kind, 0.0)
        for layer_group in model.by_kind
    )


def _launched_layers(groups: TermGroups, model: Model) -> float:
    """Layers of attention and MLP that take as long to launch as the model's do; where a layer is
    one or the other, it is half of one.
    """
    shared, latent = groups.shared, groups.engine.get("latent_layer", 1.0)
    launches = {"latent": latent, **dict.fromkeys(WITH_STATE, shared["state_layer"])}
    choosing = {
        kind: 1.0 + share * (shared["sparse_layer"] - 1.0) for kind, share in CHOOSING.items()
    }
    launches |= {
        kind: layer * (latent if kind in SPARSE_LATENT else 1.0) for kind, layer in choosing.items()
    }
    launched: float = sum(
        layer_group.layers * launches.get(layer_group.mixer.kind, 1.0)
        for layer_group in model.by_kind
    )
    halves = model.mixing_layers + model.inner_layers
    return (
        launched
        if halves == 2 * model.mixing_layers
        else launched * halves / 2 / model.mixing_layers
    )


def _layer_s(groups: TermGroups, model: Model, precision: Precision) -> float:
    """Seconds to launch a layer, with the kernels that narrow its activations and the kernels that
    normalise query and key heads.

    Kernels that narrow to 4 bits or scale by blocks are fused with fewer of their neighbours than
    kernels that narrow to 8 bits, and some attention kernels have queries, keys and values narrowed
    before them for a cache of 8 bits.
    """
    engine = groups.engine
    narrow = engine.get("layer_narrow_s", 0.0) if precision.activation_bits < BITS_16 else 0.0
    if precision.activation_bits == BITS_4 and not (precision.experts_only and model.is_moe):
        narrow += engine.get("layer_fp4_s", 0.0)
    if scaled_by_blocks(model, precision):
        narrow += engine.get("layer_blocks_s", 0.0) * groups.generation.get("blocks", 1.0)
    if precision.kv_bits == BITS_8:
        narrow += engine.get(f"layer_kv_8bit_{groups.kernels}_s", 0.0)
    return (
        engine["layer_s"] + narrow + (engine.get("layer_norms_s", 0.0) if model.head_norms else 0.0)
    )


def add_host(c: list[float], terms: HostTerms, knobs: EngineKnobs | None) -> None:
    """Put the host's work into a coefficient array, and by the knobs scheduling that overlaps with
    no step and CUDA graphs.
    """
    c[at.HOST_STEP] = terms.step_s + terms.layers_s
    c[at.HOST_SEQUENCE] += terms.sequence_s
    c[at.LAUNCHES] = terms.launch_s
    # where it was fitted, no CUDA graph held a step with prefill
    c[at.EAGER] = terms.eager_s + terms.prefill_s
    c[at.HOST_LEAST_SEQUENCE] = terms.least_sequence_s
    if knobs is not None:
        c[at.HOST_STEP] += 0.0 if knobs.overlap_schedule else terms.schedule_s
        c[at.GRAPHED_TO] = float(knobs.graph_tokens)
        c[at.HOST_LEAST] = (
            max(terms.least_s, terms.pieces_s) if knobs.piecewise_graphs else terms.least_s
        )


def responding_s(engine: Group, sequence_s: float) -> float:
    """Seconds per sequence and step, out of ``sequence_s``, in which the engine hands tokens to the
    front end.

    They are what the engine spends beyond what it needs when called from its own process. A mixture
    of experts, whose steps hide more of the host's work, may spend nothing beyond that.
    """
    if "response_s" not in engine:
        return 0.0
    return max(sequence_s - (engine["sequence_s"] - engine["response_s"]), 0.0)


def front_end_s(deployment: Deployment) -> dict[str, float]:
    """``enter_s``, ``enter_token_s`` and ``stream_step_s`` of ``StepModel`` for one attention rank;
    empty where they are not known.

    Several front ends share the requests evenly, as in ``streaming_s``. Each takes up the tokens of
    every rank's step.
    """
    measured = find_engine(deployment.engine).front_end
    if measured is None:
        return {}
    ranks, front_ends = deployment.parallelism.dp, deployment.knobs.front_ends
    second = 1e-6 * host_cpus()[measured.cpu].speed / deployment.gpu.host_speed
    entering = second * ranks / front_ends
    return {
        "enter_s": measured.enter_us * entering,
        "enter_token_s": measured.enter_token_us * entering,
        "stream_step_s": measured.step_us * second * ranks,
    }


def streaming_s(engine: Group, deployment: Deployment) -> float:
    """Seconds of the front ends per sequence and step of one attention rank.

    They serve all ranks together, ``stream_interval`` tokens at once. Several share the sequences
    evenly, so that those of a rank pass them as they would pass one that is so many times as fast.
    """
    stream_s = engine.get("stream_s", 0.0) / deployment.gpu.host_speed
    return (
        stream_s
        * deployment.parallelism.dp
        / (deployment.knobs.stream_interval * deployment.knobs.front_ends)
    )
