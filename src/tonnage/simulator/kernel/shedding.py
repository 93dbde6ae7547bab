"""Requests that cannot have their first token in time any more, compiled: they are rejected before a step is put together."""

from __future__ import annotations

from tonnage.results.requests import REJECTED
from tonnage.simulator.kernel.arrivals import answer
from tonnage.simulator.kernel.forms import two_forms
from tonnage.simulator.kernel.inlined import part
from tonnage.simulator.kernel.memory import NEVER


@part()
def shed_late(m):
    """Reject who waits, has had no token, and would have its first one too late in a step with its prompt alone that began now."""
    s, rows, ranks = m.state, m.rows, m.ranks
    if ranks.note.shed == 0 or s.now <= ranks.note.soonest:
        return
    before, r, left, soonest = -1, s.head, s.queued, NEVER
    while left > 0:
        following = rows.next[r]
        left -= 1
        if rows.generated[r] == 0 and s.now > ranks.latest[r]:
            if before < 0:
                s.head = following
            else:
                rows.next[before] = following
            if left == 0:
                s.tail = before
            s.queued -= 1
            rows.status[r] = REJECTED
            ranks.waits[r] = 0
            answer(m, r, s.now)
        else:
            if rows.generated[r] == 0:
                soonest = min(soonest, ranks.latest[r])
            before = r
        r = following
    ranks.note.soonest = soonest


shed = two_forms("ranks", lambda m: None, lambda m: shed_late(m))
"""``shed_late`` of an engine that looks at limits."""
