"""Attention ranks of one instance in lockstep, compiled; the rules are those of
``reference.Ranks``.

Each rank is a machine. The loop finds the machines of a group by their addresses, where they were
written beforehand (``write_at``), so that one loop is compiled for any number of ranks. Steps that
are alike are taken at once while all ranks decode or are idle and the same one stays the slowest.
"""

from __future__ import annotations

from tonnage.simulator.kernel.arrivals import shed, take_arrivals
from tonnage.simulator.kernel.blocks import held
from tonnage.simulator.kernel.compiler import part, reference_at, two_forms
from tonnage.simulator.kernel.decoding import leave_decoding
from tonnage.simulator.kernel.front_end import streamed
from tonnage.simulator.kernel.loop import (
    MOST_STEPS,
    advance_alone,
    after,
    empty_step,
    end_steps,
    own_slope,
    record_more,
    settle_alone,
    steps_ahead,
    steps_until_there,
    tokens_of,
)
from tonnage.simulator.kernel.memory import BETWEEN, IN_A_FLEET, NEVER, UNDER_WAY
from tonnage.simulator.kernel.price import price
from tonnage.simulator.kernel.queue import give_back, leave_queue
from tonnage.simulator.kernel.schedulers import schedule
from tonnage.simulator.kernel.shared import forget_transfers
from tonnage.simulator.request import CANCELLED
from tonnage.simulator.rules import RATIO_START

# A request that nobody wants any more, compiled: it gives up its place in a list, its slot and its
# blocks at once.


@part()
def cancel(m, r):
    """Let go of a request that the engine has received and that has not ended; a step that is under
    way lasts as long as before.
    """
    s, lists = m.state, m.lists
    k = 0
    while k < s.running and m.slots[lists.running[k]].row != r:
        k += 1
    if k == s.running:
        leave_queue(m, r)
    else:
        i = lists.running[k]
        slot = m.slots[i]
        if lists.ends[k] < NEVER:
            leave_decoding(m, k)
            grown = 1 if s.phase == UNDER_WAY and m.step.alone == 0 else 0
            s.free += held(m, slot, slot.generated + grown)
        else:
            stop_filling(m, i)
            s.free += slot.blocks
        m.rows.generated[r] = slot.generated
        s.running -= 1
        for j in range(k, s.running):
            lists.running[j] = lists.running[j + 1]
            lists.ends[j] = lists.ends[j + 1]
            lists.crosses[j] = lists.crosses[j + 1]
        give_back(m, i)
        s.full = 0
    m.rows.status[r] = CANCELLED


@part()
def stop_filling(m, i):
    """Take a request out of prefill."""
    s, filling, take = m.state, m.lists.filling, m.lists.take
    remaining = 0
    for f in range(s.filling):
        if filling[f] != i:
            filling[remaining], take[remaining] = filling[f], take[f]
            remaining += 1
    s.filling = remaining


@part()
def rank(m, j):
    """The ``j``-th rank of the group."""
    return reference_at(m.group.at[j], m)


@part()
def advance_ranks(m, until):
    """``advance_alone`` of all ranks together."""
    first, note, size = rank(m, 0).state, m.group.note[0], m.group.at.size
    under_way = first.phase == UNDER_WAY
    for j in range(size):
        rank(m, j).state.phase = BETWEEN
    while m.stop[0] == 0:
        if not under_way:
            if not listen(m):
                if not wake_ranks(m, until):
                    break
                continue
            if first.now >= until:
                break
            if not begin_ranks(m):
                break
            under_way = True
        steps = ranks_ahead(m)
        lasts, longer = first.lasts, note.longer
        ends = first.now + after(lasts, longer, steps)
        for j in range(size):
            rank(m, j).state.ends = ends
        if ends > until:
            for j in range(size):
                rank(m, j).state.phase = UNDER_WAY
            break
        under_way = False
        end_ranks(m, steps, ends - (lasts + (steps - 1) * longer))


@part()
def listen(m):
    """Take what has come to any rank, and reject what is too late; whether there is anything to
    do.
    """
    busy = False
    for j in range(m.group.at.size):
        r = rank(m, j)
        s = r.state
        take_arrivals(r, s.began if r.cfg.overlap > 0 else s.now)
        shed(r)
        if s.running == 0 and s.queued == 0:
            s.ratio = RATIO_START
        else:
            busy = True
    return busy


@part()
def has_work(r):
    """Whether a rank has requests."""
    return r.state.running > 0 or r.state.queued > 0


@part()
def wake_ranks(m, until):
    """Idle ranks go on when the next request reaches one of them; False where none does by then, or
    the window ends first.
    """
    at, now, size = NEVER, m.state.now, m.group.at.size
    for j in range(size):
        at = min(at, rank(m, j).state.next_arrival)
    if at > until or at == NEVER:
        return False
    now = max(now, at)
    for j in range(size):
        s = rank(m, j).state
        s.unheard = 0
        s.now = now
        s.began = now
    return not 0 <= m.cfg.window < now


@part()
def begin_ranks(m):
    """Put the next step of every rank together, and price it: it lasts as long as the slowest
    rank's. False where it never happens.
    """
    size, holding, tokens, over = m.group.at.size, holds(m), 0, False
    largest, prompts = 0, 0
    for j in range(size):
        r = rank(m, j)
        r.state.held = holding
        empty_step(r)
        if has_work(r):
            schedule(r)
        tokens += tokens_of(r)
        largest = max(largest, tokens_of(r))
        prompts += r.step.prefill_tokens
    padded = m.group.note[0].padded
    if padded >= 0 and (prompts == 0 or largest <= padded):
        tokens = size * largest
    price_ranks(m, tokens)
    lasts = rank(m, m.group.note[0].slowest).state.lasts
    for j in range(size):
        r = rank(m, j)
        r.state.lasts = lasts
        r.state.seen_next = streamed(r, r.state.now + lasts)
        if 0 <= r.cfg.window < r.state.seen_next:
            over = True
    if not over:
        record_ranks(m, tokens)
        return True
    for j in range(size):
        r = rank(m, j)
        take_arrivals(r, r.cfg.window)
    return False


@part()
def in_turn(m):
    """Whether no prompt has to wait for those of other ranks: all ranks have some, or one does not
    decode.
    """
    prompts, decodes, size = 0, 0, m.group.at.size
    for j in range(size):
        r = rank(m, j)
        s = r.state
        prompts += 1 if s.filling > 0 or (s.queued > 0 and s.running < r.cfg.slots) else 0
        decodes += 1 if s.decoding > 0 else 0
    return prompts == size or decodes < size


@part()
def holds(m):
    """Whether prompts wait in this step until all ranks have some."""
    note = m.group.note[0]
    note.counting = 0
    if note.wait == 0:
        return 0
    if in_turn(m):
        note.waited = 0
        return 0
    note.counting = 1
    note.waited = (note.waited + 1) % note.wait
    return 1 if note.waited > 0 else 0


@part()
def price_ranks(m, tokens):
    """What the step costs each rank, which is the slowest, and for how many steps like this one it
    stays so.
    """
    note, size = m.group.note[0], m.group.at.size
    lasts, transfers = -1, 0
    for j in range(size):
        r, cost = rank(m, j), 0
        rank_tokens = tokens_of(r)
        if rank_tokens > 0 or (tokens == 0 and has_work(r)):
            cost = price(r, float(tokens) / float(size * rank_tokens) if rank_tokens > 0 else 1.0)
            transfers += forget_transfers(r)
        r.state.lasts = cost
        if cost > lasts:
            lasts = cost
            note.slowest = j
    note.longer = own_slope(rank(m, note.slowest))
    note.most = MOST_STEPS
    # this step may have sent a request back, so that all ranks have prompts in the next, or be
    # longer by transfers
    if note.counting > 0:
        note.most = 1 if in_turn(m) or transfers > 0 else note.wait - note.waited
    for j in range(size):
        r = rank(m, j)
        gains = own_slope(r) - note.longer
        if gains > 0:
            ahead = lasts - r.state.lasts - (1 if j < note.slowest else 0)
            note.most = min(note.most, 1 + ahead // gains)


@part()
def ranks_ahead(m):
    """``steps_ahead`` of all ranks together."""
    steps = min(m.group.note[0].most, MOST_STEPS)
    for j in range(m.group.at.size):
        steps = rank_ahead(rank(m, j), steps)
    for j in range(m.group.at.size):
        rank_ahead(rank(m, j), steps)  # with blocks for so many steps and no more
    return steps


@part()
def rank_ahead(r, limit):
    """The same of one rank; one with nothing to do hears of the next arrival, and one that lost all
    its blocks computes in the next.
    """
    if tokens_of(r) > 0:
        return steps_ahead(r, limit)
    if has_work(r):
        return 1
    return (
        min(limit, steps_until_there(r, r.group.note[0].longer, limit))
        if r.state.next_arrival < NEVER
        else limit
    )


@part()
def end_ranks(m, steps, began):
    """End ``steps`` steps of all ranks, the last of which began at ``began``."""
    first, note = m.state, m.group.note[0]
    if steps > 1:
        record_more(rank(m, note.slowest), first.round + first.alone + 1, steps - 1, first.now)
        note.waited += steps - 1 if note.counting > 0 else 0
    for j in range(m.group.at.size):
        r = rank(m, j)
        if tokens_of(r) > 0:
            end_steps(r, steps, began)
        else:
            rest(r, steps, began)


@part()
def rest(r, steps, began):
    """End ``steps`` steps in which a rank had nothing to do."""
    s = r.state
    s.began = began
    s.now = s.ends
    s.unheard = 0
    s.alone += steps
    take_arrivals(r, began if r.cfg.overlap > 0 else s.now - 1)


@part()
def record_ranks(m, tokens):
    """Keep a step that begins, if there is room: what the slowest rank computes, and who is in any
    rank.
    """
    slowest, steps = rank(m, m.group.note[0].slowest), m.tallies.steps
    s, step = slowest.state, slowest.step
    row = s.round + s.alone
    if row < steps.shape[0]:
        steps[row, 0] = s.now
        steps[row, 1] = s.lasts
        steps[row, 2] = step.prefill_tokens
        steps[row, 3] = step.prefill_sequences
        steps[row, 4] = step.decode_sequences
        steps[row, 5] = step.pairs_2
        steps[row, 6] = step.context_tokens
        steps[row, 7] = 0
        steps[row, 8] = 0
        for j in range(m.group.at.size):
            steps[row, 7] += rank(m, j).state.running
            steps[row, 8] += rank(m, j).state.queued
        steps[row, 9] = tokens


@part()
def settle_ranks(m):
    """``settle_alone`` of all ranks."""
    for j in range(m.group.at.size):
        settle_alone(rank(m, j))


@part()
def watch_ranks(m, until):
    """A router sees what has come back of any rank by then."""
    for j in range(m.group.at.size):
        rank(m, j).state.watched = until


@part()
def watch_alone(m, until):
    """A router sees what has come back by then."""
    m.state.watched = until


@part()
def next_of_engine(m, now):
    """The instant after ``now``, to which it was advanced, before which no request of an engine
    ends.
    """
    s = m.state
    if s.phase == UNDER_WAY:
        return s.ends
    if s.running > 0 or s.queued > 0:
        return now + 1
    return s.next_arrival


@part()
def next_of_ranks(m, now):
    """The same of all ranks; one that is idle may not have heard yet of a request that has come,
    while others are in a step.
    """
    at = NEVER
    for j in range(m.group.at.size):
        at = min(at, next_of_engine(rank(m, j), now))
    return max(at, now + 1)


advance = two_forms(
    "group", lambda m, until: advance_alone(m, until), lambda m, until: advance_ranks(m, until)
)
settle = two_forms("group", lambda m: settle_alone(m), lambda m: settle_ranks(m))
watch = two_forms(
    "group", lambda m, until: watch_alone(m, until), lambda m, until: watch_ranks(m, until)
)
next_event = two_forms(
    "group", lambda m, now: next_of_engine(m, now), lambda m, now: next_of_ranks(m, now)
)


@part()
def drive(m, until, cancelled):
    """Let go of the request of that row, or for NOBODY advance; then note what all have generated.
    For IN_A_FLEET advance alone.
    """
    if cancelled >= 0:
        cancel(m, cancelled)
    else:
        advance(m, until)
    if cancelled != IN_A_FLEET:
        settle(m)
