"""A reply while it comes in: pieces with their time stamps in, the moments and sizes of its output out.

The stamp of a piece is taken before anything is parsed, and the pieces are parsed later, so that reading one reply does
not delay the stamps of another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tonnage.bench.endpoints import Delta, Endpoint, find_endpoint
from tonnage.bench.http_response import BrokenReply, EventStream, HttpResponse
from tonnage.formats.tool_format import Answer

MAX_DOCUMENT = 67_108_864  # Bytes of a reply that is not a stream; more is refused

_DONE = b"[DONE]"
_PROBE = "qjzx"
_SIZES = {b"%x" % size: size for size in range(4096)}
_PLAIN = bytes(code for code in range(32, 127) if code not in b'"\\')


class Reply:
    """One reply of an endpoint, read incrementally."""

    __slots__ = (
        *("_body", "_endpoint", "_keep", "_lead", "_prefix", "_stream", "_suffix", "_tail", "_usual"),
        *("cached", "counts", "error", "events", "finished", "http", "last_ns", "prompt", "sizes", "texts", "times", "tokens"),
    )

    def __init__(self, endpoint: Endpoint, *, keep_text: bool = False) -> None:
        self.http = HttpResponse()  # the response around it
        self.times: list[int] = []  # nanoseconds of each event that carried output, as stamped
        self.sizes: list[int] = []  # characters of output of each of these events
        # output tokens up to and with an event, as the server counted them, by the event's place in ``times``; only those events that said
        # so
        self.counts: dict[int, int] = {}
        self.texts: list[str] = []  # the output itself by event, where it was requested; empty otherwise
        self.tokens = self.prompt = self.cached = -1  # the server's last word on its usage; -1 where it did not say
        self.last_ns = -1  # stamp of the last piece
        self.finished = False  # whether the server said that the output is complete
        self.error = ""  # the server's message where it sent an error inside the stream or the document; "" otherwise
        self.events = 0  # events of any kind, ``[DONE]`` included
        self._endpoint = endpoint
        self._keep = keep_text
        self._stream: EventStream | None = EventStream() if endpoint.streaming else None
        self._body = bytearray()
        self._prefix = self._suffix = self._lead = self._tail = b""
        self._usual = False

    def read(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Take pieces with their stamps, in order; the same as ``feed`` with each of them, in less time.

        The usual piece is one chunk with one event that differs from the one before it in nothing but a plain piece of
        text. It is taken here at once: every byte of it is compared, and it leaves the parsers as they were.
        Raises BrokenReply: they are not what the endpoint should send.
        """
        usual, lead, tail = self._usual, self._lead, self._tail
        framing = len(lead) + len(tail)
        for ns, data in pieces:
            if usual and data.endswith(tail):
                cut = data.find(b"\r\n", 0, 8)
                if data.startswith(lead, cut + 2) and _SIZES.get(data[:cut]) == len(data) - cut - 4:
                    text = data[cut + 2 + len(lead) : -len(tail)]
                    if text and len(data) > cut + 2 + framing and not text.translate(None, _PLAIN):
                        self._text(ns, text)
                        continue
            self.feed(ns, data)
            usual, lead, tail = self._usual, self._lead, self._tail
            framing = len(lead) + len(tail)
        if pieces:
            self.last_ns = pieces[-1][0]

    def feed(self, ns: int, data: bytes) -> None:
        """Take a piece that was received at ``ns``. Raises BrokenReply: it is not what the endpoint should send."""
        self._feed(ns, data)
        stream = self._stream
        self._usual = bool(self._prefix) and self.http.between_chunks and stream is not None and stream.clean

    def _feed(self, ns: int, data: bytes) -> None:
        self.last_ns = ns
        parts = self.http.feed(data)
        if self._stream is None or self.http.status != 200:
            for part in parts:
                self._body += part
            if len(self._body) > MAX_DOCUMENT:
                raise BrokenReply("a reply that is too long")
            return
        for part in parts:
            for event in self._stream.feed(part):
                self._event(ns, event)

    def _event(self, ns: int, event: bytes) -> None:
        """One event; the usual one differs from the one before it in nothing but a plain piece of text."""
        prefix = self._prefix
        if prefix and event.startswith(prefix) and event.endswith(self._suffix):
            text = event[len(prefix) : -len(self._suffix)]
            if len(event) > len(prefix) + len(self._suffix) and _is_plain(text):
                self._text(ns, text)
                return
        self._read(ns, event)

    def _text(self, ns: int, text: bytes) -> None:
        """An event that is nothing but a plain piece of output."""
        self.events += 1
        self.times.append(ns)
        self.sizes.append(len(text))
        if self._keep:
            self.texts.append(text.decode("ascii"))

    def _read(self, ns: int, event: bytes) -> None:
        """An event read as JSON; the first with output shows what the usual ones look like."""
        self.events += 1
        if event == _DONE:
            self.finished = True
            return
        delta = _delta(self._endpoint, event)
        self._take(ns, delta)
        if delta.text and delta.tokens < 0 and not self.error:
            self._learn(event, delta.text)

    def _take(self, ns: int, delta: Delta) -> None:
        self.error = self.error or delta.error
        self.finished = self.finished or delta.finished
        self.tokens = max(self.tokens, delta.tokens)
        self.prompt = max(self.prompt, delta.prompt)
        self.cached = max(self.cached, delta.cached)
        if delta.text:
            self.times.append(ns)
            self.sizes.append(len(delta.text))
            if delta.tokens >= 0:
                self.counts[len(self.times) - 1] = delta.tokens
            if self._keep:
                self.texts.append(delta.text)

    def _learn(self, event: bytes, text: str) -> None:
        """Remember what surrounds the text of an event, once it is proved that only the text is between.

        With a probe in the text's place the document must say the probe: then every other plain text in this place
        is the output of its event, and need not be read as JSON.
        """
        plain = text.encode("utf-8", "replace")
        quoted = b'"%s"' % plain
        if not _is_plain(plain) or event.count(quoted) != 1:
            return
        place = event.index(quoted) + 1
        prefix, suffix = event[:place], event[place + len(plain) :]
        probed = _delta(self._endpoint, prefix + _PROBE.encode() + suffix)
        if probed.text == _PROBE and not (probed.finished or probed.error or probed.tokens >= 0):
            self._prefix, self._suffix = prefix, suffix
            self._lead, self._tail = b"data: " + prefix, suffix + b"\n\n\r\n"

    def end(self) -> None:
        """The response is complete, or the peer has closed. Raises BrokenReply: cut off, or a document that is not what it should be."""
        if not self.http.complete:
            self.http.end()
        if self.http.status != 200:
            return
        if self._stream is None:
            self._take(self.last_ns, _delta(self._endpoint, bytes(self._body)))
            self._body = bytearray()
            return
        for event in self._stream.end():
            self._read(self.last_ns, event)

    def message(self) -> str:
        """What the body of a reply that is not 200 says, on one line of at most 200 characters."""
        return " ".join(bytes(self._body[:2000]).decode("utf-8", "replace").split())[:200]


def _delta(endpoint: Endpoint, data: bytes) -> Delta:
    """What a document says."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            raise BrokenReply("an answer that is not a JSON object")
        return endpoint.event(document) if endpoint.streaming else endpoint.whole(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BrokenReply("an answer that is not JSON of the endpoint's shape") from None


def _is_plain(text: bytes) -> bool:
    """Whether a piece of a JSON string stands for itself: printable ASCII without quote and backslash."""
    return not text.translate(None, _PLAIN)


def kept_answer(kind: str, streaming: bool, responses: Sequence[tuple[float, bytes]]) -> Answer:
    """What the responses that another client kept of one request (with stamps in nanoseconds) hold, read as this client reads its own."""
    endpoint, stream, answer = find_endpoint(kind, model="", streaming=streaming), EventStream(), Answer([])
    try:
        for stamp, data in responses:
            before = len(answer.text)
            for document in stream.feed(data) if streaming else [data]:
                if document:
                    _add(answer, endpoint, document)
            if len(answer.text) > before:
                answer.moments.append(round(stamp))
        for document in stream.end():
            _add(answer, endpoint, document)
    except BrokenReply as broken:
        answer.error = str(broken)
    return answer


def _add(answer: Answer, endpoint: Endpoint, document: bytes) -> None:
    """Add what a document says."""
    if document == _DONE:
        return
    delta = _delta(endpoint, document)
    answer.text += delta.text
    answer.tokens, answer.prompt = max(answer.tokens, delta.tokens), max(answer.prompt, delta.prompt)
    answer.error = answer.error or delta.error


COMPLETED = ""
CANCELLED = "cancelled"
TIMED_OUT = "timed out"


class Exchange:
    """One request and its reply, in nanoseconds of the monotonic clock; -1 where it did not happen."""

    __slots__ = (
        *("begun_ns", "data", "detail", "due_ns", "isl", "number"),
        *("osl", "outcome", "question", "reply", "retried", "sent_ns", "streamed"),
    )

    def __init__(self, *, number: int, isl: int, osl: int, data: bytes, reply: Reply) -> None:
        self.number = number  # of the request, from 0 in the order of sending; below 0 for warm-up
        self.isl = isl  # and osl: requested tokens
        self.osl = osl
        self.data = data
        self.reply = reply
        # due_ns: when it was due: its scheduled time in an open loop, in a closed one the moment its client was free; begun_ns: when the
        # client turned to it; sent_ns: when its bytes were handed over, on an open connection
        self.due_ns = self.begun_ns = self.sent_ns = -1
        self.outcome = COMPLETED  # "" where it completed, otherwise why not, in the same few words for the same reason
        self.detail = ""  # the server's own words on it
        self.retried = False  # whether it was sent again because a kept connection had been closed by the server
        self.streamed = True  # whether the first event with output is the first token: not where all of it came at once
        self.question = ""  # the question of a turn, whose answer belongs to a conversation; "" elsewhere

    def fail(self, outcome: str, detail: str = "") -> None:
        """Say why it did not complete; the first reason stays."""
        if self.outcome == COMPLETED:
            self.outcome, self.detail = outcome, detail

    def judge(self) -> None:
        """What a reply that was read to its end means."""
        reply = self.reply
        status = reply.http.status
        if 300 <= status < 400:
            self.fail("redirected", f"to {reply.http.headers.get('location', 'nowhere')[:160]}; redirects are not followed")
        elif status != 200:
            self.fail(f"HTTP {status}", reply.message())
        elif reply.error:
            self.fail("error in the reply", reply.error)
        elif not reply.times and reply.tokens != 0:
            self.fail("no output")
