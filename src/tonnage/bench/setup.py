"""What stays the same over all loads of a measurement: the server, the endpoint, the prompts, and how to ask."""

from __future__ import annotations

import ssl
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
    first: int = 0
    step: int = 1

    def exchange(self, number: int, isl: int, osl: int) -> Exchange:
        """One request, ready to be sent; below 0 are those of the warm-up."""
        among_all = self.first + number * self.step if number >= 0 else number * self.step - self.first
        body = self.endpoint.body(self.prompts.text(among_all, isl), osl)
        data = request_bytes(self.head, among_all, body_bytes(body, self.endpoint.extra))
        return Exchange(number=number, isl=isl, osl=osl, data=data, reply=self.reply())

    def reply(self) -> Reply:
        """An empty reply; its text is kept only where tokens may have to be counted from it."""
        return Reply(self.endpoint, keep_text=self.prompts.counter is not None)
