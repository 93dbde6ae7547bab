"""What the loop asks of a prefix cache and of sessions, chosen when it is compiled: nothing at all
for a machine that has none.

Each function has two forms (``two_forms``), so that workloads whose requests have nothing in common
are compiled and run as if there were no caches.
"""

from __future__ import annotations

from tonnage.simulator.kernel import prefix_cache, sessions
from tonnage.simulator.kernel.compiler import two_forms

find = two_forms(
    "cache", lambda m, r, tokens: 0, lambda m, r, tokens: prefix_cache.look_up(m, r, tokens)
)
"""Tokens that a waiting request finds which is to compute so many."""

found_blocks = two_forms("cache", lambda m: 0, lambda m: m.cache.note.found)
"""Blocks that it finds."""

no_longer_free = two_forms(
    "cache", lambda m: 0, lambda m: m.cache.note.found - m.cache.note.kept + m.cache.note.idle
)
"""Blocks that are not free any more when it has these."""

note_blocked = two_forms("cache", lambda m, r: None, lambda m, r: prefix_cache.note_blocked(m, r))
"""The request that was looked at last found too few free blocks."""

still_blocked = two_forms(
    "cache",
    lambda m, r, needed: False,
    lambda m, r, needed: prefix_cache.still_blocked(m, r, needed),
)
"""Whether it finds too few whatever it would find now, as nobody entered since."""

hold = two_forms("cache", lambda m, i: None, lambda m, i: prefix_cache.hold(m, i))
"""The request that was looked at last has the slot now, with what it found."""

compute = two_forms(
    "cache", lambda m, i, tokens: None, lambda m, i, tokens: prefix_cache.compute(m, i, tokens)
)
"""So many tokens of a filling request will be in the cache after the step that is put together."""

catch_up = two_forms(
    "cache", lambda m, ahead: None, lambda m, ahead: prefix_cache.catch_up(m, ahead)
)
"""Note the blocks of decoding requests, before anybody looks for one."""

catch_up_before = two_forms(
    "cache", lambda m, k: None, lambda m, k: prefix_cache.catch_up_before(m, k)
)
"""The same before blocks are let go while those of the next step are taken, which the first ``k``
that run have."""

filled = two_forms("cache", lambda m, i: None, lambda m, i: prefix_cache.filled(m, i))
"""Something of a prompt was computed."""

released = two_forms(
    "cache",
    lambda m, i, blocks, tokens, ended: blocks,
    lambda m, i, blocks, tokens, ended: prefix_cache.released(m, i, blocks, tokens, ended),
)
"""A request that had so many blocks and computed so many tokens lets go of them; how many are free
by that."""

transferred = two_forms(
    "cache", lambda m, ps: ps, lambda m, ps: max(ps, m.cache.note.overlaps) + m.cache.note.waits
)
"""Picoseconds of the step that is put together with its transfers of blocks from tiers below the
cache."""

forget_transfers = two_forms("cache", lambda m: 0, lambda m: prefix_cache.forget_transfers(m))
"""They are counted into the step; their picoseconds."""

follow = two_forms(
    "cache", lambda m, r, free_at: True, lambda m, r, free_at: sessions.follow(m, r, free_at)
)
"""The requests that waited for it are sent; True where its session is over, so that its client is
free."""

next_row = two_forms(
    "cache", lambda m: m.state.arrived + m.state.coming, lambda m: sessions.next_row(m)
)
"""The row that the client of a closed loop sends next; beyond the last where there is none."""

put_on_its_way = two_forms("cache", lambda m, r: None, lambda m, r: sessions.push(m, r))
"""A row that is sent is one of those on their way."""

first_of = two_forms("cache", lambda m: m.state.arrived, lambda m: m.cache.row[0])
"""The row that arrives first."""

take_first = two_forms(
    "cache",
    lambda m, r: m.rows.next[r] if m.cfg.routed > 0 and m.state.coming > 0 else r + 1,
    lambda m, r: sessions.pop(m),
)
"""The row of the next one on its way, when this one has arrived and those left are counted."""
