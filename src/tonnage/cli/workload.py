"""``tonnage workload``: recorded traffic, described or fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from tonnage.cli.flags import refuse
from tonnage.cli.printing import print_answer, write_page
from tonnage.cli.progress import compile_if_needed
from tonnage.errors import InputError, option


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
    json: bool = False,
) -> None:
    """Say what recorded traffic is like, or write a scenario that reproduces it.

    Args:
        action: describe: lengths, burstiness, fitted distributions, shared prefixes and engine limits; fit: a scenario for size and
            simulate; from-prometheus: a scenario of the traffic of days, from what engines export.
        file: Recorded sessions (WEKA's, Dynamo's, AIPerf's, OTLP spans), a trace (Azure's, Mooncake's, BurstGPT's, or a CSV with timestamp,
            isl and osl), a run folder, or what vllm bench, GenAI-Perf, AIPerf or GuideLLM kept of single requests, or an access log (JSON
            lines); from-prometheus also takes the URL of a Prometheus, or a file with its answers.
        model: Describe: the model whose KV memory the engine limits are estimated for; fit: the model of the scenario.
        gpu: Describe: GPU id (default: h100-sxm-80gb, or the first of h200, b200 and b300 of which eight hold the model).
        tp: Describe: tensor-parallel degree (default: the fewest of 1, 2, 4 and 8 that hold the model).
        engine: Describe: engine preset (default: tensorrt-llm).
        report: Describe and from-prometheus: write a page with the figures to this file (HTML).
        output: Fit and from-prometheus: the YAML file to write, with the files that it names.
        range: From-prometheus: time before the last whole hour that is read.
        select: From-prometheus: label matchers of the deployment, such as 'namespace="prod",model_name="llama"'.
        header: From-prometheus: a further header of every query, such as "Authorization: Bearer …"; may be repeated.
        save: From-prometheus: file to keep the server's answers in, which can be read in its place.
        isl: From-prometheus: prompt length, where the engine exports none.
        osl: From-prometheus: output length, where the engine exports none.
        plan: From-prometheus: the plan that was deployed, as size --output wrote it: what changed, until when its systems last, and the
            hours as measured points for calibrate.
        forecast: From-prometheus with a plan: time ahead, such as 6mo, for which load and systems are predicted.
        json: Print one JSON object.
    """
    history = {"select": select or None, "header": header, "save": save, "isl": isl, "osl": osl, "plan": plan, "forecast": forecast}
    instance = {"gpu": gpu, "tp": tp, "engine": engine}
    if action == "from-prometheus":
        refuse(instance, "belongs to describe; leave it out")
        read = {"source": file, "range": range, "select": select, "header": header or (), "save": save}
        _from_prometheus(read, {"output": output, "model": model, "isl": isl, "osl": osl, "plan": plan}, report, forecast, json=json)
        return
    refuse(history, "belongs to from-prometheus; leave it out")
    if action == "describe":
        refuse({"output": output}, "belongs to fit; describe writes a page with --report")
        _describe(Path(file), report, json=json, model=model, gpu=gpu, tp=tp, engine=engine or "tensorrt-llm")
    else:
        refuse({**instance, "report": report}, "belongs to describe; leave it out")
        _fit(Path(file), output, model, json=json)


def _describe(file: Path, report: Path | None, *, json: bool, model: str | None, gpu: str | None, tp: int | None, engine: str) -> None:
    from tonnage import api
    from tonnage.report.workload import described

    found = api.describe_workload(file, model=model, gpu=gpu, tp=tp, engine=engine)
    write_page(report, lambda: described(found))
    print_answer(lambda: described(found, figures=False), found.to_json, json=json)


def _fit(file: Path, output: Path | None, model: str | None, *, json: bool) -> None:
    from tonnage import api
    from tonnage.report.workload import fitted

    if output is None and not json:
        raise InputError(f"{option('output')}: missing; name the file to write, for example {option('output')} scenario.yaml")
    found = api.fit_workload(file, output, model=model)
    print_answer(lambda: fitted(found, output), found.to_json, json=json)


def _from_prometheus(read: dict[str, Any], fit: dict[str, Any], report: Path | None, forecast: str | None, *, json: bool) -> None:
    from tonnage.api.compare import fit_history, read_history, today
    from tonnage.report.verified import fitted_history

    output, plan = fit["output"], fit["plan"]
    if forecast is not None and plan is None:
        raise InputError(f"{option('forecast')}: needs the systems of a plan; give {option('plan')}")
    if plan is not None:
        compile_if_needed()
    found = fit_history(read_history(**read), **fit)
    beside = None if plan is None else today(plan, found, forecast=forecast)
    write_page(report, lambda: fitted_history(found, output, plan, beside, figures=True))
    print_answer(lambda: fitted_history(found, output, plan, beside, figures=False), (beside or found).to_json, json=json)
