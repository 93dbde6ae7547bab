"""One deployment of a plan: its pools, what it carries and how many of it are needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, fields, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from tonnage.plan.document import Shown
from tonnage.plan.fleet import AtPeak, Fleet, Standby
from tonnage.plan.limit import Bound, Load
from tonnage.results.metrics import Latencies
from tonnage.spec.deployment import EngineKnobs, Parallelism
from tonnage.spec.typed_values import strict


@strict
class Power:
    """Predicted power of the GPUs, in watts of one of them; hosts, fans and cooling are not in it
    (``perf.power``).
    """

    watts: float  # at the peak
    # low, high: between which a measurement is expected with a probability of 80 %
    low: float
    high: float
    # idle_watts, tdp_watts: without work, and at most
    idle_watts: float
    tdp_watts: float
    joules_per_output_token: float  # at the peak, of all GPUs of an instance
    # requests per second of one instance, from 0 on in rising order, and the watts of each of its
    # GPUs
    by_load: tuple[tuple[float, float], ...]

    def share_at(self, requests_per_second: float) -> float:
        """Watts over the highest at a load of one instance, between the loads of ``by_load`` on a
        straight line.
        """
        (low, below), *points = self.by_load
        for high, above in points:
            if requests_per_second <= high:
                return (
                    below + (above - below) * (requests_per_second - low) / (high - low)
                ) / self.tdp_watts
            low, below = high, above
        return below / self.tdp_watts


@strict
class GpuLimit:
    """A power limit below the board power of each GPU, or its locked clocks."""

    cap_watts: float | None  # the power limit; None where the clocks are locked
    board_watts: float | None  # without it; None where unknown
    clock: float  # share of its rate that arithmetic keeps


@strict
class Identity:
    """A deployment by name."""

    gpu: str  # catalog id
    precision: str  # number format, such as "fp8"
    # tp, pp, dp, ep: tensor-parallel and pipeline-parallel degree, data-parallel attention ranks,
    # expert-parallel degree
    tp: int
    pp: int = 1
    dp: int = 1
    ep: int = 1
    engine: str  # with its version and its speculative decoding, such as "vllm-0.32 + eagle k=3"
    # the range of versions that was simulated, such as "vllm-0.32"; "" where the engine was
    # measured
    engine_preset: str = ""

    @property
    def parallelism(self) -> Parallelism:
        """How an instance is split."""
        return Parallelism(tp=self.tp, pp=self.pp, dp=self.dp, ep=self.ep)

    @property
    def names(self) -> dict[str, Any]:
        """These names alone, by field, of a value that holds more."""
        return {part.name: getattr(self, part.name) for part in fields(Identity)}

    @property
    def identity(self) -> Identity:
        """The same as a value."""
        return Identity(**self.names)


# ``reserve`` is the CUDA context, communication buffers and CUDA graphs
MemoryUse = Literal[
    "weights", "drafter", "adapters", "encoder", "activations", "reserve", "kv_cache", "unused"
]


@strict
class MemoryPart:
    """One use of the memory of each GPU, in bytes, and as a share of all of it."""

    part: MemoryUse
    bytes_per_gpu: int
    share: float


Role = Literal["serve", "prefill", "decode"]


@strict
class Pool(Identity):
    """A number of instances of one deployment."""

    role: Role = "serve"  # "serve" does everything; "prefill" and "decode" share the work
    model: str  # catalog id
    system: str  # catalog id of the systems that the instances are in
    gpus_per_system: int  # GPUs in one of them
    knobs: EngineKnobs | None  # of the engine; None where a benchmark did not say them
    instances: int  # spare ones included
    # spare ones included; two pools on one kind of system are in the same ones, and both name all
    # of them
    systems: int
    # where the memory of each GPU goes; empty where it is not known
    memory: tuple[MemoryPart, ...] = ()
    # tokens that the KV cache of one instance holds; None where it is not known
    kv_tokens: int | None = None
    # the command that starts the engine of one instance, as an argument list; empty where no
    # command is known. What makes it a prefill or a decode instance is not in it: that depends on
    # what runs it, and ``tonnage deploy`` adds it.
    launch: tuple[str, ...] = ()
    # the configuration file that this command names ``plan.launch.FILE``, as nested values; empty
    # where it needs none
    launch_file: dict[str, Any] = field(default_factory=dict)

    @property
    def fleet(self) -> Fleet:
        """Its systems, and what an instance takes of them."""
        return Fleet(
            systems=self.systems,
            gpus_per_instance=self.parallelism.gpus,
            gpus_per_system=self.gpus_per_system,
        )


CONFIDENCE = 0.8  # the confidence that decides where none is requested

# the lowest and the highest that can be asked for: beyond, no held-out error says anything
CONFIDENCES = (0.5, 0.99)

BESIDE = (0.5, 0.8, 0.95)  # levels that a plan always names, next to the requested one

# A confidence above the asked one that takes more than this many times the systems is not reached:
# nobody would buy them
MOST_TIMES = 2

# other deployments that a first screen shows, and the times the GPUs of the choice beyond which one
# is no row of it
ROWS, FAR = 8, 8


def first_rows(gpus: Sequence[str], rows: int = ROWS) -> list[int]:
    """Places of ``rows`` deployments, in order: the first of every GPU other than that of the
    choice, which is ``gpus[0]``, then others.
    """
    order = sorted(range(len(gpus) - 1), key=lambda place: gpus[place + 1] in gpus[: place + 1])
    return sorted(order[:rows])


def percent_key(share: float) -> str:
    """A confidence as ``Confidence.systems`` names it: "80"."""
    return f"{100 * share:.4g}"


@strict
class Confidence:
    """The probability that the number of systems is enough."""

    # the requested confidence, as a share; the number of systems is the smallest that reaches it
    asked: float = CONFIDENCE
    # probability that this number of systems carries the peak inside the limits; None where it was
    # not looked for, as of deployments next to the choice
    meets: float | None
    # systems (spare ones included) that do with 50, 80 and 95 % confidence and with the asked one,
    # by percent; None where no number does, or only one that is more than ``MOST_TIMES`` the
    # plan's. Of deployments next to the choice only the one that decided is known.
    systems: dict[str, int | None]
    step_factors: dict[str, float]  # the factors on step times that stand for these
    # the metric whose held-out prediction errors these are: "ttft_ms", "itl_ms", "e2e_ms" or
    # "requests_s"
    metric: str

    @property
    def reached(self) -> bool:
        """Whether some number of systems reaches the asked confidence."""
        return self.systems.get(percent_key(self.asked)) is not None

    @property
    def counted(self) -> float | None:
        """The confidence that the systems are counted for: the asked one, else the highest below it
        that is reached; None without any.
        """
        below = (
            float(level) / 100
            for level, count in self.systems.items()
            if count is not None and float(level) < 100 * self.asked
        )
        return self.asked if self.reached else max(below, default=None)


T = TypeVar("T")


class Agreed(Generic[T]):
    """What every pool of a candidate has under the same name (``Pool`` describes it). Raises
    ValueError: the pools differ.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, candidate: Candidate | None, owner: type) -> T:
        if candidate is None:
            raise AttributeError(self.name)
        value: T = candidate.same(lambda pool: getattr(pool, self.name))
        return value


@strict
class Candidate(Shown):
    """One deployment that can carry the load, and how many of it are needed.

    It has one pool, as is usual, or two: prefill and decode. What its pools agree on can be read on
    the candidate itself, in Python and in JSON: everything of one pool; of two pools of one
    deployment all but the role. Figures of one instance are those of all instances over their
    number, so that they count instances of both pools alike.
    """

    DERIVED: ClassVar[tuple[str, ...]] = (
        *(
            "gpu",
            "system",
            "gpus_per_system",
            "precision",
            "tp",
            "pp",
            "dp",
            "ep",
            "engine",
            "engine_preset",
            "knobs",
        ),
        *("instances", "systems", "memory", "kv_tokens", "launch", "launch_file"),
    )

    WHERE_ASKED = ("power", "gpu_limit")

    # what is deployed; one pool, or one for prefill and one for decode. Pools on one kind of system
    # are in the same systems.
    pools: tuple[Pool, ...]
    systems_exact: float  # systems at the asked confidence, without rounding and spare
    # highest load of one instance inside the limits; likewise per GPU and per 8 GPUs
    requests_per_second_per_instance: float
    requests_per_second_per_gpu: float
    requests_per_second_per_8_gpus: float
    output_tokens_per_second_per_8_gpus: float | None  # at that load; None where not measured
    saturation_requests_per_second_per_instance: float  # what it completes when always busy
    # requests in flight at the highest load; None where not measured
    concurrency_per_instance: float | None
    # load at the peak over what the systems carry inside the limits, spare ones left out
    utilisation: float
    # how much more than the peak they complete when always busy, as a share
    headroom_to_saturation: float
    # ttft_ms, itl_ms, tpot_ms, e2e_ms: latencies at the highest load, in milliseconds; of a job
    # only the time per token is known, since every request waits in the queue of the whole
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
    binds: Bound
    load: Load  # how requests reach an instance at that load
    # which parts of the prediction rest on something other than measurements of this GPU and
    # engine, each with its source
    marks: tuple[str, ...] = ()
    # accuracy_impact, calibration: published findings on the number format: "very low" to "high",
    # and how long; "" where nothing is
    accuracy_impact: str = ""
    calibration: str = ""
    # how sure the number of systems is; None where nothing was predicted
    confidence: Confidence | None = None
    # what the number of systems counts on: the load of one instance inside the limits when steps
    # take as much longer as the asked confidence allows for; None where nothing was predicted
    sized_requests_per_second_per_instance: float | None = None
    # what requests see at the asked peak; None where there is none (a job, a closed loop, measured
    # points)
    at_peak: AtPeak | None = None
    standby: Standby | None = None  # standby systems for failures; None where none was requested
    # whether the whole fleet was simulated at this number of systems; otherwise the number is an
    # estimate from the runs of one instance, which agrees with the check within a few percent
    checked: bool = False
    # of the GPUs; None where it is not predicted (a job, two pools, measured points, an unknown
    # TDP)
    power: Power | None = None
    # the requested power limit or clock of each GPU; None where it has its own
    gpu_limit: GpuLimit | None = None

    def derived(self) -> tuple[str, ...]:
        """What adds up over the pools, and what they agree on."""
        added = {"instances", "systems"}
        first = self.pools[0] if self.pools else None
        agreed = {
            name
            for name in self.DERIVED
            if first and all(getattr(pool, name) == getattr(first, name) for pool in self.pools)
        }
        return tuple(name for name in self.DERIVED if name in added | agreed)

    @property
    def pool(self) -> Pool:
        """The only pool. Raises ValueError: there are several."""
        if len(self.pools) != 1:
            raise ValueError(
                f"the deployment has {len(self.pools)} pools; look at each of them in pools"
            )
        return self.pools[0]

    def same(self, read: Callable[[Pool], T]) -> T:
        """What is read of every pool, which they agree on. Raises ValueError: the pools differ."""
        first, *rest = map(read, self.pools)
        if any(reading != first for reading in rest):
            raise ValueError(
                f"the {len(self.pools)} pools of the deployment differ; look at each of them in"
                " pools"
            )
        return first

    @property
    def ratio(self) -> str:
        """Instances of each of several pools, such as "3:5"; "" for one pool."""
        return ":".join(str(pool.instances) for pool in self.pools) if len(self.pools) > 1 else ""

    @property
    def fleet(self) -> Fleet:
        """Its systems, and what an instance of any pool takes of them."""
        return Fleet(
            systems=self.systems,
            gpus_per_instance=self.parallelism.gpus,
            gpus_per_system=self.gpus_per_system,
        )

    identity = Agreed[Identity]()
    parallelism = Agreed[Parallelism]()
    gpu = Agreed[str]()
    system = Agreed[str]()
    gpus_per_system = Agreed[int]()
    precision = Agreed[str]()
    tp = Agreed[int]()
    pp = Agreed[int]()
    dp = Agreed[int]()
    ep = Agreed[int]()
    engine = Agreed[str]()
    engine_preset = Agreed[str]()
    knobs = Agreed[EngineKnobs | None]()
    memory = Agreed[tuple[MemoryPart, ...]]()
    kv_tokens = Agreed[int | None]()
    launch = Agreed[tuple[str, ...]]()
    launch_file = Agreed[dict[str, Any]]()

    @property
    def instances(self) -> int:
        """Instances of all pools, spare ones included."""
        return sum(pool.instances for pool in self.pools)

    @property
    def systems(self) -> int:
        """Whole systems of all pools, spare ones included; pools on one kind of system share
        them.
        """
        return sum(pool.systems for pool in self._shared())

    @property
    def gpus(self) -> int:
        """GPUs bought."""
        return sum(pool.fleet.gpus for pool in self._shared())

    def _shared(self) -> list[Pool]:
        """For each kind of system, the pool with the most of them; the other pools are housed there
        too.
        """
        largest: dict[str, Pool] = {}
        for pool in self.pools:
            largest[pool.system] = max(
                largest.get(pool.system, pool), pool, key=lambda candidate: candidate.systems
            )
        return list(largest.values())

    @property
    def sized_rate(self) -> float:
        """Requests per second of one instance that the number of systems counts on."""
        sized = self.sized_requests_per_second_per_instance
        return self.requests_per_second_per_instance if sized is None else sized

    def on(self, *, systems: int, instances: int) -> Candidate:
        """The same with another number of systems, and of instances, in the shares of its pools."""
        if len(self.pools) == 1:
            return replace(self, pools=(replace(self.pool, systems=systems, instances=instances),))
        first, last = self.pools
        prefill = min(max(round(instances * first.instances / self.instances), 1), instances - 1)
        counts = (prefill, instances - prefill)
        return replace(
            self,
            pools=tuple(
                replace(pool, systems=systems, instances=n)
                for pool, n in zip((first, last), counts, strict=True)
            ),
        )


def mean_latency(candidate: Candidate) -> float:
    """Mean E2E in milliseconds, mean TTFT where E2E was not measured, infinite where neither was.

    At the asked peak, so that deployments are compared at the same load; at the highest load inside
    the limits where no peak is known.
    """
    at = candidate if candidate.at_peak is None else candidate.at_peak
    value = at.ttft_ms.mean if at.e2e_ms.mean is None else at.e2e_ms.mean
    return math.inf if value is None else value


def by_gpus_needed(candidate: Candidate) -> tuple[bool, float, float, float]:
    """Sort key: first whether one reaches the confidence; then fewest whole GPUs, fewest exactly,
    lowest latency.
    """
    per_system, sure = candidate.gpus / candidate.systems, candidate.confidence
    return (
        sure is not None and not sure.reached,
        candidate.gpus,
        candidate.systems_exact * per_system,
        mean_latency(candidate),
    )


Mark = Literal["peak", "limit", ""]


@strict
class CurvePoint:
    """What requests see at one load."""

    # "peak" for the load of the plan at its peak, "limit" for the highest inside the limits,
    # otherwise empty
    mark: Mark
    # requests_per_second_per_instance, requests_per_second_per_8_gpus,
    # output_tokens_per_second_per_8_gpus: the load
    requests_per_second_per_instance: float
    requests_per_second_per_8_gpus: float
    output_tokens_per_second_per_8_gpus: float
    concurrency_per_instance: float | None  # requests in flight, mean; None where undefined
    share_of_saturation: float  # the load over what the instance completes when always busy
    inside_limits: bool  # whether every limit holds there and at every lower load
    # ttft_ms, itl_ms, tpot_ms, e2e_ms: latencies in milliseconds
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
