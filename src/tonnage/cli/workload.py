"""``tonnage workload``: recorded traffic, described or fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tonnage.cli.printing import print_answer
from tonnage.errors import InputError, option


def workload(
    action: Literal["describe", "fit"],
    file: Path,
    /,
    *,
    model: str | None = None,
    gpu: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    report: Path | None = None,
    output: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Say what recorded traffic is like, or write a scenario that reproduces it.

    Parameters
    ----------
    action
        describe: lengths, burstiness, fitted distributions, shared prefixes and engine limits; fit: a scenario for size and simulate.
    file
        Recorded sessions (WEKA's, Dynamo's, AIPerf's, OTLP spans), a trace (Azure's, Mooncake's, BurstGPT's, or a CSV with timestamp, isl
        and osl), a run folder, or what vllm bench, GenAI-Perf, AIPerf or GuideLLM kept of single requests.
    model
        Describe: the model whose KV memory the engine limits are estimated for; fit: the model of the scenario.
    gpu
        Describe: GPU id (default: h100-sxm-80gb, or the first of h200, b200 and b300 of which eight hold the model).
    tp
        Describe: tensor-parallel degree (default: the fewest of 1, 2, 4 and 8 that hold the model).
    engine
        Describe: engine preset (default: tensorrt-llm).
    report
        Describe: write a page with the figures to this file (HTML).
    output
        Fit: the YAML file to write; what it reads is written beside it.
    json
        Print one JSON object.
    """
    if action == "describe":
        _refuse({"output": output}, "belongs to fit; describe writes a page with --report")
        _describe(file, report, json=json, model=model, gpu=gpu, tp=tp, engine=engine or "tensorrt-llm")
    else:
        _refuse({"gpu": gpu, "tp": tp, "engine": engine, "report": report}, "belongs to describe; leave it out")
        _fit(file, output, model, json=json)


def _refuse(flags: dict[str, object], why: str) -> None:
    for name, value in flags.items():
        if value is not None:
            raise InputError(f"{option(name)}: {why}")


def _describe(file: Path, report: Path | None, *, json: bool, model: str | None, gpu: str | None, tp: int | None, engine: str) -> None:
    from tonnage import api
    from tonnage.report.workload import described

    found = api.describe_workload(file, model=model, gpu=gpu, tp=tp, engine=engine)
    if report is not None:
        from tonnage.report.writers.html import write_page

        write_page(report, described(found))
    print_answer(lambda: described(found, figures=False), found.to_json, json=json)


def _fit(file: Path, output: Path | None, model: str | None, *, json: bool) -> None:
    from tonnage import api
    from tonnage.report.workload import fitted

    if output is None and not json:
        raise InputError(f"{option('output')}: missing; name the file to write, for example {option('output')} scenario.yaml")
    found = api.fit_workload(file, output, model=model)
    print_answer(lambda: fitted(found, output), found.to_json, json=json)
