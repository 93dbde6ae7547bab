"""What a gateway counts, and what its workers know together."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from tonnage.gateway.board import Board

OUTCOMES = ("ok", "error", "cut", "failed", "retried", "outrun", "cancelled")
"""How a request to a backend ends.

    ok          the response came whole
    error       it came whole and its status was 500 or more
    cut         it broke off after its first byte had been passed on
    failed      there was no response, and the client was told so
    retried     there was no response, and another attempt had been made
    outrun      another attempt of the same request was answered first (hedging)
    cancelled   the client left first
"""

FIRST_BYTE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of the time to a response's first byte, in seconds; one more bucket has no bound."""

STATUSES = (400, 401, 404, 405, 408, 413, 414, 429, 431, 502, 503, 504, 505)
"""With which the gateway itself answers."""

_OF_ALL, _OF_BACKEND, _OF_KEY = 32, 32, 8
"""Numbers that a worker needs at most: for everything, for each backend, for each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which worker of a gateway this is.

    Attributes:
        worker, workers: its number, from 0, and how many there are.
        board: the file whose memory they share; None for a worker that is alone.
    """

    worker: int = 0
    workers: int = 1
    board: Path | None = None


class Counts:
    """All the numbers.

    What is a tally is kept by worker and summed. The rest is the same for all workers: what one of them finds out about a backend,
    or takes from a key's allowance, the others know. Every worker lays the numbers out in the same order.

    Attributes:
        place: of this worker.
        in_flight, clients: requests that are being served now, and connections of clients.
        started: requests that were sent to a backend, each once.
        retries, hedges: second attempts of a request: after the first failed, and before it answered.
        refused: requests that the gateway answered itself with an error, by place in ``STATUSES``.
        requests, tokens: of each backend, requests that have not ended, and their tokens still to come, estimated.
        connects: connections opened to each backend.
        running, admitted, denied: requests of each key: now, and since the beginning.
        up: of each backend, 1 where its health checks pass.
        failures: checks in a row that did not.
        checked: the loop's time at which a worker last began a check.
        open_until: the loop's time before which it gets no request, because a connection failed.
        kv_used: the share of its KV cache in use, as last scraped.
        allowances: two of each key: the loop's time at which its requests, and its tokens, are all there again.
    """

    def __init__(self, backends: int, keys: int, place: Place) -> None:
        """For so many backends and keys."""
        cells = _OF_ALL + _OF_BACKEND * backends + _OF_KEY * keys
        board = Board(cells, path=place.board, worker=place.worker, workers=place.workers)
        self.place = place
        self.in_flight, self.clients = board.tally(now=True), board.tally(now=True)
        self.started, self.retries, self.hedges = board.tally(), board.tally(), board.tally()
        self.refused = board.tally(len(STATUSES))
        self.requests, self.tokens = board.tally(backends, now=True), board.tally(backends, now=True)
        self.connects = board.tally(backends)
        self.running, self.admitted, self.denied = board.tally(keys, now=True), board.tally(keys), board.tally(keys)
        self.up, self.failures, self.checked = (board.shared(backends) for _ in range(3))
        self.open_until, self.kv_used = board.shared(backends), board.shared(backends)
        self.allowances = board.shared(2 * keys)
        self._outcomes = board.tally(backends * len(OUTCOMES))
        self._waits = board.tally(backends * (len(FIRST_BYTE) + 1))
        self._waited = board.tally(backends)

    def ended(self, backend: int, outcome: str) -> None:
        """A request to a backend has ended."""
        self._outcomes.add(backend * len(OUTCOMES) + OUTCOMES.index(outcome))

    def outcomes(self, backend: int) -> dict[str, int]:
        """Requests to a backend by how they ended."""
        start = backend * len(OUTCOMES)
        return {name: int(self._outcomes.total(start + i)) for i, name in enumerate(OUTCOMES)}

    def refuse(self, status: int) -> None:
        """The gateway has answered with an error of its own."""
        self.refused.add(STATUSES.index(status))

    def answered(self, backend: int, seconds: float) -> None:
        """A response has begun, so long after its request was complete."""
        self._waits.add(backend * (len(FIRST_BYTE) + 1) + bisect_left(FIRST_BYTE, seconds))
        self._waited.add(backend, seconds)

    def waits(self, backend: int) -> tuple[list[int], float]:
        """How many responses began within each bucket, and the sum of their waits in seconds."""
        start = backend * (len(FIRST_BYTE) + 1)
        return [int(self._waits.total(start + i)) for i in range(len(FIRST_BYTE) + 1)], self._waited.total(backend)
