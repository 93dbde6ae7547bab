"""Expert and latent-attention terms of current engines, fitted on ``silicon_sample.csv`` with all dense terms held.

An engine's value of a term is a value that all engines share times the engine's own small correction, so that an
engine, a GPU or a model without rows is predicted by the others. The shared values, the corrections and one
factor for Blackwell are free; nothing of a dense model moves. Systems, models and engines are left out in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.perf.terms import shipped
from tonnage.sizing.fitting.moe_rows import MoeRows, select_moe
from tonnage.sizing.fitting.residuals import HeldOut, held_out_rows
from tonnage.sizing.fitting.rows import Progress, errors
from tonnage.sizing.fitting.silicon_rows import FILE, Row
from tonnage.sizing.fitting.terms import Layout, Prior
from tonnage.spec.catalog import find_engine, find_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

Figures = dict[str, float]
Terms = dict[str, Any]

SHARED: dict[str, Prior] = {
    "expert_compute": (0.8, 0.5),
    "expert_memory": (0.9, 0.15),
    "expert_spread": (0.9, 0.1),
    "expert_rows": (6.0, 0.7),
    "expert_layer": (1.0, 0.3),
    "expert_each_s": (50e-9, 0.8),
    "expert_sequence": (0.7, 0.4),
    "expert_prefill_s": (200e-6, 1.0),
    "expert_skew": (0.05, 0.7),
    "dispatch": (1.5, 0.7),
    "latent_bandwidth": (0.7, 0.3),
    "latent_arithmetic": (1.0, 0.3),
    "latent_attention": (0.8, 0.4),
    "latent_layer": (1.2, 0.3),
    "latent_prefill_s": (200e-6, 1.0),
}
"""Start values of what engines share, fixed before scoring: a study found expert prefill at 10 to 20 % of the peak."""

OWN = {
    "expert_compute": 0.2,
    "expert_memory": 0.1,
    "expert_rows": 0.3,
    "expert_layer": 0.2,
    "expert_sequence": 0.2,
    "expert_prefill_s": 0.5,
    "latent_bandwidth": 0.2,
    "latent_attention": 0.3,
    "latent_prefill_s": 0.5,
}
"""Spread of an engine's own correction."""

FORMATS = ("nvfp4", "mxfp4", "mxfp4 unpacked", "gptq")
OF_FORMAT = {"expert_compute": 0.3, "expert_memory": 0.15}
"""Spread of what expert matrices reach in a format, beside the format's share in dense ones."""

OF_BLACKWELL = {"expert": 0.3, "expert_layer": 0.2}
"""The same of Blackwell's expert arithmetic, relative to dense, and of its time per layer."""

FURTHER: dict[str, Prior] = {f"{term}_{name}": (1.0, spread) for name in FORMATS for term, spread in OF_FORMAT.items()}
GENERATIONS: dict[str, Prior] = {f"{term}_blackwell": (1.0, spread) for term, spread in OF_BLACKWELL.items()}

SCORED = ("itl_ms", "ttft_ms")
TITLES = {"gpu": "a system", "model": "a model", "engine": "an engine"}
TITLE = "current engines, MoE, {} left out"
EXPERTS, LATENT, DISPATCH = "expert_", "latent_", "dispatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeLayout(Layout):
    """Shared values and corrections as a vector of logarithms; ``terms`` gives every engine its product."""

    engines: tuple[str, ...] = ()

    def terms(self, x: NDArray[np.float64]) -> Terms:
        """The groups of ``perf.terms`` for a vector."""
        found = deepcopy(self.base or {})
        value = dict(zip(self.names, np.exp(x).tolist(), strict=True))
        for engine in self.engines:
            own = found["engines"].setdefault(engine, {})
            for term in SHARED:
                own[term] = value[term] * value.get(f"{engine}.{term}", 1.0)
            own |= {term: value[term] for term in FURTHER}
            own |= {f"{term}{ultra}": value[term] for term in GENERATIONS for ultra in ("", " ultra")}
        return found


def moe_layout(terms: Terms, engines: Iterable[str]) -> MoeLayout:
    """What the fit moves, on top of fitted terms that stay as they are."""
    base = {group: deepcopy(values) for group, values in terms.items() if group not in ("origins", "report")}
    names = tuple(sorted(engines))
    priors = SHARED | FURTHER | GENERATIONS
    priors |= {f"{engine}.{term}": (1.0, spread) for engine in names for term, spread in OWN.items()}
    start, spread = (np.array([prior[i] for prior in priors.values()]) for i in (0, 1))
    return MoeLayout(names=tuple(priors), start=np.log(start), spread=spread, base=base, engines=names)


def preset(row: Row) -> str:
    """The group of engine terms of a row."""
    return find_engine(row["engine"]).coefficients


def solve_moe(layout: MoeLayout, rows: Sequence[Row]) -> Terms:
    """The terms that explain the rows best."""
    from tonnage.sizing.fitting.fit import solve

    everything = np.arange(len(layout.names))
    return layout.terms(solve(layout, [(1.0, MoeRows(rows))], layout.start, everything))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One part left out, by a column."""

    title: str
    name: str
    column: str
    train: list[Row]
    test: list[Row]


def folds(rows: Sequence[Row]) -> Iterable[Fold]:
    """Every system, model and engine left out in turn."""
    for column, what in TITLES.items():
        for name in sorted({row[column] for row in rows}):
            train, test = ([row for row in rows if (row[column] == name) == out] for out in (False, True))
            yield Fold(title=TITLE.format(what), name=name, column=column, train=train, test=test)


def figures(rows: Sequence[Row], terms: Terms, *, without: str = "", residuals: list[HeldOut] | None = None) -> Figures:
    """MAPE in percent of TPOT over all rows, and of mean TTFT where the KV cache holds all clients.

    Args:
        rows: what is predicted; terms: with what.
        without: the column, if any, whose whole value the terms have not seen, for
        residuals: to which the errors are appended.
    """
    parts = MoeRows(rows)
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
    """The content of ``terms.json`` with the terms of experts and latent attention of current engines fitted anew.

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

    rows = select_moe(file).rows
    layout = moe_layout(terms, {preset(row) for row in rows})
    parts = list(folds(rows)) if cross_validate else []
    report = progress or (lambda done, total, name: None)
    report(0, len(parts) + 1, "experts of current engines")
    fitted, found = solve_moe(layout, rows), deepcopy(terms)
    for engine in layout.engines:
        found["engines"][engine] = rounded(fitted["engines"][engine])
    tables: dict[str, dict[str, Figures]] = {}
    for number, fold in enumerate(parts, start=1):
        report(number, len(parts) + 1, f"{fold.title}: without {fold.name}")
        tables.setdefault(fold.title, {})[fold.name] = figures(
            fold.test, solve_moe(layout, fold.train), without=fold.column, residuals=residuals
        )
    for table in tables.values():
        table["mean"] = {name: round(float(np.mean([each[name] for each in table.values()])), 2) for name in SCORED}
    _report(found, rows, tables)
    return found


def _report(found: Terms, rows: Sequence[Row], tables: dict[str, dict[str, Figures]]) -> None:
    report, title = found["report"], f"{FILE}, MoE"
    report["rows"][title] = len(rows)
    parts = {name: [row for row in rows if row["engine"] == name] for name in sorted({row["engine"] for row in rows})}
    parts["latent attention"] = [row for row in rows if find_model(row["model"]).latent is not None]
    report["in_sample"][title] = {name: figures(part, found) for name, part in parts.items() if part}
    report["in_sample"][title]["all"] = figures(rows, found)
    report["held_out"] = {name: table for name, table in report["held_out"].items() if name not in tables} | tables
    latent = sorted({preset(row) for row in parts["latent attention"]})
    found["origins"]["experts"] = {engine: sum(preset(row) == engine for row in rows) for engine in sorted({preset(r) for r in rows})}
    found["origins"]["latent"] = latent


def carried_over(terms: Terms) -> Terms:
    """The content with what an earlier ``refit`` gave, as the package ships it."""
    old, found = shipped(), deepcopy(terms)
    for engine in old["origins"].get("experts", {}):
        fitted: Mapping[str, float] = old["engines"][engine]
        found["engines"][engine] |= {term: value for term, value in fitted.items() if term.startswith((EXPERTS, LATENT, DISPATCH))}
    for name in ("experts", "latent"):
        if name in old["origins"]:
            found["origins"][name] = deepcopy(old["origins"][name])
    for kind in ("rows", "in_sample", "held_out"):
        found["report"][kind] |= {name: deepcopy(value) for name, value in old["report"][kind].items() if "MoE" in name}
    return found
