"""``tonnage workload``: recorded traffic described, and fitted by a scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.workload.description import Description
    from tonnage.workload.fit import Fit
    from tonnage.workload.limits import EngineLimits, KvGain


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
    from tonnage.workload.limits import KvGain

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

    target = None if output is None else Path(output)
    if target is not None and (target.suffix.lower() not in (".yaml", ".yml") or not target.absolute().parent.is_dir()):
        raise InputError(f"{option('output')}: cannot write '{target}'; name a .yaml file in a folder that exists")
    found = fit(describe_workload(file), "scenario" if target is None else target.stem, model)
    if target is not None:
        _write(found, target)
    return found


def _write(found: Fit, target: Path) -> None:
    """The files first and the scenario that names them last.

    Raises:
        InputError: the folder cannot be written.
    """
    from tonnage.spec.scenario_file import to_yaml

    try:
        for name, text in found.files.items():
            (target.parent / name).write_text(text, encoding="utf-8")
        target.write_text(to_yaml(found.scenario), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{option('output')}: cannot write '{error.filename}': {error.strerror}; name a file in a folder that exists"
        ) from None
