"""What an engine keeps in memory, by names: records of whole numbers, and arrays.

Everything is int64 unless it says otherwise, and all times are picoseconds. A ``Machine`` is passed to every compiled function; it
holds references, so that what one function writes the next one reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NEVER = 1 << 62
"""A round, or an instant, that does not come."""

BETWEEN, UNDER_WAY, ENDING = range(3)
"""Phases of an engine: between two steps, in one, or at its end before its tokens are handed out."""


def _record(*names: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names], align=True)


SETTINGS = _record(
    "scheduler",  # place in the table of ``schedulers.py``
    "grows",  # whether blocks are taken as contexts grow and nothing but the context tells how many a decoding request has
    "slots",  # sequences that run at once
    "max_tokens",
    "chunked",
    "block_tokens",
    "kv_blocks",
    "max_context",
    "frontend",
    "stream",
    "window",  # time ends there; -1 for never
    "window_tokens",  # a sequence of so many tokens or more …
    "window_blocks",  # … holds these for its sliding windows
    "receive",  # steps of decodes alone between two looks for arrivals
    "overlap",  # a step holds what had come before the last one began
    "wait_steps",  # prompts beside decodes wait so many steps …
    "wait_tokens",  # … for a step of so many tokens
    "drafted",  # guesses that come with a decode …
    "passes",  # … after so many passes of the drafter
    "below",  # draws below this are right guesses …
    "seed",  # … of those from this, which is mixed already
    "reporting",  # whether tokens and ends are written to the log
)

STATE = _record(
    "now",  # when the last step ended, or the next one begins
    "began",  # when the last step began, or an idle engine was woken
    "phase",  # BETWEEN steps, UNDER_WAY in one, or ENDING it
    "ends",  # when the step that is under way ends …
    "seen",  # when clients have the tokens of the last step that ended
    "gap",  # … less when they had those of the step before
    "seen_next",  # … and will have those of the step that is under way
    "over",  # whether the window has ended
    "free",  # KV blocks
    "running",  # how many are in ``Lists.running``
    "filling",  # how many of them compute their prompts, in ``Lists.filling``
    "stacked",  # pre-empted requests, which wait in front of the queue
    "head",  # the queue is ``Lists.queue[head … tail − 1]``, as a ring
    "tail",
    "arrived",  # requests on their way are those of the rows arrived … submitted − 1 …
    "submitted",
    "next_arrival",  # … and the first of them reaches the engine then; NEVER where nobody is
    "unheard",  # steps since the engine last looked for arrivals
    "waited",  # steps that prompts have waited to be batched
    "batch",  # static: sequences of the batch …
    "longest",  # … and its longest prompt
    "round",  # every decoding request gets one token a round: their lengths all at once
    "countdown",  # −round modulo ``block_tokens``: the entry of ``Tallies.phases`` of those who need a block in the next round
    "alone",  # steps of prompts alone, in which no round passes
    "decoding",  # how many decode …
    "context",  # … and the sum of their contexts
    "next_event",  # the lowest ``Rows.until``
    "last_bin",  # where the last gap lies in the histogram
    "paused",  # whether prompts alone came after the last round …
    "decoded",  # … whose tokens clients had then
    "full",  # SGLang: whether the queue is not looked at until someone leaves
    "ratio",  # SGLang: share of the outputs that it reckons with
    "logged",  # entries of the log
)

STEP = _record(
    "prefill_tokens",  # P, n, B, 2A and C of ``step_seconds``
    "prefill_sequences",
    "decode_sequences",
    "pairs_2",
    "context_tokens",
    "alone",  # whether those who decode wait for it
)

CLIENTS = _record(
    "concurrency",  # of a closed loop; 0 where nobody answers
    "turnaround",
    "program_free",  # when the client program has done with the last one
)


class Rows(NamedTuple):
    """One entry per request, in the order in which they are sent; all but the first four are filled in when the engine receives it.

    Entries of ``generated`` and ``last`` are not kept up while a request decodes; ``blocks`` neither, if they grow.

    What a decoding request has generated is ``state.round − base``, and ``until`` is the round at which it ends or its output
    position enters the next ``bucket`` of the gap histogram; of others it is NEVER. A right guess moves both a round back.
    """

    isl: NDArray[np.int64]
    osl: NDArray[np.int64]
    id: NDArray[np.int64]
    sent: NDArray[np.int64]
    status: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    first_step: NDArray[np.int64]
    last_step: NDArray[np.int64]
    preemptions: NDArray[np.int64]
    generated: NDArray[np.int64]
    computed: NDArray[np.int64]
    blocks: NDArray[np.int64]
    windows: NDArray[np.int64]
    base: NDArray[np.int64]
    until: NDArray[np.int64]
    bucket: NDArray[np.int64]
    told: NDArray[np.int64]


class Lists(NamedTuple):
    """Requests by their rows; the size of ``queue`` is a power of two."""

    queue: NDArray[np.int64]
    stack: NDArray[np.int64]
    running: NDArray[np.int64]
    filling: NDArray[np.int64]
    take: NDArray[np.int64]


class Prices(NamedTuple):
    """Coefficients of the model and of its drafter (float64), and the decode line by batch size, -1 where it is not known yet."""

    model: NDArray[np.float64]
    drafter: NDArray[np.float64]
    a: NDArray[np.int64]
    c: NDArray[np.int64]


class Tallies(NamedTuple):
    """Gaps by bucket and bin, and the bins' edges; decoding requests by bucket, and by the round in which they need a block; steps."""

    gaps: NDArray[np.int64]
    edges: NDArray[np.int64]
    positions: NDArray[np.int64]
    phases: NDArray[np.int64]
    steps: NDArray[np.int64]


class Log(NamedTuple):
    """What has happened since it was last read: rows, when, how many tokens, and the status after them."""

    row: NDArray[np.int64]
    at: NDArray[np.int64]
    tokens: NDArray[np.int64]
    status: NDArray[np.int64]


class Machine(NamedTuple):
    """One engine. ``stop`` has one element: another thread that sets it to 1 ends the run between two steps."""

    cfg: Any
    state: Any
    step: Any
    clients: Any
    rows: Rows
    lists: Lists
    prices: Prices
    tallies: Tallies
    log: Log
    stop: NDArray[np.int64]
