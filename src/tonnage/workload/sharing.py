"""What prompts share: blocks of tokens that an earlier prompt had too, and what a cache without end would find.

A file with ``hash_ids`` (Mooncake's format) names the blocks of each prompt, so that the hit rate of a cache that never forgets can be
computed exactly: it holds a tree of all prefixes, and finds a block where an earlier prompt had the same ids from its beginning on. A
file that names sessions alone says which requests continue a conversation, and the most that a cache could find if each turn began
with the whole turn before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tonnage.spec.sessions import block_tokens
from tonnage.workload.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What the prompts of a file share.

    Attributes:
        by: what says so, "blocks" or "sessions".
        block_tokens: tokens of a block; None where no size fits all prompts, or the file has sessions.
        blocks: blocks of all prompts together; None with sessions, as the next.
        seen_blocks: share of them that an earlier prompt had anywhere.
        hit_blocks: share of them that a cache without end finds: those before the first one that is new.
        hit_tokens: the same in prompt tokens; with sessions the most that it can be; None where the size of a block is not known.
        requests_with_hits: share of the requests of which it finds anything; with sessions, those that continue one.
        sessions: how many there are; None with blocks.
        turns_per_session: requests of a session, on average; None with blocks.
    """

    by: Literal["blocks", "sessions"]
    block_tokens: int | None = None
    blocks: int | None = None
    seen_blocks: float | None = None
    hit_blocks: float | None = None
    hit_tokens: float | None = None
    requests_with_hits: float = 0.0
    sessions: int | None = None
    turns_per_session: float | None = None

    def to_json(self) -> dict[str, Any]:
        """By name; what is not known is null."""
        return asdict(self)


def sharing(traffic: Traffic) -> Sharing | None:
    """What the prompts share; None where the file says nothing of it."""
    if traffic.blocks:
        return _of_blocks(traffic.blocks, traffic.recording.isl)
    return _of_sessions(traffic) if traffic.sessions else None


def _of_blocks(blocks: Sequence[Sequence[int]], isl: Sequence[int]) -> Sharing | None:
    seen: set[int] = set()
    tree: dict[tuple[int, int], int] = {}
    seen_before = hits = hit_tokens = with_hits = 0
    size = block_tokens(blocks, isl)
    for ids, tokens in zip(blocks, isl, strict=True):
        found = _known_prefix(tree, ids)
        seen_before += sum(one in seen for one in ids)
        hits += found
        with_hits += found > 0
        hit_tokens += min(found * (size or 0), tokens)
        seen.update(ids)
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
    """How many blocks of a prompt the tree of prefixes (by prefix and next id; 0 is empty) holds; afterwards it holds all of them."""
    prefix = found = 0
    for place, one in enumerate(ids):
        longer = tree.get((prefix, one))
        if longer is None:
            longer = tree[prefix, one] = len(tree) + 1
        else:
            found = place + 1
        prefix = longer
    return found


def _of_sessions(traffic: Traffic) -> Sharing:
    """Each turn is taken to begin with the prompt and the answer of the turn before, wherever it is long enough for that."""
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
