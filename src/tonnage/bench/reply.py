"""A reply while it comes in: pieces with their time stamps in, the moments and sizes of its output
out.

The stamp of a piece is taken before anything is parsed, and the pieces are parsed later, so that
reading one reply does not delay the stamps of another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tonnage.bench.endpoints import Delta, Endpoint, error_of, find_endpoint
from tonnage.bench.http_response import BrokenReply, ErrorEvent, EventStream, HttpResponse
from tonnage.formats.tool_format import Answer
from tonnage.results.outcomes import UNFINISHED_END, failure_of

MAX_DOCUMENT = 67_108_864  # Bytes of a reply that is not a stream; more is refused
# Bytes of a stream that are read one by one, and events with output; more is refused
MAX_STREAM, MAX_EVENTS = 268_435_456, 4_194_304
MAX_QUOTED = 65_536  # Bytes that are kept of what came in place of a stream

_DONE = b"[DONE]"
_PROBE = "qjzx"
_SIZES = {b"%x" % size: size for size in range(4096)}
_PLAIN = bytes(code for code in range(32, 127) if code not in b'"\\')


class Reply:
    """One reply of an endpoint, read incrementally."""

    __slots__ = (
        *(
            "_body",
            "_bytes",
            "_endpoint",
            "_keep",
            "_lead",
            "_prefix",
            "_stream",
            "_suffix",
            "_tail",
            "_usual",
        ),
        *(
            "cached",
            "choices",
            "counts",
            "error",
            "events",
            "finish",
            "finished",
            "http",
            "in_place",
            "last_ns",
            "prompt",
            "reasoning",
        ),
        *("sizes", "texts", "thought", "times", "tokens"),
    )

    def __init__(self, endpoint: Endpoint, *, keep_text: bool = False) -> None:
        self.http = HttpResponse()  # the response around it
        self.times: list[int] = []  # nanoseconds of each event that carried output, as stamped
        self.sizes: list[int] = []  # characters of output of each of these events
        # output tokens up to and with an event, as the server counted them, by the event's place in
        # ``times``; only those events that said so
        self.counts: dict[int, int] = {}
        # the output itself by event, where it was requested; empty otherwise
        self.texts: list[str] = []
        # the server's last word on its usage; -1 where it did not say
        self.tokens = self.prompt = self.cached = -1
        self.reasoning = 0  # tokens among these that the server counts as reasoning
        self.thought = False  # whether reasoning was among the output
        self.choices = 1  # outputs next to one another
        self.last_ns = -1  # stamp of the last piece
        self.finished = False  # whether the server said that the output is complete
        self.finish = ""  # why it ended, in the server's word; "" where it did not say
        self.in_place = ""  # what came in place of a stream; "" where a stream did
        # the server's message where it sent an error inside the stream or the document; ""
        # otherwise
        self.error = ""
        self.events = 0  # events of any kind, ``[DONE]`` included
        self._endpoint = endpoint
        self._keep = keep_text
        self._stream: EventStream | None = EventStream() if endpoint.streaming else None
        self._body = bytearray()
        self._bytes = 0
        self._prefix = self._suffix = self._lead = self._tail = b""
        self._usual = False

    def read(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Take pieces with their stamps, in order; the same as ``feed`` with each of them, in less
        time.

        The usual piece is one chunk with one event that differs from the one before it in nothing
        but a plain piece of text. It is taken here at once: every byte of it is compared, and it
        leaves the parsers as they were. Raises BrokenReply: they are not what the endpoint should
        send.
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
            if len(self.times) > MAX_EVENTS:
                raise BrokenReply(f"more than {MAX_EVENTS:,} events with output")

    def feed(self, ns: int, data: bytes) -> None:
        """Take a piece that was received at ``ns``. Raises BrokenReply: it is not what the endpoint
        should send.
        """
        self._feed(ns, data)
        stream = self._stream
        self._usual = (
            bool(self._prefix) and self.http.between_chunks and stream is not None and stream.clean
        )

    def _feed(self, ns: int, data: bytes) -> None:
        self.last_ns = ns
        for part in self.http.feed(data):
            self.take(ns, part)

    def take(self, ns: int, part: bytes) -> None:
        """Take a part of the body. Raises BrokenReply: it is not what the endpoint should send, or
        has no end.
        """
        if self._stream is None or self.http.status != 200:
            self._body += part
            if len(self._body) > MAX_DOCUMENT:
                raise BrokenReply("a reply that is too long")
            return
        self._bytes += len(part)
        if self._bytes > MAX_STREAM:
            raise BrokenReply(f"a stream of more than {MAX_STREAM // 2**20} MiB")
        for event in self._stream.feed(part):
            self._event(ns, event)
        if not self.events and len(self._body) < MAX_QUOTED:
            self._body += part

    def _event(self, ns: int, event: bytes) -> None:
        """Read one event; the usual one differs from the one before it in nothing but a plain piece
        of text.
        """
        prefix = self._prefix
        if prefix and event.startswith(prefix) and event.endswith(self._suffix):
            text = event[len(prefix) : -len(self._suffix)]
            if len(event) > len(prefix) + len(self._suffix) and _is_plain(text):
                self._text(ns, text)
                return
        self._read(ns, event)

    def _text(self, ns: int, text: bytes) -> None:
        """Read an event that is nothing but a plain piece of output."""
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
        if isinstance(event, ErrorEvent):
            self.error = self.error or words_of(event) or "an error without a message"
            return
        delta = _delta(self._endpoint, event)
        self._take(ns, delta)
        if delta.text and delta.tokens < 0 and not self.error:
            self._learn(event, delta.text)

    def _take(self, ns: int, delta: Delta) -> None:
        self.error = self.error or delta.error
        if delta.finish:
            self.finished = True
            self.finish = self.finish if failure_of(self.finish) else delta.finish
        self.thought = self.thought or delta.thought
        self.choices = max(self.choices, delta.choices)
        if delta.tokens >= 0 or delta.prompt >= 0:
            self.tokens, self.prompt = (
                max(self.tokens, delta.tokens),
                max(self.prompt, delta.prompt),
            )
            self.cached, self.reasoning = (
                max(self.cached, delta.cached),
                max(self.reasoning, delta.reasoning),
            )
        if delta.text:
            self.times.append(ns)
            self.sizes.append(len(delta.text))
            if delta.tokens >= 0:
                self.counts[len(self.times) - 1] = delta.tokens
            if self._keep:
                self.texts.append(delta.text)

    def _learn(self, event: bytes, text: str) -> None:
        """Remember what surrounds the text of an event, once it is proved that only the text is
        between.

        With a probe in the text's place the document must say the probe: then every other plain
        text in this place is the output of its event, and need not be read as JSON.
        """
        plain = text.encode("utf-8", "replace")
        quoted = b'"%s"' % plain
        if not _is_plain(plain) or event.count(quoted) != 1:
            return
        place = event.index(quoted) + 1
        prefix, suffix = event[:place], event[place + len(plain) :]
        probed = _delta(self._endpoint, prefix + _PROBE.encode() + suffix)
        if probed.text == _PROBE and not (probed.finish or probed.error or probed.tokens >= 0):
            self._prefix, self._suffix = prefix, suffix
            self._lead, self._tail = b"data: " + prefix, suffix + b"\n\n\r\n"

    def end(self) -> None:
        """The response is complete, or the peer has closed. Raises BrokenReply: cut off, or a
        document that is not what it should be.
        """
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
        if not self.events:
            self._take_what_is_no_stream()

    def _take_what_is_no_stream(self) -> None:
        """A reply without an event: an error, a whole reply, a page, or nothing."""
        kind = self.http.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = bytes(self._body)
        document = _object(body)
        if document is not None:
            self.error = error_of(document)
            whole = "choices" in document or "output" in document or "text_output" in document
            self.in_place = f"{'a whole reply' if whole else 'JSON'} in place of a stream"
        elif b"<html" in body[:1_000].lower() or kind == "text/html":
            self.in_place = "an HTML page in place of a stream"
        elif body.strip() and kind != "text/event-stream":
            self.in_place = f"{kind or 'something else'} in place of a stream"

    def failure(self) -> tuple[str, str]:
        """Why a reply that was read to its end has no whole output, in few words, and the server's
        own; "" where it has one.
        """
        status, headers = self.http.status, self.http.headers
        if 300 <= status < 400:
            return (
                "redirected",
                f"to {headers.get('location', 'nowhere')[:160]}; redirects are not followed",
            )
        if status != 200:
            wait = headers.get("retry-after", "")[:40]
            return f"HTTP {status}", words_of(bytes(self._body)) + (
                f" (Retry-After: {wait})" if wait else ""
            )
        return ("error in the reply", self.error) if self.error else self._lack()

    def _lack(self) -> tuple[str, str]:
        """Say what an incomplete reply lacks, with the server's words."""
        endpoint = self._endpoint
        if self.in_place:
            return self.in_place, words_of(bytes(self._body))
        if outcome := failure_of(self.finish):
            return (
                f"{outcome} by the server" if outcome == CANCELLED else outcome,
                f"the output ended with '{self.finish[:40]}'",
            )
        if endpoint.has_output and not self.times:
            counted = (
                f"; the server counts {self.tokens} output tokens, {self.reasoning} of them"
                " reasoning"
                if self.tokens > 0
                else ""
            )
            return "no output", (
                f"no text came{counted}" if self.events else words_of(bytes(self._body))
            )
        if endpoint.streaming and endpoint.marks_end and not self.finished:
            return UNFINISHED_END, "neither a finish reason nor [DONE] came"
        return COMPLETED, ""


_TAG = re.compile(r"<(script|style).*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def words_of(body: bytes) -> str:
    """What a body says that is no output, on one line of at most 200 characters: an error's
    message, or its text without tags.
    """
    document = _object(body[:MAX_QUOTED])
    message = "" if document is None else error_of(document)
    return message or " ".join(_TAG.sub(" ", body[:2_000].decode("utf-8", "replace")).split())[:200]


def _object(body: bytes) -> dict[str, Any] | None:
    """The JSON object that a body is; None where it is something else."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _delta(endpoint: Endpoint, data: bytes) -> Delta:
    """Read the content of a document."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            raise BrokenReply(f"an answer that is not a JSON object: {words_of(data)}")
        return endpoint.event(document) if endpoint.streaming else endpoint.whole(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BrokenReply(
            f"an answer that is not JSON of the endpoint's shape: {words_of(data)}"
        ) from None


def _is_plain(text: bytes) -> bool:
    """Whether a piece of a JSON string stands for itself: printable ASCII without quote and
    backslash.
    """
    return not text.translate(None, _PLAIN)


def kept_answer(kind: str, streaming: bool, responses: Sequence[tuple[float, bytes]]) -> Answer:
    """What the responses that another client kept of one request (with stamps in nanoseconds) hold,
    read as this client reads its own.
    """
    reply, answer = (
        Reply(find_endpoint(kind, model="", streaming=streaming), keep_text=True),
        Answer([]),
    )
    reply.http.status, reply.http.complete = 200, True
    try:
        for stamp, data in responses:
            reply.last_ns = round(stamp)
            reply.take(reply.last_ns, data)
        reply.end()
        answer.error = reply.error or reply.failure()[0]
    except BrokenReply as broken:
        answer.error = str(broken)
    answer.moments = list(dict.fromkeys(reply.times))
    answer.text, answer.tokens, answer.prompt = "".join(reply.texts), reply.tokens, reply.prompt
    return answer


COMPLETED = ""
CANCELLED = "cancelled"
TIMED_OUT = "timed out"


class Exchange:
    """One request and its reply, in nanoseconds of the monotonic clock; -1 where it did not
    happen.
    """

    __slots__ = (
        *("begun_ns", "data", "detail", "due_ns", "isl", "number"),
        *("failures", "osl", "outcome", "question", "reply", "retried", "sent_ns", "streamed"),
    )

    def __init__(self, *, number: int, isl: int, osl: int, data: bytes, reply: Reply) -> None:
        self.number = number  # of the request, from 0 in the order of sending; below 0 for warm-up
        self.isl = isl  # and osl: requested tokens
        self.osl = osl
        self.data = data
        self.reply = reply
        # due_ns: when it was due: its scheduled time in an open loop, in a closed one the moment
        # its client was free; begun_ns: when the client turned to it; sent_ns: when its bytes were
        # handed over, on an open connection
        self.due_ns = self.begun_ns = self.sent_ns = -1
        # "" where it completed, otherwise why not, in the same few words for the same reason
        self.outcome = COMPLETED
        self.detail = ""  # the server's own words on it
        # whether it was sent again because a kept connection had been closed by the server
        self.retried = False
        self.failures = 0  # requests of the same client before it that failed at once, in a row
        # whether the first event with output is the first token: not where all of it came at once
        self.streamed = True
        # the question of a turn, whose answer belongs to a conversation; "" elsewhere
        self.question = ""

    def fail(self, outcome: str, detail: str = "") -> None:
        """Say why it did not complete; the first reason stays."""
        if self.outcome == COMPLETED:
            self.outcome, self.detail = outcome, detail

    def judge(self) -> None:
        """Decide the outcome of a reply that was read to its end."""
        self.fail(*self.reply.failure())
