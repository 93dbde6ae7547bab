"""The stage of the fit that reads the points of 2026 (``agg.csv.gz``), after everything else and
with all older terms held.

Their values are medians over many runs and engine versions, so that a few of each deployment say as
much as all: the stage reads at most ``EACH`` points of a model, GPU, engine and format. Whole
models and whole GPUs are left out in turn.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.evidence.rows import Progress
from tonnage.perf.host import WITH_INDEXER
from tonnage.perf.prediction_error import regime_of
from tonnage.perf.ranges import sizes_of
from tonnage.perf.residuals import Regime, shipped_residuals
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.layers import WITH_STATE
from tools.fit.data import measured_bits
from tools.fit.decisions import Load, decided, surely
from tools.fit.fitting import Fitting
from tools.fit.folds import Fold
from tools.fit.modern.layout import (
    EARLIER,
    ENGINE,
    GENERATIONS,
    KINDS,
    OF_FP4,
    ULTRA,
    ModernLayout,
    modern_layout,
)
from tools.fit.modern.rows import FILE, ModernRows, Row, select_modern, select_submitted
from tools.fit.processes import Processes
from tools.fit.silicon import dense, moe
from tools.fit.silicon.dense_rows import select
from tools.fit.silicon.moe_rows import select_moe
from tools.fit.slopes import Slopes
from tools.fit.solving import rounded
from tools.fit.terms import STATIC
from tools.fit.terms import layout as first_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

EACH, MOST_CLIENTS = 8, 1024
"""Points of a deployment that are read, and the most clients of one."""

CONFIGURATION = ("model", "gpu", "family", "precision", "tp", "dp", "ep", "isl", "osl", "engine")
"""What a curve is of, whatever the day of its runs; a median over many months counts as older than
any run."""

KIND = ("model", "gpu", "family", "format")
"""What one measurement would set the level of."""

SUBMITTED_WEIGHT = 3.0
"""What a residual of MLPerf counts: its six MI355X systems lie within 3 % of their mean, medians
over versions within 12 % of a run."""

MOVED = {
    "architectures": (*GENERATIONS, ULTRA),
    "engines": (ENGINE, *EARLIER),
    "formats": (OF_FP4,),
}
"""Groups of terms and what of them the stage moves, beside the kinds of layers."""

FEWEST = 20
"""Points of which a model or a GPU must have so many to be judged; fewer are reported."""

EVALUATIONS, NEARBY, SEED = (6, 8), (4,), 3
METRICS = {
    "itl_ms": "TPOT",
    "output_tok_s": "tokens/s",
    "ttft_p50_ms": "median TTFT",
    "ttft_ms": "mean TTFT",
}

Terms = dict[str, Any]
Figures = dict[str, float]
FirstRows = Mapping[str, Sequence[Row]]
"""The rows of the first stage by engine."""


def newest(rows: Sequence[Row]) -> list[Row]:
    """Of each configuration and load its newest point."""
    return list(
        {
            tuple(map(row.get, (*CONFIGURATION, "concurrency"))): row
            for row in sorted(rows, key=lambda row: row["day"])
        }.values()
    )


def thinned(rows: Sequence[Row], each: int = EACH) -> list[Row]:
    """At most ``each`` points of a model, GPU, engine and format, drawn once and for all; of each
    configuration its newest.
    """
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in newest(rows):
        if row["concurrency"] <= MOST_CLIENTS:
            groups[tuple(map(row.get, KIND))].append(row)
    found: list[Row] = []
    for group in groups.values():
        ordered = sorted(
            group, key=lambda row: (row["concurrency"], row["isl"], row["tp"], row["dp"])
        )
        random.Random(SEED).shuffle(ordered)
        found += ordered[:each]
    return found


def is_moved(row: Row) -> bool:
    """Whether a term of the stage is part of a point: of AMD, of Blackwell Ultra, or of a model
    with one of the newer kinds of layers.
    """
    return (
        bool(row["amd"])
        or find_gpu(row["gpu"]).arch == ULTRA
        or not find_model(row["model"]).kinds.isdisjoint((*WITH_STATE, *WITH_INDEXER))
    )


def solve_modern(
    layout: ModernLayout, rows: Sequence[Row], start: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The vector that explains the points best; from a ``start`` nearby one simulation and few
    evaluations are enough.
    """
    from scipy.optimize import least_squares

    moved, x = [row for row in rows if is_moved(row)], layout.start if start is None else start
    groups = (
        (1.0, [row for row in moved if not row["submitted"]]),
        (SUBMITTED_WEIGHT, [row for row in moved if row["submitted"]]),
    )
    parts = [(weight, ModernRows(some)) for weight, some in groups if some]
    for evaluations in EVALUATIONS if start is None else NEARBY:
        for _, some in parts:
            some.simulate(layout.terms(x))
        slopes = Slopes(layout, parts, x)
        x = least_squares(
            slopes.residuals, x, slopes.jacobian, x_scale=layout.spread, max_nfev=evaluations
        ).x
    return x


def figures(rows: Sequence[Row], terms: Terms, without: str = "") -> Figures:
    """Median size and median of the relative error of each metric, in percent, the number of
    points, and what intervals hold.

    Args:
        rows: what is predicted.
        terms: with which terms.
        without: the column whose value the terms have not seen; "" where they have seen all.
    """
    parts = ModernRows(rows)
    parts.simulate(terms)
    found: Figures = {"n": len(rows)}
    for name, metric in METRICS.items():
        if name in parts.measured:
            errors = parts.simulated(name) / parts.measured[name] - 1.0
            known = errors[np.isfinite(errors)]
            if known.size:
                found[metric] = round(100 * float(np.median(np.abs(known))), 1)
                found[f"{metric} bias"] = round(100 * float(np.median(known)), 1)
                found[f"{metric} n"] = int(known.size)
    if "TPOT" in found:
        inside = [one for one in held_out_intervals(parts, without) if one is not None]
        found["TPOT inside"] = round(100 * float(np.mean(inside)), 0)
    return found


def decisions_of(rows: Sequence[Row], terms: Terms, without: str) -> Figures:
    """What the predictions decide along each measured curve (``decided``); of each configuration
    and load the newest point counts.
    """
    parts = ModernRows([row for row in newest(rows) if row["itl_ms"] is not None])
    parts.simulate(terms)
    curves = [tuple(map(row.get, CONFIGURATION)) for row in parts.rows]
    times = zip(parts.measured["itl_ms"].tolist(), parts.simulated("itl_ms").tolist(), strict=True)
    loads = [
        (curve, row["concurrency"], *both)
        for curve, row, both in zip(curves, parts.rows, times, strict=True)
    ]
    kinds = [tuple(map(row.get, KIND)) for row in parts.rows]
    return decided(loads, [surely(regime) for regime in _regimes(parts, without)], kinds)


def held_out_intervals(parts: ModernRows, without: str) -> list[bool | None]:
    """Whether each measured time per token lies in the 80 % interval that a user would be given;
    None where none was measured.

    What is left out counts as a model, or as a GPU, of which there are no rows, and every engine as
    one that has none on that GPU.
    """
    table, inside = shipped_residuals(), list[bool | None]()
    times = zip(parts.simulated("itl_ms"), parts.measured["itl_ms"], strict=True)
    for regime, (predicted, measured) in zip(_regimes(parts, without), times, strict=True):
        low, high = table.interval("itl_ms", float(predicted), regime)
        inside.append(bool(low <= measured <= high) if np.isfinite(measured) else None)
    return inside


def _regimes(parts: ModernRows, without: str) -> Iterator[Regime]:
    """What each point is of, to a user whose table of errors has not seen what is left out."""
    for point, row in zip(parts.points, parts.rows, strict=True):
        regime = regime_of(
            point.deployment, isl=row["isl"], osl=row["osl"], clients=row["concurrency"]
        )
        yield (
            regime
            if not without
            else replace(regime, known_model=False)
            if without == "model"
            else regime.on_unknown_gpu
        )


def folds(rows: Sequence[Row]) -> Iterable[tuple[str, str]]:
    """Every model and every GPU with enough points, as a column and its value."""
    for column in ("model", "gpu"):
        for name in sorted({row[column] for row in rows}):
            if sum(row[column] == name for row in rows) >= FEWEST:
                yield column, name


def refit(
    terms: Terms,
    file: Path,
    submitted: Path | None = None,
    *,
    silicon: Path | None = None,
    earlier: FirstRows | None = None,
    progress: Progress | None = None,
    cross_validate: bool = True,
    processes: Processes | None = None,
) -> Terms:
    """Fit what the points of 2026 tell anew.

    Args:
        terms: the content of ``terms.json``; all its other terms are kept as they are.
        file: ``agg.csv.gz``.
        submitted: ``mlperf_v61.csv``, if it is at hand.
        silicon: ``silicon_sample.csv``, whose stages a fold repeats without what it leaves out;
            without it they keep their terms.
        earlier: the rows of the first stage by engine, which a fold repeats without a GPU that it
            has; without them it keeps its terms.
        progress: called with (done, total, name).
        cross_validate: also fit without each model and each GPU.
        processes: where the fits without them are made; the caller's own if not given.

    Raises:
        InputError: the file cannot be read.
    """
    everything = select_modern(file).rows + (
        [] if submitted is None else select_submitted(submitted)
    )
    released = [row for row in everything if row["released"]]
    rows, layout = thinned(released), modern_layout(terms)
    parts = list(folds(released)) if cross_validate else []
    report = progress or (lambda done, total, name: None)
    report(0, len(parts) + 1, "models and accelerators of 2026")
    x = solve_modern(layout, rows)
    fitted, found = layout.terms(x), deepcopy(terms)
    found["shared"] |= rounded({term: fitted["shared"][term] for term in KINDS})
    for group, names in MOVED.items():
        found[group] |= {name: rounded(fitted[group][name]) for name in names}

    def say(place: int) -> None:
        report(place + 1, len(parts) + 1, f"without {parts[place][1]}")

    older = Older(silicon=silicon, first=earlier or {})
    work = partial(_left_out, terms=terms, older=older, x=x, rows=rows, everything=everything)
    results = (processes or Processes()).map(work, parts, say)
    tables: dict[str, dict[str, Figures]] = {"model": {}, "gpu": {}}
    judged: dict[str, list[Judged]] = {"model": [], "gpu": []}
    for (column, name), (table, rest) in zip(parts, results, strict=True):
        tables[column][name] = table
        judged[column] += rest
    _origins(found, everything)
    in_sample = {column: _by(rows, column, found) for column in ("model", "gpu", "family")}
    found["report"]["modern"] = {
        "file": FILE,
        "rows": len(everything),
        "read": len(rows),
        "free_terms": len(layout.names),
        "in_sample": in_sample,
        "held_out": tables if parts else terms["report"].get("modern", {}).get("held_out", {}),
        "apart": {column: by_class(some) for column, some in judged.items()} if parts else {},
        "floor": floor(everything),
    }
    return found


def terms_without(
    layout: ModernLayout, x: NDArray[np.float64], rows: Sequence[Row], part: tuple[str, str]
) -> Terms:
    """The terms that were fitted to the points without a model or a GPU.

    They are near the solution ``x`` for all points, unless a GPU of AMD is left out: with it goes
    its whole generation (MI350X is the chip of MI355X), so that the other generation's points alone
    say what AMD's share. Points that move no term leave ``x`` as it is.
    """
    column, name = part
    out = [row for row in rows if row[column] == name]
    of_amd = column == "gpu" and out[0]["amd"]
    if any(is_moved(row) for row in out):
        kept = [
            row
            for row in rows
            if row[column] != name
            and not (of_amd and find_gpu(row["gpu"]).arch == find_gpu(name).arch)
        ]
        x = solve_modern(layout, kept, start=None if of_amd else x)
    return layout.terms(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """The rows of the older stages, which a fold fits again without what it leaves out:
    ``silicon_sample.csv``, and the first stage's.
    """

    silicon: Path | None = None
    first: FirstRows = field(default_factory=dict)


def first_without(terms: Terms, first: FirstRows, gpu: str) -> Terms:
    """The terms of the first stage (static batches, NIM, TensorRT-LLM 0.15), fitted again without a
    GPU that it has rows of.
    """
    remaining = {
        engine: [row for row in rows if row["gpu"] != gpu] for engine, rows in first.items()
    }
    if sum(map(len, remaining.values())) == sum(map(len, first.values())):
        return terms
    fitting = Fitting(
        rows=remaining,
        layout=first_layout(measured_bits([row for rows in remaining.values() for row in rows])),
    )
    fold = Fold(title="a GPU left out", name=gpu, engine=STATIC, train=remaining, test=[])
    fitted, merged = fitting.layout.terms(fitting.without(fold)), deepcopy(terms)
    merged["gpus"].pop(gpu, None)
    for group in ("shared", "architectures", "gpus", "links", "engines"):
        merged[group] |= fitted[group]
    return merged


def older_without(terms: Terms, older: Older, part: tuple[str, str]) -> Terms:
    """The terms of the older stages, fitted again without a GPU, or without a model and others of
    its sizes.

    Terms come back as they are where these stages have no such rows. Of the first stage no model is
    left out: it has none of the points'.
    """
    column, name = part
    if column == "gpu":
        terms = first_without(terms, older.first, name)
    if older.silicon is None:
        return terms
    sizes = sizes_of(find_model(name)) if column == "model" else None
    out = {name} | {model for model in OLDER if sizes_of(find_model(model)) == sizes}
    dense_rows, experts = select(older.silicon).rows, select_moe(older.silicon).rows
    first_moved = any(row["gpu"] == name for rows in older.first.values() for row in rows)
    kept = [row for row in dense_rows if row[column] not in out]
    if first_moved or len(kept) < len(dense_rows):
        terms = dense.with_moved(terms, kept)[0]
    kept = [row for row in experts if row[column] not in out]
    if first_moved or len(kept) < len(experts):
        layout = moe.moe_layout(terms, {moe.preset(row) for row in experts})
        terms = moe.with_moved(terms, layout, kept[:: moe.THINNED], moe.FEWER_EVALUATIONS)
    return terms


Judged = tuple[str, Load, float, tuple[Any, ...], bool | None]
"""The class of a point that was left out, what is predicted of it, the factor of a plan at its
usual confidence, the kind, and whether its interval holds the measured time per token."""


def _left_out(
    part: tuple[str, str],
    *,
    terms: Terms,
    older: Older,
    x: NDArray[np.float64],
    rows: Sequence[Row],
    everything: Sequence[Row],
) -> tuple[Figures, list[Judged]]:
    """The errors and decisions of a model or a GPU with terms that were fitted to the other points,
    and its points one by one.
    """
    column, name = part
    layout = modern_layout(older_without(terms, older, part))
    fitted, whole = (
        terms_without(layout, x, rows, part),
        [row for row in everything if row[column] == name],
    )
    released = [row for row in whole if row["released"]]
    return figures(thinned(released), fitted, column) | decisions_of(
        released, fitted, column
    ), judged_of(whole, fitted, column)


def judged_of(rows: Sequence[Row], terms: Terms, without: str) -> list[Judged]:
    """Of each configuration and load its newest point, of released images and of first support
    apart.
    """
    found: list[Judged] = []
    for released, what in ((True, "released"), (False, "first support")):
        some = newest(
            [row for row in rows if row["released"] == released and row["itl_ms"] is not None]
        )
        if not some:
            continue
        parts = ModernRows(some)
        parts.simulate(terms)
        pairs = zip(
            parts.measured["itl_ms"].tolist(), parts.simulated("itl_ms").tolist(), strict=True
        )
        inside = held_out_intervals(parts, without)
        of_points = zip(parts.rows, pairs, _regimes(parts, without), inside, strict=True)
        for row, times, regime, holds in of_points:
            load = tuple(map(row.get, CONFIGURATION)), row["concurrency"], *times
            name, kind = f"{what}, {find_gpu(row['gpu']).vendor}", tuple(map(row.get, KIND))
            found.append((name, load, surely(regime), kind, holds))
    return found


def by_class(judged: Sequence[Judged]) -> dict[str, Figures]:
    """Errors of the time per token, the share inside the intervals, both in percent, and decisions
    of what was left out, by class and vendor.
    """
    found: dict[str, Figures] = {}
    for name in sorted({point[0] for point in judged}):
        points = [point for point in judged if point[0] == name]
        _, loads, longer, kinds, inside = zip(*points, strict=True)
        errors = np.array([predicted / measured - 1.0 for _, _, measured, predicted in loads])
        found[name] = {
            "n": len(errors),
            "TPOT mean": round(100 * float(np.nanmean(np.abs(errors))), 1),
            "TPOT": round(100 * float(np.nanmedian(np.abs(errors))), 1),
            "TPOT bias": round(100 * float(np.nanmedian(errors)), 1),
            "TPOT inside": round(
                100 * float(np.mean([holds for holds in inside if holds is not None])), 1
            ),
        } | decided(loads, longer, kinds)
    return found


SOON, LATER = 14, 100
"""Days: runs of one configuration within so many are of much the same engine, and those that are so
many apart of a later one."""


def floor(rows: Sequence[Row]) -> dict[str, Figures]:
    """What one run decides for another of the same configuration, by vendor and by the days between
    them: the limit of any model.
    """
    runs: dict[tuple[Any, ...], dict[str, dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        if len(row["day"]) == len("2026-01-01") and row["itl_ms"] is not None:
            same = tuple(row[name] for name in CONFIGURATION if name != "engine")
            runs[same][row["day"]][row["concurrency"]] = row["itl_ms"]
    loads: dict[str, list[Load]] = defaultdict(list)
    for same, days in runs.items():
        for before, after in combinations(sorted(days), 2):
            apart = (date.fromisoformat(after) - date.fromisoformat(before)).days
            when = (
                f"within {SOON} days"
                if apart <= SOON
                else f"{LATER} days and more apart"
                if apart >= LATER
                else ""
            )
            both = days[before].keys() & days[after].keys()
            loads[f"{find_gpu(same[1]).vendor}, {when}"] += [
                ((same, before, after), clients, days[after][clients], days[before][clients])
                for clients in both
                if when
            ]
    return {name: decided(some, [1.0] * len(some)) for name, some in sorted(loads.items()) if some}


OLDER = {
    *(
        "falcon-180b",
        "gpt-j-6b",
        "llama-2-7b",
        "llama-2-13b",
        "llama-2-70b",
        "mistral-7b",
        "mixtral-8x7b",
        "mixtral-8x22b",
    ),
    *("llama-3-8b", "llama-3-70b", "llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "qwen3-235b-a22b"),
    *("minimax-m2.5", "gpt-oss-120b", "deepseek-r1", "kimi-k2.5"),
}
"""The models of the other files."""


def _origins(found: Terms, rows: Sequence[Row]) -> None:
    """Note which GPUs, engines and models the points are of; a pair of engine and GPU counts from
    ``FEWEST`` points of two models on.
    """
    origins = found["origins"]
    classes: dict[str, set[bool]] = defaultdict(set)
    for row in rows:
        classes[" ".join((row["family"], row["model"], row["format"], row["gpu"]))].add(
            row["released"]
        )
    origins["first_support"] = sorted(name for name, seen in classes.items() if seen == {False})
    origins["models"] = sorted(OLDER | {row["model"] for row in rows})
    own = Counter(row["gpu"] for row in rows if find_gpu(row["gpu"]).arch in MOVED["architectures"])
    origins["gpus"] = {gpu: count for gpu, count in sorted(own.items()) if count >= FEWEST}
    for generation in GENERATIONS:
        named = ", ".join(gpu for gpu in origins["gpus"] if find_gpu(gpu).arch == generation)
        origins["architectures"][generation] = (
            f"efficiencies transferred from {named}, fitted on medians over many engine versions"
        )
    pairs: dict[tuple[str, str], set[str]] = defaultdict(set)
    counts = Counter((find_engine(row["engine"]).coefficients, row["gpu"]) for row in rows)
    for row in rows:
        pairs[find_engine(row["engine"]).coefficients, row["gpu"]].add(row["model"])
    told = [
        (preset, gpu)
        for (preset, gpu), models in pairs.items()
        if len(models) > 1 and counts[preset, gpu] >= FEWEST
    ]
    for preset, gpu in sorted(told):
        own = origins["engine_rows"].setdefault(preset, {"gpus": [], "elsewhere": ELSEWHERE})
        own["gpus"] = [*own["gpus"], *([gpu] if gpu not in own["gpus"] else [])]
    origins["engines"].pop(ENGINE, None)
    origins["formats"].pop(OF_FP4, None)
    of_engine = [row for row in rows if row["family"] == ENGINE]
    origins["rows"][ENGINE] = (
        f"{FILE}, on MI355X ({len(of_engine)} points); what they do not tell is SGLang's"
    )
    for name, part in (
        ("experts", of_engine),
        ("latent", [row for row in of_engine if find_model(row["model"]).has_latent_cache]),
    ):
        origins[name] = {**origins[name], ENGINE: len(part)}


ELSEWHERE = (
    "host terms and decode attention were fitted on AMD's GPUs; on this GPU they are transferred"
)


def carried_over(terms: Terms) -> Terms:
    """The content of ``terms.json`` with the terms that an earlier ``refit`` gave, as the package
    ships them.
    """
    old, found = shipped(), deepcopy(terms)
    found["shared"] |= {term: old["shared"][term] for term in KINDS}
    for group, names in MOVED.items():
        found[group] |= {name: dict(old[group][name]) for name in names}
    found["origins"]["formats"].pop(OF_FP4, None)
    for name in ("models", "gpus", "engine_rows", "experts", "latent", "first_support"):
        found["origins"][name] = deepcopy(old["origins"][name])
    found["origins"]["rows"][ENGINE] = old["origins"]["rows"][ENGINE]
    found["origins"]["architectures"] |= {
        generation: old["origins"]["architectures"][generation] for generation in GENERATIONS
    }
    found["report"]["modern"] = deepcopy(old["report"]["modern"])
    return found


def _by(rows: Sequence[Row], column: str, terms: Terms) -> dict[str, Figures]:
    """The errors of every value of a column."""
    return {
        name: figures([row for row in rows if row[column] == name], terms)
        for name in sorted({row[column] for row in rows})
    }
