"""Every deployment inside the limits, and every other one with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Block, Section, Table
from tonnage.report.numbers import ABSENT, counted, number, usd
from tonnage.report.plans.deployments import of_pools, split, systems
from tonnage.report.wording.aim import first_text
from tonnage.report.wording.confidence import chance_text
from tonnage.report.wording.lengths import in_tokens
from tonnage.report.wording.limits import bound_text
from tonnage.report.wording.reasons import reason_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan

OPEN = 15
"""Rows up to which a page shows the table open."""
SHOWN = 12
"""Rows that a terminal shows."""
REJECTED_SHOWN = 8
MARKED = "* rests in part on transferred or published values, not on measurements of this GPU and engine."
SURE = "P(meets) is the probability that this number of systems meets the limits; systems at 95% is the number that has 95%."
IDENTITY = ("GPU", "format", "TP", "engine")
CARRIED = ("req/s per instance", "req/s per 8 GPUs", "systems exactly", "systems", "GPUs")
CONFIDENCE = ("P(meets)", "systems at 95%")
LATENCIES = ("TTFT p95 ms", "TPOT ms", "E2E ms")
SPARED = ("req/s per instance", "GPUs", "E2E ms", "USD a year", "TPOT ms", "req/s per 8 GPUs", "TTFT p95 ms", "systems at 95%", "bound by")
"""Columns that a narrow page does without, the first to go first."""


def candidates_section(plan: Plan, drawn: Block | None = None) -> Section:
    """The section; empty where nothing is inside the limits. ``drawn`` is a figure that shows the table too."""
    return section("candidates", "Candidates", drawn or candidates_table(plan))


def candidates_table(plan: Plan) -> Table | None:
    """One row for each deployment inside the limits, the fewest GPUs first."""
    found = plan.candidates
    if not found:
        return None
    costs = yearly_costs(plan)
    priced, sure = any(cost is not None for cost in costs), any(c.confidence is not None for c in found)
    header = (*IDENTITY, *CARRIED, *(CONFIDENCE if sure else ()), *LATENCIES, *(("USD a year",) if priced else ()), "bound by")
    asked = plan.scenario
    lengths = f"{asked.model}, {in_tokens(asked.isl, asked.mean_isl)}/{in_tokens(asked.osl, asked.mean_osl)} tokens"
    notes = [SURE] * sure + [MARKED] * any(c.marks for c in found)
    rows = tuple(_row(c, cost, priced=priced, sure=sure) for c, cost in zip(found, costs, strict=True))
    known = [i for i, name in enumerate(header) if name not in LATENCIES or any(row[i] != ABSENT for row in rows)]
    within = f"{counted(len(found), 'deployment')} inside the limits, {first_text(plan.aim)} first"
    return Table(
        caption=f"{within} ({lengths}), each at its highest load there",
        header=tuple(header[i] for i in known),
        rows=tuple(tuple(row[i] for i in known) for row in rows),
        chosen=0,
        folded=len(found) > OPEN,
        note="\n".join(notes),
        spare=tuple(name for name in SPARED if name != _decides(plan)),
        shown=SHOWN,
        rest=f"… and {len(found) - SHOWN} more{_hidden(found)}; --json and --report show all of them",
    )


def _decides(plan: Plan) -> str:
    """The column that the choice was made by, which stays however narrow the page is; "" where it is one that always stays."""
    return "" if plan.aim is None else {"cost": "USD a year", "latency": "E2E ms"}.get(plan.aim.objective, "")


def _hidden(found: Sequence[Candidate]) -> str:
    """The GPUs that only rows beyond those shown have, each with its best: none vanishes."""
    shown = {pool.gpu for c in found[:SHOWN] for pool in c.pools}
    best = {pool.gpu: c for c in reversed(found[SHOWN:]) for pool in c.pools if pool.gpu not in shown}
    return "".join(f", {gpu} too ({systems(c)})" for gpu, c in best.items())


def yearly_costs(plan: Plan) -> tuple[float | None, ...]:
    """USD a year of every candidate owned for the peak, where it is known."""
    if len(plan.pareto) != len(plan.candidates):
        return (None,) * len(plan.candidates)
    return tuple(point.cost_per_year for point in plan.pareto)


def _row(c: Candidate, cost: float | None, *, priced: bool, sure: bool) -> tuple[str, ...]:
    return (
        of_pools(c, lambda pool: pool.gpu),
        of_pools(c, lambda pool: pool.precision),
        of_pools(c, lambda pool: split(pool, " × ").removeprefix("TP ")),
        of_pools(c, lambda pool: pool.engine) + ("*" if c.marks else ""),
        *map(number, (c.requests_per_second_per_instance, c.requests_per_second_per_8_gpus, c.systems_exact)),
        f"{c.systems:,}",
        f"{c.gpus:,}",
        *(_sure(c) if sure else ()),
        *map(number, (c.ttft_ms.p95, c.tpot_ms.mean, c.e2e_ms.mean)),
        *((usd(cost),) if priced else ()),
        bound_text(c.binds),
    )


def _sure(c: Candidate) -> tuple[str, str]:
    """The chance that its systems meet the limits, and how many do with 95 %."""
    if c.confidence is None:
        return ABSENT, ABSENT
    most = c.confidence.systems.get("95")
    return chance_text(c.confidence.meets).replace("over ", ">").replace("under ", "<"), "none" if most is None else f"{most:,}"


def rejected_section(plan: Plan) -> Section:
    """Deployments on one GPU with one reason share a row."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for r in plan.rejected:
        kind = f"{r.precision} {r.engine}"
        groups.setdefault((r.gpu, reason_text(r.reason)), []).append((kind, split(r, " × ").removeprefix("TP ")))
    if not groups:
        return section("rejected", "Rejected, and why")
    rows = tuple((gpu, _together(where), reason) for (gpu, reason), where in groups.items())
    left = sum(len(where) for where in list(groups.values())[REJECTED_SHOWN:])
    table = Table(
        caption=f"{counted(len(plan.rejected), 'deployment')} that cannot carry the load, or that another one outdoes",
        header=("GPU", "deployments", "reason"),
        rows=rows,
        folded=len(rows) > SHOWN,
        shown=REJECTED_SHOWN,
        rest=f"… and {counted(left, 'more deployment')}; --json and --report show all of them",
    )
    return section("rejected", "Rejected, and why", table)


def _together(deployments: Iterable[tuple[str, str]]) -> str:
    """Such as "fp8 vllm TP 1, 2, 4; fp16 vllm TP 8"."""
    kinds: dict[str, list[str]] = {}
    for kind, degrees in deployments:
        kinds.setdefault(kind, []).append(degrees)
    return "; ".join(f"{kind} TP {', '.join(degrees)}" for kind, degrees in kinds.items())
