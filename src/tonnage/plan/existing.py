"""What systems that exist can carry."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.identity import Identity
from tonnage.plan.limit import Bound
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedGroup:
    """One kind of system that exists.

    Attributes:
        count, system: how many, and what.
        deployment: what runs on them; None where no deployment on these systems meets the limits.
        instances: on all of them.
        requests_per_second: of them together, inside the limits.
        binds: what breaks first there; None where nothing runs.
    """

    __pydantic_config__ = FORBID

    count: int
    system: str
    deployment: Identity | None
    instances: int
    requests_per_second: float
    binds: Bound | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ADay:
    """A working day of the highest load inside the limits.

    Attributes:
        hours: of the working day; ``peak_factor`` is the peak over the mean within them.
        requests, input_tokens, output_tokens: in that time.
        requests_per_user, users: what each user asks in a day, and how many users that makes; None where it was not said.
    """

    __pydantic_config__ = FORBID

    hours: float
    peak_factor: float
    requests: float
    input_tokens: float
    output_tokens: float
    requests_per_user: float | None = None
    users: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """What systems that exist can carry.

    Attributes:
        groups: one per kind of system.
        requests_per_second: the highest load of all together inside the limits.
        asked_requests_per_second: the load today, as the plan sizes for it; None where no load was asked for.
        headroom: how much more than today's load they carry, as a share; negative where they are too few; None likewise.
        breaks_first: what breaks first when the load grows; None where nothing runs.
        growth_per_month: of the load; None where it was not said.
        months_left: whole months after which the load still fits, −1 where it does not today; None without growth, or where it never
            ends.
        a_day: a working day of the highest load; None where nothing runs.
    """

    __pydantic_config__ = FORBID

    groups: tuple[OwnedGroup, ...]
    requests_per_second: float
    asked_requests_per_second: float | None
    headroom: float | None
    breaks_first: Bound | None
    growth_per_month: float | None
    months_left: int | None
    a_day: ADay | None = None
