"""Server-sent events, read incrementally from pieces of any size.

The format is that of the HTML Living Standard, section 9.2.6: lines end with CR LF, LF or CR; "data" lines of one
event are joined by a line feed; an empty line ends the event; a line that begins with a colon is a comment. Two
things differ on purpose: an event that the stream's end leaves without its empty line is still given out (some servers
leave it off after ``[DONE]``), and "id" and "retry" are not kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.bench.wire.broken import BrokenReply

MAX_EVENT = 16_777_216
"""Bytes of one event; more is refused."""

_BOM = b"\xef\xbb\xbf"


class EventStream:
    """The state of one stream while its pieces come in; ``feed`` gives the data of each event that is complete.

    Attributes:
        clean: whether nothing of an event has come yet: the next byte begins one.
    """

    __slots__ = ("_after_cr", "_begun", "_data", "_held", "_size", "_tail", "clean")

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._data: list[bytes] = []
        self._size = 0
        self._held = 0
        self._after_cr = False
        self._begun = False
        self.clean = True

    def feed(self, piece: bytes) -> Sequence[bytes]:
        """The data of every event that this piece completes, in order; comments and empty events give nothing.

        Raises:
            BrokenReply: an event longer than ``MAX_EVENT``.
        """
        if self.clean and piece[:6] == b"data: " and piece.find(b"\n") == len(piece) - 2 and piece[-1:] == b"\n" and b"\r" not in piece:
            # The usual piece of a stream is exactly one event of one line.
            self._begun = True
            return (piece[6:-2],) if len(piece) > 8 else ()
        return self._feed(piece)

    def _feed(self, piece: bytes) -> list[bytes]:
        events: list[bytes] = []
        if self._after_cr and piece:
            piece, self._after_cr = piece.removeprefix(b"\n"), False
        if b"\n" not in piece and b"\r" not in piece:
            self._keep(piece)
            return events
        self._tail.append(piece)
        text, self._tail, self._size = b"".join(self._tail), [], 0
        if not self._begun:
            text, self._begun = text.removeprefix(_BOM), True
        for line in text.splitlines(keepends=True):
            if line.endswith((b"\n", b"\r")):
                self._line(line.rstrip(b"\r\n"), events)
            else:
                self._keep(line)
        self._after_cr = text.endswith(b"\r")
        self.clean = not (self._tail or self._data or self._after_cr)
        return events

    def end(self) -> Sequence[bytes]:
        """The event that the stream's end left without its empty line, if there is one."""
        events: list[bytes] = []
        if self._tail:
            self._line(b"".join(self._tail), events)
        self._line(b"", events)
        return events

    def _keep(self, piece: bytes) -> None:
        """Keep an unfinished line."""
        if piece:
            self._tail.append(piece)
            self._size += len(piece)
            self.clean = False
            self._limit()

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if data := b"\n".join(self._data):
                events.append(data)
            self._data, self._held = [], 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._held += len(value) + 1
            self._limit()

    def _limit(self) -> None:
        if self._size + self._held > MAX_EVENT:
            raise BrokenReply("an event that is too long")
