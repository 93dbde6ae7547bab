"""One HTTP/1.1 response and the server-sent events in it, read incrementally from pieces of any
size.

httptools (llhttp) reads the response and refuses what RFC 9112 does. It has no own limits: a head,
a chunk's size line and trailers that have no end are refused here, and so are compressed bodies.
Nothing of the body is kept.

The format of events is that of the HTML Living Standard, section 9.2.6: lines end with CR LF, LF or
CR; "data" lines of one event are joined by a line feed; an empty line ends the event; a line that
begins with a colon is a comment. Three things differ on purpose: an event that the stream's end
leaves without its empty line is still given out (some servers leave it off after ``[DONE]``), of
the names of events only "error" is kept, and such an event needs no data, and "id" and "retry" are
not kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import httptools


class BrokenReply(Exception):
    """The peer sent what is not the protocol; the client counts the request as failed, with the
    message as the reason.
    """


MAX_HEAD = 32_768  # Bytes of a status line with its headers, or of the trailers; more is refused
MAX_SIZE_LINE = 1_024  # Bytes of a chunk's size with its extensions; more is refused

_NO_BODY = (204, 304)


class HttpResponse:
    """The state of one response while its pieces come in."""

    __slots__ = (
        *(
            "_before_size",
            "_bytes",
            "_parser",
            "_parts",
            "_parts_before",
            "_refused",
            "_unfinished",
            "_until_close",
        ),
        *("between_chunks", "complete", "headers", "keep_alive", "on_body", "status"),
    )

    def __init__(self) -> None:
        self.status = 0  # the status code; 0 before the head is complete
        # by lower-case name; of a repeated header the values joined by a comma
        self.headers: dict[str, str] = {}
        # complete: whether the whole response has been read; keep_alive: whether the connection may
        # carry another request afterwards;
        # between_chunks: whether the next byte begins a chunk
        self.complete = self.keep_alive = self.between_chunks = False
        self._before_size = self._until_close = False
        # of headers that are complete; of what is not; parts before this chunk
        self._bytes = self._unfinished = self._parts_before = 0
        self._refused = ""
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> Sequence[bytes]:
        """The parts of the body that a piece holds, in order. Raises BrokenReply: no HTTP/1.1
        response, or no end of a part of it.
        """
        if self._parser is None:  # bytes after the end
            self.keep_alive = False
            return ()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise BrokenReply("switched protocols") from None
        except httptools.HttpParserError as error:
            if not self.complete:
                raise BrokenReply(
                    f"{'a body that is not HTTP/1.1' if self.status else 'not an HTTP/1.1 response'}:"  # noqa: E501
                    f" {error}"
                ) from None
            self.keep_alive = False
        self._check(data)
        parts = self._parts.copy()
        self._parts.clear()
        self._parts_before = 0
        self.between_chunks = self._before_size and data.endswith(b"\r\n")
        if self.complete:
            self._parser = None  # which holds this object
        return parts

    def _check(self, data: bytes) -> None:
        """Refuse what has no end: the bytes since the last thing that was complete are counted."""
        if self._refused:
            raise BrokenReply(self._refused)
        in_body = self.complete or len(self._parts) > self._parts_before or self._until_close
        begun = data.rfind(b"\r\n") + 2  # an unfinished line is what follows the last end of a line
        self._unfinished = (
            0
            if in_body
            else self._unfinished + len(data)
            if begun < 2 or not self.status
            else len(data) - begun
        )
        limit = MAX_SIZE_LINE if self._before_size else MAX_HEAD
        if self._unfinished + (self._bytes if self.status else 0) > limit:
            what = "a chunk size" if self._before_size else "trailers" if self.status else "headers"
            raise BrokenReply(f"{what} too long")

    def on_message_begin(self) -> None:
        """Another response begins, which nothing has asked for, unless what came before it was an
        interim one.
        """
        self.keep_alive = self.keep_alive and not self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a trailer only counts."""
        self._bytes += len(name) + len(value) + 4
        if not self.status:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """Status and framing; an interim response (1xx) is passed over."""
        parser = self._parser
        if parser is None or 100 <= parser.get_status_code() < 200:
            self.headers = {}
            return
        headers = self.headers
        version, self.status = parser.get_http_version(), parser.get_status_code()
        tokens = [token.strip() for token in headers.get("connection", "").lower().split(",")]
        transfer = [
            part.strip()
            for part in headers.get("transfer-encoding", "").lower().split(",")
            if part.strip()
        ]
        if not version.startswith("1."):
            self._refused = "not an HTTP/1.1 response"
        elif self._bytes > MAX_HEAD:
            self._refused = "headers too long"
        elif headers.get("content-encoding", "identity").lower() not in (
            "identity",
            "",
        ) or transfer not in ([], ["chunked"]):
            self._refused = "a compressed body, which the client does not accept"
        self._bytes, self._before_size = 0, bool(transfer)
        self._until_close = (
            not transfer and "content-length" not in headers and self.status not in _NO_BODY
        )
        self.keep_alive = (
            not self._until_close
            and "close" not in tokens
            and (version == "1.1" or "keep-alive" in tokens)
        )

    def on_chunk_header(self) -> None:
        """A chunk's size has come."""
        self._before_size, self._parts_before = False, len(self._parts)

    def on_chunk_complete(self) -> None:
        """A chunk is over."""
        self._before_size, self._parts_before = True, len(self._parts)

    def on_message_complete(self) -> None:
        """The response is over, unless it was an interim one."""
        self.complete = bool(self.status)

    def end(self) -> None:
        """The peer has closed the connection. Raises BrokenReply: in the middle of the response."""
        self.keep_alive, self._parser = False, None
        self.complete = self.complete or self._until_close
        if not self.complete:
            raise BrokenReply("cut off" if self.status else "closed without a reply")


MAX_EVENT = 16_777_216  # Bytes of one event; more is refused

_BOM = b"\xef\xbb\xbf"


class ErrorEvent(bytes):
    """The data of an event that its server named "error"."""


class EventStream:
    """The state of one stream while its pieces come in; ``feed`` gives the data of each event that
    is complete.
    """

    __slots__ = ("_after_cr", "_begun", "_data", "_error", "_held", "_size", "_tail", "clean")

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._data: list[bytes] = []
        self._size = 0
        self._held = 0
        self._after_cr = False
        self._begun = False
        self._error = False
        self.clean = True  # whether nothing of an event has come yet: the next byte begins one

    def feed(self, piece: bytes) -> Sequence[bytes]:
        """The data of every event that this piece completes; comments give nothing. Raises
        BrokenReply: longer than ``MAX_EVENT``.
        """
        if (
            self.clean
            and piece[:6] == b"data: "
            and piece.find(b"\n") == len(piece) - 2
            and piece[-1:] == b"\n"
            and b"\r" not in piece
        ):
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
        self.clean = not (self._tail or self._data or self._error or self._after_cr)
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
            data = b"\n".join(self._data)
            if data or self._error:
                events.append(ErrorEvent(data) if self._error else data)
            self._data, self._held, self._error = [], 0, False
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._held += len(value) + 1
            self._limit()
        elif name == b"event":
            self._error = value.strip() == b"error"

    def _limit(self) -> None:
        if self._size + self._held > MAX_EVENT:
            raise BrokenReply("an event that is too long")
