"""One pool of instances under the requests of several use cases at once: whether every limit of
each of them holds.

The arrivals of the use cases, each at its own peak and with its own lengths, are merged into one
stream, which the router gives to the instances of the pool. TTFT, TPOT and E2E are read per use
case, off its own requests. A run's record pools the gaps between tokens; but no more gaps of one
use case can be longer than some time than of all together. If a share s of all gaps is its own, its
p-th percentile is at most the (1 − (1 − p)/s)-th of all, to 1 %: that bound is what a limit on ITL
is held against.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tonnage.plan.limit import Breach, LimitUse, limit_of
from tonnage.plan.use_cases import CaseAtPeak
from tonnage.results.metrics import Latencies, Summary, gap_percentile_ns, summarize
from tonnage.sizing.loads.fleet_check import (
    LEAST_IN_ALL,
    LEAST_REQUESTS,
    LIFETIMES,
    MOST_INSTANCES,
    SEED_STEP,
)
from tonnage.sizing.loads.instance import LOADED, MEASURED, Instance, burst_factor
from tonnage.sizing.loads.shared_load import balanced_trace
from tonnage.sizing.loads.trial import STABLE
from tonnage.spec.workload import OpenLoop, Trace
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.sizing.search.deployment_capacity import Sized
    from tonnage.spec.deployment import Limit, Slo

FEWEST_OF_A_CASE = 1_000
"""Fewest requests of one use case in a run, so that a p99 is over ten requests at least."""

MOST_OF_A_RUN = 400_000
"""Most requests of a run of rare and frequent requests together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One use case, and what one instance of the deployment does with it alone.

    Attributes:
        name: of the use case.
        rate: requests per second at its peak.
        sized: the deployment at the systems that the use case needs by itself.
        priority: of its requests, where the pool is served by it; the lowest goes first.
    """

    name: str
    rate: float
    sized: Sized
    priority: int = 0

    @property
    def asked(self) -> Slo:
        """Its limits as asked."""
        return self.sized.contender.question.limits

    @property
    def instances_exact(self) -> float:
        """Instances that it takes alone."""
        return self.rate / self.sized.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One use case of a mixture, with times that are as long as they are to be.

    Attributes:
        instance: of the deployment under the traffic of the use case.
        slo: the limits that are held.
        saturation: requests per second that one instance completes when always busy.
    """

    instance: Instance
    slo: Slo
    saturation: float


def _part(case: Case, *, as_predicted: bool) -> Part:
    contender = case.sized.contender
    slowdown = contender.as_asked if as_predicted else case.sized.slowdown
    return Part(
        instance=contender.behind(steps=slowdown.steps),
        slo=slowdown.beyond_steps(contender.question.limits),
        saturation=contender.saturation(slowdown),
    )


class Mixture:
    """A deployment under several use cases, for any number of instances."""

    def __init__(
        self, cases: Sequence[Case], *, as_predicted: bool = False, by_priority: bool = False
    ) -> None:
        """``as_predicted`` leaves out the errors that the asked confidence allows for;
        ``by_priority`` serves the use cases by their priorities, not first come, first served.
        """
        self.cases = tuple(cases)
        self.as_predicted = as_predicted
        self.by_priority = by_priority
        self.parts = tuple(_part(case, as_predicted=as_predicted) for case in cases)

    @cached_property
    def instance(self) -> Instance:
        """The instance that serves all of them, with the slowest steps of any."""
        traffics = [part.instance.traffic for part in self.parts]
        whole = math.fsum(case.rate for case in self.cases)
        prompts = (
            math.fsum(
                case.rate * candidate.isl.mean
                for case, candidate in zip(self.cases, traffics, strict=True)
            )
            / whole
        )
        slowest = max(traffics, key=lambda candidate: candidate.step_factor)
        longest = max(traffics, key=lambda candidate: candidate.isl.longest + candidate.osl.longest)
        mean = replace(
            longest.isl, kind="fixed", mean=prompts, std=0.0, bins=(), plus=0.0, written=""
        )
        traffic = replace(longest, isl=mean, pairs=None, step_factor=slowest.step_factor)
        deployment = self.parts[0].instance.deployment
        if self.by_priority:
            knobs = replace(deployment.knobs, queue_order="priority")
            deployment = replace(deployment, knobs=knobs)
        return Instance(deployment, traffic)

    @property
    def instances_exact(self) -> float:
        """Instances by what one carries of each use case alone, as if their shares of its time
        added up.
        """
        return math.fsum(case.instances_exact for case in self.cases)

    def could_carry(self, instances: int) -> bool:
        """Whether so many complete the load within ``STABLE`` of saturation."""
        busy = math.fsum(
            case.rate / part.saturation for case, part in zip(self.cases, self.parts, strict=True)
        )
        return busy <= STABLE * instances * (1 + 1e-6)

    def run(self, instances: int) -> MixtureRun:
        """Simulate ``instances`` under the peaks of all use cases at once."""
        trace, owners = self._trace(instances)
        record = self.instance.together(
            trace, min(instances, MOST_INSTANCES), self.instance.traffic.router
        )
        return MixtureRun(
            mixture=self, record=record, owners=owners, stable=self.could_carry(instances)
        )

    def _trace(self, instances: int) -> tuple[Trace, NDArray[np.int64]]:
        """The merged arrivals of as many instances as are simulated, and whose each request is."""
        import numpy as np

        shown = min(instances, MOST_INSTANCES)
        share, whole = shown / instances, math.fsum(case.rate for case in self.cases)
        count = self._requests(instances, shown)
        traces = []
        for place, (case, part) in enumerate(zip(self.cases, self.parts, strict=True)):
            instance = part.instance
            arrivals = OpenLoop(
                rate=case.rate * share, process=instance.traffic.process, cv=instance.traffic.cv
            )
            of_case = max(1, round(count * case.rate / whole))
            traces.append(
                balanced_trace(
                    instance.workload(arrivals, of_case),
                    arrivals,
                    instance.traffic.seed + SEED_STEP + 1_000 * place,
                )
            )
        due = np.concatenate([trace.due_ps for trace in traces])
        order = np.argsort(due, kind="stable")
        step = np.arange(len(due)) * PS_PER_NS
        apart = (
            np.maximum.accumulate(due[order] // PS_PER_NS * PS_PER_NS - step) + step
        )  # one nanosecond at least: a record keeps the order
        isl, osl = (
            np.concatenate([getattr(trace, name) for trace in traces])[order]
            for name in ("isl", "osl")
        )
        owners = np.concatenate([np.full(len(trace), place) for place, trace in enumerate(traces)])[
            order
        ]
        priority = np.array([case.priority for case in self.cases], np.int64)[owners]
        merged = Trace(
            due_ps=apart,
            isl=isl,
            osl=osl,
            concurrency=0,
            turnaround_ps=0,
            seed=traces[0].seed,
            priority=priority if self.by_priority else None,
        )
        return merged, owners

    def _requests(self, instances: int, shown: int) -> int:
        """Requests of a run: as many as of a fleet of one use case, and enough of the rarest."""
        whole = math.fsum(case.rate for case in self.cases)
        alone = math.fsum(
            case.rate / whole * part.instance.alone_e2e_s
            for case, part in zip(self.cases, self.parts, strict=True)
        )
        in_flight = min(self.instance.in_flight, LOADED * whole / instances * alone)
        burst = max(
            burst_factor(part.instance.traffic.process, part.instance.traffic.cv)
            for part in self.parts
        )
        count = burst * shown * max(LEAST_REQUESTS, LIFETIMES * in_flight, LEAST_IN_ALL / shown)
        rarest = min(case.rate for case in self.cases) / whole
        return round(min(max(count, FEWEST_OF_A_CASE / rarest), max(count, MOST_OF_A_RUN)))


@dataclass(frozen=True, kw_only=True)
class MixtureRun:
    """A simulated pool: its record, and whose each request is.

    Attributes:
        mixture: of what.
        record: of all requests, in order of arrival.
        owners: the place of the use case of each.
        stable: whether the pool completes the load.
    """

    mixture: Mixture
    record: Requests
    owners: NDArray[np.int64]
    stable: bool

    def of(self, place: int) -> Requests:
        """The requests of one use case that arrived in the ``MEASURED`` part of the run; the gaps
        stay those of all.
        """
        import numpy as np

        count = len(self.record)
        rows = np.flatnonzero(self.owners == place)
        rows = rows[(rows >= int(MEASURED[0] * count)) & (rows < int(MEASURED[1] * count))]
        return self.record.some(rows)

    def summary(self, place: int) -> Summary:
        """The metrics of one use case; percentiles of its single gaps are upper bounds."""
        summary = summarize(self.of(place))
        return replace(summary, itl_ms=self._gaps(place, summary.itl_ms.mean))

    def _gaps(self, place: int, mean: float | None) -> Latencies:
        """Upper bounds of the percentiles of one use case's gaps, in milliseconds: its gaps are a
        known share of all.
        """
        import numpy as np

        case_gaps = int(np.maximum(self.record.osl[self.owners == place] - 1, 0).sum())
        counted = int(self.record.gaps.sum())
        if not case_gaps or not counted:
            return Latencies()
        bounds = {}
        for p in (50, 90, 95, 99):
            share = min(1.0, (1 - p / 100) * case_gaps / counted)
            bounds[f"p{p}"] = gap_percentile_ns(self.record.gaps, 100 * (1 - share)) / 1e6
        return Latencies(mean=mean, **bounds)

    @cached_property
    def uses(self) -> tuple[tuple[LimitUse, ...], ...]:
        """Every limit of every use case, with its value in the requested confidence."""
        return tuple(
            tuple(self._use(place, i) for i in range(len(case.asked)))
            for place, case in enumerate(self.mixture.cases)
        )

    def _use(self, place: int, which: int) -> LimitUse:
        limit: Limit = self.mixture.cases[place].asked[which]
        tighter = limit if self.mixture.as_predicted else self.mixture.parts[place].slo[which]
        value = self._summaries[place].limit_s(limit) * 1e3 * limit.seconds / tighter.seconds
        value_ms = None if math.isnan(value) else value
        return LimitUse(
            limit=limit_of(limit),
            value_ms=value_ms,
            used=None if value_ms is None else value_ms / 1e3 / limit.seconds,
        )

    @cached_property
    def _summaries(self) -> tuple[Summary, ...]:
        return tuple(self.summary(place) for place in range(len(self.mixture.cases)))

    @cached_property
    def worst(self) -> tuple[str, Breach] | None:
        """The use case and its limit that is exceeded by the largest factor; None where all
        hold.
        """
        over = [
            (use.used, case.name, use)
            for case, uses in zip(self.mixture.cases, self.uses, strict=True)
            for use in uses
            if use.used is not None and use.used > 1
        ]
        if not over:
            return None
        _, name, use = max(over, key=lambda excess: excess[0] or 0.0)
        return name, Breach(limit=use.limit, value_ms=use.value_ms)

    @property
    def holds(self) -> bool:
        """Whether every limit of every use case holds, and the pool completes the load."""
        return self.stable and self.worst is None

    def at_peak(self, predicted: MixtureRun) -> tuple[CaseAtPeak, ...]:
        """What each use case sees: its limits here, at the asked confidence, its latencies in the
        run by the prediction as it is.
        """
        return tuple(
            CaseAtPeak(
                name=case.name,
                requests_per_second=case.rate,
                limits=uses,
                ttft_ms=summary.ttft_ms,
                tpot_ms=summary.tpot_ms,
                e2e_ms=summary.e2e_ms,
                instances_exact=case.instances_exact,
            )
            for case, uses, summary in zip(
                self.mixture.cases, self.uses, predicted._summaries, strict=True
            )
        )
