"""The answer of a sizing: the choice, what it rests on, what else was possible, why the rest was
not, and what it costs.

A plan is one JSON object; later commands read it and nothing else carries a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tonnage.errors import InputError
from tonnage.notebook import InNotebooks
from tonnage.plan.candidate import Candidate, CurvePoint, Identity, mean_latency
from tonnage.plan.cost import Cost
from tonnage.plan.demand import (
    Demand,
    Existing,
    Growth,
    HeldSessions,
    JobDone,
    Regions,
    SessionTiers,
)
from tonnage.plan.document import Saved, read_back
from tonnage.plan.fleet import Autoscaling, BehindRouter, FleetCheck
from tonnage.plan.horizon import Horizon
from tonnage.plan.limit import Aim, Bound, Limit, LimitUse
from tonnage.plan.mixed import Mixed
from tonnage.plan.notes import ModelRead, Note, Warning
from tonnage.plan.reason import Reachable, Rejected
from tonnage.plan.sensitivity import (
    Beyond,
    Measurement,
    NarrowCache,
    ParetoPoint,
    PercentileAnswer,
    PrefixCache,
    Provenance,
    Sensitivity,
    Unreached,
)
from tonnage.results.metrics import TtftParts
from tonnage.spec.catalog import keep
from tonnage.spec.scenario import Mode, Scenario
from tonnage.spec.typed_values import strict
from tonnage.spec.workload import Process

# What the time of an engine step goes into, by the name of the term
TERMS = {
    "compute": "arithmetic of the layers' matrices, and activations",
    "bandwidth": "reading the weights",
    "attention": "attention of the prompts",
    "kv": "reading the KV cache",
    "head": "output head",
    "link": "all-reduces and hops between GPUs",
    "host": "scheduling and launching on the host",
    "drafter": "guessing ahead (speculative decoding)",
    "table": "step times of another step model that depend on the tokens of a step alone",
}


@strict
class StepTerm:
    """One term of the mean engine step."""

    term: str  # one of ``TERMS``
    seconds: float  # of a step, mean
    share: float  # of the step


@strict
class Explanation:
    """The chosen deployment at its highest load inside the limits."""

    requests_per_second_per_instance: float
    step_seconds: float  # mean engine step
    # prefill_tokens, decode_sequences, context_tokens: means of a step
    prefill_tokens: float
    decode_sequences: float
    context_tokens: float
    terms: tuple[StepTerm, ...]  # parts of the mean step, largest first
    binds: str  # the term that takes most
    limits: tuple[LimitUse, ...]
    binding_limit: Bound
    front_end_busy: float  # share of its time that the front end works; 0 for a job, which has none
    ttft: tuple[TtftParts, ...] = ()  # where the mean TTFT goes, and its p95; empty for a job


@strict
class OtherServing:
    """What the same question is answered with where prefill and decode are kept apart, or where
    they are not.
    """

    deployment: Identity
    ratio: str  # prefill to decode instances, such as "3:5"; "" where instances do both
    instances: int  # of both pools, spare ones included
    system: str  # what is bought, a catalog id
    # systems, gpus: how many, spare ones included
    systems: int
    gpus: int
    systems_exact: float  # before rounding up, without spare
    saved: int  # GPUs that the plan's choice has more than this; negative where it has fewer


@strict
class RunnerUp:
    """What one would run on GPUs of another type: the cheapest of them, or where prices are not
    known the fewest GPUs.
    """

    deployment: Identity
    system: str  # what is bought, a catalog id
    # systems, gpus: how many, spare ones included
    systems: int
    gpus: int
    systems_exact: float  # before rounding up, without spare
    # of the cheapest way to own or rent them; None where no price is known
    usd_per_year: float | None
    # what that is more than the cheapest way to own or rent the choice, negative where it is less;
    # None likewise
    more_usd_per_year: float | None


@strict
class Understood:
    """The question as the plan understood it: names resolved, defaults filled in."""

    model: str  # catalog id
    # gpus, precisions, tps, pps, dps, eps, engines: what might be combined; an empty list of
    # degrees left them to the search
    gpus: tuple[str, ...]
    precisions: tuple[str, ...]
    tps: tuple[int, ...]
    pps: tuple[int, ...] = ()
    dps: tuple[int, ...] = ()
    eps: tuple[int, ...] = ()
    engines: tuple[str, ...]
    # isl, osl: prompt and output lengths, in the form in which they are written; ``mean_isl`` and
    # ``mean_osl`` in tokens
    isl: str
    osl: str
    mean_isl: float
    mean_osl: float
    # latency limits as asked; ``limits_that_count`` has the ones of this mode
    limits: tuple[Limit, ...]
    limits_that_count: tuple[Limit, ...]
    mode: Mode | None = None  # who waits for what; None for a plan from measured points
    step_factor: float = 1.0  # on the time of every step; 1 for the model as it is
    step_model: str = ""  # whose step times: "fitted" or a name; "" for measured points
    # "open", "closed", or "measured" where a benchmark decides
    load: Literal["open", "closed", "measured"]
    # arrivals, cv: process of the open loop, "trace" for a recording, and its coefficient of
    # variation; None for measured points
    arrivals: Process | Literal["trace"] | None = None
    cv: float | None = None
    spare_systems: int = 0  # added to what the load needs
    # with which the number of systems is to meet the limits, as a share; None for measured points
    confidence: float | None = None
    seed: int | None = None  # of every random draw; None for measured points
    speculation: str = ""  # speculative decoding that was tried as well; "" for none
    router: str = ""  # what gives requests to the instances; "" for measured points
    # what prompts share; "" for nothing. ``mean_isl`` is then that of whole prompts, and ``isl``
    # what was requested.
    shares: str = ""
    benchmarks: str = ""  # the file of measured points; "" where the plan was simulated


SCHEMA = "tonnage-plan/4"

# GPUs of the candidate with the lowest latency, at most, in times those of the choice
MOST_GPUS = 2


@strict
class Plan(Saved, InNotebooks):
    """The whole answer to a sizing question."""

    SCHEMA: ClassVar[str] = SCHEMA
    DERIVED: ClassVar[tuple[str, ...]] = ("schema", "choice", "choices")
    WHERE_ASKED: ClassVar[tuple[str, ...]] = (
        "autoscaling",
        "growth",
        "regions",
        "pools_instead",
        "together_instead",
        "sessions",
        "session_tiers",
        "narrow_cache",
        "mixed",
        "horizon",
    )

    scenario: Understood  # the question as it was understood
    # the question as it was written; None where it was not written as a scenario
    asked: Scenario | None = None
    demand: Demand  # where the peak came from
    candidates: tuple[Candidate, ...]  # every deployment inside the limits, best first
    rejected: tuple[Rejected, ...]  # every other one
    # how near the deployments come where none meets the limits; None where one does, or none fits
    reachable: Reachable | None = None
    notes: tuple[Note, ...]  # what a reader must know about the numbers
    # the course's percentile sizing next to the simulated one; None unless asked
    percentile_answer: PercentileAnswer | None = None
    provenance: Provenance  # version, coefficients, data, seed, command
    # what the choice does at every load up to saturation; empty where nothing was chosen or
    # simulated
    curve: tuple[CurvePoint, ...] = ()
    pareto: tuple[ParetoPoint, ...] = ()  # every candidate as GPUs and cost against latency
    explain: Explanation | None = None  # why the choice is where it is
    sensitivity: Sensitivity | None = None  # what would change the answer
    warnings: tuple[Warning, ...] = ()  # rules of thumb that the answer runs against
    # where the question leaves what was measured; empty where it does not, or nothing was chosen or
    # predicted
    beyond: tuple[Beyond, ...] = ()
    fleet_check: FleetCheck | None = None  # the whole fleet simulated at its peak
    # the confidence that no number of the chosen systems reaches, and what would; None where they
    # reach every one that is named
    tail: Unreached | None = None
    # the same fleet behind its router and behind others; empty where one instance serves, or the
    # load is no open one
    routers: tuple[BehindRouter, ...] = ()
    # what the caches of the choice find of its prompts; None where they share nothing, or nothing
    # was chosen
    prefix_cache: PrefixCache | None = None
    # when a job is done on the choice; None where it asks for no job, or nothing was chosen
    job: JobDone | None = None
    existing: Existing | None = None  # what systems that exist carry; None unless asked
    cost: Cost | None = None  # of the choice; None where nothing was chosen
    aim: Aim | None = None  # objective and maxima; None without one, and the fewest GPUs are chosen
    # the best deployment on another GPU type; None where none was tried or meets the limits
    runner_up: RunnerUp | None = None
    # what measuring the choice would buy; None where that cannot be said
    measurement: Measurement | None = None
    # the answer of the scenario's own benchmarks; None where it names none
    measured: Measured | None = None
    # by which rule the choice is scaled over its hours; None, and not in the JSON, unless asked
    autoscaling: Autoscaling | None = None
    # the best deployment in two pools, prefill and decode, where it needs fewer GPUs than the
    # choice, whose instances do both; None, and not in the JSON, where none does, or none was
    # looked for
    pools_instead: OtherServing | None = None
    # the best deployment whose instances do both, where the choice has two pools; None, and not in
    # the JSON, elsewhere and where none meets the limits at the asked confidence
    together_instead: OtherServing | None = None
    # the same question with the KV cache in FP8, where that saves systems; None, and not in the
    # JSON, elsewhere
    narrow_cache: NarrowCache | None = None
    # how many systems of the choice a growing load takes later; None, and not in the JSON, unless
    # asked; of systems that exist ``existing`` says it
    growth: Growth | None = None
    # the whole fleet, what exists and what is added; None, and not in the JSON, unless both systems
    # and a load were given
    mixed: Mixed | None = None
    # what is bought or rented month by month, by several ways; None, and not in the JSON, unless
    # asked, or nothing was chosen
    horizon: Horizon | None = None
    # the regions whose hours the profile adds up; None, and not in the JSON, where it has none
    regions: Regions | None = None
    # recorded sessions on the choice; None, and not in the JSON, where the load is none
    sessions: HeldSessions | None = None
    # the same at other limits, and what becomes of sessions that wait; None, and not in the JSON,
    # unless asked
    session_tiers: SessionTiers | None = None

    @property
    def choice(self) -> Candidate | None:
        """The candidate that needs the fewest GPUs, or is the best by what the plan aims at; None
        when nothing meets the limits.
        """
        return self.candidates[0] if self.candidates else None

    @property
    def choices(self) -> dict[str, Candidate | None]:
        """The best candidates by latency and by throughput."""
        return {
            "latency_optimal": self.latency_optimal,
            "throughput_optimal": self.throughput_optimal,
        }

    @property
    def throughput_optimal(self) -> Candidate | None:
        """The candidate with the most requests per second per GPU."""
        return max(self.candidates, key=lambda c: c.requests_per_second_per_gpu, default=None)

    @property
    def latency_optimal(self) -> Candidate | None:
        """The candidate with the lowest mean E2E at the asked load (mean TTFT where E2E was not
        measured).

        Of those on at most ``MOST_GPUS`` times the GPUs of the choice: any load is fast on enough
        of them.
        """
        near = (c for c in self.candidates if c.gpus <= MOST_GPUS * self.candidates[0].gpus)
        return min(near, key=mean_latency, default=None)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Plan:
        """The plan of a JSON object. Raises InputError, InputErrors."""
        _check_schema(document)
        plan = read_back(cls, document, "plan")
        for note in plan.notes:
            if isinstance(note, ModelRead):
                keep(note.model)
        return plan


@strict
class Measured:
    """The answer of the scenario's own benchmarks, and the prediction to hold next to it."""

    plan: Plan  # from the measured points
    # candidates of the same question in a closed loop, the way that benchmarks are run
    predicted: tuple[Candidate, ...] = ()


def _check_schema(document: Mapping[str, Any]) -> None:
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if schema == SCHEMA:
        return
    if isinstance(schema, str) and schema.startswith("tonnage-plan/"):
        raise InputError(
            f"schema: {schema[:40]} was written by another version of tonnage, this one reads"
            f" {SCHEMA}; make the plan again"
        )
    raise InputError(
        f"schema: no plan; give the JSON that tonnage size --json wrote, whose schema is {SCHEMA}"
    )
