"""Which requests count: one rule for this client, for the files of other tools, for logs and for
traces.

A request completed where its output came whole. One that its server aborted, that timed out or was
cancelled, or that an HTTP status of 400 and more answered, did not, whatever tokens came before. A
run of which more than ``ERROR_RATE`` did not complete is not to be believed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests

ERROR_RATE = 0.01  # Share of requests that may fail in a run that is to be believed
# Share by which an output may miss the length at which it was pinned: some servers count the end
# token, others do not
LENGTH_OFF = 0.10
# No engine takes a step in less (5,000 tokens/s): tokens closer together were held back, or are of
# one step
STEP_NS = 200_000
# Tokens that no engine makes in one step; fewer may come of speculative decoding
FEWEST_AT_ONCE = 8

UNFINISHED_END = "ended without a finish"

_FAILED_WORDS = {
    "aborted": ("abort", "aborted", "engine_abort"),
    "ended with an error": (
        "error",
        "errored",
        "failed",
        "failure",
        "fail",
        "exception",
        "internal_error",
        "internal_server_error",
    ),
    "timed out": (
        "timeout",
        "timed_out",
        "time_out",
        "deadline_exceeded",
        "request_timeout",
        "gateway_timeout",
    ),
    "cancelled": (
        "cancel",
        "cancelled",
        "canceled",
        "client_cancelled",
        "client_disconnect",
        "client_disconnected",
        "disconnected",
    ),
    "rejected": (
        "rejected",
        "rate_limited",
        "ratelimited",
        "throttled",
        "overloaded",
        "queue_full",
    ),
    UNFINISHED_END: (
        "not_finished",
        "unfinished",
        "in_progress",
        "interrupted",
        "truncated_stream",
    ),
}
_OUTCOMES = {word: outcome for outcome, words in _FAILED_WORDS.items() for word in words}
_HTTP = re.compile(r"(?:HTTP[/ .0-9]* )?([1-5][0-9]{2})(?![0-9.])")


def failure_of(word: object) -> str:
    """Why a request with this finish reason, status word or HTTP status did not complete; "" where
    it completed, or the word says nothing.

    ``stop``, ``length``, ``tool_calls``, ``content_filter`` and their relatives end a whole output.
    Case, hyphens and a prefix such as "FinishReason." make no difference. Words that are not known
    count as an end, since servers invent some.
    """
    if isinstance(word, bool) or not isinstance(word, str | int | float):
        return ""
    text = str(int(word)) if isinstance(word, float) and word.is_integer() else str(word).strip()
    if status := _HTTP.match(text):
        return f"HTTP {status[1]}" if int(status[1]) >= 400 else ""
    name = re.sub(r"[\s-]+", "_", text.rsplit(".", 1)[-1].lower())
    return _OUTCOMES.get(name.removeprefix("finish_reason_"), "")


def off_length(tokens: int, pinned: int) -> bool:
    """Whether an output of ``tokens`` misses its pinned length by more than ``LENGTH_OFF`` and by
    more than one token.
    """
    return abs(tokens - pinned) > max(LENGTH_OFF * pinned, 1)


def came_at_once(requests: Requests) -> NDArray[np.bool_]:
    """Which completed requests have all their tokens at one moment, so that their TTFT is their E2E
    and their TPOT means nothing.

    A proxy that buffers does that, a file that has the end in place of the first token, and a reply
    that was not streamed.
    """
    from tonnage.results.requests import COMPLETED

    decode = requests.last_token_ns - requests.first_token_ns
    enough = (
        (requests.status == COMPLETED)
        & (requests.osl >= FEWEST_AT_ONCE)
        & (requests.first_token_ns >= 0)
    )
    at_once: NDArray[np.bool_] = enough & (decode < STEP_NS * (requests.osl - 1))
    return at_once
