"""Sessions of coding agents as WEKA records them (``kv-cache-tester``): a session a line, with the
block ids of every prompt.

A prompt names all of its whole blocks again in every request, and goes on where the one before
ended: so a list is read from the byte on at which it differs from the one before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from tonnage.errors import InputError
from tonnage.spec.recorded_sessions import (
    Call,
    RecordedSessions,
    Session,
    behind,
    recorded_of,
    same_beginning,
)
from tonnage.units import NS_PER_S

_IDS = re.compile(rb'"hash_ids":\s*\[([^\]]*)\]')
_TOOL = "tool_result"


def recognises(document: Any) -> bool:
    """Whether a first line is one of these sessions."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("requests"), list)
        and "block_size" in document
    )


def read(text: bytes, path: str, where: str) -> RecordedSessions:
    """All sessions of a file. Raises InputError: a line that is none, or sessions whose blocks
    differ in size.
    """
    sizes: set[int] = set()
    scopes: set[str] = set()

    def sessions() -> Iterator[Session]:
        for line, row in enumerate(text.splitlines(), start=1):
            if row.strip():
                yield _session(row, f"{where}: {path}:{line}", sizes, scopes)

    first = json.loads(
        _IDS.sub(b'"hash_ids":0', next(row for row in text.splitlines() if row.strip()))
    )
    recorded_sessions = recorded_of(
        path,
        sessions(),
        int(first["block_size"]),
        common=first.get("hash_id_scope", "local") != "local",
    )
    if len(sizes) > 1 or len(scopes) > 1:
        raise InputError(
            f"{where}: {path}: sessions with blocks of different sizes or scopes; give a file for"
            " each"
        )
    return recorded_sessions


def _session(row: bytes, at: str, sizes: set[int], scopes: set[str]) -> Session:
    lists: list[bytes] = []

    def kept(match: re.Match[bytes]) -> bytes:
        lists.append(match[1])
        return b'"hash_ids":%d' % (len(lists) - 1)

    try:
        document = json.loads(_IDS.sub(kept, row))
        sizes.add(int(document["block_size"]))
        scopes.add(str(document.get("hash_id_scope", "local")))
        calls: list[Call] = []
        _Chains(calls=calls, ids=_parsed(lists)).add(document["requests"], None, 0.0)
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        reason = f"has no {fault}" if isinstance(fault, KeyError) else f"{fault}"
        raise InputError(
            f"{at}: is not a session ({reason}); each line is one with requests that have t, in,"
            " out and hash_ids, and a block_size"
        ) from None
    if not calls:
        raise InputError(f"{at}: is a session without requests")
    return _in_order(calls)


def _parsed(lists: list[bytes]) -> list[Any]:
    """Lists of ids from their text; what a list begins with like the one before is not parsed
    again.
    """
    id_lists: list[Any] = []
    before, ids = b"", np.zeros(0, np.int64)
    for text in lists:
        same = same_beginning(np.frombuffer(before, np.uint8), np.frombuffer(text, np.uint8))
        cut = len(text) if same == len(text) == len(before) else text.rfind(b",", 0, same) + 1
        shared_count = len(ids) if cut == len(text) else text.count(b",", 0, cut)
        further = (
            [int(identifier) for identifier in text[cut:].split(b",")] if text[cut:].strip() else []
        )
        before, ids = text, np.append(ids[:shared_count], np.array(further, np.int64))
        id_lists.append(ids)
    return id_lists


@dataclass(slots=True, kw_only=True)
class _Chains:
    """The requests of a session and of its sub-agents: in each chain one waits for the other."""

    calls: list[Call]  # calls that were found
    ids: list[Any]  # of all lists of the session
    agents: int = 0  # how many sub-agents there are

    def add(self, requests: list[Any], parent: int | None, offset_s: float) -> None:
        """A chain: that of the session, or of a sub-agent that begins behind the request at place
        ``parent``, so long after the session.
        """
        agent, before = self.agents, parent
        took = [
            float(request["api_time"])
            for request in requests
            if request.get("api_time") is not None
        ]
        usual = median(took) if took else 0.0
        for recorded_request in requests:
            at = offset_s + float(recorded_request["t"])
            if recorded_request["type"] == "subagent":
                self.agents += 1
                self.add(recorded_request["requests"], before, at)
                continue
            call = Call(
                isl=int(recorded_request["in"]),
                osl=max(int(recorded_request["out"]), 1),
                at_ns=round(at * NS_PER_S),
                took_ns=round(
                    (
                        usual
                        if recorded_request.get("api_time") is None
                        else float(recorded_request["api_time"])
                    )
                    * NS_PER_S
                ),
                waits=() if before is None else (before,),
                pause_ns=round(
                    max(self._pause(recorded_request, at, before, first=before == parent), 0.0)
                    * NS_PER_S
                ),
                tool=_TOOL in recorded_request.get("input_types", ()),
                agent=agent,
                ids=self.ids[recorded_request["hash_ids"]],
            )
            if call.isl < 1:
                raise ValueError("a prompt of no tokens")
            self.calls.append(call)
            before = len(self.calls) - 1

    def _pause(self, turn: Any, at: float, before: int | None, *, first: bool) -> float:
        """Seconds since the request before; not longer than since that was sent, where nobody knows
        how long its answer took.
        """
        if before is None:
            return 0.0
        sent, took = (self.calls[before].at_ns / NS_PER_S, self.calls[before].took_ns / NS_PER_S)
        think_time = None if first else turn.get("think_time")
        return at - sent - took if think_time is None else min(float(think_time), at - sent)


def _in_order(calls: list[Call]) -> Session:
    """The calls in the order in which they were sent, each behind the calls that it waits for; a
    sub-agent before everything begins behind the first.
    """
    order = sorted(range(len(calls)), key=lambda place: (calls[place].at_ns, place))
    # a recorded moment may be before the one that it waits for
    ends = behind(order, lambda place: calls[place].waits)
    number = {place: new for new, place in enumerate(ends)}
    ordered: list[Call] = []
    for place in ends:
        call = calls[place]
        call.waits = tuple(number[wait] for wait in call.waits) or ((0,) if ordered else ())
        ordered.append(call)
    return Session(calls=ordered)
