"""Recorded sessions, read from a file of any form, which its first line tells; a module per form.

They are WEKA's, the agentic forms of Mooncake's lines (Dynamo, AIPerf), and OpenTelemetry spans.
"""

from __future__ import annotations

import gzip
import json
import os
from functools import lru_cache
from os.path import isdir
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.sessions import mooncake, otel, weka
from tonnage.spec.recorded_sessions import RecordedSessions

FORMS = (weka, mooncake, otel)
ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
MOST_BYTES = 4_000_000_000


def read_sessions(path: str, where: str) -> RecordedSessions | None:
    """The sessions of a file; None where it is of no such form.

    Raises:
        InputError: it cannot be read, or what it says is not possible; with the place.
    """
    if not path.lower().endswith(ENDINGS) or isdir(path):
        return None
    if not os.path.exists(path):
        raise InputError(f"{where}: there is no file {path}")
    state = os.stat(path)
    return _read(path, where, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=4)
def _read(path: str, where: str, _: tuple[int, int]) -> RecordedSessions | None:
    """The same, once for each state of the file."""
    first = _first(path, where)
    form = next((form for form in FORMS if form.recognises(first)), None)
    if form is None:
        return None
    recorded_sessions: RecordedSessions = form.read(_bytes(path, where), path, where)
    if not len(recorded_sessions):
        raise InputError(f"{where}: {path} holds no session with a request")
    return recorded_sessions


def _first(path: str, where: str) -> Any:
    """The JSON value of the first line, or of a whole document that has several; None where there
    is none.
    """
    try:
        with _opened(path) as file:
            line = next((line for line in file if line.strip()), b"")
    except (OSError, EOFError) as fault:
        raise InputError(f"{where}: {path}: cannot be read ({fault})") from None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        text = line.strip()
    if text not in (b"{", b"["):
        return None
    try:
        return json.loads(_bytes(path, where))
    except (ValueError, RecursionError):
        return None


def _bytes(path: str, where: str) -> bytes:
    try:
        with _opened(path) as file:
            content: bytes = file.read(MOST_BYTES + 1)
    except (OSError, EOFError) as fault:
        raise InputError(f"{where}: {path}: cannot be read ({fault})") from None
    if len(content) > MOST_BYTES:
        raise InputError(
            f"{where}: {path}: is larger than {MOST_BYTES / 1e9:g} GB; give a part of it"
        )
    return content


def _opened(path: str) -> Any:
    # the caller closes it
    return gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb")
