"""Answers from facts alone: the catalog, the memory of an instance, and what each number format
brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from tonnage.api.question.arguments import only_whole_number, rates, whole_numbers, with_signature
from tonnage.api.question.deployment import (
    USUAL_ENGINES,
    deployment_of,
    engines_meant,
    usual_engine,
)
from tonnage.errors import InputError, option
from tonnage.scope import refused
from tonnage.spec.catalog import find_gpu, find_model, search
from tonnage.spec.engine import EnginePreset
from tonnage.spec.hardware import Gpu, System
from tonnage.spec.model import Model
from tonnage.spec.precision import find_precision
from tonnage.spec.scenario import OF_MEMORY, SHARES, by_alias
from tonnage.spec.workload import Lengths

if TYPE_CHECKING:
    from tonnage.perf.memory import MemoryPlan
    from tonnage.simulator.lesson import LessonResult
    from tonnage.sizing.precisions import FormatGain
    from tonnage.spec.deployment import Deployment


DEFAULT_ISL, DEFAULT_OSL = 2_000, 200  # tokens of a request that are counted where nothing is given


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """Where the memory of an instance goes, and how many requests of given lengths it holds."""

    plan: MemoryPlan  # the memory of one instance
    # isl, osl: tokens of a request
    isl: int
    osl: int
    # whether the answer names the instance: it is another than one H100 of the usual engine, or its
    # format was read
    chosen: bool = False

    def lines(self) -> list[str]:
        """The arithmetic, one printable equation a line."""
        from tonnage.perf.memory_equations import equations

        d = self.plan.deployment
        named = (
            f"{d.model.name}, {d.precision.name.upper()}, on {d.parallelism.gpus} × {d.gpu.name},"
            f" {d.engine}"
        )
        unsure = [d.model.reading] if d.model.reading else []
        unsure += (
            [f"{d.newer_engine} is newer than every preset; {d.engine} answers for it"]
            if d.newer_engine
            else []
        )
        unsure += [f"{d.model.name}: {d.model.layout_mark}"] if d.model.layout_mark else []
        return [
            *unsure,
            *([named] if self.chosen else []),
            *equations(self.plan, self.isl, self.osl),
        ]

    def to_json(self) -> dict[str, Any]:
        """All sizes in bytes per GPU."""
        p, d = self.plan, self.plan.deployment
        return {
            **d.named,
            "engine": d.engine,
            **({"notes": d.model.notes} if d.model.notes and not d.model.date else {}),
            "weight_bytes": p.weight_bytes,
            "activation_bytes": p.activation_bytes,
            "reserve_bytes": p.reserve_bytes,
            **(
                {"speculation": str(d.speculation), "drafter_bytes": p.drafter_bytes}
                if d.speculation is not None
                else {}
            ),
            **(
                {"lora": str(d.adapters), "adapter_bytes": p.adapter_bytes}
                if d.adapters is not None
                else {}
            ),
            **({"encoder_bytes": p.encoder_bytes} if p.encoder_bytes else {}),
            "kv_bytes": p.kv_budget_bytes,
            "kv_bytes_per_token": p.kv_bytes_per_token,
            "kv_tokens": p.tokens,
            **(
                {"kv_window_bytes_per_token": p.window_bytes_per_token}
                if p.window_bytes_per_token
                else {}
            ),
            **(
                {"kv_window_blocks": p.windows.blocks}
                if p.window_bytes_per_token and not p.state_bytes
                else {}
            ),
            **(
                {"kv_index_bytes_per_token": p.index_bytes_per_token}
                if p.index_bytes_per_token
                else {}
            ),
            **(
                {"state_bytes_per_sequence": p.state_bytes, "state_blocks": p.windows.blocks}
                if p.state_bytes
                else {}
            ),
            "isl": self.isl,
            "osl": self.osl,
            "concurrent_requests": p.concurrent_requests(self.isl, self.osl),
            **({"layout_mark": d.model.layout_mark} if d.model.layout_mark else {}),
            "equations": self.lines(),
        }


def memory(
    *,
    model: str,
    layout: str = "",
    gpu: str | None = None,
    precision: str = "",
    tp: int | None = None,
    dp: int = 1,
    ep: int = 1,
    engine: str | None = None,
    isl: int | None = None,
    osl: int | None = None,
    speculation: str | None = None,
    lora: str | None = None,
    **knobs: Unpack[MemoryKnobs],
) -> MemoryReport:
    """Where the memory of an instance goes, by its engine's rule; a drafter's weights and cache,
    and slots of LoRA adapters too.

    Where no GPU and no degree is given and the model is too large for an H100, it is the smallest
    of the usual instances that holds it; with a GPU and no degree, the fewest of these. Requests
    are of 2,000 and 200 tokens where nothing is given, shorter where the model's context is.
    ``knobs`` are those of the engine that its memory depends on; the engine's own where they are
    left out.

    Raises DoesNotFit: weights and reserves leave no room for one request; the message says what has
    room. Raises InputError: anything else that cannot be used, in one line.
    """
    from tonnage.perf.fitting import check_room
    from tonnage.perf.memory import memory_plan
    from tonnage.spec.lengths import check_context

    settings = _set(knobs)
    found_model = find_model(model, layout)
    usual = usual_engine(
        find_gpu(gpu or USUAL_GPUS[0]), find_precision(precision or found_model.usual_precision)
    )
    read = (engine is None and usual != USUAL_ENGINES[0]) or not found_model.date
    engine = engine or next(iter(engines_meant(settings["shares"])), usual)
    place: dict[str, Any] = {
        "model": model,
        "layout": layout,
        "precision": precision,
        "dp": dp,
        "ep": ep,
        "engine": engine,
        **settings,
    }
    tried = (
        [(gpu or USUAL_GPUS[0], tp)]
        if tp
        else [(name, n) for name in ((gpu,) if gpu else USUAL_GPUS) for n in USUAL_TPS]
    )
    tried = tried if dp == ep == 1 else tried[:1]
    deployments = (
        deployment_of(**place, gpu=name, tp=n or 1, speculation=speculation, lora=lora)
        for name, n in tried
    )
    first = next(deployments)
    deployment = (
        first
        if _holds(first)
        else next((candidate for candidate in deployments if _holds(candidate)), first)
    )
    max_context = deployment.model.max_context
    osl = max(1, min(DEFAULT_OSL, max_context - (isl or 1))) if osl is None else osl
    isl = max(1, min(DEFAULT_ISL, max_context - osl)) if isl is None else isl
    for where, length in ((option("isl"), isl), (option("osl"), osl)):
        if length < 1:
            raise InputError(f"{where}: {length} is below one token; write 1 or more")
    check_context(deployment.model, Lengths(mean=isl), Lengths(mean=osl))
    check_room(deployment, isl, osl)
    return MemoryReport(
        plan=memory_plan(deployment), isl=isl, osl=osl, chosen=read or deployment is not first
    )


def _holds(deployment: Deployment) -> bool:
    """Whether an instance's memory holds the model, with room for a KV cache."""
    from tonnage.perf.fitting import holds

    return holds(deployment)


class MemoryKnobs(TypedDict, total=False):
    """Settings of an engine that its memory depends on: the leaves of ``spec.scenario.OF_MEMORY``,
    whose aliases are taken too.
    """

    max_batch_size: int | str | None
    max_num_tokens: int | str | None
    max_model_len: int | None
    gpu_memory_utilization: float | None
    mem_fraction_static: float | None
    free_gpu_memory_fraction: float | None


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``deployment_of`` that settings by name or alias make."""
    named: dict[str, Any] = {
        by_alias().get(name, name): value for name, value in values.items() if value is not None
    }
    if unknown := named.keys() - set(OF_MEMORY):
        raise TypeError(f"no such argument: {', '.join(sorted(unknown))}")
    counts = ("max_batch_size", "max_num_tokens")
    return {
        "knobs": {name: only_whole_number(named[name], name) for name in counts if name in named},
        "max_model_len": named.get("max_model_len"),
        "shares": {name: named.get(name) for name in SHARES},
    }


# What an instance is looked for among, where nobody says which
USUAL_GPUS, USUAL_TPS = (
    ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "b300-sxm-270gb"),
    (1, 2, 4, 8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionReport:
    """The number formats on one model and GPU, compared with ``base`` in 16 bits."""

    base: Deployment
    gains: tuple[FormatGain, ...]

    def to_json(self) -> dict[str, Any]:
        """Formats with their gains by batch, what is published of them, and why some do not run."""
        d = self.base
        return {
            "model": d.model.name,
            "gpu": d.gpu.name,
            "tp": d.parallelism.tp,
            "engine": d.engine,
            "precisions": [asdict(gain) for gain in self.gains],
        }


def precisions(
    *,
    model: str = "llama-3.1-70b",
    gpu: str = "h100-sxm-80gb",
    tp: int | None = None,
    engine: str = "tensorrt-llm-0.15",
) -> PrecisionReport:
    """What each number format brings: speed over 16 bits by batch, bytes, accuracy, calibration,
    hardware. Raises InputError.
    """
    from tonnage.sizing.precisions import format_gains

    base, gains = format_gains(find_model(model), find_gpu(gpu), engine, tp)
    return PrecisionReport(base=base, gains=gains)


def catalog(text: str = "") -> dict[str, list[dict[str, Any]]]:
    """Every model, GPU, system, engine and price, or the ones that match a text; models with their
    published quality and checkpoints.

    "models", "gpus", "systems", "engines", "prices", "quality", "checkpoints" and "lengths" match
    all of that kind and nothing else; a text behind such a word looks for it in that kind.

    Raises InputError: nothing matches.
    """
    from tonnage.spec.catalog.accuracy import find_quality, listed_scores
    from tonnage.spec.catalog.checkpoints import find_checkpoints
    from tonnage.spec.catalog.entries import recorded_lengths
    from tonnage.spec.catalog.price_list import listed_prices

    kinds = ("models", "checkpoints", "gpus", "systems", "engines", "prices", "quality", "lengths")
    kind, _, rest = text.partition(" ")
    if rest and kind in kinds:
        return _of_kind(kind, rest)
    listing: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    shelves = {Model: "models", Gpu: "gpus", System: "systems", EnginePreset: "engines"}
    entries = (
        [entry for entry in search("") if shelves[type(entry)] == text]
        if text in listing
        else search(text)
    )
    if text in ("", "quality"):
        listing["quality"] = [asdict(score) for score in listed_scores()]
    if text in ("", "lengths"):
        listing["lengths"] = [
            asdict(row) | {"date": str(row.date)} for row in recorded_lengths().values()
        ]
    if text == "checkpoints":
        models = (entry for entry in search("") if isinstance(entry, Model))
        listing["checkpoints"] = [
            asdict(checkpoint) for model in models for checkpoint in find_checkpoints(model.name)
        ]
    if text == "prices" or text not in listing:
        listing["prices"] = [
            asdict(price) for price in listed_prices("" if text == "prices" else text)
        ]
    for entry in entries:
        facts = asdict(entry)
        if isinstance(entry, Model):
            facts["parameters_billions"] = round(entry.parameters / 1e9, 2)
            facts["quality"] = [asdict(score) for score in find_quality(entry.name)]
            listing["checkpoints"] += (
                []
                if text == "models"
                else [asdict(checkpoint) for checkpoint in find_checkpoints(entry.name)]
            )
        listing[shelves[type(entry)]].append(facts)
    if not any(listing.values()):
        why = refused("model", text) or "leave the text out to see everything"
        raise InputError(f"catalog: nothing matches '{text}'; {why}")
    return listing


def _of_kind(kind: str, text: str) -> dict[str, list[dict[str, Any]]]:
    """Find the entries of one kind that match a text. Raises InputError: nothing does."""
    entries = catalog(text)
    names = {model["name"] for model in entries["models"]}
    scores = catalog("quality")["quality"] if kind == "quality" else []
    entries["quality"] = [score for score in scores if score["model"] in names]
    if not entries[kind]:
        raise InputError(f"catalog: no {kind} match '{text}'; leave it out to see all of them")
    return {name: listed if name == kind else [] for name, listed in entries.items()}


class LessonArguments(TypedDict, total=False):
    """Everything that ``lesson`` takes: the fields of ``simulator.lesson.LessonConfig``, at their
    defaults where they are left out.
    """

    batcher: Literal["static", "in-flight", "one-prefill"]
    slots: int
    prefill_ticks: float
    itl_ticks: float
    prefill_chunks: int
    initial_batch: int | None
    concurrency: int | str | None
    tick_rate: float | None
    osl_mean: float
    osl_std: float
    seed: int
    until: float


@with_signature(LessonArguments)
def lesson(**asked: Unpack[LessonArguments]) -> LessonResult:
    """Run the course's simulator in ticks. Raises InputError: a value that no engine could have."""
    from tonnage.simulator.lesson import LessonConfig, run_lesson

    fields: dict[str, Any] = dict(asked)
    if isinstance(fields.get("concurrency"), str):
        clients = whole_numbers(fields["concurrency"], option("concurrency"))
        if len(clients) > 1:
            raise InputError(
                f"{option('concurrency')}: '{fields['concurrency']}' is a sweep; lesson_sweep"
                " runs one"
            )
        fields["concurrency"] = clients[0]
    return run_lesson(LessonConfig(**fields))


# Settings that a lesson may be swept over, and how their values are read
LESSON_SWEEPS = {
    **dict.fromkeys(("concurrency", "slots", "prefill_chunks"), whole_numbers),
    **dict.fromkeys(("tick_rate", "osl_mean"), rates),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonSweep:
    """The lesson at several values of one setting; without one a single value, 0."""

    setting: str
    values: tuple[float, ...]
    results: tuple[LessonResult, ...]  # one for each

    def to_json(self) -> dict[str, Any]:
        """The figures of each value, or of the only one."""
        if not self.setting:
            return self.results[0].to_json()
        return {
            "points": [
                {self.setting: value, **result.to_json()}
                for value, result in zip(self.values, self.results, strict=True)
            ]
        }


def lesson_sweep(**asked: Any) -> LessonSweep:
    """Run the course's simulator at each value of a setting of ``LESSON_SWEEPS``; the rest as for
    ``lesson``. Raises InputError.
    """
    read = {
        name: LESSON_SWEEPS[name](value, option(name))
        for name, value in asked.items()
        if name in LESSON_SWEEPS and value is not None
    }
    swept = [name for name, values in read.items() if len(values) > 1]
    if len(swept) > 1:
        raise InputError(
            f"{option(swept[0])}, {option(swept[1])}: both have several values; sweep one at a time"
        )
    fixed = {**asked, **{name: values[0] for name, values in read.items()}}
    if not swept:
        return LessonSweep(setting="", values=(0.0,), results=(lesson(**fixed),))
    values = read[swept[0]]
    return LessonSweep(
        setting=swept[0],
        values=tuple(map(float, values)),
        results=tuple(lesson(**{**fixed, swept[0]: value}) for value in values),
    )
