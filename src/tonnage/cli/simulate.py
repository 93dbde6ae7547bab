"""``tonnage simulate``: one instance under a load, a sweep of loads, or the lesson in ticks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.show_runs import show_runs
from tonnage.errors import InputError

LESSON = Group("The lesson (--ticks)", sort_key=2)
KNOBS = Group("Engine knobs (default: the engine's own)", sort_key=1)

Lesson = Annotated[int | None, Parameter(group=LESSON)]
LessonNumber = Annotated[float | None, Parameter(group=LESSON)]
Knob = Annotated[int | None, Parameter(group=KNOBS)]


def simulate(
    *,
    model: str | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    tp: int | None = None,
    dp: int | None = None,
    ep: int | None = None,
    engine: str | None = None,
    isl: str | None = None,
    osl: str | None = None,
    concurrency: str | None = None,
    request_rate: str | None = None,
    requests: int | None = None,
    window: str | None = None,
    arrivals: Literal["poisson", "constant", "gamma"] | None = None,
    cv: float | None = None,
    seed: int | None = None,
    coefficients: Path | None = None,
    step_model: str | None = None,
    output: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    batcher: Annotated[Literal["static", "in-flight", "one-prefill"] | None, Parameter(group=KNOBS)] = None,
    max_batch_size: Knob = None,
    max_num_tokens: Knob = None,
    chunked_prefill: Annotated[bool | None, Parameter(group=KNOBS)] = None,
    stream_interval: Knob = None,
    receive_interval: Knob = None,
    batch_wait_steps: Knob = None,
    batch_wait_ratio: Annotated[float | None, Parameter(group=KNOBS)] = None,
    overlap_schedule: Annotated[bool | None, Parameter(group=KNOBS)] = None,
    graph_tokens: Knob = None,
    speculation: Annotated[str | None, Parameter(group=KNOBS)] = None,
    ticks: Annotated[bool, Parameter(group=LESSON, negative=())] = False,
    slots: Lesson = None,
    prefill_ticks: LessonNumber = None,
    itl_ticks: LessonNumber = None,
    prefill_chunks: Lesson = None,
    initial_batch: Lesson = None,
    tick_rate: LessonNumber = None,
    osl_mean: LessonNumber = None,
    osl_std: LessonNumber = None,
    until: LessonNumber = None,
) -> None:
    """What one instance does under a load, or the course's lesson on batching (--ticks).

    Parameters
    ----------
    model
        Catalog id or the path of a Hugging Face config.json.
    gpu
        GPU id (default: h100-sxm-80gb).
    precision
        fp16, bf16, fp8, int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4 or mxfp4; with +kv-fp16, +kv-fp8, +kv-int8 or +2:4
        behind it, too (default: fp16).
    tp
        Tensor-parallel degree (default: 1).
    dp
        Attention ranks of a mixture of experts, each of so many GPUs and with its own requests (default: 1).
    ep
        Groups that the experts are spread over (default: 1).
    engine
        tensorrt-llm, vllm, sglang, nim-2024 or tensorrt-llm-0.9 (default: tensorrt-llm).
    isl
        Prompt length in tokens: 2000, 2000+-500, lognormal:2000,500 or uniform:1600-2000.
    osl
        Output length in tokens, in the same forms.
    concurrency
        Closed loop: clients with one request in flight each; several with commas make a sweep.
    request_rate
        Open loop: requests per second; several with commas make a sweep.
    requests
        Requests per point (default: 1000; a closed loop at least 10 per client).
    window
        Closed loop: count what completes within this time of a common start, such as 216s, instead of a number of requests.
    arrivals
        Process of the open loop (default: poisson).
    cv
        Standard deviation of the gaps over their mean, for gamma arrivals.
    seed
        Of every random draw (default: 0; the lesson's 42).
    coefficients
        File that tonnage calibrate wrote: the prediction uses its factors on the shipped terms.
    step_model
        Whose step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md).
    output
        Write a run folder (a sweep: one per point) with scenario, requests, gaps, summary and provenance.
    json
        Print one JSON object; a sweep prints {"points": […]}.
    batcher
        static or in-flight; one-prefill in the lesson.
    max_batch_size
        Sequences that run at once.
    max_num_tokens
        Token budget of one step.
    chunked_prefill
        Whether a prompt may be split over several steps.
    stream_interval
        Output tokens that a client gets in one message: the front end streams fewer of them, single tokens keep their times.
    receive_interval
        SGLang: decode steps between two looks for new requests (its scheduler_recv_interval; default: 1).
    batch_wait_steps
        TensorRT-LLM: steps for which prompts wait beside decodes to be batched (its batch_wait_timeout_iters; default: 0).
    batch_wait_ratio
        TensorRT-LLM: share of the token budget at which they wait no longer (its batch_wait_max_tokens_ratio).
    overlap_schedule
        Whether a step is put together while the one before it runs: requests wait a step longer; host times stay the preset's.
    graph_tokens
        Tokens up to which steps with prompts are CUDA graphs (vLLM's max_cudagraph_capture_size; default: 512 on vLLM, else none).
    speculation
        Speculative decoding: draft=MODEL, eagle, mtp, medusa, redrafter or ngram, such as "eagle k=3 acceptance=0.7".
    ticks
        Run the lesson: an engine in ticks, without a model.
    slots
        Slots of the engine (default: 4).
    prefill_ticks
        Ticks of a whole prefill (default: 2).
    itl_ticks
        Ticks of a decode step (default: 1).
    prefill_chunks
        Chunks of one prefill (default: 1).
    initial_batch
        Requests at time 0 and none later (default: 100 when no other load is given).
    tick_rate
        Requests per tick, at a constant rate.
    osl_mean
        Mean output length in tokens (default: 10).
    osl_std
        Standard deviation of the output length (default: 5).
    until
        Ticks to simulate (default: 100).
    """
    lesson = {
        "slots": slots,
        "prefill_ticks": prefill_ticks,
        "itl_ticks": itl_ticks,
        "prefill_chunks": prefill_chunks,
        "initial_batch": initial_batch,
        "tick_rate": tick_rate,
        "osl_mean": osl_mean,
        "osl_std": osl_std,
        "until": until,
    }
    engine_run = {
        "model": model,
        "gpu": gpu,
        "precision": precision,
        "tp": tp,
        "dp": dp,
        "ep": ep,
        "engine": engine,
        "isl": isl,
        "osl": osl,
        "request_rate": request_rate,
        "requests": requests,
        "window": window,
        "arrivals": arrivals,
        "cv": cv,
        "coefficients": coefficients,
        "step_model": step_model,
        "output": output,
        "max_batch_size": max_batch_size,
        "max_num_tokens": max_num_tokens,
        "chunked_prefill": chunked_prefill,
        "stream_interval": stream_interval,
        "receive_interval": receive_interval,
        "batch_wait_steps": batch_wait_steps,
        "batch_wait_ratio": batch_wait_ratio,
        "overlap_schedule": overlap_schedule,
        "graph_tokens": graph_tokens,
        "speculation": speculation,
    }
    if ticks:
        _refuse(engine_run, "belongs to a simulated engine, not to the lesson; leave it out or leave out --ticks")
        _lesson({**lesson, "batcher": batcher, "concurrency": concurrency, "seed": seed}, json)
        return
    _refuse(lesson, "belongs to the lesson; add --ticks")
    _points({**engine_run, "batcher": batcher, "concurrency": concurrency, "seed": seed}, json)


def _refuse(flags: dict[str, Any], why: str) -> None:
    for name, value in flags.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')}: {why}")


def _lesson(flags: dict[str, Any], as_json: bool) -> None:
    from tonnage import api

    result = api.lesson(**{name: value for name, value in flags.items() if value is not None})
    if as_json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(result.to_json()))
        return
    from tonnage.cli.table import table

    rows = [(name.replace("_", " "), "–" if value is None else f"{value:g}") for name, value in result.to_json().items()]
    print(f"{table(('in ticks', 'value'), rows)}\n\n{result.slots_text()}")


def _points(flags: dict[str, Any], as_json: bool) -> None:
    from tonnage import api
    from tonnage.cli.provenance import provenance
    from tonnage.results.store import check_free

    output = flags.pop("output")
    api.check_given(model=flags["model"], isl=flags["isl"], osl=flags["osl"])
    if output is not None:
        check_free(output)
    compile_if_needed()
    with progress_bar("simulating") as progress:
        runs = api.simulate_sweep(**{name: value for name, value in flags.items() if value is not None}, progress=progress)
    if output is not None:
        api.write_runs(output, runs, provenance(runs[0].seed))
    if as_json:
        from tonnage.results.store import json_text

        points = [run.to_json() for run in runs]
        sys.stdout.write(json_text(points[0] if len(points) == 1 else {"points": points}))
    else:
        print(show_runs(runs))
