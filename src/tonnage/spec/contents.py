"""What the tokens of requests have in common, so that a cache can tell which blocks of one are those of another.

A request's prompt and output are made of pieces. The number of a piece stands for its text together with all that stands before it: two
requests whose token at some place belongs to the same piece have the same tokens up to that place. A system prompt is a piece, a
conversation is one that follows it, and each block of a recorded prompt (``hash_ids``) is one that follows the blocks before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENDLESS = 1 << 40
"""The place up to which a request's last piece reaches: beyond every output."""

BLOCK_SIZES = tuple(2**n for n in range(4, 14))
"""Sizes of a recorded block, in tokens, that are looked for; Mooncake's is 512."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contents:
    """The pieces of each request.

    An output belongs to its request alone, or to a piece that only requests have which are sent after it has ended.

    Attributes:
        starts: int64 (requests + 1,), the place of each request's first piece among all pieces.
        piece: int64, the number of each, from 0 to 2**40.
        until: int64, the token up to which it reaches, counted from the prompt's beginning; ``ENDLESS`` for a request's last one.
    """

    starts: NDArray[np.int64]
    piece: NDArray[np.int64]
    until: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.starts) - 1

    def of(self, request: int) -> tuple[list[int], list[int]]:
        """The numbers of a request's pieces, and the tokens up to which they reach."""
        first, last = int(self.starts[request]), int(self.starts[request + 1])
        return self.piece[first:last].tolist(), self.until[first:last].tolist()


def piece_at(pieces: Sequence[int], until: Sequence[int], token: int) -> int:
    """The piece that a token belongs to; the first token is number 0."""
    return pieces[bisect_right(until, token)]


def of_rows(rows: Sequence[Sequence[tuple[int, int]]]) -> Contents:
    """Contents from a list of (piece, until) for each request; the last ``until`` of each is ``ENDLESS``."""
    import numpy as np

    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    pieces = [one for row in rows for one in row]
    piece, until = np.array(pieces, np.int64).reshape(-1, 2).T.copy()
    return Contents(starts=starts, piece=piece, until=until)


def block_tokens(blocks: Sequence[Sequence[int]], isl: Sequence[int]) -> int | None:
    """The size of a block by which every prompt has as many blocks as it names; None where there is no such size."""
    fitting = (size for size in BLOCK_SIZES if all(-(-tokens // size) == len(ids) for ids, tokens in zip(blocks, isl, strict=True)))
    return next(fitting, None)


def of_blocks(blocks: Sequence[Sequence[int]], isl: Sequence[int], size: int) -> Contents:
    """The contents of recorded prompts whose blocks of ``size`` tokens have ids; every output is its request's own.

    Args:
        blocks: ids of the blocks of each prompt; a last block that is not full counts as far as it goes.
        isl: prompt tokens of each.
        size: tokens of a block.
    """
    tree: dict[tuple[int, int], int] = {}
    outputs = len(blocks)
    rows = []
    for number, (ids, tokens) in enumerate(zip(blocks, isl, strict=True)):
        prefix, row = -1, []
        for place, one in enumerate(ids, start=1):
            prefix = tree.setdefault((prefix, one), outputs + len(tree))
            row.append((prefix, min(place * size, tokens)))
        rows.append([*row, (number, ENDLESS)])
    return of_rows(rows)
