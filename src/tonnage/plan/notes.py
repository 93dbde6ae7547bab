"""What a reader must know about the numbers of a plan: a code, and its values."""

from __future__ import annotations

from typing import Annotated, Literal

from tonnage.plan.document import Tagged
from tonnage.plan.limit import Limit
from tonnage.spec.model import Model
from tonnage.spec.prices import Figure
from tonnage.spec.scenario import Mode, UseCase
from tonnage.spec.typed_values import strict

Which = Literal["isl", "osl"]
Part = Literal["system_prompt", "retrieved", "history", "images"]


@strict
class DefaultPart:
    """A part of the prompt that a use case set, as it is written: "5x400"."""

    part: Part | Literal["shared_prefix"]
    written: str


@strict
class UseCaseDefaults:
    """The defaults that a use case filled in; None or empty where it filled in nothing."""

    use_case: UseCase
    mode: Mode | None = None
    isl: str = ""
    osl: str = ""
    limits: tuple[Limit, ...] = ()
    # of the prompt, where the asker named others of them; ``isl`` is then the question alone
    parts: tuple[DefaultPart, ...] = ()
    code: Literal["use-case-defaults"] = "use-case-defaults"


@strict
class LengthInWords:
    """A length that was written in words: ``which`` is "isl" or "osl", ``tokens`` the mean that it
    came to.
    """

    which: Which
    written: str
    tokens: float
    words_per_token: float
    code: Literal["length-in-words"] = "length-in-words"


@strict
class LengthInCharacters:
    """A length that was written in characters: ``which`` is "isl" or "osl", ``tokens`` the mean
    that it came to.
    """

    which: Which
    written: str
    tokens: float
    characters_per_token: float
    code: Literal["length-in-characters"] = "length-in-characters"


@strict
class LengthsVary:
    """Lengths that were given as single numbers, which are taken as means: around them lengths vary
    evenly by a share, or as recorded.
    """

    which: tuple[Which, ...]
    share: float  # 0 where they vary as recorded
    # whose coefficients of variation log-normal lengths have: a name of ``recorded_lengths.yaml``
    recorded: str = ""
    cvs: tuple[float, ...] = ()  # these coefficients, for each of ``which``
    code: Literal["lengths-vary"] = "lengths-vary"


@strict
class PromptPart:
    """A part of ``tokens`` that is added ``count`` times to every prompt."""

    part: Part
    count: int
    tokens: float


@strict
class PromptParts:
    """These parts make every prompt longer than the question's; ``tokens`` is their sum."""

    tokens: int
    parts: tuple[PromptPart, ...]
    code: Literal["prompt-parts"] = "prompt-parts"


@strict
class Routed:
    """The number of systems is that of instances behind this router; and how many were simulated
    together to find what one carries.
    """

    router: str
    together: int
    code: Literal["routed"] = "routed"


@strict
class ModelRead:
    """A model that is no entry of the catalog: ``model.reading`` says how its name or file was
    read.
    """

    model: Model
    code: Literal["model-read"] = "model-read"


@strict
class OlderPreset:
    """A preset that answers for a newer version of its engine, as it was requested: "vllm 0.33"."""

    requested: str
    preset: str
    code: Literal["older-preset"] = "older-preset"


@strict
class RestsOn:
    """What the prediction of the choice rests on in addition to measurements of this GPU and
    engine: the choice's ``marks``.
    """

    marks: tuple[str, ...]
    code: Literal["rests-on"] = "rests-on"


@strict
class LimitsDoNotCount:
    """Limits that do not count in this mode."""

    mode: Mode
    limits: tuple[Limit, ...]
    code: Literal["limits-do-not-count"] = "limits-do-not-count"


@strict
class KnobChange:
    """A knob of the choice that differs from the engine's own default."""

    knob: str
    default: int | bool
    chosen: int | bool


@strict
class KnobsChanged:
    """The choice runs with knobs other than the engine's own."""

    changes: tuple[KnobChange, ...]
    code: Literal["knobs-changed"] = "knobs-changed"


@strict
class FrontEnds:
    """The front ends of an instance of the choice, where there are several, or where one ends the
    load.
    """

    front_ends: int  # of an instance
    setting: str  # the engine's flag for their number; "" where it has none
    requests_per_second_of_one: float  # what one can let in and stream, in requests per second
    requests_per_second: float  # the highest load of an instance
    code: Literal["front-ends"] = "front-ends"


@strict
class TiersNotStarted:
    """Memories below the KV cache that count, and that the command and file of the choice do not
    switch on.
    """

    offloader: str  # what keeps blocks there; "" for plain tiers
    tiers: tuple[str, ...]
    code: Literal["tiers-not-started"] = "tiers-not-started"


@strict
class QueuedFromStart:
    """All requests of a job are queued from the start, and no latency limit counts."""

    code: Literal["queued-from-start"] = "queued-from-start"


@strict
class NoLimit:
    """No latency limit was given: saturation bounds the load, or of a benchmark its highest
    throughput.
    """

    measured: bool = False
    code: Literal["no-limit"] = "no-limit"


@strict
class BenchmarkAsMeasured:
    """Throughput and latencies are those of a benchmark at the chosen load; nothing is interpolated
    and no queue is simulated.
    """

    code: Literal["benchmark-as-measured"] = "benchmark-as-measured"


@strict
class PointsLeftOut:
    """Points of the benchmark that are of other models, lengths or deployments."""

    left_out: int
    points: int
    code: Literal["points-left-out"] = "points-left-out"


@strict
class GpusNotMeasured:
    """Requested GPUs of which the benchmark holds no point."""

    gpus: tuple[str, ...]
    code: Literal["gpus-not-measured"] = "gpus-not-measured"


@strict
class UnsteadyPoints:
    """Points of the benchmark that were not steady: requests/s × E2E is below ``threshold`` ×
    clients; the first of them.
    """

    unsteady: int
    points: int
    threshold: float
    first_clients: float
    first_tp: int
    code: Literal["unsteady-points"] = "unsteady-points"


@strict
class InvalidRun:
    """A measured run that is not to be believed, why, whether it counts all the same, and the
    option that decides; "" where none does.
    """

    run: str
    why: str
    counts: bool
    option: str = "include_invalid"
    code: Literal["invalid-run"] = "invalid-run"


@strict
class Judged:
    """The model is a checkpoint that ``compress`` made, and was judged next to its original."""

    precision: str  # of the checkpoint
    original: str  # the original's folder
    # "held_back", or "calibration" where there was no other; "" where there was none
    text: str = ""
    # perplexity_original, perplexity, top1_agreement: on that text; 0 where there was none
    perplexity_original: float = 0.0
    perplexity: float = 0.0
    top1_agreement: float = 0.0
    # of each task of lm-evaluation-harness, the original's and the checkpoint's
    scores: dict[str, tuple[float, float]]
    # like, loss: the model nearest in size with a published loss in the format, and that loss in
    # MMLU in per cent; "" where none is
    like: str = ""
    loss: float = 0.0
    code: Literal["judged"] = "judged"


OfQuestion = (
    ModelRead
    | OlderPreset
    | UseCaseDefaults
    | LengthInWords
    | LengthInCharacters
    | LengthsVary
    | PromptParts
    | LimitsDoNotCount
    | QueuedFromStart
    | NoLimit
)
OfChoice = Routed | RestsOn | KnobsChanged | FrontEnds | TiersNotStarted
# what is wrong with measured points, or which were left out
Data = PointsLeftOut | GpusNotMeasured | UnsteadyPoints | InvalidRun
Measured = BenchmarkAsMeasured | Judged | Data
Note = Annotated[OfQuestion | OfChoice | Measured, Tagged("code")]


@strict
class NoCost:
    """Why a way has no cost."""

    # "system-price", "cloud-price" or "api-price", where one is not known; "only-peak" where the
    # tokens of a year are not
    code: Literal["system-price", "cloud-price", "api-price", "only-peak"]
    name: str = ""  # the system, GPU or model whose price is missing; "" elsewhere


@strict
class TokenPriceRatio:
    """A cost is split over tokens as if an output token cost so many times an input token."""

    ratio: Figure
    code: Literal["token-price-ratio"] = "token-price-ratio"


@strict
class NoProfile:
    """No hourly profile is given, so the cloud is rented for the peak all year."""

    code: Literal["no-profile"] = "no-profile"


@strict
class OnlyPeakKnown:
    """Only the peak is known, so there is no cost per request and per token."""

    code: Literal["only-peak"] = "only-peak"


@strict
class SameAs:
    """A mixture whose cheapest split is one of its parts alone: it is left out."""

    way: Literal["hybrid", "hybrid-api"]
    same: Literal["on-prem", "cloud", "api"]  # the way that it comes to
    code: Literal["same-as"] = "same-as"


@strict
class CourseWay:
    """USD per 1,000 requests over the fleet's requests, and NVIDIA's course's way: over what one
    system carries when always full.
    """

    systems_exact: float  # the systems whose cost both count, before rounding up
    usd_per_1000_requests: float  # ours; ``course_usd_per_1000_requests`` the course's
    course_usd_per_1000_requests: float
    one_system_requests_per_year: float  # what one system would carry if it were full all year
    code: Literal["course-way"] = "course-way"


@strict
class OwnedElectricity:
    """Electricity of the owned systems is an estimate; ``added`` says whether it is in the cost or
    paid for by hosting.
    """

    kwh_per_year: float
    usd_per_year: float | None
    added: bool
    # the hosting that pays for it, where that is less than the electricity alone; otherwise None
    hosting_usd_per_year: float | None = None
    code: Literal["owned-electricity"] = "owned-electricity"


@strict
class NotComparable:
    """Only one of the requested ways has a price, so that none of them is the cheapest."""

    way: Literal["on-prem", "cloud", "hybrid", "api", "hybrid-api"]  # the one with a price
    code: Literal["not-comparable"] = "not-comparable"


@strict
class EstimatedPrice:
    """The price of the system is an estimate: no published quote was found."""

    system: str
    price: Figure
    code: Literal["estimated-price"] = "estimated-price"


@strict
class HostingLeftOut:
    """Hosting is paid by the kW, and the power of the system is not known, so that hosting is not
    in the cost.
    """

    system: str
    code: Literal["hosting-left-out"] = "hosting-left-out"


CostNote = Annotated[
    TokenPriceRatio
    | NoProfile
    | OnlyPeakKnown
    | SameAs
    | CourseWay
    | OwnedElectricity
    | NotComparable
    | EstimatedPrice
    | HostingLeftOut,
    Tagged("code"),
]


@strict
class PcieForLargeModel:
    """A large model's GPUs are joined by PCIe: ``value`` is the share of a decode step that
    all-reduces take.
    """

    value: float
    model: str
    parameters: int
    gpu: str
    rule: Literal["nvlink"] = "nvlink"


@strict
class WideOverPcie:
    """Tensor parallelism over PCIe, where hosts differ most: ``value`` is the share of a decode
    step that all-reduces take.
    """

    value: float
    tp: int
    gpu: str
    staged: bool = False  # whether the sums go through the host's memory
    link_gb_s: float = 0.0  # of the slot that the answer counts on, in one direction
    # the smallest card of the vendor with the memory of all of them and no less bandwidth; "" where
    # there is none
    larger: str = ""
    rule: Literal["tp-over-pcie"] = "tp-over-pcie"


@strict
class LengthToShorten:
    """Shortening prompts, or answers, saves much more than shortening the other: read off the
    sensitivity of the plan.
    """

    # systems that the one saves, over the savings of the other, or over 1 % of all where it saves
    # less
    value: float
    which: Literal["isl", "osl"]
    change: float  # by which each was shortened, such as −0.2
    # saved, other_saved: systems saved, without rounding; those of another size are counted by
    # their GPUs
    saved: float
    other_saved: float
    gpus: int = 0  # saved by the one, of whole systems
    rule: Literal["length-to-shorten"] = "length-to-shorten"


@strict
class LimitHalvesThroughput:
    """Requests/s of an instance without a limit over those with it (``value``)."""

    value: float
    limit: Limit
    requests_per_second: float
    requests_per_second_without: float
    rule: Literal["limit-halves-throughput"] = "limit-halves-throughput"


@strict
class BurstyTrace:
    """Coefficient of variation of a trace's gaps (``value``), with a Poisson peak of its mean next
    to its busiest second.
    """

    value: float
    poisson_peak: float
    peak_second: int
    rule: Literal["bursty"] = "bursty"


@strict
class SmallerModel:
    """A model with fewer parameters publishes at least the same score: ``value`` is the ratio of
    their parameters.
    """

    value: float
    # model, other: the planned model and the smaller one, with ``parameters`` and
    # ``other_parameters``
    model: str
    parameters: int
    # score, other_score: of the benchmark, asked in the setting that both share
    score: float
    other: str
    other_parameters: int
    other_score: float
    benchmark: str
    setting: str
    rule: Literal["smaller-model"] = "smaller-model"


@strict
class CacheOfCheckpoint:
    """The plan counts a KV cache of 16 bits, ``value`` times the one that the checkpoint declares;
    no flag of the engine keeps it so.
    """

    value: float
    engine: str  # its family
    checkpoint: str
    rule: Literal["kv-cache-of-checkpoint"] = "kv-cache-of-checkpoint"


Warning = Annotated[
    PcieForLargeModel
    | WideOverPcie
    | LengthToShorten
    | LimitHalvesThroughput
    | BurstyTrace
    | SmallerModel
    | CacheOfCheckpoint,
    Tagged("rule"),
]
