"""The command that starts an engine as it was sized, from the data of its preset: once for everybody who needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from tonnage.spec.deployment import EngineKnobs, Parallelism, Speculation
from tonnage.spec.engine import DRAFTER, FLAGS, GUESSES, MODEL, ONE_MORE, Launch
from tonnage.spec.kv_tiers import PLAIN, AskedTier, Offloading
from tonnage.spec.typed_values import strict

FILE = "engine.yaml"  # where the command looks for the engine's configuration file, in the folder that it is started in

Value = bool | int | float | str

# What a preset's ``launch`` may name next to the fields of ``Parallelism`` and ``EngineKnobs``
SETTINGS: dict[str, str] = {
    "gpus": "GPUs of an instance",
    "stage_gpus": "GPUs that one layer is spread over, tensor-parallel degree × data-parallel attention ranks",
    "attention_dp": "whether attention runs in more than one rank",
    "max_context": "longest prompt with its output, in tokens",
    "chunk_tokens": "prompt tokens of one step of all attention ranks together; −1 where prompts are not split",
    "requests": "requests that run at once in all attention ranks together",
    "prompt_tokens": "prompt tokens of one step where prompts are not split",
    "kv_8bit": "whether the KV cache is kept in FP8",
    "kv_format": "number format of the KV cache, where that is not the engine's choice",
}

# Left out of a command where they are 1, an engine's default
DEGREES = ("pp", "dp", "ep", "front_ends", "stream_interval", "receive_interval")


@strict
class Command:
    """How one instance is started."""

    argv: tuple[str, ...] = ()  # the command as a list of arguments; empty where none is known
    # the configuration file that the command names ``FILE``, as nested values; empty where it needs none
    file: dict[str, Any] = field(default_factory=dict)


def command(
    launch: Launch | None,
    *,
    checkpoint: str,
    parallelism: Parallelism,
    knobs: EngineKnobs,
    max_context: int,
    kv_8bit: bool = False,
    speculation: Speculation | None = None,
    offloading: Offloading = PLAIN,
    tiers: Sequence[AskedTier] = (),
) -> Command:
    """The command that starts an engine with these knobs.

    Args:
        checkpoint: the model's folder, or its name at a hub, in the number format that was sized.
        speculation: speculative decoding; the words of the command then hold ``DRAFTER`` where its method needs a drafter's checkpoint,
            and there is no command where the engine is not known to be started with that method.
        offloading, tiers: what keeps blocks below the KV cache, and in which memories.
    """
    drafting = None if launch is None or speculation is None else launch.drafting(speculation.method)
    if launch is None or (speculation is not None and drafting is None):
        return Command()
    settings = _settings(parallelism, knobs, max_context, kv_8bit)
    file = _file(launch, settings)
    guesses = 0 if speculation is None else speculation.tokens
    for key, value in () if drafting is None else drafting.file:
        _put(file, key, guesses if value == GUESSES else value)
    kept, keys = offloading.switched_on(tiers, parallelism)
    for key, size in keys.items():
        _put(file, key, size)
    flags = [*_values(launch, settings), *_switches(launch, settings), *((launch.file_flag, FILE) if file else ())]
    words = () if drafting is None else drafting.words
    flags += [word.replace(GUESSES, str(guesses)).replace(ONE_MORE, str(guesses + 1)) for word in words]
    flags += kept
    words = launch.command if FLAGS in launch.command else (*launch.command, FLAGS)
    argv = [part for word in words for part in (flags if word == FLAGS else [word.replace(MODEL, checkpoint)])]
    return Command(argv=tuple(argv), file=file)


def _settings(parallelism: Parallelism, knobs: EngineKnobs, max_context: int, kv_8bit: bool) -> dict[str, Value | None]:
    """Every setting that a preset may name, by its name; None for what does not apply."""
    chunked = knobs.chunked_prefill
    return {
        **asdict(knobs),
        **asdict(parallelism),
        "gpus": parallelism.gpus,
        "stage_gpus": parallelism.stage_gpus,
        "attention_dp": parallelism.dp > 1,
        "max_context": max_context,
        "chunk_tokens": knobs.max_num_tokens * parallelism.dp if chunked else -1,
        "requests": knobs.max_batch_size * parallelism.dp,
        "prompt_tokens": None if chunked else knobs.max_num_tokens,
        "kv_8bit": kv_8bit,
        "kv_format": "fp8" if kv_8bit else None,
        "graph_tokens": knobs.graph_tokens or None,
        "batch_wait_steps": knobs.batch_wait_steps or None,
        "batch_wait_ratio": knobs.batch_wait_ratio or None,
    }


def _values(launch: Launch, settings: Mapping[str, Value | None]) -> Iterator[str]:
    """Flags with their values; a flag that ends with "=" and its value are one word."""
    for setting, flag in launch.values:
        value = settings[setting]
        if value is None or (setting in DEGREES and value == 1):
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        yield from (f"{flag}{text}",) if flag.endswith("=") else (flag, text)


def _switches(launch: Launch, settings: Mapping[str, Value | None]) -> Iterator[str]:
    """Flags of what is on or off; degrees are on above 1."""
    for setting, switch in launch.switches:
        value = settings[setting]
        on = isinstance(value, int) and value > 1 if setting in DEGREES else bool(value)
        if flag := switch.enable if on else switch.disable:
            yield flag


def _file(launch: Launch, settings: Mapping[str, Value | None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for setting, key in launch.file_keys:
        value = settings[setting]
        if value is not None:
            _put(found, key.removeprefix("not "), not value if key.startswith("not ") else value)
    return found


def _put(file: dict[str, Any], key: str, value: Value) -> None:
    *branches, name = key.split(".")
    for branch in branches:
        file = file.setdefault(branch, {})
    file[name] = value


def without_checkpoint(argv: tuple[str, ...], launch: Launch, model: str, weights: str) -> tuple[str, ...]:
    """A command with the model's name in place of its checkpoint, and without the arguments that make the engine quantise that.

    Args:
        model: catalog id of the model.
        weights: number format that was sized (``Precision.weights``).
    """
    words, template = launch.quantizing(weights), launch.command
    argv = argv[: -len(words)] if words and argv[-len(words) :] == words else argv
    place, holder = next((number, word) for number, word in enumerate(template) if MODEL in word)
    place = place if FLAGS not in template[:place] else len(argv) + place - len(template)
    return (*argv[:place], holder.replace(MODEL, model), *argv[place + 1 :])


def with_drafter(started: Command, drafter: str) -> Command:
    """A command with the drafter's checkpoint in its place."""
    return Command(argv=tuple(word.replace(DRAFTER, drafter) for word in started.argv), file=_named(started.file, drafter))


def _named(value: Any, drafter: str) -> Any:
    if isinstance(value, dict):
        return {key: _named(part, drafter) for key, part in value.items()}
    return value.replace(DRAFTER, drafter) if isinstance(value, str) else value


def needs_drafter(started: Command) -> bool:
    """Whether a command still lacks the checkpoint of its drafter."""
    return with_drafter(started, "") != started


def with_metrics(file: dict[str, Any]) -> dict[str, Any]:
    """TensorRT-LLM's configuration file with its metrics switched on; empty where an engine needs no file."""
    return {**file, "return_perf_metrics": True} if file else {}


def listening(family: str, *, host: str, port: int, name: str) -> tuple[str, ...]:
    """Further words of a command: where the engine listens, and the name that clients use.

    TensorRT-LLM knows no other name than the last part of the checkpoint's. (``interfaces.yaml``.)
    """
    named = ("--served-model-name", name)
    words = {"vllm": named, "sglang": (*named, "--enable-metrics"), "tensorrt-llm": (), "nim": ()}
    return ("--host", host, "--port", str(port), *words[family])
