"""The compiled loop of one engine by itself: its steps, up to an instant."""

from __future__ import annotations

import math

from tonnage.simulator.kernel.arrivals import shed, take_arrivals
from tonnage.simulator.kernel.blocks import rounds_with_blocks
from tonnage.simulator.kernel.compiler import jitable, part, two_forms
from tonnage.simulator.kernel.decoding import count_gaps, see_gap
from tonnage.simulator.kernel.front_end import put_off, streamed
from tonnage.simulator.kernel.members import book
from tonnage.simulator.kernel.memory import BETWEEN, NEVER, UNDER_WAY
from tonnage.simulator.kernel.price import price
from tonnage.simulator.kernel.schedulers import schedule
from tonnage.simulator.kernel.shared import first_of, forget_transfers
from tonnage.simulator.kernel.tokens import end_requests, end_step
from tonnage.simulator.rules import RATIO_DECAY, RATIO_LEAST, RATIO_START

# Steps that are alike, taken at once, compiled. Between two events (an arrival that the engine
# looks at, the end of a prompt, the last token of a request, a block that nobody has) the same
# requests decode: each step reads one token more of each, so that a step of B sequences takes
# B·c(B) longer than the one before, and where the n-th ends is a sum of an arithmetic series of
# whole numbers. It is the same instant to which n steps one by one lead.


MOST_STEPS = 4096
"""Steps of one leap."""

FAR = float(1 << 61)
"""A leap of more picoseconds than this is not taken: products must stay below 2**63."""


@part()
def own_slope(m):
    """The picoseconds by which a step of the engine alone is longer than the step before it."""
    batch = m.step.decode_sequences
    return m.prices.c[batch] * batch if m.step.prefill_tokens == 0 else 0


slope = two_forms("group", lambda m: own_slope(m), lambda m: m.group.note[0].longer)
"""By how many picoseconds a step is longer than the one before; of attention ranks in lockstep,
that of the slowest."""


@jitable()
def after(first, longer, steps):
    """How long ``steps`` take, of which the first takes ``first`` and each further one ``longer``
    more than the step before.
    """
    return steps * first + longer * (steps * (steps - 1) // 2)


@part()
def steps_within(first, longer, lasts, limit):
    """The number of steps, at most ``limit``, that have ended after ``lasts`` picoseconds."""
    if after(first, longer, limit) <= lasts:
        return limit
    if first > lasts:
        return 0
    half = 0.5 * float(longer)
    linear = float(first) - half
    steps = int(
        2.0 * float(lasts) / (linear + math.sqrt(linear * linear + 4.0 * half * float(lasts)))
    )
    while after(first, longer, steps) > lasts:
        steps -= 1
    while after(first, longer, steps + 1) <= lasts:
        steps += 1
    return steps


@part()
def steps_ahead(m, limit):
    """How many of at most ``limit`` steps follow one another that are like the one that begins now,
    counting it.

    Blocks for the further ones are in ``step.grown``.

    Its tokens are with clients ``stream`` later for each who decodes. Where that takes longer than
    the step, or the front end is not done with earlier ones when it ends, steps are taken one by
    one.
    """
    s, cfg, step = m.state, m.cfg, m.step
    step.grown = 0
    if (
        cfg.leaps == 0
        or (s.filling > 0 and s.held == 0)
        or step.prefill_tokens > 0
        or s.steady == 0
    ):
        return 1
    limit, longer = min(s.next_end - s.round, limit), slope(m)
    if (
        limit <= 1
        or s.seen_next > s.now + s.lasts + s.streams
        or s.streams > s.lasts
        or (cfg.enter + cfg.enter_token > 0 and s.puts_off < s.streams)
    ):
        return 1
    if float(limit) * (float(s.lasts) + float(longer) * float(limit)) > FAR:
        return 1
    if cfg.window >= 0:
        limit = max(steps_within(s.lasts, longer, cfg.window - (s.seen_next - s.lasts), limit), 1)
    if s.next_arrival < NEVER:
        limit = steps_until_heard(m, longer, limit)
    limit = steps_until_shed(m, longer, limit)
    if cfg.grows > 0 and limit > 1:
        limit = 1 + rounds_with_blocks(m, limit - 1)
    return limit


@part()
def steps_until_there(m, longer, limit):
    """The step at whose end an engine that looks after every step has heard of the next arrival,
    which may be beyond ``limit``.
    """
    s = m.state
    if s.next_arrival <= s.now:
        return 1
    return steps_within(s.lasts, longer, s.next_arrival - 1 - s.now, limit) + (
        2 if m.cfg.overlap > 0 else 1
    )


@part()
def steps_until_heard(m, longer, limit):
    """The step at whose end the engine has heard of the next arrival, or ``limit``."""
    s, receive, step = m.state, m.cfg.receive, steps_until_there(m, longer, limit)
    if receive > 1:
        step += (receive - (s.unheard + step) % receive) % receive
    return min(step, limit)


@part()
def steps_until_late(m, longer, limit):
    """The step at whose end a request that waits may be rejected because its first token cannot
    come in time any more, or ``limit``.
    """
    s, note = m.state, m.ranks.note[0]
    if note.shed == 0 or s.queued == 0 or note.soonest == NEVER:
        return limit
    return min(limit, 1 + steps_within(s.lasts, longer, note.soonest - s.now, limit))


steps_until_shed = two_forms(
    "ranks",
    lambda m, longer, steps: steps,
    lambda m, longer, steps: steps_until_late(m, longer, steps),
)
"""``steps_until_late`` of an engine that looks at limits."""


@part()
def leap(m, steps, began):
    """Do all but the first of ``steps``, the first of which began at ``began``: tokens and blocks
    of decoding requests.
    """
    s, more, longer = m.state, steps - 1, slope(m)
    record_alone(m, more, began)
    gap = s.lasts + longer
    s.seen += after(gap, longer, more)
    s.starts = s.now
    s.free -= m.step.grown
    s.ratio = max(s.ratio - more * RATIO_DECAY, RATIO_LEAST)
    s.context += more * s.decoding
    if m.cfg.grows > 0:
        s.countdown = (s.countdown - more) % m.cfg.block_tokens
    m.step.returned += more * s.decoding
    while more > 0:
        see_gap(m, gap)
        edge, rounds = m.tallies.edges[s.last_bin + 1], more
        if gap + (more - 1) * longer >= edge:
            rounds = (edge - 1 - gap) // longer + 1
        s.round += rounds
        gap += rounds * longer
        more -= rounds


@part()
def record_more(m, row, more, began):
    """Keep the further steps of a leap whose first began then and has the row before ``row``, if
    there is room.
    """
    s, steps, longer = m.state, m.tallies.steps, slope(m)
    for k in range(min(more, steps.shape[0] - row)):
        for column in range(steps.shape[1]):
            steps[row + k, column] = steps[row - 1, column]
        steps[row + k, 0] = began + after(s.lasts, longer, k + 1)
        steps[row + k, 1] = s.lasts + (k + 1) * longer
        steps[row + k, 6] += (k + 1) * m.step.decode_sequences


record_alone = two_forms(
    "group",
    lambda m, more, began: record_more(m, m.state.round + m.state.alone, more, began),
    lambda m, more, began: None,
)
"""``record_more`` of an engine by itself; the steps of a group are recorded once for all."""


@part()
def advance_alone(m, until):
    """Do all that happens up to and including ``until``, but for a step that begins then: more may
    arrive at that instant.

    It also stops where the window ends, and where the log might not hold what comes next. Steps
    that are alike are under way together: where they end later than ``until``, nobody has to know
    how far they have come.
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
            if not begin_step(m):
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
    """End ``steps`` steps, the last of which began at ``began``."""
    s, start = m.state, m.state.now
    s.began = began
    s.now = s.ends
    prompts, decodes = m.step.prefill_tokens, m.step.decode_sequences
    s.unheard = (
        0
        if prompts > 0 or decodes == 0 or m.cfg.receive == 1
        else (s.unheard + steps) % m.cfg.receive
    )
    m.step.ended = 0
    m.step.returned = 0
    put_off(m, first_of(m), steps - 1)
    take_arrivals(m, began if m.cfg.overlap > 0 else s.now - 1)
    put_off(m, first_of(m), 1)
    end_step(m)
    if steps > 1:
        leap(m, steps, start)
    if s.next_end <= s.round:
        end_requests(m)
    if m.cfg.routed > 0:
        book(m)


@part()
def wake(m, until):
    """An idle engine goes on when the next request reaches it; False where none does by then, or
    the window ends first.
    """
    s = m.state
    s.ratio = RATIO_START
    if s.next_arrival > until or s.next_arrival == NEVER:
        return False
    s.unheard = 0
    s.now = max(s.now, s.next_arrival)
    return not 0 <= m.cfg.window < s.now


@part()
def begin_step(m):
    """Put the next step together and price it. If the window ends before clients have its tokens,
    it never happens: False.
    """
    s = m.state
    empty_step(m)
    schedule(m)
    s.lasts = price(m, 1.0)
    forget_transfers(m)
    s.seen_next = streamed(m, s.now + s.lasts)
    if 0 <= m.cfg.window < s.seen_next:
        take_arrivals(m, m.cfg.window)
        return False
    record(m)
    return True


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
