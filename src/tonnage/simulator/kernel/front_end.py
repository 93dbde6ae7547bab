"""The front end of an engine, compiled: requests enter one after another, tokens are streamed, and
tokens go first.
"""

from __future__ import annotations

from tonnage.simulator.kernel.compiler import jitable, part
from tonnage.simulator.rules import FOURTHS


@jitable()
def reached(entered, sent, frontend, busy):
    """When a request reaches the engine that keeps the front end busy so long; those before it have
    entered at ``entered``.
    """
    return max(entered, sent) + max(frontend, busy)


@part()
def enters(m, r):
    """The time for which an entering request keeps the front end busy."""
    return m.cfg.enter + m.rows.isl[r] * m.cfg.enter_token


@part()
def reaches(m, r):
    """When the request of that row, the next one to enter, reaches the engine."""
    return reached(m.state.entered, m.rows.sent[r], m.cfg.frontend, enters(m, r))


@part()
def enter(m, r):
    """The request of that row has entered."""
    busy = enters(m, r)
    m.state.entered = max(m.state.entered, m.rows.sent[r]) + busy
    m.state.entering += busy


@part()
def put_off(m, first, steps):
    """Account for ``steps`` ended steps whose tokens are streamed before any other request enters;
    ``first`` is the row of the next.
    """
    s = m.state
    if m.cfg.enter + m.cfg.enter_token > 0 and s.puts_off > 0 and steps > 0:
        s.entered += steps * s.puts_off
        if s.coming > 0:
            s.next_arrival = reaches(m, first)


@part()
def streamed(m, ends):
    """When clients have the tokens of a step that ends at ``ends``, and all before them."""
    s, sequences = m.state, 0
    if m.cfg.stream + m.cfg.stream_step > 0:
        if m.step.alone == 0:
            sequences = s.decoding
        for f in range(s.filling):
            slot = m.slots[m.lists.filling[f]]
            if slot.computed + m.lists.take[f] == slot.isl + slot.generated:
                sequences += 1
    begins = max(s.seen + s.entering, ends)
    s.entering = 0
    s.streams = sequences * m.cfg.stream
    if sequences > 0 and ends >= s.starts:
        s.streams += m.cfg.stream_step
        s.starts = begins
    s.puts_off = min(s.streams, (ends - s.now) // 4 * FOURTHS)
    return begins + s.streams
