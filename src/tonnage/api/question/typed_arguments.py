"""The keyword arguments of ``tonnage.size``: one for each leaf of a scenario, with the same name, kind and words.

Written by ``python -m tools.typed_arguments`` from ``spec/scenario.py``; change the leaf there and run it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from tonnage.spec.scenario import Mode, Objective, UseCase

Length = float | str | None
Text = str | None
Number = float | None
Texts = str | Iterable[str] | None
Counts = int | str | Iterable[int] | None


class ScenarioArguments(TypedDict, total=False):
    """The whole question; None leaves a part to its default."""

    title: Text
    """What the question is about, in a few words."""
    model: Texts
    """Catalog id (see tonnage catalog) or path of a Hugging Face config.json; several, separated by commas, are compared."""
    mode: Mode | None
    """streaming: users read along; sequential: only the whole answer counts; offline: only the throughput counts."""
    use_case: UseCase | None
    """Sets default lengths, mode and limits, which the plan states: chatbot, summarization, rag, data-generation or offline; or lengths
    and mode alone: short-in-short-out, short-in-long-out, long-in-short-out or long-in-long-out.
    """
    where: Texts
    """Ways of serving whose cost is compared, separated by commas: on-prem, cloud, hybrid, api or hybrid-api."""
    have: Text
    """Systems that exist, such as 3xdgx-h100, 3x4xl40s, 16xh100 (GPUs), 2xp5.48xlarge or 2xmine.yaml: the plan says what they carry,
    not how many are needed.
    """
    growth: Length
    """Growth of the load, such as 5%/month or 60%/year: the plan says until when the systems are enough, and how many it takes in one,
    two and three years.
    """
    spare: int | None
    """Systems in addition to those that the load needs; 1 is N+1."""
    confidence: Length
    """Confidence with which the number of systems meets the limits, given the errors of the prediction, such as 95 or 95% (default: 80)."""
    prices: str | Path | dict[str, Any] | None
    """Prices in place of the catalog's, or the YAML file that holds them."""
    benchmarks: str | Path | None
    """Measured points: a CSV with the columns of docs/size.md, a run folder, or the report of a benchmark tool."""
    include_invalid: bool | None
    """Whether measured runs that their own client called INVALID count as measured points; they are left out otherwise."""
    seed: int | None
    """Seed of every random draw (default: 0)."""


class LengthsArguments(TypedDict, total=False):
    """How long prompts and outputs are."""

    isl: Length
    """Prompt length in tokens, words (3500words) or characters (8000chars): 2000, 2000+-500, lognormal:2000,500, uniform:1600-2000,
    histogram:100:0.2,500:0.8, or a .csv with the columns value,weight.
    """
    osl: Length
    """Output length, in the same forms."""
    pairs: str | Path | None
    """CSV with the columns isl,osl: prompt and output lengths drawn together, in place of isl and osl."""
    mixture: Text
    """Lengths of several kinds with their shares, in place of isl and osl: "short-in-short-out 0.7, long-in-long-out 0.2, 4000/300 0.1"."""
    system_prompt: Length
    """Length of the system prompt in tokens, words or characters; it is added to every prompt."""
    retrieved: Length
    """Retrieved passages that are added to every prompt, such as 5x400."""
    history: Length
    """Earlier turns of the chat that are added to every prompt, such as 3x700."""
    words_per_token: Number
    """Words per token (default: 0.75, as in English)."""


class SessionsArguments(TypedDict, total=False):
    """What requests share, and how they follow one another."""

    shared_prefix: Length
    """Length of a prefix that prompts share, in tokens or words; it is added to them and may be cached."""
    shared_prefix_share: Number
    """Share of the conversations that begin with it, from 0 to 1 (default: 1)."""
    shared_prefixes: int | None
    """How many different shared prefixes there are (default: 1)."""
    turns: Length
    """Turns of a conversation, such as 5 or uniform:2-8: each prompt is the whole history and a question of the prompt length."""
    think_time: Text
    """Time from an answer to the next turn: 30s or exponential:30s (default: none)."""
    tool_calls: int | None
    """Calls of tools in each turn, each a further request with the tool's result (default: 0)."""
    tool_delay: Text
    """Time that a tool takes: 2s or exponential:2s (default: none)."""
    tool_tokens: Length
    """Length of a tool's result (default: the prompt length)."""


class DemandArguments(TypedDict, total=False):
    """How many requests there are."""

    peak_rps: Number
    """Requests per second at the peak."""
    mean_rps: Number
    """Mean requests per second of Poisson traffic, in place of a peak; a profile or a trace is scaled to it."""
    peak_percentile: Number
    """With a mean: the percentile of the arrivals in one second that is sized for, the method of NVIDIA's course."""
    peak_factor: Number
    """With a mean: the peak as a multiple of the mean, in place of a percentile."""
    users: Number
    """Number of people who send requests."""
    requests_per_user_day: Number
    """Requests that each of them sends on a working day."""
    working_hours: Number
    """Hours of the working day over which the requests arrive (default: 8)."""
    working_days: Number
    """Working days in a week (default: 5)."""
    calls_per_year: Number
    """Calls, or other business transactions, in a year."""
    requests_per_call: Number
    """Requests to the model that each of them makes (default: 1)."""
    profile: str | Path | Iterable[float] | None
    """24 or 168 hourly loads, as values with commas or in a .csv: requests per second, or shares where a mean or a peak is given."""
    trace: str | Path | None
    """File of recorded requests (the formats of Azure, Mooncake or BurstGPT, timestamp,isl,osl, a run folder, or what vllm bench,
    GenAI-Perf, AIPerf or GuideLLM kept of single requests); it is replayed with its bursts.
    """
    requests: Number
    """Number of requests of an offline job."""
    within: Text
    """Time in which an offline job has to finish, such as 8h."""


class LimitsArguments(TypedDict, total=False):
    """What must hold: a statistic (mean, p50, p90, p95, p99) of a latency, one or several each."""

    ttft: Texts
    """Limit on the time to first token (TTFT), such as "p95<=500ms"; mean, p50, p90, p95 or p99; repeatable."""
    itl: Texts
    """Limit on the single gaps between tokens (ITL), such as "p99<=100ms"; repeatable."""
    tpot: Texts
    """Limit on the mean time per output token of a request (TPOT); repeatable."""
    e2e: Texts
    """Limit on the time to the last token (E2E); repeatable."""
    attain: Texts
    """Share of requests that must meet several limits at once, such as "95%: ttft<=500ms & tpot<=50ms"; repeatable."""


class ChoiceArguments(TypedDict, total=False):
    """Which of the deployments that meet the limits is chosen, and what it must not exceed."""

    objective: Objective | None
    """What to minimise: gpus (default), cost (per year), power, or latency (mean E2E at the peak)."""
    budget: Text
    """Most that may be spent, such as "500k USD" to buy the systems, or "200k USD/year" for a year of serving."""
    max_kw: Number
    """Most kW that the systems may draw together."""
    max_racks: int | None
    """Most racks that the systems may stand in."""
    rack_kw: Number
    """Kilowatts that one rack can feed and cool (default: 42, four DGX H100)."""


class StandbyArguments(TypedDict, total=False):
    """What stands by for failures."""

    availability: Length
    """Probability that enough systems work for the peak, such as 99.9%; takes the time between failures and the repair time."""
    mtbf: Text
    """Mean time between failures of one system (or instance), such as 8000h or 300d."""
    repair_time: Text
    """Mean time until a failed one works again, such as 24h."""
    repairers: int | None
    """Repairs that go on at once (default: as many as there are failures)."""
    failing: Literal["system", "instance"] | None
    """What fails at once: a whole system (default) or one instance."""
    spare_instances: int | None
    """Instances in addition to those that the load needs; 1 is N+1 by instances."""


class ScalingArguments(TypedDict, total=False):
    """How the fleet may be scaled over its hours."""

    autoscale: bool | None
    """Whether the plan proposes by which rule a controller starts and releases instances over the profile or the trace, and what that
    saves (docs/autoscaling.md).
    """
    broken_hours: Length
    """Share of the hours in which limits may be broken then, such as 5% (default: 0%)."""
    start_time: Text
    """Time from the controller's decision until a new instance takes requests, such as 3min (default: its weights over 10 Gbit/s, and
    60 s).
    """


class SearchArguments(TypedDict, total=False):
    """What may be combined; every combination is tried."""

    gpu: Texts
    """GPUs to try, separated by commas (default: h100-sxm-80gb,h200-sxm-141gb,a100-sxm-80gb,l40s)."""
    system: Texts
    """Servers to buy in, one of each GPU, such as 4xl40s, 1xh100, a cloud's machine type (p5.48xlarge) or a YAML file of your own
    (default: the catalog's system of each GPU).
    """
    precision: Texts
    """Number formats to try, separated by commas: fp16, bf16, fp8, int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4, mxfp4, or all;
    +kv-fp16, +kv-fp8, +kv-int8 or +2:4 may follow each of them (default: the format that the model is published in; fp16,fp8 where that has
    16 bits).
    """
    tp: Counts
    """Tensor-parallel degrees to try, separated by commas (default: 1,2,4,8)."""
    pp: Counts
    """Pipeline-parallel degrees to try, separated by commas (default: 1, and more where a model does not fit without)."""
    dp: Counts
    """Numbers of data-parallel attention ranks of a mixture of experts, separated by commas (default: 1, with latent attention also one
    per GPU).
    """
    ep: Counts
    """Expert-parallel degrees to try, separated by commas (default: 1, and the number of GPUs of an instance)."""
    engine: Texts
    """Engine presets to try, separated by commas: tensorrt-llm, vllm or sglang for the newest, or a version such as vllm-0.19 of
    `tonnage catalog engines` (default: tensorrt-llm,vllm).
    """
    max_batch_size: Counts
    """Numbers of sequences that may run at once, to try (default: the engine's own)."""
    max_num_tokens: Counts
    """Token budgets of a step, to try (default: the engine's own)."""
    chunked_prefill: bool | None
    """Whether a prompt may be split over several steps (default: the engine's own)."""
    prefix_caching: bool | None
    """Whether KV blocks of earlier prompts are used again (default: yes, but for static batching)."""
    kv_tiers: Text
    """Memory of an instance below its KV cache, the nearest first, such as host=256GB@50GB/s,disk=4TB@6GB/s."""
    long_prefill_token_threshold: int | None
    """Most tokens of one prompt in a step while others are there, on vLLM, for simulate (default: no limit)."""
    queue_order: Literal["fcfs", "shortest-first", "priority", "deadline"] | None
    """Queue order, simulate only: fcfs (default), shortest-first, priority (by class) or deadline."""
    classes: Text
    """Classes of the traffic, the highest priority first, with their shares and limits on the first token, for simulate: "chat 0.7
    ttft=1s, batch 0.3".
    """
    shed: bool | None
    """Whether simulate rejects requests whose first token cannot come within its limit any more (default: no)."""
    disaggregated: bool | str | None
    """Prefill and decode apart: true for size, which finds the ratio, such as 1:2 for simulate."""
    kv_link: Text
    """Bytes per second that a GPU sends to the other pool, such as 50GB/s (default: NVLink within one domain, else a port of 400 Gb/s)."""
    kv_overlap: bool | None
    """Whether a layer's KV cache is sent as soon as it is computed (default: no)."""
    stream_interval: int | None
    """Output tokens in one streamed message (default: the engine's own, 1)."""
    front_ends: int | None
    """API servers of an instance (default: 1, and with data-parallel attention one for each rank)."""
    speculation: Text
    """Speculative decoding to try beside plain decoding: draft=MODEL, eagle, mtp, medusa, redrafter or ngram, such as "eagle k=3
    acceptance=0.7".
    """
    load: Literal["open", "closed"] | None
    """open: requests arrive on a schedule (default); closed: a fixed number of clients keeps the engine busy, as in benchmarks."""
    arrivals: Literal["poisson", "constant", "gamma", "mmpp", "trace", "profile"] | None
    """Arrival process of the open loop (default: poisson); mmpp changes between the two states of mmpp (simulate alone); trace replays
    the trace of the demand, as size always does with one, and profile simulates its hours one after another (size looks at the busiest
    one).
    """
    mmpp: Text
    """States of a Markov-modulated Poisson process: two rates and mean stays, such as "2/s for 60s, 20/s for 10s"."""
    cv: Number
    """Coefficient of variation of gamma arrivals: the standard deviation of the gaps over their mean."""
    router: Text
    """Router between the instances: round-robin, weighted, random, least-outstanding, least-tokens, least-kv or power-of-two (default:
    random).
    """
    coefficients: str | Path | None
    """File that tonnage calibrate wrote; predictions apply its factors to the shipped terms."""
    step_model: Text
    """Source of the step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md)."""


class SizeArguments(
    ScenarioArguments,
    LengthsArguments,
    SessionsArguments,
    DemandArguments,
    LimitsArguments,
    ChoiceArguments,
    StandbyArguments,
    ScalingArguments,
    SearchArguments,
    total=False,
):
    """Everything that ``tonnage.size`` takes by name."""

    price: Iterable[str] | None
    """Single prices in place of the catalog's, such as ``["systems.dgx-h100=250000"]``."""
