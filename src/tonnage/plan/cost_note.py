"""What a reader must know about a cost, and why a way has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tonnage.plan.document import Tagged
from tonnage.spec.prices import Figure
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCost:
    """Why a way has no cost.

    Attributes:
        code: "system-price", "cloud-price" or "api-price", where one is not known; "only-peak" where the tokens of a year are not.
        name: the system, GPU or model whose price is missing; "" elsewhere.
    """

    __pydantic_config__ = FORBID

    code: Literal["system-price", "cloud-price", "api-price", "only-peak"]
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPriceRatio:
    """A cost is split over tokens as if an output token cost so many times an input token."""

    __pydantic_config__ = FORBID

    ratio: Figure
    code: Literal["token-price-ratio"] = "token-price-ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoProfile:
    """No hourly profile is given, so the cloud is rented for the peak all year."""

    __pydantic_config__ = FORBID

    code: Literal["no-profile"] = "no-profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyPeakKnown:
    """Only the peak is known, so there is no cost per request and per token."""

    __pydantic_config__ = FORBID

    code: Literal["only-peak"] = "only-peak"


@dataclass(frozen=True, slots=True, kw_only=True)
class SameAs:
    """A mixture whose cheapest split is one of its parts alone: it is left out.

    Attributes:
        way: the mixture.
        same: the way that it comes to.
    """

    __pydantic_config__ = FORBID

    way: Literal["hybrid", "hybrid-api"]
    same: Literal["on-prem", "cloud", "api"]
    code: Literal["same-as"] = "same-as"


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseWay:
    """USD per 1,000 requests over the fleet's requests, and NVIDIA's course's way: over what one system carries when always full.

    Attributes:
        systems_exact: the systems whose cost both count, before rounding up.
        usd_per_1000_requests: ours; ``course_usd_per_1000_requests`` the course's.
        one_system_requests_per_year: what one system would carry if it were full all year.
    """

    __pydantic_config__ = FORBID

    systems_exact: float
    usd_per_1000_requests: float
    course_usd_per_1000_requests: float
    one_system_requests_per_year: float
    code: Literal["course-way"] = "course-way"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedElectricity:
    """Electricity of the owned systems is an estimate; ``added`` says whether it is in the cost or paid for by hosting.

    Attributes:
        hosting_usd_per_year: the hosting that pays for it, where that is less than the electricity alone; otherwise None.
    """

    __pydantic_config__ = FORBID

    kwh_per_year: float
    usd_per_year: float | None
    added: bool
    hosting_usd_per_year: float | None = None
    code: Literal["owned-electricity"] = "owned-electricity"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotComparable:
    """Only one of the ways that were asked for has a price, so that none of them is the cheapest.

    Attributes:
        way: the one with a price.
    """

    __pydantic_config__ = FORBID

    way: Literal["on-prem", "cloud", "hybrid", "api", "hybrid-api"]
    code: Literal["not-comparable"] = "not-comparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedPrice:
    """The price of the system is an estimate: nobody was found who quotes it."""

    __pydantic_config__ = FORBID

    system: str
    price: Figure
    code: Literal["estimated-price"] = "estimated-price"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostingLeftOut:
    """Hosting is paid by the kW, and the power of the system is not known, so that hosting is not in the cost."""

    __pydantic_config__ = FORBID

    system: str
    code: Literal["hosting-left-out"] = "hosting-left-out"


CostNote = Annotated[
    TokenPriceRatio | NoProfile | OnlyPeakKnown | SameAs | CourseWay | OwnedElectricity | NotComparable | EstimatedPrice | HostingLeftOut,
    Tagged("code"),
]
