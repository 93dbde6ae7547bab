"""What a job that is run again and again costs: owned, rented by the hour, or at an API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.cost import JobCost
from tonnage.report.blocks import items, section
from tonnage.report.document import Facts, Section
from tonnage.report.numbers import counted, number, plain, sentence_of, usd
from tonnage.report.plans.cost_section import prices_table, stale
from tonnage.report.wording.cost import no_cost_text

if TYPE_CHECKING:
    from tonnage.plan.cost_note import NoCost
    from tonnage.plan.plan import Plan


def job_section(plan: Plan) -> Section:
    """The section; empty where the plan is not of a job, or holds no cost of one."""
    job = plan.cost
    if not isinstance(job, JobCost):
        return section("job", "Cost")
    rows = [
        ("The job", f"{plain(job.requests)} requests within {plain(job.hours)} hours"),
        ("Owned", _owned(job)),
        ("On cloud GPUs", _by_job(job.cloud_usd_per_job, job.cloud_how, job.cloud_reason)),
        ("Through an API", _by_job(job.api_usd_per_job, job.api_how, job.api_reason)),
    ]
    against = (("the cloud", job.jobs_per_year_against_cloud), ("the API", job.jobs_per_year_against_api))
    rows += [(f"Cheaper than {name}", f"owning is, from {number(jobs)} jobs a year on") for name, jobs in against if jobs is not None]
    if any(jobs is not None for _, jobs in against):
        rows.append(("At most", f"{number(job.most_jobs_per_year)} jobs a year, for more of which a year has no time"))
    return section(
        "cost",
        "Cost of the job",
        Facts(rows=tuple(rows)),
        items(tuple(map(sentence_of, job.owned.how)), "note"),
        prices_table(job.figures),
        items(stale(job.stale_prices), "warning"),
    )


def _owned(job: JobCost) -> str:
    owned = job.owned
    if owned.total_usd_per_year is None:
        return "no cost" + (f": {no_cost_text(owned.reason)}" if owned.reason is not None else "")
    power = f", and {usd(job.power_usd_per_job)} USD of electricity a job (estimate)" if job.power_usd_per_job else ""
    each = f" of {owned.gpus // owned.systems} GPUs" if owned.systems else ""
    return f"{usd(owned.total_usd_per_year)} USD a year for {counted(owned.systems, 'system')}{each}{power}"


def _by_job(cost: float | None, how: str, reason: NoCost | None) -> str:
    if cost is None:
        return "no cost" + (f": {no_cost_text(reason)}" if reason is not None else "")
    return f"{usd(cost)} USD a job" + (f" ({how})" if how else "")
