"""Months of buying and renting in words: the line, the table, the picture and where figures are
from."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import tonnage
from tests.questions import plans_with
from tonnage.errors import option
from tonnage.plan.horizon import Horizon, HorizonMonth, HorizonWay
from tonnage.plan.notes import NoCost
from tonnage.plan.plan import Plan
from tonnage.report.document import Drawing, Items, Section, Table
from tonnage.report.plans.explained import why_text
from tonnage.report.plans.horizon import horizon_section, horizon_text, spent, what
from tonnage.report.plans.plan_document import report
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import terminal

_few_parts = plans_with()


def way(name: Any, *paid: float, systems: tuple[int, ...] = (), **more: Any) -> HorizonWay:
    months = len(paid)
    return HorizonWay(
        way=name,
        purchase_usd=sum(paid),
        usd_by_month=paid,
        systems=systems or (0,) * months,
        reserved_gpus=more.pop("reserved_gpus", (0,) * months),
        hourly_gpus=more.pop("hourly_gpus", (0,) * months),
        **more,
    )


def horizon(**changed: Any) -> Horizon:
    needs = tuple(
        HorizonMonth(month=month, requests_per_second=100.0, systems=count, simulated=month < 2)
        for month, count in enumerate((1, 1, 2))
    )
    ways = (
        way("now", 600.0, 10.0, 10.0, systems=(2, 2, 2), idle=0.5),
        way("steps", 300.0, 5.0, 300.0, systems=(1, 1, 2), idle=0.25, cheaper_from=2),
        way("hour", 200.0, 200.0, 400.0, hourly_gpus=(8, 8, 16)),
    )
    known: dict[str, Any] = {
        "months": 3,
        "growth_per_month": 0.05,
        "systems_decay": None,
        "rents_decay": None,
        "lead_months": 0,
        "system": "dgx-h100",
        "gpus_per_system": 8,
        "needs": needs,
        "ways": ways,
        "cheapest": "steps",
    }
    return Horizon(**(known | changed))


def test_the_line_names_the_cheapest_way_by_how_much_and_what_is_assumed() -> None:
    assert horizon_text(horizon()) == (
        "buying each system when it is needed, 605 USD in 3 months, 2% less than buying all now"
        " (620), renting all by the hour 800; 1 × dgx-h100 today, 1 in month 2; prices stay, as no"
        f" {option('price_decay')} is given"
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"systems_decay": 0.25, "rents_decay": -0.05},
            "prices of systems fall by 25% a year and prices of rented GPUs rise by 5% a year",
        ),
        (
            {"systems_decay": 0.25, "rents_decay": 0.25, "existing": True},
            "605 USD in 3 months, in addition to what exists, 2% less than",
        ),
        (
            {"systems_decay": 0.25, "rents_decay": 0.25},
            "in month 2; prices fall by 25% a year",
        ),
        (
            {"rents_decay": 0.1},
            f"prices of systems stay, as no {option('price_decay')} is given and prices of rented"
            " GPUs fall by 10% a year",
        ),
        (
            {"lead_months": 3},
            "nothing bought today is delivered within them, at a lead time of 3 months",
        ),
        ({"systems_decay": 0.0, "rents_decay": 0.0}, "; prices stay, as given"),
        ({"growth_per_month": None}, f"the load stays as it is, as no {option('growth')} is given"),
        (
            {"ways": (horizon().ways[1],)},
            "in 3 months, the only way with a price; 1 × dgx-h100 today, 1 in month 2;",
        ),
        ({"reason": "many"}, "not known: no number of systems carries the load of some month"),
        (
            {"ways": (HorizonWay(way="hour", reason=NoCost(code="cloud-price", name="l40s")),)},
            "no cloud price of l40s is known",
        ),
        ({"ways": ()}, "no way to own or to rent was requested"),
        (
            {"needs": (HorizonMonth(month=0, requests_per_second=1.0, systems=0, simulated=True),)},
            "what exists is enough for 3 months; nothing is to be bought or rented",
        ),
    ],
)
def test_the_line_says_what_is_special(changed: dict[str, Any], words: str) -> None:
    assert words in horizon_text(horizon(**changed))


def test_many_purchases_are_counted_and_rents_named() -> None:
    steps = way("both", *[1.0] * 9, systems=tuple(range(1, 10)), hourly_gpus=(0,) * 8 + (4,))
    assert what(steps, horizon(), 4) == (
        "1 × dgx-h100 today, 1 in month 1, 1 in month 2, 1 in month 3, … 9 systems in all, up to"
        " 4 GPUs by the hour"
    )
    assert what(way("reserved", 1.0, reserved_gpus=(8,)), horizon()) == "up to 8 GPUs reserved"


def test_the_picture_shows_what_has_been_paid_and_names_purchases() -> None:
    plot = spent(horizon())
    by_name = {series.name: series.points for series in plot.series}
    assert [(point.x, point.y) for point in by_name["buy when needed"]] == [
        (0, 300),
        (1, 305),
        (2, 605),
    ]
    tips = [point.tip for point in by_name["buy when needed"]]
    assert ["1 × dgx-h100 delivered" in tip for tip in tips] == [True, False, True]
    assert [point.y for point in by_name["rent by the hour"]] == [200, 800]
    assert plot.x.ticks[-1] >= 2


@cache
def plan() -> Plan:
    return tonnage.size(
        model="llama-3.1-8b",
        isl=1000,
        osl=200,
        gpu="h100",
        precision="fp8",
        tp="1",
        engine="vllm",
        ttft="p95<=1s",
        peak_rps=200,
        growth="6%/month",
        horizon="36",
        lead_time="2",
    )


def blocks_of(section: Section, kind: type) -> list[Any]:
    return [block for block in section.blocks if isinstance(block, kind)]


def test_the_section_has_one_table_one_picture_and_the_origin_of_each_figure() -> None:
    section = horizon_section(plan())
    (ways, prices), (picture,) = blocks_of(section, Table), blocks_of(section, Drawing)
    found = plan().horizon
    assert found is not None
    assert len(ways.rows) == len(found.ways)
    assert ways.rows[ways.chosen][1] == f"{min(way.total_usd or 0 for way in found.ways):,.0f}"
    assert len(picture.numbers.rows) == 36
    assert len(picture.figure.series) == len(found.ways)
    # payments of a month of the table sum to the total
    steps = picture.numbers.header.index("buy when needed, USD")
    row = next(row for row in ways.rows if row[0] == "buy when needed")
    summed = sum(float(row[steps].replace(",", "")) for row in picture.numbers.rows)
    assert summed == pytest.approx(float(row[1].replace(",", "")), abs=36)
    steps_listed, origins = blocks_of(section, Items)
    assert len(steps_listed.items) == len(found.ways)
    assert "Rent by the hour: up to" in " ".join(steps_listed.items)
    words = " ".join(origins.items)
    for part in (
        "ordered 2 months before they are delivered",
        "The load grows by 6.0% a month",
        "USD per GPU and hour",
        "reserved 3 years",
        "Not counted: what systems are worth at the end",
        "discounting",
    ):
        assert part in words
    paths = {row[-1] for row in prices.rows}
    assert {"systems.dgx-h100", "hosting_usd_per_kw_month", "depreciation_years"} <= paths
    assert any(path.startswith("cloud.h100-sxm-80gb.") for path in paths)


def test_report_explain_and_the_first_screen_show_it() -> None:
    assert "Buying and renting over the months" in terminal(why_text([plan()]))
    page = html(report(plan()))
    assert "Money paid by the end of each month" in page
    assert horizon_section(replace(plan(), horizon=None)).blocks == ()
    from tonnage.report.plans.screen import screen

    text = " ".join(terminal(screen([plan()])).split())
    assert "Horizon" in text
    assert "less than" in text
