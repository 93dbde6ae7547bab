"""One request on its way: a backend is chosen, and another one if the first fails, or dawdles, before its response has begun."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tonnage.gateway.answers import refusal
from tonnage.gateway.attempt import Attempt
from tonnage.gateway.core import Core
from tonnage.gateway.keys import Account
from tonnage.gateway.request import Request
from tonnage.gateway.response import Head
from tonnage.gateway.upstream import Write

NO_MODEL, BAD_GATEWAY, NO_BACKEND, TOO_LATE = 404, 502, 503, 504


class Sink(Protocol):
    """The client's side of an exchange."""

    paused: bool

    def writer(self) -> Write:
        """What takes bytes for the client."""

    def responded(self, *, keep: bool) -> None:
        """The response has been passed on whole."""

    def cut(self) -> None:
        """It broke off after its first byte: the client must see that it is not whole."""


class Exchange:
    """A request and what becomes of it: at most two attempts, of which one is passed on."""

    __slots__ = (
        *("_account", "_at", "_attempts", "_begun", "_client", "_core", "_keep", "_model"),
        *("_request", "_second", "_started", "_status", "_timer"),
    )

    def __init__(self, core: Core, client: Sink, request: Request, account: Account | None = None) -> None:
        """Not sent yet.

        Args:
            core: of the gateway.
            client: who asked.
            request: what.
            account: that it has been counted in.
        """
        self._core = core
        self._client = client
        self._account = account
        self._model = model = request.model
        alias = core.settings.aliases.get(model)
        if alias is not None:
            request, self._model = request.renamed(alias), alias
        self._request = request if account is None else request.without_key()
        self._started = core.loop.time()
        self._attempts: list[Attempt] = []
        self._timer: asyncio.TimerHandle | None = None
        self._at = -1  # the backend that was sent to last, or whose response is passed on
        self._status = 0
        self._begun = self._second = False
        self._keep = request.keep

    def start(self) -> None:
        """Send it where the policy says."""
        core = self._core
        core.counts.in_flight.add(0)
        chosen = core.balancer.choose(self._request, core.loop.time(), model=self._model)
        if chosen < 0 and not any(backend.serves(self._model) for backend in core.backends):
            self._refuse(NO_MODEL, f"The model `{self._model}` does not exist.")
        elif chosen < 0:
            self._refuse(NO_BACKEND, "no backend takes requests at the moment")
        else:
            core.counts.started.add(0)
            if core.limits.hedge_s and self._request.hedged:
                self._timer = core.loop.call_later(core.limits.hedge_s, self._hedge)
            self._to(chosen)

    def _to(self, chosen: int) -> None:
        attempt = Attempt(self._core, self, self._request, chosen)
        self._at = chosen
        self._attempts.append(attempt)
        attempt.send()

    def _hedge(self) -> None:
        """No response has begun for a while: ask a second backend too, and take whichever answers first."""
        self._timer = None
        if not self._begun and not self._second and self._core.may_hedge and self._sent_elsewhere():
            self._core.counts.hedges.add(0)

    def _sent_elsewhere(self) -> bool:
        """Make the one further attempt; False where it has been made, or no other backend takes requests."""
        if self._second:
            return False
        tried = [attempt.at for attempt in self._attempts]
        chosen = self._core.balancer.choose(self._request, self._core.loop.time(), tried, self._model)
        if chosen < 0:
            return False
        self._second = True
        self._to(chosen)
        return True

    def began(self, attempt: Attempt, head: Head) -> Write:
        """Pass the head on; returns what takes the body. The other attempt, if there is one, is given up."""
        core, request = self._core, self._request
        self._no_timer()
        for other in self._attempts:
            if other is not attempt:
                other.release("outrun")
        self._attempts = [attempt]
        self._at, self._begun, self._status = attempt.at, True, head.status
        core.counts.answered(attempt.at, core.loop.time() - self._started)
        chunked = head.chunked and request.version != "1.0"
        self._keep = request.keep and not head.until_close and chunked == head.chunked and not core.draining
        write = self._client.writer()
        write(head.wire(close=not self._keep, chunked=chunked))
        if self._client.paused:
            self.pause()
        return write

    def ended(self, attempt: Attempt) -> None:
        """The response has come whole."""
        outcome = "error" if self._status >= 500 else "ok"
        self._drop(attempt, outcome, keep=True)
        self._over(outcome)
        self._client.responded(keep=self._keep)

    def failed(self, attempt: Attempt, why: str, *, again: bool) -> None:
        """A backend failed: the stream is cut if it has begun, else there may be another attempt."""
        if self._begun:
            self._drop(attempt, "cut")
            self._over("cut")
            self._client.cut()
        elif again and attempt.reused:
            # An idle connection that the backend closed at this very moment says nothing of the backend.
            attempt.send(anew=True)
        elif len(self._attempts) > 1:
            self._leave_to_the_other(attempt)
        elif not (again and self._moved(attempt)):
            name = self._core.backends[attempt.at].name
            self._drop(attempt, "failed")
            self._refuse(BAD_GATEWAY if why != "it took too long" else TOO_LATE, f"backend {name}: {why}")

    def withdraw(self, attempt: Attempt) -> None:
        """Its backend no longer passes its health checks: go elsewhere if nothing has come and another one takes requests."""
        if self._begun:
            return
        if len(self._attempts) > 1:
            self._leave_to_the_other(attempt)
        else:
            self._moved(attempt)

    def _leave_to_the_other(self, attempt: Attempt) -> None:
        self._drop(attempt, "retried")
        self._at = self._attempts[0].at

    def _moved(self, attempt: Attempt) -> bool:
        """Replace an attempt by one on another backend; False where there was a second one, or no other takes requests."""
        if not self._sent_elsewhere():
            return False
        self._core.counts.retries.add(0)
        self._drop(attempt, "retried")
        return True

    def _drop(self, attempt: Attempt, outcome: str, *, keep: bool = False) -> None:
        self._attempts.remove(attempt)
        attempt.release(outcome, keep=keep)

    def cancel(self) -> None:
        """The client has left: so does the request."""
        for attempt in list(self._attempts):
            self._drop(attempt, "cancelled")
        self._over("cancelled")

    def pause(self) -> None:
        """The client reads too slowly: read no more from the backend."""
        if self._begun:
            self._attempts[0].pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._begun:
            self._attempts[0].resume()

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self, outcome: str) -> None:
        """The request has ended, however it did: count it out, and log it."""
        core, request = self._core, self._request
        self._no_timer()
        core.counts.in_flight.add(0, -1)
        if self._account is not None:
            self._account.over()
        core.log.write(
            key="" if self._account is None else self._account.key.name,
            model=self._model,
            method=request.method,
            target=request.target,
            backend=core.backends[self._at].name if self._at >= 0 else "",
            status=self._status,
            outcome=outcome,
            seconds=core.loop.time() - self._started,
        )

    def _refuse(self, status: int, message: str) -> None:
        core, request = self._core, self._request
        self._status = status
        self._over("failed" if self._at >= 0 else "refused")
        core.counts.refuse(status)
        self._client.writer()(refusal(status, message, close=not request.keep, head=request.method == b"HEAD"))
        self._client.responded(keep=request.keep)
