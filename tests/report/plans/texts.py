"""Plans as whole texts."""

from __future__ import annotations

from tonnage.plan.plan import Plan
from tonnage.report.plans.plan_document import full_text
from tonnage.report.writers.terminal import terminal


def written(*plans: Plan) -> str:
    """The full text of the plans."""
    return terminal(full_text(plans))
