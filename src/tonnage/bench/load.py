"""What is sent and when: a closed loop of clients, or requests on a schedule of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tonnage.errors import InputError, option
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Pairs, TraceArrivals, Workload
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Pattern = Literal["poisson", "constant", "gamma", "burst"]
PATTERNS: tuple[Pattern, ...] = ("poisson", "constant", "gamma", "burst")

MOST = 1_000_000
"""Requests drawn for a closed loop that runs for a time; one that gets through them ends early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load, with every request drawn.

    Attributes:
        isl, osl: int64, tokens by request.
        due_ns: int64, when each request is due after the start; None in a closed loop.
        concurrency: clients of a closed loop; 0 for an open one.
        rate: requests per second of an open loop; 0 for a closed one.
        pattern: of the arrivals, in a word; "closed" for a closed loop.
        seconds: after so long nothing more is sent; infinite where a count ends the run.
        ramp_s: a closed loop's clients begin one after another over so long.
        grace_s: what is in flight when ``seconds`` are over is waited for so long.
    """

    isl: NDArray[np.int64]
    osl: NDArray[np.int64]
    due_ns: NDArray[np.int64] | None = None
    concurrency: int = 0
    rate: float = 0.0
    pattern: str = "closed"
    seconds: float = float("inf")
    ramp_s: float = 0.0
    grace_s: float = float("inf")

    def __len__(self) -> int:
        """Requests at most."""
        return len(self.isl)

    def warm_up(self, requests: int) -> Load:
        """The first requests again, by as many clients as the load has, or as an open loop at the same rate."""
        places = [k % len(self) for k in range(requests)] if len(self) else []
        due = None if self.due_ns is None else self.due_ns[: len(places)]
        if due is not None and len(due) < len(places):
            places = places[: len(due)]
        return replace(self, isl=self.isl[places], osl=self.osl[places], due_ns=due, seconds=float("inf"), ramp_s=0.0)

    def of_worker(self, worker: int, workers: int) -> Load:
        """What one of several client processes sends: every n-th request, and its share of the clients or of the rate."""
        mine = slice(worker, None, workers)
        due = None if self.due_ns is None else self.due_ns[mine]
        clients = self.concurrency // workers + (worker < self.concurrency % workers)
        return replace(self, isl=self.isl[mine], osl=self.osl[mine], due_ns=due, concurrency=clients, rate=self.rate / workers)

    @property
    def words(self) -> str:
        """Such as "64 clients" or "100 requests/s, poisson"."""
        if self.due_ns is None:
            return f"{self.concurrency} client{'s'[: self.concurrency != 1]}"
        return f"{self.rate:g} requests/s, {self.pattern}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A load as it was asked for, before anything is drawn.

    Attributes:
        isl, osl: lengths in tokens, or
        pairs: lengths that belong together, or
        listed: lengths of prompts and outputs one after another, from the beginning again where there are more requests.
        arrivals: a closed loop, an open one, or recorded traffic.
        burst: requests that come at the same moment, where an open loop comes in bursts; 0 otherwise.
        requests: how many; None where ``seconds`` ends the run.
        seconds: after so long nothing more is sent; None where a count ends the run.
        ramp_s: a closed loop's clients begin one after another over so long.
        grace_s: what is in flight when ``seconds`` are over is waited for so long.
        seed: of every draw.
    """

    isl: Lengths
    osl: Lengths
    pairs: Pairs | None = None
    listed: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    arrivals: ClosedLoop | OpenLoop | TraceArrivals
    burst: int = 0
    requests: int | None
    seconds: float | None = None
    ramp_s: float = 0.0
    grace_s: float = float("inf")
    seed: int = 0

    def at(self, value: float) -> Question:
        """The same question at another concurrency or rate.

        Raises:
            InputError: recorded traffic, which has the rate that it has.
        """
        if isinstance(self.arrivals, ClosedLoop):
            return replace(self, arrivals=replace(self.arrivals, concurrency=int(value)))
        if isinstance(self.arrivals, OpenLoop):
            return replace(self, arrivals=replace(self.arrivals, rate=float(value)))
        raise InputError(f"{option('trace')}: recorded traffic has one rate; leave out the sweep")

    def draw(self) -> Load:
        """Every request of it; the same seed draws the same.

        Raises:
            InputError: neither a count nor a time ends the run.
        """
        import numpy as np

        if self.requests is None and self.seconds is None:
            raise InputError(f"{option('request_count')}: missing; give how many requests, or a {option('benchmark_duration')} such as 60s")
        count = self.requests if self.requests is not None else self._enough()
        workload = Workload(isl=self.isl, osl=self.osl, pairs=self.pairs, arrivals=self.arrivals, requests=count)
        trace = workload.trace(self.seed)
        if self.listed is not None:
            isl, osl = (np.resize(np.array(column, dtype=np.int64), len(trace)) for column in self.listed)
            trace = replace(trace, isl=isl, osl=osl)
        seconds = float("inf") if self.seconds is None else self.seconds
        if isinstance(self.arrivals, ClosedLoop):
            clients = self.arrivals.concurrency
            return Load(isl=trace.isl, osl=trace.osl, concurrency=clients, seconds=seconds, ramp_s=self.ramp_s, grace_s=self.grace_s)
        due = trace.due_ps // PS_PER_NS
        if self.burst > 1:
            due = _in_bursts(len(due), self.burst, self.arrivals.rate)
        kept = due <= seconds * 1e9
        pattern = "burst" if self.burst > 1 else self.arrivals.process
        return Load(
            isl=trace.isl[kept],
            osl=trace.osl[kept],
            due_ns=due[kept],
            rate=self.arrivals.rate,
            pattern=pattern,
            seconds=seconds,
            grace_s=self.grace_s,
        )

    def _enough(self) -> int:
        """More requests than can come in the time."""
        seconds = self.seconds or 0.0
        if isinstance(self.arrivals, ClosedLoop):
            return MOST
        mean = self.arrivals.rate * seconds
        spread = self.arrivals.cv if isinstance(self.arrivals, OpenLoop) else 1.0
        return min(MOST, int(mean + 8 * max(spread, 1.0) * mean**0.5 + 64))


def _in_bursts(count: int, size: int, rate: float) -> NDArray[np.int64]:
    """``size`` requests at once, at a mean of ``rate`` requests per second."""
    import numpy as np

    due: NDArray[np.int64] = (np.arange(count) // size * round(size / rate * 1e9)).astype(np.int64)
    return due
