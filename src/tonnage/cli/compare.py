"""``tonnage compare``: two runs side by side, or a run beside a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tonnage.cli.printing import print_answer
from tonnage.cli.progress import compile_if_needed
from tonnage.errors import InputError, option


def compare(
    first: Path,
    second: Path,
    /,
    *,
    instances: int | None = None,
    router: str | None = None,
    coefficients: Path | None = None,
    attain: Annotated[list[str] | None, Parameter(negative=())] = None,
    include_invalid: Annotated[bool, Parameter(negative=())] = False,
    report: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Two runs, measured, simulated or imported: the ratio of every latency and rate, with its interval.

    A run and a plan: what was measured beside what the plan's deployment is predicted to do with the same requests.

    Parameters
    ----------
    first
        A run folder.
    second
        Another one, ratios being of this one to the first; or the JSON file of a plan.
    instances
        Beside a plan: how many of its instances were measured (default: all that the plan has).
    router
        Beside a plan: what shares the requests among several instances (default: least-outstanding).
    coefficients
        Beside a plan: file that calibrate wrote, in place of the calibration that the plan was made with.
    attain
        Of two runs: share of requests that must meet several limits at once, such as "95%: ttft<=500ms & tpot<=50ms"; may be repeated.
    include_invalid
        Compare runs that their own client called INVALID; they are refused otherwise.
    report
        Of two runs: write a page with quantile–quantile plots to this file (HTML).
    json
        Print one JSON object; of two runs with the quantiles from 1 % to 99 % of both.
    """
    given = {"instances": instances, "router": router, "coefficients": coefficients}
    values = {"first": str(first), "second": str(second)}
    if second.is_file():
        if report is not None:
            raise InputError(f"{option('report')}: draws two runs; {second} is a file, give a second run folder")
        if attain:
            raise InputError(f"{option('attain')}: {second} has its own limits; leave it out")
        _beside_plan(first, second, {**given, "include_invalid": include_invalid}, json=json)
        return
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{option(name)}: is for a run beside a plan; {second} is no file of one")
    from tonnage.api.compare import compare_runs
    from tonnage.report.comparison import two_runs

    found = compare_runs(first, second, attain=attain or (), include_invalid=include_invalid)
    if report is not None:
        from tonnage.report.comparison import two_runs_page
        from tonnage.report.writers.html import write_page

        write_page(report, two_runs_page(found, first.name, second.name))
    print_answer(lambda: two_runs(found, first.name, second.name), lambda: {**values, **found.to_json()}, json=json)


def _beside_plan(run: Path, plan: Path, given: dict[str, Any], *, json: bool) -> None:
    from tonnage.api.compare import compare_plan
    from tonnage.report.comparison import run_and_plan

    compile_if_needed()
    found = compare_plan(run, plan, **given)
    values = {"run": str(run), "plan": str(plan)}
    print_answer(lambda: run_and_plan(found, run.name), lambda: {**values, **found.to_json()}, json=json)
