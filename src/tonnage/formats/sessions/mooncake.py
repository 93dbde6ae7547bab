"""Mooncake's lines with sessions: the agentic form that Dynamo converts its request traces to, and
AIPerf's session files.

Dynamo's lines name the requests that each one waits for (``request_id``, ``wait_for``), the delay
after them (``delay``, ``tool_wait_ms``), and whole prompts. AIPerf's are turns of a session:
``input_length`` counts what a turn adds to the history, ``hash_ids`` name the blocks of that, and
the first turn's may be those of other sessions. Lines without sessions are a trace
(``spec/recording.py``).

Sources: ai-dynamo/dynamo docs/agents/agent-simulation.md; ai-dynamo/aiperf
docs/tutorials/agentic-code-generator.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tonnage.errors import InputError
from tonnage.spec.recorded_sessions import Call, RecordedSessions, Session, behind, recorded_of
from tonnage.spec.sessions import ENDLESS, block_tokens

NS_PER_MS = 1_000_000
Row = Mapping[str, Any]


def recognises(document: Any) -> bool:
    """Whether a first line is one of these."""
    return (
        isinstance(document, dict)
        and ("session_id" in document or "wait_for" in document)
        and "output_length" in document
    )


def read(text: bytes, path: str, where: str) -> RecordedSessions:
    """All sessions of a file.

    Raises:
        InputError: a line that is none, one that waits for a request that is not there, or blocks
            whose size cannot be told.
    """
    rows = []
    for line, row in enumerate(text.splitlines(), start=1):
        if row.strip():
            rows.append(_row(row, f"{where}: {path}:{line}"))
    whole = any("request_id" in row for row in rows)
    groups = _joined(rows, f"{where}: {path}") if whole else _by_session(rows)
    named = [
        row
        for row in rows
        if row.get("hash_ids") and (whole or row is groups[row["session_id"]][0])
    ]
    size = (
        block_tokens([row["hash_ids"] for row in named], [row["input_length"] for row in named])
        if named
        else 0
    )
    if size is None:
        raise InputError(
            f"{where}: {path}: no power of two from 16 to 8,192 tokens is the size of a block by"
            " which every prompt has as many hash_ids"
        )
    build = _graph if whole else _turns
    return recorded_of(path, (build(group) for group in groups.values()), size, common=True)


def _row(text: bytes, at: str) -> Row:
    try:
        row = json.loads(text)
        if not isinstance(row, dict) or "input_length" not in row:
            texts = isinstance(row, dict) and ("messages" in row or "turns" in row)
            raise ValueError("texts, whose tokens nobody has counted" if texts else "no request")
        lengths = [row["input_length"], row["output_length"]]
        if (
            any(
                isinstance(length, bool) or not isinstance(length, int) or length < 0
                for length in lengths
            )
            or max(lengths) > 10**9
        ):
            raise ValueError("input_length and output_length are not numbers of tokens")
        ids = row.get("hash_ids") or []
        if not isinstance(ids, list) or any(
            isinstance(identifier, bool) or not isinstance(identifier, int) for identifier in ids
        ):
            raise ValueError("hash_ids is not a list of whole numbers")
        for name in ("timestamp", "delay", "tool_wait_ms"):
            if not 0 <= float(row.get(name) or 0) < 1e15:
                raise ValueError(f"{name} is not a time in milliseconds")
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        reason = f"it has no {fault}" if isinstance(fault, KeyError) else f"{fault}"
        raise InputError(
            f"{at}: no request of a session ({reason}); give session_id, input_length and"
            " output_length in tokens"
        ) from None
    return row


def _by_session(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The lines of each session, in the order of the file."""
    rows_by_session: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_session.setdefault(row.get("session_id", ""), []).append(row)
    return rows_by_session


def _turns(rows: Sequence[Row]) -> Session:
    """A session whose turns add to its history."""
    calls: list[Call] = []
    at = history = 0
    for place, row in enumerate(rows):
        pause = round(float(row.get("delay") or 0) * NS_PER_MS) if place else 0
        at += pause
        new, out = max(int(row["input_length"]), 1), max(int(row["output_length"]), 1)
        ids = np.array(row["hash_ids"], np.int64) if place == 0 and row.get("hash_ids") else None
        before = place - 1
        call = Call(
            isl=history + new,
            osl=out,
            at_ns=at,
            pause_ns=pause,
            tool=place > 0,
            ids=ids,
            continues=before,
            shared=ENDLESS,
        )
        call.waits = (before,) if place else ()
        calls.append(call)
        history += new + out
    begins = rows[0].get("timestamp")
    return Session(
        calls=calls, begins_ns=None if begins is None else round(float(begins) * NS_PER_MS)
    )


def _joined(rows: Sequence[Row], where: str) -> dict[str, list[Row]]:
    """The lines of each session: those of one trajectory, and of the trajectories that wait for
    it.
    """
    rows_by_request = {row["request_id"]: row for row in rows if "request_id" in row}
    owner: dict[str, str] = {}

    def root(name: str) -> str:
        while owner.setdefault(name, name) != name:
            name = owner[name]
        return name

    for row in rows:
        session_id = row.get("session_id", row.get("request_id", ""))
        for before in row.get("wait_for") or ():
            if before not in rows_by_request:
                raise InputError(
                    f"{where}: request {row.get('request_id')} waits for '{before}', which is not"
                    " in the file"
                )
            owner[root(session_id)] = root(rows_by_request[before].get("session_id", before))
    rows_by_root: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_root.setdefault(root(row.get("session_id", row.get("request_id", ""))), []).append(
            row
        )
    return rows_by_root


def _graph(rows: Sequence[Row]) -> Session:
    """A session whose requests say which others they wait for; one that says none waits for the one
    before it of its trajectory.
    """
    names = {row["request_id"]: at for at, row in enumerate(rows) if "request_id" in row}
    begins = min(
        (float(row["timestamp"]) for row in rows if row.get("timestamp") is not None), default=None
    )
    sent_order = sorted(range(len(rows)), key=lambda at: float(rows[at].get("timestamp") or 0))
    order = [
        rows[at]
        for at in behind(
            sent_order, lambda at: [names[before] for before in rows[at].get("wait_for") or ()]
        )
    ]
    place = {row["request_id"]: number for number, row in enumerate(order) if "request_id" in row}
    last: dict[str, int] = {}
    agents: dict[str, int] = {}
    calls: list[Call] = []
    for number, row in enumerate(order):
        trajectory = row.get("session_id", "")
        waits = tuple(
            sorted(
                place[request_id]
                for request_id in row.get("wait_for") or ()
                if place[request_id] < number
            )
        )
        tool, delay = (
            round(float(row.get(name) or 0) * NS_PER_MS) for name in ("tool_wait_ms", "delay")
        )
        sent = (
            round((float(row["timestamp"]) - (begins or 0.0)) * NS_PER_MS)
            if row.get("timestamp") is not None
            else None
        )
        if not waits and number:
            waits = (last.get(trajectory, 0),)
            delay = max((sent or 0) - calls[waits[0]].at_ns, 0)
        pause = tool + delay
        at = max((calls[wait].at_ns for wait in waits), default=0) + pause if sent is None else sent
        agent = agents.setdefault(trajectory, len(agents))
        ids = np.array(row["hash_ids"], np.int64) if row.get("hash_ids") else None
        isl, osl = max(int(row["input_length"]), 1), max(int(row["output_length"]), 1)
        calls.append(
            Call(
                isl=isl,
                osl=osl,
                at_ns=at,
                waits=waits,
                pause_ns=pause,
                tool=tool > 0,
                agent=agent,
                ids=ids,
            )
        )
        last[trajectory] = number
    return Session(calls=calls, begins_ns=None if begins is None else round(begins * NS_PER_MS))
