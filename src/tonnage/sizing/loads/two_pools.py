"""Prefill and decode instances under load, driven as one: the requests of all of them together, and
the simulated record of it.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from tonnage.perf.step import StepModel, batch_seconds, context_seconds
from tonnage.perf.step_terms import ATTENTION
from tonnage.results.requests import Requests
from tonnage.simulator.disaggregated import link_between, pool_engines
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel.pools import run_pools
from tonnage.simulator.pools import KvLink, check_pools, simulate_pools
from tonnage.sizing.loads.instance import ALONE_EQUAL, ALONE_REQUESTS, LOADED, Instance
from tonnage.spec.workload import OpenLoop, Trace
from tonnage.units import to_ps

APART = 8
"""How far requests of a single client are apart, in times what one takes by closed form: none meets
another."""


class TwoPools(Instance):
    """A number of instances that compute prompts, and a number of instances that decode; a rate is
    that of all of them together.

    ``in_flight`` is what the decode instances hold at once.
    """

    USUAL = 0.75

    def __init__(
        self,
        prefill_instance: Instance,
        decode_instance: Instance,
        prefill: int,
        decode: int,
        *,
        bytes_s: float,
        overlap: bool = False,
    ) -> None:
        """Put two pools of one model and traffic together; a GPU sends ``bytes_s`` to the other
        pool, layer by layer with ``overlap``.
        """
        self.one, self.other, self.prefill, self.decode = (
            prefill_instance,
            decode_instance,
            prefill,
            decode,
        )
        self.deployment, self.traffic, self.memory, self.knobs = (
            prefill_instance.deployment,
            prefill_instance.traffic,
            prefill_instance.memory,
            prefill_instance.knobs,
        )
        self.spec, self.computed, self.batch, self.shared = (
            prefill_instance.spec,
            prefill_instance.computed,
            decode_instance.batch,
            None,
        )
        self.link = link_between(
            prefill_instance.memory, decode_instance.memory, bytes_s=bytes_s, overlap=overlap
        )
        self.in_flight = decode * decode_instance.in_flight
        self.alone_e2e_s = (
            self.unloaded_ttft_s()
            + prefill_instance.traffic.osl.mean * decode_instance.unloaded_tpot_s()
        )

    def unloaded_ttft_s(self) -> float:
        """Closed form: a prompt of mean length alone, its transfer, and the first step of its
        decode instance, in seconds.
        """
        sent = self.link.bytes_of(round(self.traffic.isl.mean)) / self.link.bytes_s
        return self.one.unloaded_ttft_s() + float(sent) + self.other.unloaded_tpot_s()

    def saturation_estimate(self, *, prefix_found: bool = True) -> float:
        """Closed form: requests per second that the busier pool completes; prompts share nothing,
        whatever is ``prefix_found``.
        """
        decoded = decodes_at_most(self.other, math.inf, self.other.batch)
        return min(self.prefill * prefills_at_most(self.one, self.link), self.decode * decoded)

    def at_most(self, token_s: float) -> tuple[float, float]:
        """Closed form: requests per second that an instance of each pool cannot exceed where a
        token takes so many seconds at most.
        """
        step_s = step_of(token_s, self.traffic.osl.mean)
        return prefills_at_most(self.one, self.link), decodes_at_most(
            self.other, step_s, room_for(self.other)
        )

    def most(self, token_s: float) -> float:
        """The same of all of them."""
        prompts, decodes = self.at_most(token_s)
        return min(self.prefill * prompts, self.decode * decodes)

    def alone(self) -> Requests:
        """The requests of a single client, as many as of an instance, sent so far apart that none
        meets another.
        """
        count = ALONE_EQUAL if self.one.equal else ALONE_REQUESTS
        trace = self.workload(OpenLoop(rate=1.0), count).trace(self.traffic.seed)
        due = np.arange(count) * to_ps(
            APART * self.alone_e2e_s * float(max(trace.osl.max() / self.traffic.osl.mean, 1.0))
        )
        return self._run(
            Trace(due_ps=due, isl=trace.isl, osl=trace.osl, concurrency=0, turnaround_ps=0),
            (1, 1),
            self.traffic.router,
        )

    def together(self, trace: Trace, instances: int, router: str) -> Requests:
        """A run of given requests behind a router of each pool; ``instances`` is 1, as they are
        one.
        """
        return self._run(trace, (self.prefill, self.decode), router)

    def _run(self, trace: Trace, instances: tuple[int, int], router: str) -> Requests:
        """A run of given requests on so many instances of each pool."""
        check_pools(range(instances[0]), range(instances[1]), self.link, router)
        sides = (self.one, self.other)
        counts = [
            count * side.deployment.parallelism.dp
            for count, side in zip(instances, sides, strict=True)
        ]
        machines = [self.one.engine] * counts[0], [self._decoding[0].machine] * counts[1]
        requests = run_pools(trace, *machines, self.link, router, seed=self.traffic.seed)
        if requests is not None:
            return requests
        prefill, decode = (
            pool_engines(side.spec, count, inside=side is self.other)
            for side, count in zip(sides, counts, strict=True)
        )
        return simulate_pools(trace, prefill, decode, self.link, router, seed=self.traffic.seed)

    @cached_property
    def _decoding(self) -> list[Engine]:
        """An engine of the decode pool, at time 0."""
        return pool_engines(self.other.spec, 1, inside=True)

    def in_flight_at(self, rate: float) -> float:
        """Closed form: requests that both pools hold at ``rate`` requests per second, rather more
        than less.
        """
        decoding = self.decode * self.other.in_flight_at(rate / self.decode)
        return min(self.in_flight, max(LOADED * rate * self.alone_e2e_s, decoding))

    def serve(self, trace: Trace, step: StepModel | None = None) -> Requests:
        """Simulate given requests behind the router of the traffic."""
        return self.together(trace, 1, self.traffic.router)

    def standing_for(self, instances: int) -> int:
        """They stand for themselves."""
        return 1


def prefills_at_most(prefill: Instance, link: KvLink) -> float:
    """Closed form: prompts per second of an instance with every step as full as the budget allows,
    or as many as its links send.
    """
    c, isl, budget = (
        prefill.step.coefficients,
        prefill.traffic.isl.mean,
        prefill.knobs.max_num_tokens,
    )
    token = min(
        batch_seconds(c, tokens, 1) / tokens
        for tokens in {budget, max(1, budget // 2), max(1, budget // 4)}
    )
    sent = float(link.bytes_of(round(isl))) / link.bytes_s
    return prefill.deployment.parallelism.dp / max(
        isl * token + 0.5 * isl * isl * float(c[ATTENTION]), sent
    )


def step_of(token_s: float, osl: float) -> float:
    """Seconds of a decode step where a token takes so long on average: the first one comes together
    with the second.
    """
    return token_s * (osl - 1) / (osl - 2) if osl > 2 else math.inf


def decodes_at_most(decode: Instance, token_s: float, requests: int) -> float:
    """Closed form: requests per second of a decode instance whose ranks hold so many requests,
    where a token takes so long at most.
    """
    osl, low, high = decode.traffic.osl.mean, 1, requests + 1
    while high - low > 1:
        half = (low + high) // 2
        low, high = (half, high) if _decode_s(decode, half) <= token_s else (low, half)
    return (
        decode.deployment.parallelism.dp
        * low
        / (max(osl - 1, 1e-9) * min(_decode_s(decode, low), token_s))
    )


def room_for(decode: Instance) -> int:
    """Requests that a rank of a decode instance holds at most: halfway through their outputs on
    average.
    """
    traffic, memory = decode.traffic, decode.memory
    middle = math.ceil(traffic.isl.mean + traffic.osl.mean / 2)
    return max(1, min(memory.blocks // memory.request_blocks(middle), decode.knobs.max_batch_size))


def _decode_s(decode: Instance, batch: int) -> float:
    """Seconds of a step in which so many requests decode, halfway through their outputs."""
    c, traffic = decode.step.coefficients, decode.traffic
    return batch_seconds(c, batch, batch) + context_seconds(c, batch) * batch * (
        traffic.isl.mean + traffic.osl.mean / 2
    )
