"""What the router of a plan is worth: its deployment behind the router, behind random choice and behind round robin.

Random choice is what a plain Kubernetes service amounts to, and round robin what DNS does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.fleet import BehindRouter

if TYPE_CHECKING:
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.contender import Sized

OTHERS = ("random", "round-robin", "least-outstanding")
"""Those that a plan compares its own with, the first two that are not its own."""


def behind_routers(best: Sized) -> tuple[BehindRouter, ...]:
    """The choice of an answer behind the router that was asked for, and behind two of ``OTHERS``.

    Empty where one instance serves, or the load is no open one.
    """
    question = best.contender.question
    if question.load != "open" or question.offline or best.instances == 1:
        return ()
    peak = best.contender.at_peak()
    rows = []
    for router in list(dict.fromkeys((question.router, *_others(question))))[:3]:
        summary = peak.seen(best.systems, router).summary
        systems = best.systems if router == question.router else best.contender.settled(best.slowdown, router=router)
        rows.append(
            BehindRouter(
                router=router,
                systems=systems,
                ttft_ms=summary.ttft_ms,
                itl_ms=summary.itl_ms,
                tpot_ms=summary.tpot_ms,
                e2e_ms=summary.e2e_ms,
            )
        )
    return tuple(rows)


def _others(question: Question) -> tuple[str, ...]:
    """The routers to compare with; where prompts share something, one that treats what belongs together the other way."""
    sharing = question.sharing
    if sharing is None:
        return OTHERS
    if sharing.recording is not None:
        return ("random", "prefix-aware", "round-robin")
    return ("random", "session", "round-robin") if sharing.follows else OTHERS
