"""What was recorded: two runs compared, a run next to a plan, another tool's run imported, traffic described and fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import attainments
from tonnage.errors import InputError, option
from tonnage.results.metrics import Summary

if TYPE_CHECKING:
    from tonnage.bench.intervals import Comparison
    from tonnage.evidence.replay import RunBesidePlan
    from tonnage.formats.measured_files import InvalidRuns
    from tonnage.results.store import Run
    from tonnage.spec.scenario import Scenario
    from tonnage.workload.description import Description, EngineLimits, KvGain
    from tonnage.workload.fit import Fit


def compare_runs(first: Path, second: Path, *, attain: Sequence[str] = (), include_invalid: bool = False) -> Comparison:
    """Compare two run folders by their records.

    Args:
        attain: shares of requests that must meet several limits at once, such as "95%: ttft<=500ms & tpot<=50ms".
        include_invalid: whether runs that their own client called INVALID are compared all the same, with a note; they are refused if not.

    Raises:
        InputError: one of them is no run folder, or is INVALID.
        DataError: one of their files is damaged.
    """
    from tonnage.bench.intervals import compare
    from tonnage.formats.measured_files import InvalidRuns

    invalid = InvalidRuns(include=include_invalid)
    one, other = (_believed(folder, invalid) for folder in (first, second))
    found = compare(one.requests, other.requests, slo=attainments(attain))
    return replace(found, notes=(*found.notes, *invalid.sentences))


def _believed(folder: Path, invalid: InvalidRuns) -> Run:
    """The run of a folder. Raises InputError: it is no run folder, or its own client called it INVALID, and such runs are not taken."""
    from tonnage.results.store import read_run

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
    """Lay a run next to a plan: the run's requests are replayed on the deployment that the plan chose.

    Args:
        instances: how many instances of it were measured (default: as many as the plan has).
        router: what shares the requests among them, a name of ``simulator.router`` (default: least-outstanding).
        coefficients: file that ``calibrate`` wrote, in place of the calibration that the plan was made with.

    Raises:
        InputError: no run folder, an INVALID one, no plan, or one that chose nothing or predicted nothing.
        DataError: a file of the run folder is damaged.
    """
    from tonnage.api.question.deployment import BY_CONTENT
    from tonnage.api.running.plans import planned
    from tonnage.evidence.replay import ROUTER, beside_plan, replay
    from tonnage.formats.measured_files import InvalidRuns
    from tonnage.simulator.router import ROUTERS

    if instances is not None and instances < 1:
        raise InputError(f"{option('instances')}: {instances} is not possible; write 1 or more")
    if router is not None and (router not in ROUTERS or router in BY_CONTENT):
        known = ", ".join(name for name in ROUTERS if name not in BY_CONTENT)
        raise InputError(f"{option('router')}: '{router}' is none of {known}")
    invalid = InvalidRuns(include=include_invalid)
    found, choice = _believed(run, invalid), planned(plan, coefficients=coefficients)
    if not choice.plan.provenance.simulated:
        raise InputError(f"{plan}: rests on measured points and predicts nothing of its own; give a plan that was simulated")
    count, between = instances or choice.instances, router or ROUTER
    replayed = replay(found.requests, choice.deployment, gpus_per_system=choice.gpus_per_system, instances=count, router=between)
    arrivals = found.scenario.get("arrivals")
    clients = arrivals.get("concurrency") if isinstance(arrivals, dict) else None
    clients = clients if isinstance(clients, int) and clients > 0 else None
    limits = tuple(limit.asked for limit in choice.plan.scenario.limits_that_count)
    beside = beside_plan(found.requests, replayed, choice.deployment, instances=count, router=between, clients=clients, slo=limits)
    return replace(beside, notes=(*beside.notes, *invalid.sentences))


# ``tonnage import``: single requests of another tool's run, as a run folder.


def import_run(
    file: Path, output: Path, *, tokenizer: Path | None = None, provenance: dict[str, Any] | None = None
) -> list[tuple[Path, Summary]]:
    """Write the runs of a file as run folders: ``output`` itself, or one inside it for each where the file holds several.

    Args:
        file: AIPerf's ``profile_export.jsonl`` or GenAI-Perf's ``profile_export.json`` (or its folder), a result of vLLM's bench with
            details, or GuideLLM's JSON.
        tokenizer: a local tokenizer.json, which counts the tokens of GenAI-Perf's texts where the server did not.

    Raises:
        InputError: a file that is none of these, or a folder in use.
    """
    from tonnage.bench.benchmark import write_imported
    from tonnage.bench.prompts import TokenizerFile
    from tonnage.bench.reply import kept_answer
    from tonnage.formats.tool_format import Reading, read_requests
    from tonnage.results.store import check_free

    check_free(output)
    count = TokenizerFile(tokenizer).count if tokenizer is not None else None
    runs = read_requests(file, Reading(answer=kept_answer, count=count))
    folders = [output] if len(runs) == 1 else [output / f"run-{place}" for place in range(1, len(runs) + 1)]
    made = []
    for run, folder in zip(runs, folders, strict=True):
        summary, _ = write_imported(run, folder, source=file.name, provenance=provenance or {})
        made.append((folder, summary))
    return made


# ``tonnage workload``: recorded traffic described, and fitted by a scenario.


def describe_workload(
    file: str | Path, *, model: str | None = None, gpu: str | None = None, tp: int | None = None, engine: str = "tensorrt-llm"
) -> Description:
    """What recorded traffic says of lengths, arrivals and shared prefixes.

    Args:
        file: a trace (Azure's, Mooncake's, BurstGPT's, or ``timestamp,isl,osl``), a run folder, or what vLLM's bench, GenAI-Perf, AIPerf
            or GuideLLM kept of single requests.
        model: whose KV memory the limits at the 99th percentiles are estimated for; None leaves that out.
        gpu, tp, engine: the instance, as ``tonnage.memory`` takes them.

    Raises:
        InputError: what cannot be read or used, in one line each.
    """
    from tonnage.api.question.loads import traffic_from
    from tonnage.workload.description import describe

    if model is None and (gpu is not None or tp is not None):
        raise InputError(f"{option('gpu')}, {option('tp')}: belong to a model; give {option('model')} too")
    found = describe(traffic_from(str(file), "the traffic"))
    return found if model is None else replace(found, gain=_gain(found.limits, model, gpu, tp, engine))


def _gain(limits: EngineLimits, model: str, gpu: str | None, tp: int | None, engine: str) -> KvGain:
    """KV memory of a sequence as long as the limits admit, beside one as long as the model's context."""
    from tonnage.api.facts import memory
    from tonnage.workload.description import KvGain

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


def fit_workload(file: str | Path, output: str | Path | None = None, *, model: str | None = None) -> Fit:
    """A scenario whose simulation reproduces recorded traffic.

    Args:
        file: as ``describe_workload`` takes it.
        output: the YAML file to write, with the files that it names next to it; None writes nothing.
        model: of the scenario; without it, anyone who asks names one.

    Raises:
        InputError: what cannot be read or written, in one line.
    """
    from tonnage.workload.fit import fit

    target = scenario_target(output)
    found = fit(describe_workload(file), "scenario" if target is None else target.stem, model)
    if target is not None:
        write_scenario(found.scenario, found.files, target)
    return found


def scenario_target(output: str | Path | None) -> Path | None:
    """The file of a scenario that is to be written; None where none is. Raises InputError: no YAML file, or no folder for it."""
    target = None if output is None else Path(output)
    if target is not None and (target.suffix.lower() not in (".yaml", ".yml") or not target.absolute().parent.is_dir()):
        raise InputError(f"{option('output')}: cannot write '{target}'; name a .yaml file in a folder that exists")
    return target


def write_scenario(scenario: Scenario, files: Mapping[str, str], target: Path) -> None:
    """The files first and the scenario that names them last. Raises InputError: the folder cannot be written."""
    import gzip

    from tonnage.spec.scenario_file import to_yaml

    try:
        for name, text in files.items():
            packed = name.endswith(".gz")
            (target.parent / name).write_bytes(gzip.compress(text.encode(), mtime=0) if packed else text.encode())
        target.write_text(to_yaml(scenario), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{option('output')}: cannot write '{error.filename}': {error.strerror}; name a file in a folder that exists"
        ) from None
