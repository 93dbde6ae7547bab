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
    """

    __pydantic_config__ = FORBID

    requests: int
    requests_per_instance: int
    allowed_seconds: float
    finish_seconds: float
