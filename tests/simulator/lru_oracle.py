"""A cache that forgets what was used longest ago, written from the rule alone: an oracle for
requests that are served one by one."""

from __future__ import annotations

import numpy as np


def lru_hits(
    contents: list[tuple[int, ...]],
    tokens: list[int],
    outputs: list[int],
    *,
    blocks: int,
    size: int,
    parts: bool,
) -> list[int]:
    """Prompt tokens that each request finds.

    Every block has a stamp, the moment at which it was let go, and of the blocks that are not in
    use the one with the smallest is taken. A request lets go of all its blocks at once, the last of
    its context first. One that is not full goes before all others then, unless its part can be
    found.

    Args:
        contents: of each request the ids of the blocks of its prompt, of which one follows from
            those before.
        tokens: of each prompt.
        outputs: tokens of each answer, of which the last is never in the cache.
        blocks, size: of the cache.
        parts: whether parts of a block can be found.
    """
    stamp = np.arange(blocks)
    holds: list[object] = [None] * blocks
    where: dict[object, int] = {}
    clock, found = blocks, []
    for number, (ids, isl, osl) in enumerate(zip(contents, tokens, outputs, strict=True)):
        path: list[tuple[object, ...]] = [tuple(ids[: place + 1]) for place in range(len(ids))]
        hits = 0
        while hits < (isl - 1) // size and path[hits] in where:
            hits += 1
        mine = [where[path[place]] for place in range(hits)]
        busy = stamp.astype(float)
        busy[mine] = np.inf
        while len(mine) * size < isl + osl - 1:
            taken = int(busy.argmin())
            busy[taken] = np.inf
            if holds[taken] is not None:
                del where[holds[taken]]
                holds[taken] = None
            mine.append(taken)
        for place in range(hits, (isl + osl - 1) // size):
            name: object = path[place] if (place + 1) * size <= isl else (number, place)
            if name in where:
                holds[where[name]] = None
            where[name], holds[mine[place]] = mine[place], name
        for block in reversed(mine):
            stamp[block] = clock if parts or holds[block] is not None else -clock
            clock += 1
        found.append(hits * size)
    return found
