"""The flags of ``tonnage bench``, by what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cyclopts import Group

from tonnage.cli.flags import about, flags_of

SERVER = Group("Server", sort_key=2)
LOAD = Group("Load", sort_key=1)
VERDICT = Group("Verdict", sort_key=3)
TEST = Group("Self-test (tonnage bench selftest)", sort_key=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What is measured, and how it is spoken to."""

    url: str | None = about("The server, such as 127.0.0.1:8000.")
    model: str | None = about("The name that the server knows the model by.")
    endpoint_type: str | None = about("chat, completions, responses, embeddings, generate, or infer for any model (default: chat).")
    streaming: bool | None = about("Whether replies are streamed (default: on).")
    pin_output: bool | None = about(
        "Force the exact output length with min_tokens and ignore_eos; turn off for hosted APIs, which reject them (default: on)."
    )
    extra_inputs: list[str] | None = about("A further field of every request, such as temperature:0; may be repeated.", negative=False)
    header: list[str] | None = about('A further header of every request, such as "X-Team: a"; may be repeated.', negative=False)
    api_key_env: str | None = about("The environment variable that holds the API key (default: OPENAI_API_KEY).")
    ca_file: Path | None = about("Certificates to trust, in PEM, instead of the system's.")
    request_timeout: str | None = about("Time limit of one request (default: 10min).")
    reuse_connections: bool | None = about("Keep connections open for further requests (default: on).")
    metrics_url: list[str] | None = about(
        "A page of Prometheus metrics to read once a second; may be repeated (default: the server's own /metrics, if it has one).",
        negative=False,
    )
    gpu_metrics: bool | None = about(
        "Read the GPUs of this machine once a second, too, where the client runs beside the server; needs nvidia-ml-py (default: off)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests that are sent."""

    isl: str | None = about("Prompt length in tokens: 2000, 2000+-500, lognormal:2000,500 or uniform:1600-2000.")
    osl: str | None = about("Output length in tokens, in the same forms.")
    items: str | None = about("With infer: items of a request, such as images; several values with commas make a sweep (default: 1).")
    tensor: list[str] | None = about(
        'With infer: an input with its type and the dimensions of one item, such as "pixels=FP32[3,224,224]"; may be repeated (default: '
        "what the server's metadata says).",
        negative=False,
    )
    binary_tensors: bool | None = about("With infer: send values as bytes behind the JSON (default: as JSON).")
    concurrency: str | None = about("Closed loop: clients with one request in flight each; several values with commas make a sweep.")
    request_rate: str | None = about("Open loop: requests per second; several values with commas make a sweep.")
    arrival_pattern: Literal["poisson", "constant", "gamma", "burst"] | None = about("Arrivals of the open loop (default: poisson).")
    cv: float | None = about("Coefficient of variation of gamma arrivals: standard deviation over mean of the gaps.")
    burst_size: int | None = about("Requests that come at the same moment, for arrivals in bursts (default: 8).")
    trace: str | None = about("File of recorded requests, which are sent as they came.")
    conversation_num: int | None = about(
        "Conversations per load; a turn carries what was said before, with the real answers, and --isl counts its new part."
    )
    conversation_turns: str | None = about("Turns of each conversation: 4, uniform:2-6 or the like.")
    conversation_turn_delay: str | None = about("Pause between an answer and the next turn: 2s or exponential:2s (default: none).")
    conversation_file: Path | None = about(
        "Conversations to hold as they stand: objects with turns or messages (.jsonl), or ShareGPT's .json."
    )
    request_count: int | None = about("Requests per load.")
    benchmark_duration: str | None = about("Send for this long instead of a number of requests, such as 60s.")
    benchmark_grace_period: str | None = about(
        "Wait this long for the requests in flight after that; the rest counts as unfinished (default: 30s)."
    )
    warmup_request_count: int | None = about("Requests before each load that are not recorded.")
    ramp: str | None = about("Let the clients of a closed loop begin one after another over this time, such as 10s.")
    tokenizer: Path | None = about("A local tokenizer.json, with which prompts have exact lengths.")
    characters_per_token: float | None = about("Characters that stand for a token of a prompt where there is no tokenizer (default: 4).")
    shared_prefix: int | None = about("Tokens at the beginning that all prompts share.")
    prompt_file: Path | None = about(
        "Prompts to send as they stand, in order: one a line (.txt), objects with a text (.jsonl), or ShareGPT's .json."
    )
    workers: int | None = about("Client processes, with one clock and one record (default: 1).")
    find_max: bool | None = about("Search the highest load inside the --slo, beginning at the one given; at most 12 runs.", negative=False)
    seed: int | None = about("Seed of every random draw (default: 0).")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """When a run can be believed."""

    percentiles: list[int] | None = about(
        "Percentiles that need enough samples, at a confidence of 0.99: 50, 90, 95 or 99.", negative=False, several=True
    )
    slo: list[str] | None = about('A limit that goodput is counted against, such as "ttft p95<=500ms"; may be repeated.', negative=False)
    max_error_rate: float | None = about("Share of requests that may fail in a valid run (default: 0.01).")
    selftest: bool | None = about("Measure the client against the exact server first, for some seconds (default: on).")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What is kept and printed."""

    tokens: bool | None = about("Keep the moments of single tokens in tokens.parquet (default: on).")
    export: list[Literal["genai-perf", "aiperf", "vllm"]] | None = about(
        "Write the run folder in another tool's files, too: genai-perf, aiperf or vllm; may be repeated.", negative=False
    )
    artifact_dir: Path | None = about(
        "Write a run folder with requests, gaps, tokens, summary, run, scenario and provenance; a sweep writes one per load."
    )
    report: Path | None = about("Write a page that shows the run to this file (HTML): figures, percentiles, lengths, verdict.")
    json: bool | None = about('Print one JSON object; a sweep prints {"points": […]}.', negative=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactServer:
    """The server with a known schedule, which the client is tested against."""

    port: int | None = about("Port that it listens on, on 127.0.0.1 (default: any free port).")
    ttft: str | None = about("Its time to the first token (default: 50ms).")
    itl: str | None = about("Its time between two tokens (default: 10ms).")
    tokens_per_event: int | None = about("How many tokens one of its events carries (default: 1).")
    slots: int | None = about("How many requests it serves at once, while the others wait (default: no limit).")
    freeze_at: str | None = about("How long after the first request it freezes, such as 10s.")
    freeze_for: str | None = about("How long it does nothing then.")
    fault: Literal["none", "429", "500", "cut", "error", "hang", "close"] | None = about("What happens to every --fault-every-th request.")
    fault_every: int | None = about("How often that happens.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """How the client is tested."""

    serve: bool | None = about("Serve the exact server until Ctrl-C instead of testing.", negative=False)
    streams: str | None = about("Requests in flight of the self-test; several values with commas (default: 1,64,256).")


FLAGS = (
    *flags_of(Server, SERVER),
    *flags_of(Load, LOAD),
    *flags_of(Verdict, VERDICT),
    *flags_of(Output),
    *flags_of(ExactServer, TEST),
    *flags_of(SelfTest, TEST),
)
