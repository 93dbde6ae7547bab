"""Makes a deployment of the names that people use for its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tonnage.errors import InputError, option
from tonnage.perf.external.measured_steps import check_source, checked_source
from tonnage.spec.calibration import read_calibration
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.deployment import Deployment, EngineKnobs, Parallelism, Scheduler, parse_speculation
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision

MOST = 10**9
"""The largest setting of an engine that is taken: more than any counts up to."""


def deployment_of(
    *,
    model: str,
    gpu: str,
    precision: str = "",
    tp: int,
    engine: str,
    dp: int = 1,
    ep: int = 1,
    knobs: Mapping[str, int | bool | float | str | None] | None = None,
    coefficients: str | Path | None = None,
    step_model: str | Path | None = None,
    speculation: str | None = None,
) -> Deployment:
    """A deployment by catalog names, with any of the engine's knobs set, a calibration's file, and another source of step times.

    Without a ``precision`` it is the format that the model is published in (``Model.usual_precision``).

    Raises:
        InputError: an unknown name, a knob that cannot be, or a file that is no calibration.
    """
    found_model = find_model(model)
    found_gpu, found_precision, spec = find_gpu(gpu), find_precision(precision or found_model.usual_precision), find_engine(engine)
    if lacking := found_gpu.lacks(found_precision):
        raise InputError(
            f"{option('precision')}: {found_gpu.name} ({found_gpu.arch}) has {lacking} for {found_precision.name}; choose another"
        )
    if lacking := spec.lacks(found_precision):
        raise InputError(f"{option('precision')}: {lacking}; choose another")
    set_knobs = {name: value for name, value in (knobs or {}).items() if value is not None}
    for name, value in set_knobs.items():
        if isinstance(value, int) and not isinstance(value, bool) and not 1 <= value <= MOST:
            raise InputError(f"{option(name)}: {value} is not possible; write {f'at most {MOST:,}' if value > MOST else '1 or more'}")
    chosen: EngineKnobs = replace(default_knobs(spec, found_gpu, dp), **set_knobs)  # type: ignore[arg-type]
    _check_waits(chosen, spec.name)
    _check_long_prompts(chosen, spec.name)
    calibration = None if coefficients is None else read_calibration(coefficients)
    source = None if step_model is None else checked_source(step_model)
    check_source(source, calibration, 1)
    return Deployment(
        model=found_model,
        gpu=found_gpu,
        precision=found_precision,
        parallelism=Parallelism(tp=tp, dp=dp, ep=ep),
        engine=spec.name,
        knobs=chosen,
        calibration=calibration,
        step_source=source,
        speculation=parse_speculation(speculation),
    )


def _check_long_prompts(knobs: EngineKnobs, engine: str) -> None:
    """Refuse a limit on the chunks of long prompts where there is none."""
    if knobs.long_prefill_token_threshold > 0 and knobs.scheduler != "vllm":
        raise InputError(f"{option('long_prefill_token_threshold')}: {engine} has no such setting, vLLM does ({option('engine')} vllm)")


def _check_waits(knobs: EngineKnobs, engine: str) -> None:
    """Refuse settings by which requests wait that the engine does not have, or that do not go together."""
    waits = knobs.batch_wait_steps > 0, knobs.batch_wait_ratio > 0
    if knobs.receive_interval > 1 and knobs.scheduler != "sglang":
        raise InputError(
            f"{option('receive_interval')}: {engine} has no such setting, SGLang does ({option('engine')} sglang); leave it out"
        )
    if any(waits) and knobs.scheduler != "tensorrt-llm":
        raise InputError(
            f"{option('batch_wait_steps')}, {option('batch_wait_ratio')}: {engine} has no such settings, TensorRT-LLM does; leave them out"
        )
    if any(waits) != all(waits) or not 0 <= knobs.batch_wait_ratio <= 1:
        raise InputError(
            f"{option('batch_wait_steps')}, {option('batch_wait_ratio')}: "
            f"go together, the ratio above 0 and at most 1, for example 20 and 0.9"
        )


def scheduler_of(batcher: str | None, engine: str) -> Scheduler | None:
    """The scheduler that a batching strategy means on an engine."""
    if batcher is None:
        return None
    if batcher == "static":
        return "static"
    if batcher == "one-prefill":
        return "one-prefill"
    own = find_engine(engine).knobs.scheduler
    if batcher == "max-utilization":
        if own not in ("tensorrt-llm", "static"):
            raise InputError(f"{option('batcher')}: max-utilization is a capacity policy of TensorRT-LLM; {engine} has none, leave it out")
        return "max-utilization"
    return "tensorrt-llm" if own == "static" else own
