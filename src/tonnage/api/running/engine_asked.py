"""What ``tonnage serve`` is asked of a real engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import InputError, option

FAMILIES = ("vllm", "tensorrt-llm", "sglang")
ENGINES = ("auto", *FAMILIES, "triton", "nim")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAsked:
    """What is to be served by a real engine.

    Attributes:
        engine: one of ``ENGINES``.
        model: catalog id, folder of a checkpoint, or of a model repository for Triton; None where a plan says it.
        plan: file of a plan whose choice is served; None for none.
        checkpoint: what is loaded: a folder, or a name at a hub; for NIM the image as owner/name:tag.
        drafter: checkpoint of the drafter of speculative decoding.
        precision, tp, profile: which profile; None leaves it to the machine.
        instances: how many; None for as many as the plan has or the GPUs hold.
        gpus: numbers of the GPUs that may be used; None for those that nobody uses.
        max_model_len, max_batch_size, max_num_tokens: knobs in place of the engine's own.
        kv_cache_gb, threads: of vLLM on a CPU.
        served_model_name: that clients use; None for the model's.
        engine_path: folder of the engine's environment; None to look along the PATH.
        engine_env: further variables of the engine, as NAME=VALUE.
    """

    engine: str
    model: str | None = None
    plan: Path | None = None
    checkpoint: str | None = None
    drafter: str | None = None
    precision: str | None = None
    tp: int | None = None
    profile: str | None = None
    instances: int | None = None
    gpus: str | None = None
    max_model_len: int | None = None
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    kv_cache_gb: int | None = None
    threads: int | None = None
    served_model_name: str | None = None
    engine_path: Path | None = None
    engine_env: Sequence[str] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The further variables.

        Raises:
            InputError: one has no name or no value.
        """
        pairs = [text.partition("=") for text in self.engine_env]
        bad = next((text for text, (name, sign, _) in zip(self.engine_env, pairs, strict=True) if not name or not sign), None)
        if bad is not None:
            raise InputError(f"{option('engine_env')}: '{bad}' is no variable; write NAME=VALUE")
        return {name: value for name, _, value in pairs}

    @property
    def gpu_numbers(self) -> tuple[int, ...] | None:
        """The GPUs that were named.

        Raises:
            InputError: one of them is no number.
        """
        if self.gpus is None:
            return None
        parts = [part.strip() for part in self.gpus.split(",")]
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise InputError(f"{option('gpus')}: '{self.gpus}' are no numbers of GPUs; write for example 0,1")
        return tuple(dict.fromkeys(int(part) for part in parts))
