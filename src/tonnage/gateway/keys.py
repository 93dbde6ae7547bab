"""Who may ask, and how much: API keys, kept as hashes, with limits on requests, tokens and concurrency."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.gateway.request import Request

BEARER = b"bearer "
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    Attributes:
        name: what it is called in logs and metrics.
        sha256: of the key, 32 bytes; the key itself is kept nowhere.
        requests_per_minute, tokens_per_minute, concurrency: limits; 0 for none.
    """

    name: str
    sha256: bytes
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrency: int = 0


class Denied(Exception):
    """A request that is not admitted.

    Attributes:
        status: 401 or 429.
        retry_s: seconds after which it may be admitted; 0 where that does not help.
    """

    def __init__(self, status: int, message: str, retry_s: float = 0.0) -> None:
        """Say why."""
        super().__init__(message)
        self.status, self.retry_s = status, retry_s


class Allowance:
    """A token bucket: a minute's worth at once, and then as it refills."""

    __slots__ = ("_at", "_full", "_left")

    def __init__(self, per_minute: int, now: float) -> None:
        """Begin with a full bucket; 0 is no limit."""
        self._full, self._left, self._at = float(per_minute), float(per_minute), now

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until so much may be taken; 0 for now. More than a minute's worth waits for a full bucket, and empties it."""
        if not self._full:
            return 0.0
        self._left = min(self._full, self._left + (now - self._at) * self._full / MINUTE_S)
        self._at = now
        return max(min(amount, self._full) - self._left, 0.0) * MINUTE_S / self._full

    def take(self, amount: float) -> None:
        """Take so much, after ``wait_s`` said 0."""
        if self._full:
            self._left -= min(amount, self._full)


class Account:
    """A key, and what of its limits is left.

    Attributes:
        key: it.
        running: its requests that have not ended.
        admitted, denied: how many there were.
    """

    def __init__(self, key: Key, now: float) -> None:
        """Nothing is used yet."""
        self.key = key
        self.running = self.admitted = self.denied = 0
        self._requests = Allowance(key.requests_per_minute, now)
        self._tokens = Allowance(key.tokens_per_minute, now)

    def admit(self, request: Request, now: float) -> None:
        """Count a request in.

        Raises:
            Denied: a limit is reached.
        """
        tokens = request.prompt_tokens + request.output_tokens
        waits = {"requests_per_minute": self._requests.wait_s(1, now), "tokens_per_minute": self._tokens.wait_s(tokens, now)}
        limit, wait_s = max(waits.items(), key=lambda found: found[1])
        if self.key.concurrency and self.running >= self.key.concurrency:
            limit, wait_s = "concurrency", max(wait_s, 1.0)
        if wait_s > 0:
            self.denied += 1
            raise Denied(429, f"the limit on {limit} of key '{self.key.name}' is reached", wait_s)
        self._requests.take(1)
        self._tokens.take(tokens)
        self.running += 1
        self.admitted += 1

    def over(self) -> None:
        """A request that was admitted has ended."""
        self.running -= 1


class Keys:
    """The keys of a gateway; without any, everybody is admitted."""

    def __init__(self, keys: Sequence[Key], now: float) -> None:
        """Of a gateway, at the loop's time."""
        self.accounts = tuple(Account(key, now) for key in keys)

    def account(self, request: Request) -> Account | None:
        """The account of the key that a request shows; None where there are no keys.

        Raises:
            Denied: it shows none, or another one.
        """
        if not self.accounts:
            return None
        shown = hashlib.sha256(_key_of(request)).digest()
        found = None
        for account in self.accounts:  # all of them, so that the time says nothing of which
            if hmac.compare_digest(account.key.sha256, shown):
                found = account
        if found is None:
            raise Denied(401, "a key is needed: Authorization: Bearer …, or x-api-key")
        return found


def _key_of(request: Request) -> bytes:
    for name, value in request.headers:
        lower = name.lower()
        if lower == b"authorization" and value[: len(BEARER)].lower() == BEARER:
            return value[len(BEARER) :].strip()
        if lower == b"x-api-key":
            return value.strip()
    return b""
