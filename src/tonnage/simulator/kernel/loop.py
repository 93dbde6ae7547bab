"""The compiled loop of one engine by itself: its steps, up to an instant."""

from __future__ import annotations

from tonnage.simulator.kernel.arrivals import shed, take_arrivals
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.decoding import count_gaps
from tonnage.simulator.kernel.leaps import MOST_STEPS, after, leap, slope, steps_ahead
from tonnage.simulator.kernel.members import book
from tonnage.simulator.kernel.memory import BETWEEN, NEVER, UNDER_WAY
from tonnage.simulator.kernel.price import price
from tonnage.simulator.kernel.schedulers import schedule
from tonnage.simulator.kernel.shared import forget_transfers
from tonnage.simulator.kernel.tokens import end_requests, end_step, streamed
from tonnage.simulator.ratio import RATIO_START


@part()
def advance_alone(m, until):
    """Do all that happens up to and including ``until``, but for a step that begins then: more may arrive at that instant.

    It also stops where the window ends, and where the log might not hold what comes next. Steps that are alike are under way together:
    where they end later than ``until``, nobody has to know how far they have come.
    """
    s, overlap, reporting = m.state, m.cfg.overlap > 0, m.cfg.reporting > 0
    under_way = s.phase == UNDER_WAY
    s.phase = BETWEEN
    while m.stop[0] == 0:
        if not under_way:
            if reporting and s.logged + s.coming + m.cfg.slots > m.log.at.size:
                break
            take_arrivals(m, s.began if overlap else s.now)
            shed(m)
            if s.running == 0 and s.queued == 0:
                if not wake(m, until):
                    break
                s.began = s.now
                continue
            if s.now >= until:
                break
            begin_step(m)
            if s.over > 0:
                break
            under_way = True
        steps = steps_ahead(m, MOST_STEPS)
        lasts, longer = s.lasts, slope(m)
        s.ends = s.now + after(lasts, longer, steps)
        if s.ends > until:
            s.phase = UNDER_WAY
            break
        under_way = False
        end_steps(m, steps, s.ends - (lasts + (steps - 1) * longer))


@part()
def end_steps(m, steps, began):
    """So many steps have ended, of which the last began then."""
    s, start = m.state, m.state.now
    s.began = began
    s.now = s.ends
    prompts, decodes = m.step.prefill_tokens, m.step.decode_sequences
    s.unheard = 0 if prompts > 0 or decodes == 0 or m.cfg.receive == 1 else (s.unheard + steps) % m.cfg.receive
    m.step.ended = 0
    m.step.returned = 0
    take_arrivals(m, began if m.cfg.overlap > 0 else s.now - 1)
    end_step(m)
    if steps > 1:
        leap(m, steps, start)
    if s.next_end <= s.round:
        end_requests(m)
    if m.cfg.routed > 0:
        book(m)


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
def begin_step(m):
    """Put the next step together and price it. If the window ends before clients have its tokens, it never happens."""
    s = m.state
    empty_step(m)
    schedule(m)
    s.lasts = price(m, 1.0)
    forget_transfers(m)
    s.seen_next = streamed(m, s.now + s.lasts)
    if 0 <= m.cfg.window < s.seen_next:
        take_arrivals(m, m.cfg.window)
        s.over = 1
    else:
        record(m)


@part()
def empty_step(m):
    """A step with nothing in it."""
    step = m.step
    step.prefill_tokens = 0
    step.prefill_sequences = 0
    step.decode_sequences = 0
    step.pairs_2 = 0
    step.context_tokens = 0


@part()
def tokens_of(m):
    """Tokens that the step computes, guesses among them."""
    return m.step.prefill_tokens + m.step.decode_sequences * (m.cfg.drafted + 1)


@part()
def record(m):
    """Keep a step that begins, if there is room."""
    s, step, steps = m.state, m.step, m.tallies.steps
    row = s.round + s.alone
    if row < steps.shape[0]:
        steps[row, 0] = s.now
        steps[row, 1] = s.lasts
        steps[row, 2] = step.prefill_tokens
        steps[row, 3] = step.prefill_sequences
        steps[row, 4] = step.decode_sequences
        steps[row, 5] = step.pairs_2
        steps[row, 6] = step.context_tokens
        steps[row, 7] = s.running
        steps[row, 8] = s.queued
        steps[row, 9] = tokens_of(m)


@part()
def settle_alone(m):
    """Note what all who decode have generated, and count their gaps."""
    s = m.state
    count_gaps(m)
    for k in range(s.running):
        if m.lists.ends[k] < NEVER:
            slot = m.slots[m.lists.running[k]]
            slot.generated = s.round - slot.base
            m.rows.generated[slot.row] = slot.generated
