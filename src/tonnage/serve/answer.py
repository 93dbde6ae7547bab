"""One answer on its way to a client: tokens as they come, text, stop texts, and why it ended."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.serve.asked import Refused
from tonnage.serve.words import word

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tonnage.serve.fleet import Fleet
    from tonnage.serve.metrics import Metrics

LEFT = -1
"""Put into an answer's queue when its client has left."""


@dataclass(slots=True, eq=False, kw_only=True)
class Answer:
    """One choice of a request.

    Attributes:
        isl, osl: prompt tokens, and output tokens at most.
        stop: texts at which it ends.
        number: of the request in the fleet.
        made: output tokens so far.
        finish: "stop" or "length" once it has ended, "abort" when its client left.
    """

    fleet: Fleet
    metrics: Metrics
    isl: int
    osl: int
    stop: tuple[str, ...] = ()
    session: int = -1
    number: int = -1
    made: int = 0
    finish: str = ""
    began: float = 0.0
    last: float = 0.0
    _text: str = ""
    _queue: asyncio.Queue[tuple[int, int]] = field(default_factory=asyncio.Queue)

    def begin(self) -> None:
        """Send the request to the fleet."""
        self.began = self.last = time.monotonic()
        self.number = self.fleet.submit(isl=self.isl, osl=self.osl, deliver=self._deliver, session=self.session)

    def leave(self) -> None:
        """The client has left: the engine lets go of the request."""
        if not self.finish:
            self._queue.put_nowait((0, LEFT))

    async def pieces(self) -> AsyncIterator[str]:
        """The text of the answer, piece by piece, as the engine delivers it.

        Raises:
            Refused: the engine rejected the request, which can never fit.
        """
        try:
            while not self.finish:
                tokens, status = await self._queue.get()
                if status == REJECTED:
                    raise Refused(f"a request of {self.isl} and {self.osl} tokens does not fit the KV cache of this deployment")
                if status == LEFT:
                    self.finish = "abort"
                    return
                piece = self._taken(tokens)
                if not self.finish and status == COMPLETED:
                    self.finish = "length"
                yield piece
        finally:
            self._end()

    def _deliver(self, tokens: int, status: int) -> None:
        self._queue.put_nowait((tokens, status))

    def _taken(self, tokens: int) -> str:
        """The text of further tokens, cut where a stop text begins."""
        now = time.monotonic()
        self.metrics.tokens(self.made, tokens, now - self.began, now - self.last)
        self.last = now
        piece = "".join(word(self.number, self.made + i) for i in range(tokens))
        self.made += tokens
        if not self.stop:
            return piece
        before = len(self._text)
        self._text += piece
        ends = [place for one in self.stop if (place := self._text.find(one, max(0, before - len(one)))) >= 0]
        if not ends:
            return piece
        self.finish = "stop"
        return self._text[before : max(min(ends), before)]

    def _end(self) -> None:
        """Whatever ended it, the engine and the metrics are told once."""
        self.fleet.cancel(self.number)
        self.fleet.ended(self.number)
        self.finish = self.finish or "abort"
        self.metrics.ended(self.finish, time.monotonic() - self.began, self.isl, self.made)
