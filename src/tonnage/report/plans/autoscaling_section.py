"""How the fleet of a plan is scaled over its hours: the rules beside the fixed fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Section, Table, Text
from tonnage.report.numbers import ABSENT, counted, number, sentence_of, whole
from tonnage.report.wording.autoscaling import METRICS, WHY_NOT, broken_texts, cost_text, hours_text, times_text

if TYPE_CHECKING:
    from tonnage.plan.autoscaling import Autoscaling, OverHours
    from tonnage.plan.plan import Plan


def autoscaling_section(plan: Plan) -> Section:
    """The section; empty where no autoscaling was asked for."""
    found = plan.autoscaling
    if found is None:
        return section("autoscaling", "Autoscaling")
    if found.reason is not None or found.fixed is None:
        why = "" if found.reason is None else WHY_NOT[found.reason]
        return section("autoscaling", "Autoscaling", Text(text=sentence_of(why)))
    return section("autoscaling", "Autoscaling", _table(found, found.fixed), Text(text=_reading(found)))


def _table(found: Autoscaling, fixed: OverHours) -> Table:
    rows = [("all the time", f"{found.instances}", ABSENT, number(fixed.instance_hours), "; ".join(broken_texts(fixed)))]
    for one in found.proposals:
        served = f"{one.least} to {one.most}" + (f", {one.warm} warm" if one.warm else "")
        rule = f"{number(one.target)} {METRICS[one.metric]}"
        rows.append((rule, served, times_text(one), number(one.run.instance_hours), "; ".join(broken_texts(one.run))))
    return Table(
        caption=f"Rules of a controller over {hours_text(found)}",
        header=("target of an instance", "instances", "times", "instance-hours", "limits"),
        rows=tuple(rows),
        chosen=1,
    )


def _reading(found: Autoscaling) -> str:
    part = ""
    if found.simulated_instances < found.instances:
        part = f" {found.simulated_instances} of {found.instances} instances were simulated, with their share of the load."
    cost = cost_text(found)
    return (
        f"Each rule was simulated over {whole(found.requests)} requests, with steps as slow as the plan's confidence allows for, after "
        f"{counted(found.tried, 'run')} of a search.{part}{' ' + sentence_of(cost) if cost else ''}"
    )
