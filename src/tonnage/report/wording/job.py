"""When a job is done, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, span

if TYPE_CHECKING:
    from tonnage.plan.job import JobDone


def finish_text(job: JobDone) -> str:
    """Such as "after 5.81 h of the 8 h allowed, with 125,000 requests for each instance"."""
    share = counted(job.requests_per_instance, "request")
    return f"after {span(job.finish_seconds)} of the {span(job.allowed_seconds)} allowed, with {share} for each instance"
