"""The command that starts an engine as it was sized, from the data of its preset: once for everybody who needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tonnage.spec.deployment import EngineKnobs, Parallelism
from tonnage.spec.launch import FLAGS, MODEL, Launch
from tonnage.spec.typed_values import FORBID

FILE = "engine.yaml"
"""Where the command looks for the engine's configuration file, in the folder that it is started in."""

Value = bool | int | float | str

SETTINGS: dict[str, str] = {
    "gpus": "GPUs of an instance",
    "stage_gpus": "GPUs that one layer is spread over, tensor-parallel degree × data-parallel attention ranks",
    "attention_dp": "whether attention runs in more than one rank",
    "max_context": "longest prompt with its output, in tokens",
    "chunk_tokens": "largest part of a prompt in one step, in tokens; −1 where prompts are not split",
    "prompt_tokens": "prompt tokens of one step where prompts are not split",
    "kv_8bit": "whether the KV cache is kept in FP8",
}
"""What a preset's ``launch`` may name beside the fields of ``Parallelism`` and ``EngineKnobs``."""

DEGREES = ("pp", "dp", "ep", "front_ends")
"""Left out of a command where they are 1, an engine's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How one instance is started.

    Attributes:
        argv: the command as a list of arguments; empty where none is known.
        file: the configuration file that the command names ``FILE``, as nested values; empty where it needs none.
    """

    __pydantic_config__ = FORBID

    argv: tuple[str, ...] = ()
    file: dict[str, Any] = field(default_factory=dict)


def command(
    launch: Launch | None, *, checkpoint: str, parallelism: Parallelism, knobs: EngineKnobs, max_context: int, kv_8bit: bool = False
) -> Command:
    """The command that starts an engine with these knobs.

    Args:
        launch: of the engine's preset; None where it is not known how the engine is started.
        checkpoint: the model's folder, or its name at a hub, in the number format that was sized.
        parallelism: how the instance is split.
        knobs: of the engine.
        max_context: longest prompt with its output, in tokens.
        kv_8bit: whether the KV cache is kept in FP8.
    """
    if launch is None:
        return Command()
    settings = _settings(parallelism, knobs, max_context, kv_8bit)
    file = _file(launch, settings)
    flags = [*_values(launch, settings), *_switches(launch, settings), *((launch.file_flag, FILE) if file else ())]
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
        "chunk_tokens": knobs.max_num_tokens if chunked else -1,
        "prompt_tokens": None if chunked else knobs.max_num_tokens,
        "kv_8bit": kv_8bit,
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
        flag = switch.enable if _on(setting, settings) else switch.disable
        if flag:
            yield flag


def _on(setting: str, settings: Mapping[str, Value | None]) -> bool:
    value = settings[setting]
    return isinstance(value, int) and value > 1 if setting in DEGREES else bool(value)


def _file(launch: Launch, settings: Mapping[str, Value | None]) -> dict[str, Any]:
    """What stands in the engine's configuration file."""
    found: dict[str, Any] = {}
    for setting, key in launch.file_keys:
        value = settings[setting]
        if value is None:
            continue
        *branches, name = key.removeprefix("not ").split(".")
        place = found
        for branch in branches:
            place = place.setdefault(branch, {})
        place[name] = not value if key.startswith("not ") else value
    return found
