"""The course's percentile way beside the simulated one, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import number, plain, whole

if TYPE_CHECKING:
    from tonnage.plan.percentile_answer import PercentileAnswer


def arrivals_text(answer: PercentileAnswer) -> str:
    """The simulated arrivals, such as "Poisson"."""
    if answer.process == "gamma":
        return f"gamma (CV {plain(answer.cv)})"
    return "Poisson" if answer.process == "poisson" else "constant"


def percentile_text(answer: PercentileAnswer) -> str:
    """What the two ways do."""
    return (
        f"The percentile way divides the {plain(answer.percentile)}th percentile of the arrivals in one second, "
        f"{plain(answer.peak_requests_per_second)}/s, by the throughput of a closed loop "
        f"of {whole(answer.concurrency_per_instance)} clients, "
        f"{number(answer.requests_per_second_per_instance)}/s an instance: it treats one busy second as if it lasted. "
        f"The simulation sends {arrivals_text(answer)} arrivals at {plain(answer.mean_requests_per_second)}/s, the mean of the "
        "time that is sized for, lets queues form and drain, and holds the limits at their percentile; it decides."
    )
