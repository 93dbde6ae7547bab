"""Deployments in formats, and their coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import deployments
from tonnage.perf.terms import step_model
from tonnage.spec.deployment import Deployment

if TYPE_CHECKING:
    import numpy as np


def deployment(
    precision: str, model: str = "llama-3-70b", gpu: str = "h100", tp: int = 4, engine: str = "vllm"
) -> Deployment:
    return deployments.deployment(model, gpu, precision, tp, engine)


def coefficients(precision: str, **what: object) -> np.ndarray:
    return step_model(deployment(precision, **what)).coefficients
