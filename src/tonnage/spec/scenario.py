"""A scenario is a sizing question as its asker writes it: one tree of plain values, for YAML, JSON,
flags and Python alike.

Every leaf has one name. In a file it stands under its branch (``limits: {ttft: p95<=500ms}``); as
an argument of ``tonnage.size`` and as a flag it stands alone (``ttft="p95<=500ms"``).
``tonnage.spec.scenario_file`` reads and writes files; what the texts mean is found out when the
question is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from tonnage.spec.typed_values import strict
from tonnage.spec.written_numbers import SHARE, Bounds, Unit, number_of

Mode = Literal["streaming", "sequential", "offline"]
UseCase = Literal[
    "chatbot",
    "summarization",
    "rag",
    "data-generation",
    "offline",
    "short-in-short-out",
    "short-in-long-out",
    "long-in-short-out",
    "long-in-long-out",
]

Objective = Literal["gpus", "cost", "power", "latency"]
DEFAULT_GPUS = "h100-sxm-80gb,h200-sxm-141gb,b200-sxm-180gb,b300-sxm-270gb,gb200-186gb,gb300-279gb,rtx-pro-6000-blackwell-se,l40s"  # noqa: E501
"""What is offered in November 2026, has a price in the list, and rests on NVIDIA's fitted terms;
others are tried where they are named."""

Length = float | str | None
Text = str | None
Number = float | None
Texts = str | list[str] | None
Counts = int | str | list[int] | None


LARGEST_SETTING = 1_000_000_000
MOST_FRONT_ENDS = 1_000
MOST_SPARE = 1_000_000
MOST_CALLS, MOST_PREFIXES = 100, 1_000_000
SETTING = Bounds("a setting of an engine", 1, LARGEST_SETTING)
POWER = Bounds("a power in kW", 0, 1_000_000_000, above=True)
MEMORY = Bounds("a share of the memory", 0, 1, above=True)


def leaf(
    about: str,
    *,
    about_simulate: str = "",
    file: bool = False,
    unit: Unit = "",
    aliases: tuple[str, ...] = (),
    bounds: Bounds | None = None,
) -> Any:
    """A leaf of the tree, None unless it is given; ``unit`` are the units that its number may have,
    ``bounds`` what the number may be.

    Args:
        about_simulate: its help in ``simulate``, which takes one value of what ``size`` tries or
            chooses.
        file: whether it is the path of a file.
        aliases: what engines call it.
    """
    return field(
        default=None,
        metadata={
            "about": about,
            "about_simulate": about_simulate,
            "file": file,
            "unit": unit,
            "aliases": aliases,
            "bounds": bounds,
        },
    )


@strict
class LengthsAsked:
    """The lengths of prompts and outputs."""

    isl: Length = leaf(
        "Prompt length in tokens, words (3500words) or characters (8000chars): 2000, 2000+-500,"
        " lognormal:2000,500, uniform:1600-2000, histogram:100:0.2,500:0.8, or a .csv with the"
        " columns value,weight."
    )
    osl: Length = leaf("Output length, in the same forms.")
    pairs: Text = leaf(
        "CSV with the columns isl,osl: prompt and output lengths drawn together, in place of isl"
        " and osl.",
        file=True,
    )
    mixture: Text = leaf(
        'Lengths of several kinds with their shares, in place of isl and osl: "short-in-short-out'
        ' 0.7, long-in-long-out 0.2, 4000/300 0.1".'
    )
    system_prompt: Length = leaf(
        "Length of the system prompt in tokens, words or characters; it is added to every prompt."
    )
    retrieved: Length = leaf("Retrieved passages that are added to every prompt, such as 5x400.")
    history: Length = leaf(
        "Earlier turns of the chat that are added to every prompt, such as 3x700."
    )
    images: Text = leaf(
        "Images of every prompt, such as 1024x768 or 3x1024x768: their tokens by the model's rule"
        " are added to it, and its encoder's time."
    )
    words_per_token: Number = leaf("Words per token (default: 0.75, as in English).")
    spread: Text = leaf(
        "Spread of lengths that are single numbers: exact, 20%, or as of recorded chat, code or"
        " documents (docs/size.md)."
    )


@strict
class SessionsAsked:
    """The content that requests share, and how they follow one another."""

    shared_prefix: Length = leaf(
        "Length of a prefix that prompts share, in tokens or words; it is added to them and may be"
        " cached."
    )
    shared_prefix_share: Number = leaf(
        "Share of the conversations that begin with it, from 0 to 1 (default: 1).",
        unit="share",
        bounds=SHARE,
    )
    shared_prefixes: int | None = leaf(
        "Number of different shared prefixes (default: 1).",
        bounds=Bounds("a number of prefixes", 1, MOST_PREFIXES),
    )
    turns: Length = leaf(
        "Turns of a conversation, such as 5 or uniform:2-8: each prompt is the whole history and a"
        " question of the prompt length."
    )
    think_time: Text = leaf(
        "Time from an answer to the next turn: 30s or exponential:30s (default: none)."
    )
    tool_calls: int | None = leaf(
        "Calls of tools in each turn, each a further request with the tool's result (default: 0).",
        bounds=Bounds("a number of calls", 0, MOST_CALLS),
    )
    tool_delay: Text = leaf("Time that a tool takes: 2s or exponential:2s (default: none).")
    tool_tokens: Length = leaf("Length of a tool's result (default: the prompt length).")
    longest_pause: Text = leaf(
        "Recorded pauses are cut to this (default: 10min).",
        about_simulate="Recorded pauses are cut to this (default: they stay as they are).",
    )
    session_tiers: bool | None = leaf(
        "Show how many recorded sessions a system holds at each speed and time to first token, what"
        " keeping the cache of a waiting session buys, and admission by session, size only."
    )


@strict
class DemandAsked:
    """The load: how many requests there are."""

    peak_rps: Number = leaf("Requests per second at the peak.", unit="rate")
    mean_rps: Number = leaf(
        "Mean requests per second of Poisson traffic, in place of a peak; a profile or a trace is"
        " scaled to it.",
        unit="rate",
    )
    peak_percentile: Number = leaf(
        "With a mean: the percentile of the arrivals in one second that is sized for, the method of"
        " NVIDIA's course.",
        unit="percentile",
    )
    peak_factor: Number = leaf(
        "With a mean: the peak as a multiple of the mean, in place of a percentile.",
        unit="factor",
        bounds=Bounds("the peak as a multiple of the mean"),
    )
    users: Number = leaf("Number of people who send requests.")
    requests_per_user_day: Number = leaf(
        "Requests that each of them sends on a working day.",
        unit="daily",
        bounds=Bounds("a number of requests", 0, 1e15, above=True),
    )
    working_hours: Number = leaf(
        "Hours of the working day over which the requests arrive (default: 8).",
        unit="hours",
        bounds=Bounds("a working day in hours", 0, 24, above=True),
    )
    working_days: Number = leaf("Working days in a week (default: 5).", unit="days")
    calls_per_year: Number = leaf(
        "Calls, or other business transactions, in a year.", unit="yearly"
    )
    requests_per_call: Number = leaf("Requests to the model that each of them makes (default: 1).")
    profile: str | list[float] | None = leaf(
        "24 or 168 hourly loads, as values with commas or in a .csv: requests per second, or shares"
        " where a mean or a peak is given; of several regions a file each with its hours from UTC,"
        " which are added up: eu:eu.csv@+1,us:us.csv@-5.",
        about_simulate=(
            "24 or 168 hourly loads in requests per second, for profile arrivals; a request rate"
            " sets their mean."
        ),
        file=True,
    )
    trace: Text = leaf(
        "File of recorded requests (the formats of Azure, Mooncake or BurstGPT, timestamp,isl,osl,"
        " a run folder, or what vllm bench, GenAI-Perf, AIPerf or GuideLLM kept of single"
        " requests); it is replayed with its bursts.",
        about_simulate=(
            "File of recorded requests, replayed with its lengths unless others are given; sets the"
            " arrivals."
        ),
        file=True,
    )
    trace_unit: Literal["s", "ms", "us", "ns"] | None = leaf(
        "Unit of the trace's times, where they are numbers and do not make it clear."
    )
    sessions: Number = leaf(
        "Recorded sessions at once, another one for each that is over; the trace is a file of"
        " sessions."
    )
    sessions_per_hour: Number = leaf(
        "Recorded sessions that begin in an hour, in place of how many there are at once.",
        unit="rate",
    )
    engineers: Number = leaf(
        "People who hold recorded sessions, in place of how many there are at once."
    )
    share_active: Number = leaf(
        "Share of the engineers who are in a session at the same time (default: 0.2).",
        unit="share",
        bounds=SHARE,
    )
    concurrency: Number = leaf(
        "Requests in flight at once at the peak, on average, such as 200: sized as the rate that"
        " keeps so many."
    )
    requests: Number = leaf("Number of requests of an offline job.")
    within: Text = leaf("Time in which an offline job has to finish, such as 8h.")


@strict
class LimitsAsked:
    """The latency limits: statistics (mean, p50, p90, p95, p99) of a latency, one or several."""

    ttft: Texts = leaf(
        'Limit on the time to first token (TTFT), such as "p95<=500ms"; mean, p50, p90, p95 or p99;'
        " repeatable.",
        about_simulate=(
            "Limit on the time to first token (TTFT) whose violations are counted, such as"
            ' "p95<=500ms"; repeatable.'
        ),
    )
    itl: Texts = leaf(
        'Limit on the single gaps between tokens (ITL), such as "p99<=100ms"; repeatable.'
    )
    tpot: Texts = leaf("Limit on the mean time per output token of a request (TPOT); repeatable.")
    e2e: Texts = leaf("Limit on the time to the last token (E2E); repeatable.")
    first_ttft: Texts = leaf(
        'Limit on the TTFT of the first request of a recorded session, such as "p95<=10s";'
        " repeatable."
    )
    further_ttft: Texts = leaf("Limit on the TTFT of its other requests; repeatable.")
    slowdown: Texts = leaf(
        "Limit on how many times as long the answers of a recorded session take as alone, such as"
        ' "p90<=1.2"; repeatable.'
    )
    attain: Texts = leaf(
        'Share of requests that must meet several limits at once, such as "95%: ttft<=500ms &'
        ' tpot<=50ms"; repeatable.'
    )


@strict
class SearchAsked:
    """The space of the search; every combination is tried."""

    gpu: Texts = leaf(
        f"GPUs to try, separated by commas (default: {DEFAULT_GPUS}).",
        about_simulate="GPU id (default: h100-sxm-80gb).",
    )
    system: Texts = leaf(
        "Servers to buy in, one of each GPU, such as 4xl40s, 1xh100, a cloud's machine type"
        " (p5.48xlarge) or a YAML file of your own (default: the catalog's system of each GPU)."
    )
    precision: Texts = leaf(
        "Number formats to try, separated by commas: fp16, bf16, fp8 (E4M3), int8-sq, int8-wo,"
        " int4-wo, awq, gptq, w4a8, nvfp4, mxfp4, or all of these; tf32, fp32; +kv-fp16, +kv-fp8"
        " (E4M3 or E5M2, of one size), +kv-int8 or +2:4 may follow each of them (default: the"
        " format that the model is published in; fp16,fp8 where that has 16 bits).",
        about_simulate=(
            "Number format, such as fp16, fp8, awq or fp8+kv-fp8 (default: the one that the model"
            " is published in, fp16 for 16 bits)."
        ),
    )
    tp: Counts = leaf(
        "Tensor-parallel degrees to try, separated by commas (default: 1,2,4,8).",
        about_simulate="Tensor-parallel degree (default: 1).",
    )
    pp: Counts = leaf(
        "Pipeline-parallel degrees, separated by commas (default: 1; size tries more where a model"
        " does not fit without)."
    )
    dp: Counts = leaf(
        "Numbers of data-parallel attention ranks of a mixture of experts, separated by commas "
        "(default: 1, with latent attention also one per GPU).",
        about_simulate=(
            "Data-parallel attention ranks of a mixture of experts; each has TP GPUs and its own"
            " requests (default: 1)."
        ),
    )
    ep: Counts = leaf(
        "Expert-parallel degrees to try, separated by commas (default: 1, and the number of GPUs of"
        " an instance).",
        about_simulate="Expert-parallel degree of a mixture of experts (default: 1).",
    )
    engine: Texts = leaf(
        "Engine presets to try, separated by commas: tensorrt-llm, vllm or sglang for the newest,"
        " or a version such as vllm-0.19 of `tonnage catalog engines` (default:"
        " tensorrt-llm,vllm).",
        about_simulate=(
            "Engine preset: tensorrt-llm, vllm or sglang for the newest, or a version such as"
            " nim-2024 of `tonnage catalog engines` (default: tensorrt-llm, or vllm where the GPU"
            " needs it)."
        ),
    )
    max_batch_size: Counts = leaf(
        "Numbers of sequences that may run at once, to try (default: the engine's own).",
        about_simulate="Sequences that run at once (default: the engine's own).",
        aliases=("max_num_seqs", "max_running_requests"),
        bounds=SETTING,
    )
    max_num_tokens: Counts = leaf(
        "Token budgets of a step, to try (default: the engine's own).",
        about_simulate="Token budget of one step (default: the engine's own).",
        aliases=("max_num_batched_tokens", "chunked_prefill_size"),
        bounds=SETTING,
    )
    max_model_len: int | None = leaf(
        "Longest prompt with its output that the engine accepts, in tokens (default: the model's"
        " context; in a plan, as much of it as four fifths of the KV cache hold).",
        aliases=("context_length", "max_seq_len"),
    )
    gpu_memory_utilization: Number = leaf(
        "vLLM: share of each GPU's memory for weights, activations and KV cache (default: the"
        " engine's own).",
        unit="share",
        bounds=MEMORY,
    )
    mem_fraction_static: Number = leaf(
        "SGLang: share of each GPU's memory for weights and KV cache (default: the engine's own).",
        unit="share",
        bounds=MEMORY,
    )
    free_gpu_memory_fraction: Number = leaf(
        "TensorRT-LLM: share of the memory that is free after loading for the KV cache (default:"
        " the engine's own).",
        unit="share",
        aliases=("kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction"),
        bounds=MEMORY,
    )
    chunked_prefill: bool | None = leaf(
        "Split prompts over several steps (default: the engine's own)."
    )
    prefix_caching: bool | None = leaf(
        "Use KV blocks of earlier prompts again (default: yes, but for static batching)."
    )
    kv_tiers: Text = leaf(
        "Memory of an instance below its KV cache, the nearest first: sizes such as"
        " host=256GB@50GB/s,disk=4TB@6GB/s, the system's own by name (host,disk), an offloader"
        " (vllm, hicache, tensorrt-llm, lmcache, kvbm), both (lmcache:host,disk), or none."
    )
    long_prefill_token_threshold: int | None = leaf(
        "Most tokens of one prompt in a step while others are there, on vLLM, simulate only"
        " (default: no limit).",
        bounds=SETTING,
    )
    queue_order: Literal["fcfs", "shortest-first", "priority", "deadline"] | None = leaf(
        "Queue order, simulate only: fcfs (default), shortest-first, priority (by class) or"
        " deadline."
    )
    classes: Texts = leaf(
        "Class of traffic with its own load, lengths, limits and priority, the highest priority"
        " first, such as chat:peak_rps=20,isl=1000,osl=200,ttft=p95<=500ms; repeatable.",
        about_simulate="Classes of the traffic, the highest priority first, with their shares and"
        " limits on"
        ' the first token: "chat 0.7 ttft=1s, batch 0.3".',
        aliases=("class",),
    )
    shed: bool | None = leaf(
        "Reject requests whose first token can no longer meet its limit, simulate only (default:"
        " no)."
    )
    disaggregated: bool | str | None = leaf(
        "Prefill and decode apart: true for size, which finds the ratio, such as 1:2 for simulate.",
        about_simulate="Prefill and decode apart: instances of each pool, such as 1:2.",
    )
    kv_link: Text = leaf(
        "Bytes per second that a GPU sends to the other pool, such as 50GB/s (default: NVLink"
        " within one domain, else a port of 400 Gb/s)."
    )
    kv_overlap: bool | None = leaf(
        "Send a layer's KV cache as soon as it is computed (default: no)."
    )
    stream_interval: int | None = leaf(
        "Output tokens in one streamed message (default: the engine's own, 1).",
        bounds=Bounds("a number of tokens", 1, LARGEST_SETTING),
    )
    front_ends: int | None = leaf(
        "API servers of an instance (default: 1, and with data-parallel attention one for each"
        " rank).",
        bounds=Bounds("a number of API servers", 1, MOST_FRONT_ENDS),
    )
    speculation: Text = leaf(
        "Speculative decoding to try beside plain decoding: draft=MODEL, eagle, mtp, medusa,"
        ' redrafter or ngram, such as "eagle k=3 acceptance=0.7".',
        about_simulate=(
            'Speculative decoding, such as "eagle k=3 acceptance=0.7"; every point is then run'
            " without it too."
        ),
    )
    lora: Text = leaf(
        'LoRA adapters that requests use, such as "rank=16 adapters=8": the highest rank, and how'
        " many are loaded at once; on=attention where they change attention alone."
    )
    load: Literal["open", "closed"] | None = leaf(
        "open: requests arrive on a schedule (default); closed: a fixed number of clients keeps the"
        " engine busy, as in benchmarks."
    )
    arrivals: Literal["poisson", "constant", "gamma", "mmpp", "trace", "profile"] | None = leaf(
        "Arrival process of the open loop (default: poisson); mmpp changes between the two states"
        " of mmpp (simulate alone); trace replays the trace of the demand, as size always does with"
        " one, and profile simulates its hours one after another (size looks at the busiest one).",
        about_simulate=(
            "Arrival process of the open loop (default: poisson); mmpp changes between the states"
            " of mmpp; trace replays the trace, stretched to a rate that is given; profile runs"
            " once through the hours of the profile."
        ),
    )
    mmpp: Text = leaf(
        'States of a Markov-modulated Poisson process: two rates and mean stays, such as "2/s for'
        ' 60s, 20/s for 10s".'
    )
    cv: Number = leaf(
        "Coefficient of variation of gamma arrivals: the standard deviation of the gaps over their"
        " mean."
    )
    router: Text = leaf(
        "Router between the instances: round-robin, weighted, random, least-outstanding,"
        " least-tokens, least-kv or power-of-two (default: random).",
        about_simulate=(
            "Router between the instances: round-robin, weighted, random, least-outstanding,"
            " least-tokens, least-kv, power-of-two, or where prompts share something prefix-aware"
            " or session (default: least-outstanding)."
        ),
    )
    deploy_on: Text = leaf(
        "Deployment target that runs the answer: compose, kubernetes, kserve, llm-d, dynamo,"
        " production-stack, ray-serve, nim or triton; tries only what it runs: engines, splits,"
        " formats with a checkpoint, and its router (default: any)."
    )
    power_cap: Text = leaf(
        "Power limit of each GPU, such as 500W or 70% of its board power: arithmetic takes longer,"
        " and no GPU draws more (docs/cost.md)."
    )
    gpu_clock: Number = leaf(
        "Clock that each GPU is locked to, such as 80%: arithmetic takes longer, steps draw less.",
        unit="share",
    )
    link: Text = leaf(
        "Link over PCIe: pcie4-x16 and the like, bridge, p2p-off, or a file of nvidia-smi topo -m"
        " (docs/systems.md)."
    )
    host_speed: float | str | None = leaf(
        "Speed of a host's core over the measured hosts', such as 0.7, or its CPU's name as lscpu"
        " prints it (docs/systems.md)."
    )
    coefficients: Text = leaf(
        "File that tonnage calibrate wrote; predictions apply its factors to the shipped terms.",
        file=True,
    )
    step_model: Text = leaf(
        "Source of step times: fitted (default), kernels, aiconfigurator, or a .csv of your own"
        " (docs/step-models.md)."
    )


@strict
class ChoiceAsked:
    """The rule by which a deployment is chosen, and what it must not exceed."""

    objective: Objective | None = leaf(
        "Objective to minimise: gpus (default), cost (per year), power, or latency (mean E2E at the"
        " peak)."
    )
    budget: Text = leaf(
        'Most that may be spent, such as "500k USD" to buy the systems, or "200k USD/year" for a'
        " year of serving."
    )
    max_kw: Number = leaf(
        "Most kW that the systems may draw together.", unit="kilowatts", bounds=POWER
    )
    max_racks: int | None = leaf(
        "Most racks that the systems may stand in.", bounds=Bounds("a number of racks")
    )
    rack_kw: Number = leaf(
        "Kilowatts that one rack can feed and cool (default: 42, four DGX H100).",
        unit="kilowatts",
        bounds=POWER,
    )


@strict
class StandbyAsked:
    """The systems that stand by for failures."""

    availability: Length = leaf(
        "Probability that enough systems work for the peak, such as 99.9%; takes the time between"
        " failures and the repair time."
    )
    mtbf: Text = leaf(
        "Mean time between failures of one system (or instance), such as 8000h or 300d."
    )
    repair_time: Text = leaf("Mean time until a failed one works again, such as 24h.")
    repairers: int | None = leaf(
        "Repairs that go on at once (default: as many as there are failures).",
        bounds=Bounds("a number of repairs", 1, MOST_SPARE),
    )
    failing: Literal["system", "instance"] | None = leaf(
        "Unit that fails at once: a whole system (default) or one instance."
    )
    spare_instances: int | None = leaf(
        "Instances in addition to those that the load needs; 1 is N+1 by instances.",
        unit="spare",
        bounds=Bounds("a number of instances to add", 0, MOST_SPARE),
    )


@strict
class ScalingAsked:
    """The ways in which the fleet may be scaled over its hours."""

    autoscale: bool | None = leaf(
        "Propose an autoscaling rule for the profile or the trace, and say what it saves"
        " (docs/autoscaling.md)."
    )
    broken_hours: Length = leaf(
        "Share of the hours in which limits may be broken then, such as 5% (default: 0%)."
    )
    start_time: Text = leaf(
        "Time from the controller's decision until a new instance takes requests, such as 3min"
        " (default: weights at 10 Gbit/s, and 60 s)."
    )


@strict
class BuyingAsked:
    """When systems are bought, and what is rented in their place."""

    horizon: Text = leaf(
        "Months over which buying now, buying when needed and renting are compared, such as 36 or"
        " 3 years (default: 36 where a price decay or a lead time is given; docs/cost.md)."
    )
    price_decay: Length = leaf(
        'Share by which prices fall in a year, such as 20%, or "systems=25% rents=10%" for systems'
        " and for rented GPUs by themselves (default: none)."
    )
    lead_time: Text = leaf(
        "Time from the order of a system to its delivery, such as 3 months or 12 weeks; GPUs are"
        " rented until then (default: none)."
    )


@strict
class Scenario:
    """The whole question; None leaves a part to its default."""

    title: Text = leaf("Subject of the question, in a few words.")
    model: Texts = leaf(
        "Catalog id (see tonnage catalog) or path of a Hugging Face config.json; several, separated"
        " by commas, are compared.",
        about_simulate="Catalog id (see tonnage catalog) or path of a Hugging Face config.json.",
    )
    layout: Text = leaf(
        "Architecture as which a config.json is read whose own leaves something open, such as"
        " LlamaForCausalLM."
    )
    lengths: LengthsAsked = field(default_factory=LengthsAsked)
    sessions: SessionsAsked = field(default_factory=SessionsAsked)
    demand: DemandAsked = field(default_factory=DemandAsked)
    limits: LimitsAsked = field(default_factory=LimitsAsked)
    mode: Mode | None = leaf(
        "streaming: users read along; sequential: only the whole answer counts; offline: only the"
        " throughput counts."
    )
    use_case: UseCase | None = leaf(
        "Sets default lengths, mode and limits, which the plan states: chatbot, summarization, rag,"
        " data-generation or offline; or lengths and mode alone: short-in-short-out,"
        " short-in-long-out, long-in-short-out or long-in-long-out."
    )
    where: Texts = leaf(
        "Ways of serving whose cost is compared, separated by commas: on-prem, cloud, hybrid, api"
        " or hybrid-api."
    )
    have: Text = leaf(
        "Systems that exist, such as 3xdgx-h100, 3x4xl40s, 16xh100 (GPUs), 2xp5.48xlarge or"
        " 2xmine.yaml: the plan says what they carry and, with a load, what to add to them."
    )
    mix: bool | None = leaf(
        "Look for a purchase of two kinds of system that costs less a year than the best single"
        " kind: long prompts on one and short ones on the other, or both behind one router"
        " (default: no)."
    )
    growth: Length = leaf(
        "Growth of the load, such as 5%/month or 60%/year: the plan says until when the systems are"
        " enough, and how many it takes in one, two and three years."
    )
    priority: int | None = leaf(
        "Priority of a use case among several on one fleet, the lowest first (default: 0, and of"
        " classes their order)."
    )
    spare: int | None = leaf(
        "Systems in addition to those that the load needs; 1 is N+1.",
        unit="spare",
        bounds=Bounds("a number of systems to add", 0, MOST_SPARE),
    )
    choice: ChoiceAsked = field(default_factory=ChoiceAsked)
    standby: StandbyAsked = field(default_factory=StandbyAsked)
    scaling: ScalingAsked = field(default_factory=ScalingAsked)
    buying: BuyingAsked = field(default_factory=BuyingAsked)
    confidence: Length = leaf(
        "Confidence with which the number of systems meets the limits, given the errors of the"
        " prediction, such as 95 or 95% (default: 80)."
    )
    prices: str | dict[str, Any] | None = leaf(
        "Prices in place of the catalog's, or the YAML file that holds them.", file=True
    )
    benchmarks: Text = leaf(
        "Measured points: a CSV with the columns of docs/size.md, a run folder, or the report of a"
        " benchmark tool.",
        file=True,
    )
    include_invalid: bool | None = leaf(
        "Count measured runs that their client called INVALID; they are left out otherwise."
    )
    allow_errors: bool | None = leaf(
        "Count measured runs of which more than 1% of the requests failed; they are left out"
        " otherwise."
    )
    search: SearchAsked = field(default_factory=SearchAsked)
    seed: int | None = leaf(
        "Seed of every random draw (default: 0).",
        about_simulate="Seed of every random draw (default: 0; in the lesson 42).",
        bounds=Bounds("a seed", 0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationAsked:
    """What ``simulate`` takes in addition to a scenario's leaves: the load of one instance, its
    further knobs, and its fleet.
    """

    concurrency: Counts = leaf(
        "Closed loop: clients with one request in flight each (with a rate: the most in flight)."
    )
    request_rate: str | float | list[float] | None = leaf("Open loop: requests per second.")
    requests: int | None = leaf(
        "Requests per point (default: 1000, and in a closed loop at least 10 per client)."
    )
    window: Text = leaf(
        "Closed loop: count what completes within this time of a common start, such as 216s, in"
        " place of requests."
    )
    batcher: Literal["static", "in-flight", "one-prefill", "max-utilization"] | None = leaf(
        "Batching: static, in-flight, one prompt at a time, or TensorRT-LLM's capacity policy"
        " MAX_UTILIZATION (default: the engine's own)."
    )
    receive_interval: int | None = leaf(
        "SGLang: decode steps between two looks for new requests (its scheduler_recv_interval;"
        " default: 1).",
        bounds=SETTING,
    )
    batch_wait_steps: int | None = leaf(
        "TensorRT-LLM: steps for which prompts wait to be batched while others decode (its"
        " batch_wait_timeout_iters; default: 0).",
        bounds=Bounds("a number of steps", 0, LARGEST_SETTING),
    )
    batch_wait_ratio: Number = leaf(
        "TensorRT-LLM: share of the token budget at which they stop waiting (its"
        " batch_wait_max_tokens_ratio).",
        bounds=Bounds("a share of the token budget", 0, 1),
    )
    overlap_schedule: bool | None = leaf(
        "Schedule a step while the one before it runs, so that requests wait a step longer."
    )
    graph_tokens: int | None = leaf(
        "Tokens up to which steps with prompts run as CUDA graphs (vLLM's"
        " max_cudagraph_capture_size; default: 512 on vLLM, else none).",
        bounds=Bounds("a number of tokens", 0, LARGEST_SETTING),
    )
    instances: int | str | None = leaf(
        'Instances behind a router that share each open loop (default: 1), also unlike ones: "2'
        ' gpu=h100 weight=3 + 1 gpu=l40s".'
    )
    fail: Text = leaf(
        'Failures of instances, such as "mtbf=30d repair=2h"; crews=N and retry=none, unanswered or'
        " all follow (docs/load-balancing.md)."
    )
    autoscale: Text = leaf(
        'Autoscaling rule, such as "metric=outstanding target=20 min=1 max=8"; metric=rate; start,'
        " hold, interval, warm, link and boot may follow (docs/load-balancing.md)."
    )
    seasons: Text = leaf(
        'Limits of the engine by the hour of the day, such as "8-20 max_num_tokens=2048'
        ' max_batch_size=64; 22-6 max_model_len=32768; drain=60s start=2min": instances restart a'
        " quarter at a time."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """The place of a leaf, its type, and its help."""

    path: tuple[str, ...]  # branch and name, such as ("limits", "ttft")
    kind: Any  # its annotation
    about: str  # one sentence; ``about_simulate`` is its help there, where that differs
    file: bool  # whether a text there is a path
    about_simulate: str = ""
    unit: Unit = ""  # the units that a number may be written in, a key of ``written_numbers.UNITS``
    # what engines call it: taken as well by the command, in a file and in Python
    aliases: tuple[str, ...] = ()
    bounds: Bounds | None = None  # of its number

    @property
    def name(self) -> str:
        """The name alone, as an argument."""
        return self.path[-1]

    @property
    def key(self) -> str:
        """The place in a file, such as "demand.peak_rps"."""
        return ".".join(self.path)

    @property
    def number(self) -> type[int] | type[float] | None:
        """Whether only a whole number or only a number is allowed; None where something else is."""
        if takes(self.kind, str) or takes(self.kind, bool):
            return None
        return int if takes(self.kind, int) else float if takes(self.kind, float) else None

    def read(self, text: str) -> float | None:
        """The number that a text says; None where it is none, or where the leaf takes none."""
        number = None if self.number is None else number_of(text, self.unit)
        if number is None or self.number is float:
            return number
        return int(number) if number.is_integer() else None

    def fault(self, value: object) -> str:
        """Say what is wrong with a number; empty where nothing is, or where it is none."""
        if self.bounds is None or isinstance(value, bool) or not isinstance(value, int | float):
            return ""
        return self.bounds.fault(value)


@cache
def leaves(branch: type = Scenario, path: tuple[str, ...] = ()) -> tuple[Leaf, ...]:
    """Every leaf of the tree, in the order of its questions."""
    hints, leafs = get_type_hints(branch), list[Leaf]()
    for part in fields(branch):
        kind = hints[part.name]
        below = is_dataclass(kind) and isinstance(kind, type)
        leafs += (
            leaves(kind, (*path, part.name))
            if below
            else [Leaf(path=(*path, part.name), kind=kind, **part.metadata)]
        )
    return tuple(leafs)


@cache
def by_alias() -> dict[str, str]:
    """The leaf that each alias means."""
    return {alias: leaf.name for leaf in leaves() for alias in leaf.aliases}


SHARES = ("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction")
# Leaves of the search that an instance's memory depends on
OF_MEMORY = ("max_batch_size", "max_num_tokens", "max_model_len", *SHARES)

# Leaves that one simulated deployment has no use for
OF_SIZE = ("system", "load", "deploy_on", "session_tiers")
SWEPT = (
    "model",
    "isl",
    "osl",
    "gpu",
    "precision",
    "tp",
    "pp",
    "dp",
    "ep",
    "engine",
    "router",
    "instances",
    "concurrency",
    "request_rate",
)
# Leaves of other branches that describe it
OTHERS = ("model", "use_case", "trace", "profile", "ttft", "tpot", "e2e", "attain", "seed")


def simulated_leaves() -> Iterator[Leaf]:
    """Every argument of ``simulate``, with what it says there: the leaves that describe one
    deployment and its requests, and its own.
    """
    for part in (*leaves(), *leaves(SimulationAsked, ("simulate",))):
        described = part.path[0] in ("search", "lengths", "sessions", "simulate")
        if (described and part.name not in OF_SIZE) or part.name in OTHERS:
            words = part.about_simulate or part.about
            yield replace(
                part, about=f"{words[:-1]}; several make a sweep." if part.name in SWEPT else words
            )


def written_leaves(
    scenario: Scenario, simulated: Mapping[str, object] | None = None
) -> Iterator[tuple[Leaf, object]]:
    """Every leaf with its value in a scenario, and the leaves of ``simulate`` alone with theirs in
    ``simulated``, by name.
    """
    values = flat(to_document(scenario))
    yield from ((leaf, values.get(leaf.name)) for leaf in leaves())
    own_leaves = () if simulated is None else leaves(SimulationAsked, ("simulate",))
    yield from ((leaf, (simulated or {}).get(leaf.name)) for leaf in own_leaves)


def takes(kind: Any, value_type: type) -> bool:
    """Whether a leaf of that annotation takes values of a type."""
    return kind is value_type or any(
        takes(part, value_type)
        for part in get_args(kind)
        if isinstance(part, type) or get_args(part)
    )


def to_document(scenario: Scenario) -> dict[str, Any]:
    """The scenario as nested plain values, without what was left open."""

    def plain(branch: Any) -> dict[str, Any]:
        values = ((part.name, getattr(branch, part.name)) for part in fields(branch))
        document = {name: plain(value) if is_dataclass(value) else value for name, value in values}
        return {
            name: _whole(value)
            for name, value in document.items()
            if value is not None and value != {}
        }

    return plain(scenario)


def _whole(value: Any) -> Any:
    """2000.0 as people write it, 2000."""
    return (
        int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        else value
    )


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten a document to its leaves by name."""
    values: dict[str, Any] = {}
    for leaf in leaves():
        place: Any = document
        for name in leaf.path:
            place = place.get(name) if isinstance(place, Mapping) else None
        if place is not None:
            values[leaf.name] = place
    return values
