"""Why the choice is where it is: what takes the time of a step, how far each limit is used, where the memory goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Block, Section, Table
from tonnage.report.numbers import ABSENT, number, percent
from tonnage.report.wording.deployments import MEMORY
from tonnage.report.wording.explanation import TERMS
from tonnage.report.wording.limits import limit_text

if TYPE_CHECKING:
    from tonnage.plan.explanation import Explanation
    from tonnage.plan.plan import Plan

FRONT_END_FELT = 0.3
"""Share of its time from which a busy front end is mentioned."""
FRONT_END_LIMITS = 0.85
"""Share of its time from which a busy front end is said to limit."""
TITLE = "Where time and memory go"


def explained_section(plan: Plan) -> Section:
    """The section in numbers; empty where nothing was taken apart."""
    return section("explain", TITLE, explained_items(plan), step_table(plan), limits_table(plan), memory_table(plan))


def explained_items(plan: Plan) -> Block | None:
    """What a mean step holds, what takes most of it, and how busy the front end is."""
    return None if plan.explain is None else items(_sentences(plan.explain, len(plan.choice.pools) if plan.choice else 1))


def _sentences(explained: Explanation, pools: int) -> tuple[str, ...]:
    where = "" if pools == 1 else f"of a {'decode' if explained.decode_sequences else 'prefill'} instance, whose pool ends the load, "
    most = next((term for term in explained.terms if term.term == explained.binds), None)
    contents = (explained.prefill_tokens, "prompt tokens"), (explained.decode_sequences, "requests that decode")
    lines = [
        f"At the highest load inside the limits, a mean step {where}takes {number(explained.step_seconds * 1e3)} ms for "
        f"{' and '.join(f'{number(count)} {name}' for count, name in contents if count or not where)}."
    ]
    if most is not None:
        lines.append(f"Its largest part, {percent(most.share)}, is this: {TERMS.get(most.term, most.term)}.")
    busy = explained.front_end_busy
    if busy >= FRONT_END_LIMITS:
        lines.append(
            f"The front end streams tokens {percent(busy)} of the time, which limits: a larger stream interval, or a further API server, "
            "relieves it."
        )
    elif busy >= FRONT_END_FELT:
        lines.append(f"The front end streams tokens {percent(busy)} of the time.")
    return tuple(lines)


def step_table(plan: Plan) -> Table | None:
    """Milliseconds of a mean step by what takes them, the largest first."""
    if plan.explain is None or not plan.explain.terms:
        return None
    rows = tuple((TERMS.get(t.term, t.term), number(t.seconds * 1e3), percent(t.share)) for t in plan.explain.terms if t.seconds)
    return Table(caption="A mean step by what takes its time", header=("part", "ms", "share"), rows=rows, folded=True)


def limits_table(plan: Plan) -> Table | None:
    """How far each limit is used at the highest load inside them."""
    if plan.explain is None or not plan.explain.limits:
        return None
    rows = tuple(
        (limit_text(use.limit), number(use.value_ms), ABSENT if use.used is None else percent(use.used)) for use in plan.explain.limits
    )
    return Table(caption="The limits at that load", header=("limit", "ms", "used"), rows=rows)


def memory_table(plan: Plan) -> Table | None:
    """Gigabytes of one GPU by use; None where they are not known."""
    if plan.choice is None or len(plan.choice.pools) != 1 or not plan.choice.memory:
        return None
    rows = tuple((MEMORY[part.part], number(part.bytes_per_gpu / 1e9), percent(part.share)) for part in plan.choice.memory)
    return Table(caption="Memory of one GPU", header=("part", "GB", "share"), rows=rows, folded=True)
