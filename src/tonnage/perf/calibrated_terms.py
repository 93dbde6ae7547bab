"""A calibration laid over the fitted terms: which numbers of ``terms.json`` each factor multiplies.

All of them are terms of one engine preset. ``compute`` and ``memory`` stand for the GPU's efficiencies in that
engine, so they hold for the measured GPU alone; the rest is the engine's and holds on every GPU. ``kv_bandwidth``
speeds decode attention up as a whole, ``step_s`` stretches the host seconds per step and per layer together: one
model's steps cannot tell these apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.perf.fitted_terms import acts_on
from tonnage.spec.calibration import deployment_key

if TYPE_CHECKING:
    from tonnage.spec.calibration import Calibration
    from tonnage.spec.deployment import Deployment

ACTS_ON = acts_on()
"""Engine terms of each factor, with the power of the factor that multiplies them."""

OF_THE_GPU = ("compute", "memory")
"""Factors that hold for the measured GPU alone; an engine without the term has 1."""


def overlaid(terms: dict[str, Any], calibration: Calibration, gpu: str) -> dict[str, Any]:
    """The groups of ``perf.terms`` with a calibration's factors, as they hold on a GPU; the given groups stay as they are."""
    own = terms["engines"].get(calibration.preset)
    if own is None:
        return terms
    engine = dict(own)
    for name, factor in calibration.multipliers:
        if name in OF_THE_GPU and gpu != calibration.gpu:
            continue
        for term, power in ACTS_ON[name]:
            if term in engine or name in OF_THE_GPU:
                engine[term] = engine.get(term, 1.0) * factor**power
    return {**terms, "engines": {**terms["engines"], calibration.preset: engine}}


def calibrated_for(deployment: Deployment, preset: str) -> bool:
    """Whether a deployment's calibration was measured on it: engine, GPU, model, precision and TP."""
    c = deployment.calibration
    if c is None or not c.multipliers or deployment.step_source is not None or preset != c.preset or deployment.gpu.name != c.gpu:
        return False
    return deployment_key(deployment.model.name, deployment.precision.name, deployment.parallelism.tp) in c.deployments


def calibration_mark(deployment: Deployment, preset: str) -> str:
    """In words, what a deployment's calibration does to its prediction; empty without one."""
    calibration = deployment.calibration
    if calibration is None:
        return ""
    if preset != calibration.preset:
        return f"not calibrated: the measurements are of '{calibration.preset}', this is '{preset}'"
    if not calibration.multipliers:
        return f"not calibrated: {calibration.data} gave nothing that predicts better than the shipped terms"
    if deployment.gpu.name != calibration.gpu:
        return f"calibrated on {calibration.data}: the engine's terms only, for those of the GPU are of {calibration.gpu}"
    return f"calibrated on {calibration.data}"
