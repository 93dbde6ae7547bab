"""What was measured: ``perf/coefficients/ranges.json``, which ``./fit ranges`` writes from the rows
that the fit reads.

By generation of engines and kind of model: how many rows there are of each GPU, and how long, how
many at once and on how many GPUs their requests were. The current versions of an engine are one
generation, because their terms are small corrections of one value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache

from tonnage.perf import kernels, shipped_json
from tonnage.perf.images_and_adapters import ADAPTERS_MARK, ENCODER_MARK
from tonnage.perf.matrices import fitted_bits, format_mark, unfitted_formats
from tonnage.perf.measured_steps import source_mark
from tonnage.perf.power import limit_mark
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms import MARK as DRAFTING_MARK
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import calibrated_for, calibration_mark, own_terms_of, shipped
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.deployment import Deployment
from tonnage.spec.hardware import Gpu
from tonnage.spec.model import Model
from tonnage.spec.precision import Precision, find_precision
from tonnage.spec.typed_values import read_as, strict

Span = tuple[int, int]
"""The least and the most."""


@strict
class MeasuredLoads:
    """What the rows of one generation of engines and one kind of model are of."""

    rows: dict[str, int]  # how many, by GPU
    # isl, osl: the shortest and the longest prompts and outputs, in tokens
    isl: Span
    osl: Span
    context: int  # the longest prompt with its output, in tokens
    in_flight: int  # the most requests that an attention rank held at once
    gpus: int  # of the largest instance


@strict
class Ranges:
    """``ranges.json`` as it is written."""

    date: str  # of the fit that read the rows
    rows: dict[str, int]  # how many, by file
    # the rows of each GPU, of any engine, by the bits of the arithmetic ("8" or "16") in which it
    # was measured
    gpus: dict[str, dict[str, int]]
    engines: dict[str, str]  # the generation of each engine preset
    loads: dict[str, dict[str, MeasuredLoads]]  # by generation and kind of model (``kind_of``)

    def generation(self, deployment: Deployment) -> str:
        """The generation of a deployment's engine."""
        return self.engines[find_engine(deployment.engine).coefficients]

    def of(self, deployment: Deployment) -> MeasuredLoads | None:
        """The rows of a deployment's engine and kind of model; None where there are none."""
        return self.loads[self.generation(deployment)].get(kind_of(deployment.model))

    def by_gpu(self, generation: str) -> Counter[str]:
        """The rows of a generation of engines on each GPU."""
        return sum((Counter(part.rows) for part in self.loads[generation].values()), Counter())


def kind_of(model: Model) -> str:
    """The kind of model that a row is of: "dense", "experts" or "latent attention"."""
    return "latent attention" if model.has_latent_cache else "experts" if model.is_moe else "dense"


@cache
def shipped_ranges() -> Ranges:
    """The ranges that the package ships.

    Raises DataError: the file is missing, is no JSON, or holds what it may not; one line for each
    fault.
    """
    return read_as(
        Ranges,
        shipped_json("ranges.json", "reinstall, or write it again with ./fit ranges"),
        "perf/coefficients/ranges.json",
    )


# What is behind a prediction: which measurements its terms were fitted to, and which of its numbers
# were fitted to none.


def coefficient_source(engine: str) -> str:
    """Where the coefficients of an engine come from: the file, its date and the data that its terms
    were fitted on.
    """
    preset = find_engine(engine).coefficients
    origins = shipped()["origins"]
    rows = origins["rows"].get(preset, "published start values")
    return f"perf/coefficients/terms.json of {origins['date']}, engine terms '{preset}': {rows}"


def fitted_engine(preset: str, gpu: str) -> bool:
    """Whether an engine's terms were fitted to rows that cover this GPU; an engine that names no
    GPUs holds for all.
    """
    if preset in shipped()["origins"]["engines"]:
        return False
    rows = shipped()["origins"].get("engine_rows", {}).get(preset)
    return rows is None or gpu in rows["gpus"]


def measured_model(model: Model) -> bool:
    """Whether the fit had rows of a model, or of one of the same sizes, such as another checkpoint
    of the same architecture.
    """
    names = shipped()["origins"].get("models", ())
    return model.name in names or any(
        sizes_of(find_model(name)) == sizes_of(model) for name in names
    )


def sizes_of(model: Model) -> tuple[object, ...]:
    """What decides the time of a step: the same for all checkpoints of an architecture."""
    matrices = (
        model.common_parameters,
        model.expert_parameters,
        model.head_parameters,
        model.experts,
        model.experts_per_token,
    )
    return model.layers, model.hidden, *matrices, frozenset(model.by_kind)


def nearest_model(model: Model) -> str:
    """The measured model that is most like another one: of its kind, with like layers, and nearest
    in weights, in all and per token.
    """

    def distance(name: str) -> tuple[bool, int, float]:
        measured = find_model(name)
        sizes = (
            (measured.parameters, model.parameters),
            (measured.active_parameters, model.active_parameters),
        )
        return (
            kind_of(measured) != kind_of(model),
            len(measured.kinds ^ model.kinds),
            sum(abs(math.log(theirs / ours)) for theirs, ours in sizes),
        )

    return min(shipped()["origins"].get("models", ()), key=distance, default="")


def nearest_gpu(gpu: Gpu, among: Iterable[str]) -> str:
    """Which of some measured GPUs is most like another one, of its generation or of one with the
    same kernels; "" where none is.
    """
    candidates = list(among)
    sibling = shipped()["siblings"].get(gpu.name)
    if sibling in candidates:
        return str(sibling)

    def distance(name: str) -> tuple[bool, float]:
        measured = find_gpu(name)
        rates = (
            (measured.memory_bandwidth_gb_s, gpu.memory_bandwidth_gb_s),
            (measured.fp16_tflops, gpu.fp16_tflops),
        )
        return measured.arch != gpu.arch, sum(
            abs(math.log(theirs / ours)) for theirs, ours in rates
        )

    return min(
        (name for name in candidates if find_gpu(name).arch.split()[0] == gpu.arch.split()[0]),
        key=distance,
        default="",
    )


def nearest_format(precision: Precision) -> str:
    """The measured format of weights that is most like another one: multiplied in as many bits, and
    nearest in those of a weight.
    """

    def distance(name: str) -> tuple[float, float]:
        measured = find_precision(name)
        pairs = (
            (measured.activation_bits, precision.activation_bits),
            (measured.value_bits, precision.value_bits),
        )
        multiplied, stored = (abs(math.log(theirs / ours)) for theirs, ours in pairs)
        return multiplied, stored

    return min(shipped_residuals().formats, key=distance, default="")


FIRST_SUPPORT = (
    "first support of this model, format and GPU in this engine; no image of a released version was"
    " measured"
)


def first_support(deployment: Deployment) -> bool:
    """Whether all that was measured of a model and format on a GPU in an engine is of images before
    its first release with them.
    """
    d, engine = deployment, find_engine(deployment.engine)
    return f"{engine.family} {d.model.name} {d.precision.weights} {d.gpu.name}" in shipped()[
        "origins"
    ].get("first_support", ())


DIFFERS = 1.2
"""From this ratio on, two step models that differ say that a prediction is less sure: with a model
left out its time per token was off by 15 % there and by 9 % elsewhere, in sample by 15 and 8 %
(docs/fit.md, 2026-11-28)."""


@lru_cache(maxsize=1024)
def second_opinion(deployment: Deployment) -> float:
    """How many times as long decode steps take by kernels (``perf.kernels``) as by the fitted
    terms; 1 where one of them says nothing.

    Of a dense model that was measured its own rows say more: there the error does not grow with the
    difference.
    """
    model, gpu, stated = (
        deployment.model,
        deployment.gpu,
        (deployment.step_source, deployment.calibration, deployment.adapters),
    )
    if (
        any((*stated, deployment.images))
        or deployment.parallelism.pp > 1
        or (measured_model(model) and not model.is_moe)
    ):
        return 1.0
    # with another host, clock or power limit
    if not kernels.covers(deployment) or gpu != find_gpu(gpu.name):
        return 1.0
    return kernels.ratio_to(step_model(deployment).coefficients, deployment)


def differs(deployment: Deployment) -> float:
    """The larger over the smaller of both step models' seconds where that is ``DIFFERS`` or more; 1
    elsewhere.
    """
    ratio = second_opinion(deployment)
    larger = max(ratio, 1.0 / ratio)
    return larger if larger >= DIFFERS else 1.0


def marks(deployment: Deployment) -> tuple[str, ...]:
    """What a prediction should be marked with: which of its numbers were not fitted to measurements
    of this GPU and engine, if any.
    """
    model = deployment.model
    unsure = f"{model.name}: {model.layout_mark}" if model.layout_mark else ""
    if deployment.step_source is not None:
        return tuple(filter(None, (unsure, source_mark(deployment))))
    terms = shipped()
    gpu, engine = deployment.gpu, find_engine(deployment.engine).coefficients
    precision = gpu.executes(deployment.precision)
    if not own_terms_of(deployment, engine):
        sentences = _transferred(deployment, engine)
    elif calibrated_for(deployment, engine):
        sentences = []
    else:
        sentences = [
            f"{deployment.model.name} {precision.name}: not among the loads that the terms were"
            " fitted to"
        ]
    if deployment.model.has_latent_cache and engine not in terms["origins"].get("latent", ()):
        sentences.append(
            f"{deployment.model.name}: latent attention estimated from the datasheet, not fitted"
        )
    if not measured_model(deployment.model) and not own_terms_of(deployment, engine):
        sentences.append(f"{deployment.model.name}: no measurements of this model")
    if first_support(deployment):
        sentences.append(
            f"{model.name} {deployment.precision.weights} on {gpu.name}: {FIRST_SUPPORT}"
        )
    if deployment.speculation is not None:
        sentences.append(DRAFTING_MARK)
    sentences += [
        mark
        for mark, feature in (
            (ADAPTERS_MARK, deployment.adapters),
            (ENCODER_MARK, deployment.images),
        )
        if feature is not None
    ]
    if deployment.parallelism.further and engine not in terms["origins"].get("experts", {}):
        sentences.append(
            f"{deployment.engine}: expert parallelism and data-parallel attention estimated from"
            " the datasheet, not fitted"
        )
    if unfitted := format_mark(precision, gpu, terms["origins"]["formats"]):
        sentences.append(unfitted)
    calibrated = calibration_mark(deployment, engine)
    if calibrated:
        sentences.append(calibrated)
    apart = differs(deployment)
    opinions = (
        f"two step models differ by {100 * (apart - 1):.0f} % here, fitted terms and kernels timed"
        " alone: measure"
    )
    host = (
        ""
        if gpu.host_speed == 1.0
        else f"cores of the host at {gpu.host_speed:g} of the measured hosts' speed, as stated"
    )
    return tuple(
        filter(None, (unsure, *sentences, opinions if apart > 1.0 else "", limit_mark(gpu), host))
    )


def _transferred(deployment: Deployment, engine: str) -> list[str]:
    """What of a deployment's efficiencies and host terms was fitted on other GPUs or engines."""
    terms, gpu, sentences = shipped(), deployment.gpu, []
    bits = fitted_bits(gpu.executes(deployment.precision))
    if f"compute_{bits}" not in terms["gpus"].get(gpu.name, {}) and gpu.name not in terms[
        "origins"
    ].get("gpus", {}):
        origin = terms["origins"]["architectures"].get(
            gpu.arch, "datasheet roofline with the mean efficiencies of all GPUs"
        )
        if gpu.name in terms["siblings"]:
            origin = f"efficiencies transferred from {terms['siblings'][gpu.name]}"
        if gpu.name in terms["gpus"]:
            sentences.append(
                f"{gpu.name}: no {bits}-bit measurements; efficiency transferred from the"
                f" {gpu.arch} generation"
            )
        else:
            sentences.append(f"{gpu.name}: no measurements; {origin}")
    if engine in terms["origins"]["engines"]:
        sentences.append(f"{deployment.engine}: {terms['origins']['engines'][engine]}")
    elif not fitted_engine(engine, gpu.name):
        sentences.append(
            f"{deployment.engine}: {terms['origins']['engine_rows'][engine]['elsewhere']}"
        )
    return sentences


def unfitted_formats_of(deployment: Deployment) -> tuple[tuple[str, str], ...]:
    """The parts of a deployment's number format that were not fitted to measurements, each with
    where its terms come from.
    """
    gpu = deployment.gpu
    return unfitted_formats(
        gpu.executes(deployment.precision), gpu, shipped()["origins"]["formats"]
    )
