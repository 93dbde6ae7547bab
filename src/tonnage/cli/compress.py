"""``tonnage compress``: the checkpoint that a plan assumes, made by another tool and judged next to the original."""

from __future__ import annotations

import sys
from pathlib import Path

from tonnage.cli.printing import print_answer, say


def compress(
    model_dir: Path,
    /,
    *,
    output: Path,
    format: str | None = None,
    plan: Path | None = None,
    tool: str | None = None,
    text: Path | None = None,
    held_back: Path | None = None,
    lm_eval: tuple[Path, Path] | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Make the checkpoint that a plan assumes from one in 16 bits, by llm-compressor or Model Optimizer, and judge it next to the original.

    The first use makes an environment for the tool, apart from Tonnage's own. The folder is written as a whole or not at all, with a
    manifest: tool, version, recipe, hashes, and what was measured.

    Args:
        model_dir: Folder of the original: config.json, safetensors in 16 bits, tokenizer.
        output: The folder to write.
        format: fp8, fp8-block, int8, w4a16-awq, w4a16-gptq, w4a8, nvfp4, mxfp4, kv-fp8 or 2:4 (default: the plan's).
        plan: File with the plan's JSON, which tonnage size wrote with --output: its format, and a check of its GPU, engine and model.
        tool: llm-compressor or modelopt (default: the first that writes the format for the plan's engine).
        text: File with text like that of the service, for calibration; both checkpoints are judged on it.
        held_back: File with further text, to judge both on what the calibration did not see.
        lm_eval: Results of lm_eval for the original and for OUTPUT, two files or folders: they are judged and kept in OUTPUT, nothing is
            made.
        dry_run: Print the tool's own script, to be run where the GPU is.
        json: Print one JSON object.
    """
    from tonnage import api
    from tonnage.report.facts import compressed

    found = api.compress(
        model_dir,
        output=output,
        format=format,
        plan=plan,
        tool=tool,
        text=text,
        held_back=held_back,
        lm_eval=lm_eval,
        dry_run=dry_run,
        told=say,
    )
    if isinstance(found, str):
        sys.stdout.write(found)
        return
    manifest = found.manifest
    print_answer(lambda: compressed(str(found.folder), manifest), lambda: {"folder": str(found.folder), **manifest}, json=json)
