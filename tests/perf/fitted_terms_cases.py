"""What the tests of fitted terms share with others."""

from __future__ import annotations

from dataclasses import replace

from tonnage.api import deployment_of
from tonnage.perf.fitted_terms import FITTED_FORMATS, Vocabulary, vocabulary
from tonnage.perf.terms_file import shipped
from tonnage.spec.calibration import Calibration
from tonnage.spec.deployment import Deployment

H100, A100, H200, B200, NVL, L40S, PCIE = (
    "h100-sxm-80gb",
    "a100-sxm-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "h100-nvl-94gb",
    "l40s",
    "a100-pcie-80gb",
)


def known() -> Vocabulary:
    return vocabulary(shipped()["architectures"], {*shipped()["formats"], *FITTED_FORMATS})


NIM = deployment_of(
    model="llama-3-8b", gpu="h100-sxm-80gb", precision="fp16", tp=2, engine="nim-2024"
)


def calibrated(
    deployment: Deployment = NIM, gpu: str = "h100-sxm-80gb", **multipliers: float
) -> Deployment:
    found = Calibration(
        preset="nim-2024",
        gpu=gpu,
        multipliers=tuple(multipliers.items()),
        data="10 points of my.csv",
    )
    return replace(deployment, calibration=found)
