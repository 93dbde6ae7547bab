"""The arrays of a prefix cache, empty, and a heap of the requests that are on their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError
from tonnage.simulator.kernel.blocks_by_name import EMPTY, PIECE_2, PLACE_2
from tonnage.simulator.kernel.build import plain, ring_size
from tonnage.simulator.kernel.memory import Machine
from tonnage.simulator.kernel.prefix_cache import NOTE, Cache
from tonnage.simulator.kernel.schedulers import SCHEDULERS
from tonnage.simulator.tiers import Tier
from tonnage.spec.sessions import Contents

if TYPE_CHECKING:
    from tonnage.spec.deployment import EngineKnobs, Windows
    from tonnage.spec.workload import Trace

MOST_BLOCKS = 2**30
"""Blocks of a cache and its tiers together."""


def cache_of(trace: Trace, contents: Contents, knobs: EngineKnobs, windows: Windows, cfg: Any, tiers: Sequence[Tier]) -> Cache:
    """An empty cache for the requests of a trace.

    Args:
        trace: the requests.
        contents: what they have in common.
        knobs, windows: of the engine.
        cfg: the engine's settings.
        tiers: below the cache.

    Raises:
        InputError: more blocks or pieces than a name can tell apart.
    """
    scheduler, size, own = SCHEDULERS[knobs.scheduler], knobs.tokens_per_block, int(cfg["kv_blocks"])
    first = np.cumsum([own, *(tier.blocks for tier in tiers)])
    count, longest = int(first[-1]), int((trace.isl + trace.osl).max(initial=1)) + int(cfg["drafted"])
    if count > MOST_BLOCKS or longest // size >= 1 << PLACE_2 or int(contents.piece.max(initial=0)) >= 1 << PIECE_2:
        raise InputError(f"a prefix cache of {count:,} blocks, or requests of {longest:,} tokens: that is more than can be simulated")
    on = scheduler.NAMES is not None and knobs.prefix_caching
    slots, wide = (int(cfg["slots"]), -(-longest // size) + windows.of(longest) + 1) if on else (0, 0)
    seats = ring_size(2 * (count + own * scheduler.PARTIAL) + 2)
    note = np.zeros(1, NOTE)[0]
    note["on"], note["names"], note["partial"] = on, scheduler.NAMES or 0, scheduler.PARTIAL
    note["shift"] = 65 - seats.bit_length()
    before, after = _rings(first)
    rows = len(trace)
    return Cache(
        note=note,
        starts=plain(contents.starts, np.int64),
        piece=plain(contents.piece, np.int64),
        until=plain(contents.until, np.int64),
        held=np.empty((slots, wide), np.int32),
        taken=np.zeros(slots, np.int64),
        known=np.zeros(slots, np.int64),
        windows=np.zeros(slots, np.int64),
        found=np.zeros(wide, np.int64),
        lifted=np.zeros(wide, np.int64),
        refs=np.zeros(own, np.int32),
        name=np.full(count, EMPTY, np.int64),
        begun=np.full(own, EMPTY, np.int64),
        begun_until=np.zeros(own, np.int64),
        before=before,
        after=after,
        names=np.full(seats, EMPTY, np.int64),
        blocks=np.zeros(seats, np.int32),
        first=first,
        lasts=np.array([tier.block_ps for tier in tiers], np.int64),
        cached=np.zeros(rows, np.int64),
        pause=np.full(rows, -1) if trace.pause_ps is None else plain(trace.pause_ps, np.int64),
        at=np.zeros(rows + 1, np.int64),
        row=np.zeros(rows + 1, np.int64),
        firsts=trace.firsts(),
    )


def _rings(first: Any) -> tuple[Any, Any]:
    """The blocks of the cache and of each tier in rings, in order, each behind the entry at which it begins."""
    count, begin = int(first[-1]), 0
    before, after = np.zeros((2, count + len(first)), np.int32)
    for ring, end in enumerate(first):
        order = np.concatenate([[count + ring], np.arange(begin, end)])
        after[order], before[order] = np.roll(order, -1), np.roll(order, 1)
        begin = int(end)
    return before, after


def send_first_turns(m: Machine, trace: Trace) -> int:
    """Put those on their way who wait for nobody, in a closed loop one for each client; how many."""
    cache: Cache = m.cache
    firsts, count = cache.firsts, len(cache.firsts)
    if trace.concurrency > 0:
        count = min(trace.concurrency, count)
        m.rows.sent[firsts[:count]] = np.arange(1, count + 1) * trace.turnaround_ps
        cache.note["begun"] = count
    sent = m.rows.sent[firsts[:count]]
    cache.at[:count], cache.row[:count] = sent, firsts[:count]
    m.state["coming"] = count
    if count:
        m.state["arrived"], m.state["next_arrival"] = firsts[0], sent[0] + m.cfg["frontend"]
    return count
