"""What a reader must know about the numbers of a plan: a code, and its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tonnage.plan.document import Tagged
from tonnage.plan.limit import Limit
from tonnage.spec.scenario import Mode, UseCase
from tonnage.spec.typed_values import FORBID

Which = Literal["isl", "osl"]
Part = Literal["system_prompt", "retrieved", "history"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPart:
    """A part of the prompt that a use case set, as it is written: "5x400"."""

    __pydantic_config__ = FORBID

    part: Part | Literal["shared_prefix"]
    written: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCaseDefaults:
    """What a use case set because the asker did not; what it left alone is None or empty.

    Attributes:
        parts: of the prompt, where the asker named others of them; ``isl`` is then the question alone.
    """

    __pydantic_config__ = FORBID

    use_case: UseCase
    mode: Mode | None = None
    isl: str = ""
    osl: str = ""
    limits: tuple[Limit, ...] = ()
    parts: tuple[DefaultPart, ...] = ()
    code: Literal["use-case-defaults"] = "use-case-defaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthInWords:
    """A length that was written in words: ``which`` is "isl" or "osl", ``tokens`` the mean that it came to."""

    __pydantic_config__ = FORBID

    which: Which
    written: str
    tokens: float
    words_per_token: float
    code: Literal["length-in-words"] = "length-in-words"


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthInCharacters:
    """A length that was written in characters: ``which`` is "isl" or "osl", ``tokens`` the mean that it came to."""

    __pydantic_config__ = FORBID

    which: Which
    written: str
    tokens: float
    characters_per_token: float
    code: Literal["length-in-characters"] = "length-in-characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsVary:
    """Lengths that were given as single numbers, which are taken as means: around them lengths vary evenly by this share."""

    __pydantic_config__ = FORBID

    which: tuple[Which, ...]
    share: float
    code: Literal["lengths-vary"] = "lengths-vary"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPart:
    """A part that is added to every prompt, ``count`` times so many tokens."""

    __pydantic_config__ = FORBID

    part: Part
    count: int
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptParts:
    """Every prompt is longer by these parts than what is asked; ``tokens`` is their sum."""

    __pydantic_config__ = FORBID

    tokens: int
    parts: tuple[PromptPart, ...]
    code: Literal["prompt-parts"] = "prompt-parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The number of systems is that of instances behind this router; so many were simulated together to find what one carries."""

    __pydantic_config__ = FORBID

    router: str
    together: int
    code: Literal["routed"] = "routed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestsOn:
    """What the prediction of the choice rests on beside measurements of this GPU and engine: the choice's ``marks``."""

    __pydantic_config__ = FORBID

    marks: tuple[str, ...]
    code: Literal["rests-on"] = "rests-on"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsDoNotCount:
    """Limits that do not count in this mode."""

    __pydantic_config__ = FORBID

    mode: Mode
    limits: tuple[Limit, ...]
    code: Literal["limits-do-not-count"] = "limits-do-not-count"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobChange:
    """A knob of the choice that differs from the engine's own default."""

    __pydantic_config__ = FORBID

    knob: str
    default: int | bool
    chosen: int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobsChanged:
    """The choice runs with knobs other than the engine's own."""

    __pydantic_config__ = FORBID

    changes: tuple[KnobChange, ...]
    code: Literal["knobs-changed"] = "knobs-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnds:
    """The front ends of an instance of the choice, where there are several, or where one ends the load.

    Attributes:
        front_ends: of an instance.
        setting: the engine's flag for their number; "" where it has none.
        requests_per_second_of_one: what one can stream, in requests per second.
        requests_per_second: the highest load of an instance.
    """

    __pydantic_config__ = FORBID

    front_ends: int
    setting: str
    requests_per_second_of_one: float
    requests_per_second: float
    code: Literal["front-ends"] = "front-ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedFromStart:
    """All requests of a job are queued from the start, and no latency limit counts."""

    __pydantic_config__ = FORBID

    code: Literal["queued-from-start"] = "queued-from-start"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLimit:
    """No latency limit was given: saturation bounds the load, or of a benchmark its highest throughput."""

    __pydantic_config__ = FORBID

    measured: bool = False
    code: Literal["no-limit"] = "no-limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkAsMeasured:
    """Throughput and latencies are those of a benchmark at the chosen load; nothing is interpolated and no queue is simulated."""

    __pydantic_config__ = FORBID

    code: Literal["benchmark-as-measured"] = "benchmark-as-measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsLeftOut:
    """Points of the benchmark that are of other models, lengths or deployments."""

    __pydantic_config__ = FORBID

    left_out: int
    points: int
    code: Literal["points-left-out"] = "points-left-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusNotMeasured:
    """GPUs that were asked for and of which the benchmark holds no point."""

    __pydantic_config__ = FORBID

    gpus: tuple[str, ...]
    code: Literal["gpus-not-measured"] = "gpus-not-measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsteadyPoints:
    """Points of the benchmark that were not steady: requests/s × E2E is below ``threshold`` × clients; the first of them."""

    __pydantic_config__ = FORBID

    unsteady: int
    points: int
    threshold: float
    first_clients: float
    first_tp: int
    code: Literal["unsteady-points"] = "unsteady-points"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRun:
    """A measured run that its own client called INVALID, why, and whether it counts all the same because that was asked for."""

    __pydantic_config__ = FORBID

    run: str
    why: str
    counts: bool
    code: Literal["invalid-run"] = "invalid-run"


Note = Annotated[
    UseCaseDefaults
    | LengthInWords
    | LengthInCharacters
    | LengthsVary
    | PromptParts
    | Routed
    | RestsOn
    | LimitsDoNotCount
    | KnobsChanged
    | FrontEnds
    | QueuedFromStart
    | NoLimit
    | BenchmarkAsMeasured
    | PointsLeftOut
    | GpusNotMeasured
    | UnsteadyPoints
    | InvalidRun,
    Tagged("code"),
]
