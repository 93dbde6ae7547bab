"""What a choice aims at, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, dollars, plain

if TYPE_CHECKING:
    from tonnage.plan.aim import Aim
    from tonnage.spec.scenario import Objective

LEAST: dict[Objective, str] = {
    "gpus": "fewest GPUs",
    "cost": "lowest cost of a year",
    "power": "least power of the systems",
    "latency": "lowest mean E2E at the peak",
}


def first_text(aim: Aim | None) -> str:
    """What stands first among the candidates: "fewest GPUs"."""
    return LEAST["gpus" if aim is None else aim.objective]


def aim_text(aim: Aim) -> str:
    """What is to be as little as possible, and what must not be exceeded, in one clause."""
    caps = []
    if aim.budget_usd is not None:
        caps.append(f"at most {dollars(aim.budget_usd)} USD {'to buy' if aim.budget_of == 'purchase' else 'a year'}")
    if aim.max_kw is not None:
        caps.append(f"at most {plain(aim.max_kw)} kW")
    if aim.max_racks is not None:
        caps.append(f"at most {counted(aim.max_racks, 'rack')} of {plain(aim.rack_kw)} kW")
    return ", ".join((first_text(aim), *caps))
