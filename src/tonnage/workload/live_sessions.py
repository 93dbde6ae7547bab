"""Recorded sessions described: what a turn adds, what a cache without end would find, the pauses,
and how much a live session keeps.

And a few of them that stand for all, by means that are nearest to the means of the whole file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.units import NS_PER_S
from tonnage.workload.burstiness import Spread, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.recorded_sessions import RecordedSessions


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSessions:
    """Sessions, described."""

    # sessions, sub_agents: how many there are
    sessions: int
    sub_agents: int
    sub_agent_requests: float  # share of the requests that are a sub-agent's
    requests: Spread  # of a session
    first_prompt: Spread  # tokens of a session's first prompt
    new_tokens: Spread  # tokens of a prompt that a cache without end would have to compute
    hit_tokens: float  # share of the prompt tokens that it would find
    requests_with_hits: float  # share of the requests of which it finds anything
    # think_s, tool_s: pauses of people and of tools, in seconds; None where there are none
    think_s: Spread | None
    tool_s: Spread | None
    session_s: Spread  # from a session's first request to its last answer, in seconds
    # of the context that a session keeps while it lives: the mean over its time, of each session
    kept_tokens: Spread
    peak_tokens: Spread  # the longest context of each session

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name, spreads with their statistics; lengths in tokens
        and times in seconds.
        """
        values = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: value.to_json() if isinstance(value, Spread) else value
            for name, value in values.items()
        }


def live_sessions(recorded: RecordedSessions) -> LiveSessions:
    """Describe the sessions of a file."""
    cached = recorded.found_tokens()
    follows = recorded.pause_ns >= 0
    pauses = recorded.pause_ns / NS_PER_S
    think, tool = pauses[follows & ~recorded.tool], pauses[follows & recorded.tool]
    kept_tokens = _context_tokens(recorded)
    context = recorded.isl + recorded.osl
    begins = recorded.starts[:-1]
    sub = recorded.agent > 0
    return LiveSessions(
        sessions=len(recorded),
        sub_agents=len(
            np.unique(np.column_stack([recorded.session[sub], recorded.agent[sub]]), axis=0)
        ),
        sub_agent_requests=float(sub.mean()),
        requests=spread(np.diff(recorded.starts)),
        first_prompt=spread(recorded.isl[begins]),
        new_tokens=spread(recorded.isl - cached),
        hit_tokens=float(cached.sum() / recorded.isl.sum()),
        requests_with_hits=float((cached > 0).mean()),
        think_s=spread(think) if len(think) else None,
        tool_s=spread(tool) if len(tool) else None,
        session_s=spread(recorded.seconds),
        kept_tokens=spread(kept_tokens),
        peak_tokens=spread(np.maximum.reduceat(context, begins)),
    )


def _context_tokens(recorded: RecordedSessions) -> NDArray[np.float64]:
    """Tokens of the context of each session's own agent, over its time: each request's until the
    next is sent, or its answer ends.
    """
    main_rows = np.flatnonzero(recorded.agent == 0)
    session, at = recorded.session[main_rows], recorded.at_ns[main_rows]
    following = np.append(session[1:] == session[:-1], False)
    until = np.where(
        following, np.append(at[1:], 0), at + np.maximum(recorded.took_ns[main_rows], 1)
    )
    weight = np.maximum(until - at, 1).astype(np.float64)
    tokens = (recorded.isl + recorded.osl)[main_rows]
    count = len(recorded)
    total = np.bincount(session, weight, count)
    return np.asarray(
        np.bincount(session, weight * tokens, count) / np.where(total > 0, total, 1.0)
    )


TOLERANCE = 0.05  # Relative error of each mean up to which some of the sessions stand for all

FEWEST = 8
DRAWS = 4_000  # Choices of sessions that are compared, for each number of them

# Pauses count up to this where means are compared: a few that last a day would decide alone
LONG_PAUSE_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Sessions that stand for all."""

    recorded: RecordedSessions  # those sessions
    of: int  # how many there were
    errors: dict[str, float]  # relative error of each mean, by name


def chosen_sessions(recorded: RecordedSessions) -> Chosen:
    """As few sessions as have means within 5 % of those of all; or all."""
    sums = _sums(recorded)
    names, columns = list(sums), np.array(list(sums.values()))
    whole = _means(columns.sum(axis=1))
    rng, count = np.random.default_rng(0), min(FEWEST, len(recorded))
    while count < len(recorded):
        tried = np.argsort(rng.random((DRAWS, len(recorded))), axis=1)[:, :count]
        errors = np.abs(_means(columns[:, tried].sum(axis=2)).T / whole - 1)
        best = int(errors.max(axis=1).argmin())
        if errors[best].max() <= TOLERANCE:
            sessions = np.sort(tried[best])
            mine = dict(zip(names[1:], errors[best].tolist(), strict=True))
            return Chosen(recorded=_only(recorded, sessions), of=len(recorded), errors=mine)
        count = min(2 * count, len(recorded))
    return Chosen(recorded=recorded, of=len(recorded), errors=dict.fromkeys(names[1:], 0.0))


def _sums(recorded: RecordedSessions) -> dict[str, NDArray[np.float64]]:
    """For each session, its requests and sums over them."""
    pauses = np.clip(recorded.pause_ns / NS_PER_S, 0, LONG_PAUSE_S)
    new = recorded.isl - recorded.found_tokens()
    values = {
        "requests": np.ones(len(recorded.isl)),
        "prompt tokens": recorded.isl,
        "output tokens": recorded.osl,
        "new tokens": new,
        "attention of the new tokens": new * (recorded.isl - new / 2),
        "pauses": pauses,
    }
    begins = recorded.starts[:-1]
    sums = {
        name: np.add.reduceat(column.astype(np.float64), begins) for name, column in values.items()
    }
    return {"sessions": np.ones(len(recorded)), **sums}


def _means(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Requests of a session, and the means of a request; from sums whose first is the number of
    sessions and second of requests.
    """
    return np.concatenate([sums[1:2] / sums[0], np.maximum(sums[2:], 1e-9) / sums[1]])


def _only(recorded: RecordedSessions, sessions: NDArray[np.int64]) -> RecordedSessions:
    """Select some sessions, each once."""
    from tonnage.spec.sessions import gathered

    starts, rows = gathered(recorded.starts, sessions)
    columns = {
        name: getattr(recorded, name)[rows]
        for name in ("isl", "osl", "at_ns", "took_ns", "pause_ns", "tool", "agent")
    }
    begins = (
        None
        if recorded.begins_ns is None
        else recorded.begins_ns[sessions] - recorded.begins_ns[sessions].min()
    )
    contents, follows = recorded.contents.part(rows), recorded.follows.part(rows)
    pieces = np.unique(contents.piece)
    contents = replace(contents, piece=np.searchsorted(pieces, contents.piece))
    common = int(np.searchsorted(pieces, recorded.common))
    return replace(
        recorded,
        **columns,
        starts=starts,
        contents=contents,
        follows=follows,
        common=common,
        begins_ns=begins,
    )


BLOCK = 64  # Tokens of a written block where the file named none


def written(recorded: RecordedSessions) -> str:
    """Sessions in WEKA's form, a line each, as ``formats/sessions/weka.py`` reads them.

    Each agent of a session is written as a chain: what waited for several others waits for the last
    of the same agent.
    """
    size = recorded.block_tokens or BLOCK
    starts, piece = recorded.contents.starts.tolist(), recorded.contents.piece.tolist()
    until = np.minimum(
        recorded.contents.until, np.repeat(recorded.isl, np.diff(recorded.contents.starts))
    ).tolist()
    base: dict[int, int] = {}
    longest = int(recorded.isl.max()) // size + 1
    lines = []
    for number, (first, last) in enumerate(
        zip(recorded.starts[:-1].tolist(), recorded.starts[1:].tolist(), strict=True)
    ):
        agents: dict[int, list[dict[str, Any]]] = {}
        begins: dict[int, int] = {}
        for row in range(first, last):
            ids: list[int] = []
            for place in range(starts[row], starts[row + 1]):
                first_id = base.setdefault(piece[place], len(base) * longest)
                ids += range(first_id + len(ids), first_id + until[place] // size)
            agent = int(recorded.agent[row])
            begin = begins.setdefault(agent, int(recorded.at_ns[row]) if agent else 0)
            request = {
                "t": (int(recorded.at_ns[row]) - begin) / NS_PER_S,
                "type": "n",
                "in": int(recorded.isl[row]),
                "out": int(recorded.osl[row]),
                "hash_ids": ids,
                "input_types": ["tool_result" if recorded.tool[row] else "text"],
                "api_time": int(recorded.took_ns[row]) / NS_PER_S,
                "think_time": max(int(recorded.pause_ns[row]), 0) / NS_PER_S,
            }
            agents.setdefault(agent, []).append(request)
        own_requests = agents.pop(0, None) or agents.pop(min(agents))
        for agent, requests in agents.items():
            at = begins[agent] / NS_PER_S
            place = sum(own_request["t"] <= at for own_request in own_requests)
            own_requests.insert(place, {"t": at, "type": "subagent", "requests": requests})
        scope = "global" if recorded.common else "local"
        lines.append(
            json.dumps(
                {
                    "id": f"session-{number}",
                    "block_size": size,
                    "hash_id_scope": scope,
                    "requests": own_requests,
                }
            )
        )
    return "\n".join(lines) + "\n"
