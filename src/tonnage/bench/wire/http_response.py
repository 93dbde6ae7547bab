"""One HTTP/1.1 response, read incrementally from pieces of any size.

Framing follows RFC 9112, section 6: a chunked body, a body of a stated length, or one that ends with the
connection. What is kept between two pieces is at most one unfinished line or header block, so memory stays bounded
whatever the peer sends.
"""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.bench.wire.broken import BrokenReply

MAX_HEAD = 32_768
"""Bytes of a status line with its headers, or of the trailers; more is refused."""

MAX_SIZE_LINE = 1_024
"""Bytes of a chunk's size with its extensions; more is refused."""

_HEAD, _SIZE, _CHUNK, _CHUNK_END, _TRAILER, _LENGTH, _UNTIL_CLOSE, _DONE = range(8)
_NO_BODY = (204, 304)
_HEX = frozenset(b"0123456789abcdefABCDEF")
_MAX_DIGITS = 12


class HttpResponse:
    """The state of one response while its pieces come in.

    Attributes:
        status: the status code; 0 before the head is complete.
        headers: by lower-case name; of a repeated header the values joined by a comma.
        complete: whether the whole response has been read.
        keep_alive: whether the connection may carry another request afterwards.
        rest: bytes that came after the end of the response; empty from a peer that keeps to the protocol.
    """

    __slots__ = ("_kept", "_left", "_state", "complete", "headers", "keep_alive", "rest", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self.keep_alive = False
        self.rest = b""
        self._state = _HEAD
        self._kept = b""
        self._left = 0

    @property
    def between_chunks(self) -> bool:
        """Whether the next byte begins a chunk."""
        return self._state == _SIZE and not self._kept

    def feed(self, data: bytes) -> Sequence[bytes]:
        """The parts of the body that a piece holds, in order.

        Raises:
            BrokenReply: the bytes are not an HTTP/1.1 response.
        """
        if self._state == _SIZE and not self._kept:
            # The usual piece of a stream is exactly one chunk.
            cut = data.find(b"\r\n", 0, 16)
            if 0 < cut <= _MAX_DIGITS and data[:cut].isalnum():
                size = _chunk_size(data[:cut])
                if size and len(data) == cut + size + 4 and data.endswith(b"\r\n"):
                    return (data[cut + 2 : -2],)
        return self._feed(data)

    def _feed(self, data: bytes) -> list[bytes]:
        """Every step that a piece allows."""
        if self._kept:
            data, self._kept = self._kept + data, b""
        parts: list[bytes] = []
        place = 0
        while place < len(data) and self._state != _DONE:
            step = _STEPS[self._state](self, data, place, parts)
            if step < 0:
                self._kept = data[place:]
                return parts
            place = step
        if self._state == _DONE:
            self.complete = True
            self.rest += data[place:]
            self.keep_alive = self.keep_alive and not self.rest
        return parts

    def end(self) -> None:
        """The peer has closed the connection.

        Raises:
            BrokenReply: in the middle of the response.
        """
        self.keep_alive = False
        if self._state == _UNTIL_CLOSE:
            self._state, self.complete = _DONE, True
        if not self.complete:
            raise BrokenReply("cut off" if self.status else "closed without a reply")

    def _head(self, data: bytes, place: int, parts: list[bytes]) -> int:
        end = data.find(b"\r\n\r\n", place)
        if (end if end >= 0 else len(data)) - place > MAX_HEAD:
            raise BrokenReply("headers too long")
        if end < 0:
            return -1
        self._read_head(data[place:end])
        return end + 4

    def _read_head(self, head: bytes) -> None:
        """Status, headers and framing; an interim response (1xx) is passed over."""
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not (words[1].isascii() and words[1].isdigit() and len(words[1]) == 3):
            raise BrokenReply("not an HTTP/1.1 response")
        status = int(words[1])
        if 100 <= status < 200:
            if status == 101:
                raise BrokenReply("switched protocols")
            return
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BrokenReply("a header line without a name")
            key, value = name.lower(), value.strip()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        self.status, self.headers = status, headers
        tokens = [token.strip() for token in headers.get("connection", "").lower().split(",")]
        self.keep_alive = "close" not in tokens and (words[0] == "HTTP/1.1" or "keep-alive" in tokens)
        self._frame()

    def _frame(self) -> None:
        """How the body ends."""
        coding = self.headers.get("content-encoding", "identity").lower()
        transfer = [part.strip() for part in self.headers.get("transfer-encoding", "").lower().split(",") if part.strip()]
        if coding not in ("identity", "") or transfer not in ([], ["chunked"]):
            raise BrokenReply("a compressed body, which was not asked for")
        if self.status in _NO_BODY:
            self._state = _DONE
        elif transfer:
            self._state = _SIZE
        elif "content-length" in self.headers:
            values = {value.strip() for value in self.headers["content-length"].split(",")}
            text = values.pop()
            if values or not (text.isascii() and text.isdigit() and len(text) <= 18):
                raise BrokenReply("a content length that is none")
            self._left = int(text)
            self._state = _LENGTH if self._left else _DONE
        else:
            self._state, self.keep_alive = _UNTIL_CLOSE, False

    def _size(self, data: bytes, place: int, parts: list[bytes]) -> int:
        end = data.find(b"\r\n", place)
        if (end if end >= 0 else len(data)) - place > MAX_SIZE_LINE:
            raise BrokenReply("a chunk size that is too long")
        if end < 0:
            return -1
        self._left = _chunk_size(data[place:end].partition(b";")[0].strip(b" \t"))
        self._state = _CHUNK if self._left else _TRAILER
        return end + 2

    def _chunk(self, data: bytes, place: int, parts: list[bytes]) -> int:
        end = self._take(data, place, parts)
        if not self._left:
            self._state = _CHUNK_END
        return end

    def _chunk_end(self, data: bytes, place: int, parts: list[bytes]) -> int:
        if len(data) - place < 2 and data[place:] == b"\r":
            return -1
        if data[place : place + 2] != b"\r\n":
            raise BrokenReply("a chunk longer than its size")
        self._state = _SIZE
        return place + 2

    def _trailer(self, data: bytes, place: int, parts: list[bytes]) -> int:
        end = data.find(b"\r\n", place)
        if (end if end >= 0 else len(data)) - place > MAX_HEAD:
            raise BrokenReply("trailers too long")
        if end < 0:
            return -1
        if end == place:
            self._state = _DONE
        return end + 2

    def _length(self, data: bytes, place: int, parts: list[bytes]) -> int:
        end = self._take(data, place, parts)
        if not self._left:
            self._state = _DONE
        return end

    def _until_close(self, data: bytes, place: int, parts: list[bytes]) -> int:
        parts.append(data[place:])
        return len(data)

    def _take(self, data: bytes, place: int, parts: list[bytes]) -> int:
        """As many body bytes as there are, at most those that are left."""
        part = data[place : place + self._left]
        self._left -= len(part)
        parts.append(part)
        return place + len(part)


_STEPS = (
    HttpResponse._head,
    HttpResponse._size,
    HttpResponse._chunk,
    HttpResponse._chunk_end,
    HttpResponse._trailer,
    HttpResponse._length,
    HttpResponse._until_close,
)


def _chunk_size(digits: bytes) -> int:
    """The size of a chunk in bytes.

    Raises:
        BrokenReply: not hexadecimal digits, or more of them than any chunk needs.
    """
    if not 0 < len(digits) <= _MAX_DIGITS or not _HEX.issuperset(digits):
        raise BrokenReply("a chunk size that is none")
    return int(digits, 16)
