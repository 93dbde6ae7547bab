"""One instance under varying load: the simulated runs that the search for its capacity asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tonnage.errors import DoesNotFit
from tonnage.perf.pipeline import estimated_instance
from tonnage.perf.step import StepModel, batch_seconds, context_seconds
from tonnage.perf.step_terms import ATTENTION, EAGER, HOST_PREFILL
from tonnage.perf.terms import client_turnaround_s
from tonnage.results.metrics import Summary, summarize
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel import run, run_recorded
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.ranks import pooled, rank_traces
from tonnage.simulator.router import SIZED_ROUTER
from tonnage.sizing.loads.balanced import balanced_trace
from tonnage.sizing.loads.limits import strain
from tonnage.sizing.loads.shared_load import ANSWER, SEEN, SharedLoad, after, owners, parts_of, replayed, shared_out_as
from tonnage.sizing.loads.slower import slower
from tonnage.sizing.sharing import Sharing
from tonnage.spec.deployment import Deployment, Slo
from tonnage.spec.lengths import Lengths, Pairs
from tonnage.spec.workload import Arrivals, ClosedLoop, OpenLoop, Process, Simulated, Trace, Workload

if TYPE_CHECKING:
    from tonnage.results.requests import Requests
    from tonnage.simulator.steps import StepRecord

MINIMUM_REQUESTS = 4_000
"""Fewest requests of a run: 26 measured requests then lie beyond a p99, and 52 in the verifying run."""

BATCHES_PER_RUN = 8
"""Length of a run, in times the requests that the engine holds at once."""

LOADED = 3
"""Latency under load over that of an empty engine; the length of a run is made for that many requests in flight."""

ALONE_REQUESTS = 100
"""Requests of the run of a single client: what no load can beat."""

ALONE_COLD = 20
"""Requests of a single client before those that count, where prompts share something."""

ALONE_EQUAL = 8
"""The same where all requests are equal."""

FOLLOWED = 2
"""Length of a run of conversations, in times that of requests by themselves: a cache that is just too small loses what it holds slowly."""

MOST_BURST = 16.0
"""Largest factor on the length of a run for bursty arrivals."""

CLOSED_ROUNDS = 10
"""Requests per client of a closed-loop run."""

MEASURED = (0.1, 0.95)
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
        router: what gives requests to several of the instances, a name of ``simulator.router``.
        sharing: what prompts share; ``isl`` is then the length of whole prompts. None where they share nothing.
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
    router: str = SIZED_ROUTER
    sharing: Sharing | None = None


class Instance:
    """One instance under varying load: the runs that the search asks for.

    ``batch`` is how many requests an attention rank holds at once, ``in_flight`` the instance.
    """

    def __init__(self, deployment: Deployment, asked: Asked) -> None:
        """Make the step model and the memory plan of the deployment once.

        Raises:
            DoesNotFit: the weights or one request exceed the memory.
        """
        self.deployment = deployment
        self.asked = asked
        self.trail: dict[float, float] = {}  # the strain on the limits at every rate that was run; 0 for a single client
        self.scan: Any = None  # the ``LoadScan`` of its loads, once begun
        self.slower: dict[float, float] = {}  # requests per second inside the limits, by the factor on the duration of every step
        self.sharpened: set[Any] = set()  # what ``slower`` was found for, and with how much care
        self.saturated: float | None = None  # requests per second when always busy, once measured
        self.fleets: dict[Any, Any] = {}  # the metrics of fleets of it, by what ``fleet_check.fleet_summary`` is asked for
        self._alone: Summary | None = None
        isl, osl = math.ceil(asked.isl.mean), math.ceil(asked.osl.mean)
        price = estimated_instance(deployment, gpus_per_system=asked.gpus_per_system, prompt_tokens=isl)
        self.memory = price.memory
        self.knobs = replace(price.knobs, prefix_caching=False) if self.memory.state_bytes else price.knobs
        self.computed, common = self._computed()
        self.step: StepModel = slower(price.step, asked.step_factor)
        held = min(self.memory.blocks // self.memory.request_blocks(max(isl - common, 1) + osl), self.knobs.max_batch_size)
        if self.knobs.scheduler == "static":
            held = self.memory.concurrent_requests(isl, osl)
        self._check_longest()
        self.batch = max(1, held)
        self.in_flight = self.batch * deployment.parallelism.dp
        self.alone_e2e_s = self.unloaded_ttft_s() + asked.osl.mean * self.unloaded_tpot_s()
        self.shared = self._shared()

    def _shared(self) -> SharedLoad | None:
        """What comes to it where prompts share something."""
        asked = self.asked
        if asked.sharing is None:
            return None
        answer_s = ANSWER * self.alone_e2e_s
        return SharedLoad(
            sharing=asked.sharing,
            osl=asked.osl,
            process=asked.process,
            cv=asked.cv,
            router=asked.router,
            answer_s=answer_s,
            caches=self.knobs.prefix_caching,
        )

    def _computed(self) -> tuple[float, int]:
        """Tokens of a prompt that have to be computed at best, and those whose blocks all requests hold together; both on average."""
        sharing = self.asked.sharing
        if sharing is None or not self.knobs.prefix_caching:
            return self.asked.isl.mean, 0
        best = sharing.best(self.asked.osl)
        return max(best.computed, 1.0), math.floor(best.common)

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
        """Closed form: prefill of what is to be computed of one prompt of mean length, alone, and the front end, in seconds."""
        tokens, new = round(self.asked.isl.mean), round(self.computed)
        return self.step.frontend_s + self.step.seconds(new, 1, 0, new * (2 * tokens - new), 0)

    def unloaded_tpot_s(self) -> float:
        """Closed form: seconds of a decode step of one request halfway through its output, over the tokens that the step yields."""
        return self.step.seconds(0, 0, 1, 0, round(self.asked.isl.mean + self.asked.osl.mean / 2)) / self.step.tokens_per_step

    def saturation_estimate(self, *, found: bool = True) -> float:
        """Closed form: requests per second with the batch always full, prefills riding along.

        Args:
            found: whether a cache finds all that prompts share; otherwise it finds nothing.
        """
        c = self.step.coefficients
        isl, osl, batch = self.asked.isl.mean, self.asked.osl.mean, self.batch
        new = self.computed if found else isl
        if self.step.drafting is not None:
            return self._drafted_saturation(new)
        tokens = batch * (new + osl) / osl
        step = batch_seconds(c, round(tokens), batch) + context_seconds(c, batch) * batch * (isl + osl / 2)
        attention = 0.5 * new * (2 * isl - new) * float(c[ATTENTION])
        return self.deployment.parallelism.dp / (step * osl / batch + attention)

    def budget_estimate(self) -> float:
        """Closed form: requests per second with every step as full of tokens as the budget allows, each token at the least it costs."""
        c, knobs = self.step.coefficients, self.knobs
        if knobs.scheduler == "static" or self.step.drafting is not None:
            return math.inf
        isl, osl, new, budget = self.asked.isl.mean, self.asked.osl.mean, self.computed, knobs.max_num_tokens
        token = min(batch_seconds(c, tokens, 1) / tokens for tokens in {budget, max(1, budget // 2), max(1, budget // 4)})
        attention = 0.5 * new * (2 * isl - new) * float(c[ATTENTION])
        return self.deployment.parallelism.dp / ((new + osl) * token + attention)

    def _drafted_saturation(self, new: float) -> float:
        """The same with speculative decoding: fewer steps with more tokens each."""
        c, batch = self.step.coefficients, self.batch
        isl, steps = self.asked.isl.mean, self.asked.osl.mean / self.step.tokens_per_step
        context = round(batch * (isl + self.asked.osl.mean / 2))
        step = self.step.seconds(round(batch * new / steps), 0, batch, 0, context) - float(c[HOST_PREFILL] + c[EAGER])
        return self.deployment.parallelism.dp / (step * steps / batch + 0.5 * new * (2 * isl - new) * float(c[ATTENTION]))

    def count(self, rate: float) -> int:
        """Requests of a short run at that rate: several times what is in flight, one of few numbers so that runs share their draws."""
        in_flight = min(self.in_flight, math.ceil(LOADED * rate * self.alone_e2e_s))
        least = max(MINIMUM_REQUESTS, BATCHES_PER_RUN * in_flight) / 2 * burst_factor(self.asked.process, self.asked.cv)
        least *= FOLLOWED if self.asked.sharing is not None and self.asked.sharing.follows else 1
        return MINIMUM_REQUESTS // 2 << math.ceil(math.log2(2 * least / MINIMUM_REQUESTS))

    def open(self, rate: float, requests: int, seed: int) -> Requests:
        """A run of an open loop at ``rate`` requests per second."""
        if self.shared is not None:
            return self._open_sharing(self.shared, rate, requests, seed)
        arrivals = OpenLoop(rate=rate, process=self.asked.process, cv=self.asked.cv)
        return self.serve(balanced_trace(self.workload(arrivals, requests), arrivals, seed))

    def measured(self, rate: float) -> Summary:
        """The metrics of a short run of an open loop, neither ramp nor drain."""
        return self.noted(rate, summarize(middle(self.open(rate, self.count(rate), self.asked.seed))))

    def noted(self, rate: float, summary: Summary) -> Summary:
        """The summary, its strain on the limits written down beside the rate."""
        self.trail[rate] = strain(summary, self.asked.slo)
        return summary

    def alone(self) -> Summary:
        """The metrics of a single client: what no load can beat. The run is made once."""
        if self._alone is None:
            self._alone = self._by_itself() if self.asked.sharing is None else self._alone_sharing(self.asked.sharing)
        return self._alone

    def _by_itself(self) -> Summary:
        equal = self.asked.pairs is None and self.asked.isl.kind == self.asked.osl.kind == "fixed"
        summary = summarize(self.closed(1, ALONE_EQUAL if equal else ALONE_REQUESTS))
        return self.noted(0.0 if self.asked.load == "open" else summary.requests_per_second, summary)

    def _open_sharing(self, load: SharedLoad, rate: float, requests: int, seed: int) -> Requests:
        """The same, without what came before the cache was warm, and after new conversations stopped coming."""
        warm = load.warm(rate)
        return load.counted(self.serve(load.trace(rate, requests + warm, seed)), rate, warm, requests)

    def _alone_sharing(self, sharing: Sharing) -> Summary:
        """The same with a cache that has seen what there is to be seen."""
        if sharing.recording is not None:
            trace = replayed(sharing, sharing.recording.mean_rps, self.asked.seed)
            record = self.serve(replace(trace, due_ps=trace.due_ps * 0 - 1, concurrency=1))
            warm = len(record) // 10
        else:
            prefixes = 0 if sharing.sessions is None else sharing.sessions.prefixes
            warm = min(SEEN * prefixes + ALONE_COLD, MINIMUM_REQUESTS)
            record = self.closed(1, warm + ALONE_REQUESTS)
        summary = summarize(after(record, warm))
        return self.noted(0.0 if self.asked.load == "open" else summary.requests_per_second, summary)

    def closed(self, clients: int, requests: int) -> Requests:
        """A run of a closed loop of ``clients``."""
        turnaround = client_turnaround_s(self.deployment)
        return self.under(ClosedLoop(concurrency=clients, turnaround_s=turnaround), requests, self.asked.seed)

    def under_clients(self, clients: int) -> Summary:
        """The metrics of a closed loop of ``clients``."""
        summary = summarize(self.closed(clients, max(ALONE_REQUESTS, CLOSED_ROUNDS * clients)))
        return self.noted(summary.requests_per_second, summary)

    def under(self, arrivals: Arrivals, requests: int, seed: int) -> Requests:
        """A run under any arrivals."""
        return self.serve(self.workload(arrivals, requests).trace(seed, stretch=True))

    def serve(self, trace: Trace, step: StepModel | None = None) -> Requests:
        """A run of given requests, split over the attention ranks, with the instance's step model or another."""
        ranks = self.deployment.parallelism.dp
        memory, sharing = self.memory, self.asked.sharing
        if sharing is not None and trace.contents is not None:
            tiers = sharing.tiers_of(self.deployment, memory)
            found = [
                run_recorded(part, step or self.step, self.knobs, memory.blocks, windows=memory.windows, most_steps=0, tiers=tiers)[0]
                for part in self._ranks(trace)
            ]
            return found[0] if ranks == 1 else pooled(found)
        parts = [run(part, step or self.step, self.knobs, memory.blocks, windows=memory.windows) for part in rank_traces(trace, ranks)]
        return parts[0] if ranks == 1 else pooled(parts)

    def _ranks(self, trace: Trace) -> list[Trace]:
        """What each attention rank gets; the turns of a conversation stay together."""
        ranks = self.deployment.parallelism.dp
        if ranks == 1 or trace.contents is None:
            return rank_traces(trace, ranks)
        return parts_of(trace, owners(trace, ranks, "session", self.asked.seed), ranks)

    def together(self, trace: Trace, instances: int, router: str) -> Requests:
        """A run of given requests on so many of the instances behind a router.

        The attention ranks of an instance are endpoints of their own to the router, as behind vLLM's external load balancing. One
        instance by itself gives them requests in turn (``serve``).
        """
        if instances == 1:
            return self.serve(trace)
        if trace.contents is not None and self.asked.sharing is not None:
            rule = shared_out_as(self.asked.sharing, router)
            each = parts_of(trace, owners(trace, instances, rule, self.asked.seed), instances)
            return pooled([self.serve(part) for part in each])
        memory = self.memory
        engine = Engine(self.step, self.knobs, memory.blocks, windows=memory.windows, seed=trace.seed).machine
        return run_fleet(trace, [engine] * (instances * self.deployment.parallelism.dp), router, seed=self.asked.seed).requests

    def recorded(self, rate: float, requests: int, most_steps: int) -> StepRecord:
        """The engine steps of an open loop at ``rate``, the first ``most_steps`` of one attention rank."""
        arrivals = OpenLoop(rate=rate, process=self.asked.process, cv=self.asked.cv)
        if self.shared is None:
            trace = self.workload(arrivals, requests).trace(self.asked.seed, stretch=True)
        else:
            trace = self.shared.trace(rate, requests, self.asked.seed)
        first, memory = self._ranks(trace)[0], self.memory
        return run_recorded(first, self.step, self.knobs, memory.blocks, windows=memory.windows, most_steps=most_steps)[1]

    def workload(self, arrivals: Simulated, requests: int) -> Workload:
        """The question's lengths under any arrivals."""
        asked, sharing = self.asked, self.asked.sharing
        if sharing is not None and sharing.sessions is not None and sharing.new is not None:
            return Workload(isl=sharing.new, osl=asked.osl, arrivals=arrivals, requests=requests, sessions=sharing.sessions)
        return Workload(isl=asked.isl, osl=asked.osl, arrivals=arrivals, requests=requests, pairs=asked.pairs)


def burst_factor(process: Process, cv: float) -> float:
    """How many times as many requests a run of bursty arrivals needs, to say as much as one of Poisson arrivals."""
    return min(max(1.0, (1.0 + cv * cv) / 2), MOST_BURST) if process == "gamma" else 1.0


def middle(requests: Requests) -> Requests:
    """The requests that arrived in the ``MEASURED`` part of the run; the gaps stay those of the whole run."""
    count = len(requests)
    rows = slice(int(MEASURED[0] * count), int(MEASURED[1] * count))
    columns = {f.name: getattr(requests, f.name)[rows] for f in fields(requests) if f.name not in ("gaps", "window_ns")}
    return replace(requests, **columns)
