"""``tonnage diff``: two saved plans side by side, or a plan and the traffic of its deployment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.report.plans.diff import Difference


def diff(
    first: Path,
    second: str,
    /,
    *,
    range: str = "7d",
    select: str = "",
    header: Annotated[list[str] | None, Parameter(negative=())] = None,
    coefficients: Path | None = None,
    forecast: str | None = None,
    report: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Show what two plans say differently: of the question, the answer, its cost and the prices behind it.

    A plan and the traffic of its deployment: what drifted since the plan, how many systems that takes, and until when they last.

    Parameters
    ----------
    first
        File with a plan's JSON, as tonnage size --output wrote it; of several use cases each is compared.
    second
        Another one; or the URL of a Prometheus, a file with its answers, or recorded requests (docs/watch.md).
    range
        Of a Prometheus: time before the last whole hour that is read.
    select
        Of a Prometheus: label matchers of the deployment, such as 'namespace="prod",model_name="llama"'.
    header
        Of a Prometheus: a further header of every query, such as "Authorization: Bearer …"; may be repeated.
    coefficients
        With traffic: file that calibrate wrote, in place of the calibration that the plan was made with.
    forecast
        With traffic: time ahead, such as 6mo, for which load and systems are predicted.
    report
        With traffic: write a page with the figures to this file (HTML).
    json
        Print the differences as one JSON object.
    """
    from tonnage.api.compare import is_history
    from tonnage.cli.printing import print_answer

    if is_history(second):
        read = {"source": second, "range": range, "select": select, "header": header or ()}
        _drifted(read, {"plan": first, "forecast": forecast, "coefficients": coefficients}, report, json=json)
        return
    given = {"select": select or None, "header": header, "coefficients": coefficients, "forecast": forecast, "report": report}
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{option(name)}: belongs to the traffic of a deployment; {second} is no history")
    from tonnage.report.plans.diff import diff_json, diff_text

    other = Path(second)
    found = _differences(first, other)
    names = (first.stem, other.stem) if first.stem != other.stem else (str(first), second)
    print_answer(lambda: diff_text(found, names), lambda: diff_json(found), json=json)


def _drifted(read: dict[str, Any], beside: dict[str, Any], report: Path | None, *, json: bool) -> None:
    from tonnage.api.compare import fit_history, read_history, today
    from tonnage.cli.printing import print_answer
    from tonnage.cli.progress import compile_if_needed
    from tonnage.report.verified import drifted

    compile_if_needed()
    found = today(fit=fit_history(read_history(**read)), **beside)
    if report is not None:
        from tonnage.report.writers.html import write_page

        write_page(report, drifted(found, figures=True))
    print_answer(lambda: drifted(found, figures=False), found.to_json, json=json)


def _differences(first: Path, second: Path) -> tuple[Difference, ...]:
    """What two files say differently, each of one plan, or each of several use cases."""
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
