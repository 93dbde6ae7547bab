"""Arguments of a measurement and of the exact server: each declared once, for flags, Python and
their help.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from tonnage.results.outcomes import ERROR_RATE
from tonnage.spec.typed_values import about

# Of English text, roughly: what stands for a token of a prompt without a tokenizer
CHARACTERS_PER_TOKEN = 4.0

Counts = int | str | Iterable[int | str]
Length = str | float | None
Fault = Literal["none", "429", "500", "cut", "error", "hang", "close"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerArguments:
    """The server that is measured, and how to reach it."""

    url: str = about("The server, such as 127.0.0.1:8000.", default=MISSING, aliases=("u",))
    model: str = about(
        "The name that the server knows the model by.", default=MISSING, aliases=("m",)
    )
    endpoint_type: str = about(
        "chat, completions, responses, embeddings, generate, or infer for any model (default:"
        " chat).",
        default="chat",
    )
    streaming: bool = about("Stream replies (default: on).", default=True)
    pin_output: bool = about(
        "Force the exact output length with min_tokens and ignore_eos; turn off for hosted APIs,"
        " which reject them (default: on).",
        default=True,
    )
    extra_inputs: Sequence[str] = about(
        "A further field of every request, such as temperature:0; may be repeated.", default=()
    )
    omit_inputs: Sequence[str] = about(
        "A field to leave out of every request where the server refuses it, such as stream_options;"
        " may be repeated.",
        default=(),
    )
    header: Sequence[str] = about(
        'A further header of every request, such as "X-Team: a"; may be repeated.', default=()
    )
    api_key_env: str = about(
        "The environment variable that holds the API key (default: OPENAI_API_KEY).",
        default="OPENAI_API_KEY",
    )
    ca_file: Path | None = about("Certificates to trust, in PEM, instead of the system's.")
    request_timeout: str = about("Time limit of one request (default: 10min).", default="10min")
    reuse_connections: bool = about(
        "Keep connections open for further requests (default: on).", default=True
    )
    metrics_url: Sequence[str] = about(
        "A page of Prometheus metrics to read once a second; may be repeated (default: the server's"
        " own /metrics, if it has one).",
        default=(),
    )
    gpu_metrics: bool = about(
        "Read the GPUs of this machine once a second, too, where the server runs on it; needs"
        " nvidia-ml-py or amdsmi (default: off).",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadArguments(ServerArguments):
    """The requests that are sent, as well."""

    isl: Length = about(
        "Prompt length in tokens: 2000, 2000+-500, lognormal:2000,500 or uniform:1600-2000.",
        aliases=("synthetic_input_tokens_mean", "isl_mean"),
    )
    osl: Length = about(
        "Output length in tokens, in the same forms.", aliases=("output_tokens_mean", "osl_mean")
    )
    isl_stddev: float | None = about(
        "Standard deviation of prompt lengths around their mean, 0 for equal ones.",
        aliases=("synthetic_input_tokens_stddev",),
    )
    osl_stddev: float | None = about(
        "Standard deviation of output lengths around their mean.",
        aliases=("output_tokens_stddev",),
    )
    items: Counts | None = about(
        "With infer: items of a request, such as images; several values with commas make a sweep"
        " (default: 1)."
    )
    tensor: Sequence[str] = about(
        "With infer: an input with its type and the dimensions of one item, such as"
        ' "pixels=FP32[3,224,224]"; may be repeated (default: what the server\'s metadata says).',
        default=(),
    )
    binary_tensors: bool = about(
        "With infer: send values as bytes behind the JSON (default: as JSON).", default=False
    )
    concurrency: Counts | None = about(
        "Closed loop: clients with one request in flight each; several values with commas make a"
        " sweep. With a rate: the most requests in flight."
    )
    request_rate: str | float | Iterable[float] | None = about(
        "Open loop: requests per second; several values with commas make a sweep."
    )
    arrival_pattern: Literal["poisson", "constant", "gamma", "burst"] = about(
        "Arrivals of the open loop (default: poisson).", default="poisson"
    )
    cv: float = about(
        "Coefficient of variation of gamma arrivals: standard deviation over mean of the gaps.",
        default=1.0,
    )
    burst_size: int | None = about(
        "Requests that come at the same moment, for arrivals in bursts (default: 8)."
    )
    trace: str | None = about("File of recorded requests, which are sent as they came.")
    trace_unit: str | None = about(
        "Unit of the trace's times (s, ms, us or ns), where they are numbers and do not make it"
        " clear."
    )
    conversation_num: int | None = about(
        "Conversations per load; a turn carries what was said before, with the real answers, and"
        " the prompt length counts its new part."
    )
    conversation_turns: Length = about("Turns of each conversation: 4, uniform:2-6 or the like.")
    conversation_turn_delay: str | None = about(
        "Pause between an answer and the next turn: 2s or exponential:2s (default: none)."
    )
    conversation_file: Path | None = about(
        "Conversations to hold as they stand: objects with turns or messages (.jsonl), or"
        " ShareGPT's .json."
    )
    sessions: str | None = about(
        "Recorded sessions to send again and again: WEKA's, Dynamo's or AIPerf's files. Prompts"
        " share what the recorded ones did, and think times are kept."
    )
    request_count: int | None = about("Requests per load.", aliases=("num_prompts",))
    benchmark_duration: str | None = about(
        "Send for this long instead of a number of requests, such as 60s."
    )
    benchmark_grace_period: str = about(
        "Wait this long for the requests in flight after that; the rest counts as unfinished"
        " (default: 30s).",
        default="30s",
    )
    warmup_request_count: int = about("Requests before each load that are not recorded.", default=0)
    ramp: str | None = about(
        "Let the clients of a closed loop begin one after another over this time, such as 10s."
    )
    tokenizer: Path | None = about("A local tokenizer.json, with which prompts have exact lengths.")
    characters_per_token: float = about(
        "Characters that stand for a token of a prompt where there is no tokenizer (default: 4).",
        default=CHARACTERS_PER_TOKEN,
    )
    shared_prefix: int = about("Tokens at the beginning that all prompts share.", default=0)
    prompt_file: Path | None = about(
        "Prompts to send as they stand, in order: one a line (.txt), objects with a text (.jsonl),"
        " or ShareGPT's .json."
    )
    workers: int = about("Client processes, with one clock and one record (default: 1).", default=1)
    seed: int = about(
        "Seed of every random draw (default: 0).", default=0, aliases=("random_seed",)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictArguments(LoadArguments):
    """When a run can be believed, as well."""

    percentiles: Sequence[int] = about(
        "Percentiles that need enough samples, at a confidence of 0.99: 50, 90, 95 or 99.",
        default=(),
        several=True,
    )
    slo: Sequence[str] = about(
        'A limit that goodput is counted against, such as "ttft p95<=500ms"; may be repeated.',
        default=(),
    )
    attain: Sequence[str] = about(
        'Share of requests that must meet several limits at once, such as "95%: ttft<=500ms &'
        ' tpot<=50ms"; may be repeated.',
        default=(),
    )
    tier: Sequence[str] = about(
        'Tier of output speed and TTFT whose users are counted in a closed loop, such as "30'
        ' tokens/s, 15s"; may be repeated (default: of recorded sessions those of AA-AgentPerf).',
        default=(),
    )
    max_error_rate: float = about(
        "Share of requests that may fail in a valid run (default: 0.01).", default=ERROR_RATE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchArguments(VerdictArguments):
    """All arguments of a measurement, as users write them."""

    tokens: bool = about(
        "Keep the moments of single tokens in tokens.parquet (default: on).", default=True
    )
    gpu: str | None = about("GPU that served the run, for its cost, such as h100.")
    gpus: int | None = about(
        "How many of them served it (default: 1, or all of the plan's instances)."
    )
    plan: Path | None = about(
        "A plan that tonnage size wrote, whose GPUs served the run and whose prices count."
    )
    prices: str | None = about("YAML file with prices in place of the catalog's.")
    price: Sequence[str] = about(
        "One price in place of the catalog's, such as cloud.h100-sxm-80gb=2.5; may be repeated.",
        default=(),
    )
    export: Sequence[Literal["genai-perf", "aiperf", "vllm"]] = about(
        "Write the run folder in another tool's files, too: genai-perf, aiperf or vllm; may be"
        " repeated.",
        default=(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactArguments:
    """The behaviour of the server with a known schedule that the client is tested against."""

    port: int = about("Port that it listens on, on 127.0.0.1 (default: any free port).", default=0)
    ttft: str = about("Its time to the first token (default: 50ms).", default="50ms")
    itl: str = about("Its time between two tokens (default: 10ms).", default="10ms")
    tokens_per_event: int = about("Tokens in one of its events (default: 1).", default=1)
    slots: int = about(
        "Most requests that it serves at once, while the others wait (default: no limit).",
        default=0,
    )
    freeze_at: str = about(
        "Time from the first request until it freezes, such as 10s.", default="0s"
    )
    freeze_for: str = about("Length of the freeze.", default="0s")
    fault: Fault = about("Fault of some of the requests.", default="none")
    fault_every: int = about("Number of requests of which the last meets the fault.", default=0)
