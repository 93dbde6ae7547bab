"""Several models side by side: the same question, one plan each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.plan.cost import WAYS
from tonnage.report.blocks import section
from tonnage.report.document import Facts, Section, Table
from tonnage.report.numbers import ABSENT, number, usd
from tonnage.report.plans.cost import NAMES, cheapest, yearly
from tonnage.report.plans.deployments import deployment, systems
from tonnage.spec.catalog.accuracy import BENCHMARK, find_score

if TYPE_CHECKING:
    from tonnage.plan.cost import Where, YearlyCost
    from tonnage.plan.plan import Plan

HEADER = (
    *("model", f"{BENCHMARK} %", "deployment", "req/s per instance", "req/s per 8 GPUs", "systems", "exactly", "GPUs"),
    *("TTFT mean ms", "TTFT p95 ms", "TPOT ms", "E2E ms"),
)
COSTS = tuple((way, f"USD a year, {'owned' if way == 'on-prem' else NAMES[way]}") for way in WAYS)
"""A column for each way of serving, so that no price stands under the name of another way."""

CHEAPEST = "cheapest way"
SPARED = (
    *("req/s per instance", "TTFT mean ms", "GPUs", "TPOT ms", "E2E ms", "req/s per 8 GPUs", "TTFT p95 ms"),
    *(title for _, title in reversed(COSTS)),
    CHEAPEST,
)
PEAK = "Latencies are those at the asked peak."
LIMIT = "Latencies are those at the highest load inside the limits, or of the job."
QUALITY = (
    f"{BENCHMARK} scores are as published, and were not all asked in the same way; their sources are in the catalog "
    "(tonnage catalog MODEL --json)."
)


SHORT = ("model", f"{BENCHMARK} %", "systems", "exactly", "GPUs", "TTFT p95 ms", "TPOT ms", "E2E ms")
"""Columns of a first screen, whose lines name the deployment and the cost."""


def compared(plans: Sequence[Plan], answers: Sequence[str]) -> Section:
    """The answer of each model in a line, and the models as columns of a table, which a page has room for."""
    table = compared_table(plans)
    models, *across = zip(*table.rows, strict=True)
    rows = tuple((name, *cells) for name, cells in zip(table.header[1:], across, strict=True) if set(cells) != {ABSENT})
    beside = Table(caption=table.caption, header=("", *models), rows=rows, note=table.note)
    return section("answer", "Models compared", Facts(rows=tuple(zip(models, answers, strict=True))), beside)


def compared_table(plans: Sequence[Plan], *, short: bool = False) -> Table:
    """One row for each model; a way of serving has a column where any of the models has a price for it. ``short`` leaves these out."""
    costs = [yearly(plan) for plan in plans]
    shown = [(way, title) for way, title in COSTS if any(_usd(cost, way) != ABSENT for cost in costs)]
    header = (*HEADER, *(title for _, title in shown), *((CHEAPEST,) if len(shown) > 1 else ()))
    rows = tuple(compared_row(plan, tuple(way for way, _ in shown)) for plan in plans)
    peaks = all(plan.choice is None or plan.choice.at_peak is not None for plan in plans)
    kept = [i for i, name in enumerate(header) if not short or name in SHORT]
    return Table(
        caption="The same question for each model",
        header=tuple(header[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        spare=SPARED,
        note=(PEAK if peaks else LIMIT) if short else "\n".join((PEAK if peaks else LIMIT, QUALITY)),
    )


def compared_row(plan: Plan, shown: Sequence[Where]) -> tuple[str, ...]:
    """One model: what it takes, how fast it is, and what each of these ways costs."""
    model, choice, score = plan.scenario.model, plan.choice, find_score(plan.scenario.model)
    quality = ABSENT if score is None else f"{score.score:.1f}"
    more = len(shown) + (len(shown) > 1)
    if choice is None:
        return (model, quality, "none meets the limits", *([ABSENT] * (len(HEADER) - 3 + more)))
    cost = yearly(plan)
    least, at = cheapest(cost), choice.at_peak or choice
    return (
        *(model, quality, deployment(choice)),
        *map(number, (choice.requests_per_second_per_instance, choice.requests_per_second_per_8_gpus)),
        *(systems(choice), number(choice.systems_exact, 4), f"{choice.gpus:,}"),
        *map(number, (at.ttft_ms.mean, at.ttft_ms.p95, at.tpot_ms.mean, at.e2e_ms.mean)),
        *(_usd(cost, way) for way in shown),
        *((ABSENT if least is None else NAMES[least.where],) if len(shown) > 1 else ()),
    )


def _usd(cost: YearlyCost | None, where: Where) -> str:
    """USD a year of one way; absent where it was not asked for or a price is not known."""
    way = None if cost is None else cost.way(where)
    return ABSENT if way is None else usd(way.total_usd_per_year)
