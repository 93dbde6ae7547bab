"""Output tokens and their moments, from the events of a reply and the number of tokens that it holds.

A server that sends one token an event leaves nothing to decide. Where events hold several, the tokens of one event
share its moment; how many each holds is what the server said of its running count, else what a tokenizer finds in its
text, else a share by its length.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.bench.reply import Reply

Source = str
"""Where a count comes from: "server", "tokenizer" or "events"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTimes:
    """The tokens of one reply.

    Attributes:
        times_ns: the moment of each event with output.
        per_event: tokens of each; None for one each.
        tokens: their sum.
        source: where the sum comes from.
        shared: whether the sum is known but its split over the events is estimated.
    """

    times_ns: Sequence[int]
    per_event: Sequence[int] | None
    tokens: int
    source: Source
    shared: bool = False


def token_times(reply: Reply, counted: Sequence[int] | None = None) -> TokenTimes:
    """The tokens of a reply.

    Args:
        reply: read to its end.
        counted: tokens of each event by a tokenizer, where there is one.
    """
    times, total = reply.times, reply.tokens
    if total < 0:
        if counted is not None:
            return TokenTimes(times_ns=times, per_event=counted, tokens=sum(counted), source="tokenizer")
        return TokenTimes(times_ns=times, per_event=None, tokens=len(times), source="events")
    if total == len(times):
        return TokenTimes(times_ns=times, per_event=None, tokens=total, source="server")
    said = _said(reply, total)
    if said is not None:
        return TokenTimes(times_ns=times, per_event=said, tokens=total, source="server")
    weights = counted if counted is not None and sum(counted) > 0 else reply.sizes
    return TokenTimes(times_ns=times, per_event=share(total, weights), tokens=total, source="server", shared=len(times) > 1)


def _said(reply: Reply, total: int) -> list[int] | None:
    """Tokens of each event from the server's running count; None where it did not keep one."""
    if len(reply.counts) != len(reply.times):
        return None
    counts = [reply.counts[place] for place in range(len(reply.times))]
    if not counts or counts[-1] != total:
        return None
    steps = [after - before for before, after in itertools.pairwise([0, *counts])]
    return steps if min(steps) >= 0 else None


def share(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` split in proportion to the weights: whole numbers, the first at least 1 where there is one to give.

    The sum of the first k parts is the exact share of the first k weights, rounded up, so that no part is off by one or more.
    """
    if not weights:
        return []
    whole = sum(weights)
    edges = [-(-total * upto // whole) for upto in itertools.accumulate(weights)]
    return [after - before for before, after in itertools.pairwise([0, *edges])]
