"""A scenario is a sizing question as its asker writes it: one tree of plain values, for YAML, JSON, flags and Python alike.

Every leaf has one name. In a file it stands under its branch (``limits: {ttft: p95<=500ms}``); as an argument
of ``tonnage.size`` and as a flag it stands alone (``ttft="p95<=500ms"``).
``tonnage.spec.scenario_file`` reads and writes files; what the texts mean is found out when the question is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_type_hints

from tonnage.spec.typed_values import FORBID
from tonnage.spec.written_numbers import Unit, number_of

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

Length = float | str | None
Text = str | None
Number = float | None
Texts = str | list[str] | None
Counts = int | str | list[int] | None


def leaf(about: str, *, default: Any = None, factory: Any = MISSING, file: bool = False, unit: Unit = "") -> Any:
    """A leaf of the tree: what it says, whether it is the path of a file, and the units that a number may be written in."""
    facts = {"about": about, "file": file, "unit": unit}
    return field(default_factory=factory, metadata=facts) if factory is not MISSING else field(default=default, metadata=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsAsked:
    """How long prompts and outputs are."""

    __pydantic_config__ = FORBID

    isl: Length = leaf(
        "Prompt length in tokens, words (3500words) or characters (8000chars): 2000, 2000+-500, lognormal:2000,500, uniform:1600-2000, "
        "histogram:100:0.2,500:0.8, or a .csv with the columns value,weight."
    )
    osl: Length = leaf("Output length, in the same forms.")
    pairs: Text = leaf("CSV with the columns isl,osl: prompt and output lengths drawn together, in place of isl and osl.", file=True)
    mixture: Text = leaf(
        'Lengths of several kinds with their shares, in place of isl and osl: "short-in-short-out 0.7, long-in-long-out 0.2, 4000/300 0.1".'
    )
    system_prompt: Length = leaf("Length of the system prompt in tokens, words or characters; it is added to every prompt.")
    retrieved: Length = leaf("Retrieved passages that are added to every prompt, such as 5x400.")
    history: Length = leaf("Earlier turns of the chat that are added to every prompt, such as 3x700.")
    words_per_token: Number = leaf("Words per token (default: 0.75, as in English).")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsAsked:
    """What requests share, and how they follow one another."""

    __pydantic_config__ = FORBID

    shared_prefix: Length = leaf("Length of a prefix that prompts share, in tokens or words; it is added to them and may be cached.")
    shared_prefix_share: Number = leaf("Share of the conversations that begin with it, from 0 to 1 (default: 1).", unit="share")
    shared_prefixes: int | None = leaf("How many different shared prefixes there are (default: 1).")
    turns: Length = leaf(
        "Turns of a conversation, such as 5 or uniform:2-8: each prompt is the whole history and a question of the prompt length."
    )
    think_time: Text = leaf("Time from an answer to the next turn: 30s or exponential:30s (default: none).")
    tool_calls: int | None = leaf("Calls of tools in each turn, each a further request with the tool's result (default: 0).")
    tool_delay: Text = leaf("Time that a tool takes: 2s or exponential:2s (default: none).")
    tool_tokens: Length = leaf("Length of a tool's result (default: the prompt length).")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandAsked:
    """How many requests there are."""

    __pydantic_config__ = FORBID

    peak_rps: Number = leaf("Requests per second at the peak.", unit="rate")
    mean_rps: Number = leaf(
        "Mean requests per second of Poisson traffic, in place of a peak; a profile or a trace is scaled to it.", unit="rate"
    )
    peak_percentile: Number = leaf(
        "With a mean: the percentile of the arrivals in one second that is sized for, the method of NVIDIA's course.",
        unit="percentile",
    )
    peak_factor: Number = leaf("With a mean: the peak as a multiple of the mean, in place of a percentile.", unit="factor")
    users: Number = leaf("Number of people who send requests.")
    requests_per_user_day: Number = leaf("Requests that each of them sends on a working day.", unit="daily")
    working_hours: Number = leaf("Hours of the working day over which the requests arrive (default: 8).", unit="hours")
    working_days: Number = leaf("Working days in a week (default: 5).", unit="days")
    calls_per_year: Number = leaf("Calls, or other business transactions, in a year.", unit="yearly")
    requests_per_call: Number = leaf("Requests to the model that each of them makes (default: 1).")
    profile: str | list[float] | None = leaf(
        "24 or 168 hourly loads, as values with commas or in a .csv: requests per second, or shares where a mean or a peak is given.",
        file=True,
    )
    trace: Text = leaf(
        "File of recorded requests (the formats of Azure, Mooncake or BurstGPT, timestamp,isl,osl, a run folder, or what vllm bench, "
        "GenAI-Perf, AIPerf or GuideLLM kept of single requests); it is replayed with its bursts.",
        file=True,
    )
    requests: Number = leaf("Number of requests of an offline job.")
    within: Text = leaf("Time in which an offline job has to finish, such as 8h.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsAsked:
    """What must hold: a statistic (mean, p50, p90, p95, p99) of a latency, one or several each."""

    __pydantic_config__ = FORBID

    ttft: Texts = leaf('Limit on the time to first token (TTFT), such as "p95<=500ms"; mean, p50, p90, p95 or p99; repeatable.')
    itl: Texts = leaf('Limit on the single gaps between tokens (ITL), such as "p99<=100ms"; repeatable.')
    tpot: Texts = leaf("Limit on the mean time per output token of a request (TPOT); repeatable.")
    e2e: Texts = leaf("Limit on the time to the last token (E2E); repeatable.")
    attain: Texts = leaf('Share of requests that must meet several limits at once, such as "95%: ttft<=500ms & tpot<=50ms"; repeatable.')


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAsked:
    """What may be combined; every combination is tried."""

    __pydantic_config__ = FORBID

    gpu: Texts = leaf("GPUs to try, separated by commas (default: h100-sxm-80gb,h200-sxm-141gb,a100-sxm-80gb,l40s).")
    system: Texts = leaf(
        "Servers to buy in, one of each GPU, such as 4xl40s, 1xh100, a cloud's machine type (p5.48xlarge) or a YAML file of your own "
        "(default: the catalog's system of each GPU)."
    )
    precision: Texts = leaf(
        "Number formats to try, separated by commas: fp16, bf16, fp8, int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4, mxfp4, or all; "
        "+kv-fp16, +kv-fp8, +kv-int8 or +2:4 may follow each of them "
        "(default: the format that the model is published in; fp16,fp8 where that has 16 bits)."
    )
    tp: Counts = leaf("Tensor-parallel degrees to try, separated by commas (default: 1,2,4,8).")
    pp: Counts = leaf("Pipeline-parallel degrees to try, separated by commas (default: 1, and more where a model does not fit without).")
    dp: Counts = leaf(
        "Numbers of data-parallel attention ranks of a mixture of experts, separated by commas "
        "(default: 1, with latent attention also one per GPU)."
    )
    ep: Counts = leaf("Expert-parallel degrees to try, separated by commas (default: 1, and the number of GPUs of an instance).")
    engine: Texts = leaf(
        "Engine presets to try, separated by commas: tensorrt-llm, vllm or sglang for the newest, or a version such as vllm-0.19 of "
        "`tonnage catalog engines` (default: tensorrt-llm,vllm)."
    )
    max_batch_size: Counts = leaf("Numbers of sequences that may run at once, to try (default: the engine's own).")
    max_num_tokens: Counts = leaf("Token budgets of a step, to try (default: the engine's own).")
    chunked_prefill: bool | None = leaf("Whether a prompt may be split over several steps (default: the engine's own).")
    prefix_caching: bool | None = leaf("Whether KV blocks of earlier prompts are used again (default: yes, but for static batching).")
    kv_tiers: Text = leaf("Memory of an instance below its KV cache, the nearest first, such as host=256GB@50GB/s,disk=4TB@6GB/s.")
    long_prefill_token_threshold: int | None = leaf(
        "Most tokens of one prompt in a step while others are there, on vLLM, for simulate (default: no limit)."
    )
    queue_order: Literal["fcfs", "shortest-first", "priority", "deadline"] | None = leaf(
        "Queue order, simulate only: fcfs (default), shortest-first, priority (by class) or deadline."
    )
    classes: Text = leaf(
        "Classes of the traffic, the highest priority first, with their shares and limits on the first token, for simulate: "
        '"chat 0.7 ttft=1s, batch 0.3".'
    )
    shed: bool | None = leaf("Whether simulate rejects requests whose first token cannot come within its limit any more (default: no).")
    disaggregated: bool | str | None = leaf("Prefill and decode apart: true for size, which finds the ratio, such as 1:2 for simulate.")
    kv_link: Text = leaf(
        "Bytes per second that a GPU sends to the other pool, such as 50GB/s (default: NVLink within one domain, else a port of 400 Gb/s)."
    )
    kv_overlap: bool | None = leaf("Whether a layer's KV cache is sent as soon as it is computed (default: no).")
    stream_interval: int | None = leaf("Output tokens in one streamed message (default: the engine's own, 1).")
    front_ends: int | None = leaf("API servers of an instance (default: 1, and with data-parallel attention one for each rank).")
    speculation: Text = leaf(
        "Speculative decoding to try beside plain decoding: draft=MODEL, eagle, mtp, medusa, redrafter or ngram, "
        'such as "eagle k=3 acceptance=0.7".'
    )
    load: Literal["open", "closed"] | None = leaf(
        "open: requests arrive on a schedule (default); closed: a fixed number of clients keeps the engine busy, as in benchmarks."
    )
    arrivals: Literal["poisson", "constant", "gamma", "mmpp", "trace", "profile"] | None = leaf(
        "Arrival process of the open loop (default: poisson); mmpp changes between the two states of mmpp (simulate alone); trace replays "
        "the trace of the demand, as size always does with one, and profile simulates its hours one after another (size looks at the "
        "busiest one)."
    )
    mmpp: Text = leaf('States of a Markov-modulated Poisson process: two rates and mean stays, such as "2/s for 60s, 20/s for 10s".')
    cv: Number = leaf("Coefficient of variation of gamma arrivals: the standard deviation of the gaps over their mean.")
    router: Text = leaf(
        "Router between the instances: round-robin, weighted, random, least-outstanding, least-tokens, least-kv or power-of-two "
        "(default: random)."
    )
    coefficients: Text = leaf("File that tonnage calibrate wrote; predictions apply its factors to the shipped terms.", file=True)
    step_model: Text = leaf("Source of the step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md).")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAsked:
    """Which of the deployments that meet the limits is chosen, and what it must not exceed."""

    __pydantic_config__ = FORBID

    objective: Objective | None = leaf("What to minimise: gpus (default), cost (per year), power, or latency (mean E2E at the peak).")
    budget: Text = leaf('Most that may be spent, such as "500k USD" to buy the systems, or "200k USD/year" for a year of serving.')
    max_kw: Number = leaf("Most kW that the systems may draw together.", unit="kilowatts")
    max_racks: int | None = leaf("Most racks that the systems may stand in.")
    rack_kw: Number = leaf("Kilowatts that one rack can feed and cool (default: 42, four DGX H100).", unit="kilowatts")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyAsked:
    """What stands by for failures."""

    __pydantic_config__ = FORBID

    availability: Length = leaf(
        "Probability that enough systems work for the peak, such as 99.9%; takes the time between failures and the repair time."
    )
    mtbf: Text = leaf("Mean time between failures of one system (or instance), such as 8000h or 300d.")
    repair_time: Text = leaf("Mean time until a failed one works again, such as 24h.")
    repairers: int | None = leaf("Repairs that go on at once (default: as many as there are failures).")
    failing: Literal["system", "instance"] | None = leaf("What fails at once: a whole system (default) or one instance.")
    spare_instances: int | None = leaf("Instances in addition to those that the load needs; 1 is N+1 by instances.", unit="spare")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingAsked:
    """How the fleet may be scaled over its hours."""

    __pydantic_config__ = FORBID

    autoscale: bool | None = leaf(
        "Whether the plan proposes by which rule a controller starts and releases instances over the profile or the trace, and what that "
        "saves (docs/autoscaling.md)."
    )
    broken_hours: Length = leaf("Share of the hours in which limits may be broken then, such as 5% (default: 0%).")
    start_time: Text = leaf(
        "Time from the controller's decision until a new instance takes requests, such as 3min (default: its weights over 10 Gbit/s, and "
        "60 s)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The whole question; None leaves a part to its default."""

    __pydantic_config__ = FORBID

    title: Text = leaf("What the question is about, in a few words.")
    model: Texts = leaf(
        "Catalog id (see tonnage catalog) or path of a Hugging Face config.json; several, separated by commas, are compared."
    )
    lengths: LengthsAsked = field(default_factory=LengthsAsked)
    sessions: SessionsAsked = field(default_factory=SessionsAsked)
    demand: DemandAsked = field(default_factory=DemandAsked)
    limits: LimitsAsked = field(default_factory=LimitsAsked)
    mode: Mode | None = leaf("streaming: users read along; sequential: only the whole answer counts; offline: only the throughput counts.")
    use_case: UseCase | None = leaf(
        "Sets default lengths, mode and limits, which the plan states: chatbot, summarization, rag, data-generation or offline; or "
        "lengths and mode alone: short-in-short-out, short-in-long-out, long-in-short-out or long-in-long-out."
    )
    where: Texts = leaf("Ways of serving whose cost is compared, separated by commas: on-prem, cloud, hybrid, api or hybrid-api.")
    have: Text = leaf(
        "Systems that exist, such as 3xdgx-h100, 3x4xl40s, 16xh100 (GPUs), 2xp5.48xlarge or 2xmine.yaml: the plan says what they carry, "
        "not how many are needed."
    )
    growth: Length = leaf(
        "Growth of the load, such as 5%/month or 60%/year: the plan says until when the systems are enough, and how many it takes in one, "
        "two and three years."
    )
    spare: int | None = leaf("Systems in addition to those that the load needs; 1 is N+1.", unit="spare")
    choice: ChoiceAsked = field(default_factory=ChoiceAsked)
    standby: StandbyAsked = field(default_factory=StandbyAsked)
    scaling: ScalingAsked = field(default_factory=ScalingAsked)
    confidence: Length = leaf(
        "Confidence with which the number of systems meets the limits, given the errors of the prediction, such as 95 or 95% (default: 80)."
    )
    prices: str | dict[str, Any] | None = leaf("Prices in place of the catalog's, or the YAML file that holds them.", file=True)
    benchmarks: Text = leaf(
        "Measured points: a CSV with the columns of docs/size.md, a run folder, or the report of a benchmark tool.", file=True
    )
    include_invalid: bool | None = leaf(
        "Whether measured runs that their own client called INVALID count as measured points; they are left out otherwise."
    )
    search: SearchAsked = field(default_factory=SearchAsked)
    seed: int | None = leaf("Seed of every random draw (default: 0).")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Where a leaf stands, what may stand there, and what it says.

    Attributes:
        path: branch and name, such as ("limits", "ttft").
        kind: its annotation.
        about: one sentence.
        file: whether a text there is a path.
        unit: the units that a number may be written in, a key of ``written_numbers.UNITS``.
    """

    path: tuple[str, ...]
    kind: Any
    about: str
    file: bool
    unit: Unit = ""

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
        """Whether only a whole number or only a number may stand there; None where something else may."""
        if takes(self.kind, str) or takes(self.kind, bool):
            return None
        return int if takes(self.kind, int) else float if takes(self.kind, float) else None

    def read(self, text: str) -> float | None:
        """The number that a text says; None where it is none, or where none is asked for."""
        found = None if self.number is None else number_of(text, self.unit)
        if found is None or self.number is float:
            return found
        return int(found) if found.is_integer() else None


def leaves(branch: type = Scenario, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every leaf of the tree, in the order of its questions."""
    hints = get_type_hints(branch)
    for part in fields(branch):
        kind = hints[part.name]
        if is_dataclass(kind) and isinstance(kind, type):
            yield from leaves(kind, (*path, part.name))
        else:
            yield Leaf(path=(*path, part.name), kind=kind, **part.metadata)


def takes(kind: Any, wanted: type) -> bool:
    """Whether values of a type may stand at a leaf of that annotation."""
    return kind is wanted or any(takes(part, wanted) for part in get_args(kind) if isinstance(part, type) or get_args(part))


def to_document(scenario: Scenario) -> dict[str, Any]:
    """The scenario as nested plain values, without what was left open."""

    def plain(branch: Any) -> dict[str, Any]:
        values = ((part.name, getattr(branch, part.name)) for part in fields(branch))
        found = {name: plain(value) if is_dataclass(value) else value for name, value in values}
        return {name: _whole(value) for name, value in found.items() if value is not None and value != {}}

    return plain(scenario)


def _whole(value: Any) -> Any:
    """2000.0 as people write it, 2000."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a document says, by the names of its leaves."""
    found: dict[str, Any] = {}
    for one in leaves():
        place: Any = document
        for name in one.path:
            place = place.get(name) if isinstance(place, Mapping) else None
        if place is not None:
            found[one.name] = place
    return found
