"""Flags that say what was measured, where the files do not."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.cli.flags import about


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The deployment and the lengths of a benchmark."""

    model: str | None = about("Model that was measured, where the files do not say it.")
    gpu: str | None = about("GPU that was measured, where the files do not say it; a catalog id, or a YAML file that describes your own.")
    precision: str | None = about("Number format, such as fp16, fp8 or awq, where the files do not say it.")
    tp: int | None = about("Tensor-parallel degree, where the files do not say it.")
    engine: str | None = about("Engine preset, where the files do not say it.")
    isl: int | None = about("Prompt tokens, where the files do not say them.")
    osl: int | None = about("Output tokens, where the files do not say them.")
    include_invalid: bool | None = about(
        "Take run folders that their own client called INVALID; they are left out otherwise.", negative=False
    )
