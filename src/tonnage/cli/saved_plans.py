"""``tonnage report``: a saved plan, or the folder of a run, written again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.cli.flags import refuse, with_flags
from tonnage.cli.printing import (
    FORMS_OF_USE_CASES,
    Form,
    print_answer,
    print_plans,
    print_use_cases,
    write_page,
)
from tonnage.cli.progress import compile_if_needed
from tonnage.errors import InputError, option
from tonnage.report.plans.plan_document import read_plans, read_use_cases
from tonnage.report.plans.plan_document import report as document
from tonnage.report.plans.use_cases import use_cases_report, use_cases_why
from tonnage.report.writers.terminal import markdown as written

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.report.plans.diff import Difference


@with_flags()
def report(
    saved: Path,
    /,
    *,
    output: Path | None = None,
    timeline: Path | None = None,
    markdown: bool = False,
    explain: bool = False,
    json: bool = False,
    full: bool = False,
    brief: bool = False,
    csv: bool = False,
    plot: bool = False,
) -> None:
    """Write the report of a plan that tonnage size saved with --output, or of a run folder of
    bench, simulate or import.

    Nothing is sized, simulated or measured again.

    Args:
        saved: File with the plan's JSON; a run folder; or the folder of a sweep, with a run folder
            for each load.
        output: Write a page that explains the plan or the run to this file (HTML), instead of
            printing it.
        timeline: Of a run, the .parquet file that simulate --timeline wrote: the slots step by step
            become part of the report.
        markdown: Print the report as Markdown.
        explain: Of a plan, print also what takes time and memory, and how far each limit is used.
        full: Of a plan, print everything: every deployment, why the others are rejected,
            sensitivity, costs in parts and prices.
        brief: Of a plan, print the answer in ten lines at most.
        csv: Of a plan, print every deployment as a line of CSV.
        plot: Of a plan, print also a plot of the latencies over the load.
        json: Print the plan, or the metrics of the run, as one JSON object, once they have been
            checked.
    """
    if saved.is_dir():
        for name, is_set in (("explain", explain), ("full", full)):
            if is_set:
                raise InputError(
                    f"{option(name)} is for a plan, and {saved} is a folder of a run; drop it"
                )
        _of_runs(saved, output, timeline, markdown=markdown, json=json)
        return
    if timeline is not None:
        raise InputError(
            f"{option('timeline')}: applies only to the folder of a run; name one that simulate"
            " wrote"
        )
    form = Form(
        json=json, markdown=markdown, explain=explain, full=full, brief=brief, csv=csv, plot=plot
    )
    several = read_use_cases(saved)
    if several is not None:
        form.check(FORMS_OF_USE_CASES, "several use cases")
        if output is None:
            print_use_cases(several, form, page="output")
        else:
            write_page(output, lambda: use_cases_report(several))
        return
    plans = read_plans(saved)
    if output is None:
        print_plans(plans, form, page="output")
    else:
        write_page(output, lambda: document(*plans))


def _of_runs(
    folder: Path, output: Path | None, timeline: Path | None, *, markdown: bool, json: bool
) -> None:
    from tonnage.report.runs.run_document import run_report, run_values
    from tonnage.report.runs.shown_run import read_shown_runs
    from tonnage.results.timeline import read_timeline

    runs = read_shown_runs(folder)
    slots = None if timeline is None else read_timeline(timeline)
    document = run_report(runs, slots)
    if output is not None:
        write_page(output, lambda: document)
    elif markdown and not json:
        sys.stdout.write(written(document))
    else:
        print_answer(lambda: document, lambda: run_values(runs), json=json)


@with_flags()
def explain(plan: Path, /) -> None:
    """Say why a plan chose what it did, what every other kind of deployment would have taken, and
    where time and memory go.

    Nothing is sized again: everything is read off the file.

    Args:
        plan: File with the plan's JSON, as tonnage size --output wrote it; of several use cases
            each is explained.
    """
    from tonnage.report.plans.explained import why_text

    several = read_use_cases(plan)
    document = why_text(read_plans(plan)) if several is None else use_cases_why(several)
    print_answer(lambda: document, lambda: None, json=False)


@with_flags()
def diff(
    first: Path,
    second: str,
    /,
    *,
    range: str = "7d",
    select: str = "",
    header: list[str] | None = None,
    coefficients: Path | None = None,
    forecast: str | None = None,
    report: Path | None = None,
    json: bool = False,
) -> None:
    """Show what two plans say differently: of the question, the answer, its cost and the prices
    behind it.

    A plan and the traffic of its deployment: what drifted since the plan, how many systems that
    takes, and until when they last.

    Args:
        first: File with a plan's JSON, as tonnage size --output wrote it; of several use cases each
            is compared.
        second: Another one; or the URL of a Prometheus, a file with its answers, or recorded
            requests (docs/watch.md).
        range: Of a Prometheus: time before the last whole hour that is read.
        select: Of a Prometheus: label matchers of the deployment, such as
            'namespace="prod",model_name="llama"'.
        header: Of a Prometheus: a further header of every query, such as "Authorization: Bearer …";
            may be repeated.
        coefficients: With traffic: file that calibrate wrote, in place of the calibration that the
            plan was made with.
        forecast: With traffic: time ahead, such as 6mo, for which load and systems are predicted.
        report: With traffic: write a page with the figures to this file (HTML).
        json: Print the differences as one JSON object.
    """
    from tonnage.api.compare import is_history

    if is_history(second):
        read = {"source": second, "range": range, "select": select, "header": header or ()}
        _drifted(
            read,
            {"plan": first, "forecast": forecast, "coefficients": coefficients},
            report,
            json=json,
        )
        return
    traffic_flags = {
        "select": select or None,
        "header": header,
        "coefficients": coefficients,
        "forecast": forecast,
        "report": report,
    }
    refuse(traffic_flags, f"belongs to the traffic of a deployment; {second} is no history")
    from tonnage.report.plans.diff import diff_json, diff_text

    path = Path(second)
    differences = _differences(first, path)
    names = (first.stem, path.stem) if first.stem != path.stem else (str(first), second)
    print_answer(lambda: diff_text(differences, names), lambda: diff_json(differences), json=json)


def _drifted(
    read: dict[str, Any], beside: dict[str, Any], report: Path | None, *, json: bool
) -> None:
    from tonnage.api.compare import fit_history, read_history, today
    from tonnage.report.verified import drifted

    compile_if_needed()
    drift = today(fit=fit_history(read_history(**read)), **beside)
    write_page(report, lambda: drifted(drift, figures=True))
    print_answer(lambda: drifted(drift, figures=False), drift.to_json, json=json)


def _differences(first: Path, second: Path) -> tuple[Difference, ...]:
    """Compare two files, each of one plan, or each of several use cases."""
    from tonnage.report.plans.diff import differences, use_case_differences

    fleet, use_cases = read_use_cases(first), read_use_cases(second)
    if fleet is not None and use_cases is not None:
        return use_case_differences(fleet, use_cases)
    if fleet is None and use_cases is None:
        return differences(_single_plan(first), _single_plan(second))
    several, single = (first, second) if use_cases is None else (second, first)
    raise InputError(
        f"{several}: holds several use cases and {single} does not; give two files of the same kind"
    )


def _single_plan(path: Path) -> Plan:
    """The plan of a file. Raises InputError: no plan, or a comparison of several."""
    plans = read_plans(path)
    if len(plans) != 1:
        raise InputError(
            f"{path}: compares {len(plans)} models; give the files of two single plans"
        )
    return plans[0]
