"""A year's load, hour by hour: what its cost is computed from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from tonnage.spec.typed_values import FORBID

HOURS_PER_YEAR = 8_760
SECONDS_PER_YEAR = 3_600 * HOURS_PER_YEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """Hours of a year with one load.

    Attributes:
        hours_per_year: how many there are.
        requests_per_second: what arrives in them; None where only the peak is known.
        sized_requests_per_second: what is provided for in them: bursts within the hour included.
    """

    hours_per_year: float
    requests_per_second: float | None
    sized_requests_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A year's load.

    Attributes:
        peak_requests_per_second: what a fixed fleet is sized for.
        mean_requests_per_second: over the year; None where only the peak is known.
        input_tokens, output_tokens: mean of a request.
        profile: requests/s hour by hour, a day, a week or a year that repeats; empty where there is none.
    """

    __pydantic_config__ = FORBID

    peak_requests_per_second: float
    mean_requests_per_second: float | None
    input_tokens: float
    output_tokens: float
    profile: tuple[float, ...] = ()

    @property
    def requests_per_year(self) -> float | None:
        """Requests in 365 days; None where only the peak is known."""
        return None if self.mean_requests_per_second is None else self.mean_requests_per_second * SECONDS_PER_YEAR

    @property
    def hours(self) -> tuple[Hours, ...]:
        """The year's hours, those of one load together, the quietest first.

        The busiest hour of a profile is provided for at the peak; every other hour has the same
        room for bursts, peak over busiest hour. Without a profile the peak is provided for all year.
        """
        if not self.profile:
            return (
                Hours(
                    hours_per_year=HOURS_PER_YEAR,
                    requests_per_second=self.mean_requests_per_second,
                    sized_requests_per_second=self.peak_requests_per_second,
                ),
            )
        busiest = max(self.profile)
        room = max(1.0, self.peak_requests_per_second / busiest) if busiest else 1.0
        each = HOURS_PER_YEAR / len(self.profile)
        return tuple(
            Hours(hours_per_year=count * each, requests_per_second=rate, sized_requests_per_second=rate * room)
            for rate, count in sorted(Counter(self.profile).items())
        )

    def times(self, factor: float) -> Traffic:
        """The same day with ``factor`` times the load."""
        mean = self.mean_requests_per_second
        return replace(
            self,
            peak_requests_per_second=self.peak_requests_per_second * factor,
            mean_requests_per_second=None if mean is None else mean * factor,
            profile=tuple(rate * factor for rate in self.profile),
        )
