"""Recorded sessions on the chosen fleet: how many an instance holds, and what each of them takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.demand import HeldSessions
from tonnage.results.metrics import summarize
from tonnage.sizing.loads.instance import QUICK, middle

if TYPE_CHECKING:
    from tonnage.sizing.search.contender import Sized


def held_sessions(best: Sized) -> HeldSessions | None:
    """What sessions are like at the load that the plan counts on; None where the load is none of recorded sessions."""
    contender, question = best.contender, best.contender.question
    instance, source = contender.running, question.demand.source
    recorded = instance.recorded_sessions
    if recorded is None or source.trace_requests is None:
        return None
    record = middle(instance.open(best.rate, instance.requests_of(best.rate, QUICK), instance.traffic.seed))
    found = summarize(record).sessions
    hits = float(record.cached_tokens.sum() / record.isl.sum())
    prompts = float(recorded.isl.sum()) / len(recorded)
    slowdown = None if found is None else found.slowdown_ms
    return HeldSessions(
        at_once=source.sessions or 0.0,
        per_instance=best.rate / recorded.pace,
        per_system=best.rate / recorded.pace * best.instances / best.systems,
        requests=recorded.requests,
        input_tokens=prompts,
        computed_tokens=prompts * (1 - hits),
        output_tokens=float(recorded.osl.sum()) / len(recorded),
        hit_rate=hits,
        seconds=float(recorded.lasts_s.mean()),
        slowdown_p50=None if slowdown is None or slowdown.p50 is None else slowdown.p50 / 1e3,
        slowdown_p90=None if slowdown is None or slowdown.p90 is None else slowdown.p90 / 1e3,
        first_ttft_p95_ms=None if found is None else found.first_ttft_ms.p95,
        further_ttft_p95_ms=None if found is None else found.further_ttft_ms.p95,
        left_out=1 - len(recorded.isl) / source.trace_requests,
        source=recorded.source,
    )
