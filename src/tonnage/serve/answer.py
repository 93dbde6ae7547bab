"""One answer on its way to a client: text as it comes, stop texts, and why it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tonnage.serve.dialect import Refused
from tonnage.serve.metrics import Ended, Metrics
from tonnage.serve.request import Asked
from tonnage.serve.script import Script
from tonnage.serve.tokens import Prompt


class StopTexts:
    """Ends a text where a stop text begins, and gives out nothing that might still be the beginning
    of one.
    """

    def __init__(self, stops: Sequence[str], *, keeps_stop: bool = False) -> None:
        """Wait for the first text; ``keeps_stop`` says whether the stop text itself is part of the
        output.
        """
        self._stops, self._kept = tuple(stops), keeps_stop
        self._held = ""
        self.found = ""  # the stop text that has come, "" before; what follows is not given out

    def take(self, piece: str) -> str:
        """Take a further piece; what can be given out now."""
        if self.found:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        places = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            place, self.found = min(places)
            self._held = ""
            return text[: place + len(self.found) * self._kept]
        pending = self._may_begin(text)
        self._held = text[len(text) - pending :]
        return text[: len(text) - pending]

    def rest(self) -> str:
        """Return the text that was held back, when nothing more comes."""
        pending, self._held = self._held, ""
        return pending

    def _may_begin(self, text: str) -> int:
        """The length of the longest end of a text with which a stop text begins."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        return next(
            (
                size
                for size in range(longest, 0, -1)
                if any(stop.startswith(text[-size:]) for stop in self._stops)
            ),
            0,
        )


LEFT = "abort"  # How an answer ends whose client has left


class Call(NamedTuple):
    """A part of a call of a tool: its name, with which it begins, or some of its arguments."""

    place: int
    name: str = ""
    arguments: str = ""


@dataclass(slots=True, kw_only=True)
class Piece:
    """A part of an answer, as an engine delivers it."""

    text: str = ""
    tokens: int = 0  # how many it is made of
    finish: str = ""  # "stop" or "length" if it is the last, else ""
    error: str = ""  # why there will be no answer, else ""
    ids: Sequence[int] = ()  # its tokens, where the engine says them
    reasoning: str = ""  # text that is thought before the answer
    calls: Sequence[Call] = ()  # parts of calls of tools
    silent: bool = False  # whether a client sees nothing of it
    stopped_by: str | int = ""  # the stop text or the token that ended the answer, if one did


class Source(Protocol):
    """The source of the pieces of an answer; everything is called on the loop's thread."""

    @property
    def engine(self) -> str:
        """The name of the instance that makes them, as metrics have it."""

    @property
    def slot_at(self) -> float | None:
        """When it had a slot, in seconds of ``time.monotonic``; None where that is not known."""

    @property
    def front_end_s(self) -> float:
        """Seconds of the front end before it was in the queue."""

    @property
    def preemptions(self) -> int:
        """The number of times that the request was preempted."""

    @property
    def cached(self) -> int:
        """Tokens of its prompt that the prefix cache had."""

    def begin(self, answer: Answer) -> None:
        """Start making pieces, which are handed to ``answer.take``."""

    def end(self) -> None:
        """Stop making pieces. Called once, whether the source has ended or not."""


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class Answer:
    """One choice of a request."""

    source: Source
    metrics: Metrics
    asked: Asked  # its request
    prompt: Prompt
    script: Script | None = None  # what it says, where that is known beforehand
    made: int = 0  # current output tokens, of which ``reasoned`` were thought
    reasoned: int = 0
    finish: str = ""  # "stop" or "length" once it has ended, "abort" when its client left
    stopped_by: str | int = ""  # the stop text or the token that ended it, if one did
    began: float = 0.0
    first: float = 0.0
    last: float = 0.0
    _ended: bool = False
    _queue: asyncio.Queue[Piece] = field(default_factory=asyncio.Queue)

    def begin(self) -> None:
        """Send the request to its engine."""
        self.began = self.last = time.monotonic()
        self.source.begin(self)

    def take(self, piece: Piece) -> None:
        """Take a further piece from the source."""
        self._queue.put_nowait(piece)

    def leave(self) -> None:
        """The client has left: the engine lets go of the request."""
        if not self.finish:
            self._queue.put_nowait(Piece(finish=LEFT, silent=True))

    def abort(self) -> None:
        """The engine gives it up, and the client gets an error."""
        if not self.finish:
            self._queue.put_nowait(Piece(finish=LEFT))

    async def pieces(self) -> AsyncIterator[Piece]:
        """The answer as the engine delivers it; ``finish`` is set when the last is given out.
        Raises Refused: the engine cannot answer.
        """
        texts = (
            StopTexts(self.asked.stop, keeps_stop=self.asked.keeps_stop)
            if self.asked.stop
            else None
        )
        try:
            while not self.finish:
                piece = await self._queue.get()
                if piece.error:
                    raise Refused(piece.error)
                if piece.finish == LEFT and piece.silent:
                    self.finish = LEFT
                    return
                self._count(piece.tokens)
                self.reasoned += piece.tokens if piece.reasoning else 0
                if texts is not None and self.made > self.asked.sampling.min_tokens:
                    piece.text = texts.take(piece.text)
                    if texts.found:
                        piece.finish, piece.stopped_by = "stop", texts.found
                    elif piece.finish:
                        piece.text += texts.rest()
                    piece.silent = piece.silent or not (
                        piece.text or piece.calls or piece.reasoning
                    )
                self.finish, self.stopped_by = piece.finish, piece.stopped_by
                yield piece
        finally:
            self.end()

    def end(self) -> None:
        """Report the end to the engine and the metrics, once, whatever the cause."""
        if self._ended:
            return
        self._ended = True
        engine, slot_at, preemptions = (
            self.source.engine,
            self.source.slot_at,
            self.source.preemptions,
        )
        front_s = self.source.front_end_s
        self.source.end()
        self.finish = self.finish or LEFT
        self.metrics.ended(
            Ended(
                engine=engine,
                finish=self.finish,
                whole_s=time.monotonic() - self.began,
                decode_s=self.last - self.first,
                front_s=front_s,
                queue_s=None if slot_at is None else max(slot_at - self.began - front_s, 0.0),
                isl=self.prompt.tokens,
                osl=self.made,
                asked_osl=self.asked.osl,
                choices=self.asked.choices,
                preemptions=preemptions,
            )
        )

    def _count(self, tokens: int) -> None:
        if tokens:
            now = time.monotonic()
            self.metrics.tokens(
                self.source.engine, self.made, tokens, now - self.began, now - self.last
            )
            self.first = self.first or now
            self.last = now
            self.made += tokens
