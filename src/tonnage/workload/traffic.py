"""Traffic that was recorded: requests with their moments and lengths, and what the file says of
shared prefixes.

It is read from a trace (``spec.recording`` says the formats) or from a run folder, whose requests
are those of its ``requests.parquet``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tonnage.csv_file import named_rows
from tonnage.errors import InputError
from tonnage.spec.lengths import number
from tonnage.spec.recording import BURSTGPT, Recording, read_recording
from tonnage.spec.sessions import block_tokens

if TYPE_CHECKING:
    from tonnage.spec.recorded_sessions import RecordedSessions


# Columns of a CSV that say which conversation a request belongs to; BurstGPT's is the first
SESSION_COLUMNS = ("session id", "session_id", "conversation_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests as they came."""

    recording: Recording  # moments and lengths
    # for each request the ids of its prompt's blocks; empty where the file has none
    blocks: tuple[tuple[int, ...], ...] = ()
    # for each request the conversation that it belongs to; empty where the file has none
    sessions: tuple[str, ...] = ()
    # the sessions, where the file has them with what each request waited for; None where it has not
    recorded: RecordedSessions | None = None
    # prompt tokens that a server said it had in its cache, over all requests; None where nobody
    # said
    cached_tokens: int | None = None


def read_traffic(path: str, where: str, unit: str | None = None) -> Traffic:
    """A trace (``unit`` as in ``read_recording``), or the requests of a run folder.

    Raises:
        InputError: neither of these, or a trace that says no lengths; every bad line is named.
    """
    if isdir(path):
        return _of_run(Path(path), where)
    recording = read_recording(path, where, unit)
    if not recording.isl:
        raise InputError(
            f"{where}: {path} says no lengths; it needs a column for prompt tokens and one for"
            " output tokens"
        )
    if path.lower().endswith((".jsonl", ".json")):
        return Traffic(recording=recording, blocks=recording.blocks)
    return Traffic(recording=recording, sessions=_sessions(path, where))


def _of_run(folder: Path, where: str) -> Traffic:
    """The requests of a run folder that were due at a moment; in a closed loop the moments are
    those of sending.
    """
    from tonnage.results.store import read_run

    run = read_run(folder).requests
    due = np.where(run.due_ns >= 0, run.due_ns, run.sent_ns)
    rows = np.flatnonzero((due >= 0) & (run.isl >= 1) & (run.osl >= 1))
    rows = rows[np.argsort(due[rows], kind="stable")]
    if len(rows) < 2 or due[rows[0]] == due[rows[-1]]:
        raise InputError(
            f"{where}: {folder}: {len(rows)} of its requests have a moment and lengths; traffic has"
            " two or more, at times that differ"
        )
    moments, isl, osl = (
        tuple(int(v) for v in column)
        for column in (due[rows] - due[rows[0]], run.isl[rows], run.osl[rows])
    )
    recording = Recording(due_ns=moments, isl=isl, osl=osl, source=str(folder))
    cached = int(run.cached_tokens[rows].clip(min=0).sum())
    return Traffic(recording=recording, cached_tokens=cached or None)


def _sessions(path: str, where: str) -> tuple[str, ...]:
    """The conversation of each request that was answered; empty where the file names none."""
    rows = [
        row
        for _, row in named_rows(path, where, ("timestamp",))
        if number(row.get(BURSTGPT[1], "1")) != 0
    ]
    name = next((column for column in SESSION_COLUMNS if rows and column in rows[0]), None)
    return () if name is None else tuple(row[name] for row in rows)


# What prompts share: blocks of tokens that an earlier prompt had too, and what a cache without end
# would find. A file with ``hash_ids`` (Mooncake's format) names the blocks of each prompt, so that
# the hit rate of a cache that never forgets can be computed exactly: it holds a tree of all
# prefixes, and finds a block where an earlier prompt had the same ids from its beginning on. A file
# that names sessions alone says which requests continue a conversation, and the most that a cache
# could find if each turn began with the whole turn before.


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """The content that the prompts of a file share."""

    by: Literal["blocks", "sessions"]  # what says so, "blocks" or "sessions"
    # tokens of a block; None where no size fits all prompts, or the file has sessions
    block_tokens: int | None = None
    blocks: int | None = None  # blocks of all prompts together; None with sessions, as the next
    seen_blocks: float | None = None  # share of them that an earlier prompt had anywhere
    # share of them that a cache without end finds: those before the first one that is new
    hit_blocks: float | None = None
    # the same in prompt tokens; with sessions the most that it can be; None where the size of a
    # block is not known
    hit_tokens: float | None = None
    # share of the requests of which it finds anything; with sessions, of the ones that continue one
    requests_with_hits: float = 0.0
    sessions: int | None = None  # how many there are; None with blocks
    turns_per_session: float | None = None  # requests of a session, on average; None with blocks

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name; unknown values are null."""
        return asdict(self)


def sharing(traffic: Traffic) -> Sharing | None:
    """Measure what the prompts share; None where the file does not say."""
    if traffic.blocks:
        return _of_blocks(traffic.blocks, traffic.recording.isl)
    return _of_sessions(traffic) if traffic.sessions else None


def _of_blocks(blocks: Sequence[Sequence[int]], isl: Sequence[int]) -> Sharing | None:
    known_ids: set[int] = set()
    tree: dict[tuple[int, int], int] = {}
    seen_before = hits = hit_tokens = with_hits = 0
    size = block_tokens(blocks, isl)
    for ids, tokens in zip(blocks, isl, strict=True):
        matched = _known_prefix(tree, ids)
        seen_before += sum(identifier in known_ids for identifier in ids)
        hits += matched
        with_hits += matched > 0
        hit_tokens += min(matched * (size or 0), tokens)
        known_ids.update(ids)
    count = sum(map(len, blocks))
    return Sharing(
        by="blocks",
        block_tokens=size,
        blocks=count,
        seen_blocks=seen_before / count,
        hit_blocks=hits / count,
        hit_tokens=hit_tokens / sum(isl) if size else None,
        requests_with_hits=with_hits / len(blocks),
    )


def _known_prefix(tree: dict[tuple[int, int], int], ids: Sequence[int]) -> int:
    """How many blocks of a prompt the tree of prefixes (by prefix and next id; 0 is empty) holds;
    afterwards it holds all of them.
    """
    prefix = matched = 0
    for place, identifier in enumerate(ids):
        longer = tree.get((prefix, identifier))
        if longer is None:
            longer = tree[prefix, identifier] = len(tree) + 1
        else:
            matched = place + 1
        prefix = longer
    return matched


def _of_sessions(traffic: Traffic) -> Sharing:
    """Each turn is taken to begin with the prompt and the answer of the turn before, wherever it is
    long enough for that.
    """
    before: dict[str, int] = {}
    shared = continued = 0
    recording = traffic.recording
    for session, isl, osl in zip(traffic.sessions, recording.isl, recording.osl, strict=True):
        if session and session in before:
            continued += 1
            shared += before[session] if before[session] <= isl else 0
        before[session] = isl + osl
    count = len(recording)
    named = len(before) - ("" in before)
    turns = sum(1 for session in traffic.sessions if session)
    return Sharing(
        by="sessions",
        hit_tokens=shared / sum(recording.isl),
        requests_with_hits=continued / count,
        sessions=named,
        turns_per_session=turns / named if named else None,
    )
