"""``tonnage score``: predictions against a measured file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tonnage.cli.flags import Said, flags_of, given, refuse, with_flags
from tonnage.cli.printing import print_answer, write_page
from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.services import calibrate_service, is_inference
from tonnage.errors import InputError, option

FILE = (
    "CSV with model, gpu, precision, tp, isl, osl, one of batch, concurrency or request_rate, and measured columns; or any other file "
    "or folder that tonnage calibrate reads."
)
STEP_MODEL = (
    "Source of the step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md); several with commas, or "
    "all, are compared side by side."
)
ATTAIN = (
    'Share of requests that must meet several limits at once, such as "95%: ttft<=500ms & tpot<=50ms", compared where rows are run '
    "folders; may be repeated."
)
JSON = "Print one JSON object with overall, groups and worst; of several step models with models, errors and disagreement."


@with_flags(*flags_of(Said))
def score(
    file: Annotated[Path, Parameter(help=FILE)],
    /,
    *,
    coefficients: Annotated[
        Path | None, Parameter(help="File that tonnage calibrate wrote; its factors are applied to the shipped terms.")
    ] = None,
    step_model: Annotated[str | None, Parameter(help=STEP_MODEL)] = None,
    json: Annotated[bool, Parameter(help=JSON)] = False,
    attain: Annotated[list[str] | None, Parameter(help=ATTAIN)] = None,
    worst: Annotated[int, Parameter(help="How many of the worst rows to show.")] = 10,
    **said: Any,
) -> None:
    """Predict every row of a measured file and print the errors."""
    from tonnage import api
    from tonnage.report.scored import scored, scored_models

    asked: dict[str, Any] = {"coefficients": coefficients, "worst": worst, **given(said)}
    compile_if_needed()
    with progress_bar("predicting") as progress:
        if step_model is not None and api.several_models(step_model):
            if attain:
                raise InputError(f"{option('attain')}: is compared with one step model at a time; name one, or leave it out")
            scores = api.score_models(file, step_model, progress=progress, **asked)
            print_answer(lambda: scored_models(scores), scores.to_json, json=json)
        else:
            report = api.score(file, step_model=step_model, attain=attain or (), progress=progress, **asked)
            print_answer(lambda: scored(report), report.to_json, json=json)


# ``tonnage calibrate``: one's own measurements to a file that predictions take with ``--coefficients``.


@with_flags(*flags_of(Said))
def calibrate(
    *measured: Annotated[
        Path,
        Parameter(
            help="Files or folders: CSV of points, reports of GenAI-Perf or AIPerf, results of vllm bench, GuideLLM's benchmarks.json, "
            "run folders; or runs of bench with infer, and the service file whose models they measured (docs/services.md)."
        ),
    ],
    output: Annotated[
        Path | None,
        Parameter(
            help="File to write the factors to; simulate, size and score take it with --coefficients. Of inferences, the service file."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        Parameter(
            help="The plan whose choice was measured, as size --output wrote it: it says model, GPU, format, TP, engine and the engine's "
            "limits."
        ),
    ] = None,
    own_terms: Annotated[
        bool | None,
        Parameter(
            negative=None,
            help="Fit step terms of your own, from eight loads or more, instead of factors on the shipped ones "
            "(default: where --gpu is a YAML file).",
        ),
    ] = None,
    json: Annotated[bool, Parameter(help="Print what the file would hold as one JSON object.")] = False,
    **asked: Any,
) -> None:
    """Fit the step model to a few measurements of your own.

    The factors are kept only where they predict points better that they have not seen.
    """
    from tonnage import api
    from tonnage.cli.printing import today
    from tonnage.report.scored import calibrated

    if not measured:
        raise InputError("calibrate: nothing measured is given; name a file, for example ./tonnage calibrate points.csv --output my.json")
    if is_inference(measured):
        calibrate_service(measured, output, given(asked), json=json)
        return
    compile_if_needed()
    date = today().isoformat()
    with progress_bar("calibrating") as progress:
        report = api.calibrate(measured, output=output, plan=plan, date=date, own_terms=own_terms, progress=progress, **given(asked))
    print_answer(lambda: calibrated(report, output), lambda: report.to_json(date), json=json)


# ``tonnage compare``: two runs side by side, or a run beside a plan.


def compare(
    first: Path,
    second: Path,
    /,
    *,
    instances: int | None = None,
    router: str | None = None,
    coefficients: Path | None = None,
    attain: list[str] | None = None,
    include_invalid: bool = False,
    report: Path | None = None,
    json: bool = False,
) -> None:
    """Two runs, measured, simulated or imported: the ratio of every latency and rate, with its interval.

    A run and a plan: what was measured beside what the plan's deployment is predicted to do with the same requests.

    Args:
        first: A run folder.
        second: Another one, ratios being of this one to the first; or the JSON file of a plan.
        instances: Beside a plan: how many of its instances were measured (default: all that the plan has).
        router: Beside a plan: what shares the requests among several instances (default: least-outstanding).
        coefficients: Beside a plan: file that calibrate wrote, in place of the calibration that the plan was made with.
        attain: Of two runs: share of requests that must meet several limits at once, such as "95%: ttft<=500ms & tpot<=50ms"; may be
            repeated.
        include_invalid: Compare runs that their own client called INVALID; they are refused otherwise.
        report: Of two runs: write a page with quantile–quantile plots to this file (HTML).
        json: Print one JSON object; of two runs with the quantiles from 1 % to 99 % of both.
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
    refuse(given, f"is for a run beside a plan; {second} is no file of one")
    from tonnage.api.compare import compare_runs
    from tonnage.report.comparison import two_runs

    found = compare_runs(first, second, attain=attain or (), include_invalid=include_invalid)
    from tonnage.report.comparison import two_runs_page

    write_page(report, lambda: two_runs_page(found, first.name, second.name))
    print_answer(lambda: two_runs(found, first.name, second.name), lambda: {**values, **found.to_json()}, json=json)


def _beside_plan(run: Path, plan: Path, given: dict[str, Any], *, json: bool) -> None:
    from tonnage.api.compare import compare_plan
    from tonnage.report.comparison import run_and_plan

    compile_if_needed()
    found = compare_plan(run, plan, **given)
    values = {"run": str(run), "plan": str(plan)}
    print_answer(lambda: run_and_plan(found, run.name), lambda: {**values, **found.to_json()}, json=json)


# ``tonnage import``: single requests of another tool's run, as a run folder.


def import_run(
    file: Path,
    /,
    *,
    output: Path,
    tokenizer: Path | None = None,
    json: bool = False,
) -> None:
    """Make run folders of a file with single requests: AIPerf's or GenAI-Perf's profile_export, vLLM bench's or GuideLLM's JSON.

    Args:
        file: The file, or the artifact folder of AIPerf or GenAI-Perf.
        output: The run folder to write; a file with several runs makes one for each inside it.
        tokenizer: A local tokenizer.json, which counts the tokens of GenAI-Perf's texts where the server did not.
        json: Print one JSON object.
    """
    from tonnage.api.compare import import_run as make
    from tonnage.cli.printing import provenance
    from tonnage.report.measured import imported

    made = make(file, output, tokenizer=tokenizer, provenance=provenance(0))
    runs = [{"folder": str(folder), **summary.to_json()} for folder, summary in made]
    print_answer(lambda: imported(made), lambda: {"runs": runs}, json=json)
