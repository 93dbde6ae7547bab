"""A sizing question as its asker writes it: one tree of plain values, for YAML, JSON and flags alike.

Every leaf has one name. In a file it stands under its branch (``limits: {ttft: p95<=500ms}``); as an argument
of ``tonnage.size`` and as a flag it stands alone (``ttft="p95<=500ms"``).
``tonnage.spec.scenario_file`` reads and writes files; what the texts mean is found out when the question is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_type_hints

from tonnage.spec.typed_values import FORBID

Mode = Literal["streaming", "sequential", "offline"]
UseCase = Literal["chatbot", "summarization", "rag", "data-generation", "offline"]

Length = float | str | None
Text = str | None
Number = float | None
Texts = str | list[str] | None
Counts = int | str | list[int] | None


def leaf(about: str, *, default: Any = None, factory: Any = MISSING, file: bool = False) -> Any:
    """A leaf of the tree: what it says, and whether it is the path of a file."""
    facts = {"about": about, "file": file}
    return field(default_factory=factory, metadata=facts) if factory is not MISSING else field(default=default, metadata=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsAsked:
    """How long prompts and outputs are."""

    __pydantic_config__ = FORBID

    isl: Length = leaf(
        "Prompt length in tokens, or words (3500words): 2000, 2000+-500, lognormal:2000,500, uniform:1600-2000, "
        "histogram:100:0.2,500:0.8 or a .csv with value,weight."
    )
    osl: Length = leaf("Output length, in the same forms.")
    pairs: Text = leaf("CSV with the columns isl,osl: lengths drawn together, instead of isl and osl apart.", file=True)
    system_prompt: Length = leaf("Tokens (or words) of the system prompt, added to every prompt.")
    retrieved: Length = leaf("Retrieved passages added to every prompt, such as 5x400.")
    history: Length = leaf("Earlier turns of the chat added to every prompt, such as 3x700.")
    words_per_token: Number = leaf("Words of one token (default: 0.75, English).")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandAsked:
    """How many requests there are."""

    __pydantic_config__ = FORBID

    peak_rps: Number = leaf("Requests per second at the peak.")
    mean_rps: Number = leaf("Mean requests per second of Poisson traffic, instead of a peak; also scales a profile or a trace.")
    peak_percentile: Number = leaf("With a mean: percentile of the arrivals in one second that the course's way sizes for.")
    peak_factor: Number = leaf("With a mean: how many times the mean the peak is, instead of a percentile.")
    users: Number = leaf("People who send requests.")
    requests_per_user_day: Number = leaf("Requests of each of them a working day.")
    working_hours: Number = leaf("Hours a day over which they come (default: 8).")
    working_days: Number = leaf("Days a week on which they come (default: 5).")
    calls_per_year: Number = leaf("Calls, or other business cases, a year.")
    requests_per_call: Number = leaf("Requests to the model that one of them makes (default: 1).")
    profile: str | list[float] | None = leaf(
        "24 or 168 hourly loads (a .csv, or values): requests/s, or shares beside a mean or a peak.", file=True
    )
    trace: Text = leaf(
        "File of recorded requests (Azure's or Mooncake's format, or timestamp,isl,osl): replayed, bursts and all.", file=True
    )
    requests: Number = leaf("Requests of an offline job.")
    within: Text = leaf("Time for an offline job, such as 8h.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsAsked:
    """What must hold: a statistic (mean, p50, p90, p95, p99) of a latency, one or several each."""

    __pydantic_config__ = FORBID

    ttft: Texts = leaf('Limit on the time to first token, such as "p95<=500ms"; mean, p50, p90, p95 or p99; repeatable.')
    itl: Texts = leaf('Limit on single gaps between tokens, such as "p99<=100ms"; repeatable.')
    tpot: Texts = leaf("Limit on the mean time per output token of a request; repeatable.")
    e2e: Texts = leaf("Limit on the time to the last token; repeatable.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAsked:
    """What may be combined; every combination is tried."""

    __pydantic_config__ = FORBID

    gpu: Texts = leaf("GPUs to try, with commas between (default: h100-sxm-80gb,h200-sxm-141gb,a100-sxm-80gb,l40s).")
    precision: Texts = leaf(
        "fp16, bf16, fp8, int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4, mxfp4, with commas between, or all; "
        "each with +kv-fp16, +kv-fp8, +kv-int8 or +2:4 behind it, too (default: fp16,fp8)."
    )
    tp: Counts = leaf("Tensor-parallel degrees, with commas between (default: 1,2,4,8).")
    pp: Counts = leaf("Pipeline-parallel degrees, with commas between (default: 1, and more where a model needs it).")
    dp: Counts = leaf("Attention ranks of a mixture of experts, with commas between (default: 1, with latent attention also one per GPU).")
    ep: Counts = leaf("Groups that experts are spread over, with commas between (default: 1, and one per GPU).")
    engine: Texts = leaf("tensorrt-llm, vllm, sglang, nim-2024, with commas between (default: tensorrt-llm,vllm).")
    max_batch_size: Counts = leaf("Sequences that run at once, to try (default: the engine's own).")
    max_num_tokens: Counts = leaf("Token budgets of one step, to try (default: the engine's own).")
    chunked_prefill: bool | None = leaf("Whether a prompt may be split over several steps (default: the engine's own).")
    stream_interval: int | None = leaf("Output tokens that a client gets in one message (default: the engine's own, 1).")
    speculation: Text = leaf(
        'Speculative decoding to try beside none: draft=MODEL, eagle, mtp, medusa, redrafter or ngram, such as "eagle k=3 acceptance=0.7".'
    )
    load: Literal["open", "closed"] | None = leaf(
        "open: requests arrive on a schedule (default); closed: clients keep busy, as in benchmarks."
    )
    arrivals: Literal["poisson", "constant", "gamma"] | None = leaf("Process of the open loop (default: poisson).")
    cv: Number = leaf("Standard deviation of the gaps over their mean, for gamma arrivals.")
    coefficients: Text = leaf("File that tonnage calibrate wrote: predictions use its factors on the shipped terms.", file=True)
    step_model: Text = leaf("Whose step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md).")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The whole question; None leaves a part to its default."""

    __pydantic_config__ = FORBID

    title: Text = leaf("What this is about, in a few words.")
    model: Texts = leaf("Catalog id (see tonnage catalog) or path of a Hugging Face config.json; several with commas to compare.")
    lengths: LengthsAsked = field(default_factory=LengthsAsked)
    demand: DemandAsked = field(default_factory=DemandAsked)
    limits: LimitsAsked = field(default_factory=LimitsAsked)
    mode: Mode | None = leaf("streaming: TTFT decides; sequential: E2E decides; offline: only throughput.")
    use_case: UseCase | None = leaf("Sets stated defaults: chatbot, summarization, rag, data-generation or offline.")
    where: Texts = leaf("on-prem, cloud, hybrid or api, with commas between: what to compare the cost of.")
    have: Text = leaf("Systems that exist, such as 3xdgx-h100: what they carry instead of how many are needed.")
    growth: Length = leaf("Growth of the load, such as 5%/month or 60%/year.")
    spare: int | None = leaf("Systems on top of what the load needs; 1 for N+1.")
    prices: str | dict[str, Any] | None = leaf("Prices in place of the catalog's, or the YAML file that holds them.", file=True)
    benchmarks: Text = leaf("CSV or JSON of measured points (columns as in docs/size.md, or GenAI-Perf's own).", file=True)
    search: SearchAsked = field(default_factory=SearchAsked)
    seed: int | None = leaf("Of every random draw (default: 0).")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Where a leaf stands, what may stand there, and what it says.

    Attributes:
        path: branch and name, such as ("limits", "ttft").
        kind: its annotation.
        about: one sentence.
        file: whether a text there is a path.
    """

    path: tuple[str, ...]
    kind: Any
    about: str
    file: bool

    @property
    def name(self) -> str:
        """The name alone, as an argument."""
        return self.path[-1]

    @property
    def key(self) -> str:
        """The place in a file, such as "demand.peak_rps"."""
        return ".".join(self.path)


def leaves(branch: type = Scenario, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every leaf of the tree, in the order of its questions."""
    hints = get_type_hints(branch)
    for part in fields(branch):
        kind = hints[part.name]
        if is_dataclass(kind) and isinstance(kind, type):
            yield from leaves(kind, (*path, part.name))
        else:
            yield Leaf(path=(*path, part.name), kind=kind, about=part.metadata["about"], file=part.metadata["file"])


def takes(kind: Any, wanted: type) -> bool:
    """Whether values of a type may stand at a leaf of that annotation."""
    return kind is wanted or any(takes(part, wanted) for part in get_args(kind) if isinstance(part, type) or get_args(part))


def to_document(scenario: Scenario) -> dict[str, Any]:
    """The scenario as nested plain values, without what was left open."""

    def plain(branch: Any) -> dict[str, Any]:
        values = ((part.name, getattr(branch, part.name)) for part in fields(branch))
        found = {name: plain(value) if is_dataclass(value) else value for name, value in values}
        return {name: _whole(value) for name, value in found.items() if value is not None and value != {}}

    return plain(scenario)


def _whole(value: Any) -> Any:
    """2000.0 as people write it, 2000."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a document says, by the names of its leaves."""
    found: dict[str, Any] = {}
    for one in leaves():
        place: Any = document
        for name in one.path:
            place = place.get(name) if isinstance(place, Mapping) else None
        if place is not None:
            found[one.name] = place
    return found
