"""Traffic that was recorded: requests with their moments and lengths, and what the file says of shared prefixes.

It is read from a trace (``spec.recording`` says the formats) or from a run folder, whose requests are those of its
``requests.parquet``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.csv_file import named_rows
from tonnage.errors import InputError
from tonnage.spec.lengths import number
from tonnage.spec.recording import BURSTGPT, Recording, read_recording

if TYPE_CHECKING:
    from tonnage.spec.recorded_sessions import RecordedSessions

SESSION_COLUMNS = ("session id", "session_id", "conversation_id")
"""Columns of a CSV that say which conversation a request belongs to; BurstGPT's is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests as they came.

    Attributes:
        recording: moments and lengths.
        blocks: for each request the ids of its prompt's blocks; empty where the file has none.
        sessions: for each request the conversation that it belongs to; empty where the file has none.
        recorded: the sessions, where the file has them with what each request waited for; None where it has not.
        cached_tokens: prompt tokens that a server said it had in its cache, over all requests; None where nobody said.
    """

    recording: Recording
    blocks: tuple[tuple[int, ...], ...] = ()
    sessions: tuple[str, ...] = ()
    recorded: RecordedSessions | None = None
    cached_tokens: int | None = None


def read_traffic(path: str, where: str) -> Traffic:
    """A trace, or the requests of a run folder.

    Raises:
        InputError: neither of these, or a trace that says no lengths; every bad line is named.
    """
    if Path(path).is_dir():
        return _of_run(Path(path), where)
    recording = read_recording(path, where)
    if not recording.isl:
        raise InputError(f"{where}: {path} says no lengths; it needs a column for prompt tokens and one for output tokens")
    if path.lower().endswith((".jsonl", ".json")):
        return Traffic(recording=recording, blocks=recording.blocks)
    return Traffic(recording=recording, sessions=_sessions(path, where))


def _of_run(folder: Path, where: str) -> Traffic:
    """The requests of a run folder that were due at a moment; in a closed loop the moments are those of sending."""
    import numpy as np

    from tonnage.results.store import read_run

    run = read_run(folder).requests
    due = np.where(run.due_ns >= 0, run.due_ns, run.sent_ns)
    rows = np.flatnonzero((due >= 0) & (run.isl >= 1) & (run.osl >= 1))
    rows = rows[np.argsort(due[rows], kind="stable")]
    if len(rows) < 2 or due[rows[0]] == due[rows[-1]]:
        raise InputError(
            f"{where}: {folder}: {len(rows)} of its requests have a moment and lengths; traffic has two or more, at times that differ"
        )
    moments, isl, osl = (tuple(int(v) for v in column) for column in (due[rows] - due[rows[0]], run.isl[rows], run.osl[rows]))
    recording = Recording(due_ns=moments, isl=isl, osl=osl, source=str(folder))
    cached = int(run.cached_tokens[rows].clip(min=0).sum())
    return Traffic(recording=recording, cached_tokens=cached or None)


def _sessions(path: str, where: str) -> tuple[str, ...]:
    """The conversation of each request that was answered; empty where the file names none."""
    rows = [row for _, row in named_rows(path, where, ("timestamp",)) if number(row.get(BURSTGPT[1], "1")) != 0]
    name = next((column for column in SESSION_COLUMNS if rows and column in rows[0]), None)
    return () if name is None else tuple(row[name] for row in rows)
