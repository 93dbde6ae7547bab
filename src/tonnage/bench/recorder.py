"""Exchanges that are over, made into rows of the record: in the order of sending, in batches, with
bounded memory.

A server that sends one token an event leaves nothing to decide. Where events hold several, the
tokens of one event share its moment; how many each holds is the server's running count, else what a
tokenizer finds in its text, else a share by its length.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tonnage.bench.reply import CANCELLED, COMPLETED, Exchange, Reply
from tonnage.results.outcomes import off_length
from tonnage.results.requests import COMPLETED as ROW_COMPLETED
from tonnage.results.requests import FAILED, UNFINISHED
from tonnage.results.store import BATCH_ROWS, Batch, RunWriter, gap_counts

Source = str  # Where a count comes from: "server", "tokenizer" or "events"
UNSEEN = 2  # Tokens for each character that came, above which a server counts what it did not send


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTimes:
    """The tokens of one reply."""

    times_ns: Sequence[int]  # the moment of each event with output
    per_event: Sequence[int] | None  # tokens of each; None for one each
    tokens: int
    source: Source  # where the sum comes from
    shared: bool = False  # whether the sum is known but its split over the events is estimated
    hidden: int = 0  # further tokens that the server counts and did not send


def token_times(reply: Reply, counted: Sequence[int] | None = None) -> TokenTimes:
    """The tokens of a reply that the client saw; ``counted`` are those of each event by a
    tokenizer, where there is one.

    Reasoning that the server counts and does not send is no part of them, and neither is what
    exceeds the characters that came. A server that counts no token of an output has not counted.
    """
    times, total = reply.times, reply.tokens
    visible = total if reply.thought else total - reply.reasoning
    if times and total > len(times) and visible > UNSEEN * sum(reply.sizes):
        visible = 0
    if visible == len(times):
        return TokenTimes(
            times_ns=times,
            per_event=None,
            tokens=visible,
            source="server",
            hidden=max(total - visible, 0),
        )
    if visible < 0 or (times and not visible):
        tokens = len(times) if counted is None else sum(counted)
        source = "events" if counted is None else "tokenizer"
        return TokenTimes(
            times_ns=times,
            per_event=counted,
            tokens=tokens,
            source=source,
            hidden=max(total - tokens, 0),
        )
    hidden = total - visible
    counts = _running_counts(reply, hidden)
    if counts is not None:
        return TokenTimes(
            times_ns=times, per_event=counts, tokens=visible, source="server", hidden=hidden
        )
    return TokenTimes(
        times_ns=times,
        per_event=share(visible, reply.sizes),
        tokens=visible,
        source="server",
        shared=len(times) > 1,
        hidden=hidden,
    )


def _running_counts(reply: Reply, hidden: int) -> list[int] | None:
    """Tokens of each event from the server's running count, less the hidden ones before the first;
    None where it kept none.
    """
    if len(reply.counts) != len(reply.times):
        return None
    counts = [reply.counts[place] - hidden for place in range(len(reply.times))]
    if not counts or counts[-1] != reply.tokens - hidden:
        return None
    steps = [after - before for before, after in itertools.pairwise([0, *counts])]
    return steps if min(steps) >= 0 else None


def share(total: int, weights: Sequence[int]) -> list[int]:
    """``total`` split by the weights into whole numbers: the sum of the first k parts is the exact
    share of the first k, rounded up.
    """
    if not weights:
        return []
    whole = sum(weights)
    edges = [-(-total * upto // whole) for upto in itertools.accumulate(weights)]
    return [after - before for before, after in itertools.pairwise([0, *edges])]


# Tokens whose gaps are counted at once, so that the loop is not held up for longer than a
# millisecond
FOLD_TOKENS = 2_048
# Tokens with which a batch is written, however few requests they belong to
BATCH_TOKENS = 1_048_576
EXAMPLES = 20  # Failures that are kept in the server's own words


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts over the whole run that the record has no column for."""

    outcomes: Counter[str] = field(default_factory=Counter)  # requests by outcome, "" for completed
    # completed requests by where their token count comes from
    sources: Counter[str] = field(default_factory=Counter)
    shared: int = 0  # completed requests whose tokens were split over events by an estimate
    # completed requests by the server's word for their end; "" for none
    finishes: Counter[str] = field(default_factory=Counter)
    tokens: int = 0  # and events: output tokens, and events with output
    events: int = 0
    # output tokens that the server counts and did not send, and in how many replies
    hidden: int = 0
    hiding: int = 0
    # completed requests whose output the server counts as no token, and nothing else counts it
    uncounted: int = 0
    several: int = 0  # completed requests with several outputs next to one another
    # and osl_off: completed requests whose length the server counts otherwise than it was asked
    isl_off: int = 0
    osl_off: int = 0
    osl_far: int = 0  # those of another length than one that was pinned may have
    isl_extra: int = 0  # prompt tokens that the server counts beyond those asked, summed
    prompt_counts: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)  # the first failures

    @property
    def failures(self) -> dict[str, int]:
        """Requests that failed by outcome, the most frequent first."""
        return {
            outcome: count
            for outcome, count in self.outcomes.most_common()
            if outcome not in (COMPLETED, CANCELLED)
        }


class Recorder:
    """Takes exchanges in any order and writes rows in the order of their numbers."""

    def __init__(
        self, writer: RunWriter, *, count: Callable[[str], int] | None = None, gaps: bool = True
    ) -> None:
        """Open a record; ``count`` counts a text's tokens for servers that do not, ``gaps`` says
        whether single events have moments.
        """
        self._single = gaps
        self._writer = writer
        self._start = 0
        self._count = count
        self._waiting: dict[int, tuple[tuple[int, ...], list[int], int]] = {}
        self._next = 0
        self._rows: list[tuple[int, ...]] = []
        self._offsets: list[list[int]] = []
        self._held = 0
        self._gaps: list[int] = []
        self._positions: list[int] = []
        self._pool = ThreadPoolExecutor(1)
        self._writing: list[Future[None]] = []
        self.tally = Tally()  # counts over the run
        # by request, how long after it was due the client turned to it
        self.begun_lateness_ns = array("q")
        # by row, when the last piece of its reply came, which may hold no output; -1 where none
        # came
        self.ends_ns = array("q")

    def begin(self, start_ns: int) -> None:
        """Fix the moment that all times are counted from."""
        self._start = start_ns

    def take(self, exchange: Exchange) -> TokenTimes:
        """Record an exchange that is over."""
        reply = exchange.reply
        counted = (
            [self._count(text) for text in reply.texts]
            if self._count and reply.tokens <= 0
            else None
        )
        times = token_times(reply, counted)
        self._tally(exchange, times)
        offsets = _offsets(times, exchange.sent_ns)
        end = reply.last_ns - self._start if reply.last_ns >= 0 else -1
        self._waiting[exchange.number] = (self._row(exchange, times), offsets, end)
        if exchange.outcome == COMPLETED and self._single:
            self._count_gaps(times, offsets)
        while self._next in self._waiting:
            self._keep(self._next)
            self._next += 1
        if len(self._rows) >= BATCH_ROWS or self._held >= BATCH_TOKENS:
            self._flush()
        return times

    def _keep(self, number: int) -> None:
        """Make a request the next row."""
        row, times, end = self._waiting.pop(number)
        self._rows.append(row)
        self._offsets.append(times)
        self._held += len(times)
        self.ends_ns.append(end)

    def _row(self, exchange: Exchange, token_times: TokenTimes) -> tuple[int, ...]:
        start, reply = self._start, exchange.reply
        completed = exchange.outcome == COMPLETED
        times = token_times.times_ns
        first = (
            -1
            if not exchange.streamed
            else times[0]
            if times
            else reply.last_ns
            if completed
            else -1
        )
        last = (times[-1] if times else reply.last_ns) if completed else -1
        status = (
            ROW_COMPLETED if completed else UNFINISHED if exchange.outcome == CANCELLED else FAILED
        )
        return (
            exchange.due_ns - start,
            exchange.sent_ns - start if exchange.sent_ns >= 0 else -1,
            first - start if first >= 0 else -1,
            last - start if last >= 0 else -1,
            # a server that counts no token of a prompt has not counted
            reply.prompt if reply.prompt > 0 else exchange.isl,
            token_times.tokens,
            max(reply.cached, 0),
            0 if exchange.sent_ns >= 0 else -1,
            status,
            0,
        )

    def _count_gaps(self, token_times: TokenTimes, offsets: list[int]) -> None:
        """Single gaps: of an event with k tokens k times the k-th part of the time since the one
        before; none among the first event's.
        """
        if token_times.per_event is None:
            self._gaps.extend(map(int.__sub__, offsets[1:], offsets))
            self._positions.extend(range(1, len(offsets)))
        else:
            position, before = 0, -1
            for moment, tokens in zip(token_times.times_ns, token_times.per_event, strict=True):
                if tokens and before >= 0:
                    self._gaps.extend([(moment - before) // tokens] * tokens)
                    self._positions.extend(range(position, position + tokens))
                if tokens:
                    before, position = moment, position + tokens
        if len(self._gaps) >= FOLD_TOKENS:
            self._fold()

    def _fold(self) -> None:
        if self._gaps:
            self._writer.add_gaps(
                gap_counts(
                    np.array(self._gaps, dtype=np.int64), np.array(self._positions, dtype=np.int64)
                )
            )
            self._gaps, self._positions = [], []

    def _tally(self, exchange: Exchange, token_times: TokenTimes) -> None:
        tally, reply = self.tally, exchange.reply
        tally.outcomes[exchange.outcome] += 1
        if exchange.begun_ns >= 0:
            self.begun_lateness_ns.append(exchange.begun_ns - exchange.due_ns)
        if exchange.outcome != COMPLETED:
            if exchange.outcome != CANCELLED and (
                len(tally.examples) < EXAMPLES or tally.outcomes[exchange.outcome] == 1
            ):
                tally.examples.append(
                    {"id": exchange.number, "outcome": exchange.outcome, "detail": exchange.detail}
                )
            return
        tally.sources[token_times.source] += 1
        tally.shared += token_times.shared
        tally.finishes[reply.finish] += 1
        tally.tokens += token_times.tokens
        tally.events += len(token_times.times_ns)
        tally.hidden += token_times.hidden
        tally.hiding += token_times.hidden > 0
        tally.uncounted += (
            reply.tokens == 0 and token_times.source == "events" and token_times.tokens > 0
        )
        tally.several += reply.choices > 1
        expected = exchange.osl * reply.choices
        tally.osl_off += token_times.tokens != expected
        tally.osl_far += off_length(token_times.tokens, expected) and off_length(
            token_times.tokens + token_times.hidden, expected
        )
        if reply.prompt > 0:
            tally.prompt_counts += 1
            tally.isl_off += reply.prompt != exchange.isl
            tally.isl_extra += reply.prompt - exchange.isl

    def _flush(self) -> None:
        """Hand the rows to the thread that writes; one batch waits at most."""
        if not self._rows:
            return
        rows, offsets, self._rows, self._offsets, self._held = self._rows, self._offsets, [], [], 0
        while len(self._writing) > 1:
            self._writing.pop(0).result()
        self._writing.append(self._pool.submit(self._write, rows, offsets))

    def _write(self, rows: list[tuple[int, ...]], offsets: list[list[int]]) -> None:
        lengths = np.array([len(times) for times in offsets], dtype=np.int64)
        flat: np.typing.NDArray[np.int64] = np.zeros(int(lengths.sum()), dtype=np.int64)
        place = 0
        for times in offsets:
            flat[place : place + len(times)] = times
            place += len(times)
            time.sleep(0)
        self._writer.add(
            Batch(rows=np.array(rows, dtype=np.int64), offsets_ns=flat, lengths=lengths)
        )

    def finish(self) -> None:
        """Write what is left; numbers that were never sent leave no row."""
        for number in sorted(self._waiting):
            self._keep(number)
        self._fold()
        self._flush()
        for writing in self._writing:
            writing.result()
        self._pool.shutdown()


def _offsets(token_times: TokenTimes, sent_ns: int) -> list[int]:
    """The moment of each token after the request was sent; tokens of one event share it."""
    if token_times.per_event is None:
        return [moment - sent_ns for moment in token_times.times_ns]
    pairs = zip(token_times.times_ns, token_times.per_event, strict=True)
    return [moment - sent_ns for moment, tokens in pairs for _ in range(tokens)]
