"""A deployment in two pools as one more contender: instances that compute prompts and instances
that decode, in one set of systems.

Both pools fill their systems together. So many instances have a best split, the one that carries
most inside the limits: too few of them for prompts break the limit on the first token, too few for
decodes that on the time per token. It is found by runs of whole pools at the loads of the lattice,
from a closed form outwards, and a further split is tried only until one carries no more than its
neighbour. What the pools carry, over all of their instances, is then what any other deployment's
instance carries to the search.

Of more than ``STAND`` instances so many represent all, in the same shares.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tonnage.plan.reason import (
    AboveSaturation,
    BrokenAtAnyLoad,
    BrokenEarly,
    CannotRun,
    Reason,
    Rejected,
)
from tonnage.simulator.disaggregated import decode_worker, sent_bytes_s
from tonnage.simulator.request import (
    ALL_TOKENS,
    CONTEXT_TOKENS,
    DECODE_SEQUENCES,
    DURATION,
    STEP_COLUMNS,
)
from tonnage.sizing.loads.capacity import Capacity, broken_alone, find_capacity, no_capacity
from tonnage.sizing.loads.fleet_check import MOST_INSTANCES, FleetAtPeak, fleet_seen
from tonnage.sizing.loads.instance import QUICK, SURE, Care, Instance
from tonnage.sizing.loads.trial import MARGIN, Ready, token_limit
from tonnage.sizing.loads.two_pools import TwoPools
from tonnage.sizing.search.deployment_capacity import DOUBT, HAIR, USUAL, Contender, slower_capacity
from tonnage.spec.lengths import Lengths
from tonnage.units import to_ps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tonnage.plan.candidate import Role
    from tonnage.results.metrics import Summary
    from tonnage.sizing.loads.confidence import Slowdown
    from tonnage.sizing.loads.runs import Runs, Seen
    from tonnage.sizing.question import Pools, Question
    from tonnage.spec.deployment import Slo

STAND = 32
"""Most instances of both pools that are simulated together to know what each of a larger number
carries."""

FILLED = 0.85
"""Share of what closed forms allow a prefill instance that it usually carries inside a limit on
TTFT, where the search begins."""

PER_TOKEN = ("tpot", "itl")
"""Metrics whose limits break where the decode pool is too small."""

Split = tuple[int, int]
"""Instances that compute prompts, and instances that decode."""


def contenders_of(question: Question, ready: Sequence[Ready], runs: Runs) -> list[Contender]:
    """The deployments of a question under its load, in two pools where that is what it asks."""
    if question.pools is None:
        return [Contender(question=question, ready=candidate, runs=runs) for candidate in ready]
    return [PooledContender(question=question, ready=candidate, runs=runs) for candidate in ready]


def poolable(question: Question, prepared: Sequence[Ready | Rejected]) -> list[Ready | Rejected]:
    """What was prepared, without the deployments that cannot be two pools where the question asks
    for these.
    """
    if question.pools is None:
        return list(prepared)
    return [
        _poolable(candidate) if isinstance(candidate, Ready) else candidate
        for candidate in prepared
    ]


def _poolable(ready: Ready) -> Ready | Rejected:
    deployment = ready.trial.deployment
    if deployment.parallelism.pp > 1:
        return ready.trial.rejected(
            CannotRun(error="two pools are not simulated with pipeline stages")
        )
    if deployment.knobs.scheduler == "static":
        return ready.trial.rejected(CannotRun(error="two pools need in-flight batching"))
    return ready


@dataclass(frozen=True, kw_only=True)
class PooledContender(Contender):
    """A deployment whose instances compute prompts or decode.

    Attributes:
        split: instances of each pool, for the shares of the two; None to look for the best.
        whole: instances that this split was found for.
    """

    split: Split | None = None
    whole: int = 2

    @property
    def asked(self) -> Pools:
        """The pools as the question asks for them."""
        if self.question.pools is None:
            raise ValueError("the question does not ask for two pools")
        return self.question.pools

    def roles(self, instances: int) -> tuple[tuple[Role, int], ...]:
        """Both pools, with their instances of so many."""
        prefill = self._prefill(instances)
        return (("prefill", prefill), ("decode", instances - prefill))

    def settled_on(self, systems: int, slowdown: Slowdown) -> Contender:
        """Fix the split of the pools that carries most on so many systems."""
        if self.split is not None:
            return self
        instances = self.layout.of(systems).instances
        prefill, _ = self._best(self.instance, instances, slowdown.tightened(self.question.limits))
        return replace(self, split=(prefill, min(instances, STAND) - prefill), whole=instances)

    def pools(self, base: Instance, split: Split, whole: int) -> TwoPools:
        """The instances of each pool; they stand for ``whole`` instances, which may have one system
        or several.
        """
        deployment, pools = base.deployment, self.asked
        joined = whole * deployment.parallelism.gpus <= self.ready.trial.system.gpus
        bytes_s = (
            sent_bytes_s(deployment.gpu, together=joined)
            if pools.link_bytes_s is None
            else pools.link_bytes_s
        )

        def made() -> TwoPools:
            instance = self.runs.instance(decode_worker(deployment), base.traffic)
            return TwoPools(base, instance, *split, bytes_s=bytes_s, overlap=pools.overlap)

        return self.runs.once((base, "pools", split, bytes_s, pools.overlap), made)

    def standing(self, base: Instance, instances: int, most_pools: int = STAND) -> TwoPools:
        """The pools that stand for so many instances, at most ``most_pools`` of them, in the shares
        of ``split``.
        """
        together = min(instances, most_pools)
        prefill = self._prefill(together)
        return self.pools(base, (prefill, together - prefill), instances)

    def standing_for(self, instances: int) -> int:
        """The number of instances that are simulated to know what each of so many carries."""
        return min(instances, STAND)

    def alone(self) -> Summary:
        """A single client of one instance of each pool."""
        return self._pair.single_client()

    def bound(self, slowdown: Slowdown) -> float:
        """Requests per second over all instances that closed forms allow each of them, whatever the
        shares.
        """
        pair = self._pair
        pool_rates = pair.at_most(token_limit(pair, slowdown.tightened(self.question.limits)))
        return MARGIN / sum(1.0 / rate for rate in pool_rates) / slowdown.steps

    def capacity(
        self,
        instances: int,
        slowdown: Slowdown | None = None,
        *,
        above: float = 0.0,
        care: Care = SURE,
        router: str = "",
        near: float = 0.0,
    ) -> Capacity:
        """What so many instances in two pools carry, over their number; arguments as of
        ``Contender.capacity``.
        """
        slower = self.as_asked if slowdown is None else slowdown
        slo, base = slower.tightened(self.question.limits), self.behind(router)
        if instances < 2:
            return no_capacity(self.alone(), CannotRun(error="two pools take two instances"))
        together = min(instances, STAND)
        floor, near = (
            rate * slower.steps * together
            for rate in (above, near or self.share * self.bound(slower))
        )
        prefill, capacity = self._best(base, instances, slo, floor, near)
        if care == SURE and capacity.reason is None:
            pools = self.pools(base, (prefill, together - prefill), instances)
            capacity = broken_alone(pools.single_client(), slo) or find_capacity(
                self.runs, pools, slo, above=floor, care=care, near=capacity.rate
            )
        return self._as_asked(
            slower_capacity(_per_instance(capacity, together), slower.steps), slower, slo
        )

    def needed(
        self,
        slowdown: Slowdown | None = None,
        *,
        above: float = 0.0,
        care: Care = SURE,
        router: str = "",
    ) -> tuple[int, Capacity] | Reason:
        """The fewest systems whose instances carry the load in two pools; arguments and result as
        of ``Contender.needed``.

        All systems together carry more, the more there are; what each instance carries depends on
        how evenly they can be split.
        """
        slower, layout, span = (
            self.as_asked if slowdown is None else slowdown,
            self.layout,
            self.layout.systems_per_instance,
        )
        low, best, near = layout.holding(2).systems - span, None, above
        systems = max(
            low + span,
            layout.carrying(self.load, (self.share or USUAL) * self.bound(slower)).systems,
        )
        if above > 0.0:
            beyond = self._beyond(above, slower, router)
            if not isinstance(beyond, int):
                return beyond
            systems = beyond
        while best is None or best[0] - low > span:
            instances = layout.of(systems).instances
            capacity = self.capacity(instances, slower, care=QUICK, router=router, near=near)
            near = capacity.rate or near
            if care == SURE and capacity.rate * instances * (1 + DOUBT) >= self.load:
                capacity = self.capacity(instances, slower, router=router, near=near)
            if capacity.reason is not None and best is None:
                return capacity.reason
            needed = (
                systems + span
                if capacity.reason is not None
                else layout.carrying(self.load, capacity.rate).systems
            )
            if needed <= systems:
                best = systems, capacity
                systems = max(low + span, min(needed, systems - span))
            else:
                low = systems
                systems = max(
                    systems + span, needed if best is None else min(needed, best[0] - span)
                )
        return best

    def _beyond(self, above: float, slower: Slowdown, router: str) -> int | Reason:
        """The systems on which instances carry more than that each, or one group fewer that carries
        the load; or why none do.
        """
        highest, span = (
            self.layout.carrying(self.load, above).systems,
            self.layout.systems_per_instance,
        )
        for systems in (highest, highest - span):
            instances = self.layout.of(systems).instances
            floor = above if systems == highest else self.load / max(instances, 1) * HAIR
            capacity = self.capacity(instances, slower, above=floor, care=QUICK, router=router)
            if capacity.reason is None:
                return systems
            if systems == highest:
                reason = capacity.reason
        return reason

    def saturation(self, slowdown: Slowdown | None = None) -> float:
        """Requests per second that they complete when always busy, over their number."""
        split = self.split or (1, 1)
        whole = self.runs.saturation(self.pools(self.instance, split, self.whole))
        return whole / sum(split) / (self.as_asked if slowdown is None else slowdown).steps

    def simulated(self, instances: int, rate: float) -> tuple[Instance, int, float]:
        """The pools that stand for so many instances, which are one; arguments as of
        ``Contender.simulated``.
        """
        pools = self.standing(self.running, instances)
        return pools, 1, rate * (pools.prefill + pools.decode)

    def recorded(
        self, capacity: Capacity, most_requests: int
    ) -> tuple[Instance, float, NDArray[np.int64]]:
        """An instance of the pool that ends the load, what comes to it, and its steps; arguments as
        of ``Contender.recorded``.

        A decode instance has one mean step, by Little's law: as many requests as come to it in the
        time that one of them decodes.
        """
        instance, (prefill, decode), whole = (
            self.running,
            self.split or (1, 1),
            sum(self.split or (1, 1)) * capacity.rate,
        )
        prompts, decodes = self._pair.at_most(
            token_limit(self._pair, self.as_asked.tightened(self.question.limits))
        )
        if _sides(capacity, prefill * prompts < decode * decodes)[0] > 0:
            computing = self.runs.instance(
                instance.deployment, replace(instance.traffic, osl=Lengths(mean=1), pairs=None)
            )
            rate = whole / prefill
            return (
                computing,
                rate,
                computing.recorded(rate, computing.requests_of(rate, QUICK), most_requests).steps,
            )
        decoder, rate, isl, osl = (
            self.runs.instance(decode_worker(instance.deployment), instance.traffic),
            whole / decode,
            instance.traffic.isl,
            instance.traffic.osl,
        )
        decoding_s = (capacity.summary.tpot_ms.mean or 0.0) / 1e3 * (osl.mean - 1)
        batch = max(1, round(rate * decoding_s / decoder.deployment.parallelism.dp))
        step = np.zeros((1, STEP_COLUMNS), np.int64)
        step[0, DECODE_SEQUENCES], step[0, CONTEXT_TOKENS] = (
            batch,
            round(batch * (isl.mean + osl.mean / 2)),
        )
        step[0, ALL_TOKENS] = batch * decoder.deployment.parallelism.dp
        step[0, DURATION] = to_ps(
            decoder.step.seconds(0, 0, batch, 0, int(step[0, CONTEXT_TOKENS]))
        )
        return decoder, rate, step

    def at_peak(self, slowdown: Slowdown | None = None) -> FleetAtPeak:
        """Simulate both pools at the load that is sized for."""
        peak = super().at_peak(slowdown)
        return PooledAtPeak(
            **{part.name: getattr(peak, part.name) for part in fields(peak)}, contender=self
        )

    @cached_property
    def _pair(self) -> TwoPools:
        """One instance of each pool."""
        return self.pools(self.instance, (1, 1), 2)

    def _prefill(self, instances: int) -> int:
        """The number of instances that compute prompts, in the shares of ``split``."""
        prefill, decode = self.split or (1, 1)
        return min(max(round(instances * prefill / (prefill + decode)), 1), instances - 1)

    def _best(
        self, base: Instance, instances: int, slo: Slo, above: float = 0.0, near: float = 0.0
    ) -> tuple[int, Capacity]:
        """The prefill instances with which so many carry most in short runs: from closed forms on,
        first towards the limiting pool.
        """
        together = min(instances, STAND)

        def carried(prefill: int, floor: float) -> Capacity:
            pools = self.pools(base, (prefill, together - prefill), instances)
            return broken_alone(pools.single_client(), slo) or find_capacity(
                self.runs, pools, slo, above=floor, care=QUICK, near=near
            )

        if self.split is not None:
            best = self._prefill(together)
            return best, carried(best, above)
        pool_rates = self._pair.at_most(token_limit(self._pair, slo))
        best = min(
            max(round(together * pool_rates[1] / (FILLED * pool_rates[0] + pool_rates[1])), 1),
            together - 1,
        )
        best_capacity = carried(best, above)
        for side in _sides(best_capacity, best * pool_rates[0] < (together - best) * pool_rates[1]):
            prefill, improved = best + side, False
            while 0 < prefill < together:
                capacity = carried(prefill, max(above, best_capacity.rate))
                if capacity.reason is None:
                    best, best_capacity, improved = prefill, capacity, True
                elif best_capacity.reason is None or _sides(capacity, side > 0)[0] != side:
                    break
                prefill += side
            if improved:
                break
        return best, best_capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledAtPeak(FleetAtPeak):
    """Both pools at a peak, in the shares of their contender."""

    contender: PooledContender

    def could_carry(self, systems: int) -> bool:
        """Whether there is an instance for each pool, and so many systems complete the load within
        ``STABLE`` of saturation.
        """
        return self.instances(systems) > 1 and FleetAtPeak.could_carry(self, systems)

    def simulated(self, systems: int) -> int:
        """The number of instances that are simulated."""
        return min(
            self.instances(systems),
            max(MOST_INSTANCES // self.instance.deployment.parallelism.dp, 2),
        )

    def seen(self, systems: int, router: str = "", seed: int = 0) -> Seen:
        """Simulate a number of systems; arguments as of ``FleetAtPeak.seen``."""
        count, together = self.instances(systems), self.simulated(systems)
        pools = self.contender.standing(self.instance, count, together)
        return fleet_seen(self.runs, pools, self.rate * together / count, 1, router, seed=seed)


def _sides(capacity: Capacity, prompts: bool) -> tuple[int, int]:
    """Whether more prefill instances or fewer would carry more, by the limit that ends the load; by
    ``prompts`` where it is neither's.
    """
    reason = capacity.reason
    if isinstance(reason, BrokenEarly | BrokenAtAnyLoad):
        metric: str = reason.breach.limit.metric
    else:
        metric = (
            ""
            if capacity.binds is None or capacity.binds.limit is None
            else capacity.binds.limit.metric
        )
    more = metric == "ttft" or (metric not in PER_TOKEN and prompts)
    return (1, -1) if more else (-1, 1)


def _per_instance(capacity: Capacity, instances: int) -> Capacity:
    """The load of all instances, over their number."""
    reason = capacity.reason
    if isinstance(reason, BrokenEarly):
        reason = replace(reason, requests_per_second=reason.requests_per_second / instances)
    elif isinstance(reason, AboveSaturation):
        reason = replace(
            reason,
            requests_per_second=reason.requests_per_second / instances,
            most=reason.most / instances,
        )
    return replace(
        capacity,
        rate=capacity.rate / instances,
        concurrency=capacity.concurrency / instances,
        reason=reason,
    )
