"""Systems that exist: what they carry, how much room is left, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Section, Table, Text
from tonnage.report.numbers import ABSENT, counted, number, percent, sentence_of
from tonnage.report.plans.deployments import name_of
from tonnage.report.wording.deployments import deployment_text
from tonnage.report.wording.existing import breaks_first_text, day_text, existing_text

if TYPE_CHECKING:
    from tonnage.plan.existing import Existing
    from tonnage.plan.plan import Plan


def existing_title(plan: Plan) -> str:
    """Such as "3 × dgx-h100 carry 60.6 requests/s of llama-3.1-70b"; "" where nothing exists."""
    found = plan.existing
    if found is None:
        return ""
    systems = " and ".join(f"{group.count:,} × {group.system}" for group in found.groups)
    return f"{systems} carry {number(found.requests_per_second)} requests/s of {plan.scenario.model}"


def existing_sentence(plan: Plan) -> str:
    """What exists and how long it lasts, in words; "" where nothing exists."""
    return "" if plan.existing is None else sentence_of(existing_text(plan.existing))


def running(found: Existing) -> str:
    """What runs on the systems, such as "8 instances of FP8, TP 2, vllm-0.32 on h100-sxm-80gb on 2 × dgx-h100"."""
    return "; ".join(
        f"{counted(group.instances, 'instance')} of {name_of(group.deployment)}, on {group.count:,} × {group.system}"
        for group in found.groups
        if group.deployment is not None
    )


def existing_glance(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The numbers to see first of systems that exist."""
    found = plan.existing
    if found is None:
        return ()
    months = found.months_left
    rows = [
        ("requests/s inside the limits", number(found.requests_per_second)),
        ("requests/s today, at the peak", number(found.asked_requests_per_second)),
        ("headroom now", percent(found.headroom)),
        ("months left", ABSENT if months is None else "none" if months < 0 else f"{months}"),
    ]
    return tuple(row for row in rows if row[1] != ABSENT)


def existing_section(plan: Plan) -> Section:
    """One row per kind of system; empty where nothing exists."""
    found = plan.existing
    if found is None:
        return section("existing", "Systems that exist")
    rows = tuple(
        (
            f"{group.count:,} × {group.system}",
            ABSENT if group.deployment is None else deployment_text(group.deployment),
            str(group.instances),
            number(group.requests_per_second),
            breaks_first_text(group),
        )
        for group in found.groups
    )
    header = ("systems", "best deployment on them", "instances", "requests/s inside the limits", "what breaks first")
    growth = found.growth_per_month
    day = None if found.a_day is None else Text(text=sentence_of(f"that is {day_text(found.a_day)}"))
    grows = None if growth is None else Text(text=f"The load is taken to grow by {growth:.1%} a month.")
    return section("existing", "Systems that exist", Table(caption="What they carry", header=header, rows=rows), day, grows)
