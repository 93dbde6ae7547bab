"""Recorded traffic from any file that people have: traces, run folders, and what load clients kept of single requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.csv_file import read_text
from tonnage.errors import InputError
from tonnage.spec.recording import Recording, read_recording

if TYPE_CHECKING:
    from tonnage.bench.imports import PastRun
    from tonnage.workload.traffic import Traffic

KEYS = (
    {"metadata", "metrics"},
    {"metadata", "error"},
    {"experiments", "service_kind"},
    {"num_prompts", "mean_ttft_ms"},
    {"benchmarks"},
)
"""What a record of AIPerf has, one of a failed request, and the files of GenAI-Perf, vLLM's bench and GuideLLM."""


def recording_from(path: str, where: str) -> Recording:
    """A trace in one of the formats of ``spec.recording``, a run folder, or a file of a load client.

    Raises:
        InputError: none of these; every bad line is named.
    """
    if Path(path).is_dir() and not _is_clients(path, where):
        return traffic_from(path, where).recording
    return _of_client(path, where) if _is_clients(path, where) else read_recording(path, where)


def traffic_from(path: str, where: str) -> Traffic:
    """The same with what the file says of shared prefixes; it has lengths.

    Raises:
        InputError: as above, or no lengths.
    """
    from tonnage.workload.traffic import Traffic, read_traffic

    if not _is_clients(path, where):
        return read_traffic(path, where)
    recording = _of_client(path, where)
    if not recording.isl:
        raise InputError(f"{where}: {path} holds texts and no counts of prompt tokens; import it with a tokenizer and name the run folder")
    return Traffic(recording=recording)


def _is_clients(path: str, where: str) -> bool:
    """Whether a file, or a folder, is what a load client kept of single requests.

    Raises:
        InputError: it holds prompts alone, and no times.
    """
    from tonnage.bench.imports import EXPORTS

    if Path(path).is_dir():
        return any((Path(path) / name).is_file() for name in EXPORTS)
    if not path.lower().endswith((".json", ".jsonl")):
        return False
    document = _first_value(read_text(path, where))
    if isinstance(document, dict) and isinstance(document.get("data"), list) and "payloads" in str(document["data"][:1]):
        raise InputError(f"{where}: {path} holds prompts and no times; name the profile_export file that the tool wrote for the same run")
    return isinstance(document, dict) and any(keys <= document.keys() for keys in KEYS)


def _first_value(text: str) -> Any:
    """The JSON value of a file, or of its first line that is not empty; None where neither is JSON."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    for part in (first, text):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    return None


def _of_client(path: str, where: str) -> Recording:
    """The requests of the one run of a load client's file that were answered, at the moments at which they were due.

    Raises:
        InputError: several runs, or fewer than two requests.
    """
    from tonnage.bench.imports import read_past

    runs = read_past(Path(path))
    if len(runs) > 1:
        raise InputError(f"{where}: {path} holds {len(runs)} runs; a trace is one: give a file with a single run")
    return _recorded(runs[0], path, where)


def _recorded(run: PastRun, path: str, where: str) -> Recording:
    answered = sorted((one for one in run.requests if not one.outcome and one.osl >= 1), key=lambda one: one.due_ns)
    if len(answered) < 2 or answered[0].due_ns == answered[-1].due_ns:
        raise InputError(f"{where}: {path} holds {len(answered)} answered requests; a trace has two or more, at times that differ")
    counted = all(one.isl >= 1 for one in answered)
    return Recording(
        due_ns=tuple(one.due_ns - answered[0].due_ns for one in answered),
        isl=tuple(one.isl for one in answered) if counted else (),
        osl=tuple(one.osl for one in answered) if counted else (),
        source=path,
        failed=len(run.requests) - len(answered),
    )
