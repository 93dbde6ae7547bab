"""The fitted terms that the package ships: ``coefficients/terms.json``, read once."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataError
from tonnage.perf.calibrated_terms import overlaid

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment


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


def terms_of(deployment: Deployment) -> dict[str, Any]:
    """The shipped terms, with the deployment's calibration over them."""
    calibration = deployment.calibration
    return shipped() if calibration is None else overlaid(shipped(), calibration, deployment.gpu.name)
