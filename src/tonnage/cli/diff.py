"""``tonnage diff``: two saved plans beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan


def diff(first: Path, second: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what two plans say differently: of the question, the answer, its cost and the prices behind it.

    Parameters
    ----------
    first
        File with a plan's JSON, as tonnage size --output wrote it.
    second
        Another one.
    json
        Print the differences as one JSON object.
    """
    from tonnage.cli.printing import print_answer
    from tonnage.report.plans.diff import diff_json, diff_text

    plans = _one(first), _one(second)
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    print_answer(lambda: diff_text(*plans, names), lambda: diff_json(*plans), json=json)


def _one(path: Path) -> Plan:
    """The plan of a file.

    Raises:
        InputError: no plan, or a comparison of several.
    """
    from tonnage.report.plans.saved import read_plans

    plans = read_plans(path)
    if len(plans) != 1:
        raise InputError(f"{path}: compares {len(plans)} models; give the files of two single plans")
    return plans[0]
