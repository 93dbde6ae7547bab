"""One request on its way, and what became of it."""

from __future__ import annotations

from tonnage.bench.reply import Reply

COMPLETED = ""
CANCELLED = "cancelled"
TIMED_OUT = "timed out"


class Exchange:
    """One request and its reply, in nanoseconds of the monotonic clock; -1 where it did not happen.

    Attributes:
        number: of the request, from 0 in the order of sending; below 0 for warm-up.
        isl, osl: tokens that were asked for.
        due_ns: when it was due: its scheduled time in an open loop, in a closed one the moment its client was free.
        begun_ns: when the client turned to it.
        sent_ns: when its bytes were handed over, on a connection that stood.
        reply: what came back.
        outcome: "" where it completed, otherwise why not, in the same few words for the same reason.
        detail: the server's own words on it.
        said: the question of a turn, whose answer belongs to a conversation; "" elsewhere.
        retried: whether it was sent again because a kept connection had been closed by the server.
    """

    __slots__ = (
        *("begun_ns", "data", "detail", "due_ns", "isl", "number"),
        *("osl", "outcome", "reply", "retried", "said", "sent_ns"),
    )

    def __init__(self, *, number: int, isl: int, osl: int, data: bytes, reply: Reply) -> None:
        self.number = number
        self.isl = isl
        self.osl = osl
        self.data = data
        self.reply = reply
        self.due_ns = self.begun_ns = self.sent_ns = -1
        self.outcome = COMPLETED
        self.detail = ""
        self.retried = False
        self.said = ""

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
