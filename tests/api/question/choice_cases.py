"""What the tests of choice share with others."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.questions import question
from tonnage.plan.plan import Plan
from tonnage.sizing.planner import size
from tonnage.spec.catalog.price_list import catalog_prices

PRICES = catalog_prices()


@cache
def simulated() -> tuple[Any, Plan]:
    asked = question(gpu="h100,l40s", tp="1", peak_rps=120)
    return asked, size(asked)
