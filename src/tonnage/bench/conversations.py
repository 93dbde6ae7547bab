"""Conversations of several turns: who asks what after how long a pause, drawn before anything is sent.

A turn is due when the answer before it has come and its pause is over. It carries the whole conversation so far, with the answers that
really came; so prompts grow, and a server's prefix cache may find all but the new part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.results.requests import COMPLETED, Requests
from tonnage.spec.sessions import Pause

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.lengths import Lengths

    Ints = NDArray[np.int64]

STATISTICS = (50, 95)
"""Percentiles of each turn's latencies."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conversations:
    """Conversations with every length and pause drawn.

    Attributes:
        starts: int64 (conversations + 1,), the place of each conversation's first turn among all turns.
        isl, osl: int64 (turns,), tokens of the new part of each prompt, and of each answer.
        pause_ns: int64 (turns,), from an answer to the next turn; 0 for first turns.
        due_ns: int64 (conversations,), when each begins in an open loop; None in a closed one.
        texts: the question of each turn, where a file says them; empty where they are made.
    """

    starts: Ints
    isl: Ints
    osl: Ints
    pause_ns: Ints
    due_ns: Ints | None = None
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of conversations."""
        return len(self.starts) - 1

    def turns(self, conversation: int) -> int:
        """How many turns a conversation has."""
        return int(self.starts[conversation + 1] - self.starts[conversation])


def drawn(*, count: int, turns: Lengths, isl: Lengths, osl: Lengths, pause: Pause, seed: int) -> Conversations:
    """Conversations of drawn numbers of turns.

    Args:
        count: how many.
        turns: how many turns each has.
        isl, osl: tokens that each turn adds, and of its answer.
        pause: between the turns.
        seed: of every draw.
    """
    import numpy as np

    streams = [np.random.default_rng(s) for s in np.random.SeedSequence([seed, 1]).spawn(4)]
    each = np.maximum(turns.draw(count, streams[0]).astype(np.int64), 1)
    starts = np.concatenate([[0], np.cumsum(each)]).astype(np.int64)
    total = int(starts[-1])
    pauses = pause.draw(total, streams[3])
    pauses[starts[:-1]] = 0
    return Conversations(
        starts=starts,
        isl=isl.draw(total, streams[1]).astype(np.int64),
        osl=osl.draw(total, streams[2]).astype(np.int64),
        pause_ns=pauses,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TurnLog:
    """Which turn of which conversation each request was: int64 (requests,), by the number of the request; both from 0."""

    conversation: Ints
    turn: Ints


def by_turn(requests: Requests, log: TurnLog) -> dict[str, Any]:
    """What ``run.json`` says of the turns: of each the requests, prompt tokens, and mean and percentiles of TTFT and E2E in ms."""
    import numpy as np

    done = requests.status == COMPLETED
    table = []
    for turn in range(int(log.turn.max()) + 1 if log.turn.size else 0):
        rows = np.flatnonzero(done & (log.turn[: len(requests)] == turn))
        if not rows.size:
            continue
        ttft = (requests.first_token_ns - requests.due_ns)[rows] / 1e6
        e2e = (requests.last_token_ns - requests.due_ns)[rows] / 1e6
        entry: dict[str, Any] = {"turn": turn + 1, "requests": int(rows.size), "isl_mean": float(requests.isl[rows].mean())}
        entry["cached_share"] = float(requests.cached_tokens[rows].sum() / max(requests.isl[rows].sum(), 1))
        for name, values in (("ttft_ms", ttft), ("e2e_ms", e2e)):
            entry[name] = {"mean": float(values.mean()), **{f"p{p}": float(np.percentile(values, p)) for p in STATISTICS}}
        table.append(entry)
    return {"conversations": len(np.unique(log.conversation)), "turns": table}
