"""The terms of current engines, fitted on the dense rows of ``silicon_sample.csv`` while the GPU terms of Hopper are held.

Today's engines call much the same kernels. So a term of an engine is a value that all current engines share, times a small correction of
its own. An engine without rows has the shared values, and one of another version or family moves little. The fit moves the shared
values, the corrections, the terms of Blackwell, and what NVFP4 reaches there, about which no other rows tell. Kernels of 8 and of 16 bits
have terms of their own, because quantising activations costs the engines much of what FP8 gains in prefill.

Whole systems, whole models and whole engine families are left out in turn. Without B200 its terms keep their start values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.calibration.rows import Progress, errors
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine, find_gpu
from tools.fit.residuals import HeldOut, held_out_rows
from tools.fit.silicon import streaming
from tools.fit.silicon.dense_rows import GPUS, select
from tools.fit.silicon.sample import FILE, Row, Selection
from tools.fit.silicon.silicon_rows import SiliconRows
from tools.fit.solving import rounded
from tools.fit.terms import CURRENT, PRIOR_WEIGHT, Layout, Prior

if TYPE_CHECKING:
    from numpy.typing import NDArray

Figures = dict[str, float]
Terms = dict[str, Any]

VLLM, TRTLLM_RC, TRTLLM, SGLANG = "vllm", "tensorrt-llm-1.0", "tensorrt-llm-1.1", "sglang"
ENGINES = (VLLM, TRTLLM_RC, TRTLLM, SGLANG)
LATER = {"tensorrt-llm-1.2": TRTLLM, "sglang-0.5.9": SGLANG}
"""Versions without dense rows, and the version whose dense terms they take: they differ in experts and latent attention (``moe.py``)."""

OUTGROWN = ("one_shot_tokens",)
"""Terms of an earlier version that its later one does not have."""

LAMPORT = (TRTLLM_RC, TRTLLM)
"""Engines whose all-reduces write to all GPUs at once, without a barrier (``ONE_SHOT``)."""

VLLM_010, VLLM_012 = "vllm-0.10", "vllm-0.12"
EARLIER: dict[str, dict[str, Prior]] = {
    VLLM_010: {
        "kv_8bit_hopper": (0.7, 0.15),
        "layer_kv_8bit_hopper_s": (12.6e-6, 0.3),
        "launch_layer_blackwell": (1.0, 0.4),
    },
    VLLM_012: {"schedule_s": (0.46e-3, 0.5)},
}
"""Terms that an earlier vLLM has beside those of vLLM, or that multiply them. Their start values are what its developers published:

- ``kv_8bit_hopper``, times ``kv_8bit``: attention on Hopper reads an FP8 cache at a cost per token of 63 % of 16 bits in 0.10.2 and of 54 %
  in 0.19.1 with four query heads a KV head (vllm.ai/blog, 2026-04-22), of 100 and of 72 % with eight
  (github.com/vllm-project/flash-attention/pull/96): of the bandwidth that 16 bits reach, a mean of 0.63 and of 0.80, over the 0.9 of
  ``kv_8bit``.
- ``layer_kv_8bit_hopper_s``, seconds per layer: the same post has FP8 ahead of 16 bits from 24,889 tokens on in 0.10.2 and from 7,010 in
  0.19.1: 0.40 and 0.14 ms a step of 32 layers.
- ``schedule_s``, seconds per step: scheduling that does not overlap with a step costs 0.46 ms of it
  (github.com/vllm-project/vllm/pull/25444: 5.98 against 6.20 requests/s of 128 tokens, ten at a time). It overlaps by default from 0.14 on,
  and did in InferenceMAX's runs of 0.10.2.
- ``launch_layer_blackwell``, times ``launch_layer_s``: those runs have mixed steps without any CUDA graph on B200 (``FULL_DECODE_ONLY``
  without ``splitting_ops``), and nobody says what that costs.
"""

TODAY = {"kv_8bit_hopper": 0.89, "layer_kv_8bit_hopper_s": 4.4e-6}
"""The same terms of vLLM from 0.12 on, about which no row here tells."""

COMMON: dict[str, Prior] = {
    "kv_bandwidth": (0.9, 0.1),
    "kv_8bit": (0.9, 0.1),
    "compute_8": (1.0, 0.1),
    "compute_16": (1.05, 0.07),
    "compute_blocks": (0.85, 0.15),
    "memory": (1.0, 0.05),
    "attention": (1.0, 0.3),
    "allreduce_s": (3e-6, 0.6),
    "layer_s": (35e-6, 0.3),
    "layer_narrow_s": (6e-6, 0.5),
    "layer_norms_s": (8e-6, 0.5),
    "layer_fp4_s": (6e-6, 0.5),
    "layer_blocks_s": (8e-6, 0.5),
    "step_s": (0.3e-3, 0.5),
    "sequence_s": (18e-6, 0.5),
    "prefill_s": (0.7e-3, 0.5),
    "prefill_layer_s": (20e-6, 1.0),
    "launch_layer_s": (400e-6, 0.5),
    "frontend_s": (25e-3, 0.5),
}
"""What all current engines share; ``compute``, ``memory`` and ``attention`` are relative to the shared terms.

``compute_blocks`` is FP8 scaled by blocks (Qwen3) against FP8 scaled by matrix (Llama).
Start values: STEP_MODEL.md, rounded over its engines. Guesses: two kernels of 3 to 4 µs that narrow activations, two more to 4 bits, four
of 2 µs that scale by blocks before the matrices of a layer, where scales of whole matrices are fused with the norms, and two that
normalise heads (``layer_narrow_s``, ``layer_fp4_s``, ``layer_blocks_s``, ``layer_norms_s``); steps with prompts run without CUDA graphs
(``prefill_layer_s``), and about 40 kernels a layer that Python launches at 10 µs each are the least that such a step takes
(``launch_layer_s``).
"""

OWN = {
    "kv_bandwidth": 0.05,
    "kv_8bit": 0.05,
    "compute_8": 0.08,
    "compute_16": 0.08,
    "memory": 0.03,
    "attention": 0.1,
    "allreduce_s": 0.2,
    "layer_s": 0.15,
    "step_s": 0.3,
    "sequence_s": 0.3,
    "prefill_s": 0.3,
    "prefill_layer_s": 0.3,
    "launch_layer_s": 0.3,
    "frontend_s": 0.2,
}
"""The spread of the logarithm of an engine's own correction."""

ONE_SHOT_TOKENS = 128.0
ONE_SHOT: dict[str, Prior] = {"one_shot": (0.6, 0.3)}
BARRIER_FREE: dict[str, Prior] = {"allreduce_s": (0.74, 0.2)}
"""All-reduces of TensorRT-LLM 1.0 and 1.1. Up to 128 tokens they are one-shot, whatever they cost, and NCCL's beyond
(github.com/NVIDIA/TensorRT-LLM/pull/5432), until pull/7870 looked up what had been measured to be faster.

- ``one_shot``: share of a GPU's links that they reach; the start value is what small all-reduces of 0.9 do.
- ``allreduce_s``, the correction of these engines: without a barrier 16 KB take 3.4 to 4.4 µs on two to eight H200 and 5.1 to 5.8 µs on
  B200, with one (vLLM 0.19) 4.5 to 5.7 and 7.0 to 8.2 µs (``custom_allreduce_perf.parquet`` of aiconfigurator-core 0.12, TensorRT-LLM
  1.2.0rc5): 0.74 of it.
"""

BLACKWELL: dict[str, Prior] = {
    "compute_8": (0.57, 0.2),
    "memory_8": (0.74, 0.12),
    "attention": (0.85, 0.3),
    "latency": (1.0, 0.3),
    "link": (1.0, 0.2),
}
"""The start values are those of a study; that of the bandwidth is a published point (``TRANSFERRED`` of ``terms.py``)."""

FP4 = "nvfp4"
OF_FP4: dict[str, Prior] = {"compute": (0.79, 0.2), "memory": (0.80, 0.15)}
"""The shares of Blackwell's 8-bit efficiencies that NVFP4 reaches."""

CONSTANT = {"kv_single": 1.0, "head_arithmetic": 0.0, "walk_s": 0.0, "turnaround_s": 0.0}
EXPERTS = ("expert_compute", "expert_memory", "expert_spread")
"""Terms taken from TensorRT-LLM 0.15, because no row here has experts."""

MEASURED_GPU, MEASURED_BITS = "b200-sxm-180gb", "8"
ORIGIN = "efficiencies transferred from B200, fitted in FP8 and FP4; in 16 bits those of a study"
ROUNDS, EVALUATIONS, TOLERANCE, SLOPE = 2, 15, 1e-4, 1e-5
"""The simulations of every row, the evaluations after each, the tolerance of the search, and the step of the differences."""

SCORED = ("itl_ms", "ttft_ms", "ttft_all_ms", "itl_median_ms")
"""The MAPE of TPOT, of TTFT where the KV cache holds all clients, of TTFT over all rows, and the median signed error of TPOT, whose
mean over folds is the mean of its magnitudes."""
TITLES = {"gpu": "a system", "model": "a model", "engine": "an engine"}
TITLE = "current engines, {} left out; TTFT where KV fits"
ELSEWHERE = "host terms and decode attention were fitted on {gpus}; on this GPU they are transferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One part of the rows that is left out: all rows with one value of a column."""

    title: str
    name: str
    column: str
    train: list[Row]
    test: list[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconLayout(Layout):
    """The shared values, the corrections and Blackwell's terms as a vector of logarithms; ``terms`` multiplies them for every engine.

    Attributes:
        front_end: engines whose seconds per streamed token were chosen by rows.
    """

    front_end: tuple[str, ...] = ()

    def terms(self, x: NDArray[np.float64]) -> Terms:
        """The groups of ``perf.terms`` for a vector."""
        found = deepcopy(self.base or {})
        value = dict(zip(self.names, np.exp(x).tolist(), strict=True))
        for engine in ENGINES:
            own = found["engines"].setdefault(engine, {})
            for term in dict.fromkeys((*COMMON, *OWN)):
                own[term] = value.get(f"current.{term}", 1.0) * value.get(f"{engine}.{term}", 1.0)
        for engine in LAMPORT:
            found["engines"][engine] |= {"one_shot_tokens": ONE_SHOT_TOKENS, **{term: value[f"lamport.{term}"] for term in ONE_SHOT}}
        for earlier, priors in EARLIER.items():
            found["engines"][earlier] = found["engines"][VLLM] | {term: value[f"{earlier}.{term}"] for term in priors}
        found["architectures"]["Blackwell"] |= {term: value[f"Blackwell.{term}"] for term in BLACKWELL}
        found["formats"][FP4] |= {term: value[f"{FP4}.{term}"] for term in OF_FP4}
        return found

    def streaming(self, seconds: Mapping[str, float]) -> SiliconLayout:
        """The same layout with the seconds that the front ends of some engines take per streamed token."""
        base = deepcopy(self.base or {})
        for engine, value in seconds.items():
            base["engines"][_terms_of(engine)]["stream_s"] = value
        return replace(self, base=base, front_end=tuple(sorted({_terms_of(engine) for engine in seconds})))


def silicon_layout(terms: Terms) -> SiliconLayout:
    """The terms that the fit moves, on top of other fitted terms that stay as they are."""
    base = {group: deepcopy(values) for group, values in terms.items() if group not in ("origins", "report")}
    experts = {term: base["engines"][CURRENT][term] for term in EXPERTS}
    for engine in ENGINES:
        base["engines"][engine] = {**CONSTANT, **experts, "stream_s": streaming.START, **(TODAY if engine == VLLM else {})}
    groups = (("current", COMMON), ("lamport", ONE_SHOT), ("Blackwell", BLACKWELL), (FP4, OF_FP4))
    priors = {f"{group}.{term}": prior for group, named in groups for term, prior in named.items()}
    priors |= {f"{engine}.{term}": (1.0, spread) for engine in ENGINES for term, spread in OWN.items()}
    priors |= {f"{engine}.{term}": prior for engine in LAMPORT for term, prior in BARRIER_FREE.items()}
    priors |= {f"{earlier}.{term}": prior for earlier, own in EARLIER.items() for term, prior in own.items()}
    start, spread = (np.array([prior[i] for prior in priors.values()]) for i in (0, 1))
    return SiliconLayout(names=tuple(priors), start=np.log(start), spread=spread, base=base)


def solve_silicon(layout: SiliconLayout, rows: Sequence[Row]) -> Terms:
    """The terms that explain the rows best."""
    solved, x = solution(layout, rows)
    return solved.terms(x)


def solution(layout: SiliconLayout, rows: Sequence[Row]) -> tuple[SiliconLayout, NDArray[np.float64]]:
    """The vector that explains the rows best, and the layout that it belongs to, front ends included."""
    from scipy.optimize import least_squares

    parts, x = SiliconRows(rows), layout.start
    for number in range(ROUNDS):
        if number == ROUNDS - 1:
            layout = layout.streaming(streaming.seconds(rows, layout.terms(x)))
        parts.simulate(layout.terms(x))
        slopes = Slopes(layout, parts)
        x = least_squares(
            slopes.residuals, x, slopes.jacobian, x_scale=layout.spread, ftol=TOLERANCE, xtol=TOLERANCE, max_nfev=EVALUATIONS
        ).x
    return layout, x


class Slopes:
    """The residuals of rows and priors, and how they change with each term.

    The correction of an engine moves only the engine's own rows, so the same term of all engines is moved at once.
    """

    def __init__(self, layout: Layout, parts: SiliconRows) -> None:
        """Find the engine of each residual, and the terms that can be moved together."""
        self.layout, self.parts = layout, parts
        engines = np.array([_terms_of(find_engine(point.deployment.engine).coefficients) for point in parts.points])
        self.engine = np.concatenate([engines[np.isfinite(values)] for values in parts.measured.values()])
        together: dict[str, list[tuple[int, str]]] = {}
        for place, name in enumerate(layout.names):
            owner, _, term = name.rpartition(".")
            engine = owner if owner in ENGINES else ""
            together.setdefault(f"own {term}" if engine else name, []).append((place, engine))
        self.groups = list(together.values())

    def residuals(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The residuals of the rows, followed by those of the priors."""
        prior = PRIOR_WEIGHT * (x - self.layout.start) / self.layout.spread
        return np.concatenate([self.parts.residuals(self.layout.terms(x)), prior])

    def jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The Jacobian by differences over ``SLOPE`` of each term's logarithm, float64 (residuals, terms)."""
        here, count = self.parts.residuals(self.layout.terms(x)), len(self.engine)
        found = np.zeros((count + len(x), len(x)))
        found[count + np.arange(len(x)), np.arange(len(x))] = PRIOR_WEIGHT / self.layout.spread
        for group in self.groups:
            moved = x.copy()
            moved[[place for place, _ in group]] += SLOPE
            change = (self.parts.residuals(self.layout.terms(moved)) - here) / SLOPE
            for place, engine in group:
                found[:count, place] = np.where(self.engine == engine, change, 0.0) if engine else change
        return found


def _terms_of(coefficients: str) -> str:
    """The engine whose corrections a group of engine terms has; for an earlier version it is the later one."""
    return VLLM if coefficients in EARLIER else coefficients


def family(row: Row) -> str:
    """The engine family of a row, whatever its version."""
    return find_engine(row["engine"]).family


def folds(rows: Sequence[Row], title: str = TITLE) -> Iterable[Fold]:
    """The folds that leave out every system, model and engine family in turn."""
    for column, what in TITLES.items():
        part = {id(row): family(row) if column == "engine" else row[column] for row in rows}
        for name in sorted(set(part.values())):
            train, test = ([row for row in rows if (part[id(row)] == name) == out] for out in (False, True))
            yield Fold(title=title.format(what), name=name, column=column, train=train, test=test)


def figures(rows: Sequence[Row], terms: Terms, *, without: str = "", residuals: list[HeldOut] | None = None) -> Figures:
    """The errors of ``SCORED`` in percent.

    Args:
        rows: what is predicted.
        terms: the terms that predict it.
        without: the column whose value in these rows the terms have not seen at all, if there is one.
        residuals: a list to which the errors are appended.
    """
    parts = SiliconRows(rows)
    fits = np.array(parts.cache_holds_all())
    found = errors(parts, terms)
    if residuals is not None:
        errors_of = {"itl_ms": found["itl_ms"], "ttft_ms": np.where(fits, found["ttft_ms"], np.nan)}
        unseen = {"unseen_gpu": without == "gpu", "unseen_engine": without == "engine"}
        residuals += held_out_rows(parts.points, errors_of, current=True, **unseen)
    ttft = np.abs(found["ttft_ms"])
    values = (_mean(np.abs(found["itl_ms"])), _mean(ttft[fits]), _mean(ttft), float(np.median(found["itl_ms"])))
    return {name: round(100 * value, 2) for name, value in zip(SCORED, values, strict=True)}


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of the values that are known; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def refit(
    terms: Terms, file: Path, *, progress: Progress | None = None, cross_validate: bool = True, residuals: list[HeldOut] | None = None
) -> Terms:
    """Fit the terms of current engines, of Blackwell and of FP4 anew.

    Args:
        terms: the content of ``terms.json``; all its other terms are kept as they are.
        file: ``silicon_sample.csv``.
        progress: called with (done, total, name).
        cross_validate: also fit without each part that is held out.
        residuals: a list to which the errors of these parts are appended.

    Raises:
        InputError: the file cannot be read.
    """
    selection = select(file)
    rows, layout = selection.rows, silicon_layout(terms)
    parts = list(folds(rows)) if cross_validate else []
    report = progress or (lambda done, total, name: None)
    report(0, len(parts) + 1, "current engines")
    solved, x = solution(layout, rows)
    fitted, found = solved.terms(x), deepcopy(terms)
    for engine in (*ENGINES, *EARLIER):
        found["engines"][engine] = rounded({**fitted["engines"][engine], **_in_process(fitted["engines"], engine)})
    for later, earlier in LATER.items():
        found["engines"][later] = {term: value for term, value in found["engines"][earlier].items() if term not in OUTGROWN}
    found["architectures"]["Blackwell"] = rounded(fitted["architectures"]["Blackwell"])
    found["formats"][FP4] = rounded(fitted["formats"][FP4])
    found["gpus"][MEASURED_GPU] = {f"{term}_{MEASURED_BITS}": 1.0 for term in ("compute", "memory")}
    _say_where_from(found, selection)
    found["origins"]["front_end"] = list(solved.front_end)
    tables: dict[str, dict[str, Figures]] = {}
    for number, fold in enumerate(parts, start=1):
        report(number, len(parts) + 1, f"{fold.title}: without {fold.name}")
        left_out = figures(fold.test, solve_silicon(layout, fold.train), without=fold.column, residuals=residuals)
        tables.setdefault(fold.title, {})[fold.name] = left_out
    add_means(tables)
    _report(found, rows, tables)
    return found


def _in_process(engines: Terms, engine: str) -> dict[str, float]:
    """Seconds per sequence in which a later TensorRT-LLM hands out tokens; 0.15, called in its own process, did not spend them."""
    later = find_engine(engine).family == find_engine(CURRENT).family
    return {"response_s": max(engines[engine]["sequence_s"] - engines[CURRENT]["sequence_s"], 0.0)} if later else {}


def add_means(tables: dict[str, dict[str, Figures]]) -> None:
    """Give every table a row "mean" over its folds; it is a mean of magnitudes, because errors of both signs would cancel."""
    for table in tables.values():
        table["mean"] = {name: round(float(np.nanmean([abs(each[name]) for each in table.values()])), 2) for name in SCORED}


def _say_where_from(found: Terms, selection: Selection) -> None:
    origins = found["origins"]
    origins["architectures"]["Blackwell"] = ORIGIN
    origins["formats"].pop(FP4, None)
    origins["engine_rows"] = {}
    for engine in (*ENGINES, *EARLIER):
        versions = [*EARLIER, VLLM] if engine == VLLM else [engine]
        own = [row for row in selection.rows if find_engine(row["engine"]).coefficients in versions]
        gpus = [gpu for gpu in GPUS.values() if any(row["gpu"] == gpu for row in own)]
        names = ", ".join(find_gpu(gpu).name.split("-")[0].upper() for gpu in gpus)
        origins["engines"].pop(engine, None)
        origins["engine_rows"][engine] = {"gpus": gpus, "elsewhere": ELSEWHERE.format(gpus=names)}
        whose = f", of {' and '.join(EARLIER)}" if engine == VLLM else ""
        origins["rows"][engine] = f"{len(own):,} dense rows of {FILE} (aiconfigurator-core 0.12) on {names}{whose}"
    for later, earlier in LATER.items():
        origins["engines"].pop(later, None)
        origins["engine_rows"][later] = dict(origins["engine_rows"][earlier])
        origins["rows"][later] = f"those of {earlier}"


def _report(found: Terms, rows: Sequence[Row], tables: dict[str, dict[str, Figures]]) -> None:
    report = found["report"]
    report["rows"][FILE] = len(rows)
    names = sorted({row["engine"] for row in rows})
    report["in_sample"][FILE] = {name: figures([row for row in rows if row["engine"] == name], found) for name in names}
    report["in_sample"][FILE]["all"] = figures(rows, found)
    report["held_out"] = {title: table for title, table in report["held_out"].items() if title not in tables} | tables


def carried_over(terms: Terms) -> Terms:
    """The content of ``terms.json`` with the terms that an earlier ``refit`` gave, as the package ships them."""
    old, found = shipped(), deepcopy(terms)
    for engine in (*ENGINES, *EARLIER, *LATER):
        found["engines"][engine] = dict(old["engines"][engine])
        found["origins"]["rows"][engine] = old["origins"]["rows"][engine]
    found["architectures"]["Blackwell"] = dict(old["architectures"]["Blackwell"])
    found["gpus"][MEASURED_GPU] = dict(old["gpus"][MEASURED_GPU])
    found["formats"][FP4] = dict(old["formats"][FP4])
    found["origins"]["formats"].pop(FP4, None)
    found["origins"]["architectures"]["Blackwell"] = old["origins"]["architectures"]["Blackwell"]
    for name in ("engine_rows", "front_end"):
        found["origins"][name] = deepcopy(old["origins"][name])
    kept: Mapping[str, Any] = old["report"]
    found["report"]["rows"][FILE] = kept["rows"][FILE]
    found["report"]["in_sample"][FILE] = deepcopy(kept["in_sample"][FILE])
    for title in map(TITLE.format, TITLES.values()):
        if title in kept["held_out"]:
            found["report"]["held_out"][title] = deepcopy(kept["held_out"][title])
    return found
