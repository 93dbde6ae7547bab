"""Plans as CSV: a row for every deployment, chosen, inside the limits or rejected, for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tonnage.report.plans.candidates import yearly_costs
from tonnage.report.plans.latencies import bound_text
from tonnage.report.plans.rejected import reason_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan
    from tonnage.plan.reason import Rejected

IDENTITY = ("gpu", "precision", "tp", "pp", "dp", "ep", "engine")
HEADER = (
    *("model", "status", *IDENTITY, "system", "systems", "systems_exact", "gpus", "instances"),
    *("requests_per_second_per_instance", "requests_per_second_per_8_gpus", "utilisation", "meets"),
    *("ttft_ms_mean", "ttft_ms_p95", "ttft_ms_p99", "tpot_ms_mean", "itl_ms_p99", "e2e_ms_mean", "e2e_ms_p95"),
    *("owned_usd_per_year", "bound_by", "reason"),
)
"""Latencies are those at the asked peak; at the highest load inside the limits where no peak is known."""


def plan_csv(plans: Sequence[Plan]) -> str:
    """The header and the rows of all plans; numbers as they are, without separators of thousands."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for plan in plans:
        writer.writerows(_rows(plan))
    return text.getvalue()


def _rows(plan: Plan) -> Iterator[tuple[object, ...]]:
    for place, (candidate, usd) in enumerate(zip(plan.candidates, yearly_costs(plan), strict=True)):
        yield (
            plan.scenario.model,
            "candidate" if place else "chosen",
            *_candidate(candidate),
            _plain(usd),
            bound_text(candidate.binds),
            "",
        )
    for one in plan.rejected:
        yield (plan.scenario.model, "rejected", *_rejected(one), reason_text(one.reason))


def _candidate(c: Candidate) -> tuple[object, ...]:
    at = c if c.at_peak is None else c.at_peak
    pool = c.pools[0]
    return (
        *(getattr(pool, name) for name in IDENTITY),
        *(pool.system, c.systems, _plain(c.systems_exact), c.gpus, c.instances),
        *map(_plain, (c.requests_per_second_per_instance, c.requests_per_second_per_8_gpus, c.utilisation)),
        _plain(None if c.confidence is None else c.confidence.meets),
        *map(_plain, (at.ttft_ms.mean, at.ttft_ms.p95, at.ttft_ms.p99, at.tpot_ms.mean, at.itl_ms.p99, at.e2e_ms.mean, at.e2e_ms.p95)),
    )


def _rejected(one: Rejected) -> tuple[object, ...]:
    names = tuple(getattr(one, name) for name in IDENTITY)
    return (*names, *("",) * (len(HEADER) - len(names) - 3))


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
