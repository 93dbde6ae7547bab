"""How long one step of an engine takes, and what fits in GPU memory; in ``coefficients`` the fitted
numbers that the package ships.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from tonnage.errors import DataError


def shipped_json(name: str, again: str) -> dict[str, Any]:
    """The object that a file of ``coefficients`` holds. Raises DataError: it is missing, or no JSON
    object, and what to do (``again``).
    """
    try:
        document = json.loads(
            (resources.files("tonnage.perf") / "coefficients" / name).read_text(encoding="utf-8")
        )
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"perf/coefficients/{name}: {error}; {again}") from None
    if not isinstance(document, dict):
        raise DataError(f"perf/coefficients/{name}: is no object of keys and values; {again}")
    return document
