"""The highest load that one instance carries inside its latency limits.

The load is found by closing a bracket with simulated runs that share their random numbers: the same gaps
stretched, the same lengths. Closed forms decide where to look and what cannot work at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from tonnage.errors import DoesNotFit
from tonnage.perf.pipeline import estimated_instance
from tonnage.perf.run_noise import statistic_noise
from tonnage.perf.step import StepModel, batch_seconds, context_seconds
from tonnage.perf.step_terms import ATTENTION, EAGER, HOST_PREFILL
from tonnage.perf.terms import client_turnaround_s
from tonnage.plan.limit import SATURATION, Bound, Breach, bound_by, limit_of
from tonnage.plan.reason import AboveSaturation, BrokenAtAnyLoad, BrokenEarly, BrokenInVerification, Reason
from tonnage.results.metrics import Summary, summarize
from tonnage.simulator.kernel import run, run_recorded
from tonnage.simulator.ranks import pooled, rank_traces
from tonnage.sizing.slower import slower
from tonnage.spec.deployment import Deployment, Limit, Slo
from tonnage.spec.lengths import Lengths, Pairs
from tonnage.spec.workload import Arrivals, ClosedLoop, OpenLoop, Process, Trace, Workload

if TYPE_CHECKING:
    from tonnage.results.requests import Requests
    from tonnage.simulator.steps import StepRecord

MINIMUM_REQUESTS = 4_000
"""Enough for 26 measured requests beyond a p99 in a run of this length, and 52 in the verifying one."""

BATCHES_PER_RUN = 8
"""A run lasts this many times the requests that the engine holds at once."""

LOADED = 3
"""Latency under load over that of an empty engine, for the number of requests in flight that a run's length is made for."""

SATURATED_BATCHES = 10
"""Batches of the run that measures saturation: with fewer, the first cohort's finishing together shows as throughput."""

SATURATED_MOST = 12_000
"""Requests of that run at most: large batches settle sooner."""

RATE_STEPS = 10
"""Runs at most that close the rate's bracket."""

RATE_WIDTH = 0.015
"""Width of the bracket, relative to the rate, at which it is closed."""

WIDE = 0.3
"""Width of the bracket, relative to the rate, above which a glance may do."""

STABLE = 0.98
"""Share of the saturation rate up to which a queue is taken to settle."""

VERIFICATIONS = 12
"""Runs that the chosen rate is given to pass, each at a lower rate than the one before."""

OVERLOAD = 1.3
"""Load over the closed-form estimate under which saturation is measured."""

ALONE_REQUESTS = 100
"""Requests of the run of a single client: what no load can beat."""

ALONE_EQUAL = 8
"""The same where all requests are equal."""

GLANCE = 3
"""A rate of the bracket is first tried with this fraction of a short run's requests."""

CLEAR = 1.3
"""Strain above which, and below whose inverse, that first glance decides."""

VERIFIED = 3
"""Short runs that the verifying run is as long as: 20 measured requests beyond a p99."""

CONFIRMED = 8
"""The same of the run that confirms the best few: 52 measured requests beyond a p99."""

CLOSED_ROUNDS = 10
"""Requests per client of a closed-loop run."""

STEP_DOWN, STEP_GROWTH, MOST_DOWN = 0.02, 1.5, 0.3
"""When the longer, independent run breaks a limit, the rate is lowered by this share, then by 1.5 times as much, up to 30 %."""

MEASURED = (0.2, 0.85)
"""Share of a run's requests, in order of arrival, that the statistics are over: neither ramp nor drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one instance is asked to carry.

    Attributes:
        isl, osl: lengths in tokens.
        slo: limits; all must hold.
        load: "open" or "closed".
        process, cv: arrivals of an open loop.
        seed: of every random draw.
        pairs: lengths drawn together instead; None where they are not.
        step_factor: every step takes this many times as long: what an error of the step model would do.
        gpus_per_system: stages of a pipeline beyond these are joined by the network.
    """

    isl: Lengths
    osl: Lengths
    slo: Slo
    load: str
    process: Process
    cv: float
    seed: int
    pairs: Pairs | None = None
    step_factor: float = 1.0
    gpus_per_system: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one instance carries.

    Attributes:
        rate: requests per second at the highest load inside all limits.
        concurrency: requests in flight there (mean), or the clients of a closed loop.
        saturation: requests per second that it completes when always busy.
        summary: the metrics at that load, or at the load that shows why there is none.
        binds: what ends the load: a limit, or saturation; None when there is no such load.
        reason: why there is no such load; None when there is one.
        simulated_requests: requests of the deciding run.
        noise: standard error of the limited statistic in that run, as a share of it: that of a finite run.
    """

    rate: float
    concurrency: float
    saturation: float
    summary: Summary
    binds: Bound | None
    reason: Reason | None
    simulated_requests: int
    noise: float = 0.0


class Instance:
    """One instance under varying load: the runs that the search asks for.

    ``batch`` is how many requests an attention rank holds at once, ``in_flight`` the instance.
    """

    def __init__(self, deployment: Deployment, asked: Asked) -> None:
        """Price the deployment once.

        Raises:
            DoesNotFit: the weights or one request exceed the memory.
        """
        self.deployment = deployment
        self.asked = asked
        self.trail: dict[float, float] = {}  # the strain on the limits at every rate that was run; 0 for a single client
        isl, osl = math.ceil(asked.isl.mean), math.ceil(asked.osl.mean)
        price = estimated_instance(deployment, gpus_per_system=asked.gpus_per_system, prompt_tokens=isl)
        self.memory = price.memory
        self.knobs = price.knobs
        self.step: StepModel = slower(price.step, asked.step_factor)
        held = min(self.memory.blocks // self.memory.request_blocks(isl + osl), self.knobs.max_batch_size)
        if self.knobs.scheduler == "static":
            held = self.memory.concurrent_requests(isl, osl)
        self._check_longest()
        self.batch = max(1, held)
        self.in_flight = self.batch * deployment.parallelism.dp
        self.alone_e2e_s = self.unloaded_ttft_s() + asked.osl.mean * self.unloaded_tpot_s()

    def _check_longest(self) -> None:
        """Refuse a deployment whose engine would turn requests away: the longest, or of an endless distribution the 99.9th percentile."""
        asked, knobs = self.asked, self.knobs
        longest = asked.pairs.longest if asked.pairs is not None else asked.isl.longest + asked.osl.longest
        if self.memory.request_blocks(longest) > self.memory.blocks:
            room = self.memory.tokens - self.memory.windows.of(longest) * knobs.tokens_per_block
            raise DoesNotFit(f"one request of {longest:,} tokens does not fit the KV cache of {max(room, 0):,} tokens")
        whole = longest if knobs.scheduler == "vllm" else asked.isl.longest
        if not knobs.chunked_prefill and knobs.scheduler not in ("static", "sglang") and whole > knobs.max_num_tokens:
            raise DoesNotFit(f"{whole:,} tokens exceed the token budget of {knobs.max_num_tokens:,} without chunked prefill")

    def unloaded_ttft_s(self) -> float:
        """Closed form: prefill of one prompt of mean length, alone, and the front end, in seconds."""
        tokens = round(self.asked.isl.mean)
        return self.step.frontend_s + self.step.seconds(tokens, 1, 0, tokens * tokens, 0)

    def unloaded_tpot_s(self) -> float:
        """Closed form: a decode step of one request half through its output, in seconds, over the tokens that it brings."""
        return self.step.seconds(0, 0, 1, 0, round(self.asked.isl.mean + self.asked.osl.mean / 2)) / self.step.tokens_per_step

    def saturation_estimate(self) -> float:
        """Closed form: requests per second with the batch always full, prefills riding along."""
        c = self.step.coefficients
        isl, osl, batch = self.asked.isl.mean, self.asked.osl.mean, self.batch
        if self.step.drafting is not None:
            return self._drafted_saturation()
        tokens = batch * (isl + osl) / osl
        step = batch_seconds(c, round(tokens), batch) + context_seconds(c, batch) * batch * (isl + osl / 2)
        attention = 0.5 * isl * isl * float(c[ATTENTION])
        return self.deployment.parallelism.dp / (step * osl / batch + attention)

    def _drafted_saturation(self) -> float:
        """The same with guesses: fewer steps of more tokens each."""
        c, batch = self.step.coefficients, self.batch
        isl, steps = self.asked.isl.mean, self.asked.osl.mean / self.step.tokens_per_step
        context = round(batch * (isl + self.asked.osl.mean / 2))
        step = self.step.seconds(round(batch * isl / steps), 0, batch, 0, context) - float(c[HOST_PREFILL] + c[EAGER])
        return self.deployment.parallelism.dp / (step * steps / batch + 0.5 * isl * isl * float(c[ATTENTION]))

    def count(self, rate: float) -> int:
        """Requests of a short run at that rate: several times what is in flight."""
        in_flight = min(self.in_flight, math.ceil(LOADED * rate * self.alone_e2e_s))
        return max(MINIMUM_REQUESTS, BATCHES_PER_RUN * in_flight) // 2

    def open(self, rate: float, requests: int, seed: int) -> Requests:
        """A run of an open loop at ``rate`` requests per second."""
        arrivals = OpenLoop(rate=rate, process=self.asked.process, cv=self.asked.cv)
        return self.under(arrivals, requests, seed)

    def measured(self, rate: float) -> Summary:
        """The metrics of a short run of an open loop, neither ramp nor drain."""
        return self._noted(rate, summarize(middle(self.open(rate, self.count(rate), self.asked.seed))))

    def _noted(self, rate: float, summary: Summary) -> Summary:
        self.trail[rate] = strain(summary, self.asked.slo)
        return summary

    def glanced(self, rate: float) -> Summary:
        """As ``measured``, by a shorter run where that leaves no doubt whether the limits hold."""
        first = summarize(middle(self.open(rate, self.count(rate) // GLANCE, self.asked.seed)))
        return self._noted(rate, first) if not 1 / CLEAR < strain(first, self.asked.slo) < CLEAR else self.measured(rate)

    def alone(self) -> Summary:
        """The metrics of a single client: what no load can beat."""
        equal = self.asked.pairs is None and self.asked.isl.kind == self.asked.osl.kind == "fixed"
        summary = summarize(self.closed(1, ALONE_EQUAL if equal else ALONE_REQUESTS))
        return self._noted(0.0 if self.asked.load == "open" else summary.requests_per_second, summary)

    def closed(self, clients: int, requests: int) -> Requests:
        """A run of a closed loop of ``clients``."""
        turnaround = client_turnaround_s(self.deployment)
        return self.under(ClosedLoop(concurrency=clients, turnaround_s=turnaround), requests, self.asked.seed)

    def under_clients(self, clients: int) -> Summary:
        """The metrics of a closed loop of ``clients``."""
        summary = summarize(self.closed(clients, max(ALONE_REQUESTS, CLOSED_ROUNDS * clients)))
        return self._noted(summary.requests_per_second, summary)

    def under(self, arrivals: Arrivals, requests: int, seed: int) -> Requests:
        """A run under any arrivals."""
        return self.serve(self.workload(arrivals, requests).trace(seed))

    def serve(self, trace: Trace, step: StepModel | None = None) -> Requests:
        """A run of given requests, split over the attention ranks, with the instance's step model or another."""
        ranks = self.deployment.parallelism.dp
        memory = self.memory
        parts = [run(part, step or self.step, self.knobs, memory.blocks, windows=memory.windows) for part in rank_traces(trace, ranks)]
        return parts[0] if ranks == 1 else pooled(parts)

    def recorded(self, rate: float, requests: int, most_steps: int) -> StepRecord:
        """The engine steps of an open loop at ``rate``, the first ``most_steps`` of one attention rank."""
        arrivals = OpenLoop(rate=rate, process=self.asked.process, cv=self.asked.cv)
        trace = self.workload(arrivals, requests).trace(self.asked.seed)
        first, memory = rank_traces(trace, self.deployment.parallelism.dp)[0], self.memory
        return run_recorded(first, self.step, self.knobs, memory.blocks, windows=memory.windows, most_steps=most_steps)[1]

    def workload(self, arrivals: Arrivals, requests: int) -> Workload:
        """The question's lengths under any arrivals."""
        return Workload(isl=self.asked.isl, osl=self.asked.osl, arrivals=arrivals, requests=requests, pairs=self.asked.pairs)


def unscreened() -> Reason | None:
    """Let every deployment be searched."""
    return None


def find_capacity(instance: Instance, screen: Callable[[], Reason | None] = unscreened) -> Capacity:
    """The highest load inside all limits; ``reason`` says why where there is none.

    Args:
        instance: the deployment under the question's lengths and limits.
        screen: called once the limits hold for a single client; what it returns, if anything, ends the search as the reason.
    """
    alone = instance.alone()
    broken = worst_limit(alone, instance.asked.slo)
    if broken is not None:
        return no_capacity(alone, BrokenAtAnyLoad(breach=breach(alone, broken)), ALONE_REQUESTS)
    screened = screen()
    if screened is not None:
        return no_capacity(alone, screened, ALONE_REQUESTS)
    return _closed_capacity(instance, alone) if instance.asked.load == "closed" else _open_capacity(instance, 0.0, alone)


def statistic_s(summary: Summary, limit: Limit) -> float:
    """The summary's value of the limited statistic, in seconds; NaN where it is undefined."""
    return summary.statistic_ms(limit.metric, limit.statistic) / 1e3


def strain(summary: Summary, slo: Slo) -> float:
    """The largest ratio of a value to its limit: above 1 a limit is broken; 0 without limits (an undefined value holds)."""
    ratios = (statistic_s(summary, limit) / limit.seconds for limit in slo)
    return max((ratio for ratio in ratios if not math.isnan(ratio)), default=0.0)


def worst_limit(summary: Summary, slo: Slo) -> Limit | None:
    """The limit that is exceeded by the largest factor, or None when all hold (an undefined value holds)."""
    over = [(statistic_s(summary, limit) / limit.seconds, i) for i, limit in enumerate(slo)]
    factor, index = max(((f, -i) for f, i in over if f > 1.0), default=(0.0, 0))
    return slo[-index] if factor else None


def middle(requests: Requests) -> Requests:
    """The requests that arrived in the ``MEASURED`` part of the run; the gaps stay those of the whole run."""
    count = len(requests)
    rows = slice(int(MEASURED[0] * count), int(MEASURED[1] * count))
    columns = {f.name: getattr(requests, f.name)[rows] for f in fields(requests) if f.name not in ("gaps", "window_ns")}
    return replace(requests, **columns)


def breach(summary: Summary, limit: Limit) -> Breach:
    """The limit with the value that breaks it."""
    return Breach(limit=limit_of(limit), value_ms=1e3 * statistic_s(summary, limit))


def no_capacity(summary: Summary, reason: Reason, requests: int) -> Capacity:
    """No load is inside the limits, for the reason that the summary shows."""
    return Capacity(rate=0.0, concurrency=0.0, saturation=0.0, summary=summary, binds=None, reason=reason, simulated_requests=requests)


def saturation_rate(requests: Requests) -> float:
    """Completions per second between the first 30 % and the first 90 % of them, of a run that always had a queue.

    0 where hardly any completes.
    """
    import numpy as np

    ends = np.sort(requests.last_token_ns[requests.last_token_ns >= 0])
    if len(ends) < 10:
        return 0.0
    first, last = int(0.3 * len(ends)), int(0.9 * len(ends)) - 1
    return float((last - first) / ((ends[last] - ends[first]) / 1e9))


def saturation(instance: Instance) -> float:
    """Requests per second that the instance completes when always busy, from a run under ``OVERLOAD``."""
    requests = min(max(MINIMUM_REQUESTS, SATURATED_BATCHES * instance.in_flight), SATURATED_MOST)
    return saturation_rate(instance.open(OVERLOAD * instance.saturation_estimate(), requests, instance.asked.seed))


def capacity_above(instance: Instance, rate: float) -> Capacity:
    """The highest load of an open loop where the limits are known to hold at ``rate`` requests per second."""
    return _open_capacity(instance, rate, instance.measured(rate))


def _open_capacity(instance: Instance, low: float, at_low: Summary) -> Capacity:
    """Close the rate's bracket with short runs, then settle it with a long one."""
    asked = instance.asked
    saturated = saturation(instance)
    most = STABLE * saturated
    if most <= low:
        return no_capacity(at_low, AboveSaturation(requests_per_second=low, most=most), instance.count(low))
    at_most = instance.measured(most)
    if worst_limit(at_most, asked.slo) is None:
        return _verified(instance, most, saturated, None)
    rate, broken_at, broken = closed_bracket((low, at_low), (most, at_most), instance)
    limit = worst_limit(broken, asked.slo)
    if rate == 0.0 or limit is None:
        early = BrokenEarly(
            breach=breach(broken, limit or asked.slo[0]), requests_per_second=broken_at, share_of_saturation=broken_at / saturated
        )
        return no_capacity(broken, early, instance.count(broken_at))
    return _verified(instance, rate, saturated, limit)


def closed_bracket(below: tuple[float, Summary], above: tuple[float, Summary], instance: Instance) -> tuple[float, float, Summary]:
    """The highest rate seen that holds and the lowest that does not, within ``RATE_WIDTH``, by regula falsi on the log of the strain.

    Interpolation is kept off the ends of the bracket; where it has not halved the bracket, the next run does.

    Args:
        below: a rate at which the limits hold, and its summary; 0 with that of a single client.
        above: a rate at which one is broken, and its summary.
        instance: the deployment, under at least one limit.

    Returns:
        The rate that holds (0 where none was found), the lowest that does not, and the summary there.
    """
    slo = instance.asked.slo
    low, high, at_high, halve = below[0], above[0], above[1], False
    strain_low, strain_high = strain(below[1], slo), strain(at_high, slo)
    for _ in range(RATE_STEPS):
        if high - low <= RATE_WIDTH * high:
            break
        share = 0.5
        if not halve and 0 < strain_low < 1 < strain_high:
            share = min(max(math.log(1 / strain_low) / math.log(strain_high / strain_low), 0.15), 0.85)
        rate, width = low + share * (high - low), high - low
        summary = instance.glanced(rate) if width > WIDE * high else instance.measured(rate)
        found = strain(summary, slo)
        if found <= 1.0:
            low, strain_low = rate, found
        else:
            high, strain_high, at_high = rate, found, summary
        halve = high - low > width / 2
    return low, high, at_high


def confirmed(instance: Instance, capacity: Capacity) -> Capacity:
    """A capacity of an open loop held against a run that is longer still."""
    return _verified(instance, capacity.rate, capacity.saturation, binding_limit(instance.asked.slo, capacity.binds), CONFIRMED)


def binding_limit(slo: Slo, binds: Bound | None) -> Limit | None:
    """The limit of the question that ends a load; None where something else does."""
    return next((limit for limit in slo if binds is not None and binds.limit == limit_of(limit)), None)


def _verified(instance: Instance, rate: float, saturated: float, binds: Limit | None, runs: int = VERIFIED) -> Capacity:
    """The rate held against a longer run with other random numbers, and lowered until it passes.

    Args:
        instance: the deployment.
        rate: in requests per second.
        saturated: the rate of saturation.
        binds: the limit that ends the load so far; None for saturation.
        runs: short runs that the verifying one is as long as.
    """
    count, seed = runs * instance.count(rate), instance.asked.seed + 1
    down = STEP_DOWN
    for _ in range(VERIFICATIONS):
        record = middle(instance.open(rate, count, seed))
        summary = summarize(record)
        broken = worst_limit(summary, instance.asked.slo)
        if broken is None:
            return Capacity(
                rate=rate,
                concurrency=rate * summary.statistic_ms("e2e", "mean") / 1e3,
                saturation=max(saturated, rate),
                summary=summary,
                binds=SATURATION if binds is None else bound_by(binds),
                reason=None,
                simulated_requests=count,
                noise=0.0 if binds is None else statistic_noise(record, binds.metric, binds.statistic),
            )
        why = BrokenInVerification(breach=breach(summary, broken), requests_per_second=rate)
        binds, rate = broken, rate * (1 - down)
        down = min(down * STEP_GROWTH, MOST_DOWN)
    return no_capacity(summary, why, count)


def _closed_capacity(instance: Instance, alone: Summary) -> Capacity:
    """Bisection over the number of clients: the latencies grow with it."""
    most = 2 * instance.in_flight

    def at(clients: int) -> Summary:
        return instance.under_clients(clients)

    top = at(most)
    saturation = top.requests_per_second
    best, best_summary = 1, alone
    low, high = 1, most
    broken = worst_limit(top, instance.asked.slo)
    if broken is None:
        best, best_summary, low = most, top, high
    binds: Limit | None = None
    while high - low > max(1, low // 100):
        clients = (low + high) // 2
        summary = at(clients)
        broken = worst_limit(summary, instance.asked.slo)
        if broken is not None:
            high, binds = clients, broken
            continue
        low = clients
        if summary.requests_per_second > best_summary.requests_per_second:
            best, best_summary = clients, summary
    ended = binds or broken
    return Capacity(
        rate=best_summary.requests_per_second,
        concurrency=float(best),
        saturation=max(saturation, best_summary.requests_per_second),
        summary=best_summary,
        binds=SATURATION if ended is None else bound_by(ended),
        reason=None,
        simulated_requests=max(ALONE_REQUESTS, CLOSED_ROUNDS * best),
    )
