"""Conversations of several turns: who asks what after how long a pause, drawn before anything is
sent.

A turn is due when the answer before it has come and its pause is over. It carries the whole
conversation, with the answers that really came; so prompts grow, and a server's prefix cache may
find all but the new part.

A file says the user's turns; the answers come from the server that is measured:

- ``.jsonl``: one conversation a line with ``turns``, a list of objects with ``text`` and, where
  they have them, ``osl`` and ``pause_s``; or with ``messages`` in OpenAI's form, of which the
  user's are taken;
- ``.json``: ShareGPT's list of ``conversations``, of which the human's are taken, and the lengths
  of the answers.

Recorded sessions (``spec/recorded_sessions.py``) are conversations whose prompts are made whole: of
the pieces that the recording has in common, so that a cache finds as much as it did then. A request
is due a pause after the last of the ones that it waits for, as recorded, and sub-agents run next to
their parent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.bench.prompts import MOST_BYTES, USERS, TokenizerFile, length_of, share_gpt
from tonnage.csv_file import read_text
from tonnage.errors import InputError, option
from tonnage.results.requests import COMPLETED, Requests
from tonnage.spec.lengths import Lengths
from tonnage.spec.sessions import Contents, Follows, Pause
from tonnage.spec.workload import Trace
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


History = list[tuple[str, str]]  # Questions and the answers that came to them
# Of a prompt of a recorded session: the number of each piece, and the token up to which it reaches
Pieces = Sequence[tuple[int, int]]
STATISTICS = (50, 95)  # Percentiles of each turn's latencies


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conversations:
    """Conversations with every length and pause drawn."""

    # int64 (conversations + 1,), the place of each conversation's first turn among all turns
    starts: Ints
    # and osl: int64 (turns,), tokens of the new part of each prompt, of recorded sessions of the
    # whole prompt, and of each answer
    isl: Ints
    osl: Ints
    pause_ns: Ints  # int64 (turns,), from an answer to the next turn; 0 for first turns
    # int64 (conversations,), when each begins in an open loop; None in a closed one
    due_ns: Ints | None = None
    # the question of each turn, where a file says them; empty where they are made
    texts: tuple[str, ...] = ()
    # of recorded sessions, which requests wait for which; None where each turn waits for the one
    # before
    follows: Follows | None = None
    # of recorded sessions, the pieces of each prompt; None where prompts grow by their answers
    contents: Contents | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def graph(self) -> Follows:
        """The turns that each turn waits for."""
        if self.follows is not None:
            return self.follows
        waits = np.ones(int(self.starts[-1]), np.int64)
        waits[self.starts[:-1]] = 0
        return Follows(
            starts=np.append(0, np.append(waits[1:], 0).cumsum()),
            rows=np.flatnonzero(waits),
            waits=waits,
        )


def recorded(trace: Trace) -> Conversations:
    """The sessions of a trace, made of ``RecordedSessions``."""
    if trace.pause_ps is None or trace.contents is None:
        raise ValueError("a trace without sessions")
    firsts = trace.firsts()
    return Conversations(
        starts=np.append(firsts, len(trace)),
        isl=trace.isl,
        osl=trace.osl,
        pause_ns=np.maximum(trace.pause_ps, 0) // PS_PER_NS,
        follows=trace.graph(),
        contents=trace.contents,
    )


def drawn(
    *, count: int, turns: Lengths, isl: Lengths, osl: Lengths, pause: Pause, seed: int
) -> Conversations:
    """Draw ``count`` conversations; ``isl`` are the tokens that each turn adds, ``osl`` those of
    its answer.
    """
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence([seed, 1]).spawn(4)]
    turn_counts = np.maximum(turns.draw(count, streams[0]).astype(np.int64), 1)
    starts = np.concatenate([[0], np.cumsum(turn_counts)]).astype(np.int64)
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
    """Which turn of which conversation each request was: int64 (requests,), by the number of the
    request; both from 0.
    """

    conversation: Ints
    turn: Ints


def by_turn(requests: Requests, log: TurnLog) -> dict[str, Any]:
    """What ``run.json`` says of the turns: of each the requests, prompt tokens, and mean and
    percentiles of TTFT and E2E in ms.
    """
    done = requests.status == COMPLETED
    table = []
    for turn in range(int(log.turn.max()) + 1 if log.turn.size else 0):
        rows = np.flatnonzero(done & (log.turn[: len(requests)] == turn))
        if not rows.size:
            continue
        ttft = (requests.first_token_ns - requests.due_ns)[rows] / 1e6
        e2e = (requests.last_token_ns - requests.due_ns)[rows] / 1e6
        entry: dict[str, Any] = {
            "turn": turn + 1,
            "requests": int(rows.size),
            "isl_mean": float(requests.isl[rows].mean()),
        }
        entry["cached_share"] = float(
            requests.cached_tokens[rows].sum() / max(requests.isl[rows].sum(), 1)
        )
        for name, values in (("ttft_ms", ttft), ("e2e_ms", e2e)):
            entry[name] = {
                "mean": float(values.mean()),
                **{f"p{p}": float(np.percentile(values, p)) for p in STATISTICS},
            }
        table.append(entry)
    return {"conversations": len(np.unique(log.conversation)), "turns": table}


LONGEST = 10**7  # Neither outputs nor pauses are longer, in tokens and seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a file: the message, the answer's length (0 where it is not known), and the pause
    before it (None likewise).
    """

    text: str
    osl: int = 0
    pause_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFile:
    """The conversations of a file, in order."""

    conversations: tuple[tuple[Turn, ...], ...]  # of at least one turn each
    # how long each text is, conversation by conversation: tokens, or characters over ``characters``
    isl: tuple[int, ...]
    source: str  # the name of the file

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, conversation by conversation."""
        return tuple(turn for conversation in self.conversations for turn in conversation)

    def drawn(self, *, pause: Pause, osl: Sequence[int] | None, seed: int) -> Conversations:
        """The conversations ready to be sent, with pauses where the file says none, and answers of
        ``osl`` where that is given.
        """
        starts = np.concatenate(
            [[0], np.cumsum([len(conversation) for conversation in self.conversations])]
        ).astype(np.int64)
        pauses = pause.draw(int(starts[-1]), np.random.default_rng(seed))
        file_pauses = [
            -1 if turn.pause_s is None else round(turn.pause_s * 1e9) for turn in self.turns
        ]
        pauses = np.where(np.array(file_pauses) >= 0, file_pauses, pauses).astype(np.int64)
        pauses[starts[:-1]] = 0
        lengths = [turn.osl for turn in self.turns] if osl is None else list(osl)
        return Conversations(
            starts=starts,
            isl=np.array(self.isl, dtype=np.int64),
            osl=np.array(lengths, dtype=np.int64),
            pause_ns=pauses,
            texts=tuple(turn.text for turn in self.turns),
        )


def read_conversations(
    path: Path, *, counter: TokenizerFile | None, characters: float
) -> ConversationFile:
    """The conversations of a file. Raises InputError: the file cannot be read as one of the formats
    above; the first bad line is named.
    """
    where = option("conversation_file")
    text = read_text(path, where, most_bytes=MOST_BYTES)

    if path.suffix.lower() == ".jsonl":
        lines = [
            (line, f"{where}: {path}:{at}")
            for at, line in enumerate(text.splitlines(), start=1)
            if line.strip()
        ]
        conversations = [_line(line, place) for line, place in lines]
    else:
        pair_lists = share_gpt(text, f"{where}: {path}")
        conversations = [
            tuple(
                Turn(text=ask, osl=length_of(answer, counter, characters)) for ask, answer in pairs
            )
            for pairs in pair_lists
        ]
    if not conversations:
        raise InputError(
            f"{where}: {path} holds no conversation; write one a line, as an object with turns"
        )
    isl = tuple(
        length_of(turn.text, counter, characters)
        for conversation in conversations
        for turn in conversation
    )
    return ConversationFile(conversations=tuple(conversations), isl=isl, source=path.name)


def _line(line: str, where: str) -> tuple[Turn, ...]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: is not JSON; write one object with turns a line") from None
    turns = row.get("turns") if isinstance(row, dict) else None
    if isinstance(row, dict) and turns is None and isinstance(row.get("messages"), list):
        user_messages = [
            m for m in row["messages"] if isinstance(m, dict) and m.get("role") in USERS
        ]
        turns = [{"text": message.get("content")} for message in user_messages]
    if not isinstance(turns, list) or not turns:
        raise InputError(f"{where}: has no turns; write a list of objects with a text, or messages")
    return tuple(_turn(turn, f"{where}, turn {at}") for at, turn in enumerate(turns, start=1))


def _turn(turn: Any, where: str) -> Turn:
    text = turn.get("text") if isinstance(turn, dict) else turn
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: has no text; write what the user says")
    osl, pause = (turn.get("osl", 0), turn.get("pause_s")) if isinstance(turn, dict) else (0, None)
    if isinstance(osl, bool) or not isinstance(osl, int) or not 0 <= osl <= LONGEST:
        raise InputError(f"{where}: its osl is not a number of tokens")
    if pause is not None and (
        isinstance(pause, bool) or not isinstance(pause, int | float) or not 0 <= pause <= LONGEST
    ):
        raise InputError(f"{where}: its pause_s is not a number of seconds")
    return Turn(text=text, osl=osl, pause_s=pause)
