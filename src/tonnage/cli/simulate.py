"""``tonnage simulate``: one instance under a load, a sweep of loads, or the lesson in ticks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import Group, Parameter

from tonnage.cli.flags import about, flags_of, given, with_flags
from tonnage.cli.printing import print_answer
from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.services import is_service, simulate_service
from tonnage.errors import InputError, option

KNOBS = Group("Engine knobs (default: the engine's own)", sort_key=1)
LESSON = Group("The lesson (--ticks)", sort_key=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What an engine is simulated with; the lesson has none of it."""

    model: str | None = about("Catalog id, or the path of a Hugging Face config.json.")
    gpu: str | None = about("GPU id (default: h100-sxm-80gb).")
    precision: str | None = about(
        "Number format: fp16, bf16, fp8, int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4 or mxfp4; +kv-fp16, +kv-fp8, +kv-int8 or "
        "+2:4 may follow it (default: the format that the model is published in, fp16 for 16 bits)."
    )
    tp: int | None = about("Tensor-parallel degree (default: 1).")
    dp: int | None = about("Data-parallel attention ranks of a mixture of experts; each has TP GPUs and its own requests (default: 1).")
    ep: int | None = about("Expert-parallel degree of a mixture of experts (default: 1).")
    engine: str | None = about(
        "Engine preset: tensorrt-llm, vllm or sglang for the newest, or a version such as nim-2024 of `tonnage catalog engines` "
        "(default: tensorrt-llm)."
    )
    isl: str | None = about("Prompt length in tokens: 2000, 2000+-500, lognormal:2000,500 or uniform:1600-2000.")
    osl: str | None = about("Output length in tokens, in the same forms.")
    mixture: str | None = about('Lengths of several kinds with their shares: "short-in-short-out 0.7, long-in-long-out 0.2, 4000/300 0.1".')
    shared_prefix: str | None = about("Tokens that prompts share, such as a system prompt; they are added to each and may be cached.")
    shared_prefix_share: float | None = about("Share of the conversations that begin with them (default: 1).")
    shared_prefixes: int | None = about("How many different shared prefixes there are (default: 1).")
    turns: str | None = about("Turns of a conversation, such as 5 or uniform:2-8; each prompt is the whole history and --isl more.")
    think_time: str | None = about("Time from an answer to the next turn: 30s or exponential:30s (default: none).")
    tool_calls: int | None = about("Calls of tools in each turn, each a further request with the tool's result (default: 0).")
    tool_delay: str | None = about("Time that a tool takes: 2s or exponential:2s (default: none).")
    tool_tokens: str | None = about("Length of a tool's result (default: that of a prompt).")
    request_rate: str | None = about("Open loop: requests per second; several values with commas make a sweep.")
    requests: int | None = about("Requests per point (default: 1000, and in a closed loop at least 10 per client).")
    window: str | None = about("Closed loop: count what completes within this time of a common start, such as 216s, and not --requests.")
    arrivals: Literal["poisson", "constant", "gamma", "mmpp", "trace", "profile"] | None = about(
        "Arrival process of the open loop (default: poisson); mmpp changes between the states of --mmpp; trace replays --trace, stretched "
        "to --request-rate if given; profile runs once through the hours of --profile."
    )
    mmpp: str | None = about(
        'Markov-modulated Poisson arrivals: two rates and mean stays, such as "2/s for 60s, 20/s for 10s"; --request-rate sets their mean.'
    )
    trace: Path | None = about(
        "File of recorded requests, replayed with its lengths: the formats of Azure, Mooncake and BurstGPT, timestamp,isl,osl, or what "
        "vllm bench, GenAI-Perf, AIPerf or GuideLLM kept of single requests."
    )
    cv: float | None = about("Coefficient of variation of gamma arrivals: standard deviation over mean of the gaps (default: 1).")
    coefficients: Path | None = about("File that tonnage calibrate wrote; its factors are applied to the shipped terms.")
    step_model: str | None = about(
        "Source of the step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md)."
    )
    instances: int | None = about("Instances behind a router that share each open loop (default: 1).")
    router: str | None = about(
        "Router between the instances: round-robin, weighted, random, least-outstanding, least-tokens, least-kv, power-of-two, or where "
        "prompts share something prefix-aware or session (default: least-outstanding)."
    )
    disaggregated: str | None = about("Prefill and decode apart: instances of each pool, such as 1:2.")
    kv_link: str | None = about(
        "Bytes per second that a GPU sends to the other pool, such as 50GB/s (default: NVLink within one domain, else a port of 400 Gb/s)."
    )
    kv_overlap: bool | None = about("Whether a layer's KV cache is sent as soon as it is computed.")
    grid: Path | None = about(
        "Sweep the points of this file (base and over) on all cores; what the output folder has already is not done again."
    )
    on: Literal["processes", "ray"] | None = about("With a grid: processes of this machine (default), or Ray.")
    fail: str | None = about('How instances fail, such as "mtbf=30d repair=2h"; crews=N and retry=none, unanswered or all may follow.')
    autoscale: str | None = about(
        'How a controller scales them, such as "metric=outstanding target=20 min=1 max=8"; metric=rate; start, hold, interval, warm, link '
        "and boot may follow (docs/load-balancing.md)."
    )
    classes: str | None = about(
        'Classes of the traffic, the highest priority first, with shares and limits on the first token: "chat 0.7 ttft=1s, batch 0.3".'
    )
    seasons: str | None = about(
        'Limits of the engine by the hour of the day, such as "8-20 max_num_tokens=2048 max_batch_size=64; 22-6 max_model_len=32768; '
        'drain=60s start=2min": instances restart a quarter at a time.'
    )
    profile: Path | None = about("24 or 168 hourly loads in requests per second, for --arrivals profile; --request-rate sets their mean.")
    ttft: list[str] | None = about('Limit whose violations are counted, such as "p95<=500ms"; repeatable.')
    tpot: list[str] | None = about("The same for the mean time per output token of a request.")
    e2e: list[str] | None = about("The same for the time to the last token.")
    attain: list[str] | None = about(
        'Share of requests that meet several limits at once, such as "95%: ttft<=500ms & tpot<=50ms"; repeatable.'
    )
    output: Path | None = about("Write a run folder with scenario, requests, gaps, summary and provenance; a sweep writes one per point.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What an engine and the lesson both have."""

    concurrency: str | None = about("Closed loop: clients with one request in flight each; several values with commas make a sweep.")
    seed: int | None = about("Seed of every random draw (default: 0; in the lesson 42).")
    timeline: Path | None = about(
        "Write which request held which slot in which step: .parquet for data, .json for a trace that Perfetto opens, .html for a page."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batcher:
    """Which requests share a step."""

    batcher: Literal["static", "in-flight", "one-prefill", "max-utilization"] | None = about(
        "Batching: static, in-flight, one prompt at a time, or TensorRT-LLM's capacity policy MAX_UTILIZATION (default: the engine's own)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Settings of an engine that stand in place of its own."""

    max_batch_size: int | None = about("Sequences that run at once.")
    max_num_tokens: int | None = about("Token budget of one step.")
    chunked_prefill: bool | None = about("Whether a prompt may be split over several steps.")
    prefix_caching: bool | None = about("Whether KV blocks of earlier prompts are used again (default: yes, but for static batching).")
    kv_tiers: str | None = about("Memory below the KV cache, such as host=256GB@50GB/s,disk=4TB@6GB/s.")
    stream_interval: int | None = about("Output tokens in one streamed message; more of them spare the front end work.")
    front_ends: int | None = about("API servers of an instance (default: 1, and with data-parallel attention one for each rank).")
    receive_interval: int | None = about(
        "SGLang: decode steps between two looks for new requests (its scheduler_recv_interval; default: 1)."
    )
    batch_wait_steps: int | None = about(
        "TensorRT-LLM: steps for which prompts wait to be batched while others decode (its batch_wait_timeout_iters; default: 0)."
    )
    batch_wait_ratio: float | None = about(
        "TensorRT-LLM: share of the token budget at which they stop waiting (its batch_wait_max_tokens_ratio)."
    )
    overlap_schedule: bool | None = about("Whether a step is scheduled while the one before it runs, so that requests wait a step longer.")
    graph_tokens: int | None = about(
        "Tokens up to which steps with prompts run as CUDA graphs (vLLM's max_cudagraph_capture_size; default: 512 on vLLM, else none)."
    )
    long_prefill_token_threshold: int | None = about(
        "vLLM: most tokens of one prompt in a step while other requests are there (default: no limit)."
    )
    queue_order: Literal["fcfs", "shortest-first", "priority", "deadline"] | None = about(
        "Queue order (default: fcfs); priority goes by class (vLLM's --scheduling-policy priority), deadline by "
        "the time at which the first token should come."
    )
    shed: bool | None = about("Whether requests whose first token cannot come within its limit any more are rejected (default: no).")
    speculation: str | None = about(
        'Speculative decoding: draft=MODEL, eagle, mtp, medusa, redrafter or ngram, such as "eagle k=3 acceptance=0.7".'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Settings of the lesson, in ticks."""

    slots: int | None = about("Requests that run at once (default: 4).")
    prefill_ticks: float | None = about("Ticks of a whole prefill (default: 2).")
    itl_ticks: float | None = about("Ticks of a decode step (default: 1).")
    prefill_chunks: int | None = about("Chunks of one prefill (default: 1).")
    initial_batch: int | None = about("Requests at time 0 with none later (default: 100 where no other load is given).")
    tick_rate: float | None = about("Requests per tick, at a constant rate.")
    osl_mean: float | None = about("Mean output length in tokens (default: 10).")
    osl_std: float | None = about("Standard deviation of the output length (default: 5).")
    until: float | None = about("Ticks to simulate (default: 100).")


@with_flags(*flags_of(Point), *flags_of(Shared), *flags_of(Batcher, KNOBS), *flags_of(Knobs, KNOBS), *flags_of(Lesson, LESSON))
def simulate(
    scenario: Annotated[
        Path | None,
        Parameter(
            help="YAML or JSON file with the question (tonnage schema): its model, lengths and the one deployment that it names; or with a "
            "service of models that are not LLMs (docs/services.md)."
        ),
    ] = None,
    /,
    *,
    ticks: Annotated[bool, Parameter(help="Run the lesson: an engine in ticks, without a model.", group=LESSON, negative=())] = False,
    json: Annotated[bool, Parameter(help='Print one JSON object; a sweep prints {"points": […]}.', negative=())] = False,
    **asked: Any,
) -> None:
    """Simulate one instance under a load, or run the course's lesson on batching (--ticks)."""
    if not ticks and is_service(scenario):
        simulate_service(cast("Path", scenario), given(asked), json=json)
    elif asked.get("grid") is not None:
        _grid(given(asked), scenario, json=json)
    elif ticks:
        if scenario is not None:
            raise InputError(f"{scenario}: a scenario is simulated on an engine, not in the lesson; leave it out or leave out --ticks")
        _refuse(asked, (Point, Knobs), "belongs to a simulated engine, not to the lesson; leave it out or leave out --ticks")
        _lesson(given(asked), json=json)
    else:
        _refuse(asked, (Lesson,), "belongs to the lesson; add --ticks")
        _points(scenario, given(asked), json=json)


def _grid(asked: dict[str, Any], scenario: Path | None, *, json: bool) -> None:
    from tonnage import api
    from tonnage.cli.printing import provenance
    from tonnage.report.simulated import swept

    grid, folder, on = asked.pop("grid"), asked.pop("output", None), asked.pop("on", "processes")
    if asked or scenario is not None:
        name = next(iter(asked), "grid")
        raise InputError(f"{option(name)}: the grid's file says everything; write it there, under base or over")
    if folder is None:
        raise InputError(f"{option('output')}: missing; name the folder that gets a run folder for each point")
    found = api.read_grid(grid)
    compile_if_needed()
    with progress_bar("sweeping") as progress:
        done = api.sweep(found, folder, provenance(0), on=on, progress=progress)
    print_answer(lambda: swept(done.points, done.done, done.left_out, folder), done.to_json, json=json)


def _refuse(asked: dict[str, Any], kinds: tuple[type[Any], ...], why: str) -> None:
    for kind in kinds:
        for one in fields(kind):
            if asked.get(one.name) is not None:
                raise InputError(f"--{one.name.replace('_', '-')}: {why}")


def _lesson(asked: dict[str, Any], *, json: bool) -> None:
    from tonnage import api
    from tonnage.report.timeline import lesson

    timeline = asked.pop("timeline", None)
    if timeline is not None:
        api.check_timeline(timeline)
    result = api.lesson(**asked)
    if timeline is not None:
        api.write_timeline(timeline, api.lesson_timeline(result), "The lesson: slots and queue")
    print_answer(lambda: lesson(result), result.to_json, json=json)


def _points(scenario: Path | None, asked: dict[str, Any], *, json: bool) -> None:
    from tonnage import api
    from tonnage.cli.printing import provenance
    from tonnage.report.simulated import simulated
    from tonnage.results.store import check_free

    output, timeline = asked.pop("output", None), asked.pop("timeline", None)
    if timeline is not None:
        api.check_timeline(timeline)
    if scenario is None and asked.get("trace") is None and asked.get("mixture") is None:
        api.check_given(model=asked.get("model"), isl=asked.get("isl"), osl=asked.get("osl"))
    if output is not None:
        check_free(output)
    if not api.answers_soon(scenario, **asked):
        compile_if_needed(**api.loop_asked(scenario, **asked))
    with progress_bar("simulating") as progress:
        runs = api.simulate_sweep(scenario, **asked, progress=progress)
    if output is not None:
        api.write_runs(output, runs, provenance(runs[0].seed))
    if timeline is not None:
        api.write_timeline(timeline, api.run_timeline(runs[0]), simulated(runs[:1]).title)
    points = [run.to_json() for run in runs]
    print_answer(lambda: simulated(runs), lambda: points[0] if len(points) == 1 else {"points": points}, json=json)
