"""When a job is done on the chosen fleet."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """When a job is done on the chosen fleet, where every instance gets an equal share of it at the start.

    Attributes:
        requests: of the whole job.
        requests_per_instance: the largest share of an instance.
        allowed_seconds: the time in which the job has to be done.
        finish_seconds: from the start to the last token of the slowest instance.
        fixed_seconds, seconds_per_request: the time of one instance as a line over the length of its queue: ramp-up and drain, and the
            time of each request. They depend neither on the fleet nor on the time allowed.
    """

    __pydantic_config__ = FORBID

    requests: int
    requests_per_instance: int
    allowed_seconds: float
    finish_seconds: float
    fixed_seconds: float
    seconds_per_request: float

    def seconds_on(self, instances: int) -> float:
        """Seconds until that many instances have finished the job, each with an equal share of it."""
        return self.fixed_seconds + self.seconds_per_request * self.requests / instances
