"""The command that starts an engine as it was sized, from the data of its preset: once for
everybody who needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.entries import offloadings
from tonnage.spec.deployment import EngineKnobs, Parallelism, Speculation
from tonnage.spec.engine import DRAFTER, FLAGS, GUESSES, MODEL, ONE_MORE, Launch
from tonnage.spec.kv_tiers import PLAIN, AskedTier, Offloading
from tonnage.spec.precision import find_precision
from tonnage.spec.typed_values import strict

if TYPE_CHECKING:
    from tonnage.plan.candidate import Pool

# where the command looks for the engine's configuration file, in the folder that it is started in
FILE = "engine.yaml"

Value = bool | int | float | str

# What a preset's ``launch`` may name next to the fields of ``Parallelism`` and ``EngineKnobs``
SETTINGS: dict[str, str] = {
    "gpus": "GPUs of an instance",
    "stage_gpus": (
        "GPUs that one layer is spread over, tensor-parallel degree × data-parallel attention ranks"
    ),
    "attention_dp": "whether attention runs in more than one rank",
    "max_context": "longest prompt with its output, in tokens",
    "chunk_tokens": (
        "prompt tokens of one step of all attention ranks together; −1 where prompts are not split"
    ),
    "requests": "requests that run at once in all attention ranks together",
    "prompt_tokens": "prompt tokens of one step where prompts are not split",
    "by_priority": "whether requests are served by their priorities",
    "lowest_first": "whether the lowest of these goes first, which is always so where they count",
    "kv_8bit": "whether the KV cache is kept in FP8",
    "kv_16bit": "whether the KV cache is kept in 16 bits though the checkpoint declares fewer",
    "kv_format": "number format of the KV cache, where that is not the engine's choice",
}

# Left out of a command where they are 1, an engine's default
DEGREES = ("pp", "dp", "ep", "front_ends", "stream_interval", "receive_interval")


@strict
class Command:
    """The command that starts one instance."""

    argv: tuple[str, ...] = ()  # the command as a list of arguments; empty where none is known
    # the configuration file that the command names ``FILE``, as nested values; empty where it needs
    # none
    file: dict[str, Any] = field(default_factory=dict)


def command(
    launch: Launch | None,
    *,
    checkpoint: str,
    parallelism: Parallelism,
    knobs: EngineKnobs,
    max_context: int,
    kv_8bit: bool = False,
    kv_16bit: bool = False,
    speculation: Speculation | None = None,
    offloading: Offloading = PLAIN,
    tiers: Sequence[AskedTier] = (),
) -> Command:
    """The command that starts an engine with these knobs.

    Args:
        checkpoint: the model's folder, or its name at a hub, in the number format that was sized.
        kv_8bit: the KV cache is kept in FP8; kv_16bit: it is kept in 16 bits, and the checkpoint
            declares fewer.
        speculation: speculative decoding; the words of the command then hold ``DRAFTER`` where its
            method needs a drafter's checkpoint, and there is no command where the engine is not
            known to be started with that method.
        offloading, tiers: what keeps blocks below the KV cache, and in which memories.
    """
    drafting = (
        None if launch is None or speculation is None else launch.drafting(speculation.method)
    )
    if launch is None or (speculation is not None and drafting is None):
        return Command()
    settings = _settings(parallelism, knobs, max_context, kv_8bit) | {"kv_16bit": kv_16bit}
    file = _file(launch, settings)
    guesses = 0 if speculation is None else speculation.tokens
    for key, value in () if drafting is None else drafting.file:
        _put(file, key, guesses if value == GUESSES else value)
    tier_flags, keys = offloading.switched_on(tiers, parallelism)
    for key, size in keys.items():
        _put(file, key, size)
    flags = [
        *_values(launch, settings),
        *_switches(launch, settings),
        *((launch.file_flag, FILE) if file else ()),
    ]
    words = () if drafting is None else drafting.words
    flags += [
        word.replace(GUESSES, str(guesses)).replace(ONE_MORE, str(guesses + 1)) for word in words
    ]
    flags += tier_flags
    words = launch.command if FLAGS in launch.command else (*launch.command, FLAGS)
    argv = [
        part
        for word in words
        for part in (flags if word == FLAGS else [word.replace(MODEL, checkpoint)])
    ]
    return Command(argv=tuple(argv), file=file)


def priority_words(launch: Launch | None) -> tuple[str, ...]:
    """The flags by which an engine serves requests by their priorities, the lowest first; empty
    where it has none.
    """
    switches = [] if launch is None else map(launch.switch, ("by_priority", "lowest_first"))
    return tuple(switch.enable for switch in switches if switch is not None and switch.enable)


def _settings(
    parallelism: Parallelism, knobs: EngineKnobs, max_context: int, kv_8bit: bool
) -> dict[str, Value | None]:
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
        "by_priority": knobs.queue_order == "priority",
        "lowest_first": knobs.queue_order == "priority",
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
    content: dict[str, Any] = {}
    for setting, key in launch.file_keys:
        value = settings[setting]
        if value is not None:
            _put(content, key.removeprefix("not "), not value if key.startswith("not ") else value)
    return content


def _put(file: dict[str, Any], key: str, value: Value) -> None:
    *branches, name = key.split(".")
    for branch in branches:
        file = file.setdefault(branch, {})
    file[name] = value


# A command that was read from a file, held against the preset: a plan comes from anywhere, and its
# words are run.

# a repository, an image or a folder; nothing that a shell or an engine takes for a flag
CHECKPOINT_NAME = re.compile(r"[\w/.][\w./:@+-]*")
PLAIN_VALUE = re.compile(r"[\w.:+-]{1,64}")


def foreign_word(pool: Pool) -> str:
    """The first word or key of a pool's command that its preset does not write for its knobs; empty
    where there is none.

    The context and the sizes of memories below the KV cache may be any whole number: a plan does
    not say them apart.
    """
    launch, offloaders = find_engine(pool.engine_preset or pool.engine).launch, offloadings()
    if launch is None or not pool.launch:
        return next(iter(pool.launch), "")
    kv_8bit = find_precision(pool.precision).kv == "fp8"
    settings = {} if pool.knobs is None else _settings(pool.parallelism, pool.knobs, 0, kv_8bit)
    template = launch.command if FLAGS in launch.command else (*launch.command, FLAGS)
    first, last = template[: template.index(FLAGS)], template[template.index(FLAGS) + 1 :]
    argv = pool.launch
    for _, words in launch.quantize:
        argv = argv[: -len(words)] if words and argv[-len(words) :] == words else argv
    middle = len(argv) - len(last)
    if middle < len(first):
        return argv[-1]
    for word, written in zip((*argv[: len(first)], *argv[middle:]), (*first, *last), strict=True):
        if not _fits(word, written):
            return word
    patterns = [
        *_flag_patterns(launch, settings),
        *(list(offloader.flags) for offloader in offloaders),
    ]
    place = len(first)
    while place < middle:
        length = next(
            (len(words) for words in patterns if words and _all_fit(argv[place:middle], words)), 0
        )
        if not length:
            return argv[place]
        place += length
    return _foreign_key(pool.launch_file, launch, settings, offloaders)


def _flag_patterns(launch: Launch, settings: Mapping[str, Value | None]) -> Iterator[list[str]]:
    """Each run of words that the flags of a command may hold, with placeholders."""
    for setting, flag in launch.values:
        value = (
            ANY
            if setting == "max_context" or setting not in settings
            else _written(settings[setting])
        )
        yield [flag + value] if flag.endswith("=") else [flag, value]
    for _, switch in launch.switches:
        yield from ([flag] for flag in (switch.enable, switch.disable) if flag)
    for _, drafting in launch.speculation:
        yield list(drafting.words)
    if launch.file_flag:
        yield [launch.file_flag, FILE]


ANY = "{any}"  # Placeholder of a value that is any plain word


def _written(value: Value | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _all_fit(argv: Sequence[str], words: Sequence[str]) -> bool:
    return len(argv) >= len(words) and all(
        _fits(word, written) for word, written in zip(argv, words, strict=False)
    )


def _fits(word: str, written: str) -> bool:
    """Whether a word is one of a preset, in which placeholders stand for a checkpoint, a number or
    a plain value.
    """
    if word == written:
        return True
    pattern = re.escape(written)
    pattern = pattern.replace(re.escape(MODEL), CHECKPOINT_NAME.pattern).replace(
        re.escape(ANY), PLAIN_VALUE.pattern
    )
    pattern = re.sub(r"\\{\w+(?:\\\+1)?\\}", r"(?:\\d+|\g<0>)", pattern)
    return re.fullmatch(pattern, word) is not None


def _foreign_key(
    file: Mapping[str, Any],
    launch: Launch,
    settings: Mapping[str, Value | None],
    offloaders: Sequence[Offloading],
) -> str:
    """The first key of a configuration file, with its value, that the preset does not write."""
    written: dict[str, Value | None] = {}
    for setting, key in launch.file_keys:
        value = settings.get(setting)
        written[key.removeprefix("not ")] = (
            not value if key.startswith("not ") and value is not None else value
        )
    for _, drafting in launch.speculation:
        written |= dict.fromkeys(key for key, _ in drafting.file)
    for offloader in offloaders:
        written |= dict.fromkeys(offloader.file_keys.values())
    for key, value in _leaves(file):
        plain = (
            isinstance(value, bool | int | float)
            or value == DRAFTER
            or PLAIN_VALUE.fullmatch(str(value)) is not None
        )
        if key not in written or not plain or (settings and written[key] not in (None, value)):
            return f"{key}: {value}"
    return ""


def _leaves(file: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in file.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def without_checkpoint(
    argv: tuple[str, ...], launch: Launch, model: str, weights: str
) -> tuple[str, ...]:
    """A command with the model's name in place of its checkpoint, and without the arguments that
    make the engine quantise that.

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
    return Command(
        argv=tuple(word.replace(DRAFTER, drafter) for word in started.argv),
        file=_named(started.file, drafter),
    )


def _named(value: Any, drafter: str) -> Any:
    if isinstance(value, dict):
        return {key: _named(part, drafter) for key, part in value.items()}
    return value.replace(DRAFTER, drafter) if isinstance(value, str) else value


def needs_drafter(started: Command) -> bool:
    """Whether a command still lacks the checkpoint of its drafter."""
    return with_drafter(started, "") != started


def with_metrics(file: dict[str, Any]) -> dict[str, Any]:
    """TensorRT-LLM's configuration file with its metrics switched on; empty where an engine needs
    no file.
    """
    return {**file, "return_perf_metrics": True} if file else {}


def listening(family: str, *, host: str, port: int, name: str) -> tuple[str, ...]:
    """Further words of a command: where the engine listens, and the name that clients use.

    TensorRT-LLM knows no other name than the last part of the checkpoint's. (``interfaces.yaml``.)
    """
    named = ("--served-model-name", name)
    words = {"vllm": named, "sglang": (*named, "--enable-metrics"), "tensorrt-llm": (), "nim": ()}
    return ("--host", host, "--port", str(port), *words[family])
