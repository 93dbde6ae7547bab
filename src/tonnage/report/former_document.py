"""A plan in the form in which the sections of the report still read it: the JSON of tonnage-plan/1, sentences and all.

This goes as soon as the sections read the typed plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.plan.cost import JobCost, YearlyCost
from tonnage.plan.document import json_of
from tonnage.plan.explanation import TERMS
from tonnage.report.wording_confidence import confidence_text
from tonnage.report.wording_cost import break_even_text, cost_note_texts, no_cost_text, stale_text
from tonnage.report.wording_demand import demand_text
from tonnage.report.wording_deployments import MEMORY, deployment_text, load_text, memory_text
from tonnage.report.wording_existing import NOTHING_RUNS, breaks_first_text, existing_text
from tonnage.report.wording_fleet_check import fleet_check_text
from tonnage.report.wording_limits import bound_text, breach_text, limit_text
from tonnage.report.wording_notes import fleet_check_note, note_texts
from tonnage.report.wording_percentile import arrivals_text, percentile_text
from tonnage.report.wording_reasons import reason_text
from tonnage.report.wording_sensitivity import INPUTS, relaxed_text
from tonnage.report.wording_warnings import UNITS, warning_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.cost import WayCost
    from tonnage.plan.plan import Plan


def former_document(plan: Plan) -> dict[str, Any]:
    """The plan as the sections read it."""
    found = plan.to_json()
    found["scenario"] |= {key: list(map(limit_text, getattr(plan.scenario, key))) for key in ("limits", "limits_that_count")}
    found["demand"]["how"] = demand_text(plan.demand)
    best = [plan.choice, plan.latency_optimal, plan.throughput_optimal]
    choice, latency, throughput = (None if each is None else _candidate(each) for each in best)
    found |= {"choice": choice, "choices": {"latency_optimal": latency, "throughput_optimal": throughput}}
    found["candidates"] = [_candidate(each) for each in plan.candidates]
    for rejected, shown in zip(plan.rejected, found["rejected"], strict=True):
        shown["reason"] = reason_text(rejected.reason)
    checked = fleet_check_note(plan)
    found["notes"] = [*note_texts(plan), *([checked] if checked else [])]
    found["warnings"] = [{"rule": w.rule, "text": warning_text(w), "value": w.value, "unit": UNITS[w.rule]} for w in plan.warnings]
    found["confidence"] = None if plan.choice is None else found["choice"]["confidence"]
    if plan.percentile_answer is not None:
        found["percentile_answer"] |= {
            "arrivals": arrivals_text(plan.percentile_answer),
            "explanation": percentile_text(plan.percentile_answer),
        }
    _explained(plan, found)
    _sensitivity(plan, found)
    _fleet(plan, found)
    if plan.cost is not None:
        found["cost"] = _cost(plan.cost)
    if plan.measured is not None:
        found["measured"] = former_document(plan.measured.plan) | {"predicted": [_candidate(each) for each in plan.measured.predicted]}
    return found


def _candidate(candidate: Candidate) -> dict[str, Any]:
    words = {
        "binds": bound_text(candidate.binds),
        "load": load_text(candidate.load),
        "memory": memory_text(candidate.memory, candidate.kv_tokens),
    }
    return {**json_of(candidate), **words}


def _explained(plan: Plan, found: dict[str, Any]) -> None:
    if plan.explain is None or plan.choice is None:
        return
    shown = found["explain"]
    for term in shown["terms"]:
        term["label"] = TERMS[term["term"]]
    for use, limit in zip(plan.explain.limits, shown["limits"], strict=True):
        limit |= {"limit": limit_text(use.limit), "limit_ms": use.limit.milliseconds}
    shown["binding_limit"] = bound_text(plan.explain.binding_limit)
    shown["memory"] = [json_of(part) | {"part": MEMORY[part.part]} for part in plan.choice.memory]


def _sensitivity(plan: Plan, found: dict[str, Any]) -> None:
    if plan.sensitivity is None:
        return
    for swing, shown in zip(plan.sensitivity.swings, found["sensitivity"]["swings"], strict=True):
        shown["label"] = INPUTS[swing.input]
        for side in ("low", "high"):
            changed = getattr(swing, side)
            shown[side]["deployment"] = "" if changed.deployment is None else deployment_text(changed.deployment)
            shown[side]["reason"] = "" if changed.reason is None else reason_text(changed.reason)
    if plan.sensitivity.relaxed is not None:
        found["sensitivity"]["relaxed"]["text"] = relaxed_text(plan.sensitivity.relaxed)


def _fleet(plan: Plan, found: dict[str, Any]) -> None:
    if plan.fleet_check is not None:
        found["fleet_check"]["text"] = fleet_check_text(plan.fleet_check)
        for run, shown in zip(plan.fleet_check.runs, found["fleet_check"]["runs"], strict=True):
            shown["worst"] = "" if run.worst is None else breach_text(run.worst)
    if plan.existing is not None:
        first = plan.existing.breaks_first
        found["existing"] |= {"text": existing_text(plan.existing), "breaks_first": NOTHING_RUNS if first is None else bound_text(first)}
        for group, shown in zip(plan.existing.groups, found["existing"]["groups"], strict=True):
            shown["binds"] = breaks_first_text(group)
            shown["deployment"] = "" if group.deployment is None else deployment_text(group.deployment)


def _cost(cost: YearlyCost | JobCost) -> dict[str, Any]:
    shown: dict[str, Any] = json_of(cost)
    shown["warnings"] = list(map(stale_text, cost.stale_prices))
    if isinstance(cost, JobCost):
        shown["owned"] = _way(cost.owned)
        cloud = cost.cloud_how if cost.cloud_reason is None else no_cost_text(cost.cloud_reason)
        api = cost.api_how if cost.api_reason is None else no_cost_text(cost.api_reason)
        shown["how"] = [cloud, api]
        return shown
    shown["options"] = {way.where: _way(way) for way in cost.ways}
    shown["break_evens"] = [json_of(each) | {"how": break_even_text(each)} for each in cost.break_evens]
    shown["notes"] = [text for note in cost.notes for text in cost_note_texts(note)]
    return shown


def _way(way: WayCost) -> dict[str, Any]:
    return {**json_of(way), "reason": "" if way.reason is None else no_cost_text(way.reason)}


def confidence_line(plan: Plan) -> str:
    """How sure the number of systems is; "" where it is not known."""
    sure = None if plan.choice is None else plan.choice.confidence
    return "" if sure is None else confidence_text(sure)
