"""What was measured: scored, calibrated on, compared, imported, and recorded traffic described and
fitted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from tonnage import api
from tonnage.cli.flags import Said, flags_of, given, refuse, with_flags
from tonnage.cli.printing import print_answer, provenance, today, write_page
from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.services import calibrate_service, is_inference
from tonnage.errors import InputError, option
from tonnage.report.measured import imported, run_and_plan, two_runs, two_runs_page
from tonnage.report.scored import calibrated, scored, scored_models
from tonnage.report.workload import described, fitted


@with_flags(*flags_of(Said))
def score(
    file: Path,
    /,
    *,
    coefficients: Path | None = None,
    step_model: str | None = None,
    json: bool = False,
    attain: list[str] | None = None,
    worst: int = 10,
    **said: Any,
) -> None:
    """Predict every row of a measured file and print the errors.

    Args:
        file: CSV with model, gpu, precision, tp, isl, osl, one of batch, concurrency or
            request_rate, and measured columns; or any other file or folder that tonnage calibrate
            reads.
        coefficients: File that tonnage calibrate wrote; its factors are applied to the shipped
            terms.
        step_model: Source of the step times: fitted (default), kernels, aiconfigurator, or a .csv
            of your own (docs/step-models.md); several with commas, or all, are compared side by
            side.
        json: Print one JSON object with overall, groups and worst; of several step models with
            models, errors and disagreement.
        attain: Share of requests that must meet several limits at once, such as "95%: ttft<=500ms &
            tpot<=50ms", compared where rows are run folders; may be repeated.
        worst: Number of the worst rows to show.
    """
    arguments: dict[str, Any] = {"coefficients": coefficients, "worst": worst, **given(said)}
    compile_if_needed()
    with progress_bar("predicting") as progress:
        if step_model is not None and api.several_models(step_model):
            if attain:
                raise InputError(
                    f"{option('attain')}: is compared with one step model at a time; name one, or"
                    " leave it out"
                )
            scores = api.score_models(file, step_model, progress=progress, **arguments)
            print_answer(lambda: scored_models(scores), scores.to_json, json=json)
        else:
            report = api.score(
                file, step_model=step_model, attain=attain or (), progress=progress, **arguments
            )
            print_answer(lambda: scored(report), report.to_json, json=json)


@with_flags(*flags_of(Said))
def calibrate(
    *measured: Path,
    output: Path | None = None,
    plan: Path | None = None,
    own_terms: Annotated[bool | None, Parameter(negative=None)] = None,
    json: bool = False,
    **asked: Any,
) -> None:
    """Fit the step model to a few measurements of your own.

    The factors are kept only where they predict points better that they have not seen.

    Args:
        measured: Files or folders: CSV of points, reports of GenAI-Perf or AIPerf, results of vllm
            bench, GuideLLM's benchmarks.json, run folders; or runs of bench with infer, and the
            service file whose models they measured (docs/services.md).
        output: File to write the factors to; simulate, size and score take it with --coefficients.
            Of inferences, the service file.
        plan: The plan whose choice was measured, as size --output wrote it: it says model, GPU,
            format, TP, engine and the engine's limits.
        own_terms: Fit step terms of your own, from eight loads or more, instead of factors on the
            shipped ones (default: where --gpu is a YAML file).
        json: Print what the file would hold as one JSON object.
    """
    if not measured:
        raise InputError(
            "calibrate: nothing measured is given; name a file, for example ./tonnage calibrate"
            " points.csv --output my.json"
        )
    if is_inference(measured):
        calibrate_service(measured, output, given(asked), json=json)
        return
    compile_if_needed()
    date = today().isoformat()
    with progress_bar("calibrating") as progress:
        report = api.calibrate(
            measured,
            output=output,
            plan=plan,
            date=date,
            own_terms=own_terms,
            progress=progress,
            **given(asked),
        )
    print_answer(lambda: calibrated(report, output), lambda: report.to_json(date), json=json)


@with_flags()
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
    """Two runs, measured, simulated or imported: the ratio of every latency and rate, with its
    interval.

    A run and a plan: what was measured beside what the plan's deployment is predicted to do with
    the same requests.

    Args:
        first: A run folder.
        second: Another one, ratios being of this one to the first; or the JSON file of a plan.
        instances: Beside a plan: how many of its instances were measured (default: all that the
            plan has).
        router: Beside a plan: what shares the requests among several instances (default:
            least-outstanding).
        coefficients: Beside a plan: file that calibrate wrote, in place of the calibration that the
            plan was made with.
        attain: Of two runs: share of requests that must meet several limits at once, such as "95%:
            ttft<=500ms & tpot<=50ms"; may be repeated.
        include_invalid: Compare runs that their own client called INVALID; they are refused
            otherwise.
        report: Of two runs: write a page with quantile–quantile plots to this file (HTML).
        json: Print one JSON object; of two runs with the quantiles from 1 % to 99 % of both.
    """
    settings = {"instances": instances, "router": router, "coefficients": coefficients}
    values = {"first": str(first), "second": str(second)}
    if second.is_file():
        if report is not None:
            raise InputError(
                f"{option('report')}: draws two runs; {second} is a file, give a second run folder"
            )
        if attain:
            raise InputError(f"{option('attain')}: {second} has its own limits; leave it out")
        _beside_plan(first, second, {**settings, "include_invalid": include_invalid}, json=json)
        return
    refuse(settings, f"is for a run beside a plan; {second} is no file of one")
    from tonnage.api.compare import compare_runs

    comparison = compare_runs(first, second, attain=attain or (), include_invalid=include_invalid)
    write_page(report, lambda: two_runs_page(comparison, first.name, second.name))
    print_answer(
        lambda: two_runs(comparison, first.name, second.name),
        lambda: {**values, **comparison.to_json()},
        json=json,
    )


def _beside_plan(run: Path, plan: Path, flags: dict[str, Any], *, json: bool) -> None:
    from tonnage.api.compare import compare_plan

    compile_if_needed()
    run_beside_plan = compare_plan(run, plan, **flags)
    values = {"run": str(run), "plan": str(plan)}
    print_answer(
        lambda: run_and_plan(run_beside_plan, run.name),
        lambda: {**values, **run_beside_plan.to_json()},
        json=json,
    )


@with_flags()
def import_run(
    file: Path, /, *, output: Path, tokenizer: Path | None = None, json: bool = False
) -> None:
    """Make run folders of a file with single requests: of AIPerf, GenAI-Perf, GuideLLM,
    inference-perf, vLLM's or SGLang's bench, or a log.

    Args:
        file: The file, or the artifact folder of AIPerf, GenAI-Perf or inference-perf.
        output: The run folder to write; a file with several runs makes one for each inside it.
        tokenizer: A local tokenizer.json, which counts the tokens of GenAI-Perf's texts where the
            server did not.
        json: Print one JSON object.
    """
    from tonnage.api.compare import import_run as make

    imported_runs = make(file, output, tokenizer=tokenizer, provenance=provenance(0))
    runs = [
        {"folder": str(folder), **summary.to_json(), **facts}
        for folder, summary, facts in imported_runs
    ]
    print_answer(lambda: imported(imported_runs), lambda: {"runs": runs}, json=json)


@with_flags()
def workload(
    action: Literal["describe", "fit", "from-prometheus"],
    file: str,
    /,
    *,
    model: str | None = None,
    gpu: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    report: Path | None = None,
    output: Path | None = None,
    range: str = "14d",
    select: str = "",
    header: list[str] | None = None,
    save: Path | None = None,
    isl: str | None = None,
    osl: str | None = None,
    plan: Path | None = None,
    forecast: str | None = None,
    trace_unit: str | None = None,
    json: bool = False,
) -> None:
    """Say what recorded traffic is like, or write a scenario that reproduces it.

    Args:
        action: describe: lengths, burstiness, fitted distributions, shared prefixes and engine
            limits; fit: a scenario for size and simulate; from-prometheus: a scenario of the
            traffic of days, from what engines export.
        file: Recorded sessions (WEKA's, Dynamo's, AIPerf's, OTLP spans), a trace (Azure's,
            Mooncake's, BurstGPT's, or a CSV with timestamp, isl and osl), a run folder, or what
            vllm bench, GenAI-Perf, AIPerf or GuideLLM kept of single requests, or an access log
            (JSON lines); from-prometheus also takes the URL of a Prometheus, or a file with its
            answers.
        model: Describe: the model whose KV memory the engine limits are estimated for; fit: the
            model of the scenario.
        gpu: Describe: GPU id (default: h100-sxm-80gb, or the first of h200, b200 and b300 of which
            eight hold the model).
        tp: Describe: tensor-parallel degree (default: the fewest of 1, 2, 4 and 8 that hold the
            model).
        engine: Describe: engine preset (default: tensorrt-llm).
        report: Describe and from-prometheus: write a page with the figures to this file (HTML).
        output: Fit and from-prometheus: the YAML file to write, with the files that it names.
        range: From-prometheus: time before the last whole hour that is read.
        select: From-prometheus: label matchers of the deployment, such as
            'namespace="prod",model_name="llama"'.
        header: From-prometheus: a further header of every query, such as "Authorization: Bearer …";
            may be repeated.
        save: From-prometheus: file to keep the server's answers in, which can be read in its place.
        isl: From-prometheus: prompt length, where the engine exports none.
        osl: From-prometheus: output length, where the engine exports none.
        plan: From-prometheus: the plan that was deployed, as size --output wrote it: what changed,
            until when its systems last, and the hours as measured points for calibrate.
        trace_unit: Describe and fit: unit of a trace's times (s, ms, us or ns), where they are
            numbers and do not make it clear.
        forecast: From-prometheus with a plan: time ahead, such as 6mo, for which load and systems
            are predicted.
        json: Print one JSON object.
    """
    history = {
        "select": select or None,
        "header": header,
        "save": save,
        "isl": isl,
        "osl": osl,
        "plan": plan,
        "forecast": forecast,
    }
    instance = {"gpu": gpu, "tp": tp, "engine": engine}
    if action == "from-prometheus":
        refuse({**instance, "trace_unit": trace_unit}, "belongs to describe; leave it out")
        read = {
            "source": file,
            "range": range,
            "select": select,
            "header": header or (),
            "save": save,
        }
        _from_prometheus(
            read,
            {"output": output, "model": model, "isl": isl, "osl": osl, "plan": plan},
            report,
            forecast,
            json=json,
        )
        return
    refuse(history, "belongs to from-prometheus; leave it out")
    if action == "describe":
        refuse({"output": output}, "belongs to fit; describe writes a page with --report")
        arguments = {
            "model": model,
            "gpu": gpu,
            "tp": tp,
            "engine": engine or "tensorrt-llm",
            "trace_unit": trace_unit,
        }
        _describe(Path(file), report, arguments, json=json)
    else:
        refuse({**instance, "report": report}, "belongs to describe; leave it out")
        _fit(Path(file), output, {"model": model, "trace_unit": trace_unit}, json=json)


def _describe(file: Path, report: Path | None, flags: dict[str, Any], *, json: bool) -> None:
    description = api.describe_workload(file, **flags)
    write_page(report, lambda: described(description))
    print_answer(lambda: described(description, figures=False), description.to_json, json=json)


def _fit(file: Path, output: Path | None, flags: dict[str, Any], *, json: bool) -> None:
    if output is None and not json:
        raise InputError(
            f"{option('output')}: missing; name the file to write, for example {option('output')}"
            " scenario.yaml"
        )
    fit = api.fit_workload(file, output, **flags)
    print_answer(lambda: fitted(fit, output), fit.to_json, json=json)


def _from_prometheus(
    read: dict[str, Any],
    fit: dict[str, Any],
    report: Path | None,
    forecast: str | None,
    *,
    json: bool,
) -> None:
    from tonnage.api.compare import fit_history, read_history, today
    from tonnage.report.verified import fitted_history

    output, plan = fit["output"], fit["plan"]
    if forecast is not None and plan is None:
        raise InputError(
            f"{option('forecast')}: needs the systems of a plan; give {option('plan')}"
        )
    if plan is not None:
        compile_if_needed()
    history_fit = fit_history(read_history(**read), **fit)
    beside = None if plan is None else today(plan, history_fit, forecast=forecast)
    write_page(report, lambda: fitted_history(history_fit, output, plan, beside, figures=True))
    print_answer(
        lambda: fitted_history(history_fit, output, plan, beside, figures=False),
        (beside or history_fit).to_json,
        json=json,
    )
