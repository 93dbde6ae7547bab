"""Engine terms of current engines, fitted on ``silicon_sample.csv`` with the GPU terms of Hopper held.

Free are the terms of the presets ``vllm``, ``tensorrt-llm-1.0`` and ``tensorrt-llm-1.1`` and those of Blackwell,
which no other rows know. Whole systems, whole models and whole engines are left out in turn: an engine
without rows is scored with the terms of the one that ``NEAREST`` names, B200 with Blackwell's start values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.perf.terms import shipped
from tonnage.sizing.fitting.residuals import HeldOut, held_out_rows
from tonnage.sizing.fitting.rows import Progress, errors
from tonnage.sizing.fitting.silicon_rows import FILE, GPUS, Row, Selection, SiliconRows, select
from tonnage.sizing.fitting.terms import CURRENT, Layout, Prior
from tonnage.spec.catalog import find_engine, find_gpu

Figures = dict[str, float]
Terms = dict[str, Any]

VLLM, TRTLLM_RC, TRTLLM = "vllm", "tensorrt-llm-1.0", "tensorrt-llm-1.1"

COMMON: dict[str, Prior] = {
    "kv_bandwidth": (0.9, 0.1),
    "kv_8bit": (1.0, 0.1),
    "frontend_s": (25e-3, 0.5),
    "compute": (1.0, 0.1),
    "memory": (1.0, 0.05),
    "attention": (1.0, 0.3),
}
"""The last three are relative to the shared terms: an engine's own kernels."""

OF_TRTLLM: dict[str, Prior] = COMMON | {
    "allreduce_s": (2.8e-6, 0.6),
    "layer_s": (39e-6, 0.3),
    "step_s": (0.32e-3, 0.5),
    "sequence_s": (17e-6, 0.5),
    "prefill_s": (0.79e-3, 0.5),
    "prefill_layer_s": (50e-6, 1.0),
}

ENGINES: dict[str, dict[str, Prior]] = {
    VLLM: COMMON
    | {
        "allreduce_s": (2.5e-6, 0.6),
        "layer_s": (48e-6, 0.3),
        "step_s": (0.55e-3, 0.5),
        "sequence_s": (30e-6, 0.5),
        "prefill_s": (0.55e-3, 0.5),
    },
    TRTLLM_RC: OF_TRTLLM,
    TRTLLM: OF_TRTLLM,
}
"""Start values: STEP_MODEL.md, "One model for all of it"; ``prefill_layer_s``, steps with prompts run without CUDA graphs,
is a guess."""

NEAREST = {VLLM: (TRTLLM, TRTLLM_RC), TRTLLM_RC: (TRTLLM, VLLM), TRTLLM: (TRTLLM_RC, VLLM)}
"""Whose terms an engine has that no row was left of."""

BLACKWELL: dict[str, Prior] = {
    "compute_8": (0.57, 0.2),
    "memory_8": (0.78, 0.12),
    "attention": (0.85, 0.3),
    "latency": (1.0, 0.3),
    "link": (1.0, 0.2),
}

CONSTANT = {"kv_single": 1.0, "head_arithmetic": 0.0, "walk_s": 0.0, "turnaround_s": 0.0}
EXPERTS = ("expert_ada", "expert_ampere", "expert_compute", "expert_memory", "expert_spread")
"""Taken from TensorRT-LLM 0.15: no row here has experts."""

MEASURED_GPU, MEASURED_BITS = "b200-sxm-180gb", "8"
ORIGIN = "efficiencies transferred from B200, fitted in FP8; in 16 bits those of a study"
SCORED = ("itl_ms", "ttft_ms")
TITLES = {"gpu": "a system", "model": "a model", "engine": "an engine"}
ELSEWHERE = "host terms and decode attention were fitted on {gpus}; on this GPU they are transferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One part left out, by a column."""

    title: str
    name: str
    column: str
    train: list[Row]
    test: list[Row]


def silicon_layout(terms: Terms) -> Layout:
    """What the fit moves, on top of fitted terms that stay as they are."""
    base = {group: deepcopy(values) for group, values in terms.items() if group not in ("origins", "report")}
    experts = {term: base["engines"][CURRENT][term] for term in EXPERTS}
    for engine, priors in ENGINES.items():
        base["engines"][engine] = {**CONSTANT, **experts, **{term: value for term, (value, _) in priors.items()}}
    owners = [(f"engines.{engine}", priors) for engine, priors in ENGINES.items()] + [("architectures.Blackwell", BLACKWELL)]
    priors = {f"{owner}.{term}": prior for owner, named in owners for term, prior in named.items()}
    start, spread = (np.array([prior[i] for prior in priors.values()]) for i in (0, 1))
    return Layout(names=tuple(priors), start=np.log(start), spread=spread, base=base)


def solve_silicon(layout: Layout, rows: Sequence[Row]) -> Terms:
    """The terms that explain the rows best."""
    from tonnage.sizing.fitting.fit import solve

    everything = np.arange(len(layout.names))
    return layout.terms(solve(layout, [(1.0, SiliconRows(rows))], layout.start, everything))


def folds(rows: Sequence[Row]) -> Iterable[Fold]:
    """Every system, model and engine left out in turn."""
    for column, what in TITLES.items():
        for name in sorted({row[column] for row in rows}):
            parts = ([row for row in rows if (row[column] == name) == out] for out in (False, True))
            train, test = parts
            yield Fold(title=f"current engines, {what} left out; TTFT where KV fits", name=name, column=column, train=train, test=test)


def held_out(layout: Layout, fold: Fold, residuals: list[HeldOut] | None = None) -> Figures:
    """Errors over what a fold leaves out."""
    terms = solve_silicon(layout, fold.train)
    seen = {find_engine(row["engine"]).coefficients for row in fold.train}
    for engine in ENGINES:
        if engine not in seen:
            nearest = next(other for other in NEAREST[engine] if other in seen)
            terms["engines"][engine] = dict(terms["engines"][nearest])
    return figures(fold.test, terms, without=fold.column, residuals=residuals)


def figures(rows: Sequence[Row], terms: Terms, *, without: str = "", residuals: list[HeldOut] | None = None) -> Figures:
    """MAPE in percent of TPOT over all rows, and of mean TTFT where the KV cache holds all clients.

    Args:
        rows: what is predicted; terms: with what.
        without: the column, if any, whose whole value the terms have not seen, for
        residuals: to which the errors are appended.
    """
    parts = SiliconRows(rows)
    fits = np.array(parts.cache_holds_all())
    found = errors(parts, terms)
    used = {"itl_ms": found["itl_ms"], "ttft_ms": found["ttft_ms"][fits]}
    if residuals is not None:
        errors_of = {"itl_ms": found["itl_ms"], "ttft_ms": np.where(fits, found["ttft_ms"], np.nan)}
        residuals += held_out_rows(parts.points, errors_of, strange_gpu=without == "gpu", strange_engine=without == "engine")
    return {name: round(float(100 * np.nanmean(np.abs(used[name]))), 2) for name in SCORED}


def refit(
    terms: Terms, file: Path, *, progress: Progress | None = None, cross_validate: bool = True, residuals: list[HeldOut] | None = None
) -> Terms:
    """The content of ``terms.json`` with the terms of current engines and of Blackwell fitted anew.

    Args:
        terms: such a content; all its other terms are kept as they are.
        file: ``silicon_sample.csv``.
        progress: called with (done, total, name).
        cross_validate: also fit without each part that is held out.
        residuals: to which the errors of these parts are appended.

    Raises:
        InputError: the file cannot be read.
    """
    from tonnage.sizing.fitting.fit import rounded

    selection = select(file)
    rows, layout = selection.rows, silicon_layout(terms)
    parts = list(folds(rows)) if cross_validate else []
    report = progress or (lambda done, total, name: None)
    report(0, len(parts) + 1, "current engines")
    fitted = solve_silicon(layout, rows)
    found = deepcopy(terms)
    for engine in ENGINES:
        found["engines"][engine] = rounded(fitted["engines"][engine])
    found["architectures"]["Blackwell"] = rounded(fitted["architectures"]["Blackwell"])
    found["gpus"][MEASURED_GPU] = {f"{term}_{MEASURED_BITS}": 1.0 for term in ("compute", "memory")}
    _say_where_from(found, selection)
    tables: dict[str, dict[str, Figures]] = {}
    for number, fold in enumerate(parts, start=1):
        report(number, len(parts) + 1, f"{fold.title}: without {fold.name}")
        tables.setdefault(fold.title, {})[fold.name] = held_out(layout, fold, residuals)
    for table in tables.values():
        table["mean"] = {name: round(float(np.mean([each[name] for each in table.values()])), 2) for name in SCORED}
    _report(found, rows, tables)
    return found


def _say_where_from(found: Terms, selection: Selection) -> None:
    origins = found["origins"]
    origins["architectures"]["Blackwell"] = ORIGIN
    origins["engine_rows"] = {}
    for engine in ENGINES:
        own = [row for row in selection.rows if find_engine(row["engine"]).coefficients == engine]
        gpus = [gpu for gpu in GPUS.values() if any(row["gpu"] == gpu for row in own)]
        names = ", ".join(find_gpu(gpu).name.split("-")[0].upper() for gpu in gpus)
        origins["engines"].pop(engine, None)
        origins["engine_rows"][engine] = {"gpus": gpus, "elsewhere": ELSEWHERE.format(gpus=names)}
        origins["rows"][engine] = f"{len(own):,} dense rows of {FILE} (aiconfigurator-core 0.12) on {names}"


def _report(found: Terms, rows: Sequence[Row], tables: dict[str, dict[str, Figures]]) -> None:
    report = found["report"]
    report["rows"][FILE] = len(rows)
    names = sorted({row["engine"] for row in rows})
    report["in_sample"][FILE] = {name: figures([row for row in rows if row["engine"] == name], found) for name in names}
    report["in_sample"][FILE]["all"] = figures(rows, found)
    report["held_out"] = {title: table for title, table in report["held_out"].items() if title not in tables} | tables


def carried_over(terms: Terms) -> Terms:
    """The content with what an earlier ``refit`` gave, as the package ships it."""
    old, found = shipped(), deepcopy(terms)
    for engine in ENGINES:
        found["engines"][engine] = dict(old["engines"][engine])
        found["origins"]["rows"][engine] = old["origins"]["rows"][engine]
    found["architectures"]["Blackwell"] = dict(old["architectures"]["Blackwell"])
    found["gpus"][MEASURED_GPU] = dict(old["gpus"][MEASURED_GPU])
    found["origins"]["architectures"]["Blackwell"] = old["origins"]["architectures"]["Blackwell"]
    found["origins"]["engine_rows"] = deepcopy(old["origins"]["engine_rows"])
    kept: Mapping[str, Any] = old["report"]
    found["report"]["rows"][FILE] = kept["rows"][FILE]
    found["report"]["in_sample"][FILE] = deepcopy(kept["in_sample"][FILE])
    for title, table in kept["held_out"].items():
        if title.startswith("current engines"):
            found["report"]["held_out"][title] = deepcopy(table)
    return found
