"""The chosen deployment in all its figures, beside what else could be wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Section, Table, Text
from tonnage.report.numbers import ABSENT, number, sentence_of
from tonnage.report.plans.answer import others
from tonnage.report.plans.deployments import deployment, instances, knobs, latency, of_pools, other_way_text, systems
from tonnage.report.wording.at_peak import used_text
from tonnage.report.wording.confidence import by_confidence, chance_text
from tonnage.report.wording.deployments import calibration_text, memory_text
from tonnage.report.wording.fleet_check import fleet_check_text
from tonnage.report.wording.growth import growth_text
from tonnage.report.wording.limits import bound_text
from tonnage.report.wording.routers import routers_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan


def _saturation(c: Candidate) -> str:
    """When the fleet would be always busy, in words."""
    rate = number(c.saturation_requests_per_second_per_instance * c.instances)
    return f"{rate} requests/s, when every instance is always busy"


def _systems_by_confidence(c: Candidate) -> str:
    if c.confidence is None:
        return ABSENT
    return by_confidence(c.confidence)


READINGS: tuple[tuple[str, Callable[[Candidate], str]], ...] = (
    ("deployment", deployment),
    ("systems", lambda c: f"{systems(c)} (exactly {number(c.systems_exact)})"),
    ("GPUs", lambda c: f"{c.gpus:,}"),
    ("instances", instances),
    ("requests/s per instance", lambda c: number(c.requests_per_second_per_instance)),
    ("requests/s per 8 GPUs", lambda c: number(c.requests_per_second_per_8_gpus)),
    ("output tokens/s per 8 GPUs", lambda c: number(c.output_tokens_per_second_per_8_gpus)),
    ("in flight per instance", lambda c: number(c.concurrency_per_instance)),
    ("latency at the peak", lambda c: "" if c.at_peak is None else "; ".join(latency(c.at_peak))),
    ("latency at the limit", lambda c: "; ".join(latency(c))),
    ("what ends the load", lambda c: bound_text(c.binds)),
    ("used at the peak", lambda c: used_text(c.utilisation)),
    ("fleet saturates at", _saturation),
    ("chance that it meets the limits", lambda c: ABSENT if c.confidence is None else chance_text(c.confidence.meets)),
    ("systems at each confidence", _systems_by_confidence),
    ("engine knobs", knobs),
    ("memory", lambda c: of_pools(c, lambda pool: memory_text(pool.memory, pool.kv_tokens))),
    ("accuracy impact", lambda c: c.accuracy_impact),
    ("calibration", lambda c: calibration_text(c.calibration) if c.accuracy_impact else ""),
)


def chosen_section(plan: Plan) -> Section:
    """One column for each deployment; empty where nothing was chosen."""
    columns = others(plan)
    if not columns:
        return section("deployment", "Deployment")
    rows = ((name, *(read(candidate) or ABSENT for _, candidate in columns)) for name, read in READINGS)
    table = Table(
        caption="The chosen deployment, and what else could be wanted" if len(columns) > 1 else "The chosen deployment",
        header=("", *(name for name, _ in columns)),
        rows=tuple(row for row in rows if set(row[1:]) != {ABSENT}),
    )
    checked = (
        None if plan.fleet_check is None else Text(text=sentence_of(f"The whole fleet at its peak: {fleet_check_text(plan.fleet_check)}"))
    )
    routed = routers_text(plan.routers, plan.scenario.limits_that_count, columns[0][1].systems - plan.scenario.spare_systems)
    router = Text(text=sentence_of(f"The router: {routed}")) if routed else None
    other = other_way_text(plan)
    way = Text(text=sentence_of(f"The other way of serving: {other}")) if other else None
    grown = None if plan.growth is None else Text(text=sentence_of(growth_text(plan.growth, columns[0][1].systems)))
    return section("deployment", "Deployment", table, checked, router, way, grown)
