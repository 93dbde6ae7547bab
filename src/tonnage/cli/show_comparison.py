"""Answers side by side: several models, or a measured and a predicted one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.cli.show_cost import money, usd
from tonnage.cli.table import number, table, wrapped
from tonnage.plan.cost import YearlyCost
from tonnage.plan.cost_note import CourseWay
from tonnage.report.wording_cost import course_way_text, no_cost_text
from tonnage.report.wording_deployments import load_text
from tonnage.report.wording_reasons import reason_text
from tonnage.spec.catalog.accuracy import BENCHMARK, find_score

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Measured, Plan

QUALITY_NOTE = f"{BENCHMARK}: as published, not all asked alike; sources: tonnage catalog MODEL --json."

HEADER = ("req/s/inst.", "req/s/8 GPUs", "systems exactly", "systems", "TTFT mean ms", "TTFT p95 ms", "E2E mean ms")


def show_models(plans: Sequence[Plan]) -> str:
    """One line per model: its published quality, the deployment that it needs the fewest GPUs on, and what its cheapest way costs."""
    rows = [(plan.scenario.model, _quality(plan), *_deployment(plan.choice), *_numbers(plan.choice), *_cheapest(plan)) for plan in plans]
    shown = table(("model", f"{BENCHMARK} %", "deployment", *HEADER, "USD a year", "cheapest"), rows)
    return f"Models compared\n{shown}\n{wrapped(QUALITY_NOTE)}"


def _quality(plan: Plan) -> str:
    """The published score of the plan's model; "–" where none is known."""
    score = find_score(plan.scenario.model)
    return "–" if score is None else f"{score.score:.1f}"


def _cheapest(plan: Plan) -> tuple[str, str]:
    """USD a year of the cheapest way whose cost is known, and which it is."""
    cost = plan.cost
    found = cost.way(cost.cheapest) if isinstance(cost, YearlyCost) and cost.cheapest is not None else None
    return ("–", "–") if found is None else (usd(found.usd_per_year), found.where)


def show_beside(plan: Plan, beside: Measured) -> str:
    """The measured answer beside the predicted ones for the same deployment, and what the measured one costs.

    Args:
        plan: the answer, of an open loop.
        beside: from the benchmark, with the prediction of a closed loop, as benchmarks are run.
    """
    measured, cost = beside.plan, beside.plan.cost
    best = measured.choice
    title = "Measured beside predicted"
    if best is None:
        reasons = "; ".join(dict.fromkeys(reason_text(each.reason) for each in measured.rejected))
        return f"{title}\nNo measured point is inside the limits: {reasons}"
    twin, chosen = _twin(beside.predicted, best), _twin(plan.candidates, best)
    rows = [
        (name, load_text(each.load), *_deployment(each), *_numbers(each))
        for name, each in (("measured", best), ("predicted", twin), ("predicted", chosen))
        if each is not None
    ]
    lines = [f"{title}\n{table(('', 'load', 'deployment', *HEADER), rows)}"]
    if twin is None:
        lines.append("The measured deployment is not among the predicted ones.")
    else:
        change = twin.requests_per_second_per_instance / best.requests_per_second_per_instance - 1
        lines.append(
            f"The prediction of the benchmark's closed loop carries {abs(change):.0%} {'more' if change >= 0 else 'less'} than "
            "was measured at the best load that was tried; the open loop, in which requests do not wait for each other, decides the plan."
        )
    if isinstance(cost, YearlyCost):
        lines += [_owned(cost), *(course_way_text(note) for note in cost.notes if isinstance(note, CourseWay))]
    return "\n".join([lines[0], *(wrapped(line) for line in lines[1:])])


def _twin(candidates: Sequence[Candidate], best: Candidate) -> Candidate | None:
    """The candidate of a plan that is the measured deployment: the same engine where it is there."""
    same = (c for c in candidates if (c.gpu, c.precision, c.parallelism) == (best.gpu, best.precision, best.parallelism))
    return min(same, key=lambda c: (_family(c.engine) != _family(best.engine), c.systems_exact), default=None)


def _owned(cost: YearlyCost) -> str:
    """What the measured answer costs on systems of one's own, and at an API."""
    whole, api = cost.way("on-prem"), cost.way("api")
    if whole is None:
        return ""
    if whole.usd_per_year is None:
        return f"Its cost is not known: {'' if whole.reason is None else no_cost_text(whole.reason)}."
    each = "" if whole.usd_per_1000_requests is None else f", {money(whole.usd_per_1000_requests)} per 1,000 requests"
    exact = "" if whole.usd_per_1000_requests_exact is None else f", {money(whole.usd_per_1000_requests_exact)}"
    other = "" if api is None or api.usd_per_1000_requests is None else f"; an API asks {money(api.usd_per_1000_requests)} per 1,000"
    return (
        f"The measured answer owned: {usd(whole.usd_per_year)} USD a year for {whole.systems} systems{each} "
        f"({usd(whole.usd_per_year_exact)} for {number(whole.systems_exact, 4)} exactly{exact}){other}."
    )


def _family(engine: str) -> str:
    """The engine as the catalog calls it: "nim (tensorrt-llm)" is nim."""
    return next((family for family in ("nim", "tensorrt-llm", "vllm", "sglang") if family in engine.lower()), engine)


def _deployment(c: Candidate | None) -> tuple[str]:
    return ("none meets the limits" if c is None else f"{c.gpu} {c.precision.upper()} {c.parallelism}, {c.engine}",)


def _numbers(c: Candidate | None) -> tuple[str, ...]:
    if c is None:
        return ("–",) * len(HEADER)
    return (
        number(c.requests_per_second_per_instance),
        number(c.requests_per_second_per_8_gpus),
        number(c.systems_exact, 4),
        str(c.systems),
        number(c.ttft_ms.mean),
        number(c.ttft_ms.p95),
        number(c.e2e_ms.mean),
    )
