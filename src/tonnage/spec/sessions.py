"""Conversations, agents and shared system prompts: what makes the prompt of one request the
beginning of another.

A session is a conversation of one turn or more. Its first prompt is the shared prefix, if it has
one, and the question; the prompt of each further turn is that of the turn before, its answer, and
the next question, which comes after the time that the user takes to think. An agent calls tools
within a turn: each call is a request more, which comes when the tool has answered, with its result
as the new part.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tonnage.errors import InputError
from tonnage.spec.lengths import Lengths
from tonnage.units import PS_PER_NS, format_duration, parse_duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


# What the tokens of requests have in common, so that a cache can tell which blocks of one are those
# of another. A request's prompt and output are made of pieces. The number of a piece stands for its
# text together with all that is before it: two requests whose token at some place belongs to the
# same piece have the same tokens up to that place. A system prompt is a piece, a conversation is
# one that follows it, and each block of a recorded prompt (``hash_ids``) is one that follows the
# blocks before.


ENDLESS = 1 << 40  # The place up to which a request's last piece reaches: beyond every output

# Sizes of a recorded block, in tokens, that are looked for; Mooncake's is 512
BLOCK_SIZES = tuple(2**n for n in range(4, 14))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contents:
    """The pieces of each request.

    An output belongs to its request alone, or to a piece that only requests have which are sent
    after it has ended.
    """

    # int64 (requests + 1,), the place of each request's first piece among all pieces
    starts: NDArray[np.int64]
    piece: NDArray[np.int64]  # the number of each, from 0 to 2**40
    # the token up to which it reaches, counted from the prompt's beginning; ``ENDLESS`` for a
    # request's last one
    until: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.starts) - 1

    def of(self, request: int) -> tuple[list[int], list[int]]:
        """The numbers of a request's pieces, and the tokens up to which they reach."""
        first, last = int(self.starts[request]), int(self.starts[request + 1])
        return self.piece[first:last].tolist(), self.until[first:last].tolist()

    def part(self, rows: Ints) -> Contents:
        """Select the contents of some requests, in any order."""
        starts, places = gathered(self.starts, rows)
        return Contents(starts=starts, piece=self.piece[places], until=self.until[places])


def gathered(starts: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """For some rows of a table whose rows are runs of entries: where their runs begin among
    themselves, and the places of the entries.
    """
    import numpy as np

    counts = np.diff(starts)[rows]
    offsets = np.append(0, counts.cumsum()).astype(np.int64)
    return offsets, np.repeat(starts[rows] - offsets[:-1], counts) + np.arange(offsets[-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Follows:
    """The requests that wait for others to end."""

    # int64 (requests + 1,), the place in ``rows`` at which the requests begin that wait for each
    # one
    starts: Ints
    rows: Ints  # int64, who waits
    waits: Ints  # int64, for how many each waits; its pause begins at the end of the last of them

    def part(self, rows: Ints) -> Follows:
        """Select some requests, counted from 0 again: of each session all or none."""
        import numpy as np

        number = np.full(len(self.waits), -1)
        number[rows] = np.arange(len(rows))
        starts, places = gathered(self.starts, rows)
        return Follows(starts=starts, rows=number[self.rows[places]], waits=self.waits[rows])


def follows_of(waits: Sequence[Sequence[int]]) -> Follows:
    """Build the graph from the requests that each one waits for."""
    import numpy as np

    pairs = np.array(
        [(before, row) for row, awaited in enumerate(waits) for before in awaited], np.int64
    ).reshape(-1, 2)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    counts = np.bincount(pairs[:, 0], minlength=len(waits))
    starts = np.append(0, counts.cumsum()).astype(np.int64)
    return Follows(
        starts=starts,
        rows=pairs[:, 1].copy(),
        waits=np.array([len(wait) for wait in waits], np.int64),
    )


def piece_at(pieces: Sequence[int], until: Sequence[int], token: int) -> int:
    """The piece that a token belongs to; the first token is number 0."""
    return pieces[bisect_right(until, token)]


def of_rows(rows: Sequence[Sequence[tuple[int, int]]]) -> Contents:
    """Contents from a list of (piece, until) for each request; the last ``until`` of each is
    ``ENDLESS``.
    """
    import numpy as np

    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    pieces = [pair for row in rows for pair in row]
    piece, until = np.array(pieces, np.int64).reshape(-1, 2).T.copy()
    return Contents(starts=starts, piece=piece, until=until)


def block_tokens(blocks: Sequence[Sequence[int]], isl: Sequence[int]) -> int | None:
    """The size of a block by which every prompt has as many blocks as it names; None where there is
    no such size.
    """
    fitting = (
        size
        for size in BLOCK_SIZES
        if all(-(-tokens // size) == len(ids) for ids, tokens in zip(blocks, isl, strict=True))
    )
    return next(fitting, None)


def of_blocks(blocks: Sequence[Sequence[int]], isl: Sequence[int], size: int) -> Contents:
    """The contents of recorded prompts whose blocks of ``size`` tokens have ids; every output is
    its request's own.
    """
    tree: dict[tuple[int, int], int] = {}
    outputs = len(blocks)
    rows = []
    for number, (ids, tokens) in enumerate(zip(blocks, isl, strict=True)):
        prefix, row = -1, []
        for place, identifier in enumerate(ids, start=1):
            prefix = tree.setdefault((prefix, identifier), outputs + len(tree))
            row.append((prefix, min(place * size, tokens)))
        rows.append([*row, (number, ENDLESS)])
    return of_rows(rows)


# The time that a user takes between an answer and the next question, or a tool between a call and
# its result.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The time that a user takes to read an answer and to write the next question."""

    mean_s: float = 0.0  # in seconds
    # whether it is drawn from an exponential distribution; otherwise it is always the mean
    exponential: bool = False

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw ``count`` pauses in nanoseconds."""
        import numpy as np

        scale = self.mean_s * 1e9
        return np.rint(
            rng.exponential(scale, count) if self.exponential else np.full(count, scale)
        ).astype(np.int64)

    def within(self, seconds: float) -> float:
        """The share of such pauses that are no longer than that."""
        if self.exponential and self.mean_s > 0:
            return 1.0 - math.exp(-seconds / self.mean_s)
        return float(seconds >= self.mean_s)

    def __str__(self) -> str:
        """Such as "30 s", or "30 s on average" where it is drawn."""
        return f"{format_duration(self.mean_s)}{' on average' if self.exponential else ''}"


def parse_pause(text: str, where: str) -> Pause:
    """Read "2s" or "exponential:2s". Raises InputError: anything else."""
    kind, colon, rest = text.strip().partition(":")
    if colon and kind.strip().lower() != "exponential":
        raise InputError(f"{where}: '{text}' is no pause; write for example 2s or exponential:2s")
    return Pause(mean_s=parse_duration(rest if colon else kind, where), exponential=bool(colon))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The content that requests share, and how they follow one another."""

    # length of a shared prefix, such as a system prompt; it is added to the prompts
    prefix_tokens: int = 0
    prefix_share: float = 1.0  # share of the sessions that begin with one, from 0 to 1
    prefixes: int = 1  # how many different ones there are; each session draws one
    turns: Lengths = field(default_factory=lambda: Lengths(mean=1.0))  # questions of a session
    think: Pause = field(default_factory=Pause)  # from an answer to the next question
    tool_calls: int = 0  # calls of tools in each turn, each a further request
    tool: Pause = field(default_factory=Pause)  # from a call to the tool's result
    tool_tokens: Lengths | None = None  # length of a result; None for that of a question

    @property
    def single(self) -> bool:
        """Whether every session is one request."""
        return self.turns.longest <= 1 and self.tool_calls == 0

    @property
    def requests(self) -> float:
        """Requests of a session, on average."""
        return max(self.turns.mean, 1.0) * (1 + self.tool_calls)

    def longest(self, isl: Lengths, osl: Lengths) -> int:
        """Tokens of a whole session with questions and answers of the longest length that
        occurs.
        """
        turns = max(self.turns.longest, 1)
        results = (
            turns
            * self.tool_calls
            * (isl if self.tool_tokens is None else self.tool_tokens).longest
        )
        return (
            self.prefix_tokens
            + turns * isl.longest
            + results
            + turns * (1 + self.tool_calls) * osl.longest
        )

    def __str__(self) -> str:
        """Such as "5 turns, 30 s between them, 1000 shared tokens"."""
        parts = []
        if self.turns.longest > 1:
            parts.append(
                f"{self.turns} turns"
                + (f", {self.think} between them" if self.think.mean_s else "")
            )
        if self.tool_calls:
            parts.append(
                f"{self.tool_calls} tool calls a turn"
                + (f" of {self.tool}" if self.tool.mean_s else "")
            )
        if self.prefix_tokens:
            whose = "" if self.prefix_share == 1 else f" in {self.prefix_share:.0%} of them"
            parts.append(f"{self.prefix_tokens} shared tokens{whose}")
        return ", ".join(parts)


class Drawn(NamedTuple):
    """Sessions with everything drawn: a row for each request, those of a session one after
    another.
    """

    session: Ints  # number of the session
    # isl, osl: tokens of the whole prompt and of the output
    isl: Ints
    osl: Ints
    pause_ps: Ints  # from the end of the request before, in picoseconds; -1 of a session's first
    prefix: Ints  # which shared prefix; -1 for none

    def rows(self, chosen: Ints) -> Drawn:
        """Some of the rows; the first that is left of a session waits for nobody."""
        import numpy as np

        selected = Drawn(*(column[chosen] for column in self))
        if len(chosen):
            selected.pause_ps[np.flatnonzero(np.diff(selected.session, prepend=-1))] = -1
        return selected


def draw(
    sessions: Sessions, count: int, isl: Lengths, osl: Lengths, streams: list[np.random.Generator]
) -> Drawn:
    """Draw ``count`` sessions; ``streams`` draw questions, answers, turns, pauses, tools and
    prefixes, in this order.
    """
    import numpy as np

    turns = np.maximum(sessions.turns.draw(count, streams[2]), 1)
    requests = turns * (1 + sessions.tool_calls)
    session = np.repeat(np.arange(count), requests)
    ends = requests.cumsum()
    number = np.arange(len(session)) - np.repeat(ends - requests, requests)
    calls = number % (1 + sessions.tool_calls) > 0
    new, out = isl.draw(len(session), streams[0]), osl.draw(len(session), streams[1])
    pause = sessions.think.draw(len(session), streams[3])
    if sessions.tool_calls:
        pause = np.where(calls, sessions.tool.draw(len(session), streams[4]), pause)
        if sessions.tool_tokens is not None:
            new = np.where(calls, sessions.tool_tokens.draw(len(session), streams[4]), new)
    prefix = streams[5].integers(0, sessions.prefixes, count)
    prefix[
        streams[5].random(count) >= sessions.prefix_share if sessions.prefix_tokens else slice(None)
    ] = -1
    first = number == 0
    added = new + np.where(first, np.where(prefix >= 0, sessions.prefix_tokens, 0)[session], 0)
    added[1:] += np.where(first[1:], 0, out[:-1])
    whole = added.cumsum()
    before = (whole - added)[first][session]
    return Drawn(
        session, whole - before, out, np.where(first, -1, pause * PS_PER_NS), prefix[session]
    )


def contents_of(drawn: Drawn, prefix_tokens: int) -> Contents:
    """What the requests of sessions have in common: a prefix, and all that their own session has
    said.
    """
    import numpy as np

    shares = drawn.prefix >= 0
    starts = np.concatenate([[0], (1 + shares).cumsum()]).astype(np.int64)
    piece, until = np.empty((2, starts[-1]), np.int64)
    last_rows = starts[1:] - 1
    piece[last_rows], until[last_rows] = (
        drawn.session + (int(drawn.prefix.max(initial=-1)) + 1),
        ENDLESS,
    )
    common = starts[:-1][shares]
    piece[common], until[common] = drawn.prefix[shares], prefix_tokens
    return Contents(starts=starts, piece=piece, until=until)
