"""What an engine keeps in memory, by names: records of whole numbers, and arrays.

Everything is int64 unless it says otherwise, and all times are picoseconds. A ``Machine`` is passed
to every compiled function; it holds references, so that what one function writes the next one
reads. What only a request that runs needs is kept by slot and not by request: so ten million
requests take little more memory than their own record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = 1 << 62
"""A round, or an instant, that does not come."""
HANDED_ON = -2
"""In place of a row's first token, where another engine made it and its client does not have it
yet."""

BETWEEN, UNDER_WAY, ENDING = range(3)
"""Phases of an engine: between two steps, in one (or in several that are alike), or at its end
before its tokens are handed out."""

NOBODY, IN_A_FLEET = -1, -2
"""In place of the row of a request to let go of: an engine is advanced, by itself or in a fleet,
which notes its state at the end."""

TOKENS, ENDS = 1, 2
"""What an engine that reports writes to its log."""

ROUTED, CLOSELY = 1, 2
"""Of an engine behind a router: one that looks at requests, or one that looks at what changes with
every step."""


def record_of(*names: str) -> np.dtype[Any]:
    """A record of whole numbers."""
    return np.dtype([(name, np.int64) for name in names], align=True)


SETTINGS = record_of(
    "scheduler",  # place in the table of ``schedulers.py``
    # whether blocks are taken as contexts grow and nothing but the context tells how many a
    # decoding request has
    "grows",
    "slots",  # sequences that run at once
    "max_tokens",
    "chunked",
    # vLLM: tokens of a prompt in a step while others are there; 0 for no such limit
    "longest_chunk",
    "block_tokens",
    "kv_blocks",
    "max_context",
    "frontend",
    "enter",  # picoseconds in which a request that enters keeps the front end busy …
    "enter_token",  # … and for each token of its prompt
    "stream",
    "stream_step",
    "window",  # time ends there; -1 for never
    "window_tokens",  # a sequence of so many tokens or more …
    "window_blocks",  # … holds these for its sliding windows
    "receive",  # steps of decodes alone between two looks for arrivals
    "overlap",  # a step holds what had come before the last one began
    "shortest",  # whether the shortest prompt goes first
    "wait_steps",  # prompts wait with decodes for so many steps …
    "wait_tokens",  # … for a step of so many tokens
    "drafted",  # guesses that come with a decode …
    "passes",  # … after so many passes of the drafter
    "below",  # draws below this are right guesses …
    "seed",  # … of those from this, which is mixed already
    "reporting",  # what is written to the log: 0 nothing, TOKENS and ends, or ENDS alone
    "leaps",  # whether steps that are alike are taken at once
    "concurrency",  # of a closed loop; 0 where nobody answers
    "turnaround",
    # 0 without a router, ROUTED or CLOSELY; behind one, those on their way are linked by
    # ``Rows.next``
    "routed",
    "kind",  # of a fleet's engines: the row of ``Fleet.kinds`` …
    "place",  # … and its number
)

STATE = record_of(
    "now",  # when the last step ended, or the next one begins
    "began",  # when the last step began, or an idle engine was woken
    "phase",  # BETWEEN steps, UNDER_WAY in one, or ENDING it
    "ends",  # when the step that is under way ends, or the last of several …
    "lasts",  # … of which the first lasts so long …
    "seen",  # when clients have the tokens of the last step that ended
    "gap",  # … less when they had those of the step before
    "seen_next",  # … and will have those of the step that is under way, or of the first of them
    # how long the front end streams the tokens of the step that is under way, or of the first of
    # them
    "streams",
    "puts_off",  # … and for how long that puts off who enters
    "starts",  # when the front end begins, or began, with the tokens that it takes up together
    "entering",  # how long requests that reached the engine since the last step began kept it busy
    "entered",  # when the last request had entered, and what was streamed since
    "free",  # KV blocks
    "running",  # how many are in ``Lists.running``
    "filling",  # how many of them compute their prompts, in ``Lists.filling``
    "queued",  # how many wait …
    "head",  # … the first of them, and its followers by ``Rows.next`` …
    "tail",  # … up to the last
    "arrived",  # the first of those on their way …
    "coming",  # … how many they are …
    "last_coming",  # … the last of them, behind a router …
    "next_arrival",  # … and when the first reaches the engine; NEVER where nobody is
    "unheard",  # steps since the engine last looked for arrivals
    "waited",  # steps that prompts have waited to be batched
    "steady",  # whether a step like the last one would be put together again if nothing happens
    "batch",  # static: sequences of the batch …
    "longest",  # … and its longest prompt
    "round",  # every decoding request gets one token a round: their lengths all at once
    # −round modulo ``block_tokens``: the entry of ``Tallies.phases`` of requests that need a block
    # in the next round
    "countdown",
    "alone",  # steps of prompts alone, in which no round passes
    "decoding",  # how many decode …
    "context",  # … and the sum of their contexts
    "next_end",  # the lowest of ``Lists.ends``
    "next_cross",  # the lowest of ``Lists.crosses``, or less
    "last_bin",  # the bin of the last gap in the histogram …
    "counted",  # … in which those of the rounds from this on are not counted yet
    "highest",  # the highest bucket that anyone enters
    "paused",  # whether prompts alone came after the last round …
    "decoded",  # … whose tokens clients had then
    "full",  # SGLang: whether the queue is not looked at until someone leaves
    "ratio",  # SGLang: share of the outputs that it reckons with
    "program_free",  # when the client program of a closed loop has done with the last request
    "logged",  # entries of the log
    "spare",  # how many slots are in ``Lists.spare``
    "watched",  # up to when a router sees what has come back
    "held",  # whether prompts wait for those of other attention ranks
)

STEP = record_of(
    "prefill_tokens",  # P, n, B, 2A and C of ``step_seconds``
    "prefill_sequences",
    "decode_sequences",
    "pairs_2",
    "context_tokens",
    "alone",  # whether decoding requests wait for it
    "grown",  # blocks that the further steps of a leap take
    "ended",  # requests that it completed …
    "returned",  # … and tokens that are not to come any more, as a router sees them
)

SLOT = record_of(
    "row",  # of the request
    "isl",
    "osl",
    "windows",  # blocks for its sliding windows
    "base",  # the round before its first token, as if it had always decoded
    "bucket",  # of its output position in the gap histogram
    "computed",  # tokens in the cache; not kept up while it decodes
    "generated",  # likewise
    "blocks",  # likewise, if they grow
    "last",  # when its client had the token with which it began to decode
    "told",  # tokens written to the log
)


class Rows(NamedTuple):
    """One entry per request, in the order in which they are sent.

    ``status`` is int8 and ``preemptions`` int32. ``generated`` and ``last`` are written when a
    request loses its blocks and when it ends; ``first_step`` and ``last_step`` have no entries
    where no steps are recorded. ``next`` links waiting requests; behind a router, that of a request
    that has ended is how long its last step took. ``admitted`` is when a request first had a slot,
    in nanoseconds, and is not written before.
    """

    isl: NDArray[np.int64]
    osl: NDArray[np.int64]
    id: NDArray[np.int64]
    sent: NDArray[np.int64]
    next: NDArray[np.int64]
    status: NDArray[np.int8]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    generated: NDArray[np.int64]
    preemptions: NDArray[np.int32]
    first_step: NDArray[np.int64]
    last_step: NDArray[np.int64]
    admitted: NDArray[np.int64]


class Lists(NamedTuple):
    """Requests that run, by their slots.

    ``running`` has them in the order in which they entered, and for each the round at which it ends
    (``ends``) and the one at which its output position enters the next bucket of the gap histogram
    (``crosses``); both are NEVER of one that computes its prompt. ``filling`` has those, and for
    each its new tokens in the step (``take``). ``spare`` holds the slots that nobody has.
    """

    running: NDArray[np.int64]
    ends: NDArray[np.int64]
    crosses: NDArray[np.int64]
    filling: NDArray[np.int64]
    take: NDArray[np.int64]
    spare: NDArray[np.int64]


class Prices(NamedTuple):
    """Coefficients of the model and of its drafter (float64), and the decode line by batch size, -1
    where it is not known yet.
    """

    model: NDArray[np.float64]
    drafter: NDArray[np.float64]
    a: NDArray[np.int64]
    c: NDArray[np.int64]


class Tallies(NamedTuple):
    """The counters of a run."""

    # by bucket and bin; those of the rounds since ``counted`` are the decoding requests of each
    # bucket (``positions``), times the rounds, and what those add who came or went since then
    # (``moved``)
    gaps: NDArray[np.int64]
    edges: NDArray[np.int64]  # where the bins of gaps begin, in picoseconds, and NEVER at the end
    coarse: NDArray[np.int64]  # the bin in which each cell of ``decoding.cell_of`` begins
    positions: NDArray[np.int64]
    moved: NDArray[np.int64]
    phases: NDArray[np.int64]  # decoding requests by the round in which they need a block
    steps: NDArray[np.int64]  # the record of steps


class Log(NamedTuple):
    """What has happened since it was last read: rows, when, how many tokens, and the status after
    them.
    """

    row: NDArray[np.int64]
    at: NDArray[np.int64]
    tokens: NDArray[np.int64]
    status: NDArray[np.int64]


class Watch(NamedTuple):
    """The router's view of the engines, and the changes that it has yet to see."""

    # requests, tokens: by engine: requests that have not ended as far as their clients know, and
    # tokens of these still to come
    requests: NDArray[np.int64]
    tokens: NDArray[np.int64]
    # a heap of columns (instant, engine, requests, tokens): what has left an engine and is not with
    # the clients yet
    late: NDArray[np.int64]
    under_way: NDArray[np.int64]  # entries of the heap, in an array of one


GROUP = record_of(
    "wait",  # steps for which prompts wait until all ranks have some …
    "waited",  # … and for which they have, or would have if there were any
    # tokens up to which ranks are filled up to the fullest in a step with prompts; -1 where they
    # never are
    "padded",
    "counting",  # whether that goes on with every step like this one
    "longer",  # by how much a step of the slowest rank is longer than the one before
    "slowest",  # which rank that is
    "most",  # steps for which it stays so
)


class Group(NamedTuple):
    """The attention ranks of an instance in lockstep: an array of one ``GROUP``, the addresses of
    their machines, and the memory there.
    """

    note: Any
    at: NDArray[np.int64]
    room: NDArray[np.int64]


class Machine(NamedTuple):
    """One engine. ``stop`` has one element: another thread that sets it to 1 ends the run between
    two steps.

    ``cache`` is a ``prefix_cache.Cache`` where requests have something in common or follow one
    another, ``ranks`` a ``ranks.Ranks`` where they have classes or deadlines that the engine looks
    at, ``group`` the ``Group`` of an attention rank in lockstep; else they are None.
    """

    cfg: Any
    state: Any
    step: Any
    slots: Any
    rows: Rows
    lists: Lists
    prices: Prices
    tallies: Tallies
    log: Log
    watch: Watch
    stop: NDArray[np.int64]
    cache: Any = None
    ranks: Any = None
    group: Any = None
