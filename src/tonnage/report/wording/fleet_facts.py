"""Failures, instance-hours and broken limits of a simulated fleet, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tonnage.report.numbers import counted, number
from tonnage.results.violations import Violation


class FleetFacts(Protocol):
    """What is told of a fleet's run."""

    @property
    def failures(self) -> int:
        """Of instances."""

    @property
    def restarts(self) -> int:
        """Of instances between seasons."""

    @property
    def retried(self) -> int:
        """Requests in flight that were sent to another instance."""

    @property
    def lost(self) -> int:
        """Requests that failed."""

    @property
    def availability(self) -> float:
        """Share of the instances' time in which they worked."""

    @property
    def instance_hours(self) -> float:
        """Held."""

    @property
    def serving_mean(self) -> float | None:
        """Instances that took requests; None without a controller."""

    @property
    def serving_most(self) -> int | None:
        """The most of them."""

    @property
    def violations(self) -> Sequence[Violation]:
        """Of the limits."""


def fleet_lines(facts: FleetFacts | None) -> Iterator[str]:
    """A line on failures, one on instance-hours, and one for each limit."""
    if facts is None:
        return
    if facts.failures or facts.availability < 1:
        yield (
            f"{counted(facts.failures, 'failure')}: instances worked {100 * facts.availability:.3f} % of the time; "
            f"{counted(facts.retried, 'request')} sent again, {facts.lost:,} lost"
        )
    if facts.restarts:
        yield f"{counted(facts.restarts, 'restart')} between seasons: {counted(facts.retried, 'request')} sent again, {facts.lost:,} lost"
    if facts.serving_mean is not None and facts.serving_most is not None:
        yield (
            f"{number(facts.instance_hours)} instance-hours; {facts.serving_mean:.2f} instances served on average, "
            f"at most {facts.serving_most:,}"
        )
    for one in facts.violations:
        hours = (
            f"broken in {one.broken_hours:,} of {counted(one.hours, 'hour')}" if one.hours > 1 else "broken" if one.broken_hours else "held"
        )
        yield f"{one.limit}: {hours}; {100 * one.share:.3g} % of the requests took longer or were lost"
