"""A calibration laid over the fitted terms: its factors multiply numbers of ``terms.json``.

All of these are terms of one engine preset; ``perf.fitted_terms`` says which. The factors ``compute`` and ``memory`` stand for the
GPU's efficiencies in that engine and hold for the measured GPU alone; the others belong to the engine and hold on every GPU.
``kv_bandwidth`` speeds up decode attention as a whole, and ``step_s`` stretches the host's seconds per step and per layer together,
because the steps of one model cannot tell them apart. Terms in place of factors (``perf.own_terms``) hold for the measured GPU alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.perf.fitted_terms import acts_on
from tonnage.perf.own_terms import with_own_terms
from tonnage.perf.residuals import FEWEST_OWN
from tonnage.spec.calibration import deployment_key

if TYPE_CHECKING:
    from tonnage.spec.calibration import Calibration
    from tonnage.spec.deployment import Deployment

ACTS_ON = acts_on()
"""The engine terms that each factor multiplies, with the power of the factor that does."""

OF_THE_GPU = ("compute", "memory")
"""Factors that hold for the measured GPU alone; an engine without such a term has 1 for it."""


def overlaid(terms: dict[str, Any], calibration: Calibration, gpu: str) -> dict[str, Any]:
    """The groups of ``terms.json`` with a calibration's factors, as they hold on a GPU; the given groups are not changed."""
    own = terms["engines"].get(calibration.preset)
    if own is None:
        return terms
    if calibration.terms:
        return with_own_terms(terms, dict(calibration.terms), calibration.preset) if gpu == calibration.gpu else terms
    engine = dict(own)
    for name, factor in calibration.multipliers:
        if name in OF_THE_GPU and gpu != calibration.gpu:
            continue
        for term, power in ACTS_ON[name]:
            if term in engine or name in OF_THE_GPU:
                engine[term] = engine.get(term, 1.0) * factor**power
    return {**terms, "engines": {**terms["engines"], calibration.preset: engine}}


def calibrated_for(deployment: Deployment, preset: str) -> bool:
    """Whether a deployment's calibration was measured on it: engine, GPU, model, precision and TP.

    It counts where it shifted the terms, and where ``FEWEST_OWN`` points or more confirmed the shipped ones.
    """
    c = deployment.calibration
    if c is None or not (c.changes or confirms(c)):
        return False
    if deployment.step_source is not None or preset != c.preset or deployment.gpu.name != c.gpu:
        return False
    return deployment_key(deployment.model.name, deployment.precision.name, deployment.parallelism.tp) in c.deployments


def confirms(calibration: Calibration) -> bool:
    """Whether a calibration that keeps the shipped terms rests on points enough to say that these hold for what was measured."""
    return not calibration.changes and any(points >= FEWEST_OWN for _, _, points in calibration.left_out)


def own_terms_of(deployment: Deployment, preset: str) -> bool:
    """Whether a deployment is estimated with terms that loads on its GPU and engine have fitted, whatever the model."""
    c = deployment.calibration
    return c is not None and bool(c.terms) and deployment.step_source is None and preset == c.preset and deployment.gpu.name == c.gpu


def calibration_mark(deployment: Deployment, preset: str) -> str:
    """What a deployment's calibration does to its prediction, in words; empty without one."""
    calibration = deployment.calibration
    if calibration is None:
        return ""
    if preset != calibration.preset:
        return f"not calibrated: the measurements are of '{calibration.preset}', this is '{preset}'"
    if not calibration.changes:
        found = "confirmed" if calibrated_for(deployment, preset) else "not calibrated"
        return f"{found}: {calibration.data} gave nothing that predicts better than the shipped terms"
    if calibration.terms and deployment.gpu.name != calibration.gpu:
        return f"not calibrated: the terms fitted to {calibration.data} are of {calibration.gpu} alone"
    if deployment.gpu.name != calibration.gpu:
        return f"calibrated on {calibration.data}: the engine's terms only, for those of the GPU are of {calibration.gpu}"
    return f"{'terms fitted to' if calibration.terms else 'calibrated on'} {calibration.data}"
