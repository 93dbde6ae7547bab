"""``tonnage diff``: two saved plans beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.report.plans.diff import Difference


def diff(first: Path, second: Path, /, *, json: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Show what two plans say differently: of the question, the answer, its cost and the prices behind it.

    Parameters
    ----------
    first
        File with a plan's JSON, as tonnage size --output wrote it; of several use cases each is compared.
    second
        Another one.
    json
        Print the differences as one JSON object.
    """
    from tonnage.cli.printing import print_answer
    from tonnage.report.plans.diff import diff_json, diff_text

    found = _differences(first, second)
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    print_answer(lambda: diff_text(found, names), lambda: diff_json(found), json=json)


def _differences(first: Path, second: Path) -> tuple[Difference, ...]:
    """What two files say differently, each of one plan, or each of several use cases.

    Raises InputError: no plan, or files of different kinds.
    """
    from tonnage.report.plans.diff import differences, use_case_differences
    from tonnage.report.plans.plan_document import read_use_cases

    fleet, other = read_use_cases(first), read_use_cases(second)
    if fleet is not None and other is not None:
        return use_case_differences(fleet, other)
    if fleet is None and other is None:
        return differences(_one(first), _one(second))
    several, single = (first, second) if other is None else (second, first)
    raise InputError(f"{several}: holds several use cases and {single} does not; give two files of the same kind")


def _one(path: Path) -> Plan:
    """The plan of a file. Raises InputError: no plan, or a comparison of several."""
    from tonnage.report.plans.plan_document import read_plans

    plans = read_plans(path)
    if len(plans) != 1:
        raise InputError(f"{path}: compares {len(plans)} models; give the files of two single plans")
    return plans[0]
