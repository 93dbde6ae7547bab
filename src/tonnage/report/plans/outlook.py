"""What a cost comes to: over years, for each user, and what the systems take of a building."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import items
from tonnage.report.document import Block, Table
from tonnage.report.numbers import ABSENT, usd
from tonnage.report.plans.costs import TITLES
from tonnage.report.wording.outlook import footprint_text, pays_off_text

if TYPE_CHECKING:
    from tonnage.plan.cost import YearlyCost


def outlook_blocks(cost: YearlyCost) -> tuple[Block | None, ...]:
    """A table of the years, and a sentence each on when owning pays off and on racks, power and heat."""
    found = cost.outlook
    if found is None:
        return ()
    users = found.users is not None
    rows = tuple(
        (
            next(title for where, title in TITLES.items() if where == way.where),
            *map(usd, way.usd.values()),
            *((ABSENT if way.usd_per_user_month is None else usd(way.usd_per_user_month),) if users else ()),
        )
        for way in found.ways
    )
    years = tuple(found.ways[0].usd) if found.ways else ()
    header = ("way", *(f"USD in {each} years" for each in years), *(("USD per user and month",) if users else ()))
    caption = "Over the years: the purchase on the first day, and what is paid in each year"
    texts = (
        "" if found.pays_off is None else pays_off_text(found.pays_off),
        "" if found.footprint is None else footprint_text(found.footprint),
    )
    return (Table(caption=caption, header=header, rows=rows) if rows else None, items(texts))
