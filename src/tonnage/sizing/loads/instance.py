"""One deployment under load: the requests of an instance or of several behind a router, and the
simulated record of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tonnage.errors import DoesNotFit
from tonnage.perf.pipeline import estimated_instance
from tonnage.perf.step import StepModel, batch_seconds, context_seconds
from tonnage.perf.step_terms import ATTENTION, EAGER, HOST_PREFILL
from tonnage.perf.terms import client_turnaround_s
from tonnage.results.metrics import Summary, summarize
from tonnage.simulator.engine import engine_of
from tonnage.simulator.kernel import run_instance
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.router import DEFAULT_ROUTER
from tonnage.simulator.spec import EngineSpec, engine_spec, pooled, rank_traces
from tonnage.simulator.tiers import resolved_tiers, tiers_of
from tonnage.sizing.loads.confidence import slower
from tonnage.sizing.loads.session_load import (
    alone_run,
    clients_at,
    session_requests,
    session_run,
    session_traces,
)
from tonnage.sizing.loads.shared_load import (
    ANSWER,
    SEEN,
    Answers,
    SharedLoad,
    after,
    balanced_trace,
    owners,
    parts_of,
    replayed,
    shared_out_as,
)
from tonnage.sizing.question import Sharing
from tonnage.spec.deployment import Deployment
from tonnage.spec.kv_tiers import OFF, AskedTier, Offloading, SystemTier
from tonnage.spec.lengths import Lengths, Pairs
from tonnage.spec.workload import (
    ClosedLoop,
    OpenLoop,
    Process,
    Simulated,
    Trace,
    Workload,
)
from tonnage.units import to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.simulator.changes import Routed
    from tonnage.simulator.kernel.memory import Machine
    from tonnage.simulator.request import StepRecord
    from tonnage.spec.recorded_sessions import RecordedSessions

Length = Literal[0, 1, 2]
Care = Literal[1, 2]

SHORT: Length = 0
QUICK: Care = 1
SURE: Care = 2
"""Lengths of runs: for what is clear, to compare deployments, and to decide."""

FEWEST = (2_000, 4_000, 16_000)
"""Fewest requests of a run of each length: 40 of the measured ones are beyond a p99 in the longest
but one, 160 in the longest."""

FEWEST_SHARING = (1_000, 2_000, 8_000)
"""The same of requests whose prompts share something: a request with a cache takes twenty times as
long to simulate."""

LIVES = (2, 4, 8)
"""Fewest requests of a run of each length, in times what is in flight; the first of them fill the
engines and are not measured."""

LOADED, QUEUED, SETTLES = 3, 1.5, 0.9
"""Latency under load over that of an empty engine, for which the runs of a search are made; and
over that of a batch as full as the load fills it, up to a share of what the closed form completes,
for which that of a whole fleet is made as well."""

ALONE_REQUESTS = 100
"""Requests of the run of a single client: what no load can beat."""

ALONE_COLD = 20
"""Warm-up requests of a single client, where prompts share something."""

ALONE_EQUAL = 8
"""The same where all requests are equal."""

KEPT_LONGER = 1.5
"""How many times as long as the closed form says a cache may keep what it holds: it holds idle
blocks alone, and prefixes once."""

FOLLOWED = 2
"""Length of a run of conversations, in times that of requests by themselves: a cache that is just
too small loses what it holds slowly."""

WITHIN_S = 3_000_000
"""Longest time over which the requests of a run come, in seconds: 35 days, of the 53 that a fleet
is simulated for."""

MOST_BURST = 4.0
"""Largest factor on the length of a run for bursty arrivals."""

MEASURED = (0.2, 0.97)
"""Share of a run's requests, in order of arrival, that the statistics are over: neither ramp nor
drain."""

TOGETHER, TOGETHER_BURSTY = 16, 64
"""Most instances that stand for a larger fleet while loads are searched. Behind least outstanding
requests 16 instances carry 0 to 2 % less each than 64 do, so that the larger fleet is on the safe
side; of bursty arrivals 16 carry 4 to 14 % less (``./benchmark routers --only stand``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What comes to an instance, whatever the rate and the limits.

    Attributes:
        isl, osl: lengths in tokens.
        load: "open" or "closed".
        process, cv: arrivals of an open loop.
        seed: of every random draw.
        pairs: lengths drawn together instead; None where they are not.
        step_factor: every step takes this many times as long: what an error of the step model would
            do.
        gpus_per_system: stages of a pipeline beyond these are joined by the network.
        memories: of a system, that can keep blocks below the KV cache.
        router: what gives requests to several of the instances, a name of ``simulator.router``.
        sharing: what prompts share; ``isl`` is then the length of whole prompts. None where they
            share nothing.
    """

    isl: Lengths
    osl: Lengths
    load: str
    process: Process
    cv: float
    seed: int
    pairs: Pairs | None = None
    step_factor: float = 1.0
    gpus_per_system: int = 8
    memories: tuple[SystemTier, ...] = ()
    router: str = DEFAULT_ROUTER
    sharing: Sharing | None = None


class Instance:
    """One deployment under one kind of traffic; it keeps the run of its single client, and nothing
    else in it changes.

    ``batch`` is how many requests an attention rank holds at once, ``in_flight`` the instance.
    """

    USUAL: ClassVar[float] = 1.0
    """Share of what closed forms allow at which the search for its load begins."""

    _single_client: Summary | None = None

    def __init__(self, deployment: Deployment, traffic: Traffic) -> None:
        """Make the step model and the memory plan of the deployment once.

        Raises:
            DoesNotFit: the weights or one request exceed the memory.
        """
        self.deployment = deployment
        self.traffic = traffic
        isl, osl = math.ceil(traffic.isl.mean), math.ceil(traffic.osl.mean)
        price = estimated_instance(
            self._simulated(), gpus_per_system=traffic.gpus_per_system, prompt_tokens=isl
        )
        self.memory = price.memory
        self.spec = engine_spec(
            deployment, slower(price.step, traffic.step_factor), price.knobs, self.memory
        )
        self.knobs = self.spec.knobs
        self.computed, common = self._computed(self.knobs.prefix_caching)
        slots = min(
            self.memory.blocks // self.memory.request_blocks(max(isl - common, 1) + osl),
            self.knobs.max_batch_size,
        )
        if self.knobs.scheduler == "static":
            slots = self.memory.concurrent_requests(isl, osl)
        self._check_longest()
        self.batch = max(1, slots)
        self.in_flight = self.batch * deployment.parallelism.dp
        self.alone_e2e_s = self.unloaded_ttft_s() + traffic.osl.mean * self.unloaded_tpot_s()
        self.shared = self._shared()

    def _shared(self) -> SharedLoad | None:
        """What comes to it where prompts share something."""
        traffic = self.traffic
        if traffic.sharing is None or traffic.sharing.recorded is not None:
            return None
        return SharedLoad(
            sharing=self.sharing or traffic.sharing,
            osl=traffic.osl,
            process=traffic.process,
            cv=traffic.cv,
            router=traffic.router,
            answer_s=ANSWER * self.alone_e2e_s,
            caches=self.knobs.prefix_caching,
        )

    def _simulated(self) -> Deployment:
        """The deployment with KV blocks of the size that is simulated."""
        d, sharing = self.deployment, self.traffic.sharing
        if sharing is None or not d.knobs.prefix_caching:
            return d
        block = sharing.block_tokens(d.knobs.tokens_per_block, self._computed(True)[0])
        return replace(d, knobs=replace(d.knobs, tokens_per_block=block))

    @property
    def step(self) -> StepModel:
        """What a step of its engine costs."""
        return self.spec.step

    @property
    def sharing(self) -> Sharing | None:
        """What prompts share in simulations."""
        sharing, engine_block = self.traffic.sharing, self.deployment.knobs.tokens_per_block
        return (
            None if sharing is None else sharing.shorter(engine_block, self.knobs.tokens_per_block)
        )

    def _computed(self, caches: bool) -> tuple[float, int]:
        """Tokens of a prompt that have to be computed at best, and those whose blocks all requests
        hold together; both on average.
        """
        sharing = self.traffic.sharing
        if sharing is None or not caches:
            return self.traffic.isl.mean, 0
        best = sharing.best(self.traffic.osl)
        return max(best.computed, 1.0), math.floor(best.common)

    def _check_longest(self) -> None:
        """Refuse a deployment whose engine would turn requests away: the longest, or of an endless
        distribution the 99.9th percentile.
        """
        traffic, knobs = self.traffic, self.knobs
        longest = (
            traffic.pairs.longest
            if traffic.pairs is not None
            else traffic.isl.longest + traffic.osl.longest
        )
        model = self.deployment.model
        if longest > model.max_context:
            raise DoesNotFit(
                f"one request of {longest:,} tokens exceeds the context of {model.name},"
                f" {model.max_context:,} tokens"
            )
        if self.memory.request_blocks(longest) > self.memory.blocks:
            raise DoesNotFit(
                f"one request of {longest:,} tokens does not fit the KV cache of"
                f" {self.memory.room:,} tokens"
            )
        whole = longest if knobs.scheduler == "vllm" else traffic.isl.longest
        if (
            not knobs.chunked_prefill
            and knobs.scheduler not in ("static", "sglang")
            and whole > knobs.max_num_tokens
        ):
            raise DoesNotFit(
                f"{whole:,} tokens exceed the token budget of {knobs.max_num_tokens:,} without"
                " chunked prefill"
            )

    @property
    def follows(self) -> bool:
        """Whether requests follow one another, as the turns of a conversation do."""
        return self.traffic.sharing is not None and self.traffic.sharing.follows

    @property
    def equal(self) -> bool:
        """Whether all requests are equal."""
        traffic = self.traffic
        return traffic.pairs is None and traffic.isl.kind == traffic.osl.kind == "fixed"

    def unloaded_ttft_s(self) -> float:
        """Closed form: prefill of what is to be computed of one prompt of mean length, alone, and
        the front end, in seconds.
        """
        tokens, new = round(self.traffic.isl.mean), round(self.computed)
        return self.step.entering_s(tokens) + self.step.seconds(
            new, 1, 0, new * (2 * tokens - new), 0
        )

    def front_end_busy(self, rate: float, steps_per_s: float = 0.0) -> float:
        """``StepModel.front_end_busy`` at requests per second of the instance."""
        return self.step.front_end_busy(
            rate / self.deployment.parallelism.dp,
            self.traffic.isl.mean,
            self.traffic.osl.mean,
            steps_per_s,
        )

    def unloaded_tpot_s(self) -> float:
        """Closed form: seconds of a decode step of one request halfway through its output, over the
        tokens that the step yields.
        """
        return (
            self.step.seconds(0, 0, 1, 0, round(self.traffic.isl.mean + self.traffic.osl.mean / 2))
            / self.step.tokens_per_step
        )

    def saturation_estimate(self, *, prefix_found: bool = True) -> float:
        """Closed form: requests per second with the batch always full, prefills riding along;
        ``prefix_found``: a cache finds what is shared.
        """
        return self._busy(self.computed if prefix_found else self.traffic.isl.mean)

    def steady_estimate(self) -> float:
        """Closed form: requests per second that an instance completes with what its cache can keep
        of conversations from turn to turn.

        A turn finds the ones before it where fewer tokens than the cache has room for were computed
        since: the longer pauses are, and the more conversations there are, the fewer.
        """
        sharing = self.traffic.sharing
        low, high = self.saturation_estimate(prefix_found=False), self.saturation_estimate()
        if sharing is None or not self.knobs.prefix_caching or not sharing.follows or low >= high:
            return high
        isl, osl = self.traffic.isl.mean, self.traffic.osl.mean
        while high > 1.01 * low:
            rate = math.sqrt(low * high)
            room = max(self.memory.tokens - rate * self.alone_e2e_s * (isl + osl / 2), 0.0)
            kept_share = sharing.kept(KEPT_LONGER * room / (rate * (self.computed + osl)))
            new = isl - kept_share * (isl - self.computed)
            low, high = (rate, high) if self._busy(new) >= rate else (low, rate)
        return low

    def _busy(self, new: float) -> float:
        """Closed form: requests per second with the batch always full, so many tokens of each
        prompt being computed.
        """
        if self.step.drafting is not None:
            return self._drafted_saturation(new)
        return (
            self.deployment.parallelism.dp
            * self.batch
            / (self.traffic.osl.mean * self.token_seconds(self.batch, new))
        )

    def token_seconds(self, batch: int, new: float | None = None) -> float:
        """Closed form: seconds from one output token of a request to the next, with so many
        requests decoding in each attention rank.

        Every step has as many prompt tokens in it as keep the batch full: ``new`` of each request,
        by default what has to be computed.
        """
        c, isl, osl = self.step.coefficients, self.traffic.isl.mean, self.traffic.osl.mean
        new = self.computed if new is None else new
        step = batch_seconds(c, round(batch * (new + osl) / osl), batch) + context_seconds(
            c, batch
        ) * batch * (isl + osl / 2)
        return step + batch / osl * 0.5 * new * (2 * isl - new) * float(c[ATTENTION])

    def budget_estimate(self) -> float:
        """Closed form: requests per second with every step as full of tokens as the budget allows,
        each token at the least it costs.
        """
        c, knobs = self.step.coefficients, self.knobs
        if knobs.scheduler == "static" or self.step.drafting is not None:
            return math.inf
        isl, osl, new = self.traffic.isl.mean, self.traffic.osl.mean, self.computed
        attention = 0.5 * new * (2 * isl - new) * float(c[ATTENTION])
        return self.deployment.parallelism.dp / ((new + osl) * self.least_token_s + attention)

    @cached_property
    def least_token_s(self) -> float:
        """Closed form: seconds that a token of a prompt costs at least, in a step as full of them
        as the budget allows or less.
        """
        budget = self.knobs.max_num_tokens
        sizes = {budget, max(1, budget // 2), max(1, budget // 4)}
        return min(batch_seconds(self.step.coefficients, tokens, 1) / tokens for tokens in sizes)

    def _drafted_saturation(self, new: float) -> float:
        """The same with speculative decoding: fewer steps with more tokens each."""
        c, batch = self.step.coefficients, self.batch
        isl, steps = self.traffic.isl.mean, self.traffic.osl.mean / self.step.tokens_per_step
        context = round(batch * (isl + self.traffic.osl.mean / 2))
        step = self.step.seconds(round(batch * new / steps), 0, batch, 0, context) - float(
            c[HOST_PREFILL] + c[EAGER]
        )
        return self.deployment.parallelism.dp / (
            step * steps / batch + 0.5 * new * (2 * isl - new) * float(c[ATTENTION])
        )

    def standing_for(self, instances: int) -> int:
        """How many instances are simulated to know what each of so many carries.

        Conversations that stay at their instance, and requests given out at random, come to each by
        itself. Attention ranks are engines.
        """
        traffic = self.traffic
        alone = traffic.router == "random" and traffic.process == "poisson"
        if (
            traffic.load == "closed"
            or alone
            or (traffic.sharing is not None and not traffic.sharing.balanced(traffic.router))
        ):
            return 1
        limit = TOGETHER if traffic.process != "gamma" else TOGETHER_BURSTY
        limit = max(1, min(limit, TOGETHER_BURSTY // self.deployment.parallelism.dp))
        return (
            instances
            if instances <= min(8, limit)
            else min(instances // 2 * 2 if instances <= 16 else instances // 8 * 8, limit)
        )

    def in_flight_at(self, rate: float) -> float:
        """Closed form: requests that the instance holds at ``rate`` requests per second, rather
        more than less.
        """
        rates, in_flight = ([0.0], [0.0]) if self.step.drafting is not None else self._filled
        crowded = float(np.interp(min(rate, SETTLES * rates[-1]), rates, in_flight))
        return min(self.in_flight, max(LOADED * rate * self.alone_e2e_s, QUEUED * crowded))

    @cached_property
    def _filled(self) -> tuple[list[float], list[float]]:
        """Requests per second with ever larger batches, always full, and how many requests are in
        flight then; beyond, all that fit.
        """
        dp, osl = self.deployment.parallelism.dp, self.traffic.osl.mean
        batches = [*(2**place for place in range((self.batch - 1).bit_length())), self.batch]
        rates = [dp * batch / (osl * self.token_seconds(batch)) for batch in batches]
        return list(np.maximum.accumulate(rates)), [float(dp * batch) for batch in batches]

    def requests_of(self, rate: float, length: Length, instances: int = 1) -> int:
        """Requests of a run at ``rate`` for each instance, one of few numbers so that runs share
        their draws.
        """
        if self.recorded_sessions is not None:
            return session_requests(self.recorded_sessions, rate, length)
        in_flight = instances * min(self.in_flight, math.ceil(LOADED * rate * self.alone_e2e_s))
        fewest = FEWEST if self.traffic.sharing is None else FEWEST_SHARING
        least = max(
            fewest[length] * burst_factor(self.traffic.process, self.traffic.cv),
            LIVES[length] * in_flight,
        )
        least *= FOLLOWED if self.follows else 1
        cap = max(WITHIN_S * rate * instances, ALONE_REQUESTS)
        return min(fewest[0] << max(0, math.ceil(math.log2(least / fewest[0]))), round(cap))

    def held_rate(self, rate: float) -> float:
        """Requests per second of the run that stands for a rate: of sessions a whole number of
        them.
        """
        recorded = self.recorded_sessions
        return rate if recorded is None else clients_at(recorded, rate) * recorded.pace

    def open(self, rate: float, requests: int, seed: int, instances: int = 1) -> Requests:
        """The requests of an open loop at ``rate`` requests per second for each of so many
        instances; of sessions those of one instance.
        """
        if (recorded := self.recorded_sessions) is not None:
            return session_run(
                self.tiered,
                recorded,
                clients_at(recorded, rate),
                requests,
                seed=seed,
                alone_ns=self.alone_ns,
            )
        if self.shared is not None:
            return self._open_sharing(self.shared, rate * instances, requests, seed, instances)
        arrivals = OpenLoop(rate=rate * instances, process=self.traffic.process, cv=self.traffic.cv)
        return self.together(
            balanced_trace(self.workload(arrivals, requests), arrivals, seed),
            instances,
            self.traffic.router,
        )

    def _open_sharing(
        self, load: SharedLoad, rate: float, requests: int, seed: int, instances: int
    ) -> Requests:
        """The same, without what came before the caches were warm, and after new conversations
        stopped coming.
        """
        warm = instances * load.warm(rate / instances)
        trace = load.trace(rate, requests + warm, seed, whole=instances > 1)
        return load.counted(
            self.together(trace, instances, self.traffic.router), rate, warm, requests
        )

    def single_client(self) -> Summary:
        """The metrics of a single client, from a run that is made once; two threads that ask at
        once may both make it, to the same end.
        """
        if self._single_client is None:
            self._single_client = summarize(self.alone(), by_request=True)
        return self._single_client

    def alone(self) -> Requests:
        """The requests of a single client: what no load can beat."""
        sharing = self.traffic.sharing
        if sharing is not None and sharing.recorded is not None:
            return self._alone_sessions
        if sharing is None:
            return self.closed(1, ALONE_EQUAL if self.equal else ALONE_REQUESTS)
        if sharing.recording is not None:
            trace = replayed(sharing, sharing.recording.mean_rps, self.traffic.seed)
            record = self.serve(replace(trace, due_ps=trace.due_ps * 0 - 1, concurrency=1))
            return after(record, len(record) // 10)
        prefixes = 0 if sharing.sessions is None else sharing.sessions.prefixes
        warm = min(SEEN * prefixes + ALONE_COLD, FEWEST[QUICK])
        return after(self.closed(1, warm + ALONE_REQUESTS), warm)

    @property
    def recorded_sessions(self) -> RecordedSessions | None:
        """The recorded sessions that come to it; None where others do."""
        return None if self.traffic.sharing is None else self.traffic.sharing.recorded

    @cached_property
    def _alone_sessions(self) -> Requests:
        """All recorded sessions one after another."""
        if self.recorded_sessions is None:
            raise ValueError("an instance without recorded sessions")
        return alone_run(self.tiered, self.recorded_sessions)

    @cached_property
    def alone_ns(self) -> NDArray[np.int64]:
        """How long the answer of each recorded request takes where its session is the only one, in
        nanoseconds.
        """
        record = self._alone_sessions
        answer_ns = np.zeros(len(record), np.int64)
        answer_ns[record.row] = record.last_token_ns - record.due_ns
        return answer_ns

    @cached_property
    def tiered(self) -> EngineSpec:
        """Its engine with the memory below the KV cache."""
        if (sharing := self.traffic.sharing) is None:
            return self.spec
        tiers = tiers_of(
            sharing.tiers,
            self.deployment,
            self.memory,
            memories=self.traffic.memories,
            gpus_per_system=self.traffic.gpus_per_system,
            block_tokens=self.knobs.tokens_per_block,
        )
        return replace(self.spec, tiers=tiers)

    @property
    def below(self) -> tuple[Offloading, tuple[AskedTier, ...]]:
        """What keeps blocks below its KV cache, and the memories, sized for one instance."""
        sharing, traffic = self.traffic.sharing, self.traffic
        kv_tiers = OFF if sharing is None else sharing.tiers
        return resolved_tiers(kv_tiers, self.deployment, traffic.memories, traffic.gpus_per_system)

    def closed(self, clients: int, requests: int) -> Requests:
        """A run of a closed loop of ``clients``."""
        loop = ClosedLoop(concurrency=clients, turnaround_s=client_turnaround_s(self.deployment))
        return self.serve(self.workload(loop, requests).trace(self.traffic.seed, stretch=True))

    def serve(self, trace: Trace, step: StepModel | None = None) -> Requests:
        """A run of given requests, split over the attention ranks, with the instance's step model
        or another.
        """
        spec = self.spec if trace.contents is None else self.tiered
        spec = spec if step is None else replace(spec, step=step)
        return run_instance(spec, self._ranks(trace))[0]

    def _ranks(self, trace: Trace) -> list[Trace]:
        """What each attention rank gets; the turns of a conversation stay together."""
        ranks = self.deployment.parallelism.dp
        if ranks == 1 or trace.contents is None:
            return rank_traces(trace, ranks)
        return parts_of(trace, owners(trace, ranks, "session", self.traffic.seed), ranks)

    def together(self, trace: Trace, instances: int, router: str) -> Requests:
        """A run of given requests on so many of the instances behind a router.

        The router sees the attention ranks of an instance as separate endpoints, as behind vLLM's
        external load balancing, and these go in lockstep. Where prompts share something, each
        instance is simulated with its cache and gives its ranks requests in turn (``serve``), and a
        router that looks at the load chooses as it would among engines that compute what caches
        leave of the prompts.
        """
        sharing = self.traffic.sharing
        if trace.contents is None or sharing is None:
            alone = instances * self.deployment.parallelism.dp == 1
            return self.serve(trace) if alone else self._routed(trace, instances, router).requests
        if instances == 1:
            return self.serve(trace)
        if sharing.balanced(router) and trace.pause_ps is None:
            computed = (
                trace.isl - sharing.common_tokens(trace) if self.knobs.prefix_caching else trace.isl
            )
            chosen = self._routed(
                replace(trace, isl=computed, contents=None), instances, router
            ).chosen
            owner = chosen // self.deployment.parallelism.dp
        else:
            answers = Answers(
                answer_ps=to_ps(ANSWER * self.alone_e2e_s),
                apart_ps=to_ps(1 / self.saturation_estimate()),
            )
            owner = owners(
                trace, instances, shared_out_as(sharing, router), self.traffic.seed, answers
            )
        return pooled([self.serve(part) for part in parts_of(trace, owner, instances)])

    def _routed(self, trace: Trace, instances: int, router: str) -> Routed:
        """A run of requests that share nothing on the engines of so many instances."""
        engines = [self.engine] * (instances * self.deployment.parallelism.dp)
        return run_fleet(
            trace,
            engines,
            router,
            seed=self.traffic.seed,
            ranks=self.deployment.parallelism.dp,
            knobs=self.knobs,
        )

    @cached_property
    def engine(self) -> Machine:
        """One of its engines, at time 0; a fleet learns of classes from the requests."""
        knobs = replace(self.knobs, queue_order="fcfs") if self.knobs.ranks else self.knobs
        return engine_of(replace(self.spec, knobs=knobs), seed=self.traffic.seed).machine

    def recorded(self, rate: float, requests: int, most_steps: int) -> StepRecord:
        """The engine steps of an open loop at ``rate``, the first ``most_steps``."""
        if (recorded := self.recorded_sessions) is not None:
            traces, _, window_ps = session_traces(
                self.tiered, recorded, clients_at(recorded, rate), requests, self.traffic.seed
            )
            return run_instance(self.tiered, traces, most_steps=most_steps, window_ps=window_ps)[1]
        arrivals = OpenLoop(rate=rate, process=self.traffic.process, cv=self.traffic.cv)
        if self.shared is None:
            trace = self.workload(arrivals, requests).trace(self.traffic.seed, stretch=True)
        else:
            trace = self.shared.trace(rate, requests, self.traffic.seed)
        return run_instance(self.spec, self._ranks(trace), most_steps=most_steps)[1]

    def workload(self, arrivals: Simulated, requests: int) -> Workload:
        """The question's lengths under any arrivals."""
        traffic, sharing = self.traffic, self.sharing
        if sharing is not None and sharing.sessions is not None and sharing.new is not None:
            return Workload(
                isl=sharing.new,
                osl=traffic.osl,
                arrivals=arrivals,
                requests=requests,
                sessions=sharing.sessions,
            )
        return Workload(
            isl=traffic.isl,
            osl=traffic.osl,
            arrivals=arrivals,
            requests=requests,
            pairs=traffic.pairs,
        )


def burst_factor(process: Process, cv: float) -> float:
    """How many times as many requests a run of bursty arrivals needs, to say as much as one of
    Poisson arrivals.
    """
    return min(max(1.0, (1.0 + cv * cv) / 2), MOST_BURST) if process == "gamma" else 1.0


def middle(requests: Requests) -> Requests:
    """The requests that arrived in the ``MEASURED`` part of the run; the gaps stay those of the
    whole run.
    """
    count = len(requests)
    return requests.some(slice(int(MEASURED[0] * count), int(MEASURED[1] * count)))
