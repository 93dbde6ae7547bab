"""Plans from a file that ``tonnage size --output`` wrote: one plan, or a comparison of several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.plan.plan import Plan
    from tonnage.plan.use_cases import UseCases

COMPARISON = "tonnage-comparison/3"


def to_json(plans: Sequence[Plan]) -> dict[str, Any]:
    """One plan as it is; several as a comparison, which holds them in their order."""
    documents = [plan.to_json() for plan in plans]
    return documents[0] if len(documents) == 1 else {"schema": COMPARISON, "plans": documents}


def read_use_cases(path: str | Path) -> UseCases | None:
    """The answer for several use cases in a file; None where it holds something else.

    Raises:
        InputError: as ``read_plans``.
    """
    from tonnage.plan.use_cases import SCHEMA, UseCases

    document = _document(path)
    return UseCases.from_json(document) if isinstance(document, dict) and document.get("schema") == SCHEMA else None


def read_plans(path: str | Path) -> tuple[Plan, ...]:
    """The plans of a file.

    Raises:
        InputError: no such file, no JSON, or no plan of this version; every fault with its path.
    """
    from tonnage.plan.plan import Plan
    from tonnage.plan.use_cases import SCHEMA

    document = _document(path)
    if isinstance(document, dict) and document.get("schema") == SCHEMA:
        raise InputError(f"{path}: holds several use cases, and one plan is needed; give one scenario file to tonnage size --output")
    if isinstance(document, dict) and document.get("schema") == COMPARISON and isinstance(document.get("plans"), list):
        return tuple(map(Plan.from_json, document["plans"]))
    return (Plan.from_json(document),)


def _document(path: str | Path) -> Any:
    """The values of a JSON file.

    Raises:
        InputError: no such file, or no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as fault:
        raise InputError(f"cannot read '{path}': {fault.strerror}; give the file that tonnage size wrote as its output") from fault
    except (UnicodeDecodeError, json.JSONDecodeError) as fault:
        raise InputError(f"'{path}' is no JSON: {fault}; give the file that tonnage size wrote as its output") from fault
