"""The growth of a load: read from what was asked, and answered for the chosen deployment by the same search."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.plan.demand import AHEAD, Ahead, Growth

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.sizing.question import Question

SIZED_RPS = (1e-6, 1e9)
"""Least and largest load in requests per second that is looked at."""

_GROWTH = re.compile(
    r"^([+-]?\d+(?:\.\d*)?|\.\d+)\s*(%|percent|[x×])\s*(?:/|per|a|p\.?)?\s*(month|monthly|mo|m|year|yearly|annually|annum|yr|y|a)\.?$",
    re.IGNORECASE,
)


def growth_of(text: float | str | None) -> float:
    """Read "5%/month", "60% a year" or "2x/year" as the share by which a load grows in a month.

    Raises:
        InputError: no such form, or a load that shrinks to nothing.
    """
    written = str(text).strip()
    match = _GROWTH.match(written)
    share = -1.0 if match is None else float(match[1]) - 1 if match[2].lower() in "x×" else float(match[1]) / 100
    if match is None or not -1 < share <= 100:
        number = re.fullmatch(r"([+-]?\d+(?:\.\d*)?)\s*%", written)
        what, example = ("says no time", number[1]) if number else ("is not a growth", "5")
        raise InputError(f"{option('growth')}: '{written[:40]}' {what}; write for example {example}%/month or {example}%/year")
    return share if match[3].lower().startswith("m") else (1 + share) ** (1 / 12) - 1


def with_growth(plan: Plan, question: Question, answered: Callable[[Question], Plan]) -> Plan:
    """The plan with the systems of its choice that the load takes later; as it is where no growth was asked for, or nothing was chosen.

    Args:
        plan: the answer for today's load.
        question: what was asked, its growth included.
        answered: answers a question with what stands by, whatever may be spent.
    """
    from tonnage.sizing.fleet.existing import months_left
    from tonnage.sizing.search.search import narrowed
    from tonnage.sizing.sensitivity import changed_question

    best, growth = plan.choice, question.growth_per_month
    if best is None or growth is None or question.have:
        return plan
    demand = question.demand
    alone = replace(narrowed(question, best), deepen=False, demand=replace(demand, percentile=None))

    def after(months: int) -> Ahead | None:
        """The systems of the choice at the load after so many months; None where that load is beyond what can be sized."""
        times = (1 + growth) ** months
        rate = demand.sizing_requests_per_second * times
        if not SIZED_RPS[0] <= rate <= SIZED_RPS[1]:
            return None
        found = answered(changed_question(alone, "rate", times - 1)).candidates
        then = next((each for each in found if each.identity == best.identity), None)
        systems, exact = (None, None) if then is None else (then.systems, then.systems_exact)
        return Ahead(months=months, requests_per_second=rate, systems=systems, systems_exact=exact)

    def enough(months: int) -> bool:
        """Whether the systems of the plan are still enough then."""
        then = after(months)
        return then is not None and then.systems is not None and then.systems <= best.systems

    spare = question.spare + (0 if best.standby is None else best.standby.extra_systems)
    by_division = months_left(1.0, (best.systems - spare) / best.systems_exact, growth)
    left = by_division if by_division is None else _last(enough, by_division)
    ahead = tuple(then for months in AHEAD if (then := after(months)) is not None)
    return replace(plan, growth=Growth(per_month=growth, months_left=left, ahead=ahead))


def _last(enough: Callable[[int], bool], most: int) -> int:
    """The last month of 0 to ``most`` in which the systems are enough; the whole fleet, simulated, may ask for more than division."""
    if most <= 0 or enough(most):
        return max(0, most)
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low
