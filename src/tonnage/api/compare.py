"""What was recorded: runs compared, another tool's run imported, traffic described, fitted, and
read over days next to its plan.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import attainments
from tonnage.api.question.loads import traffic_from
from tonnage.api.running.plans import planned
from tonnage.csv_file import read_text
from tonnage.errors import InputError, option
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.prometheus import curves, selected
from tonnage.formats.table import NONE_COMPLETED, NoneCompleted
from tonnage.results.metrics import Summary
from tonnage.results.store import Run, check_free, read_run, write_together
from tonnage.units import parse_duration
from tonnage.workload.description import Description, EngineLimits, KvGain, describe
from tonnage.workload.history import History, history_of, history_of_requests

if TYPE_CHECKING:
    from tonnage.bench.intervals import Comparison
    from tonnage.evidence.replay import RunBesidePlan
    from tonnage.spec.scenario import Scenario
    from tonnage.watch.drift import Today
    from tonnage.workload.fit import Fit
    from tonnage.workload.history_fit import HistoryFit


def compare_runs(
    first: Path, second: Path, *, attain: Sequence[str] = (), include_invalid: bool = False
) -> Comparison:
    """Compare two run folders by their records, as ``tonnage compare`` does. Raises InputError:
    none, or INVALID; DataError: damaged.
    """
    from tonnage.bench.intervals import compare

    invalid = InvalidRuns(include=include_invalid, allow_errors=True)
    run, second_run = (_believed(folder, invalid) for folder in (first, second))
    comparison = compare(run.requests, second_run.requests, slo=attainments(attain))
    return replace(comparison, notes=(*comparison.notes, *invalid.sentences))


def _believed(folder: Path, invalid: InvalidRuns) -> Run:
    """The run of a folder. Raises InputError: it is no run folder, or its own client called it
    INVALID, and such runs are not taken.
    """
    run = read_run(folder)
    if not invalid.takes(folder, run.summary):
        invalid.check(())
    return run


def compare_plan(
    run: Path,
    plan: Path,
    *,
    instances: int | None = None,
    router: str | None = None,
    coefficients: str | Path | None = None,
    include_invalid: bool = False,
) -> RunBesidePlan:
    """Replay the requests of a run on the deployment of a plan; arguments as of ``tonnage
    compare``.

    Raises InputError: no run folder, an INVALID one, no plan, or one that chose or predicted
    nothing; DataError: a damaged file.
    """
    from tonnage.api.question.deployment import BY_CONTENT
    from tonnage.evidence.replay import ROUTER, beside_plan, replay
    from tonnage.simulator.router import ROUTERS

    if instances is not None and instances < 1:
        raise InputError(f"{option('instances')}: {instances} is not possible; write 1 or more")
    if router is not None and (router not in ROUTERS or router in BY_CONTENT):
        router_names = ", ".join(name for name in ROUTERS if name not in BY_CONTENT)
        raise InputError(f"{option('router')}: '{router}' is none of {router_names}")
    invalid = InvalidRuns(include=include_invalid, allow_errors=True)
    measured, choice = _believed(run, invalid), planned(plan, coefficients=coefficients)
    if not choice.plan.provenance.simulated:
        raise InputError(
            f"{plan}: rests on measured points and makes no prediction; give a plan that was"
            " simulated"
        )
    count, between = instances or choice.instances, router or ROUTER
    replayed = replay(
        measured.requests,
        choice.deployment,
        gpus_per_system=choice.gpus_per_system,
        instances=count,
        router=between,
    )
    arrivals = measured.scenario.get("arrivals")
    clients = arrivals.get("concurrency") if isinstance(arrivals, dict) else None
    clients = clients if isinstance(clients, int) and clients > 0 else None
    limits = tuple(limit.asked for limit in choice.plan.scenario.limits_that_count)
    beside = beside_plan(
        measured.requests,
        replayed,
        choice.deployment,
        instances=count,
        router=between,
        clients=clients,
        slo=limits,
    )
    return replace(beside, notes=(*beside.notes, *invalid.sentences))


def import_run(
    file: Path,
    output: Path,
    *,
    tokenizer: Path | None = None,
    provenance: dict[str, Any] | None = None,
) -> list[tuple[Path, Summary, dict[str, Any]]]:
    """Write the runs of another tool's file as run folders, as ``tonnage import`` does. Raises
    InputError.

    Of each its folder, its summary, and what was left out, failed and remarked.
    """
    from tonnage.bench.benchmark import write_imported
    from tonnage.bench.prompts import TokenizerFile
    from tonnage.bench.reply import kept_answer
    from tonnage.formats.tool_format import Reading, read_requests

    check_free(output)
    count = TokenizerFile(tokenizer).count if tokenizer is not None else None
    runs = read_requests(file, Reading(answer=kept_answer, count=count))
    folders = (
        [output]
        if len(runs) == 1
        else [output / f"run-{place}" for place in range(1, len(runs) + 1)]
    )
    imported_runs: list[tuple[Path, Summary, dict[str, Any]]] = []
    left_out: list[str] = []
    for place, (run, folder) in enumerate(zip(runs, folders, strict=True), start=1):
        try:
            summary, facts = write_imported(
                run, folder, source=file.name, provenance=provenance or {}
            )
        except NoneCompleted as error:
            if not imported_runs and place == len(runs):
                raise
            left_out.append(f"Run {place} of {len(runs)} is left out: {NONE_COMPLETED} ({error}).")
        else:
            imported_runs.append((folder, summary, facts["imported"]))
    imported_runs[0][2]["remarks"].extend(left_out)
    return imported_runs


def describe_workload(
    file: str | Path,
    *,
    model: str | None = None,
    gpu: str | None = None,
    tp: int | None = None,
    engine: str = "tensorrt-llm",
    trace_unit: str | None = None,
) -> Description:
    """Lengths, arrivals and shared prefixes of recorded traffic; arguments as of ``tonnage workload
    describe``. Raises InputError.
    """
    if model is None and (gpu is not None or tp is not None):
        raise InputError(
            f"{option('gpu')}, {option('tp')}: belong to a model; give {option('model')} too"
        )
    description = describe(traffic_from(str(file), "the traffic", trace_unit))
    return (
        description
        if model is None
        else replace(description, gain=_gain(description.limits, model, gpu, tp, engine))
    )


def _gain(limits: EngineLimits, model: str, gpu: str | None, tp: int | None, engine: str) -> KvGain:
    """KV memory of a sequence as long as the limits admit, and of one as long as the model's
    context.
    """
    from tonnage.api.facts import memory

    plan = memory(model=model, gpu=gpu, tp=tp, engine=engine).plan
    d, context = plan.deployment, plan.deployment.model.max_context
    limit = min(limits.max_sequence_tokens, context)
    block_bytes = plan.kv_bytes_per_token * d.knobs.tokens_per_block
    requests = {tokens: plan.concurrent_requests(tokens - 1, 1) for tokens in (context, limit)}
    return KvGain(
        model=d.model.name,
        gpu=d.gpu.name,
        precision=d.precision.name,
        engine=d.engine,
        gpus=d.parallelism.gpus,
        context=context,
        limit=limit,
        context_bytes=plan.request_blocks(context) * block_bytes,
        limit_bytes=plan.request_blocks(limit) * block_bytes,
        token_bytes=plan.kv_bytes_per_token * d.parallelism.gpus,
        context_requests=requests[context],
        limit_requests=requests[limit],
    )


def fit_workload(
    file: str | Path,
    output: str | Path | None = None,
    *,
    model: str | None = None,
    trace_unit: str | None = None,
) -> Fit:
    """A scenario whose simulation reproduces recorded traffic; arguments as of ``tonnage workload
    fit``. Raises InputError.
    """
    from tonnage.workload.fit import fit

    target = scenario_target(output)
    workload_fit = fit(
        describe_workload(file, trace_unit=trace_unit),
        "scenario" if target is None else target.stem,
        model,
    )
    if target is not None:
        write_scenario(workload_fit.scenario, workload_fit.files, target)
    return workload_fit


def scenario_target(output: str | Path | None) -> Path | None:
    """The file of a scenario that is to be written; None where none is. Raises InputError: no YAML
    file, or no folder for it.
    """
    target = None if output is None else Path(output)
    if target is not None and (
        target.suffix.lower() not in (".yaml", ".yml") or not target.absolute().parent.is_dir()
    ):
        raise InputError(
            f"{option('output')}: cannot write '{target}'; name a .yaml file in a folder that"
            " exists"
        )
    return target


def write_scenario(scenario: Scenario, files: Mapping[str, str], target: Path) -> None:
    """The scenario and the files that it names: all of them, or none. Raises InputError: the folder
    cannot be written.
    """
    from tonnage.spec.scenario_file import to_yaml

    packed = {
        name: gzip.compress(text.encode(), mtime=0) if name.endswith(".gz") else text.encode()
        for name, text in files.items()
    }
    write_together(target.parent, {**packed, target.name: to_yaml(scenario).encode()})


SHORTEST_S, LONGEST_S = 3_600.0, 400 * 86_400.0


def is_address(source: str) -> bool:
    """Whether a source is a server and no file."""
    return source.startswith(("http://", "https://"))


def is_history(source: str) -> bool:
    """Whether a source is a server, answers of one, or recorded requests, and no plan."""
    return is_address(source) or not source.lower().endswith(".json") or bool(_documents(source))


def read_history(
    source: str,
    *,
    range: str = "14d",
    select: str = "",
    header: Sequence[str] = (),
    save: Path | None = None,
) -> History:
    """The hours of a Prometheus, of a file of its answers, or of single requests; arguments as of
    ``tonnage workload from-prometheus``.

    Raises InputError: what cannot be read; TonnageError: a server that does not answer.
    """
    from tonnage.watch.drift import Server

    if is_address(source):
        seconds = parse_duration(range, option("range"))
        if not SHORTEST_S <= seconds <= LONGEST_S:
            raise InputError(f"{option('range')}: {range} is not possible; write 1h to 400d")
        server = Server(source, headers=header, select=select)
        answers = server.read(seconds)
        if save is not None:
            try:
                save.write_text(
                    "".join(json.dumps(answer) + "\n" for answer in answers), encoding="utf-8"
                )
            except OSError as error:
                raise InputError(
                    f"{option('save')}: cannot write '{save}' ({error.strerror}); name a file in a"
                    " folder that exists"
                ) from None
        return history_of(curves(answers, server.name), server.name)
    documents = _documents(source)
    for name, argument in (
        ("select", select if not documents else ""),
        ("header", header),
        ("save", save),
    ):
        if argument:
            raise InputError(f"{option(name)}: belongs to a server; {source} is a file")
    if documents:
        return history_of(selected(curves(documents, source), select, option("select")), source)
    return history_of_requests(traffic_from(source, "the history").recording)


def _documents(source: str) -> list[object]:
    """The answers of a Prometheus that a file holds, as one JSON value or one a line; none where it
    is something else.
    """
    if not source.lower().endswith((".json", ".jsonl")) or not isfile(source):
        return []
    text = read_text(source, "the history")
    for part in (text, f"[{','.join(line for line in text.splitlines() if line.strip())}]"):
        try:
            documents = json.loads(part)
        except (ValueError, RecursionError):
            continue
        documents = documents if isinstance(documents, list) else [documents]
        return (
            documents
            if all(
                isinstance(document, dict) and {"status", "data"} <= document.keys()
                for document in documents
            )
            else []
        )
    return []


def fit_history(
    history: History,
    output: Path | None = None,
    *,
    model: str | None = None,
    isl: str | None = None,
    osl: str | None = None,
    plan: str | Path | None = None,
) -> HistoryFit:
    """A scenario of a history, with the files that it names; arguments as of ``tonnage workload
    from-prometheus``. Raises InputError.
    """
    from tonnage.watch.drift import measured_loads
    from tonnage.workload.history_fit import fit_history as fit

    target = scenario_target(output)
    history_fit = fit(
        history, "scenario" if target is None else target.stem, model=model, isl=isl, osl=osl
    )
    if target is not None:
        files = dict(history_fit.files)
        if plan is not None and (points := measured_loads(planned(plan).plan, history_fit)):
            files[f"{target.stem}.hours.csv"] = points
        write_scenario(history_fit.scenario, files, target)
    return history_fit


def today(
    plan: str | Path,
    fit: HistoryFit,
    *,
    forecast: str | None = None,
    coefficients: str | Path | None = None,
) -> Today:
    """A plan next to a history of its deployment. Raises InputError: no plan, one that predicts
    nothing, or ``forecast`` is no duration.
    """
    from tonnage.watch.drift import today as beside

    choice = planned(plan, coefficients=coefficients)
    if not choice.plan.provenance.simulated:
        raise InputError(
            f"{option('plan')}: {plan} rests on measured points and predicts nothing; give one that"
            " was simulated"
        )
    seconds = None if forecast is None else parse_duration(forecast, option("forecast"))
    return beside(
        choice.plan,
        choice.deployment,
        fit,
        gpus_per_system=choice.gpus_per_system,
        forecast_s=seconds,
    )
