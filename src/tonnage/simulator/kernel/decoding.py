"""Requests that decode, compiled: how they begin to, how they cease, and the buckets of the gap histogram that they pass."""

from __future__ import annotations

import math

import numpy as np

from tonnage.results.requests import POSITION_BUCKETS
from tonnage.simulator.kernel.inlined import part, small
from tonnage.simulator.kernel.memory import NEVER
from tonnage.units import PS_PER_NS


@small()
def bucket_of(position):
    """Bucket of the gap after that output token, counted from 1."""
    return min(math.frexp(float(position))[1] - 1, POSITION_BUCKETS - 1)


@small()
def bin_of(edges, gap_ps):
    """Bin of a gap."""
    return np.searchsorted(edges, gap_ps // PS_PER_NS, side="right") - 1


@part()
def join_decoding(m, r, generated):
    """A request that has its next token out of the computation of its prompt decodes from now on."""
    s, rows = m.state, m.rows
    rows.base[r] = s.round - generated
    rows.bucket[r] = bucket_of(generated)
    rows.until[r] = rows.base[r] + min(rows.osl[r], 2 << rows.bucket[r]) if generated < rows.osl[r] else s.round
    s.next_event = min(s.next_event, rows.until[r])
    s.decoding += 1
    s.context += rows.isl[r] + generated
    m.tallies.positions[rows.bucket[r]] += 1
    if m.cfg.grows > 0:
        m.tallies.phases[(rows.isl[r] - 1 - rows.base[r]) % m.cfg.block_tokens] += 1


@part()
def leave_decoding(m, r):
    """A request decodes no more; what it has generated is kept in its row."""
    s, rows = m.state, m.rows
    rows.generated[r] = s.round - rows.base[r]
    rows.until[r] = NEVER
    s.decoding -= 1
    s.context -= rows.isl[r] + rows.generated[r]
    m.tallies.positions[rows.bucket[r]] -= 1
    if m.cfg.grows > 0:
        m.tallies.phases[(rows.isl[r] - 1 - rows.base[r]) % m.cfg.block_tokens] -= 1
