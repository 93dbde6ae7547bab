"""Every deployment inside the limits: in short beside the choice, and as a whole table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Block, Section, Table, Text
from tonnage.report.numbers import ABSENT, counted, dollars, number, usd
from tonnage.report.plans.deployments import exactly_text, of_pools, split, unlike
from tonnage.report.plans.latencies import bound_text
from tonnage.report.plans.question import first_text, in_tokens

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan

OPEN = 15
"""Rows up to which a page shows the table open."""
BESIDE = 8
"""Other deployments that a first screen shows."""
FAR = 8
"""Times the GPUs of the choice beyond which another deployment is no row of a first screen."""
MARKED = "* rests in part on values that were not measured on this GPU and engine."
MARKED_TOO = "* and the answer rest in part on values not measured on this GPU and engine."
IDENTITY = ("GPU", "format", "TP", "engine")
LATENCIES = ("TTFT p95 ms", "TPOT ms", "E2E ms")
SPARED = ("req/s per instance", "E2E ms", "USD a year", "TPOT ms", "req/s per 8 GPUs", "TTFT p95 ms", "bound by")
"""Columns that a narrow page does without, the first to go first."""
SPARED_BESIDE = ("bound by", "TTFT p95", "USD a year", "systems")
"""Likewise of a first screen."""

Column = tuple[str, Callable[["Candidate", float | None], str]]
NAMED: tuple[Column, ...] = (
    ("GPU", lambda c, _: of_pools(c, lambda pool: pool.gpu)),
    ("format", lambda c, _: of_pools(c, lambda pool: pool.precision)),
    ("TP", lambda c, _: of_pools(c, lambda pool: split(pool, " × ").removeprefix("TP "))),
    ("engine", lambda c, _: of_pools(c, lambda pool: pool.engine) + ("*" if c.marks else "")),
)
COUNTED: tuple[Column, ...] = (("systems", lambda c, _: f"{c.systems:,}"), ("GPUs", lambda c, _: f"{c.gpus:,}"))
COLUMNS: tuple[Column, ...] = (
    *NAMED,
    ("req/s per instance", lambda c, _: number(c.requests_per_second_per_instance)),
    ("req/s per 8 GPUs", lambda c, _: number(c.requests_per_second_per_8_gpus)),
    ("systems exactly", lambda c, _: number(c.systems_exact)),
    *COUNTED,
    ("TTFT p95 ms", lambda c, _: number(c.ttft_ms.p95)),
    ("TPOT ms", lambda c, _: number(c.tpot_ms.mean)),
    ("E2E ms", lambda c, _: number(c.e2e_ms.mean)),
    ("USD a year", lambda _, cost: usd(cost)),
    ("bound by", lambda c, _: bound_text(c.binds)),
)
COLUMNS_BESIDE: tuple[Column, ...] = (
    *NAMED[:2],
    ("TP", lambda c, _: of_pools(c, lambda pool: split(pool).removeprefix("TP "))),
    *NAMED[3:],
    *COUNTED,
    ("USD a year", lambda _, cost: dollars(cost)),
    ("TTFT p95", lambda c, _: number((c if c.at_peak is None else c.at_peak).ttft_ms.p95)),
    ("bound by", lambda c, _: bound_text(c.binds)),
)


def others_block(plan: Plan, most: int = BESIDE) -> Table | Text | None:
    """The best deployments beside the choice, one line each; those that take many times its GPUs are only counted."""
    if len(plan.candidates) < 2:
        return None
    (best, _), *others = zip(plan.candidates, yearly_costs(plan), strict=True)
    near = [pair for pair in others if pair[0].gpus <= FAR * best.gpus]
    far = [c for c, _ in others if c.gpus > FAR * best.gpus]
    if not near:
        return Text(text=f"Other deployments inside the limits: {_far(best, far)}.")
    shown = near[:most]
    rows = _rows(COLUMNS_BESIDE, shown)
    formats = {row[1] for row in rows}
    names = [name for name, _ in COLUMNS_BESIDE]
    alike = {"format"} if len(formats) == 1 else set[str]()
    absent = {name for i, name in enumerate(names) if name not in IDENTITY and all(row[i] == ABSENT for row in rows)}
    kept = [i for i, name in enumerate(names) if name not in alike | absent]
    in_format = f" in {formats.pop()}" if alike else ""
    loaded = "the peak" if all(c.at_peak is not None for c, _ in near) else "the highest load"
    facts = [text for name, text in (("USD a year", "; owned"), ("TTFT p95", f", TTFT in ms at {loaded}")) if name not in absent]
    starred = any(c.marks for c, _ in shown)
    marked = (MARKED_TOO if best.marks else MARKED) if starred else ""
    return Table(
        caption=f"Other deployments{in_format}, {first_text(plan.aim)} first{''.join(facts)}",
        header=tuple(names[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        note="\n".join(filter(None, (_left(best, [c for c, _ in near[most:]], far), marked))),
        spare=tuple(name for name in SPARED_BESIDE if name != _decides(plan)),
    )


def _left(best: Candidate, near: Sequence[Candidate], far: Sequence[Candidate]) -> str:
    """Those that have no row: "… and 5 more, and 3 that need 10 to 130 times the GPUs"."""
    texts = ([f"{len(near)} more"] if near else []) + ([_far(best, far)] if far else [])
    return f"… and {', and '.join(texts)}" if texts else ""


def _far(best: Candidate, far: Sequence[Candidate]) -> str:
    low, high = (f"{end(c.gpus for c in far) / best.gpus:,.0f}" for end in (min, max))
    return f"{len(far)} that {'need' if len(far) > 1 else 'needs'} {low if low == high else f'{low} to {high}'} times the GPUs"


def runner_up_text(plan: Plan) -> str:
    """The best on another GPU type: "2 × dgx-h200 (16 GPUs; 1.60 systems exactly), 140,000 USD a year more"; "" where there is none."""
    found, best = plan.runner_up, plan.choice
    if found is None or best is None:
        return ""
    more = found.more_usd_per_year
    cost = "" if more is None else f", {dollars(abs(more))} USD a year {'more' if more >= 0 else 'less'}"
    exactly = f"{counted(found.gpus, 'GPU')}; {exactly_text(found.systems_exact)}"
    runs = unlike(best, found.deployment, gpu=False)
    return f"{found.systems:,} × {found.system} ({exactly}){f': {runs}' if runs else ''}{cost}"


def candidates_section(plan: Plan, drawn: Block | None = None) -> Section:
    """The section; empty where nothing is inside the limits. ``drawn`` is a figure that shows the table too."""
    return section("candidates", "Candidates", drawn or candidates_table(plan))


def candidates_table(plan: Plan) -> Table | None:
    """One row for each deployment inside the limits, the fewest GPUs first."""
    found = plan.candidates
    if not found:
        return None
    rows = _rows(COLUMNS, list(zip(found, yearly_costs(plan), strict=True)))
    absent = {i for i, (name, _) in enumerate(COLUMNS) if name in (*LATENCIES, "USD a year") and all(row[i] == ABSENT for row in rows)}
    asked = plan.scenario
    lengths = f"{asked.model}, {in_tokens(asked.isl, asked.mean_isl)}/{in_tokens(asked.osl, asked.mean_osl)} tokens"
    within = f"{counted(len(found), 'deployment')} inside the limits, {first_text(plan.aim)} first"
    return Table(
        caption=f"{within} ({lengths}), each at its highest load there",
        header=tuple(name for i, (name, _) in enumerate(COLUMNS) if i not in absent),
        rows=tuple(tuple(cell for i, cell in enumerate(row) if i not in absent) for row in rows),
        chosen=0,
        folded=len(found) > OPEN,
        note=MARKED if any(c.marks for c in found) else "",
        spare=tuple(name for name in SPARED if name != _decides(plan)),
    )


def _rows(columns: Sequence[Column], found: Sequence[tuple[Candidate, float | None]]) -> list[tuple[str, ...]]:
    return [tuple(read(candidate, cost) for _, read in columns) for candidate, cost in found]


def _decides(plan: Plan) -> str:
    """The column that the choice was made by, which stays however narrow the page is; "" where it is one that always stays."""
    return "" if plan.aim is None else {"cost": "USD a year", "latency": "E2E ms"}.get(plan.aim.objective, "")


def yearly_costs(plan: Plan) -> tuple[float | None, ...]:
    """USD a year of every candidate owned for the peak, where it is known."""
    if len(plan.pareto) != len(plan.candidates):
        return (None,) * len(plan.candidates)
    return tuple(point.cost_per_year for point in plan.pareto)
