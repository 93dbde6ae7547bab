"""The terms of experts and latent attention of current engines, fitted on ``silicon_sample.csv``
while all dense terms are held.

An engine's value of a term is a value that all engines share, times the engine's own small
correction. So the others predict an engine, a GPU or a model without rows. The fit moves the shared
values, the corrections and the factors of formats and of Blackwell; no prediction of a dense model
changes. Systems, models and engines are left out in turn.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.evidence.rows import Progress
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine, find_model
from tools.fit.processes import Processes
from tools.fit.silicon.dense import LATER
from tools.fit.silicon.dense_terms import EARLIER, VLLM
from tools.fit.silicon.folds import Fold, Scored, add_means, folds, scored
from tools.fit.silicon.moe_rows import select_moe
from tools.fit.silicon.sample import FILE, Row
from tools.fit.silicon.silicon_rows import SiliconRows
from tools.fit.solving import rounded, solve
from tools.fit.terms import CURRENT, Layout, Prior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Deployment
    from tools.fit.residuals import HeldOut

Figures = dict[str, float]
Terms = dict[str, Any]

SHARED: dict[str, Prior] = {
    "expert_compute": (0.8, 0.5),
    "expert_memory": (0.9, 0.15),
    "expert_spread": (0.9, 0.1),
    "expert_rows": (6.0, 0.7),
    "expert_layer": (1.0, 0.3),
    "expert_each_s": (25e-9, 0.5),
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
"""The start values of what engines share, fixed before scoring; a study found expert prefill at 10
to 20 % of the peak rate.

``expert_each_s``: sorting few tokens to 128 and to 256 experts takes 22.6 and 25.8 µs
(github.com/sgl-project/sglang/pull/7794; earlier 22.5 and 27.6, pull/4348), choosing among 256 and
among 384 the same (pull/22488). """

NEWER = {earlier: later for later, earlier in LATER.items()}
"""The version from which an older one is corrected. So what engines share is what they share today:
in 2025 the kernels of experts and of latent attention were young, in every engine (``OLDER``)."""

OLDER = "older"
"""The owner of the correction that the older versions of all engines have in common, beside the
correction of each."""

OWN = {
    "expert_compute": 0.2,
    "expert_memory": 0.1,
    "expert_rows": 0.3,
    "expert_layer": 0.2,
    "expert_sequence": 0.2,
    "expert_prefill_s": 0.5,
    "latent_bandwidth": 0.2,
    "latent_attention": 0.3,
    "latent_layer": 0.2,
    "latent_prefill_s": 0.5,
}
"""The spread of an engine's own correction, and of the correction that older versions share."""

FORMATS = {"fp4": ("nvfp4", "mxfp4"), "unpacked": ("mxfp4 unpacked", "gptq")}
OF_FORMAT: dict[str, Prior] = {"expert_compute": (1.2, 0.3), "expert_memory": (1.2, 0.2)}
OWN_FORMAT = {"expert_compute": 0.1, "expert_memory": 0.07}
"""What expert matrices reach in a kind of formats beside the format's share in dense ones, and the
spread of a format's correction."""

OF_BLACKWELL = {"expert": 0.3, "expert_layer": 0.2}
"""The spread of Blackwell's expert arithmetic relative to dense arithmetic, and of its time per
layer."""

LAYER_8 = "expert_layer_blackwell_fp8"
"""Time per layer in 8 bits, relative to 4: kernels that choose experts and multiply at once are of
Blackwell's own formats first."""

UNFUSED = "tensorrt-llm"
"""The engine whose experts in FP8 go through DeepGEMM on Blackwell, matrix by matrix, while those
in FP4 are fused; so in FP8 nothing is saved per layer. Its deployment guide for DeepSeek R1
(1.2.0rc2) names no other kernels, and InferenceMAX's scripts asked for these."""

KINDS: dict[str, Prior] = {
    f"{term}_{kind}": prior for kind in FORMATS for term, prior in OF_FORMAT.items()
}
FURTHER: dict[str, Prior] = {
    f"{term}_{name}": (1.0, spread)
    for names in FORMATS.values()
    for name in names
    for term, spread in OWN_FORMAT.items()
}
GENERATIONS: dict[str, Prior] = {
    f"{term}_blackwell": (1.0, spread) for term, spread in OF_BLACKWELL.items()
} | {LAYER_8: (1.0, 0.2)}

EXPERTS, LATENT, DISPATCH = "expert_", "latent_", "dispatch"
TITLE = "current engines, MoE, {} left out; TTFT where KV fits"
EVALUATIONS, FEWER_EVALUATIONS = 12, 8
"""The evaluations of the residuals after each of two simulations, for the terms that are shipped
and with a part left out."""

THINNED = 5
"""With a part left out, every fifth of the other rows is fitted; all rows of the part are
scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeLayout(Layout):
    """The shared values and the corrections as a vector of logarithms; ``terms`` multiplies them
    for every engine.
    """

    engines: tuple[str, ...] = ()

    def terms(self, x: NDArray[np.float64]) -> Terms:
        """The groups of ``perf.terms`` for a vector."""
        found = deepcopy(self.base or {})
        value = dict(zip(self.names, np.exp(x).tolist(), strict=True))
        for engine in self.engines:
            own = found["engines"].setdefault(engine, {})
            newer = NEWER.get(engine, engine)
            owners = [
                engine,
                *([OLDER] if engine in NEWER else []),
                *([newer] if newer != engine and newer in self.engines else []),
            ]
            for term in SHARED:
                own[term] = value[term] * math.prod(
                    value.get(f"{owner}.{term}", 1.0) for owner in owners
                )
            for (kind, names), term in itertools.product(FORMATS.items(), OF_FORMAT):
                own |= {
                    f"{term}_{name}": value[f"{term}_{kind}"] * value[f"{term}_{name}"]
                    for name in names
                }
            own |= {term: value[term] for term in GENERATIONS}
            own[LAYER_8] = (
                1.0
                if find_engine(engine).family == UNFUSED
                else own["expert_layer_blackwell"] * own[LAYER_8]
            )
            # no row here has wide experts
            own["expert_compute_wide"] = found["engines"][CURRENT]["expert_compute"]
        return found

    def reaches(self, name: str, deployment: Deployment) -> bool:
        """Whether a term can change what the steps of a deployment take; that of an engine reaches
        its older version too.
        """
        owner, preset = name.rpartition(".")[0], find_engine(deployment.engine).coefficients
        return owner == "" or (
            preset in NEWER if owner == OLDER else owner in (preset, NEWER.get(preset))
        )


def moe_layout(terms: Terms, engines: Iterable[str]) -> MoeLayout:
    """The terms that the fit moves, on top of other fitted terms that stay as they are."""
    base = {
        group: deepcopy(values)
        for group, values in terms.items()
        if group not in ("origins", "report")
    }
    names = tuple(sorted(engines))
    priors = SHARED | KINDS | FURTHER | GENERATIONS
    priors |= {
        f"{owner}.{term}": (1.0, spread)
        for owner in (*names, OLDER)
        for term, spread in OWN.items()
    }
    start, spread = (np.array([prior[i] for prior in priors.values()]) for i in (0, 1))
    return MoeLayout(
        names=tuple(priors), start=np.log(start), spread=spread, base=base, engines=names
    )


def preset(row: Row) -> str:
    """The group of engine terms of a row."""
    return find_engine(row["engine"]).coefficients


def solve_moe(layout: MoeLayout, rows: Sequence[Row], evaluations: int = EVALUATIONS) -> Terms:
    """The terms that explain the rows best."""
    everything = np.arange(len(layout.names))
    return layout.terms(
        solve(
            layout,
            [(1.0, SiliconRows(rows))],
            layout.start,
            everything,
            evaluations=(evaluations, evaluations),
        )
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
    """Fit the terms of experts and latent attention of current engines anew.

    Args:
        terms: the content of ``terms.json``; all its other terms are kept as they are.
        file: ``silicon_sample.csv``.
        progress: called with (done, total, name).
        cross_validate: also fit without each part that is held out, on every fifth of the other
            rows.
        residuals: a list to which the errors of these parts are appended.
        processes: where the fits without them are made; the caller's own if not given.

    Raises:
        InputError: the file cannot be read.
    """
    rows = select_moe(file).rows
    layout = moe_layout(terms, {preset(row) for row in rows})
    parts = list(folds(rows, TITLE)) if cross_validate else []
    report = progress or (lambda done, total, name: None)
    report(0, len(parts) + 1, "experts of current engines")
    found = with_moved(terms, layout, rows)

    def say(place: int) -> None:
        report(place + 1, len(parts) + 1, f"{parts[place].title}: without {parts[place].name}")

    results = (processes or Processes()).map(partial(_left_out, layout), parts, say)
    tables: dict[str, dict[str, Figures]] = {}
    for fold, result in zip(parts, results, strict=True):
        tables.setdefault(fold.title, {})[fold.name] = result.figures()
        if fold.column != "engine" and any(map(_of_vllm, fold.test)):
            tables.setdefault(f"{fold.title}; rows of vLLM alone", {})[fold.name] = result.figures(
                map(_of_vllm, fold.test)
            )
        if residuals is not None:
            residuals += result.held_out(fold.column)
    add_means(tables)
    _report(found, rows, tables)
    return found


def with_moved(
    terms: Terms, layout: MoeLayout, rows: Sequence[Row], evaluations: int = EVALUATIONS
) -> Terms:
    """The terms with those that the stage moves, fitted to some rows."""
    fitted, found = solve_moe(layout, rows, evaluations), deepcopy(terms)
    for engine in layout.engines:
        found["engines"][engine] = rounded(fitted["engines"][engine])
    for earlier in EARLIER:
        found["engines"][earlier] |= _of_experts(found["engines"][VLLM])
    return found


def _left_out(layout: MoeLayout, fold: Fold) -> Scored:
    """The rows that a fold leaves out, with the terms that were fitted without them."""
    return scored(
        fold.test, solve_moe(layout, fold.train[::THINNED], evaluations=FEWER_EVALUATIONS)
    )


def _of_vllm(row: Row) -> bool:
    return preset(row) == VLLM


def _of_experts(engine: Mapping[str, float]) -> Figures:
    """Those terms of an engine that no dense model has."""
    return {
        term: value
        for term, value in engine.items()
        if term.startswith((EXPERTS, LATENT, DISPATCH))
    }


def _report(found: Terms, rows: Sequence[Row], tables: dict[str, dict[str, Figures]]) -> None:
    report, title = found["report"], f"{FILE}, MoE"
    report["rows"][title] = len(rows)
    everything = scored(rows, found)
    by_part = everything.by("engine")
    if latent := [row for row in rows if _is_latent(row)]:
        by_part["latent attention"] = everything.figures(map(_is_latent, rows))
    report["in_sample"][title] = by_part | {"all": everything.figures()}
    report["held_out"] = {
        name: table for name, table in report["held_out"].items() if name not in tables
    } | tables
    for name, part in (("experts", rows), ("latent", latent)):
        count = dict(sorted(Counter(preset(row) for row in part).items()))
        # no rows, but the terms of vLLM
        found["origins"][name] = count | (dict.fromkeys(EARLIER, 0) if VLLM in count else {})


def _is_latent(row: Row) -> bool:
    return find_model(row["model"]).latent is not None


def carried_over(terms: Terms) -> Terms:
    """The content of ``terms.json`` with the terms that an earlier ``refit`` gave, as the package
    ships them.
    """
    old, found = shipped(), deepcopy(terms)
    for engine in (name for name in old["origins"].get("experts", {}) if name in found["engines"]):
        found["engines"][engine] |= _of_experts(old["engines"][engine])
    for name in ("experts", "latent"):
        if name in old["origins"]:
            found["origins"][name] = deepcopy(old["origins"][name])
    for kind in ("rows", "in_sample", "held_out"):
        found["report"][kind] |= {
            name: deepcopy(value) for name, value in old["report"][kind].items() if "MoE" in name
        }
    return found
