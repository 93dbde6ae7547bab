"""Routers: which instance gets a request, from what a router in front of real engines can see.

Each policy is one function of a ``View``, a ``Request`` and the router's own ``Memory``. The
functions read and write by index alone, so that the same source serves three users: plain Python
over lists (the gateway), plain Python over numpy arrays (the reference simulator), and numba (the
compiled fleet). They return the number of an instance, or -1 when none is available.

A router does not see an engine's queue, the length of an answer, or KV blocks at this instant. It
sees what it has sent and what has come back (``requests``, ``tokens``), what it last scraped from
``/metrics`` (``kv_used``), what it remembers of the prefixes that it sent where (``matched``),
which instances pass their health checks (``available``) and the weights that were configured.

Sources: smooth weighted round robin is that of nginx (ngx_http_upstream_round_robin.c); the
fewest outstanding by weight is that of HAProxy (src/lb_fwlc.c, read 2026-11-28); two random choices
after Mitzenmacher, "The power of two choices in randomized load balancing" (2001); session
affinity by rendezvous hashing after Thaler and Ravishankar, "Using name-based mappings to increase
hit rates" (1998); the balance test of prefix routing follows the cache_aware policy of vllm-router.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.spec.workload import Trace

LAST_PS = 1 << 62
"""Instants from here on do not come, in picoseconds."""

NO_INSTANCE = -1
"""What a router returns when no instance is available."""

_GOLDEN, _MIX_1, _MIX_2, _STEP = 0x9E3779B9, 0x5BD1E995, 0x45D9F3B5, 0x27D4EB2F
_MASK = 0xFFFFFFFF


class View(NamedTuple):
    """What a router sees of its instances; every field has one entry per instance."""

    available: Sequence[int]  # 1 where the instance takes new requests, else 0
    requests: Sequence[int]  # requests that were sent there and have not ended
    # tokens of those requests that are still to come: the prompt until the first token has come
    # back, and the output requested (``max_tokens``) less what has come back
    tokens: Sequence[int]
    kv_used: Sequence[float]  # share of the KV cache in use, from 0 to 1, as last scraped
    # prompt tokens of the request at hand whose prefix was sent there before, as far as the router
    # remembers
    matched: Sequence[int]
    weight: Sequence[float]  # relative capacity, above 0; 1 for all where the instances are alike


class Request(NamedTuple):
    """What a router sees of a request: its number in order of arrival, its session (-1 for none),
    and its prompt's tokens.
    """

    number: int
    session: int
    isl: int


class Memory(NamedTuple):
    """What a router keeps from one request to the next."""

    last: MutableSequence[int]  # the instance that was chosen last, in an array of one
    credit: MutableSequence[float]  # of each instance, for smooth weighted round robin
    seed: Sequence[int]  # of the random choices, in an array of one


def mixed(bits: int) -> int:
    """32 bits, thoroughly mixed, in the form of MurmurHash3's finalizer; its factors keep every
    product below 2**63.
    """
    bits &= _MASK
    bits = ((bits ^ (bits >> 16)) * _MIX_1) & _MASK
    bits = ((bits ^ (bits >> 13)) * _MIX_2) & _MASK
    return bits ^ (bits >> 16)


def session_number(name: bytes) -> int:
    """The 32 bits by which a session's name is known to routers."""
    return crc32(name)


def draw(seed: int, number: int, which: int) -> int:
    """The ``which``-th random number of 32 bits for a request; it depends on nothing else."""
    return mixed(mixed(mixed(seed + _GOLDEN) + (number & _MASK) * _STEP) + which)


def round_robin(view: View, request: Request, memory: Memory) -> int:
    """The next available instance after the last one."""
    count = len(view.available)
    for step in range(1, count + 1):
        i = (memory.last[0] + step) % count
        if view.available[i]:
            memory.last[0] = i
            return i
    return NO_INSTANCE


def weighted(view: View, request: Request, memory: Memory) -> int:
    """Smooth weighted round robin: each instance gains its weight, the richest serves and pays what
    all gained.
    """
    best, gained = NO_INSTANCE, 0.0
    for i in range(len(view.available)):
        if view.available[i]:
            memory.credit[i] += view.weight[i]
            gained += view.weight[i]
            if best < 0 or memory.credit[i] > memory.credit[best]:
                best = i
    if best >= 0:
        memory.credit[best] -= gained
    return best


def nth_available(view: View, number: int) -> int:
    """The ``number``-th available instance, counted from 0 and round and round; -1 where there is
    none.
    """
    count = 0
    for i in range(len(view.available)):
        if view.available[i]:
            count += 1
    if count == 0:
        return NO_INSTANCE
    remaining = number % count
    for i in range(len(view.available)):
        if view.available[i]:
            if remaining == 0:
                return i
            remaining -= 1
    return NO_INSTANCE


def random(view: View, request: Request, memory: Memory) -> int:
    """Choose among the available instances, each with the same chance."""
    return nth_available(view, draw(memory.seed[0], request.number, 0))


def power_of_two(view: View, request: Request, memory: Memory) -> int:
    """The one with fewer outstanding requests for its weight, of two that are drawn at random and
    differ.
    """
    first = nth_available(view, draw(memory.seed[0], request.number, 0))
    second = nth_available(view, draw(memory.seed[0], request.number, 1))
    if first < 0:
        return NO_INSTANCE
    if first == second:
        count = len(view.available)
        for step in range(1, count):
            second = (first + step) % count
            if view.available[second]:
                break
    if not view.available[second]:
        return first
    return (
        second
        if view.requests[second] * view.weight[first] < view.requests[first] * view.weight[second]
        else first
    )


def least(view: View, loads: Sequence[int], memory: Memory) -> int:
    """The available instance with the smallest load for its weight; equal ones take turns.

    A busy one counts one more than it has, as in HAProxy's ``leastconn``: a slow instance that has
    a request gets the next one later than its weight says.
    """
    best, smallest, i = NO_INSTANCE, 0.0, memory.last[0]
    for _ in range(len(loads)):
        i = i + 1 if i + 1 < len(loads) else 0
        load = (loads[i] + min(loads[i], 1)) / view.weight[i]
        if view.available[i] and (best < 0 or load < smallest):
            best, smallest = i, load
    if best >= 0:
        memory.last[0] = best
    return best


def least_outstanding(view: View, request: Request, memory: Memory) -> int:
    """The fewest outstanding requests for its weight."""
    return least(view, view.requests, memory)


def least_tokens(view: View, request: Request, memory: Memory) -> int:
    """The fewest tokens still to come for its weight."""
    return least(view, view.tokens, memory)


def least_kv(view: View, request: Request, memory: Memory) -> int:
    """The smallest share of its KV cache in use, among equals the fewest outstanding requests; then
    they take turns.
    """
    count, best = len(view.available), NO_INSTANCE
    for step in range(1, count + 1):
        i = (memory.last[0] + step) % count
        if not view.available[i]:
            continue
        if (
            best < 0
            or view.kv_used[i] < view.kv_used[best]
            or (view.kv_used[i] == view.kv_used[best] and view.requests[i] < view.requests[best])
        ):
            best = i
    if best >= 0:
        memory.last[0] = best
    return best


IMBALANCE_REQUESTS, IMBALANCE_RATIO = 32, 1.1
"""Prefixes count while the fullest instance has at most this many requests more than the emptiest,
or this many times as many."""

MATCH_SHARE = 0.5
"""Share of the prompt that must have been sent to an instance before for its prefix to decide."""


def prefix_aware(view: View, request: Request, memory: Memory) -> int:
    """Where most of the prompt was sent before, unless the load is out of balance or little of it
    matches; then the least loaded.
    """
    best, fewest, highest = NO_INSTANCE, -1, 0
    for i in range(len(view.available)):
        if not view.available[i]:
            continue
        fewest = view.requests[i] if fewest < 0 else min(fewest, view.requests[i])
        highest = max(highest, view.requests[i])
        more = best < 0 or view.matched[i] > view.matched[best]
        if more or (
            view.matched[i] == view.matched[best] and view.requests[i] < view.requests[best]
        ):
            best = i
    if best < 0:
        return NO_INSTANCE
    unbalanced = highest - fewest > IMBALANCE_REQUESTS and highest > fewest * IMBALANCE_RATIO
    if unbalanced or view.matched[best] < MATCH_SHARE * request.isl:
        return least_outstanding(view, request, memory)
    return best


def session(view: View, request: Request, memory: Memory) -> int:
    """The same instance for all requests of a session, by rendezvous hashing: when one goes, only
    its own sessions move.
    """
    if request.session < 0:
        return least_outstanding(view, request, memory)
    best, highest = NO_INSTANCE, -1
    for i in range(len(view.available)):
        if view.available[i]:
            score = draw(memory.seed[0], request.session, i)
            if score > highest:
                best, highest = i, score
    return best


ROUTERS = {
    "round-robin": round_robin,
    "weighted": weighted,
    "random": random,
    "least-outstanding": least_outstanding,
    "least-tokens": least_tokens,
    "least-kv": least_kv,
    "power-of-two": power_of_two,
    "prefix-aware": prefix_aware,
    "session": session,
}
"""By the name that ``--router`` takes, the gateway's configuration too."""

DEFAULT_ROUTER = "least-outstanding"

_HALF = 1 << 63


def folded(seed: int) -> int:
    """A seed of any size as one of 64 bits."""
    return (seed + _HALF) % (2 * _HALF) - _HALF


def memory_of(instances: int, seed: int = 0) -> Memory:
    """A router's memory before its first request, in plain lists."""
    return Memory(last=[instances - 1], credit=[0.0] * instances, seed=[folded(seed)])


def check_fleet(trace: Trace, engines: Sequence[object], router: str) -> None:
    """Refuse what no router could serve.

    Raises:
        InputError: a closed loop, no engine, an unknown router, or due times out of order or later
            than any simulated instant.
    """
    due = trace.due_ps
    if len(due) and int(due[-1]) >= LAST_PS:
        raise InputError(
            "a fleet: its requests come over 53 days at most; ask for fewer, or for a higher rate"
        )
    if (
        trace.concurrency
        or not engines
        or router not in ROUTERS
        or bool((due[1:] < due[:-1]).any())
    ):
        names = ", ".join(ROUTERS)
        raise InputError(
            "a fleet: needs an open loop with due times in order, one engine or more, and one of"
            f" these routers: {names}"
        )
