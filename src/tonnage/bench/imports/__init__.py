"""Files with single requests that other tools wrote, made into run folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.bench.imports import aiperf, genai_perf, guidellm, vllm
from tonnage.bench.imports.past_request import PastRequest, PastRun
from tonnage.errors import InputError
from tonnage.results.importers.guidellm import is_guidellm
from tonnage.results.importers.vllm_bench import is_vllm

if TYPE_CHECKING:
    from tonnage.bench.prompts import TokenizerFile

__all__ = ["PastRequest", "PastRun", "read_past"]

EXPORTS = ("profile_export.jsonl", "profile_export.json")
"""AIPerf's and GenAI-Perf's names of such files."""

MAX_BYTES = 4_000_000_000


def read_past(path: Path, counter: TokenizerFile | None = None) -> list[PastRun]:
    """The runs of a file with single requests.

    Args:
        path: AIPerf's ``profile_export.jsonl``, GenAI-Perf's ``profile_export.json``, a folder with one of them, a detailed result of
            vLLM's bench, or GuideLLM's ``benchmarks.json``.
        counter: counts tokens where a file holds texts and the server did not count.

    Raises:
        InputError: none of these, or damaged; one line says where.
    """
    source = next((path / name for name in EXPORTS if (path / name).is_file()), path / EXPORTS[0]) if path.is_dir() else path
    try:
        if source.stat().st_size > MAX_BYTES:
            raise InputError(f"{source}: larger than {MAX_BYTES // 10**9} GB; give the file of one run")
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"{source}: cannot be read ({why}); give a file with single requests") from None
    if source.suffix.lower() == ".jsonl":
        return [_checked(aiperf.read(source, text), source)]
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{source}: is not JSON; give the file as the tool wrote it") from None
    if is_vllm(document):
        return [_checked(vllm.read(source, document), source)]
    if genai_perf.is_genai_perf(document):
        return [_checked(run, source) for run in genai_perf.read(source, document, counter)]
    if is_guidellm(document):
        return [_checked(run, source) for run in guidellm.read(source, document)]
    raise InputError(f"{source}: is no file with single requests; give AIPerf's or GenAI-Perf's profile_export, vLLM's or GuideLLM's JSON")


def _checked(run: PastRun, path: Path) -> PastRun:
    if not run.requests:
        raise InputError(f"{path}: holds no request; give a run that sent something")
    return run
