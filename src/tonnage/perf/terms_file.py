"""The fitted terms that the package ships: ``coefficients/terms.json``, read once and strictly.

A key that no fitted term allows (``perf.fitted_terms``) is refused with its path, and so is a
number that is none.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tonnage.errors import DataError, DataErrors
from tonnage.perf import shipped_json
from tonnage.perf.fitted_terms import FITTED_FORMATS, acts_on, known_keys, terms_by_key, vocabulary
from tonnage.perf.residuals import FEWEST_OWN
from tonnage.spec.calibration import Calibration, deployment_key
from tonnage.spec.deployment import Deployment
from tonnage.spec.hardware import Gpu
from tonnage.spec.typed_values import read_as, strict

# Terms that a user's own loads have fitted, in place of the shipped ones. On hardware that no
# shipped term covers, factors on transferred terms keep what was transferred. These terms take
# nothing from them: four shares of the datasheet's rates, and the host's seconds. What a sweep of
# loads cannot tell apart is one term here: launching layers is part of ``step_s``, and streaming
# tokens is part of ``sequence_s``. All terms of the shipped presets that these stand for are
# cleared, so that nothing is counted twice. What remains shipped is the form of the step, the
# exponent of its norm, the activations, all-reduces where one GPU was measured, and how a number
# format relates to 16 or 8 bits.


SHARES = {
    "compute": "share of the datasheet's matrix rate that matrices reach",
    "memory": "share of the memory bandwidth that reading weights reaches",
    "attention": "share of the 16-bit matrix rate that prefill attention reaches",
    "kv_bandwidth": "share of the memory bandwidth in decode attention",
}
"""Terms without a unit. They may be above 1 where the datasheet says too little."""

SECONDS = {
    "allreduce_s": "latency of a small all-reduce of two GPUs",
    "step_s": "seconds of every step, with the launching of its layers",
    "sequence_s": "seconds per sequence of a step, with the streaming of its token",
    "prefill_s": "further seconds of a step with prefill",
    "frontend_s": "front end, once per request",
    "turnaround_s": (
        "client and front end, from an answer to the next request, one request after another"
    ),
}
"""Terms in seconds."""

NEEDED = {
    "head_arithmetic": 0.0,
    "kv_8bit": 1.0,
    "kv_single": 1.0,
    "walk_s": 0.0,
    "layer_s": 0.0,
    "stream_s": 0.0,
}
"""Terms that every preset has, at the values that mean nothing."""

CLEARED = ("compute", "memory", "compute_blocks", "attention", "kv_8bit", "kv_single")
"""Corrections of an engine to the shares that are fitted here; those with further words behind an
underscore too."""


def with_own_terms(
    terms: Mapping[str, Any], group: Mapping[str, float], preset: str
) -> dict[str, Any]:
    """The groups of ``terms.json`` for one GPU and one engine preset, with their own terms; the
    given groups are not changed.

    Args:
        terms: the shipped groups.
        group: by name of ``OWN_TERMS``; an absent ``allreduce_s`` stays as shipped.
        preset: the engine preset that they replace.
    """
    shipped: dict[str, float] = terms["engines"][preset]
    uncleared = {name: value for name, value in shipped.items() if not _cleared(name)}
    engine = {
        **uncleared,
        **NEEDED,
        **{name: group[name] for name in (*SECONDS, "kv_bandwidth") if name in group},
    }
    any_generation = terms["architectures"]["*"]
    rates = {
        f"{kind}_{bits}": group[kind] for kind in ("compute", "memory") for bits in ("8", "16")
    }
    return {
        **terms,
        "shared": {
            **terms["shared"],
            "attention": group["attention"],
            "power_compute": 0.0,
            "power_memory": 0.0,
        },
        "architectures": {"*": {**any_generation, **rates, "attention": 1.0}},
        "gpus": {},
        "siblings": {},
        "engines": {**terms["engines"], preset: engine},
    }


def _cleared(name: str) -> bool:
    """Whether a shipped term of an engine is replaced by the own terms."""
    return (name.endswith("_s") and name != "allreduce_s") or any(
        name == term or name.startswith(f"{term}_") for term in CLEARED
    )


# A calibration laid over the fitted terms: its factors multiply numbers of ``terms.json``. All of
# these are terms of one engine preset; ``perf.fitted_terms`` says which. The factors ``compute``
# and ``memory`` stand for the GPU's efficiencies in that engine and hold for the measured GPU
# alone; the others belong to the engine and hold on every GPU. ``kv_bandwidth`` speeds up decode
# attention as a whole, and ``step_s`` stretches the host's seconds per step and per layer together,
# because the steps of one model cannot tell them apart. Terms in place of factors
# (``with_own_terms``) hold for the measured GPU alone.


ACTS_ON = acts_on()
"""The engine terms that each factor multiplies, with the power of the factor that does."""

OF_THE_GPU = ("compute", "memory")
"""Factors that hold for the measured GPU alone; an engine without such a term has 1 for it."""


def overlaid(terms: dict[str, Any], calibration: Calibration, gpu: str) -> dict[str, Any]:
    """The groups of ``terms.json`` with a calibration's factors, as they hold on a GPU; the given
    groups are not changed.
    """
    shipped_engine = terms["engines"].get(calibration.preset)
    if shipped_engine is None:
        return terms
    if calibration.terms:
        return (
            with_own_terms(terms, dict(calibration.terms), calibration.preset)
            if gpu == calibration.gpu
            else terms
        )
    engine = dict(shipped_engine)
    for name, factor in calibration.multipliers:
        if name in OF_THE_GPU and gpu != calibration.gpu:
            continue
        for term, power in ACTS_ON[name]:
            if term in engine or name in OF_THE_GPU:
                engine[term] = engine.get(term, 1.0) * factor**power
    return {**terms, "engines": {**terms["engines"], calibration.preset: engine}}


def calibrated_for(deployment: Deployment, preset: str) -> bool:
    """Whether a deployment's calibration was measured on it: engine, GPU, model, precision and TP.

    It counts where it shifted the terms, and where ``FEWEST_OWN`` points or more confirmed the
    shipped ones.
    """
    c = deployment.calibration
    if c is None or not (c.changes or confirms(c)):
        return False
    if deployment.step_source is not None or preset != c.preset or deployment.gpu.name != c.gpu:
        return False
    key = deployment_key(
        deployment.model.name, deployment.precision.name, deployment.parallelism.tp
    )
    return key in {re.sub(r"\+kv-\w+", "", name) for name in c.deployments}


def confirms(calibration: Calibration) -> bool:
    """Whether a calibration that keeps the shipped terms rests on points enough to say that these
    hold for what was measured.
    """
    return not calibration.changes and any(
        points >= FEWEST_OWN for _, _, points in calibration.left_out
    )


def own_terms_of(deployment: Deployment, preset: str) -> bool:
    """Whether a deployment is estimated with terms that loads on its GPU and engine have fitted,
    whatever the model.
    """
    c = deployment.calibration
    return (
        c is not None
        and bool(c.terms)
        and deployment.step_source is None
        and preset == c.preset
        and deployment.gpu.name == c.gpu
    )


def calibration_mark(deployment: Deployment, preset: str) -> str:
    """What a deployment's calibration does to its prediction, in words; empty without one."""
    calibration = deployment.calibration
    if calibration is None:
        return ""
    if preset != calibration.preset:
        return f"not calibrated: the measurements are of '{calibration.preset}', this is '{preset}'"
    if not calibration.changes:
        status = "confirmed" if calibrated_for(deployment, preset) else "not calibrated"
        return (
            f"{status}: {calibration.data} gave nothing that predicts better than the shipped terms"
        )
    if calibration.terms and deployment.gpu.name != calibration.gpu:
        return (
            f"not calibrated: the terms fitted to {calibration.data} are of {calibration.gpu} alone"
        )
    if deployment.gpu.name != calibration.gpu:
        return (
            f"calibrated on {calibration.data}: the engine's terms only, for those of the GPU are"
            f" of {calibration.gpu}"
        )
    return f"{'terms fitted to' if calibration.terms else 'calibrated on'} {calibration.data}"


Numbers = dict[str, float]
Texts = dict[str, str]

AGAIN = "reinstall, or write it again with ./fit"


@strict
class EngineRows:
    """The GPUs that an engine's rows cover, and the note for other GPUs."""

    gpus: tuple[str, ...]
    elsewhere: str


@strict
class Origins:
    """Where the terms come from, in words."""

    date: str  # of the fit
    # architectures, engines, formats: what is behind generations, engines and formats that are not
    # fitted
    architectures: Texts
    engines: Texts
    rows: Texts  # what each engine was fitted on
    formats: Texts
    engine_rows: dict[str, EngineRows] = field(default_factory=dict)  # the GPUs among them
    # experts, latent: by engine, the rows of experts and of latent attention
    experts: dict[str, int] = field(default_factory=dict)
    latent: dict[str, int] = field(default_factory=dict)
    front_end: tuple[str, ...] = ()  # engines whose seconds per streamed token were chosen by rows
    # by GPU whose generation was fitted as a whole, its points of 2026
    gpus: dict[str, int] = field(default_factory=dict)
    models: tuple[str, ...] = ()  # the models of the rows
    # engine, model, format and GPU, such as "vllm glm-5 fp8 mi355x", of which no image of a
    # released version has a row
    first_support: tuple[str, ...] = ()


@strict
class TermsFile:
    """``terms.json`` as it is written; ``report`` is for people. The groups are those of
    ``TermGroups``.
    """

    shared: Numbers
    architectures: dict[str, Numbers]
    gpus: dict[str, Numbers]
    siblings: Texts
    links: dict[str, Numbers]
    engines: dict[str, Numbers]
    formats: dict[str, Numbers]
    origins: Origins
    report: dict[str, Any] = field(default_factory=dict)


@cache
def shipped() -> dict[str, Any]:
    """The terms that the package ships: the content of ``coefficients/terms.json``.

    Raises DataError: the file is missing, is no JSON, or holds what it may not; one line for each
    fault.
    """
    return checked(shipped_json("terms.json", AGAIN), "perf/coefficients/terms.json")


def checked(document: dict[str, Any], where: str) -> dict[str, Any]:
    """The content of a file of terms, as it is, once everything in it is known to be right.

    Raises DataErrors: unknown keys, and values of another kind; one line each.
    """
    read_as(TermsFile, document, where)
    words = vocabulary(document["architectures"], {*document["formats"], *FITTED_FORMATS})
    faults = []
    for group, owner, key, term in terms_by_key(document, words):
        path = f"{where}: {'.'.join(part for part in (group, owner, key) if part)}"
        number = document[group][owner][key] if owner else document[group][key]
        if term is None:
            near = difflib.get_close_matches(key, known_keys(group), n=2, cutoff=0.6)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else "every term is described in perf/fitted_terms.py"
            )
            faults.append(f"{path}: unknown key; {hint}")
        elif not 0 <= number < math.inf:
            faults.append(f"{path}: {number} is no number from 0")
    DataErrors.raise_if(faults)
    return document


def terms_of(deployment: Deployment) -> dict[str, Any]:
    """The shipped terms, with the deployment's calibration over them."""
    calibration = deployment.calibration
    return (
        shipped() if calibration is None else overlaid(shipped(), calibration, deployment.gpu.name)
    )


# The fitted terms that speak for one engine on one GPU, out of the groups of
# ``coefficients/terms.json``. ``shared`` holds for everything, ``architectures`` for a GPU
# generation, and ``gpus`` are corrections to the generation: a GPU without measurements has those
# of the measured one that ``siblings`` names, or none, and so gets its generation's mean. ``links``
# holds for NVLink and PCIe, and ``engines`` for one engine generation each: host terms, decode
# attention, latency of all-reduces. ``formats`` says what a number format reaches of the
# efficiencies (``perf.matrices``).


Group = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TermGroups:
    """The groups of one engine on one GPU."""

    gpu: Gpu  # what they are for
    shared: Group  # terms that hold for everything
    generation: Group  # those of the GPU's generation, over those of an unmeasured one
    # corrections of the GPU, or of the measured GPU that it is most like, to its generation
    own: Group
    engine: Group  # those of the engine preset
    links: dict[str, Group]  # those of each kind of link
    formats: dict[str, Group]  # those of each number format

    @property
    def kernels(self) -> str:
        """The generation in the names of engine terms: Blackwell Ultra runs the kernels of
        Blackwell.
        """
        return self.gpu.arch.split()[0].lower()


def groups_of(terms: dict[str, Any], gpu: Gpu, preset: str) -> TermGroups:
    """The groups that speak for an engine preset on a GPU. Raises DataError: there are no terms of
    that preset.
    """
    gpu_group: Group = terms["gpus"].get(gpu.name) or terms["gpus"].get(
        terms["siblings"].get(gpu.name), {}
    )
    return TermGroups(
        gpu=gpu,
        shared=terms["shared"],
        generation={**terms["architectures"]["*"], **terms["architectures"].get(gpu.arch, {})},
        own=gpu_group,
        engine=engine_terms(terms, preset),
        links=terms["links"],
        formats=terms["formats"],
    )


def engine_terms(terms: dict[str, Any], preset: str) -> Group:
    """The terms of an engine preset. Raises DataError: there are none."""
    try:
        engine: Group = terms["engines"][preset]
    except KeyError:
        raise DataError(
            f"perf/coefficients/terms.json: no terms of the engine preset '{preset}'"
        ) from None
    return engine
