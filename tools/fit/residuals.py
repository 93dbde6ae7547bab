"""The held-out errors of a cross-validated fit, turned into the table that
``perf.prediction_error`` reads.

Each error belongs to a group of rows of one deployment, whose errors are alike. The quantiles of a
regime are drawn towards those of the wider regime around it, as if ``PULL`` rows of that one were
added. Intervals will be asked for groups that no table has seen. So the table is made once without
each group, and ``stretch`` is the factor by which those intervals must widen to hold the share that
they promise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import (
    FORMATS,
    LEVELS,
    SHARE,
    STANDS_IN,
    Regime,
    Residuals,
    residuals_of,
)

if TYPE_CHECKING:
    from tonnage.evidence.predict import Point

PULL = 60.0
"""How many rows of the wider regime a narrower one borrows."""

FEWEST = 12
"""The number of rows below which a regime has no quantiles of its own."""

WIDEST = 3.0
"""The largest stretch, and the largest widening for an unseen GPU or engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The error of one metric of a row that the fit had not seen.

    Attributes:
        metric: the column; tokens/s count as requests/s, which is the same number at fixed lengths.
        log_error: log(predicted / measured).
        regime: the regime of the row.
        group: a label; the errors of rows with the same label are alike.
        unseen_gpu, unseen_engine: whether the whole GPU, or every row of the engine, was left out
            of the fit.
        format: the format of the weights.
        names: the names of the regime, from wide to narrow.
    """

    metric: str
    log_error: float
    regime: Regime
    group: str
    unseen_gpu: bool
    unseen_engine: bool = False
    format: str = "fp16"
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Look up the names once; the table asks for them hundreds of times."""
        object.__setattr__(self, "names", self.regime.names())

    @property
    def usual(self) -> bool:
        """Whether the fit had seen the GPU and the engine."""
        return not (self.unseen_gpu or self.unseen_engine)


def held_out_rows(
    points: Sequence[Point],
    errors: Mapping[str, Iterable[float]],
    *,
    unseen_gpu: bool = False,
    unseen_engine: bool = False,
    current: bool | None = None,
) -> list[HeldOut]:
    """The errors of one fold.

    Args:
        points: the rows that it left out.
        errors: their signed relative errors by metric, in the same order; NaN where a metric was
            not measured.
        unseen_gpu, unseen_engine: whether their whole GPU, or their engine, was left out.
        current: whether the engines are current ones; taken from the shipped terms if not given,
            which know no new engine.
    """
    found = []
    for metric, values in errors.items():
        for point, value in zip(points, values, strict=True):
            if math.isfinite(value) and value > -1:
                found.append(
                    HeldOut(
                        metric="requests_s" if metric == "output_tok_s" else metric,
                        log_error=math.log1p(value),
                        regime=_regime(point, current),
                        group=_group(point),
                        unseen_gpu=unseen_gpu,
                        unseen_engine=unseen_engine,
                        format=point.deployment.precision.weight_format,
                    )
                )
    return found


def _regime(point: Point, current: bool | None) -> Regime:
    """The regime of a measured row, about which everything is known, whatever the shipped terms had
    seen: the factors of what sets a deployment apart are on top of the errors of these rows.
    """
    found = regime_of(
        point.deployment, isl=point.isl, osl=point.osl, batch=point.batch, clients=point.concurrency
    )
    of_today = found.current if current is None else current
    return replace(
        found,
        known_gpu=True,
        known_engine=True,
        known_format=True,
        known_family=True,
        known_model=True,
        first_support=False,
        differs=1.0,
        apart=frozenset(),
        current=of_today,
    )


def _group(point: Point) -> str:
    """The engine and the model, and for rows under load also the GPU, with which the knobs and the
    host change.
    """
    d = point.deployment
    return f"{d.engine} {d.model.name}" + ("" if point.batch is not None else f" {d.gpu.name}")


def residual_table(rows: Iterable[HeldOut], date: str) -> dict[str, Any]:
    """The content of ``residuals.json``, without the widths."""
    everything = list(rows)
    usual = [row for row in everything if row.usual]
    by_metric = {
        metric: [row for row in usual if row.metric == metric]
        for metric in sorted({row.metric for row in usual})
    }
    static = [row for row in everything if row.regime.kind == "static"]
    wider: dict[str, float] = {}
    for metric in sorted(by_metric, key=lambda name: name in STANDS_IN):
        gpus = [row for row in static if row.metric == metric and row.unseen_gpu]
        wider[metric] = _wider(gpus, static, metric) or wider.get(STANDS_IN.get(metric, ""), 1.0)
    document: dict[str, Any] = {
        "quantiles": {metric: _quantiles(mine) for metric, mine in by_metric.items()},
        "stretch": {metric: _stretches(mine) for metric, mine in by_metric.items()},
        "unseen_gpu": {
            metric: {"static": wider[metric], **_unseen_kinds(everything, metric)}
            for metric in sorted(wider)
        },
        "unseen_engine": _unseen_engines(everything),
        "formats": sorted({row.format for row in everything} | set(FORMATS)),
        "report": {
            "date": date,
            "share": SHARE,
            "levels": list(LEVELS),
            "rows": {metric: len(mine) for metric, mine in by_metric.items()},
            "groups": {
                metric: len({row.group for row in mine}) for metric, mine in by_metric.items()
            },
            "coverage": coverage(usual),
            "coverage_by_regime": coverage_by_regime(usual),
        },
    }
    report, table = document["report"], residuals_of(document)
    gpus = [
        replace(row, regime=replace(row.regime, known_gpu=False))
        for row in everything
        if row.unseen_gpu
    ]
    engines = [
        replace(row, regime=replace(row.regime, known_engine=False))
        for row in everything
        if row.unseen_engine
    ]
    report |= {
        "coverage_unseen_gpu": _coverage_of(gpus, table),
        "coverage_unseen_engine": _coverage_of(engines, table),
    }
    return document


def carried_over(document: dict[str, Any], old: Residuals, kind: str) -> dict[str, Any]:
    """The document, with the regimes of a kind taken from an older table where no new row is of
    that kind.
    """
    if any(kind in table for table in document["quantiles"].values()):
        return document
    found = deepcopy(document)
    for metric, table in old.quantiles.items():
        found["quantiles"].setdefault(metric, {}).update(
            {key: list(v) for key, v in table.items() if key.startswith(kind)}
        )
    for name, tables in (("stretch", old.stretch), ("unseen_engine", old.unseen_engine)):
        for metric, kinds in tables.items():
            found[name].setdefault(metric, {}).update(
                {key: value for key, value in kinds.items() if key == kind}
            )
    return found


def _coverage_of(rows: Sequence[HeldOut], table: Residuals) -> dict[str, dict[str, float]]:
    """The share of errors inside the intervals of a finished table, in percent, by metric and kind
    of load.
    """
    found: dict[str, dict[str, float]] = {}
    for metric in sorted({row.metric for row in rows} & set(table.quantiles)):
        for kind, mine in _by_kind([row for row in rows if row.metric == metric]).items():
            found.setdefault(metric, {})[kind] = round(100 * _covered(mine, table, SHARE), 1)
    return found


def _unseen_kinds(rows: Sequence[HeldOut], metric: str) -> dict[str, float]:
    """How much wider the errors of left-out GPUs are, for every kind of load except static
    batches.
    """
    found = {}
    for kind, mine in _by_kind(
        [row for row in rows if row.metric == metric and row.regime.kind != "static"]
    ).items():
        factor = _wider([row for row in mine if row.unseen_gpu], mine, metric)
        if factor is not None:
            found[kind] = factor
    return found


def _unseen_engines(rows: Sequence[HeldOut]) -> dict[str, dict[str, float]]:
    """How much wider the errors of left-out engines are than those of left-out models, by metric
    and kind of load.
    """
    found: dict[str, dict[str, float]] = {}
    for kind, mine in _by_kind(rows).items():
        for metric in sorted({row.metric for row in mine if row.unseen_engine}):
            factor = _wider(
                [row for row in mine if row.metric == metric and row.unseen_engine], mine, metric
            )
            if factor is not None:
                found.setdefault(metric, {})[kind] = factor
    return found


def coverage_by_regime(
    rows: Sequence[HeldOut], share: float = SHARE
) -> dict[str, dict[str, dict[str, float]]]:
    """The coverage of each metric by kind, load, mix, family and group of the rows: the percentage
    inside, and the number of rows.

    Each row is judged by a table and a stretch that were made without its group.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for metric in sorted({row.metric for row in rows}):
        inside: dict[str, list[bool]] = {}
        for mine in _by_kind([row for row in rows if row.metric == metric]).values():
            for table, left in _without_each(mine, stretched=True):
                for row, (low, high) in zip(
                    left, _at(table, left, ((1 - share) / 2, (1 + share) / 2)), strict=True
                ):
                    within = low <= row.log_error <= high
                    for name in (
                        *row.names[:3],
                        f"{row.regime.kind}, {row.regime.family}",
                        f"{row.regime.kind}: {row.group}",
                    ):
                        inside.setdefault(name, []).append(within)
        found[metric] = {
            name: {"percent": round(100 * sum(v) / len(v), 1), "rows": len(v)}
            for name, v in sorted(inside.items())
        }
    return found


def _by_kind(rows: Sequence[HeldOut]) -> dict[str, list[HeldOut]]:
    return {
        kind: [row for row in rows if row.regime.kind == kind]
        for kind in sorted({row.regime.kind for row in rows})
    }


def coverage(rows: Sequence[HeldOut], share: float = SHARE) -> dict[str, dict[str, float]]:
    """The share of each metric's errors inside intervals made without their group, in percent; all
    groups count alike.
    """
    found: dict[str, dict[str, float]] = {}
    for metric in sorted({row.metric for row in rows}):
        for kind, mine in _by_kind([row for row in rows if row.metric == metric]).items():
            shares = [
                _covered(left, table, share) for table, left in _without_each(mine, stretched=True)
            ]
            if shares:
                found.setdefault(metric, {})[kind] = round(100 * sum(shares) / len(shares), 1)
    return found


def _covered(rows: Sequence[HeldOut], table: Residuals, share: float) -> float:
    tail = (1 - share) / 2
    inside = sum(
        low <= row.log_error <= high
        for row, (low, high) in zip(rows, _at(table, rows, (tail, 1 - tail)), strict=True)
    )
    return inside / len(rows)


def _at(
    table: Residuals, rows: Sequence[HeldOut], levels: tuple[float, ...]
) -> list[tuple[float, ...]]:
    """The table's quantiles for every row, each regime looked up once."""
    known: dict[tuple[str, Regime], tuple[float, ...]] = {}
    for row in rows:
        if (row.metric, row.regime) not in known:
            quantile = table.quantile_function(row.metric, row.regime)
            known[row.metric, row.regime] = tuple(quantile(level) for level in levels)
    return [known[row.metric, row.regime] for row in rows]


def _without_each(
    rows: Sequence[HeldOut], *, stretched: bool
) -> Iterator[tuple[Residuals, list[HeldOut]]]:
    """For each group of rows of one metric and kind, a table made without it, and its rows."""
    for group in sorted({row.group for row in rows}):
        rest = [row for row in rows if row.group != group]
        if rest:
            metric = rest[0].metric
            stretch = {metric: _stretches(rest)} if stretched else {}
            document = {
                "quantiles": {metric: _quantiles(rest)},
                "stretch": stretch,
                "unseen_gpu": {},
            }
            families = {row.regime.family for row in rest}
            yield (
                residuals_of(document),
                [_seen_by(families, row) for row in rows if row.group == group],
            )


def _seen_by(families: set[str], row: HeldOut) -> HeldOut:
    """The row, of a known family only where the table has others of it."""
    known = row.regime.family in families
    return (
        row
        if row.regime.known_family == known
        else replace(row, regime=replace(row.regime, known_family=known))
    )


def _stretches(rows: Sequence[HeldOut]) -> dict[str, float]:
    """The stretch of each kind of load and of each load; that of a load is drawn towards its kind's
    by ``PULL`` rows.
    """
    found: dict[str, float] = {}
    for kind, mine in _by_kind(rows).items():
        needed = _needed(mine)
        found[kind] = _holding(needed)
        for load in sorted({row.names[1] for row in mine}):
            own = [need for need in needed if need[2] == load]
            weight = len(own) / (len(own) + PULL)
            found[load] = round(
                math.exp(weight * math.log(_holding(own)) + (1 - weight) * math.log(found[kind])), 3
            )
    return found


def _needed(rows: Sequence[HeldOut]) -> list[tuple[float, float, str]]:
    """For each row, how much wider a table without its group must be to hold it, the row's weight
    (groups count alike), and its load.
    """
    needed: list[tuple[float, float, str]] = []
    tail = (1 - SHARE) / 2
    for table, left in _without_each(rows, stretched=False):
        for row, (low, middle, high) in zip(
            left, _at(table, left, (tail, 0.5, 1 - tail)), strict=True
        ):
            away = row.log_error - middle
            edge = high - middle if away > 0 else low - middle
            needed.append((away / edge if edge else math.inf, 1 / len(left), row.names[1]))
    return needed


def _holding(needed: Sequence[tuple[float, float, str]]) -> float:
    """The factor that holds ``SHARE`` of the weight, or 1 where there is only one group."""
    total, reached = sum(weight for _, weight, _ in needed), 0.0
    for factor, weight, _ in sorted(needed):
        reached += weight
        if reached >= SHARE * total:
            return round(min(max(factor, 1 / WIDEST), WIDEST), 3)
    return 1.0 if not needed else WIDEST


def _wider(unseen: Sequence[HeldOut], rows: Sequence[HeldOut], metric: str) -> float | None:
    """How much wider these errors are than those of rows with a known GPU and engine under the same
    loads; None if too few.
    """
    loads = {row.regime.load for row in unseen}
    usual = sorted(
        abs(row.log_error)
        for row in rows
        if row.metric == metric and row.usual and row.regime.load in loads
    )
    if len(unseen) < FEWEST or len(usual) < FEWEST:
        return None
    wide = _quantile(sorted(abs(row.log_error) for row in unseen), SHARE)
    return round(min(max(wide / _quantile(usual, SHARE), 1.0), WIDEST), 3)


def _quantiles(rows: Sequence[HeldOut]) -> dict[str, list[float]]:
    """The quantiles of each regime, drawn towards those of the wider regime around it."""
    alike: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        alike.setdefault(row.names, []).append(row.log_error)
    members: dict[str, list[float]] = {}
    parents: dict[str, str] = {}
    for names, errors in alike.items():
        for above, key in zip(("", *names), names, strict=False):
            members.setdefault(key, []).extend(errors)
            parents.setdefault(key, above)
    found: dict[str, list[float]] = {}
    for key, parent in parents.items():  # wider regimes come before those inside them
        values = sorted(members[key])
        own = [_quantile(values, level) for level in LEVELS]
        if not parent:
            found[key] = [round(v, 4) for v in own]
        elif len(values) >= FEWEST and parent in found:
            weight = len(values) / (len(values) + PULL)
            found[key] = [
                round(weight * v + (1 - weight) * p, 4)
                for v, p in zip(own, found[parent], strict=True)
            ]
    return dict(sorted(found.items()))


def _quantile(ordered: Sequence[float], p: float) -> float:
    """A quantile of a sorted sequence, linear between its values."""
    place = p * (len(ordered) - 1)
    low = min(int(place), len(ordered) - 2) if len(ordered) > 1 else 0
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
