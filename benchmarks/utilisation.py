"""How far predictions are off by the share of saturation: held-out rows of closed loops, and what
their errors do to an open loop.

    ./benchmark utilisation [../shared/data] [--silicon silicon_sample.csv] [--processes N]

The share is the predicted load of a row over what its instance is predicted to complete when it is
always busy, as a plan has it. Rows of NIM are predicted without their group, those of current
engines without their model, as in the cross-validation of ``./fit``; points of 2026, medians over
many versions, in sample. Instances without slots or cache to spare, most of them given as many
slots as there were clients, are always busy, whatever the load: they are counted apart.

Every row is a closed loop, whose clients wait for their answers before they ask again. An open loop
is not measured anywhere in the data, so the second table is simulated: p95 TTFT of the same
deployments under Poisson arrivals when every step takes longer by the held-out error of their part,
over p95 TTFT as predicted. ``src/tonnage/sizing/extrapolation.py`` has the figures that plans name. Both
take seven minutes on two cores.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tonnage.evidence.predict import Point
from tonnage.evidence.rows import LoadedRows, errors
from tonnage.perf.terms_file import shipped
from tonnage.simulator.kernel import warm_up
from tonnage.sizing.extrapolation import CLOSED_BELOW, CLOSED_FROM
from tonnage.sizing.loads.instance import Instance, Traffic
from tonnage.sizing.loads.runs import Runs
from tools.fit.data import curve_rows, measured_bits, read_data
from tools.fit.fitting import Fitting
from tools.fit.folds import Fold, held_out_folds
from tools.fit.modern.fit import thinned
from tools.fit.modern.rows import FILE as AGG
from tools.fit.modern.rows import ModernRows, select_modern
from tools.fit.processes import Processes
from tools.fit.silicon.dense_rows import select
from tools.fit.silicon.dense_terms import silicon_layout
from tools.fit.silicon.folds import Fold as SiliconFold
from tools.fit.silicon.folds import folds
from tools.fit.silicon.moe import FEWER_EVALUATIONS, THINNED, moe_layout, preset, solve_moe
from tools.fit.silicon.moe_rows import select_moe
from tools.fit.silicon.silicon_rows import SiliconRows, lengths
from tools.fit.silicon.solving import solve_silicon
from tools.fit.silicon.table import sample_file
from tools.fit.terms import layout

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
EDGES = (0.0, 0.5, 0.8, 0.9, 0.95, float("inf"))
SHARES = (0.5, 0.8, 0.85, 0.87, 0.9, 0.92)
METRICS = {
    "ttft_ms": "TTFT",
    "ttft_p95_ms": "p95 TTFT",
    "itl_ms": "TPOT",
    "requests_s": "requests/s",
    "output_tok_s": "tokens/s",
}
SPARE = 0.95
"""A row has slots to spare whose clients are at most this share of what its instance holds at
once."""

FEWEST, MOST_CURVES = 8, 32
"""Rows that a figure of the first table is of at least, and curves of a part in the second."""

NIM, DENSE, EXPERTS, MODERN = (
    "NIM, its group left out",
    "dense, its model left out",
    "experts, its model left out",
    "points of 2026, in sample",
)
Errors = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A row with terms that have not seen it, but for the points of 2026.

    Attributes:
        part: what it is of, and what its terms have not seen.
        out: what was left out.
        point: the row.
        spread: of its lengths, as a share.
        share: its predicted load over what its instance completes when always busy.
        spare: whether its instance had slots and cache for clearly more clients.
        errors: signed relative errors by metric; those that were measured.
    """

    part: str
    out: str
    point: Point
    spread: float
    share: float
    spare: bool
    errors: dict[str, float]


def of_nim(data: Path, processes: Processes) -> list[Scored]:
    """The steady rows of NIM, each predicted without its group."""
    rows, runs = read_data(data), Runs()
    fitting = Fitting(
        rows=rows,
        layout=layout(
            measured_bits([row for part in rows.values() for row in part] + curve_rows())
        ),
    )
    parts = [fold for fold in held_out_folds(rows) if fold.title == "NIM, one group left out"]
    found = zip(
        parts,
        processes.map(partial(_without_group, fitting), parts, lambda place: None),
        strict=True,
    )
    return [
        one
        for fold, off in found
        for one in _placed(NIM, fold.name, LoadedRows(fold.test), off, runs)
    ]


def _without_group(fitting: Fitting, fold: Fold) -> Errors:
    return errors(LoadedRows(fold.test), fitting.layout.terms(fitting.without(fold)))


def of_current_engines(silicon: Path, processes: Processes) -> list[Scored]:
    """The rows of current engines, each predicted without its model."""
    found, runs = [], Runs()
    for part, rows in ((DENSE, select(silicon).rows), (EXPERTS, select_moe(silicon).rows)):
        parts = [fold for fold in folds(rows) if fold.column == "model"]
        fit = (
            _without_model
            if part == DENSE
            else partial(_without_model_of_experts, {preset(row) for row in rows})
        )
        for fold, off in zip(parts, processes.map(fit, parts, lambda place: None), strict=True):
            found += _placed(part, fold.name, SiliconRows(fold.test), off, runs)
    return found


def _without_model(fold: SiliconFold) -> Errors:
    return errors(SiliconRows(fold.test), solve_silicon(silicon_layout(shipped()), fold.train))


def _without_model_of_experts(presets: set[str], fold: SiliconFold) -> Errors:
    terms = solve_moe(
        moe_layout(shipped(), presets), fold.train[::THINNED], evaluations=FEWER_EVALUATIONS
    )
    return errors(SiliconRows(fold.test), terms)


def of_2026(data: Path) -> list[Scored]:
    """Some points of 2026 of each deployment, in sample."""
    points = ModernRows(thinned(select_modern(data / "modern" / AGG).rows))
    return list(_placed(MODERN, "", points, errors(points, shipped()), Runs()))


def _placed(part: str, out: str, rows: LoadedRows, off: Errors, runs: Runs) -> Iterator[Scored]:
    """The rows with their shares of saturation, by the shipped terms."""
    rows.simulate(shipped())
    rates, points = rows.simulated("requests_s"), [rows.point(row) for row in rows.rows]
    spreads = [float(row.get("spread", 0.0)) for row in rows.rows]
    with ThreadPoolExecutor() as pool:
        instances = list(
            pool.map(lambda one: instance_of(runs, *one), zip(points, spreads, strict=True))
        )
        busy = list(pool.map(runs.saturation, instances))
    for i, (point, instance) in enumerate(zip(points, instances, strict=True)):
        yield Scored(
            part=part,
            out=out,
            point=point,
            spread=spreads[i],
            share=float(rates[i]) * point.ranks / busy[i],
            spare=(point.concurrency or 0) <= SPARE * instance.in_flight,
            errors={
                name: float(values[i])
                for name, values in off.items()
                if name in METRICS and np.isfinite(values[i])
            },
        )


def instance_of(runs: Runs, point: Point, spread: float, step_factor: float = 1.0) -> Instance:
    """The instance of a row under an open loop of its lengths, its steps longer by a factor."""
    isl, osl = (lengths(nominal, spread) for nominal in (point.isl, point.osl))
    traffic = Traffic(
        isl=isl, osl=osl, load="open", process="poisson", cv=1.0, seed=0, step_factor=step_factor
    )
    return runs.instance(point.deployment, traffic)


def by_share(rows: Sequence[Scored], metric: str) -> list[tuple[float, int]]:
    """Mean absolute error in percent, and the number of rows, between each two of ``EDGES``."""
    found = []
    for low, high in pairwise(EDGES):
        off = [
            abs(row.errors[metric])
            for row in rows
            if low <= row.share < high and metric in row.errors
        ]
        found.append((100 * statistics.fmean(off) if off else float("nan"), len(off)))
    return found


def longer_waits(rows: Sequence[Scored], runs: Runs) -> dict[float, float]:
    """By share of saturation, how many times as long p95 TTFT is in an open loop where steps take
    longer by the held-out error.

    The median over the deployments and lengths of rows with slots to spare, at most ``MOST_CURVES``
    of them. The error is that of requests/s where it was measured, and that of TPOT elsewhere: the
    mean of what was left out with the row.
    """
    curves = {
        (row.point.deployment, row.point.isl, row.point.osl, row.spread): row
        for row in rows
        if row.spare
    }
    chosen = list(curves.values())[:: -(-len(curves) // MOST_CURVES)]

    def one(row: Scored) -> list[float]:
        together = [other for other in rows if other.out == row.out]
        metric = (
            "requests_s" if any("requests_s" in other.errors for other in together) else "itl_ms"
        )
        factor = 1 + statistics.fmean(
            abs(other.errors[metric]) for other in together if metric in other.errors
        )
        plain, slower = (
            instance_of(runs, row.point, row.spread, longer) for longer in (1.0, factor)
        )
        busy = runs.saturation(plain)
        p95 = [
            [runs.open(each, 1, share * busy, 2).summary.ttft_ms.p95 for each in (plain, slower)]
            for share in SHARES
        ]
        return [after / before for before, after in p95]

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(one, chosen))
    return {
        share: statistics.median(column)
        for share, column in zip(SHARES, zip(*found, strict=True), strict=True)
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--silicon", type=Path, default=Path("silicon_sample.csv"))
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    warm_up()
    silicon = sample_file(asked.silicon)
    with Processes(asked.processes) as processes:
        rows = [
            *of_nim(asked.data, processes),
            *of_current_engines(silicon, processes),
            *of_2026(asked.data),
        ]
    print("\n".join(tables(rows)))


def closed_growth(rows: Sequence[Scored]) -> float:
    """Mean absolute error of p95 TTFT from ``CLOSED_FROM`` on, over that below ``CLOSED_BELOW``."""
    off = [
        (row.share, abs(row.errors["ttft_p95_ms"])) for row in rows if "ttft_p95_ms" in row.errors
    ]
    high, low = (
        [error for share, error in off if test(share)]
        for test in (lambda s: s >= CLOSED_FROM, lambda s: s < CLOSED_BELOW)
    )
    return statistics.fmean(high) / statistics.fmean(low)


def tables(rows: Sequence[Scored]) -> Iterator[str]:
    """Both tables as Markdown."""
    yield from errors_table(rows)
    nim = [row for row in rows if row.part == NIM]
    yield (
        f"\np95 TTFT of NIM from {100 * CLOSED_FROM:.0f} %: {closed_growth(nim):.1f} times the"
        f" error below {100 * CLOSED_BELOW:.0f} %.\n"
    )
    yield from (
        (
            "p95 TTFT of an open loop whose steps take longer by the held-out error, over that"
            " predicted; median of curves."
        ),
        "",
    )
    yield f"| curves | {' | '.join(f'{100 * share:.0f} %' for share in SHARES)} |"
    yield "|---" * (len(SHARES) + 1) + "|"
    runs, found = Runs(), []
    for part in (NIM, DENSE, EXPERTS):
        found.append(longer_waits([row for row in rows if row.part == part], runs))
        yield _ratios(part, found[-1])
    yield _ratios(
        "the middle one",
        {share: statistics.median(ratios[share] for ratios in found) for share in SHARES},
    )


def _ratios(name: str, found: Mapping[float, float]) -> str:
    return f"| {name} | {' | '.join(f'{ratio:.2f}' for ratio in found.values())} |"


def errors_table(rows: Sequence[Scored]) -> Iterator[str]:
    """The errors of closed loops by share of saturation."""
    spans = list(pairwise(EDGES))
    bins = [
        f"{100 * low:.0f} to {100 * high:.0f}" if np.isfinite(high) else f"from {100 * low:.0f}"
        for low, high in spans
    ]
    yield from (
        (
            "Mean absolute errors in percent by the share of saturation in percent; in brackets the"
            " number of rows."
        ),
        "",
    )
    yield f"| rows | metric | {' | '.join(bins)} |"
    yield "|---" * (len(bins) + 2) + "|"
    for part in (NIM, DENSE, EXPERTS, MODERN):
        for spare, what in ((True, ""), (False, "; no slots to spare")):
            mine = [row for row in rows if row.part == part and row.spare == spare]
            for metric, name in METRICS.items():
                cells = by_share(mine, metric)
                if sum(count for _, count in cells) >= FEWEST:
                    yield f"| {part}{what} | {name} | {' | '.join(map(_cell, cells))} |"


def _cell(found: tuple[float, int]) -> str:
    error, count = found
    return f"{error:.1f} ({count})" if count >= FEWEST else "–"


if __name__ == "__main__":
    main()
