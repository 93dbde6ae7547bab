"""What stays the same over all loads of a measurement: the server, the endpoint, the prompts, and how to ask."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tonnage.bench.endpoints import Endpoint
from tonnage.bench.exchange import Exchange
from tonnage.bench.prompts import PromptMaker, body_bytes
from tonnage.bench.reply import Reply
from tonnage.bench.wire.request import Target, request_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How requests are made and sent.

    Attributes:
        target: the server.
        endpoint: the kind of endpoint and the model.
        prompts: makes the prompts.
        head: the part of a request that is the same for all (``request_head``); holds the key, so it is never shown.
        timeout_s: of one request, from the moment it was begun.
        tls: for an encrypted connection.
        reuse: whether connections carry several requests.
        warmup: requests before the run that are not recorded.
        headers: the names of further headers, for the record of the run.
        ca_file: certificates to trust, where they are not the system's; a worker makes its own ``tls`` of them.
        workers: client processes.
        talks: whether requests are turns of conversations, so that answers are kept until their conversation is over.
        first, step: of a worker, the number of its first request and the distance to its next, among those of all workers.
    """

    target: Target
    endpoint: Endpoint
    prompts: PromptMaker
    head: bytes
    timeout_s: float = 600.0
    tls: ssl.SSLContext | None = None
    reuse: bool = True
    warmup: int = 0
    headers: tuple[str, ...] = ()
    ca_file: Path | None = None
    workers: int = 1
    talks: bool = False
    first: int = 0
    step: int = 1

    def exchange(self, number: int, isl: int, osl: int) -> Exchange:
        """One request, ready to be sent; below 0 are those of the warm-up."""
        among_all = self.first + number * self.step if number >= 0 else number * self.step - self.first
        body = self.endpoint.body(self.prompts.text(among_all, isl), osl)
        data = request_bytes(self.head, among_all, body_bytes(body, self.endpoint.extra))
        return Exchange(number=number, isl=isl, osl=osl, data=data, reply=self.reply())

    def turn(self, place: int, isl: int, osl: int, *, text: str, before: int, said: Sequence[tuple[str, str]]) -> Exchange:
        """One turn of a conversation (``talk_conductor.TurnMaker``); its number is given when it is sent."""
        asked = text or self.prompts.text(place, isl)
        data = request_bytes(self.head, place, body_bytes(self.endpoint.talk(said, asked, osl), self.endpoint.extra))
        exchange = Exchange(number=-1, isl=before + isl, osl=osl, data=data, reply=self.reply())
        exchange.said = asked
        return exchange

    def reply(self) -> Reply:
        """An empty reply; its text is kept only where it is needed again: to count its tokens, or for the next turn."""
        return Reply(self.endpoint, keep_text=self.talks or self.prompts.counter is not None)
