"""How a model is deployed: parallelism, an engine's knobs, and the latency limits asked of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from tonnage.errors import InputError, option
from tonnage.spec.calibration import Calibration
from tonnage.spec.hardware import Gpu
from tonnage.spec.images import Images
from tonnage.spec.model import Model
from tonnage.spec.precision import Precision
from tonnage.spec.step_times import StepSource
from tonnage.units import format_duration, parse_duration

# LoRA adapters that requests use next to the model's weights.


On = Literal["all", "attention"]

ADAPTERS_EXAMPLE = '"rank=16 adapters=8", with on=attention where only attention is changed'
MOST_RANK, MOST_ADAPTERS = 1024, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Adapters in an engine's slots; every request uses one of them, all equally often."""

    rank: int  # the highest rank, for which slots are made (vLLM ``max_lora_rank``)
    count: int  # slots (vLLM ``max_loras``); loading others into them is not counted
    # the matrices that they change: those of attention and MLPs, or of attention alone
    on: On = "all"

    def __str__(self) -> str:
        """Write the adapters as ``parse_adapters`` reads them."""
        return f"rank={self.rank} adapters={self.count}" + (
            "" if self.on == "all" else f" on={self.on}"
        )


def parse_adapters(text: str | None) -> Adapters | None:
    """Read "rank=16 adapters=8 on=attention"; "none" and None are none. Raises InputError: not that
    form, or numbers out of range.
    """
    if text is None or text.strip().lower() == "none":
        return None
    settings = dict(part.partition("=")[::2] for part in text.lower().split())
    rank, count, on = (
        settings.pop(name, default)
        for name, default in (("rank", "0"), ("adapters", "1"), ("on", "all"))
    )
    chosen = next((choice for choice in get_args(On) if choice == on), None)
    within = all(
        part.isascii() and part.isdigit() and 1 <= int(part) <= limit
        for part, limit in ((rank, MOST_RANK), (count, MOST_ADAPTERS))
    )
    if settings or chosen is None or not within:
        raise InputError(
            f"{option('lora')}: '{text}' is not a set of adapters; write {ADAPTERS_EXAMPLE}; ranks"
            f" up to {MOST_RANK:,}, {MOST_ADAPTERS:,} adapters at most"
        )
    return Adapters(rank=int(rank), count=int(count), on=chosen)


# Speculative decoding: which drafter proposes tokens, how many, and how often they are accepted.


Method = Literal["draft", "medusa", "redrafter", "eagle", "mtp", "ngram"]

METHODS: tuple[Method, ...] = get_args(Method)

MOST_TOKENS = 16  # Guesses per step beyond which no engine goes

EXAMPLE = '"eagle k=3 acceptance=0.7" or "draft=llama-3.2-1b k=5 acceptance=0.8"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding with a chain of guesses."""

    # who guesses. "draft": a smaller model. "eagle": one dense layer of the model's width behind a
    # projection of twice that width, with the model's own head (EAGLE, arXiv 2401.15077). "mtp":
    # one layer of the model itself, in the same way (DeepSeek-V3, arXiv 2412.19437, section 2.2).
    # "medusa": per guess a residual block and an output head, all in one pass (arXiv 2401.10774).
    # "redrafter": a recurrent cell of two matrices on twice the width and a head, a pass per guess
    # (arXiv 2403.09919; sizes recalled). "ngram": looked up in the prompt, for nothing.
    method: Method
    tokens: int  # guesses per sequence and step (k)
    # probability that a guess is right, where those before it were: a number of your own traffic
    acceptance: float
    draft: Model | None = None  # the smaller model; None for the other methods

    @property
    def passes(self) -> int:
        """Passes of the drafter in a step, one after another."""
        return {"medusa": 1, "ngram": 0}.get(self.method, self.tokens)

    @property
    def label(self) -> str:
        """A short form, such as "eagle k=3"."""
        return f"{self.method} k={self.tokens}"

    def __str__(self) -> str:
        """Write the method as ``parse_speculation`` reads it."""
        name = self.method if self.draft is None else f"draft={self.draft.name}"
        return f"{name} k={self.tokens} acceptance={self.acceptance:g}"

    def layers_of(self, model: Model) -> Model | None:
        """The drafter's own layers as a model; None where it has none. Its head is ``model``'s, but
        for a draft model.
        """
        if self.method == "draft":
            return self.draft
        if self.method == "mtp":
            return replace(model.part(1), dense_layers=0, mlp_layers=0)
        if self.method == "eagle":
            layer, none = (
                model.part(1),
                ("shared_experts", "shared_ffn", "expert_latent", "dense_layers", "dense_ffn"),
            )
            without: dict[str, Any] = dict.fromkeys(none, 0)
            return replace(layer, ffn=layer.inner, experts=1, experts_per_token=1, **without)
        return None

    def projection_parameters(self, model: Model) -> int:
        """Weights that join hidden state and embedding before the drafter's layer."""
        return 2 * model.hidden**2 if self.method in ("eagle", "mtp") else 0

    def head_parameters(self, model: Model) -> int:
        """Weights of heads that only the drafter has, in 16 bits: all are read in a pass."""
        if self.method == "medusa":
            return self.tokens * (model.hidden**2 + model.head_parameters)
        return 4 * model.hidden**2 + model.head_parameters if self.method == "redrafter" else 0


def parse_speculation(text: str | None, where: str = option("speculation")) -> Speculation | None:
    """Read "eagle k=3 acceptance=0.7" or "draft=llama-3.2-1b k=5 acceptance=0.8"; "none" and None
    are none.

    Raises InputError: no such method, or k or acceptance missing or out of range; UnknownName: no
    such draft model.
    """
    from tonnage.spec.catalog import find_model

    if text is None or text.strip().lower() == "none":
        return None
    first, *rest = text.split() or [""]
    method, _, drafter = first.partition("=")
    known_method = next((m for m in METHODS if m == method.lower()), None)
    settings = dict(part.partition("=")[::2] for part in rest)
    if (
        known_method is None
        or (known_method == "draft") != bool(drafter)
        or set(settings) != {"k", "acceptance"}
    ):
        raise InputError(
            f"{where}: '{text}' is not a speculation; write {EXAMPLE}, with one of"
            f" {', '.join(METHODS)}"
        )
    tokens, acceptance = settings["k"], _number(settings["acceptance"])
    if not (tokens.isascii() and tokens.isdigit() and 1 <= int(tokens) <= MOST_TOKENS):
        raise InputError(
            f"{where}: k={tokens} is not a number of guesses; write 1 to {MOST_TOKENS}"
        )
    if not 0 <= acceptance <= 1:
        raise InputError(
            f"{where}: acceptance={settings['acceptance']} is not a probability; write a number"
            " from 0 to 1, such as 0.7"
        )
    return Speculation(
        method=known_method,
        tokens=int(tokens),
        acceptance=acceptance,
        draft=find_model(drafter) if drafter else None,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


Scheduler = Literal["static", "tensorrt-llm", "vllm", "sglang", "one-prefill", "max-utilization"]
QueueOrder = Literal["fcfs", "shortest-first", "priority", "deadline"]
KvRule = Literal["free_gpu_memory_fraction", "gpu_memory_utilization", "mem_fraction_static"]
LimitMetric = Literal[
    "ttft", "itl", "tpot", "e2e", "attain", "first_ttft", "further_ttft", "slowdown"
]
Statistic = Literal["mean", "p50", "p90", "p95", "p99", "share"]

METRICS: tuple[LimitMetric, ...] = ("ttft", "itl", "tpot", "e2e")
LIMITED: dict[LimitMetric, str] = {
    "first_ttft": "first TTFT",
    "further_ttft": "further TTFT",
    "slowdown": "slowdown",
}
"""Metrics of sessions, as texts name them: TTFT of first and of further requests, and how many
times as long answers take as alone."""
STATISTICS: tuple[Statistic, ...] = ("mean", "p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """The split of one instance over GPUs.

    Attention runs in ``dp`` ranks of ``tp`` GPUs; each rank has its own requests, scheduler and KV
    cache, and all weights but those of routed experts. The routed experts are spread over all ``tp
    · dp`` GPUs together: in ``ep`` groups, each of whole experts, and within a group every expert
    is split over the group's GPUs.
    """

    tp: int = 1  # tensor-parallel degree, of one attention rank
    pp: int = 1  # pipeline-parallel degree
    dp: int = 1  # attention ranks of an instance (attention data parallelism)
    ep: int = 1  # groups of experts (expert parallelism); divides ``tp · dp``

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tp * self.pp * self.dp

    @property
    def stage_gpus(self) -> int:
        """GPUs that one layer's experts are spread over."""
        return self.tp * self.dp

    @property
    def moe_tp(self) -> int:
        """GPUs that one expert is split over."""
        return self.stage_gpus // self.ep

    @property
    def further(self) -> dict[str, int]:
        """The degrees above 1 of what only a mixture of experts has, by name."""
        return {name: degree for name, degree in (("dp", self.dp), ("ep", self.ep)) if degree > 1}

    @property
    def label(self) -> str:
        """The degrees without pipeline stages, such as "tp4" or "tp1 dp8 ep8"."""
        return " ".join(
            f"{name}{degree}" for name, degree in {"tp": self.tp, **self.further}.items()
        )

    @property
    def degrees(self) -> dict[str, int]:
        """All degrees by name: those of 1 are left out, TP apart."""
        return {"tp": self.tp, **({"pp": self.pp} if self.pp > 1 else {}), **self.further}

    def __str__(self) -> str:
        """Such as "TP 4" or "TP 1 DP 8 EP 8"."""
        return " ".join(f"{name.upper()} {degree}" for name, degree in self.degrees.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKnobs:
    """The settings of an engine, by the names that the field uses."""

    scheduler: Scheduler  # whose rules admit and batch requests
    # sequences that run at once (TensorRT-LLM ``max_batch_size``, vLLM ``max_num_seqs``, SGLang
    # ``max_running_requests``)
    max_batch_size: int
    # token budget of one step (TensorRT-LLM ``max_num_tokens``, vLLM ``max_num_batched_tokens``);
    # of a step of prompts in SGLang (``chunked_prefill_size``, without chunks
    # ``max_prefill_tokens``)
    max_num_tokens: int
    chunked_prefill: bool  # whether a prompt may be split over several steps
    tokens_per_block: int  # tokens per KV-cache block
    kv_rule: KvRule  # of which memory ``kv_fraction`` is a share
    # share of the GPU memory that is free after loading (TensorRT-LLM
    # ``free_gpu_memory_fraction``), or of all of it, for everything (vLLM
    # ``gpu_memory_utilization``) or for weights and KV cache alone (SGLang ``mem_fraction_static``)
    kv_fraction: float
    # output tokens of a sequence that go to its client in one message (vLLM, SGLang and
    # TensorRT-LLM ``stream_interval``); the front end's work shrinks by it, the times of single
    # tokens are not rounded to messages
    stream_interval: int = 1
    # steps of decodes alone between two looks for new requests (SGLang
    # ``scheduler_recv_interval``); after a step with prompts, and when idle, the engine looks at
    # once
    receive_interval: int = 1
    # a step is put together while the one before it runs, so that it holds what had come when that
    # one began (TensorRT-LLM without ``disable_overlap_scheduler``, vLLM ``async_scheduling``,
    # SGLang without ``disable_overlap_schedule``)
    overlap_schedule: bool = False
    # tokens up to which a step with prompts is captured as CUDA graphs (vLLM
    # ``max_cudagraph_capture_size``); 0 for none
    graph_tokens: int = 0
    # whether CUDA graphs end before the attention of each layer, which is then launched by itself
    # (vLLM ``cudagraph_mode`` PIECEWISE)
    piecewise_graphs: bool = False
    # steps for which prompts wait, and others decode, to be batched with others (TensorRT-LLM
    # ``batch_wait_timeout_iters``), unless a step with them has ``batch_wait_ratio`` of the token
    # budget
    batch_wait_steps: int = 0
    batch_wait_ratio: float = 0.0  # TensorRT-LLM ``batch_wait_max_tokens_ratio``
    # steps for which prompts wait until all attention ranks have some, while all ranks decode
    # (TensorRT-LLM ``attention_dp_config.timeout_iters`` with ``enable_balance``); 0 where they do
    # not wait
    rank_wait_steps: int = 0
    # whether the experts of a step that is captured as a CUDA graph (decodes alone, or no more than
    # ``graph_tokens`` with prompts) compute as many tokens for every attention rank as the fullest
    # one has (vLLM ``vllm/v1/worker/dp_utils.py``, SGLang ``DpPaddingMode.MAX_LEN``, TensorRT-LLM
    # ``cuda_graph_runner.py``)
    pads_ranks: bool = False
    # processes of an instance that take requests and stream tokens (vLLM ``api_server_count``,
    # SGLang ``tokenizer_worker_num``, TensorRT-LLM ``num_postprocess_workers``); each has an equal
    # share of the requests
    front_ends: int = 1
    # which waiting request goes first: the one that came first, or the one with the shortest prompt
    # (SGLang ``--schedule-policy shortest-prefill-first``); pre-empted requests keep their place in
    # front. With "priority" the lowest class (vLLM ``--scheduling-policy priority``), with
    # "deadline" the one whose first token should come soonest; these two hold for pre-empted
    # requests as well.
    queue_order: QueueOrder = "fcfs"
    # whether a request finds the KV blocks of its prompt that earlier ones left (vLLM
    # ``enable_prefix_caching``, SGLang without ``disable_radix_cache``, TensorRT-LLM
    # ``enable_block_reuse``); static batching has none
    prefix_caching: bool = True
    # whether a request is rejected as soon as its first token cannot come by its limit any more
    shed: bool = False
    # most tokens of one prompt in a step while other requests are there (vLLM's name); 0 for no
    # limit
    long_prefill_token_threshold: int = 0

    @property
    def ranks(self) -> bool:
        """Whether requests differ by class or deadline to the engine."""
        return self.shed or self.queue_order in ("priority", "deadline")


class Windows(NamedTuple):
    """KV-cache blocks of a sequence for layers with sliding-window attention, next to those of its
    context in the other layers.
    """

    blocks: int = 0  # of a sequence of ``tokens`` or more; 0 without such layers
    tokens: int = 0  # the window; a shorter sequence has its share of the blocks, rounded up

    def of(self, tokens: int) -> int:
        """Blocks of a sequence that grows to ``tokens`` tokens."""
        return self.blocks if tokens >= self.tokens else -(-self.blocks * tokens // self.tokens)


NO_WINDOWS = Windows()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One instance of a model on GPUs under an engine."""

    model: Model
    gpu: Gpu
    precision: Precision
    parallelism: Parallelism
    engine: str  # name of the engine preset, such as "tensorrt-llm" or "nim-2024"
    knobs: EngineKnobs
    # factors on the fitted terms from the user's measurements; None for the terms as shipped
    calibration: Calibration | None = None
    speculation: Speculation | None = None  # speculative decoding; None without
    step_source: StepSource | None = None  # whose step times price it; None for the fitted terms
    adapters: Adapters | None = None  # LoRA adapters that requests use; None without
    images: Images | None = None  # of every prompt; None without
    # the version that was requested, newer than any preset, where ``engine`` answers for it
    newer_engine: str = ""

    @property
    def named(self) -> dict[str, str | int]:
        """Model, GPU, format and degrees by name, as JSON says them."""
        read = {"model_read": self.model.reading} if self.model.reading else {}
        read |= {"newer_engine": self.newer_engine} if self.newer_engine else {}
        return {
            "model": self.model.name,
            **read,
            "gpu": self.gpu.name,
            "precision": self.precision.name,
            **self.parallelism.degrees,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Instances of one deployment in a fleet of unlike ones."""

    deployment: Deployment
    instances: int
    weight: float = 1.0  # relative capacity of each, to the routers that heed it

    def __str__(self) -> str:
        """Such as "2 × l40s FP8 TP 1 vllm-0.32, weight 3"."""
        d = self.deployment
        return (
            f"{self.instances} × {d.gpu.name} {d.precision.name.upper()} {d.parallelism}"
            f" {d.engine}, weight {self.weight:g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One latency limit: a statistic of a metric that must not exceed a number of seconds.

    Joint attainment is the metric "attain" with the statistic "share": the share of requests that
    meet all parts at once. Its value is what the slowest of that share takes of its tightest part,
    as a ratio, and ``seconds`` the ratio that is allowed, 1.
    """

    metric: LimitMetric
    statistic: Statistic
    seconds: float
    # of the requests that must meet every part; None but for joint attainment
    share: float | None = None
    # metric and seconds of each limit that such a request meets
    parts: tuple[tuple[LimitMetric, float], ...] = ()

    @property
    def is_ratio(self) -> bool:
        """Whether ``seconds`` is no time but how many times as long something may take."""
        return self.metric == "slowdown"

    def __str__(self) -> str:
        """Such as "TTFT p95 ≤ 500 ms", or "95%: TTFT ≤ 500 ms & TPOT ≤ 50 ms"."""
        if self.is_ratio:
            return f"{LIMITED[self.metric]} {self.statistic} ≤ {self.seconds:g}×"
        if self.share is None:
            return (
                f"{LIMITED.get(self.metric, self.metric.upper())} {self.statistic} ≤"
                f" {format_duration(self.seconds)}"
            )
        return (
            f"{100 * self.share:g}%:"
            f" {' & '.join(f'{name.upper()} ≤ {format_duration(factor * self.seconds)}' for name, factor in self.parts)}"  # noqa: E501
        )


Slo = tuple[Limit, ...]

_LIMIT = re.compile(
    r"^\s*(?:(mean|avg|median|p50|p90|p95|p99)(?![\d.])\s*(?:<=|≤|<|=|:)?\s*)?(\S.*?)\s*$",
    re.IGNORECASE,
)
_SPEED = re.compile(r"^([1-9]\d*(?:\.\d+)?)\s*(?:tok(?:en)?s?\s*/\s*s|tps)$", re.IGNORECASE)
"""The pace of an answer, whose inverse is the time of a token."""
_SEVERAL = re.compile(r"[,;]\s*(?:mean|avg|median|p\d)", re.IGNORECASE)


def parse_limit(metric: LimitMetric, text: str) -> Limit:
    """Read "p95<=3s" or "mean 500ms"; a bare "3s" is the p95. A pace, "20 tokens/s", is read as the
    time of a token.

    Raises InputError: no duration with a unit, an unknown statistic, or a limit of zero.
    """
    where = option(metric)
    match = _LIMIT.match(text)
    if not match:
        raise InputError(f"{where}: '{text}' is not a limit; write for example \"p95<=500ms\"")
    name = (match.group(1) or "p95").lower()
    name = {"avg": "mean", "median": "p50"}.get(name, name)
    statistic = next(s for s in STATISTICS if s == name)
    rest = match.group(2)
    if metric == "slowdown":
        return Limit(metric=metric, statistic=statistic, seconds=_ratio(rest, text))
    if not re.match(r"^[+-]?[\d.]", rest):
        raise InputError(
            f"{where}: '{text}' is not a limit; write for example \"p95<=500ms\" with one of"
            f" {', '.join(STATISTICS)}"
        )
    if _SEVERAL.search(rest):
        raise InputError(
            f"{where}: '{text}' holds several limits; give each by itself, such as {where}"
            f' "mean<=300ms" {where} "p95<=1s"'
        )
    speed = _SPEED.match(rest) if metric in ("itl", "tpot") else None
    seconds = parse_duration(rest, where) if speed is None else 1 / float(speed[1])
    if seconds == 0:
        raise InputError(f"{where}: '{text}' can never be met; give a limit above zero")
    return Limit(metric=metric, statistic=statistic, seconds=seconds)


def _ratio(written: str, text: str) -> float:
    """Read how many times as long a session may take as alone, such as 1.2."""
    try:
        ratio = float(written.rstrip("x×"))
    except ValueError:
        ratio = 0.0
    if not 1 < ratio <= 1e6:
        raise InputError(
            f"{option('slowdown')}: '{text}' is not a limit; write a number above 1, such as"
            ' "p90<=1.2"'
        )
    return ratio


def parse_attainment(text: str) -> Limit:
    """Read "95%: ttft<=500ms & tpot<=50ms": the share of requests that must meet every limit at
    once.

    Raises InputError: no share, no limit, a metric that a single request does not have, or one that
    is named twice.
    """
    where, example = option("attain"), 'write for example "95%: ttft<=500ms & tpot<=50ms"'
    head, colon, rest = text.partition(":")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", head)
    if not (match and colon):
        raise InputError(
            f"{where}: '{text}' does not begin with a share of the requests; {example}"
        )
    share = float(match[1]) / 100
    if not 0 < share <= 1:
        raise InputError(
            f"{where}: '{head.strip()}' is not a share above 0% and up to 100%; {example}"
        )
    parts: dict[LimitMetric, float] = {}
    for part in re.split(r"\s*(?:&|\band\b|,)\s*", rest.strip()):
        limit_match = re.fullmatch(r"([a-z0-9]+)\s*(?:<=|≤|<)\s*(\S.*)", part, re.IGNORECASE)
        metric = next((m for m in METRICS if limit_match and m == limit_match[1].lower()), None)
        if limit_match is None or metric is None:
            raise InputError(f"{where}: '{part}' is not a limit on one request; {example}")
        if metric == "itl":
            raise InputError(
                f"{where}: itl is a gap and a request has many; limit tpot, the mean gap of a"
                " request, in its place"
            )
        if metric in parts:
            raise InputError(f"{where}: {metric} has two limits in '{text}'; keep one of them")
        parts[metric] = parse_limit(metric, limit_match[2]).seconds
    return Limit(
        metric="attain", statistic="share", seconds=1.0, share=share, parts=tuple(parts.items())
    )
