"""What a router sees of its engines, compiled: what has come back, and a heap of what is on its way from the front ends to clients."""

from __future__ import annotations

from tonnage.simulator.kernel.inlined import part
from tonnage.simulator.kernel.memory import CLOSELY


@part()
def book(m):
    """Take off what the last step ended and returned: now if clients have it already, else when they will.

    Tokens are kept up only where a router looks at them.
    """
    s, step, watch, place = m.state, m.step, m.watch, m.cfg.place
    if step.ended > 0 or (step.returned > 0 and m.cfg.routed == CLOSELY):
        if s.seen <= s.watched:
            watch.requests[place] -= step.ended
            watch.tokens[place] -= step.returned
        else:
            push(watch, s.seen, place, step.ended, step.returned)


@part()
def push(watch, at, place, ended, returned):
    """Add an entry to the heap."""
    late, i = watch.late, watch.under_way[0]
    watch.under_way[0] += 1
    while i > 0 and late[(i - 1) // 2, 0] > at:
        for j in range(4):
            late[i, j] = late[(i - 1) // 2, j]
        i = (i - 1) // 2
    late[i, 0], late[i, 1], late[i, 2], late[i, 3] = at, place, ended, returned


@part()
def pop(watch):
    """Take the first entry off the heap."""
    late = watch.late
    watch.under_way[0] -= 1
    last, i = watch.under_way[0], 0
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and late[child + 1, 0] < late[child, 0]:
            child += 1
        if late[child, 0] >= late[last, 0]:
            break
        for j in range(4):
            late[i, j] = late[child, j]
        i = child
    for j in range(4):
        late[i, j] = late[last, j]


@part()
def deliver(watch, until):
    """Take off what clients have by now."""
    while watch.under_way[0] > 0 and watch.late[0, 0] <= until:
        place = watch.late[0, 1]
        watch.requests[place] -= watch.late[0, 2]
        watch.tokens[place] -= watch.late[0, 3]
        pop(watch)
