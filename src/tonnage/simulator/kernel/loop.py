"""The one compiled loop: an engine's steps, up to an instant."""

from __future__ import annotations

from tonnage.simulator.kernel.arrivals import take_arrivals
from tonnage.simulator.kernel.cancel import cancel
from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.memory import BETWEEN, NEVER, UNDER_WAY
from tonnage.simulator.kernel.price import price
from tonnage.simulator.kernel.schedulers import schedule
from tonnage.simulator.kernel.tokens import end_step, streamed
from tonnage.simulator.ratio import RATIO_START


@part()
def advance(m, until):
    """Do all that happens up to and including ``until``, but for a step that begins then: more may arrive at that instant.

    It also stops where the window ends, and where the log might not hold what comes next.
    """
    s, overlap, receive, reporting = m.state, m.cfg.overlap > 0, m.cfg.receive, m.cfg.reporting > 0
    now, began, ends, under_way = s.now, s.began, s.ends, s.phase == UNDER_WAY
    s.phase = BETWEEN
    while m.stop[0] == 0:
        if not under_way:
            if reporting and s.logged + s.submitted - s.arrived + m.cfg.slots > m.log.at.size:
                break
            take_arrivals(m, began if overlap else now)
            if s.running == 0 and s.stacked == 0 and s.head == s.tail:
                if not wake(m, until):
                    break
                now = s.now
                began = now
                continue
            if now >= until:
                break
            ends = begin_step(m, now)
            if s.over > 0:
                break
            under_way = True
        if ends > until:
            s.phase = UNDER_WAY
            break
        began = now
        now = ends
        under_way = False
        s.now = now
        s.unheard = 0 if m.step.prefill_tokens > 0 or s.unheard + 1 == receive else s.unheard + 1
        take_arrivals(m, began if overlap else now - 1)
        end_step(m)
    s.began = began
    s.ends = ends


@part()
def wake(m, until):
    """An idle engine goes on when the next request reaches it; False where none does by then, or the window ends first."""
    s = m.state
    s.ratio = RATIO_START
    if s.next_arrival > until or s.next_arrival == NEVER:
        return False
    s.unheard = 0
    s.now = max(s.now, s.next_arrival)
    if 0 <= m.cfg.window < s.now:
        s.over = 1
        return False
    return True


@part()
def begin_step(m, now):
    """Put the next step together and price it; when it ends. If the window ends before clients have its tokens, it never happens."""
    s, step = m.state, m.step
    step.prefill_tokens = 0
    step.prefill_sequences = 0
    step.decode_sequences = 0
    step.pairs_2 = 0
    step.context_tokens = 0
    schedule(m)
    lasts = price(m)
    s.seen_next = streamed(m, now + lasts)
    if 0 <= m.cfg.window < s.seen_next:
        take_arrivals(m, m.cfg.window)
        s.over = 1
    else:
        record(m, now, lasts)
    return now + lasts


@small()
def record(m, now, lasts):
    """Keep a step that begins, if there is room."""
    s, step, steps = m.state, m.step, m.tallies.steps
    row = s.round + s.alone
    if row < steps.shape[0]:
        steps[row, 0] = now
        steps[row, 1] = lasts
        steps[row, 2] = step.prefill_tokens
        steps[row, 3] = step.prefill_sequences
        steps[row, 4] = step.decode_sequences
        steps[row, 5] = step.pairs_2
        steps[row, 6] = step.context_tokens
        steps[row, 7] = s.running
        steps[row, 8] = s.tail - s.head + s.stacked


@part()
def drive(m, until, cancelled):
    """Let go of the request of that row, or for -1 advance; then note what all have generated."""
    s = m.state
    if cancelled >= 0:
        cancel(m, cancelled)
    elif s.over == 0:
        advance(m, until)
    for i in range(s.running):
        r = m.lists.running[i]
        if m.rows.until[r] < NEVER:
            m.rows.generated[r] = s.round - m.rows.base[r]
