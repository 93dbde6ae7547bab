"""Who may ask, and how much: API keys, kept as hashes, with limits on requests, tokens and concurrency."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.gateway.request import Request

if TYPE_CHECKING:
    from tonnage.gateway.counts import Counts

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
    """A token bucket that all workers share: a minute's worth at once, and then as it refills.

    It is kept as the one moment at which it will be full again (the generic cell rate algorithm of ATM), so that workers need no lock.
    Of two that take at the very same moment, one may not be counted.
    """

    __slots__ = ("_cells", "_full", "_place")

    def __init__(self, per_minute: int, cells: MutableSequence[float] | memoryview[float], place: int) -> None:
        """Begin where the cell stands; 0 a minute is no limit."""
        self._full, self._cells, self._place = float(per_minute), cells, place

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until so much may be taken; 0 for now. More than a minute's worth waits for a full bucket, and empties it."""
        if not self._full:
            return 0.0
        return max(self._after(amount, now) - now - MINUTE_S, 0.0)

    def take(self, amount: float, now: float) -> None:
        """Take so much, after ``wait_s`` said 0."""
        if self._full:
            self._cells[self._place] = self._after(amount, now)

    def _after(self, amount: float, now: float) -> float:
        """When the bucket is full again after so much was taken."""
        return max(self._cells[self._place], now) + min(amount, self._full) * MINUTE_S / self._full


class Account:
    """A key, and what of its limits is left.

    Attributes:
        key: it.
    """

    def __init__(self, key: Key, counts: Counts, number: int) -> None:
        """Of the so-manieth key."""
        self.key = key
        self._counts, self._number = counts, number
        self._requests = Allowance(key.requests_per_minute, counts.allowances, 2 * number)
        self._tokens = Allowance(key.tokens_per_minute, counts.allowances, 2 * number + 1)

    @property
    def running(self) -> int:
        """Its requests that have not ended."""
        return int(self._counts.running.total(self._number))

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
            self._counts.denied.add(self._number)
            raise Denied(429, f"the limit on {limit} of key '{self.key.name}' is reached", wait_s)
        self._requests.take(1, now)
        self._tokens.take(tokens, now)
        self._counts.running.add(self._number)
        self._counts.admitted.add(self._number)

    def over(self) -> None:
        """A request that was admitted has ended."""
        self._counts.running.add(self._number, -1)


class Keys:
    """The keys of a gateway; without any, everybody is admitted."""

    def __init__(self, keys: Sequence[Key], counts: Counts) -> None:
        """Of a gateway."""
        self.accounts = tuple(Account(key, counts, number) for number, key in enumerate(keys))

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
