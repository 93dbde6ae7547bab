"""Speculative decoding: one pass of the drafter as a coefficient array, on the model's GPUs and with its terms.

A drafter with layers is estimated as a model that has only these. Its passes lack the host's work per step, sequence and
prefill, which the engine does once. No measurement of speculative decoding went into this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.perf import step_terms as at
from tonnage.perf.step import Drafting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tonnage.spec.deployment import Deployment
    from tonnage.spec.model import Model

MARK = "speculative decoding: estimated from its weights and arithmetic, not fitted; the acceptance is as given"


def drafting(deployment: Deployment, coefficients: Callable[[Model], list[float]]) -> Drafting | None:
    """The deployment's speculative decoding, as far as it decides how long steps take; None without.

    Args:
        deployment: what is deployed.
        coefficients: gives the coefficient array of a model on the deployment's GPUs, without what the host does once per step.
    """
    import numpy as np

    asked = deployment.speculation
    if asked is None:
        return None
    layers = asked.layers_of(deployment.model)
    c = _heads(deployment, coefficients(deployment.model)) if layers is None else _layers(deployment, coefficients(layers), layers)
    return Drafting(tokens=asked.tokens, acceptance=asked.acceptance, passes=asked.passes, coefficients=np.array(c))


def _layers(deployment: Deployment, c: list[float], layers: Model) -> list[float]:
    """One pass through the drafter's layers, with the projection before them."""
    asked = deployment.speculation
    projection = 0 if asked is None else asked.projection_parameters(deployment.model)
    for place in (at.LINEAR_FLOPS, at.LINEAR_BYTES):
        c[place] *= 1 + projection / layers.common_parameters
    return c


def _heads(deployment: Deployment, of_model: list[float]) -> list[float]:
    """One pass through heads alone, in proportion to the size of the model's head."""
    asked: Any = deployment.speculation
    share = asked.head_parameters(deployment.model) / deployment.model.head_parameters
    c = [0.0] * at.COEFFICIENTS
    c[at.NORM] = 1.0
    c[at.HEAD_FLOPS], c[at.HEAD_BYTES] = share * of_model[at.HEAD_FLOPS], share * of_model[at.HEAD_BYTES]
    return c
