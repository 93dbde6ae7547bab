"""What to type in place of an option that a verb does not have, or of a value that it cannot read.

Names come from the command lines of other tools, as their help spells them: vllm serve and vllm bench, SGLang's launch_server and
bench_serving, GenAI-Perf and AIPerf, GuideLLM, trtllm-serve; and from what people try.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from cyclopts.exceptions import CoercionError, MissingArgumentError, RepeatArgumentError, UnknownOptionError

from tonnage.scope import refused

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

ELSEWHERE: dict[tuple[str, ...], str] = {
    (
        "--isl 2000",
    ): "input-len random-input-len sonnet-input-len input-length input-tokens prompt-len prompt-length prompt-tokens isl-mean "
    "synthetic-input-tokens-mean prompt-input-tokens-mean input-sequence-length max-input-len",
    (
        "--osl 200",
    ): "output-len random-output-len sonnet-output-len sharegpt-output-len output-length output-tokens output-tokens-mean osl-mean "
    "prompt-output-tokens-mean output-sequence-length max-tokens max-output-tokens max-new-tokens",
    ("--isl 2000+-500",): "isl-stddev isl-std synthetic-input-tokens-stddev input-tokens-stddev prompt-tokens-stdev random-range-ratio",
    ("--osl 200+-50",): "osl-stddev osl-std output-tokens-stddev output-tokens-stdev",
    ("--shared-prefix 1000",): "prefix-len random-prefix-len prefix-prompt-length shared-system-prompt-length gsp-system-prompt-len",
    ("--turns 5", "--conversation-turns 5"): "num-turns conversation-turns conversation-turn-mean multi-turn session-turns-mean",
    ("--think-time 30s", "--conversation-turn-delay 30s"): "conversation-turn-delay conversation-turn-delay-mean session-turn-delay-mean",
    ("--peak-rps 20", "--request-rate 20"): "rps qps rate request-rate requests-per-second peak-qps target-qps throughput",
    (
        "--peak-rps 20 (size takes a rate; tonnage simulate --concurrency 100 says which rate so many clients make)",
        "--concurrency 100",
    ): "concurrency max-concurrency num-concurrent concurrent-users clients num-workers",
    ("--users 1 --requests-per-user-day 1000000",): "requests-per-day daily-requests requests-day",
    ("--requests 1000000 --within 8h", "--request-count 1000", "--requests 1000"): "num-prompts num-requests request-count max-requests n",
    ("--working-hours 8",): "hours business-hours",
    ('--ttft "p95<=500ms"', "--slo ttft:p95<=500ms"): "goodput slo slos sla max-ttft ttft-slo ttft-p95 max-latency latency",
    ('--itl "p99<=100ms"', "--slo itl:p99<=100ms"): "tbt time-between-tokens inter-token-latency itl-p99",
    ("--tp 4",): "tensor-parallel-size tensor-parallel tp-size tensor-parallelism",
    ("--pp 2",): "pipeline-parallel-size pipeline-parallel pp-size",
    ("--dp 8",): "data-parallel-size dp-size enable-dp-attention",
    ("--ep 8",): "expert-parallel-size ep-size enable-expert-parallel moe-expert-parallel-size",
    ("--precision fp8",): "dtype quantization quant weight-format format-of-weights",
    ("--precision fp8+kv-fp8",): "kv-cache-dtype kv-dtype",
    ("--max-batch-size 256",): "max-num-seqs max-running-requests batch-size max-batch",
    ("--max-num-tokens 8192",): "max-num-batched-tokens chunked-prefill-size max-prefill-tokens",
    ("--chunked-prefill",): "enable-chunked-prefill enable-chunked-context",
    ("--prefix-caching",): "enable-prefix-caching enable-block-reuse",
    ("--no-prefix-caching",): "disable-radix-cache no-enable-prefix-caching",
    ('--speculation "eagle k=3 acceptance=0.7"',): "speculative-config speculative-model speculative-algorithm num-speculative-tokens",
    ('--lora "rank=16 adapters=8"',): "enable-lora max-loras max-lora-rank lora-modules lora-paths adapters",
    ("--engine vllm",): "backend framework server inference-server",
    ("--arrivals gamma --cv 2",): "burstiness arrival-smoothness request-rate-mode",
    ('--budget "400k USD"',): "max-usd max-cost max-budget max-price cost-limit usd",
    ("--objective cost",): "optimize optimise optimize-for minimize minimise goal",
    ("--gpu h100,l40s",): "gpus gpu-type accelerator accelerators hardware device",
    ("--system dgx-h100",): "node nodes instance-type machine-type server-type",
    ("--have 3xdgx-h100",): "existing existing-systems inventory own",
    ("--availability 99.9% --mtbf 8000h --repair-time 24h",): "uptime sla-availability",
    ("--spare 1",): "redundancy n+1 spares",
    ("--json",): "format output-format",
    ("--quiet",): "q silent",
    ("--trace FILE",): "input-file dataset-path dataset-name trace-file replay",
    ("--isl and --osl; the context is the model's and is not set",): "max-model-len context-length max-context max-seq-len",
}
"""What to type here, the first that the verb has, by the names elsewhere."""

KINDS = {int: "a whole number", float: "a number"}


def explained(error: CycloptsError, app: App, tokens: Sequence[str]) -> str:
    """What is wrong with a command line and what to type, on one line."""
    message = " ".join(str(error).split())
    if isinstance(error, UnknownOptionError):
        typed = (error.token.keyword or error.token.value).partition("=")[0]
        why = refused("option", typed)
        return f"{typed} is not covered: {why}" if why else _unknown(typed, app, error.command_chain or ()) or message
    if isinstance(error, CoercionError) and error.token is not None and error.target_type in KINDS and error.argument is not None:
        said = " ".join((error.argument.parameter.help or "").split())
        return f"{error.argument.name}: '{error.token.value}' is not {KINDS[error.target_type]}; {said}"
    if isinstance(error, RepeatArgumentError) and error.token.keyword:
        return f"{error.token.keyword}: is given twice; give it once, several values with commas between"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        following = dict(pairwise(tokens)).get(error.argument.name, "")
        if following.startswith("-") and following[1:2].isdigit():
            return f"{error.argument.name}: '{following}' begins like an option; write {error.argument.name}={following}"
    return message


def _unknown(typed: str, app: App, verb: Sequence[str]) -> str:
    """What to type in place of an option that a verb does not have; "" where nothing is known of it."""
    if not verb:
        return ""
    known, name = set(_options(app, verb[0])), typed.lstrip("-").replace("_", "-").lower()
    if f"--{name}" in known:
        return f"{typed}: unknown option; type --{name}"
    for ours, theirs in ELSEWHERE.items():
        if name in theirs.split():
            example = next((one for one in ours if one.split()[0] in known), "")
            return f"{typed}: unknown option; type {example}" if example else ""
    return ""


def _options(app: App, verb: str) -> Iterator[str]:
    """The options of a verb, as they are typed."""
    for argument in app[verb].assemble_argument_collection():
        yield from argument.names
