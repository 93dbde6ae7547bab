"""Files with single requests that other tools wrote, made into run folders."""

from __future__ import annotations

import json
from pathlib import Path

from tonnage.bench.imports import aiperf, guidellm, vllm
from tonnage.bench.imports.past_request import PastRequest, PastRun
from tonnage.errors import InputError
from tonnage.results.importers.guidellm import is_guidellm
from tonnage.results.importers.vllm_bench import is_vllm

__all__ = ["PastRequest", "PastRun", "read_past"]

MAX_BYTES = 4_000_000_000


def read_past(path: Path) -> list[PastRun]:
    """The runs of a file: AIPerf's ``profile_export.jsonl``, a detailed result of vLLM's bench, or GuideLLM's ``benchmarks.json``.

    Raises:
        InputError: none of these, or damaged; one line says where.
    """
    source = path / "profile_export.jsonl" if path.is_dir() else path
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
    if is_guidellm(document):
        return [_checked(run, source) for run in guidellm.read(source, document)]
    raise InputError(f"{source}: is no file with single requests; give AIPerf's profile_export.jsonl, vLLM's or GuideLLM's JSON")


def _checked(run: PastRun, path: Path) -> PastRun:
    if not run.requests:
        raise InputError(f"{path}: holds no request; give a run that sent something")
    return run
