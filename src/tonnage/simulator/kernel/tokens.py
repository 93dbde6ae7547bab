"""What comes of a step, compiled: tokens, gaps, and who leaves."""

from __future__ import annotations

from tonnage.results.requests import COMPLETED
from tonnage.simulator.kernel.arrivals import answer, tell, tell_tokens
from tonnage.simulator.kernel.blocks import held
from tonnage.simulator.kernel.compiler import part
from tonnage.simulator.kernel.decoding import (
    bin_of,
    bucket_of,
    count_gaps,
    hand_out_guesses,
    join_decoding,
    leave_decoding,
    see_gap,
)
from tonnage.simulator.kernel.memory import ENDS, HANDED_ON, NEVER, TOKENS
from tonnage.simulator.kernel.queue import give_back
from tonnage.simulator.kernel.shared import catch_up, filled, released


@part()
def end_step(m):
    """Hand out the tokens of a step."""
    s = m.state
    if m.step.alone > 0 and s.paused == 0:
        s.paused = 1
        s.decoded = s.seen
    s.gap = s.seen_next - s.seen
    s.seen = s.seen_next
    if m.step.alone > 0:
        s.alone += 1
    else:
        end_round(m)
    if s.filling > 0:
        catch_up(m, 0)
        end_filling(m)
    if m.cfg.reporting == TOKENS:
        tell_tokens(m)


@part()
def end_round(m):
    """A token for everyone who decodes, and the gap before it; with guesses also the right ones of
    these.
    """
    s = m.state
    if m.cfg.drafted > 0:
        hand_out_guesses(m)
        s.paused = 0
    elif s.paused > 0:
        end_pause(m)
    elif s.decoding > 0:
        see_gap(m, s.gap)
    s.round += 1
    s.countdown = s.countdown - 1 if s.countdown > 0 else m.cfg.block_tokens - 1
    s.context += s.decoding
    m.step.returned += s.decoding


@part()
def end_pause(m):
    """Count the gaps that end with the first round after steps of prompts: since the last round, or
    since its first token.
    """
    s = m.state
    s.paused = 0
    count_gaps(m)
    place = bin_of(m.tallies, s.seen - s.decoded)
    for k in range(s.running):
        if m.lists.ends[k] < NEVER:
            slot = m.slots[m.lists.running[k]]
            gap_bin = place if slot.last <= s.decoded else bin_of(m.tallies, s.seen - slot.last)
            m.tallies.gaps[slot.bucket, gap_bin] += 1
    s.counted += 1


@part()
def end_filling(m):
    """Count what was computed of prompts; those complete have their first token, or the next one
    after a pre-emption.

    A token that came with the cache leaves with the first one that is decoded.
    """
    s, rows, filling = m.state, m.rows, m.lists.filling
    remaining = 0
    for f in range(s.filling):
        i = filling[f]
        slot = m.slots[i]
        slot.computed += m.lists.take[f]
        filled(m, i)
        generated = slot.generated
        if slot.computed < slot.isl + generated:
            filling[remaining] = i
            remaining += 1
            continue
        if generated == 0:
            rows.first[slot.row] = s.seen
            m.step.returned += slot.isl
            if rows.first_step.size > 0:
                rows.first_step[slot.row] = s.round + s.alone - 1
        elif rows.first[slot.row] == HANDED_ON:
            rows.first[slot.row] = s.seen
            m.tallies.gaps[bucket_of(generated), bin_of(m.tallies, 0)] += 1
        else:
            m.tallies.gaps[bucket_of(generated), bin_of(m.tallies, s.seen - slot.last)] += 1
        slot.last = s.seen
        m.step.returned += 1
        join_decoding(m, i, generated + 1)
    s.filling = remaining


@part()
def end_requests(m):
    """Requests with their last token leave, and their clients go on."""
    s, lists = m.state, m.lists
    remaining, soonest = 0, NEVER
    catch_up(m, 0)
    for k in range(s.running):
        if lists.ends[k] <= s.round:
            end_request(m, k)
        else:
            lists.running[remaining] = lists.running[k]
            lists.ends[remaining] = lists.ends[k]
            lists.crosses[remaining] = lists.crosses[k]
            soonest = min(soonest, lists.ends[k])
            remaining += 1
    s.running = remaining
    s.next_end = soonest


@part()
def end_request(m, k):
    """The ``k``-th that runs has its last token."""
    s, rows, i = m.state, m.rows, m.lists.running[k]
    slot = m.slots[i]
    leave_decoding(m, k)
    rows.last[slot.row] = s.seen
    rows.status[slot.row] = COMPLETED
    if m.cfg.routed > 0:
        rows.next[slot.row] = s.lasts
    if rows.last_step.size > 0:
        rows.last_step[slot.row] = s.round + s.alone - 1
    s.free += released(m, i, held(m, slot, slot.generated), slot.isl + slot.generated - 1, 1)
    s.full = 0
    m.step.ended += 1
    if m.cfg.reporting == ENDS:
        tell(m, slot.row, slot.osl - slot.told, COMPLETED)
    give_back(m, i)
    answer(m, slot.row, s.seen)
