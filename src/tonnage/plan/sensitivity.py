"""What would change the answer, what measuring would buy, and where the numbers come from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, ClassVar, Literal

from tonnage.plan.candidate import Candidate, Identity, mean_latency, percent_key
from tonnage.plan.document import Shown, Tagged
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.reason import Reason
from tonnage.spec.calibration import Calibration
from tonnage.spec.typed_values import strict
from tonnage.spec.workload import Process

# Input length, output length, requests per second, and the time of a step (an error of the model)
Input = Literal["isl", "osl", "rate", "step_time"]


@strict
class Changed:
    """The answer with one input changed."""

    change: float  # relative, such as −0.2
    systems: int | None  # bought then; None where nothing meets the limits
    systems_exact: float | None  # without rounding and spare; None as above
    deployment: Identity | None  # what is chosen then; None as above
    gpus: int = 0  # of these systems; 0 as above
    reason: Reason | None  # why nothing meets the limits; otherwise None


@strict
class Swing:
    """One input, and the answers where it is lower and higher."""

    input: Input
    low: Changed
    high: Changed


@strict
class Relaxed:
    """The cheapest limit to relax: by the smallest factor that saves a system."""

    limit: Limit
    to_ms: float  # the limit as relaxed, in milliseconds
    systems: int  # needed then
    saved: int  # systems fewer
    gpus: int = 0  # of these systems


@strict
class OtherSpread:
    """The answer where single lengths vary in another way around the same means."""

    # "exact", a share such as "20%", or the kind of recorded traffic that they vary as much as,
    # such as "chat"
    spread: str
    # isl, osl: the lengths then
    isl: str
    osl: str
    answer: Changed


@strict
class Sensitivity:
    """The changes of the inputs that would change the answer."""

    # systems, systems_exact: of the plan itself
    systems: int
    systems_exact: float
    swings: tuple[Swing, ...]  # one per input
    relaxed: Relaxed | None  # the cheapest relaxed limit that saves a system; None where none does
    spreads: tuple[OtherSpread, ...] = ()  # of lengths whose spread is an assumption


@strict
class CacheLoss:
    """Loss of score with a KV cache in FP8, relative to 16 bits, in per cent."""

    benchmark: str
    # least, most: of the models that publish it
    least: float
    most: float


@strict
class NarrowCache:
    """The answer to the same question with the KV cache of the chosen format in FP8, where that
    saves systems.
    """

    deployment: Identity
    system: str
    times: float  # tokens of an instance's cache in FP8 over its tokens in 16 bits, of the choice
    # systems, gpus: whole systems with spare ones
    systems: int
    systems_exact: float  # without rounding and spare
    gpus: int
    losses: tuple[CacheLoss, ...]
    source: str  # of the losses


@strict
class PercentileAnswer:
    """A percentile of the arrivals in one second over the throughput of a benchmark, and what the
    simulation says instead.
    """

    percentile: float  # of the arrivals in one second
    # mean_requests_per_second, peak_requests_per_second: the mean of the time that is sized for,
    # such as the working hours, which is the rate that is simulated; and that percentile of its
    # arrivals
    mean_requests_per_second: float
    peak_requests_per_second: float
    # requests_per_second_per_instance, concurrency_per_instance: of a closed loop inside the limits
    requests_per_second_per_instance: float
    concurrency_per_instance: float
    # systems_exact, systems: by the percentile way
    systems_exact: float
    systems: int
    # simulated_systems_exact, simulated_systems: by the simulation, which decides
    simulated_systems_exact: float
    simulated_systems: int
    # process, cv: of the simulated arrivals; cv is None where they are not gamma
    process: Process
    cv: float | None = None


@strict
class PrefixCache:
    """The choice with its prefix caches, at the asked peak."""

    shares: str  # what prompts share, in words
    # share of the prompt tokens that come from the caches of the fleet, behind the router of the
    # plan
    hit_rate: float
    router: str  # that router, a name of ``simulator.router``
    # the router by whose rule requests were shared out in the simulation: it finds as much of the
    # prompts, or less
    shared_out_as: str
    instances: int
    # how many of them were simulated for the hit rate, with their share of the load
    simulated_instances: int
    # the share of one instance by itself, at the highest load inside the limits
    one_instance: float
    # one that treats conversations and prompts the other way; "" where there is one instance, or it
    # makes no difference
    other_router: str = ""
    other_hit_rate: float | None = None  # the hit rate behind it; None where there is none
    # systems, spare ones included, that the same deployment would take without a prefix cache; None
    # where no number would do
    without_systems: int | None = None
    # what an instance would carry without it; None where no load is inside the limits
    without_requests_per_second_per_instance: float | None = None


@strict
class ParetoPoint(Identity):
    """One candidate, in the order of ``Plan.candidates``."""

    # systems, gpus: bought for the peak
    systems: int
    gpus: int
    cost_per_year: float | None  # in USD; None where it is not known
    # ttft_ms, e2e_ms: means in milliseconds at the asked peak, or at the highest load of the
    # candidate inside the limits where no peak is known; None where not measured
    ttft_ms: float | None
    e2e_ms: float | None
    # no other candidate has at most as many GPUs and a lower mean E2E (TTFT where E2E was not
    # measured)
    front_gpus: bool
    front_cost: bool  # the same with cost per year in place of GPUs; False where cost is not known
    chosen: bool  # whether it is the plan's choice


def pareto(
    candidates: Sequence[Candidate], costs: Mapping[int, float] | None = None
) -> tuple[ParetoPoint, ...]:
    """Every candidate with its place on the two fronts."""
    cost_of = costs or {}
    latency = [mean_latency(c) for c in candidates]
    by_gpus = _front([(float(c.gpus), late) for c, late in zip(candidates, latency, strict=True)])
    by_cost = _front([(cost_of.get(i, math.inf), late) for i, late in enumerate(latency)])
    return tuple(
        ParetoPoint(
            **c.identity.names,
            systems=c.systems,
            gpus=c.gpus,
            cost_per_year=cost_of.get(i),
            ttft_ms=(c.at_peak or c).ttft_ms.mean,
            e2e_ms=(c.at_peak or c).e2e_ms.mean,
            front_gpus=i in by_gpus,
            front_cost=i in by_cost and i in cost_of,
            chosen=i == 0,
        )
        for i, c in enumerate(candidates)
    )


def _front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Places of the points that no other beats on one number without losing on the other; of
    equals, the first.
    """
    front: set[int] = set()
    best = math.inf
    for index in sorted(range(len(points)), key=lambda i: (*points[i], i)):
        if math.isfinite(points[index][0]) and points[index][1] < best:
            best = points[index][1]
            front.add(index)
    return front


@strict
class OtherSystems:
    """Another deployment that reaches the confidence; ``systems``, each a ``system``, and ``gpus``
    are whole systems with spare ones.
    """

    deployment: Identity
    system: str
    systems: int
    gpus: int


@strict
class RelaxedLimit:
    """One limit, relaxed to ``to_ms`` milliseconds, and what then reaches the confidence; systems
    and GPUs as of ``OtherSystems``.
    """

    limit: Limit
    to_ms: float
    system: str
    systems: int
    gpus: int


@strict
class Unreached:
    """A confidence that no number of the chosen systems reaches, or only an absurd one."""

    confidence: float  # as a share
    step_factor: float  # how many times as long as predicted steps may take for it
    # the limit that a single client then comes nearest to, and the value there: above the limit it
    # breaks at any load. None without limits.
    alone: Breach | None
    other: OtherSystems | None  # what reaches it instead; None where nothing requested does
    # the limit that would have to be looser for it; None where that does not help
    relaxed: RelaxedLimit | None


# What the commands call the server, the folder of the runs, the file of this plan and the file of
# the calibration
SERVER, FOLDER, PLAN, CALIBRATED = "127.0.0.1:8000", "measured", "plan.json", "calibrated.json"

LEAST_GAIN = 0.05  # systems that have to be saved, on average, for a measurement to gain anything


@strict
class Sweep:
    """Loads of equal lengths, which one benchmark measures one after another."""

    # isl, osl: tokens of each prompt and output
    isl: int
    osl: int
    concurrency: tuple[int, ...]  # clients of each closed loop
    seconds: int  # how long each of them sends


@strict
class Measurement(Shown):
    """Points of the chosen deployment to measure and calibrate on, and the systems that the load
    takes afterwards.
    """

    DERIVED: ClassVar[tuple[str, ...]] = ("points", "bench", "calibrate")

    model: str  # name by which the server knows it
    confidence: float  # requested, as a share
    sweeps: tuple[Sweep, ...]  # the points, one benchmark for each pair of lengths
    seconds: float  # that they take of one system, the start of an instance included
    # share of the variance of the deciding prediction that the points cannot tell, as far as a
    # calibration can tell it at all
    left: float
    # that do with each confidence now, by percent; spare and standby ones included. None where no
    # number does.
    systems: dict[str, int | None]
    # the same after the calibration, where it finds the deployment as predicted
    after: dict[str, int | None]
    # mean number after the calibration at the requested confidence, over what it may find; None
    # where no number does now
    expected_systems: float | None
    usd: float | None = None  # what these seconds of a system cost; None without a price
    saved_usd_per_year: float | None = None  # mean saving, less ``usd``; None without a price

    @property
    def points(self) -> int:
        """How many loads are measured."""
        return sum(len(sweep.concurrency) for sweep in self.sweeps)

    @property
    def now(self) -> int | None:
        """Systems at the requested confidence; None where no number reaches it."""
        return self.systems.get(percent_key(self.confidence))

    @property
    def saved_systems(self) -> float:
        """Systems that are saved on average; 0 where that is not known."""
        return (
            0.0
            if self.now is None or self.expected_systems is None
            else self.now - self.expected_systems
        )

    @property
    def narrows(self) -> bool:
        """Whether it lowers the number of systems at any confidence, or on average."""
        return self.gains or any(
            self.after.get(level) != count for level, count in self.systems.items()
        )

    @property
    def gains(self) -> bool:
        """Whether the measurement saves more than it costs, on average."""
        return self.saved_systems >= LEAST_GAIN and (
            self.saved_usd_per_year is None or self.saved_usd_per_year > 0
        )

    @property
    def bench(self) -> tuple[tuple[str, ...], ...]:
        """The commands that measure the points, as argument lists."""
        return tuple(
            (
                *(
                    "tonnage",
                    "bench",
                    "--url",
                    SERVER,
                    "--model",
                    self.model,
                    "--endpoint-type",
                    "completions",
                ),
                *(
                    "--isl",
                    str(sweep.isl),
                    "--osl",
                    str(sweep.osl),
                    "--concurrency",
                    ",".join(map(str, sweep.concurrency)),
                ),
                *(
                    "--benchmark-duration",
                    f"{sweep.seconds}s",
                    "--artifact-dir",
                    f"{FOLDER}/{sweep.isl}-{sweep.osl}",
                ),
            )
            for sweep in self.sweeps
        )

    @property
    def calibrate(self) -> tuple[str, ...]:
        """The command that calibrates on them, as an argument list; sizing takes its file as
        coefficients.
        """
        return ("tonnage", "calibrate", FOLDER, "--plan", PLAN, "--output", CALIBRATED)


@strict
class Provenance:
    """Version, coefficients, data, and the command."""

    tonnage: str
    # source of the fitted terms by engine preset; empty where nothing was simulated
    coefficients: dict[str, str] = field(default_factory=dict)
    # the file of measured points that the plan rests on; "" where it was simulated
    benchmarks: str = ""
    sources: tuple[str, ...] = ()  # what that file says of its points, each once
    seed: int | None = None  # of every random draw; None where nothing was simulated
    # the user's factors on the fitted terms; None for the terms as shipped
    calibration: Calibration | None = None
    # whose step times were used in place of the fitted terms; "" for the fitted ones
    step_model: str = ""
    command: str = ""  # as it was typed; "" where the plan was not made by the command
    date: str = ""  # the day on which it was made, as YYYY-MM-DD; "" where it is not known

    @property
    def simulated(self) -> bool:
        """Whether the plan was simulated; otherwise it was read from measured points."""
        return not self.benchmarks


@strict
class Unmeasured:
    """A part of the choice of which the fit had no row, or too few."""

    # an "architecture" that is not known, a "model", a "gpu" (in as many bits), an "engine" (on the
    # GPU ``on``), a kind of "layers" in the engine ``on``, a "format" of weights, "step-times" from
    # elsewhere, "ranks" of attention or of experts in the engine ``on``, a "pipeline",
    # "speculation", "prefix-caching", "adapters" or "images"
    code: Literal[
        "architecture",
        "model",
        "gpu",
        "engine",
        "layers",
        "format",
        "step-times",
        "ranks",
        "pipeline",
        "speculation",
        "prefix-caching",
        "adapters",
        "images",
    ]
    name: str  # its name in the plan, such as "kimi-k3"
    # the GPU or the engine with which it was not measured; "" where it was not measured at all
    on: str = ""
    # the width of its arithmetic where the GPU was measured only in another width; None elsewhere
    bits: int | None = None
    rows: int = 0  # the rows that there are, fewer than the fit needs
    nearest: str = ""  # the nearest measured one; "" where nothing is near


@strict
class OutOfRange:
    """A length, a load or a size of an instance beyond those of the measured rows of this engine
    and kind of model.
    """

    # "isl", "osl" and "context" in tokens, "in-flight" in requests that an attention rank holds at
    # once, "gpus" of an instance
    code: Literal["isl", "osl", "context", "in-flight", "gpus"]
    # that of the question or the choice: the mean, or the 95th percentile where ``tail`` is true
    value: float
    # least, most: the measured range; ``least`` is None where it has no lower end
    least: int | None = None
    most: int
    tail: bool = False  # whether the mean is inside the range and the 95th percentile outside


@strict
class OpenLoopNearSaturation:
    """The peak is so near saturation that a typical error of step times makes queues grow."""

    share: float  # load at the peak over the saturation of the instances
    times: float  # factor on p95 TTFT if steps take longer by the typical error
    below: float  # the share of saturation up to which that factor is at most ``times_below``
    times_below: float
    code: Literal["open-loop-near-saturation"] = "open-loop-near-saturation"


@strict
class ClosedLoopNearSaturation:
    """The clients keep the instances so busy that the errors of predictions are larger."""

    share: float  # load over the saturation of the instances
    times: float  # held-out errors of p95 TTFT there over those below the share ``below``
    below: float
    code: Literal["closed-loop-near-saturation"] = "closed-loop-near-saturation"


Beyond = Annotated[
    Unmeasured | OutOfRange | OpenLoopNearSaturation | ClosedLoopNearSaturation, Tagged("code")
]
