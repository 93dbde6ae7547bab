"""What a search has simulated: every run is made once, and every question about it is answered from
the same record.

A run depends on the deployment, the traffic, the number of instances, the load, its length and the
seed; never on a limit, a confidence or a number of systems. So every question about one deployment,
from a looser limit to a second router, is read from runs that are shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import RLock
from typing import TypeVar, cast

from tonnage.results.metrics import Summary, summarize
from tonnage.results.requests import Requests
from tonnage.sizing.loads.instance import (
    ALONE_REQUESTS,
    LIVES,
    QUICK,
    SHORT,
    SURE,
    Instance,
    Length,
    Traffic,
    middle,
)
from tonnage.spec.deployment import Deployment, Slo

T = TypeVar("T")

SATURATED_BATCHES = 10
"""Length, in batches, of the run that measures saturation: in a shorter one, the first batch, which
finishes together, distorts it."""

SATURATED_LEAST, SATURATED_MOST = 4_000, 48_000
"""Fewest and most requests of that run; large batches settle sooner."""

OVERLOAD = 1.3
"""Load over the closed-form estimate under which saturation is measured."""

COMES = 0.8
"""Share of the requests of a run that come while new conversations do; where fewer come, they wait
for answers."""

LONGER = 4
"""How many times as long the run of attention ranks that compares deployments is made where it
turns out too short for the requests that decode at once: ranks wait for the slowest, so that
batches fill further, and more slowly, than closed forms say."""

SLOWER: dict[Length, float] = {SHORT: 1.3, QUICK: 1.5, SURE: 1.3}
"""How many times as long first tokens may take in the last third of a run of conversations as in
the second: a cache that is too small loses more with every answer that takes longer, slowly at
first. Of loads that a long run carries, the runs that compare deployments show up to 1.33 by
chance."""

CLOSED_ROUNDS = 10
"""Requests per client of a closed-loop run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run showed.

    Attributes:
        summary: the metrics of its middle part.
        requests: how many were simulated.
        growth: by how much longer first tokens of conversations took towards its end, over
            ``SLOWER``; above 1 the run was not steady; infinite where conversations came too late.
    """

    summary: Summary
    requests: int
    growth: float = 0.0


class Runs:
    """The runs of a search, each made once."""

    def __init__(self, slo: Slo = ()) -> None:
        """Start without any simulation; ``slo`` as in ``keep_requests``."""
        self._by_request = False
        self._instances: dict[tuple[Deployment, Traffic], Instance] = {}
        self._kept: dict[Hashable, object] = {}
        self._making: dict[Hashable, RLock] = {}
        self.keep_requests(slo)

    def keep_requests(self, slo: Slo) -> None:
        """Keep the latencies of single requests where a limit is on joint attainment; runs without
        them are made again.
        """
        if not self._by_request and any(limit.share is not None for limit in slo):
            self._by_request = True
            self._kept.clear()

    @property
    def kept(self) -> int:
        """How many answers of runs are kept: a local page empties the memory when there are too
        many.
        """
        return len(self._kept)

    def instance(self, deployment: Deployment, traffic: Traffic) -> Instance:
        """The deployment under a kind of traffic. Raises DoesNotFit: the weights or one request
        exceed the memory.
        """
        key = (deployment, traffic)
        if key not in self._instances:
            self._instances[key] = Instance(deployment, traffic)
        return self._instances[key]

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made for that key, made now if it was not; of threads that ask at once the first
        makes it and the others wait.
        """
        if key not in self._kept:
            with self._making.setdefault(key, RLock()):
                try:
                    if key not in self._kept:
                        self._kept[key] = make()
                finally:
                    self._making.pop(key, None)
        return cast("T", self._kept[key])

    def summary(self, record: Requests) -> Summary:
        """The metrics of a run."""
        return summarize(record, by_request=self._by_request)

    def open(
        self, instance: Instance, instances: int, rate: float, length: Length, seed: int = 0
    ) -> Seen:
        """Simulate ``instances``, each at ``rate`` requests per second, in a run of one of the
        ``LIVES`` (``length`` is its place).
        """
        rate = instance.held_rate(rate)

        def seen(requests: int) -> Seen:
            def made() -> Seen:
                record = instance.open(rate, requests, instance.traffic.seed + seed, instances)
                growth = _growth(instance, record, requests) / SLOWER[length]
                return Seen(
                    summary=self.summary(middle(record)), requests=len(record), growth=growth
                )

            return self.once((instance, instances, rate, requests, seed), made)

        requests = instance.requests_of(rate, length, instances)
        observed = seen(requests)
        ranks = instance.deployment.parallelism.dp > 1 and instance.traffic.sharing is None
        if (
            ranks
            and length == QUICK
            and _decoding(observed.summary, rate * instances) > requests / LIVES[length]
        ):
            return seen(LONGER * requests)
        return observed

    def clients(self, instance: Instance, clients: int) -> Summary:
        """The metrics of a closed loop of so many clients."""
        requests = max(ALONE_REQUESTS, CLOSED_ROUNDS * clients)
        return self.once(
            (instance, "clients", clients), lambda: self.summary(instance.closed(clients, requests))
        )

    def knows_saturation(self, instance: Instance) -> bool:
        """Whether it was measured already."""
        return (instance, "saturation") in self._kept

    def saturation(self, instance: Instance) -> float:
        """Requests per second that an instance completes when always busy, from a run under
        ``OVERLOAD``.

        An instance that is always busy lets conversations wait, and so loses their blocks before
        the next turn comes: what it completes is less than what it carries. There the closed form
        of a cache that finds all stands for it, and runs say what is steady.
        """
        if instance.follows:
            return instance.steady_estimate()
        requests = min(max(SATURATED_LEAST, SATURATED_BATCHES * instance.in_flight), SATURATED_MOST)
        rate = OVERLOAD * instance.saturation_estimate()
        return self.once(
            (instance, "saturation"),
            lambda: saturation_rate(instance.open(rate, requests, instance.traffic.seed)),
        )


def _decoding(summary: Summary, rate: float) -> float:
    """Requests that decoded at once in a run, on average, by Little's law; 0 where none has
    ended.
    """
    decode_ms = summary.statistic_ms("e2e", "mean") - summary.statistic_ms("ttft", "mean")
    return 0.0 if math.isnan(decode_ms) else rate * decode_ms / 1e3


def _growth(instance: Instance, record: Requests, requests: int) -> float:
    """How much longer first tokens of conversations took in the last third of a run than in the
    second; infinite if these came too late.
    """
    if not instance.follows or instance.recorded_sessions is not None:
        return 0.0
    third = len(record) // 3
    if not third or len(record) < COMES * requests:
        return math.inf
    waits = record.first_token_ns - record.due_ns
    return float(waits[2 * third :].mean() / waits[third : 2 * third].mean())


def saturation_rate(requests: Requests) -> float:
    """Completions per second between 30 % and 90 % of all completions, of a run that always had a
    queue.

    0 where hardly any completes.
    """
    import numpy as np

    ends = np.sort(requests.last_token_ns[requests.last_token_ns >= 0])
    if len(ends) < 10:
        return 0.0
    first, last = int(0.3 * len(ends)), int(0.9 * len(ends)) - 1
    return float((last - first) / ((ends[last] - ends[first]) / 1e9))
