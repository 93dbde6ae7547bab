"""``tonnage import``: single requests of another tool's run, as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.results.metrics import Summary


def import_run(
    file: Path, output: Path, *, tokenizer: Path | None = None, provenance: dict[str, Any] | None = None
) -> list[tuple[Path, Summary]]:
    """Write the runs of a file as run folders: ``output`` itself, or one inside it for each where the file holds several.

    Args:
        file: AIPerf's ``profile_export.jsonl`` or GenAI-Perf's ``profile_export.json`` (or its folder), a result of vLLM's bench with
            details, or GuideLLM's JSON.
        output: the folder, which must not be in use.
        tokenizer: a local tokenizer.json, which counts the tokens of GenAI-Perf's texts where the server did not.
        provenance: what the folder says of where it came from.

    Raises:
        InputError: a file that is none of these, or a folder in use.
    """
    from tonnage.bench.imported_run import write_imported
    from tonnage.bench.imports import read_past
    from tonnage.bench.prompts import TokenizerFile
    from tonnage.results.store import check_free

    check_free(output)
    past = read_past(file, TokenizerFile(tokenizer) if tokenizer is not None else None)
    folders = [output] if len(past) == 1 else [output / f"run-{place}" for place in range(1, len(past) + 1)]
    made = []
    for run, folder in zip(past, folders, strict=True):
        summary, _ = write_imported(run, folder, source=file.name, provenance=provenance or {})
        made.append((folder, summary))
    return made
