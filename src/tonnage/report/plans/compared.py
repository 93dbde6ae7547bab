"""Several models side by side: the same question, one plan each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Section, Table
from tonnage.report.numbers import ABSENT, number, usd
from tonnage.report.plans.answer import sentence
from tonnage.report.plans.costs import NAMES, cheapest, owned, yearly
from tonnage.report.plans.deployments import deployment, systems
from tonnage.spec.catalog.accuracy import BENCHMARK, find_score

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan

HEADER = (
    *("model", f"{BENCHMARK} %", "deployment", "req/s per instance", "req/s per 8 GPUs", "systems", "exactly", "GPUs"),
    *(
        "TTFT mean ms",
        "TTFT p95 ms",
        "TPOT ms",
        "E2E ms",
        "USD a year, owned",
        "per 1,000 requests",
        "USD a year, cheapest",
        "cheapest way",
    ),
)
SPARED = (
    *("req/s per instance", "TTFT mean ms", "GPUs", "per 1,000 requests", "TPOT ms", "USD a year, owned", "E2E ms"),
    *("req/s per 8 GPUs", "TTFT p95 ms", "cheapest way"),
)
QUALITY = (
    f"{BENCHMARK} scores are as published, and were not all asked in the same way; their sources are in the catalog "
    "(tonnage catalog MODEL --json)."
)


def compared(plans: Sequence[Plan]) -> Section:
    """The models as rows of a table, and the answer of each in a sentence."""
    return section("answer", "Models compared", items(tuple(map(sentence, plans))), compared_table(plans))


def compared_table(plans: Sequence[Plan]) -> Table:
    """One row for each model."""
    return Table(
        caption="The same question for each model", header=HEADER, rows=tuple(map(compared_row, plans)), spare=SPARED, note=QUALITY
    )


def compared_row(plan: Plan) -> tuple[str, ...]:
    """One model: what it takes, how fast it is, what it costs."""
    model, choice, score = plan.scenario.model, plan.choice, find_score(plan.scenario.model)
    quality = ABSENT if score is None else f"{score.score:.1f}"
    if choice is None:
        return (model, quality, "none meets the limits", *([ABSENT] * (len(HEADER) - 3)))
    own, least = owned(yearly(plan)), cheapest(yearly(plan))
    return (
        *(model, quality, deployment(choice)),
        *map(number, (choice.requests_per_second_per_instance, choice.requests_per_second_per_8_gpus)),
        *(systems(choice), number(choice.systems_exact, 4), f"{choice.gpus:,}"),
        *map(number, (choice.ttft_ms.mean, choice.ttft_ms.p95, choice.tpot_ms.mean, choice.e2e_ms.mean)),
        *((ABSENT, ABSENT) if own is None else (usd(own.usd_per_year), usd(own.usd_per_1000_requests))),
        usd(None if least is None else least.usd_per_year),
        ABSENT if least is None else NAMES[least.where],
    )
