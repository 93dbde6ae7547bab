"""What each candidate of a plan costs, to buy and in a year, and what its systems draw: what a choice is made by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.cost.cost import api_cost, serving_of
from tonnage.cost.options import as_planned, cloud, hybrid, on_prem
from tonnage.cost.overflow import overflow
from tonnage.plan.cost import WAYS, Where

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.cost import Traffic
    from tonnage.spec.prices import Prices

OWNED_OR_RENTED: tuple[Where, ...] = ("on-prem", "cloud", "hybrid")
"""The ways of serving whose cost hangs on the candidate alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlay:
    """What a candidate costs and draws; None where a price or a power is not known.

    Attributes:
        purchase_usd: price of its systems.
        cheapest_usd_per_year: of all ways of serving that were asked for.
        own_usd_per_year: of those among them that own or rent the candidate's GPUs alone.
        system_watts: highest power of one system; ``watts_from`` says where that comes from.
    """

    purchase_usd: float | None
    cheapest_usd_per_year: float | None
    own_usd_per_year: float | None
    system_watts: float | None
    watts_from: str


def outlay(
    candidate: Candidate, traffic: Traffic, prices: Prices, *, spare: int = 0, model: str | None = None, where: Sequence[Where] = WAYS
) -> Outlay:
    """What a candidate costs and draws.

    Args:
        candidate: of one pool, or of prefill and decode pools, of which the cloud keeps one instance each.
        traffic: the load of a year.
        prices: the price list.
        spare: systems in addition to those that the load needs.
        model: whose API price counts.
        where: the ways of serving that were asked for.
    """
    serving = as_planned(serving_of(candidate, spare), traffic)
    least = len(candidate.pools)
    each = {
        "on-prem": lambda: on_prem(traffic, serving, prices, least),
        "cloud": lambda: cloud(traffic, serving, prices, least),
        "hybrid": lambda: hybrid(traffic, serving, prices, least),
        "api": lambda: api_cost(traffic, prices, model),
        "hybrid-api": lambda: overflow(traffic, serving, prices, model),
    }
    known = {way: usd for way in where if (usd := each[way]().total_usd_per_year) is not None}
    price = prices.system_usd(serving.system)
    return Outlay(
        purchase_usd=None if price is None else candidate.systems * price.value,
        cheapest_usd_per_year=min(known.values(), default=None),
        own_usd_per_year=min((usd for way, usd in known.items() if way in OWNED_OR_RENTED), default=None),
        system_watts=serving.system_watts,
        watts_from=serving.watts_from,
    )
