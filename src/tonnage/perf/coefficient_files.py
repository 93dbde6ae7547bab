"""The files of coefficients that the package ships, in ``perf/coefficients``."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from tonnage.errors import DataError


def content(name: str, again: str) -> dict[str, Any]:
    """The object that a file holds.

    Args:
        name: of the file, such as "terms.json".
        again: what to do where it is damaged, for the message.

    Raises:
        DataError: the file is missing, or is no JSON object.
    """
    try:
        found = json.loads((resources.files("tonnage.perf") / "coefficients" / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"perf/coefficients/{name}: {error}; {again}") from None
    if not isinstance(found, dict):
        raise DataError(f"perf/coefficients/{name}: is no object of keys and values; {again}")
    return found
