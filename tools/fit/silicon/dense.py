"""The terms of current engines, fitted on the dense rows of ``silicon_sample.csv`` while the GPU
terms of Hopper are held.

Today's engines call much the same kernels. So a term of an engine is a value that all current
engines share, times a small correction of its own. An engine without rows has the shared values,
and one of another version or family moves little. The fit moves the shared values, the corrections,
the terms of Blackwell, and what NVFP4 reaches there, about which no other rows tell. Kernels of 8
and of 16 bits have terms of their own, because quantising activations costs the engines much of
what FP8 gains in prefill.

Whole systems, whole models and whole engine families are left out in turn. Without B200 its terms
keep their start values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from tonnage.evidence.rows import Progress, Terms
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine, find_gpu
from tools.fit.processes import Processes
from tools.fit.residuals import HeldOut
from tools.fit.silicon.dense_rows import GPUS, select
from tools.fit.silicon.dense_terms import (
    EARLIER,
    ENGINES,
    FP4,
    FP4_ULTRA,
    SGLANG,
    TRTLLM,
    ULTRA,
    VLLM,
    SiliconLayout,
    silicon_layout,
)
from tools.fit.silicon.folds import TITLE, TITLES, Figures, Fold, Scored, add_means, folds, scored
from tools.fit.silicon.sample import FILE, Row, Selection
from tools.fit.silicon.solving import solution, solve_silicon
from tools.fit.solving import rounded
from tools.fit.terms import CURRENT

LATER = {"tensorrt-llm-1.2": TRTLLM, "sglang-0.5.9": SGLANG}
"""Versions without dense rows, and the version whose dense terms they take: they differ in experts
and latent attention (``moe.py``)."""

OUTGROWN = ("one_shot_tokens",)
"""Terms of an earlier version that its later one does not have."""

OF_BLACKWELL = {"architectures": ("Blackwell", ULTRA), "formats": (FP4, FP4_ULTRA)}
"""Groups of terms and what of them follows B200's rows."""

MEASURED_GPU, MEASURED_BITS = "b200-sxm-180gb", "8"
ORIGIN = "efficiencies transferred from B200, fitted in FP8 and FP4; in 16 bits those of a study"
ELSEWHERE = (
    "host terms and decode attention were fitted on {gpus}; on this GPU they are transferred"
)


def refit(
    terms: Terms,
    file: Path,
    *,
    progress: Progress | None = None,
    cross_validate: bool = True,
    residuals: list[HeldOut] | None = None,
    processes: Processes | None = None,
) -> Terms:
    """Fit the terms of current engines, of Blackwell and of FP4 anew.

    Args:
        terms: the content of ``terms.json``; all its other terms are kept as they are.
        file: ``silicon_sample.csv``.
        progress: called with (done, total, name).
        cross_validate: also fit without each part that is held out.
        residuals: a list to which the errors of these parts are appended.
        processes: where the fits without them are made; the caller's own if not given.

    Raises:
        InputError: the file cannot be read.
    """
    selection = select(file)
    rows, layout = selection.rows, silicon_layout(terms)
    parts = list(folds(rows)) if cross_validate else []
    report = progress or (lambda done, total, name: None)
    report(0, len(parts) + 1, "current engines")
    found, solved = with_moved(terms, rows)
    _say_where_from(found, selection)
    found["origins"]["front_end"] = list(solved.front_end)

    def say(place: int) -> None:
        report(place + 1, len(parts) + 1, f"{parts[place].title}: without {parts[place].name}")

    results = (processes or Processes()).map(partial(_left_out, layout), parts, say)
    tables: dict[str, dict[str, Figures]] = {}
    for fold, result in zip(parts, results, strict=True):
        tables.setdefault(fold.title, {})[fold.name] = result.figures()
        if residuals is not None:
            residuals += result.held_out(fold.column)
    add_means(tables)
    _report(found, rows, tables)
    return found


def with_moved(terms: Terms, rows: Sequence[Row]) -> tuple[Terms, SiliconLayout]:
    """The terms with those that the stage moves, fitted to some rows, and the layout with which
    they were solved.
    """
    solved, x = solution(silicon_layout(terms), rows)
    fitted, found = solved.terms(x), deepcopy(terms)
    for engine in (*ENGINES, *EARLIER):
        found["engines"][engine] = rounded(
            {**fitted["engines"][engine], **_in_process(fitted["engines"], engine)}
        )
    for later, earlier in LATER.items():
        found["engines"][later] = {
            term: value for term, value in found["engines"][earlier].items() if term not in OUTGROWN
        }
    for group, names in OF_BLACKWELL.items():
        found[group] |= {name: rounded(fitted[group][name]) for name in names}
    found["gpus"][MEASURED_GPU] = {f"{term}_{MEASURED_BITS}": 1.0 for term in ("compute", "memory")}
    return found, solved


def _left_out(layout: SiliconLayout, fold: Fold) -> Scored:
    """The rows that a fold leaves out, with the terms that were fitted without them."""
    return scored(fold.test, solve_silicon(layout, fold.train))


def _in_process(engines: Terms, engine: str) -> dict[str, float]:
    """Seconds per sequence in which a later TensorRT-LLM hands out tokens; 0.15, called in its own
    process, did not spend them.
    """
    later = find_engine(engine).family == find_engine(CURRENT).family
    return (
        {"response_s": max(engines[engine]["sequence_s"] - engines[CURRENT]["sequence_s"], 0.0)}
        if later
        else {}
    )


def _say_where_from(found: Terms, selection: Selection) -> None:
    origins = found["origins"]
    origins["architectures"] |= dict.fromkeys(OF_BLACKWELL["architectures"], ORIGIN)
    for name in OF_BLACKWELL["formats"]:
        origins["formats"].pop(name, None)
    origins["engine_rows"] = {}
    for engine in (*ENGINES, *EARLIER):
        versions = [*EARLIER, VLLM] if engine == VLLM else [engine]
        own = [row for row in selection.rows if find_engine(row["engine"]).coefficients in versions]
        gpus = [gpu for gpu in GPUS.values() if any(row["gpu"] == gpu for row in own)]
        names = ", ".join(find_gpu(gpu).name.split("-")[0].upper() for gpu in gpus)
        origins["engines"].pop(engine, None)
        origins["engine_rows"][engine] = {"gpus": gpus, "elsewhere": ELSEWHERE.format(gpus=names)}
        whose = f", of {' and '.join(EARLIER)}" if engine == VLLM else ""
        origins["rows"][engine] = (
            f"{len(own):,} dense rows of {FILE} (aiconfigurator-core 0.12) on {names}{whose}"
        )
    for later, earlier in LATER.items():
        origins["engines"].pop(later, None)
        origins["engine_rows"][later] = dict(origins["engine_rows"][earlier])
        origins["rows"][later] = f"those of {earlier}"


def _report(found: Terms, rows: Sequence[Row], tables: dict[str, dict[str, Figures]]) -> None:
    report = found["report"]
    report["rows"][FILE] = len(rows)
    everything = scored(rows, found)
    report["in_sample"][FILE] = everything.by("engine") | {"all": everything.figures()}
    report["held_out"] = {
        title: table for title, table in report["held_out"].items() if title not in tables
    } | tables


def carried_over(terms: Terms) -> Terms:
    """The content of ``terms.json`` with the terms that an earlier ``refit`` gave, as the package
    ships them.
    """
    old, found = shipped(), deepcopy(terms)
    for engine in (*ENGINES, *EARLIER, *LATER):
        found["engines"][engine] = dict(old["engines"][engine])
        found["origins"]["rows"][engine] = old["origins"]["rows"][engine]
    for group, names in OF_BLACKWELL.items():
        found[group] |= {name: dict(old[group][name]) for name in names}
    found["gpus"][MEASURED_GPU] = dict(old["gpus"][MEASURED_GPU])
    for name in OF_BLACKWELL["formats"]:
        found["origins"]["formats"].pop(name, None)
    found["origins"]["architectures"] |= {
        name: old["origins"]["architectures"][name] for name in OF_BLACKWELL["architectures"]
    }
    for name in ("engine_rows", "front_end"):
        found["origins"][name] = deepcopy(old["origins"][name])
    kept: Mapping[str, Any] = old["report"]
    found["report"]["rows"][FILE] = kept["rows"][FILE]
    found["report"]["in_sample"][FILE] = deepcopy(kept["in_sample"][FILE])
    for title in map(TITLE.format, TITLES.values()):
        if title in kept["held_out"]:
            found["report"]["held_out"][title] = deepcopy(kept["held_out"][title])
    return found
