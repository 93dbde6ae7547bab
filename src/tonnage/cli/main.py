"""The command ``tonnage``: verbs, errors and exit codes.

Verbs are imported when they are called, so that ``--help`` stays fast.

Exit codes are those of ``errors.py``; 3 says of ``size`` that no deployment meets the
limits, and of ``bench`` that the measurement cannot be believed.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from cyclopts import App, Argument, CycloptsError, Parameter
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from tonnage.errors import (
    BAD_INPUT,
    DONE,
    FAILED,
    INTERRUPTED,
    Path,
    TonnageError,
    UnknownName,
    short_of_memory,
    spelled,
    visible,
)
from tonnage.scope import refused
from tonnage.spec.scenario import by_alias
from tonnage.version import VERSION

VERBS = {
    "size": "How many systems does this traffic need inside these latency limits?",
    "ui": "A local page: size with sliders, compare, simulate, measure; and the same over HTTP.",
    "report": "A saved plan as text, as Markdown or as a page.",
    "explain": "Why a saved plan chose what it did, and what every other kind would have taken.",
    "diff": "Two saved plans: what was asked differently, and how the answers differ.",
    "simulate": (
        "What one instance does under a load, or the course's lesson on batching (--ticks)."
    ),
    "bench": "Measure a live endpoint, with a verdict on whether the measurement can be believed.",
    "serve": "The OpenAI API of a model and GPUs that are not there, timed by the simulator.",
    "gateway": "Balance requests between instances, by the routers that the simulator has.",
    "deploy": (
        "The choice of a plan as files for Docker Compose, Kubernetes, KServe, Triton and others."
    ),
    "compress": (
        "The checkpoint that a plan assumes, made by llm-compressor or Model Optimizer, and judged."
    ),
    "verify": (
        "Running engines asked whether they are what their plan counts on, under the plan's load."
    ),
    "watch": "A running deployment beside its plan: load, latencies, and how much more it carries.",
    "demo": (
        "The whole chain in a minute: simulated GPUs served, measured, one killed, and all of it"
        " predicted."
    ),
    "learn": "Ten lessons as notebooks, from the first request to a chat with a deployed plan.",
    "import": "Single requests of another tool's run, as a run folder.",
    "compare": "Two runs, measured or simulated: how their latencies and rates compare.",
    "score": "Predict every row of a measured file and print the errors.",
    "memory": "Where an instance's GPU memory goes, with the arithmetic.",
    "workload": "Recorded traffic: described, or fitted by a scenario that reproduces it.",
    "catalog": "The models, GPUs, systems and engines known by name.",
    "mcp": "The same questions as tools for an agent (Model Context Protocol).",
    "schema": "The JSON Schema of a scenario file.",
    "completion": "What a shell needs to complete verbs and flags.",
    "calibrate": "Fit the step model to a few measurements of your own.",
}


def _default(value: object) -> str | None:
    """Write a default as help shows it; None where there is none to show, or a switch is off."""
    return None if value is None or value is False else str(value)


app = App(
    name="tonnage",
    help=(
        "How many GPU systems does this LLM traffic need at this latency? Sized by simulation,"
        " checked against measurements."
    ),
    version=VERSION,
    help_format="plaintext",
    default_parameter=Parameter(show_default=_default, negative=()),
)
# The verbs of each file that has several; the others have a file each, of the verb's name
FILES = {
    "saved_plans": ("report", "explain", "diff"),
    "measurements": ("score", "calibrate", "compare", "import", "workload"),
    "deploy": ("deploy", "compress"),
    "operations": ("watch", "verify", "demo", "gateway"),
    "catalog": ("catalog", "memory", "schema", "completion"),
    "ui": ("ui", "learn", "mcp"),
}
# Names of verbs in Python that are not their own: a word of Python, and a verb with others below it
FUNCTIONS = {"import": "import_run", "deploy": "app"}
_OF_VERB = {verb: file for file, verbs in FILES.items() for verb in verbs}

for _place, (_verb, _help) in enumerate(VERBS.items()):
    app.command(
        f"tonnage.cli.{_OF_VERB.get(_verb, _verb)}:{FUNCTIONS.get(_verb, _verb)}",
        name=_verb,
        help=_help,
        sort_key=_place,
    )


# What a bare word after a verb is, where it names no file
BARE = {
    "serve": "--model",
    "memory": "--model",
    "size": "--model",
    "simulate": "--model",
    "bench": "--url",
    "gateway": "--backend",
}

OFFLINE = "--offline"  # of every verb: no model's config.json is read from a hub


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    _open_streams()
    sys.exit(run(sys.argv[1:] if tokens is None else tokens))


def run(tokens: Sequence[str]) -> int:
    """Run one command line; an error becomes one line on standard error and an exit code."""
    if OFFLINE in tokens:
        os.environ["HF_HUB_OFFLINE"] = "1"
        tokens = [token for token in tokens if token != OFFLINE]
    try:
        _check_verb(tokens)
        tokens = with_bare_word(tokens)
        code = app(
            list(tokens), exit_on_error=False, print_error=False, result_action="return_value"
        )
        sys.stdout.flush()
    except CycloptsError as error:
        return _fail(explained(error, app, tokens), BAD_INPUT)
    except TonnageError as error:
        return _fail(spelled(error.marked, flag), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was left half written", INTERRUPTED)
    except OSError as error:
        return _fail(SHORT, FAILED) if short_of_memory(error) else _output_lost(error)
    except (MemoryError, ImportError, RuntimeError) as error:
        return _fail(_missing(error), FAILED)
    return code if isinstance(code, int) else DONE


def _open_streams() -> None:
    """Streams that were closed before the start refuse what is written, so that it is noticed; no
    file takes their numbers.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_WRONLY), number)
            setattr(
                sys,
                name,
                os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False),
            )
        elif isinstance(stream, io.TextIOWrapper):
            # a path of this machine need not be UTF-8
            stream.reconfigure(errors="backslashreplace")


def _output_lost(error: OSError) -> int:
    """The exit code where standard output takes no more, as its reader has left or its disk is
    full, or where a text is too long for the name of a file; other errors are raised again.
    """
    if error.errno == errno.ENAMETOOLONG:
        name = str(error.filename)[:40]
        return _fail(f"'{name}…' is longer than the name of a file; shorten it", BAD_INPUT)
    reader_left = isinstance(error, BrokenPipeError)
    if not reader_left and (
        error.filename is not None or error.errno not in (errno.ENOSPC, errno.EBADF, errno.EIO)
    ):
        raise error
    # the interpreter would try again at its end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return (
        DONE
        if reader_left
        else _fail(
            f"standard output cannot be written ({error.strerror}); the answer is not whole", FAILED
        )
    )


SHORT = (
    "memory is short; give this process more of it, or ask for fewer requests or shorter outputs"
)


def _missing(error: MemoryError | ImportError | RuntimeError) -> str:
    """What a run lacks: memory, or a package that the image of the simulated engine leaves out.
    Other errors are raised again.
    """
    if short_of_memory(error):
        return SHORT
    if not isinstance(error, ModuleNotFoundError) or error.name not in ("numba", "pyarrow"):
        raise error
    return f"this needs {error.name}, which is not installed: pip install tonnage"


def _check_verb(tokens: Sequence[str]) -> None:
    """Refuse an unknown verb. Raises UnknownName: with the nearest verbs."""
    if tokens and not tokens[0].startswith("-") and tokens[0] not in VERBS:
        raise UnknownName("command", tokens[0], VERBS)


def with_bare_word(tokens: Sequence[str]) -> Sequence[str]:
    """``serve llama-3.1-8b`` as ``serve --model llama-3.1-8b``: the option in front of a word that
    is neither a file nor an action.
    """
    if len(tokens) < 2 or tokens[0] not in BARE:
        return tokens
    verb, word, option = tokens[0], tokens[1], BARE[tokens[0]]
    scenario = verb in ("size", "simulate") and (
        os.path.isfile(word) or word.endswith((".yaml", ".yml", ".json"))
    )
    if word.startswith("-") or scenario or word == "selftest" or option in tokens:
        return tokens
    return [verb, option, *tokens[1:]]


def flag(path: Path) -> str:
    """Spell an option as the command does, such as "--peak-rps"."""
    return f"--{path[-1].replace('_', '-')}"


def _fail(message: str, code: int) -> int:
    for line in visible(message).splitlines():
        print(f"tonnage: {line}", file=sys.stderr)
    return code


# What to type in place of an option that a verb does not have, or of a value that it cannot read.


# What to type here, the first that the verb has, by the names elsewhere
ELSEWHERE: dict[tuple[str, ...], str] = {
    ("--isl 2000",): (
        "input-len random-input-len sonnet-input-len input-length input-tokens prompt-len"
        " prompt-length prompt-tokens isl-mean synthetic-input-tokens-mean prompt-input-tokens-mean"
        " input-sequence-length max-input-len"
    ),
    ("--osl 200",): (
        "output-len random-output-len sonnet-output-len sharegpt-output-len output-length"
        " output-tokens output-tokens-mean osl-mean prompt-output-tokens-mean"
        " output-sequence-length max-tokens max-output-tokens max-new-tokens"
    ),
    ("--isl 2000+-500",): (
        "isl-stddev isl-std synthetic-input-tokens-stddev input-tokens-stddev prompt-tokens-stdev"
        " random-range-ratio"
    ),
    ("--osl 200+-50",): "osl-stddev osl-std output-tokens-stddev output-tokens-stdev",
    ("--shared-prefix 1000",): (
        "prefix-len random-prefix-len prefix-prompt-length shared-system-prompt-length"
        " gsp-system-prompt-len"
    ),
    (
        "--turns 5",
        "--conversation-turns 5",
    ): "num-turns conversation-turns conversation-turn-mean multi-turn session-turns-mean",
    (
        "--think-time 30s",
        "--conversation-turn-delay 30s",
    ): "conversation-turn-delay conversation-turn-delay-mean session-turn-delay-mean",
    (
        "--peak-rps 20",
        "--request-rate 20",
    ): "rps qps rate request-rate requests-per-second peak-qps target-qps throughput",
    ("--peak-rps 20 (tokens a second over the output tokens of a request)",): (
        "tps tokens-per-second output-tokens-per-second token-rate tokens-per-s"
    ),
    ("--users 1 --requests-per-user-day 1000000 (tokens over those of a request, in and out)",): (
        "tokens-per-day daily-tokens tokens-per-month tokens-per-year monthly-tokens tokens"
    ),
    (
        "--concurrency 100",
    ): "max-concurrency num-concurrent concurrent-users concurrent-requests clients num-workers",
    ("--requests-per-user-day 1000000 --users 1",): "requests-per-day daily-requests requests-day",
    ("--calls-per-year 120000000 (12 times those of a month)",): (
        "requests-per-month monthly-requests requests-per-year calls-per-month"
    ),
    (
        "--requests 1000000 --within 8h",
        "--request-count 1000",
        "--requests 1000",
    ): "num-prompts num-requests request-count max-requests documents num-documents n",
    ("--working-hours 8",): "hours business-hours",
    (
        '--ttft "p95<=500ms"',
        "--slo ttft:p95<=500ms",
    ): "goodput slo slos sla max-ttft ttft-slo ttft-p95 max-latency latency",
    (
        '--itl "p99<=100ms"',
        "--slo itl:p99<=100ms",
    ): "tbt time-between-tokens inter-token-latency itl-p99",
    ("--tp 4",): "tensor-parallel-size tensor-parallel tp-size tensor-parallelism",
    ("--pp 2",): "pipeline-parallel-size pipeline-parallel pp-size",
    ("--dp 8",): "data-parallel-size dp-size enable-dp-attention",
    ("--ep 8",): "expert-parallel-size ep-size enable-expert-parallel moe-expert-parallel-size",
    ("--precision fp8",): "dtype quantization quant weight-format format-of-weights",
    ("--precision fp8+kv-fp8",): "kv-cache-dtype kv-dtype",
    ("--max-batch-size 256",): "batch-size max-batch",
    ("--max-num-tokens 8192",): "max-prefill-tokens max-batched-tokens",
    ("--chunked-prefill",): "enable-chunked-prefill enable-chunked-context",
    ("--prefix-caching",): "enable-prefix-caching enable-block-reuse",
    ("--no-prefix-caching",): "disable-radix-cache no-enable-prefix-caching",
    (
        '--speculation "eagle k=3 acceptance=0.7"',
    ): "speculative-config speculative-model speculative-algorithm num-speculative-tokens",
    (
        '--lora "rank=16 adapters=8"',
    ): "enable-lora max-loras max-lora-rank lora-modules lora-paths adapters",
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
    ("--max-model-len 32768",): "max-context max-position-embeddings max-context-length",
    (
        (
            "--gpu-memory-utilization 0.9 (vLLM), --mem-fraction-static 0.88 (SGLang) or"
            " --free-gpu-memory-fraction 0.9 (TensorRT-LLM)"
        ),
    ): (
        "memory-fraction gpu-memory-fraction kv-fraction kv-cache-fraction mem-fraction"
        " memory-utilization"
    ),
}

KINDS = {int: "a whole number", float: "a number"}


def explained(error: CycloptsError, app: App, tokens: Sequence[str]) -> str:
    """Say in one line what is wrong with a command line, and what to type."""
    message = " ".join(str(error).split())
    if isinstance(error, UnknownOptionError):
        typed = (error.token.keyword or error.token.value).partition("=")[0]
        why = refused("option", typed)
        return (
            f"{typed} is not covered: {why}"
            if why
            else _unknown(typed, app, error.command_chain or (), tokens) or message
        )
    if (
        isinstance(error, CoercionError)
        and error.token is not None
        and error.target_type in KINDS
        and error.argument is not None
    ):
        help_text = " ".join((error.argument.parameter.help or "").split())
        return (
            f"{error.argument.name}: '{error.token.value}' is not {KINDS[error.target_type]};"
            f" {help_text}"
        )
    if isinstance(error, RepeatArgumentError) and error.token.keyword:
        return (
            f"{error.token.keyword}: is given twice; give it once, several values with commas"
            " between"
        )
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return _lacking(error.argument, tokens)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return (
            f"'{error.unused_tokens[0]}': one word too many; {tokens[0]} --help says what it takes"
        )
    return message


def _lacking(argument: Argument, tokens: Sequence[str]) -> str:
    """Say which argument is missing, and what it means."""
    following = dict(pairwise(tokens)).get(argument.name, "")
    if following.startswith("-") and following[1:2].isdigit():
        return (
            f"{argument.name}: '{following}' begins like an option; write"
            f" {argument.name}={following}"
        )
    lack = "needs a value" if argument.name in tokens else "missing"
    return f"{argument.name}: {lack}; {' '.join((argument.parameter.help or '').split())}"


NUMBER, WORD = re.compile(r"[\d.]+[kM]?"), re.compile(r"[a-z][\w.-]*")


def _repeated(example: str, value: str, typed: Mapping[str, str]) -> str:
    """An example with a typed value in place of its own, where both are numbers or both words."""
    name, _, rest = example.partition(" ")
    ours, *following_words = rest.split(" ")
    mean, spread, _ = ours.partition("+-")
    if spread and NUMBER.fullmatch(value):
        value = f"{typed.get(name, mean)}+-{value}"
    elif "(" in rest or not any(
        kind.fullmatch(ours) and kind.fullmatch(value) for kind in (NUMBER, WORD)
    ):
        return example
    return " ".join([name, value, *following_words])


def _unknown(typed: str, app: App, verb: Sequence[str], tokens: Sequence[str]) -> str:
    """What to type in place of an option that a verb does not have, with the value that was typed;
    "" where nothing is known of it.
    """
    if not verb:
        return ""
    options, name = set(_options(app, verb[0])), typed.lstrip("-").replace("_", "-").lower()
    ours = flag((by_alias().get(name.replace("-", "_"), name),))
    if ours in options:
        return f"{typed}: unknown option; type {ours}"
    for examples, theirs in ELSEWHERE.items():
        if name in theirs.split():
            example = next(
                (candidate for candidate in examples if candidate.split()[0] in options), ""
            )
            values = dict(pairwise(word for token in tokens for word in token.split("=", 1)))
            example = _repeated(example, values.get(typed, ""), values)
            return f"{typed}: unknown option; type {example}" if example else ""
    return ""


def _options(app: App, verb: str) -> Iterator[str]:
    for argument in app[verb].assemble_argument_collection():
        yield from argument.names
