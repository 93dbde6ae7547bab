"""How near deployments come to limits that none meets: each of them serving one request at a time, which no load can beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.plan.limit import limit_of
from tonnage.plan.reason import Reachable, Reached, Rejected, TooSlowForJob, nearest_of
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.search.pooled import contenders_of

if TYPE_CHECKING:
    from tonnage.sizing.loads.runs import Runs
    from tonnage.sizing.question import Question


def reachable(question: Question, runs: Runs, prepared: Sequence[Ready | Rejected], refused: Sequence[Rejected]) -> Reachable | None:
    """What the deployments of a question without an answer reach; None where none of them fits.

    Args:
        question: what was asked.
        runs: the memory of the search.
        prepared: its deployments; those that fit are simulated again with one request at a time.
        refused: every deployment with the reason why it is not the answer.
    """
    if question.offline:
        return nearest_of(_of_job(one) for one in refused)
    return nearest_of(_alone(question, runs, ready) for ready in prepared if isinstance(ready, Ready))


def _alone(question: Question, runs: Runs, ready: Ready) -> tuple[Reached, ...]:
    """Every limited statistic that is defined, with one request at a time."""
    summary, who = contenders_of(question, [ready], runs)[0].alone(), ready.trial.identity
    values = [(limit, summary.statistic_ms(limit.metric, limit.statistic)) for limit in question.limits]
    return tuple(
        Reached(limit=limit_of(limit), asked_ms=1e3 * limit.seconds, value_ms=value, deployment=who)
        for limit, value in values
        if not math.isnan(value)
    )


def _of_job(refused: Rejected) -> tuple[Reached, ...]:
    why = refused.reason
    if not isinstance(why, TooSlowForJob):
        return ()
    return (Reached(limit=None, asked_ms=1e3 * why.allowed, value_ms=1e3 * why.seconds, deployment=refused.identity),)
