"""What comes of a step, compiled: tokens, gaps, and who leaves."""

from __future__ import annotations

from tonnage.results.requests import COMPLETED
from tonnage.simulator.kernel.arrivals import answer, tell_tokens
from tonnage.simulator.kernel.blocks import held
from tonnage.simulator.kernel.decoding import bin_of, bucket_of, join_decoding, leave_decoding
from tonnage.simulator.kernel.guesses import hand_out_guesses
from tonnage.simulator.kernel.inlined import part
from tonnage.simulator.kernel.memory import NEVER
from tonnage.units import PS_PER_NS


@part()
def streamed(m, ends):
    """When clients have the tokens of a step that ends at ``ends``, and all before them."""
    sequences = 0
    if m.cfg.stream > 0:
        if m.step.alone == 0:
            sequences = m.state.decoding
        for i in range(m.state.filling):
            r = m.lists.filling[i]
            if m.rows.computed[r] + m.lists.take[i] == m.rows.isl[r] + m.rows.generated[r]:
                sequences += 1
    return max(m.state.seen, ends) + sequences * m.cfg.stream


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
        end_filling(m)
    if m.cfg.reporting > 0:
        tell_tokens(m)
    if s.next_event <= s.round:
        end_events(m)


@part()
def end_round(m):
    """A token for everyone who decodes, and the gap before it; with guesses also the right ones of these."""
    s, gaps, edges = m.state, m.tallies.gaps, m.tallies.edges
    if m.cfg.drafted > 0:
        hand_out_guesses(m.cfg, s, m.rows, m.lists.running, m.tallies)
        s.paused = 0
    elif s.paused > 0:
        end_pause(m)
    elif s.decoding > 0:
        place, ns = s.last_bin, s.gap // PS_PER_NS
        if ns < edges[place] or (place + 1 < edges.size and ns >= edges[place + 1]):
            place = bin_of(edges, s.gap)
            s.last_bin = place
        left, b = s.decoding, 0
        while left > 0:
            gaps[b, place] += m.tallies.positions[b]
            left -= m.tallies.positions[b]
            b += 1
    s.round += 1
    s.countdown = s.countdown - 1 if s.countdown > 0 else m.cfg.block_tokens - 1
    s.context += s.decoding


@part()
def end_pause(m):
    """Count the gaps that end with the first round after steps of prompts: since the last round, or since its first token."""
    s, rows = m.state, m.rows
    s.paused = 0
    for i in range(s.running):
        r = m.lists.running[i]
        if rows.until[r] < NEVER:
            m.tallies.gaps[rows.bucket[r], bin_of(m.tallies.edges, s.seen - max(rows.last[r], s.decoded))] += 1


@part()
def end_filling(m):
    """Count what was computed of prompts; those complete have their first token, or the next one after a pre-emption."""
    s, rows, filling = m.state, m.rows, m.lists.filling
    kept = 0
    for i in range(s.filling):
        r = filling[i]
        rows.computed[r] += m.lists.take[i]
        generated = rows.generated[r]
        if rows.computed[r] < rows.isl[r] + generated:
            filling[kept] = r
            kept += 1
            continue
        if generated == 0:
            rows.first[r] = s.seen
            rows.first_step[r] = s.round + s.alone - 1
        else:
            m.tallies.gaps[bucket_of(generated), bin_of(m.tallies.edges, s.seen - rows.last[r])] += 1
        rows.last[r] = s.seen
        join_decoding(m, r, generated + 1)
    s.filling = kept


@part()
def end_events(m):
    """Requests with their last token leave and their clients go on; others enter the next bucket of positions."""
    s, rows, running, positions = m.state, m.rows, m.lists.running, m.tallies.positions
    kept, soonest, now, number = 0, NEVER, s.round, s.round + s.alone - 1
    for i in range(s.running):
        r = running[i]
        until = rows.until[r]
        if until <= now:
            generated = now - rows.base[r]
            if generated == rows.osl[r]:
                leave_decoding(m, r)
                rows.last[r] = s.seen
                rows.last_step[r] = number
                rows.status[r] = COMPLETED
                s.free += held(m, r, generated)
                s.full = 0
                answer(m, s.seen)
                continue
            bucket = bucket_of(generated)
            positions[rows.bucket[r]] -= 1
            positions[bucket] += 1
            rows.bucket[r] = bucket
            until = rows.base[r] + min(rows.osl[r], 2 << bucket)
            rows.until[r] = until
        soonest = min(soonest, until)
        running[kept] = r
        kept += 1
    s.running = kept
    s.next_event = soonest
