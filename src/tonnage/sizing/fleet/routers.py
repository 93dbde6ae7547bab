"""What the router of a plan is worth: its fleet at the peak behind the router, behind random choice and behind round robin.

Random choice is what an instance that is sized by itself amounts to, and round robin what DNS or a plain service does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.routers import BehindRouter
from tonnage.sizing.loads.fleet_check import FleetAtPeak, check
from tonnage.sizing.search.search import fleet_under

if TYPE_CHECKING:
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.search import Answer

OTHERS = ("random", "least-outstanding", "round-robin")
"""Those that a plan compares its own with, the first two that are not its own."""

FEWER = 8
"""Most numbers of systems below the division that are tried."""


def behind_routers(question: Question, found: Answer) -> tuple[BehindRouter, ...]:
    """The choice of an answer behind the router that was asked for, and behind ``OTHERS``.

    Empty where one instance serves, or the load is no open one.
    """
    if not found.candidates or found.check is None:
        return ()
    choice, carried = found.candidates[0], found.carried[0]
    systems = choice.systems - question.spare
    if choice.pool.fleet.of(systems).instances == 1:
        return ()
    load = question.demand.sizing_requests_per_second
    predicted, sure = FleetAtPeak(carried, load, question.recording, question.replays_lengths), fleet_under(question, carried)
    rows = []
    for router in list(dict.fromkeys((question.router, *_others(question))))[:3]:
        summary = predicted.summary(systems, router)[0]
        rows.append(
            BehindRouter(
                router=router,
                systems=fewest(sure, found.check.by_division, router),
                ttft_ms=summary.ttft_ms,
                itl_ms=summary.itl_ms,
                tpot_ms=summary.tpot_ms,
                e2e_ms=summary.e2e_ms,
            )
        )
    return tuple(rows)


def _others(question: Question) -> tuple[str, ...]:
    """The routers to compare with; where prompts share something, those whose own rule is simulated."""
    sharing = question.sharing
    if sharing is None:
        return OTHERS
    if sharing.recording is not None:
        return ("random", "prefix-aware", "round-robin")
    return ("random", "session", "round-robin") if sharing.follows else ("random", "round-robin")


def fewest(deployed: FleetAtPeak, by_division: int, router: str) -> int | None:
    """The fewest systems seen to hold the limits behind a router, from ``by_division`` upwards or, by halving, ``FEWER`` numbers downwards.

    The division counts on what one instance carries under random choice; behind a router that looks, fewer may do.
    """
    verdict = check(deployed, by_division, router)
    if not verdict.holds:
        return None
    least, span = verdict.systems, deployed.span
    step = max(by_division // span // 64, 1) * span
    saved, too_many, tried = 0, min(FEWER, (least - span) // step) + 1 if least == by_division else 1, 1
    while too_many - saved > 1:
        saved, too_many = (tried, too_many) if deployed.run(least - tried * step, router).holds else (saved, tried)
        tried = (saved + too_many) // 2
    return least - saved * step
