"""``tonnage report``: a saved plan, or the folder of a run, written again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tonnage.cli.printing import FORMS_OF_USE_CASES, Form, print_answer, print_plans, print_use_cases
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.plan.use_cases import UseCases


def report(
    saved: Path,
    /,
    *,
    output: Path | None = None,
    timeline: Path | None = None,
    markdown: Annotated[bool, Parameter(negative=())] = False,
    explain: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
    full: Annotated[bool, Parameter(negative=())] = False,
    brief: Annotated[bool, Parameter(negative=())] = False,
    csv: Annotated[bool, Parameter(negative=())] = False,
    plot: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Write the report of a plan that tonnage size saved with --output, or of a run folder of bench, simulate or import.

    Nothing is sized, simulated or measured again.

    Parameters
    ----------
    saved
        File with the plan's JSON; a run folder; or the folder of a sweep, with a run folder for each load.
    output
        Write a page that explains the plan or the run to this file (HTML), instead of printing it.
    timeline
        Of a run, the .parquet file that simulate --timeline wrote: the slots step by step become part of the report.
    markdown
        Print the report as Markdown.
    explain
        Of a plan, print also what takes time and memory, and how far each limit is used.
    full
        Of a plan, print everything: every deployment, why the others are rejected, sensitivity, costs in parts and prices.
    brief
        Of a plan, print the answer in ten lines at most.
    csv
        Of a plan, print every deployment as a line of CSV.
    plot
        Of a plan, print also a plot of the latencies over the load.
    json
        Print the plan, or the metrics of the run, as one JSON object, once they have been checked.
    """
    if saved.is_dir():
        for name, asked in (("explain", explain), ("full", full)):
            if asked:
                raise InputError(f"{option(name)} is for a plan, and {saved} is a folder of a run; drop it")
        _of_runs(saved, output, timeline, markdown=markdown, json=json)
        return
    if timeline is not None:
        raise InputError(f"{option('timeline')}: is of a run; name the folder that simulate wrote with it")
    from tonnage.report.plans.plan_document import read_plans, read_use_cases

    form = Form(json=json, markdown=markdown, explain=explain, full=full, brief=brief, csv=csv, plot=plot)
    several = read_use_cases(saved)
    if several is not None:
        _of_use_cases(several, output, form)
        return
    plans = read_plans(saved)
    if output is None:
        print_plans(plans, form, page="output")
        return
    from tonnage.report.plans.plan_document import report as document
    from tonnage.report.writers.html import write_page

    write_page(output, document(*plans))


def _of_use_cases(found: UseCases, output: Path | None, form: Form) -> None:
    form.check(FORMS_OF_USE_CASES, "several use cases")
    if output is None:
        print_use_cases(found, form, page="output")
        return
    from tonnage.report.plans.use_cases import use_cases_report
    from tonnage.report.writers.html import write_page

    write_page(output, use_cases_report(found))


def _of_runs(folder: Path, output: Path | None, timeline: Path | None, *, markdown: bool, json: bool) -> None:
    from tonnage.report.runs.run_document import run_report, run_values
    from tonnage.report.runs.shown_run import read_shown_runs
    from tonnage.results.timeline import read_timeline

    runs = read_shown_runs(folder)
    slots = None if timeline is None else read_timeline(timeline)
    document = run_report(runs, slots)
    if output is not None:
        from tonnage.report.writers.html import write_page

        write_page(output, document)
    elif markdown and not json:
        from tonnage.report.writers.terminal import markdown as written

        sys.stdout.write(written(document))
    else:
        print_answer(lambda: document, lambda: run_values(runs), json=json)
