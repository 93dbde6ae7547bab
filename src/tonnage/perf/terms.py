"""From a deployment to its step model: fitted terms times what the datasheets and the model's sizes say.

The terms lie in ``coefficients/terms.json`` in groups. ``shared`` holds for everything,
``architectures`` for a GPU generation, ``gpus`` are corrections to the generation (a GPU without
measurements has those of the measured one that ``siblings`` names, or none, and so gets its
generation's mean), ``links`` for NVLink and PCIe, and ``engines`` for one engine generation each:
host terms, decode attention, all-reduce latency. ``formats`` says what a number format reaches of the
efficiencies (``perf.formats``).

Sources: the form is DESIGN §5 with what ``tools/fit/fit.py`` found; the numbers are fitted there.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataError
from tonnage.perf import step_terms as at
from tonnage.perf.attention import add_attention
from tonnage.perf.calibrated_terms import calibration_mark, overlaid
from tonnage.perf.drafting import MARK as DRAFTING_MARK
from tonnage.perf.drafting import drafting
from tonnage.perf.efficiencies import Terms
from tonnage.perf.experts import SKEW, ExpertTerms, add_dispatch, add_experts, by_width
from tonnage.perf.external.measured_steps import reduction, source_mark
from tonnage.perf.formats import fitted_bits, format_mark, format_name, matrix_rate, shares
from tonnage.perf.links import ACTIVATION_BYTES, add_communication, below_change, link_bytes_s, link_kind, small_message_bytes, wire_bytes_s
from tonnage.perf.step import StepModel
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Parallelism

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment, EngineKnobs
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision

Group = dict[str, dict[str, float]]

BITS_4, BITS_8, BITS_16 = 4, 8, 16

BYTES_16 = 2.0
"""Bytes of one weight of the output head, and of others that engines keep in 16 bits."""

GELU = 2.0
"""Elements that a kernel of its own for GELU reads and writes per element, where an engine's terms do not say otherwise."""

GRACE_W = 250.0
"""Watts of a Grace Hopper module that its CPU and the CPU's memory can take (recalled)."""


def step_model(deployment: Deployment) -> StepModel:
    """What one step of the deployment costs.

    Raises:
        DataError: the coefficients that the package ships are damaged, or hold no terms of the engine.
        InputError: the deployment's ``step_source`` has no step times of it.
    """
    import numpy as np

    preset = find_engine(deployment.engine).coefficients
    split = deployment.parallelism
    drafted = drafting(deployment, lambda model: _drafter(deployment, model))
    if deployment.step_source is not None:
        engine = _engine(_terms_of(deployment), preset)
        array, stream_s = reduction(deployment).coefficients, streaming_s(engine, deployment)
        return StepModel(coefficients=array, frontend_s=engine["frontend_s"], drafting=drafted, stream_s=stream_s)
    groups = _terms_of(deployment)
    terms = resolve(groups, deployment.model, deployment.gpu, deployment.precision, split, preset)
    engine = _engine(groups, preset)
    array = np.array(coefficients(terms, deployment.model, deployment.gpu, deployment.precision, split, deployment.knobs))
    return StepModel(
        coefficients=array,
        frontend_s=terms.frontend_s,
        drafting=drafted,
        stream_s=streaming_s(engine, deployment),
        response_s=responding_s(engine, float(array[at.HOST_SEQUENCE])),
    )


def responding_s(engine: dict[str, float], sequence_s: float) -> float:
    """Of the seconds that a deployment spends per sequence, those in which tokens are handed out.

    They are what it spends beyond the engine called in its own process; a mixture of experts, whose steps hide more of them, may
    spend no more than that.
    """
    if "response_s" not in engine:
        return 0.0
    return max(sequence_s - (engine["sequence_s"] - engine["response_s"]), 0.0)


def streaming_s(engine: dict[str, float], deployment: Deployment) -> float:
    """Seconds of the front end per sequence and step of one attention rank: it serves all ranks, a message of tokens at a time."""
    return engine.get("stream_s", 0.0) * deployment.parallelism.dp / deployment.knobs.stream_interval


def _drafter(deployment: Deployment, model: Model) -> list[float]:
    """The fitted coefficients of a model in the same place, without what the host does once per step, sequence and prefill."""
    preset, split = find_engine(deployment.engine).coefficients, deployment.parallelism
    placed = split if model.is_moe else Parallelism(tp=split.tp)
    terms = resolve(_terms_of(deployment), model, deployment.gpu, deployment.precision, placed, preset)
    alone = replace(terms, step_s=0.0, sequence_s=0.0, prefill_s=0.0, launch_s=0.0, eager_s=0.0)
    return coefficients(alone, model, deployment.gpu, deployment.precision, placed, deployment.knobs)


def client_turnaround_s(deployment: Deployment) -> float:
    """Seconds that a benchmark's client and the engine's front end take, one request after another, to start a request."""
    return _engine(_terms_of(deployment), find_engine(deployment.engine).coefficients)["turnaround_s"]


def _terms_of(deployment: Deployment) -> dict[str, Any]:
    """The shipped terms, with the deployment's calibration over them."""
    calibration = deployment.calibration
    return shipped() if calibration is None else overlaid(shipped(), calibration, deployment.gpu.name)


@cache
def shipped() -> dict[str, Any]:
    """The terms that the package ships: the content of ``coefficients/terms.json``.

    Raises:
        DataError: the file is missing or is no JSON.
    """
    file = resources.files("tonnage.perf") / "coefficients" / "terms.json"
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"perf/coefficients/terms.json: {error}; reinstall, or write it again with ./fit") from None
    return content


def coefficient_source(engine: str) -> str:
    """Where the coefficients of an engine come from: the file, its date and the data that its terms were fitted on."""
    preset = find_engine(engine).coefficients
    origins = shipped()["origins"]
    rows = origins["rows"].get(preset, "published start values")
    return f"perf/coefficients/terms.json of {origins['date']}, engine terms '{preset}': {rows}"


def _engine(terms: dict[str, Any], preset: str) -> dict[str, float]:
    try:
        engine: dict[str, float] = terms["engines"][preset]
    except KeyError:
        raise DataError(f"perf/coefficients/terms.json: no terms of the engine preset '{preset}'") from None
    return engine


def fitted_engine(preset: str, gpu: str) -> bool:
    """Whether an engine's terms were fitted to rows that cover this GPU; engines that name no GPUs hold for all."""
    if preset in shipped()["origins"]["engines"]:
        return False
    rows = shipped()["origins"].get("engine_rows", {}).get(preset)
    return rows is None or gpu in rows["gpus"]


def marks(deployment: Deployment) -> tuple[str, ...]:
    """In words, which numbers behind a prediction were not fitted to measurements of this GPU and engine; empty if all were."""
    if deployment.step_source is not None:
        return (source_mark(deployment),)
    terms = shipped()
    gpu, engine = deployment.gpu, find_engine(deployment.engine).coefficients
    precision = gpu.executes(deployment.precision)
    bits = fitted_bits(precision)
    found = []
    if f"compute_{bits}" not in terms["gpus"].get(gpu.name, {}):
        origin = terms["origins"]["architectures"].get(gpu.arch, "datasheet roofline with the mean efficiencies of all GPUs")
        if gpu.name in terms["siblings"]:
            origin = f"efficiencies transferred from {terms['siblings'][gpu.name]}"
        if gpu.name in terms["gpus"]:
            found.append(f"{gpu.name}: no {bits}-bit measurements; efficiency transferred from the {gpu.arch} generation")
        else:
            found.append(f"{gpu.name}: no measurements; {origin}")
    if engine in terms["origins"]["engines"]:
        found.append(f"{deployment.engine}: {terms['origins']['engines'][engine]}")
    elif not fitted_engine(engine, gpu.name):
        found.append(f"{deployment.engine}: {terms['origins']['engine_rows'][engine]['elsewhere']}")
    if deployment.model.latent is not None and engine not in terms["origins"].get("latent", ()):
        found.append(f"{deployment.model.name}: MLA priced by datasheet, not fitted")
    if deployment.speculation is not None:
        found.append(DRAFTING_MARK)
    if deployment.parallelism.further and engine not in terms["origins"].get("experts", {}):
        found.append(f"{deployment.engine}: expert parallelism and attention ranks priced by datasheet, not fitted")
    if unfitted := format_mark(precision, gpu, terms["origins"]["formats"]):
        found.append(unfitted)
    calibrated = calibration_mark(deployment, engine)
    if calibrated:
        found.append(calibrated)
    return tuple(found)


def resolve(terms: dict[str, Any], model: Model, gpu: Gpu, precision: Precision, parallelism: Parallelism, preset: str) -> Terms:
    """The terms of one deployment out of the groups.

    Raises:
        DataError: no terms of that engine preset.
    """
    precision, tp = gpu.executes(precision), parallelism.tp
    engine, shared, bits = _engine(terms, preset), terms["shared"], fitted_bits(precision)
    of_format = shares(terms["formats"], precision, gpu)
    generation: dict[str, float] = {**terms["architectures"]["*"], **terms["architectures"].get(gpu.arch, {})}
    own = _of_gpu(terms, gpu)

    def efficiency(kind: str, of_bits: str) -> float:
        value = generation[f"{kind}_{of_bits}"] * own.get(kind, 1.0) * own.get(f"{kind}_{of_bits}", 1.0)
        return value * engine.get(kind, 1.0) * engine.get(f"{kind}_{of_bits}", 1.0) * _power(gpu, generation, shared, kind)

    arch = _kernels_of(gpu)
    kv = engine["kv_bandwidth"] * (engine["kv_8bit"] * engine.get(f"kv_8bit_{arch}", 1.0) if precision.kv_bits == BITS_8 else 1.0)
    attention = shared["attention"] * generation["attention"] * engine.get("attention", 1.0)
    if model.latent is not None:
        kv *= engine.get("latent_bandwidth", 1.0)
        attention *= engine.get("latent_attention", 1.0)
    elif model.kv_heads == model.heads:
        kv *= engine["kv_single"]
    kind = link_kind(own, gpu, tp)
    link: dict[str, float] = terms["links"][kind]
    link_bytes = link_bytes_s(kind, gpu, tp) * own.get("link", 1.0)
    full_bytes_s = link_bytes * generation["link"]
    wire = wire_bytes_s(kind, gpu, tp)
    latency = engine["allreduce_s"] * link["latency"] * generation["latency"] * (tp - 1) ** link["power"]
    one_shot = kind == "nvlink" and "one_shot" in engine
    one_shot_tokens = engine.get("one_shot_tokens", 0.0) if one_shot else 0.0
    return Terms(
        compute=efficiency("compute", bits) * of_format.compute * _blocks(engine, model, precision),
        compute_16=efficiency("compute", "16"),
        memory=efficiency("memory", bits) * of_format.memory,
        memory_16=efficiency("memory", "16"),
        norm=shared["norm"],
        activation=shared["activation"],
        gelu=engine.get("gelu", GELU),
        attention=attention,
        kv_bandwidth=kv,
        head_arithmetic=_head_arithmetic(engine, generation, shared, model, precision),
        walk_s=engine["walk_s"],
        link_bytes_s=min(full_bytes_s * link["efficiency"] * link.get(f"tp{tp}", 1.0), wire),
        slow_bytes_s=min(full_bytes_s * link["efficiency"] * below_change(link, kind, tp), wire),
        small_bytes_s=min(link_bytes * engine["one_shot"] if one_shot else full_bytes_s * link["small"], wire),
        small_bytes=0.0 if one_shot_tokens else small_message_bytes(kind, tp),
        one_shot_tokens=one_shot_tokens,
        small_s=latency,
        large_s=latency * link["large"],
        block_bytes_s=engine.get("block_bytes_s", 0.0) if kind == "nvlink" else 0.0,
        layer_s=_layer_s(engine, model, precision, arch) * (engine.get("latent_layer", 1.0) if model.latent is not None else 1.0),
        step_s=engine["step_s"] + engine.get("schedule_s", 0.0),
        sequence_s=engine["sequence_s"] * engine.get(f"sequence_{arch}", 1.0),
        prefill_s=_prefill_s(engine, model, tp),
        experts=_experts(engine, shared, model, gpu, precision, _dispatch(terms, generation, engine, gpu, parallelism)),
        launch_s=engine.get("launch_layer_s", 0.0) * engine.get(f"launch_layer_{arch}", 1.0) * model.layers,
        eager_s=engine.get("latent_prefill_s", 0.0) * model.layers if model.latent is not None else 0.0,
        frontend_s=engine["frontend_s"],
    )


def _kernels_of(gpu: Gpu) -> str:
    """The generation in the names of engine terms: Blackwell Ultra runs the kernels of Blackwell."""
    return gpu.arch.split()[0].lower()


def _blocks(engine: dict[str, float], model: Model, precision: Precision) -> float:
    """Share of a matrix rate that FP8 with a scale per block of 128 × 128 weights reaches: sums of 128 products are scaled one by one."""
    return engine.get("compute_blocks", 1.0) if _scaled_by_blocks(model, precision) else 1.0


def _scaled_by_blocks(model: Model, precision: Precision) -> bool:
    return model.block_fp8 and precision.arithmetic == "fp8" and not precision.unpacked


def _power(gpu: Gpu, generation: dict[str, float], shared: dict[str, float], kind: str) -> float:
    """What the board's power limit leaves of an efficiency.

    It is relative to a card of ``watts_compute`` watts per TFLOP/s, or of ``watts_memory`` watts per GB/s. The same chip under
    a lower limit clocks lower, so that cards with few watts for their datasheet rates reach less of them. Power grows as the
    cube of the clock: an exponent of a third is expected of arithmetic.
    """
    if gpu.tdp_w is None:
        return 1.0
    watts = gpu.tdp_w - (GRACE_W if gpu.name.startswith("gh200") else 0.0)
    rate = gpu.fp16_tflops if kind == "compute" else gpu.memory_bandwidth_gb_s
    factor: float = (watts / rate / generation[f"watts_{kind}"]) ** shared[f"power_{kind}"]
    return factor


def _experts(
    engine: dict[str, float],
    shared: dict[str, float],
    model: Model,
    gpu: Gpu,
    precision: Precision,
    dispatch: tuple[float, float],
) -> ExpertTerms:
    """The terms of experts of an engine on a GPU, in a precision as the GPU executes it.

    What a generation saves per layer are kernels that fuse a layer of experts in its own formats, but for a format of which the
    engine says otherwise. Weights that are unpacked to 16 bits go through the kernels of every generation (Marlin, Triton).
    """
    arch, form = _kernels_of(gpu), format_name(precision)
    saved = engine.get(f"expert_layer_{arch}_{form}", engine.get(f"expert_layer_{arch}", 1.0))
    layer = engine.get("expert_layer", 1.0) * (1.0 if precision.unpacked else saved)
    any_width = shared["expert_compute"] * engine.get(f"expert_{arch}", 1.0)
    narrow = any_width * engine.get("expert_compute", 1.0) * engine.get(f"expert_compute_{form}", 1.0)
    wide = engine.get("expert_compute_wide")
    return ExpertTerms(
        compute=narrow if wide is None else by_width(narrow, any_width * wide, model.ffn),
        memory=engine["expert_memory"] * engine.get(f"expert_memory_{form}", 1.0),
        spread=engine["expert_spread"],
        rows=engine.get("expert_rows", 0.0),
        layer_s=engine["layer_s"] * (layer - 1.0) + engine.get("expert_layer_s", 0.0),
        each_s=engine.get("expert_each_s", 0.0),
        sequence_s=engine["sequence_s"] * (engine.get("expert_sequence", 1.0) - 1.0),
        prefill_s=engine.get("expert_prefill_s", 0.0),
        first=engine.get("expert_first", 0.0),
        skew=engine.get("expert_skew", SKEW),
        dispatch_s=dispatch[0],
        dispatch_bytes_s=dispatch[1],
    )


def _dispatch(
    terms: dict[str, Any], generation: dict[str, float], engine: dict[str, float], gpu: Gpu, parallelism: Parallelism
) -> tuple[float, float]:
    """Latency and bandwidth of a dispatch over all GPUs of an instance: those of a large all-reduce, times the engine's ``dispatch``."""
    gpus = parallelism.stage_gpus
    kind = link_kind(_of_gpu(terms, gpu), gpu, gpus)
    link: dict[str, float] = terms["links"][kind]
    latency = engine["allreduce_s"] * link["latency"] * generation["latency"] * (gpus - 1) ** link["power"] * link["large"]
    bytes_s = link_bytes_s(kind, gpu, gpus) * generation["link"] * _of_gpu(terms, gpu).get("link", 1.0)
    reached = min(bytes_s * link["efficiency"] * link.get(f"tp{gpus}", 1.0), wire_bytes_s(kind, gpu, gpus))
    return latency * engine.get("dispatch", 1.0), reached


def _layer_s(engine: dict[str, float], model: Model, precision: Precision, arch: str) -> float:
    """Launches of a layer, with the kernels that narrow its activations and those that normalise query and key heads.

    What narrows to 4 bits is fused with fewer of its neighbours than what narrows to 8, so is what scales by blocks, and some kernels of
    attention have queries, keys and values narrowed before them for a cache of 8 bits.
    """
    narrow = engine.get("layer_narrow_s", 0.0) if precision.activation_bits < BITS_16 else 0.0
    if precision.activation_bits == BITS_4 and not (precision.experts_only and model.is_moe):
        narrow += engine.get("layer_fp4_s", 0.0)
    if _scaled_by_blocks(model, precision):
        narrow += engine.get("layer_blocks_s", 0.0)
    if precision.kv_bits == BITS_8:
        narrow += engine.get(f"layer_kv_8bit_{arch}_s", 0.0)
    return engine["layer_s"] + narrow + (engine.get("layer_norms_s", 0.0) if model.head_norms else 0.0)


def _prefill_s(engine: dict[str, float], model: Model, tp: int) -> float:
    """Host seconds of a step with prefill: per step, among several ranks, and per layer."""
    among_ranks = engine.get("prefill_ranks_s", 0.0) if tp > 1 else 0.0
    return engine["prefill_s"] + among_ranks + engine.get("prefill_layer_s", 0.0) * model.layers


def _of_gpu(terms: dict[str, Any], gpu: Gpu) -> dict[str, float]:
    """Corrections of a GPU to its generation: its own, those of the measured GPU it is most like, or none."""
    own: dict[str, float] = terms["gpus"].get(gpu.name) or terms["gpus"].get(terms["siblings"].get(gpu.name), {})
    return own


def _head_arithmetic(
    engine: dict[str, float], generation: dict[str, float], shared: dict[str, float], model: Model, precision: Precision
) -> float:
    """Kernels of 2024 computed head by head where they did not take groups together (``_blocks``); later ones always do.

    Latent attention is arithmetic on the tensor cores in every engine; where no row says, it reaches prefill's share of their rate.
    """
    if model.latent is not None:
        return shared["attention"] * generation["attention"] * engine.get("attention", 1.0) * engine.get("latent_arithmetic", 1.0)
    narrow = engine.get("head_8bit", 1.0) if precision.kv_bits == BITS_8 else 1.0
    return (engine["head_arithmetic"] or math.inf) * generation["head_arithmetic"] * narrow


def coefficients(
    terms: Terms, model: Model, gpu: Gpu, precision: Precision, parallelism: Parallelism, knobs: EngineKnobs | None = None
) -> list[float]:
    """The coefficient array of ``perf.step``: seconds, from terms, datasheet, sizes and, if given, what the engine captures as CUDA graphs.

    Returns:
        ``COEFFICIENTS`` floats.

    Raises:
        InputError: the hardware has no such arithmetic.
    """
    precision, tp = gpu.executes(precision), parallelism.tp
    c = [0.0] * at.COEFFICIENTS
    _linear(c, terms, model, gpu, precision, tp)
    add_attention(c, terms, model, gpu, precision, tp)
    if tp > 1:
        add_communication(c, terms, model, parallelism)
    c[at.HOST_STEP] = terms.step_s + terms.layer_s * model.layers
    c[at.HOST_SEQUENCE] += terms.sequence_s
    c[at.HOST_PREFILL] = terms.prefill_s
    c[at.LAUNCHES] = terms.launch_s
    c[at.EAGER] = terms.eager_s
    c[at.GRAPHED_TO] = 0.0 if knobs is None else float(knobs.graph_tokens)
    if model.is_moe:
        _experts_of(c, terms, model, gpu, precision, parallelism)
    return c


def _linear(c: list[float], terms: Terms, model: Model, gpu: Gpu, precision: Precision, tp: int) -> None:
    """Matrices of the layers and the head, and the activations between them."""
    peak, peak_16 = matrix_rate(gpu, precision), gpu.fp16_tflops * 1e12
    bandwidth = gpu.memory_bandwidth_gb_s * 1e9
    dense = model.common_parameters
    if precision.experts_only and model.is_moe:
        c[at.LINEAR_FLOPS] = 2 * dense / (tp * peak_16 * terms.compute_16)
        c[at.LINEAR_BYTES] = dense * BYTES_16 / (tp * bandwidth * terms.memory_16)
    else:
        c[at.LINEAR_FLOPS] = 2 * dense / (tp * peak * terms.compute)
        c[at.LINEAR_BYTES] = dense * precision.weight_bytes / (tp * bandwidth * terms.memory)
    c[at.NORM] = terms.norm
    inner = _passes(terms, model, precision) * model.inner
    split = (model.heads * model.head_dim + inner) / tp
    c[at.ACTIVATION] = terms.activation * ACTIVATION_BYTES * model.layers * (8 * model.hidden + split) / bandwidth
    c[at.HEAD_FLOPS] = 2 * model.head_parameters / (tp * peak_16 * terms.compute_16)
    c[at.HEAD_BYTES] = BYTES_16 * model.head_parameters / (tp * bandwidth * terms.memory_16)


def _passes(terms: Terms, model: Model, precision: Precision) -> float:
    """Elements of the inner width that a token writes or reads in the MLP of a layer.

    A gated one writes the outputs of two matrices, reads both, writes their product and reads it. Without a gate the output of one is
    written, what GELU makes of it is read, and between them GELU has ``terms.gelu`` of its own in 16 bits. In 8 bits it is fused with what
    narrows, as Falcon and GPT-J show.
    """
    if model.gated:
        return 6
    return 2 + terms.gelu if precision.activation_bits >= BITS_16 else 1


def _experts_of(c: list[float], terms: Terms, model: Model, gpu: Gpu, precision: Precision, parallelism: Parallelism) -> None:
    """The routed experts, and where attention has ranks of its own, the tokens' way to them."""
    reached = parallelism.tp * matrix_rate(gpu, precision) * terms.compute
    add_experts(
        c,
        terms=terms.experts,
        model=model,
        precision=precision,
        parallelism=parallelism,
        flops_s=reached,
        bytes_s=(gpu.memory_bandwidth_gb_s * 1e9, terms.memory),
    )
    if parallelism.dp > 1:
        add_dispatch(c, terms.experts, model, parallelism)
