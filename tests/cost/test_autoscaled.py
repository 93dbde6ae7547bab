"""What a rule saves in the cloud is its instance-hours times the price of an hour, for a year."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.plan.candidates import candidate, plan_of
from tonnage.cost.planned import with_rent
from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.fleet import Autoscaling, Held, OverHours, Proposal
from tonnage.report.plans.fleet import autoscaling_text
from tonnage.spec.catalog.price_list import catalog_prices

DEMAND = Demand(peak_requests_per_second=4.0, sizing_requests_per_second=4.0, source=DemandSource(kind="profile"))
FIXED = OverHours(held=(Held(instances=4, hours=24.0),), limits=())
HALF = OverHours(held=(Held(instances=1, hours=16.0), Held(instances=4, hours=8.0)), limits=())


def scaled(run: OverHours) -> Autoscaling:
    rule = Proposal(metric="rate", target=1.0, least=1, most=4, warm=0, start_s=60.0, hold_s=300.0, interval_s=15.0, run=run)
    return Autoscaling(hours=24.0, instances=4, simulated_instances=4, requests=9, broken_hours_share=0.0, fixed=FIXED, proposals=(rule,))


def test_it_is_the_share_of_the_fixed_fleet_at_the_prices_of_the_catalog() -> None:
    found = with_rent(replace(plan_of(DEMAND, candidate(tp=2)), autoscaling=scaled(HALF)), catalog_prices())
    assert found.cost.scaled_usd_per_year == pytest.approx(found.cost.fixed_usd_per_year * 48 / 96)
    assert found.cost.fixed_usd_per_year > 4 * 2 * 8760  # two GPUs an instance, for more than a dollar an hour
    assert found.saved_share == pytest.approx(0.5)


def test_whole_machines_save_nothing_and_single_gpus_do() -> None:
    """44 % fewer instance-hours saved 0 USD on machines of eight, though a cloud rents the GPU by itself."""
    plan = replace(plan_of(DEMAND, candidate(gpu="b200-sxm-180gb")), autoscaling=scaled(HALF))
    alone = with_rent(plan, catalog_prices())
    whole = with_rent(plan, catalog_prices().with_overrides({"cloud_offer": "AWS"}))
    assert alone.cost.scaled_usd_per_year == pytest.approx(alone.cost.fixed_usd_per_year * 48 / 96)
    assert "less" in autoscaling_text(alone)
    assert whole.cost.scaled_usd_per_year == whole.cost.fixed_usd_per_year
    assert autoscaling_text(whole).endswith(" USD a year with and without it, as machines are rented whole")


def test_nothing_is_said_without_a_price_or_a_rule() -> None:
    plan = plan_of(DEMAND, candidate())
    assert with_rent(plan, catalog_prices()) is None
    alone = replace(scaled(HALF), proposals=(), reason="one-instance")
    assert with_rent(replace(plan, autoscaling=alone), catalog_prices()) == alone
    unpriced = replace(plan_of(DEMAND, candidate(gpu="unknown-gpu")), autoscaling=scaled(HALF))
    found = with_rent(unpriced, catalog_prices())
    assert found.cost is None
