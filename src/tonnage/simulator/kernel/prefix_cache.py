"""The prefix cache of an engine, compiled; the rules are those of ``reference/prefix_cache.py`` and
of each scheduler there.

Requests that decode take blocks as their contexts grow. How many these are is counted step by step
as without a cache; which ones they are does not matter until somebody looks for a name or lets go
of blocks, and so it is made up for then (``catch_up``): the blocks that are taken are the first of
the list in any case, which is the same list until then.

A machine without a cache (``Machine.cache`` is None) is compiled without any of this: ``shared.py``
chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tonnage.simulator.kernel.blocks import (
    EMPTY,
    LINE_2,
    blocks_of,
    forget,
    give_name,
    home_of,
    let_begin,
    let_go,
    name_of,
    named,
    piece_at,
    put,
    ring_of,
    take,
    unlink,
)
from tonnage.simulator.kernel.compiler import called, part
from tonnage.simulator.kernel.memory import NEVER, record_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEDULED, COMPUTED, COMPLETE = range(3)
"""When blocks of a prompt can be found: from the step on that fills them, when it has ended, or
when the whole prompt is computed."""

NOTE = record_of(
    "on",  # whether the engine has a prefix cache; else this is only about who follows whom
    "names",  # SCHEDULED, COMPUTED or COMPLETE
    "partial",  # whether beginnings of blocks are found
    "shift",  # 64 less the bits of a line in the table of names
    "found",  # blocks that the last one who was looked at finds …
    "kept",  # … of which so many are in the cache …
    "idle",  # … and so many of these are held by nobody
    "tokens",  # … and tokens
    "transfer",  # … and the time of its transfers, in picoseconds …
    "overlap",  # … and of the ones that overlap with the step
    "blocked",  # the last row that found too few free blocks, plus 1; 0 once another one entered
    "others",  # blocks that others held of what it found, and that were named since
    "waits",  # time of transfers that the next step waits for …
    "overlaps",  # … and of the ones that overlap with it
    "begun",  # first turns that were sent, of a closed loop
)


class Cache(NamedTuple):
    """Blocks, names and contents."""

    note: Any  # a record
    # starts, piece, until: the contents of the requests (``spec/sessions.py``)
    starts: NDArray[np.int64]
    piece: NDArray[np.int64]
    until: NDArray[np.int64]
    # int32, for each slot the blocks of its context in order, and from the end backwards those of
    # its windows
    held: NDArray[np.int32]
    # taken, known, windows: for each slot, how many of its context are taken, have a name; and how
    # many of its windows are taken
    taken: NDArray[np.int64]
    known: NDArray[np.int64]
    windows: NDArray[np.int64]
    # found, lifted: of the last one who was looked at, the block of each place, and the names of
    # blocks in tiers
    found: NDArray[np.int64]
    lifted: NDArray[np.int64]
    refs: NDArray[np.int32]  # int32, holders of each block of the cache
    name: NDArray[np.int64]  # of each block of the cache and of the tiers
    # begun, begun_until: the name of each block's beginning, and the token up to which that reaches
    begun: NDArray[np.int64]
    begun_until: NDArray[np.int64]
    # before, after: int32, the rings
    before: NDArray[np.int32]
    after: NDArray[np.int32]
    # names, blocks: the table of names; int64 and int32
    names: NDArray[np.int64]
    blocks: NDArray[np.int32]
    first: NDArray[np.int64]  # the first block of each tier, and the number of all blocks
    # lasts, latency: picoseconds of a transfer from each tier, and before the first one of a
    # request
    lasts: NDArray[np.int64]
    latency: NDArray[np.int64]
    hidden: NDArray[np.int64]  # 1 of a tier whose transfers overlap with the step
    cached: NDArray[np.int64]  # for each request, tokens that it found when it first entered
    pause: NDArray[np.int64]  # as in ``Trace.pause_ps``
    # followers, waiting: as ``Follows.starts`` and ``Follows.rows``
    followers: NDArray[np.int64]
    waiting: NDArray[np.int64]
    # waits, ready: for how many that have not ended each request waits, and the last end of the
    # others
    waits: NDArray[np.int64]
    ready: NDArray[np.int64]
    # session, left: of each request its session, and of each session the requests that have not
    # ended
    session: NDArray[np.int64]
    left: NDArray[np.int64]
    # at, row: a heap of those on their way: when they are sent, and their rows
    at: NDArray[np.int64]
    row: NDArray[np.int64]
    firsts: NDArray[np.int64]  # rows of first turns


@called()
def look_up(m, r, tokens):
    """Tokens that a request finds which is to compute so many; the rest of what it finds is
    noted.
    """
    c, note, size = m.cache, m.cache.note, m.cfg.block_tokens
    note.found, note.kept, note.idle, note.tokens, note.transfer, note.overlap = 0, 0, 0, 0, 0, 0
    if note.on == 0:
        return 0
    # sums in the record would be written to memory block by block
    p, place, reached, cached, idle, transfer, overlap = c.starts[r], 0, 0, 0, 0, 0, 0
    home, ahead = 0, -1
    while (place + 1) * size < tokens:
        while c.until[p] < (place + 1) * size:
            p += 1
            ahead = -1
        name = name_of(c.piece[p], place, 0)
        if place >> LINE_2 != ahead:  # the names of the next places are in the same line
            home, ahead = home_of(c, name) - place, place >> LINE_2
        block = (
            np.int64(c.blocks[home + place]) if c.names[home + place] == name else named(c, name)
        )
        if block == EMPTY:
            break
        c.found[place] = block
        if block < c.refs.size:
            cached += 1
            idle += c.refs[block] == 0
        else:
            tier = ring_of(c, block) - c.name.size - 1
            lasts = c.lasts[tier] + (c.latency[tier] if reached & (1 << tier) == 0 else 0)
            reached |= 1 << tier
            if c.hidden[tier] > 0:
                overlap += lasts
            else:
                transfer += lasts
        place += 1
    note.kept, note.idle, note.transfer, note.overlap = cached, idle, transfer, overlap
    note.found = place
    note.tokens = place * size
    if note.partial > 0:
        p = piece_at(c, r, note.tokens)
        block = named(c, name_of(c.piece[p], place, 1))
        if block != EMPTY:
            note.tokens = max(min(c.begun_until[block], c.until[p], tokens - 1), note.tokens)
    return note.tokens


@called()
def hold(m, i):
    """The request that was looked at last has the slot now, with what it found."""
    c, note, slot = m.cache, m.cache.note, m.slots[i]
    note.blocked = 0
    if note.on == 0:
        return
    c.taken[i], c.known[i], c.windows[i] = note.found, note.found, 0
    if note.tokens == 0:
        return
    for k in range(note.found):
        block = c.found[k]
        if block < c.refs.size:
            if c.refs[block] == 0:
                unlink(c, block)
            c.refs[block] += 1
            c.held[i, k] = block
    # names that are lifted stay in the table, where nobody looks for them meanwhile
    for k in range(note.found if note.found > note.kept else 0):
        block = c.found[k]
        if block >= c.refs.size:
            c.lifted[k] = c.name[block]
            forget(c, block)
    for k in range(note.found if note.found > note.kept else 0):
        if c.found[k] >= c.refs.size:
            block = take(c)
            c.name[block] = c.lifted[k]
            put(c, c.lifted[k], block)
            c.held[i, k] = block
    slot.computed = note.tokens
    slot.blocks = note.found
    m.state.free -= note.found - note.kept + note.idle
    note.waits += note.transfer
    note.overlaps += note.overlap
    if m.rows.preemptions[slot.row] == 0:
        c.cached[slot.row] = note.tokens


@called()
def note_blocked(m, r):
    """The request that was looked at last found too few free blocks."""
    note = m.cache.note
    note.blocked, note.others = r + 1, note.kept - note.idle


@part()
def still_blocked(m, r, needed):
    """Whether a request that was blocked is so whatever it would find now: of its blocks others
    hold no more than they did, and what was named since.
    """
    note = m.cache.note
    return note.blocked == r + 1 and needed - note.others > m.state.free


@part()
def wanted_blocks(m, i, tokens):
    """Blocks of the context of a request with so many tokens; with guesses all that are set aside
    for it.
    """
    slot = m.slots[i]
    return (
        slot.blocks - slot.windows if m.cfg.drafted > 0 else blocks_of(tokens, m.cfg.block_tokens)
    )


@called()
def grow(m, i, blocks_needed):
    """Let a request hold the blocks of its windows and so many of its context."""
    c, slot = m.cache, m.slots[i]
    while c.windows[i] < slot.windows:
        c.windows[i] += 1
        c.held[i, c.held.shape[1] - c.windows[i]] = take(c)
    while c.taken[i] < blocks_needed:
        c.held[i, c.taken[i]] = take(c)
        c.taken[i] += 1


@called()
def tell(m, i, tokens):
    """Name the blocks of a request that are full by so many tokens."""
    c, r, size = m.cache, m.slots[i].row, m.cfg.block_tokens
    place = c.known[i]
    p = piece_at(c, r, place * size)
    while (place + 1) * size <= tokens:
        while c.until[p] <= place * size:
            p += 1
        begins = p
        while c.until[p] < (place + 1) * size:
            p += 1
        block = c.held[i, place]
        give_name(c, block, name_of(c.piece[p], place, 0))
        if c.note.partial > 0:
            let_begin(
                c,
                block,
                name_of(c.piece[begins], place, 1),
                min(c.until[begins], (place + 1) * size),
            )
        place += 1
    c.note.others += place - c.known[i]
    c.known[i] = place


@called()
def compute(m, i, tokens):
    """Note that ``tokens`` of a request in prefill will be in the cache after the step under
    construction.
    """
    if m.cache.note.on == 0:
        return
    follow_up(m, i, tokens, m.cache.note.names == SCHEDULED)


@part()
def follow_up(m, i, tokens, names):
    """Blocks for so many tokens of a request and, if ``names``, the names of full blocks."""
    needed = wanted_blocks(m, i, tokens)
    if m.cache.taken[i] < needed or m.cache.windows[i] < m.slots[i].windows:
        grow(m, i, needed)
    if names and (m.cache.known[i] + 1) * m.cfg.block_tokens <= tokens:
        tell(m, i, tokens)


@called()
def catch_up(m, ahead):
    """Blocks and names of decoding requests: of what they have computed, and of ``ahead`` tokens
    more.
    """
    s, lists = m.state, m.lists
    if s.decoding == 0 or m.cache.note.on == 0:
        return
    for k in range(s.running):
        if lists.ends[k] < NEVER:
            i = lists.running[k]
            slot = m.slots[i]
            follow_up(
                m, i, slot.isl + s.round - slot.base - 1 + ahead, m.cache.note.names == SCHEDULED
            )


@called()
def catch_up_before(m, k):
    """The same within the pass that takes the blocks of the next step: the first ``k`` that run
    have taken theirs.
    """
    s, lists, f = m.state, m.lists, 0
    if m.cache.note.on == 0:
        return
    names = m.cache.note.names == SCHEDULED
    for j in range(s.running):
        i = lists.running[j]
        slot = m.slots[i]
        if lists.ends[j] < NEVER:
            follow_up(m, i, slot.isl + s.round - slot.base - (0 if j < k else 1), names)
        else:
            if j < k:
                follow_up(m, i, slot.computed + lists.take[f], names)
            f += 1


@called()
def filled(m, i):
    """Note that part of a prompt was computed."""
    slot, note = m.slots[i], m.cache.note
    complete = slot.computed == slot.isl + slot.generated
    if note.on > 0 and (note.names == COMPUTED or (note.names == COMPLETE and complete)):
        follow_up(m, i, slot.computed, True)


@part()
def forget_transfers(m):
    """Blocks that the step waits for are counted into it; how many picoseconds their transfers
    take.
    """
    counted = m.cache.note.waits + m.cache.note.overlaps
    m.cache.note.waits, m.cache.note.overlaps = 0, 0
    return counted


@called()
def released(m, i, blocks, tokens, ended):
    """A request that had so many blocks and computed so many tokens lets go of them; how many are
    free by that.
    """
    c, size = m.cache, m.cfg.block_tokens
    if c.note.on == 0:
        return blocks
    follow_up(m, i, tokens, ended > 0 or c.note.names == SCHEDULED)
    place = tokens // size
    if ended > 0 and c.note.partial > 0 and place * size < tokens:
        p = piece_at(c, m.slots[i].row, place * size)
        let_begin(c, c.held[i, place], name_of(c.piece[p], place, 1), min(c.until[p], tokens))
    free = blocks - c.taken[i] - c.windows[i]
    for k in range(c.taken[i] - 1, -1, -1):
        free += let_go(c, c.held[i, k])
    for k in range(c.windows[i]):
        free += let_go(c, c.held[i, c.held.shape[1] - 1 - k])
    return free
