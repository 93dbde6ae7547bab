"""Regions whose hours are added up: what each uses, takes alone and pays."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.questions import plans_with
from tonnage import api, size
from tonnage.plan.plan import Plan
from tonnage.report.plans.fleet import regions_text

few_parts = plans_with()

ASKED: dict[str, Any] = {
    "model": "llama-3-8b",
    "gpu": "h100",
    "engine": "vllm",
    "precision": "fp8",
    "tp": 1,
    "isl": 1500,
    "osl": 300,
    "ttft": "p95<=1s",
}
DAY = [max(1.0, 150 * math.sin(math.pi * (hour - 7) / 14)) for hour in range(24)]


def test_regions_pay_for_the_peak_and_the_year_and_one_fleet_follows_the_sun(
    tmp_path: Path,
) -> None:
    path = tmp_path / "day.csv"
    path.write_text("\n".join(map(str, DAY)), encoding="utf-8")
    found = size(**ASKED, profile=f"eu:{path}@+1,us:{path}@-6,ap:{path}@+8")
    assert Plan.from_json(found.to_json()) == found
    regions = found.regions.regions
    for name in ("at_peak", "over_year"):
        assert math.fsum(getattr(region, name) for region in regions) == pytest.approx(1)
    assert [region.over_year for region in regions] == pytest.approx([1 / 3] * 3)
    ways = {way.where: way.total_usd_per_year for way in found.cost.ways}
    total = math.fsum(region.usd_per_year for region in regions)
    assert total == pytest.approx(ways[found.regions.where])
    assert found.demand.peak_requests_per_second < sum(
        region.peak_requests_per_second for region in regions
    )
    assert found.regions.systems_apart > found.regions.systems == found.choice.systems
    saved = found.regions.systems_apart - found.regions.systems
    assert f"following the sun saves {saved}" in regions_text(found.regions)
    direct = api.size(**ASKED, peak_rps=max(DAY)).choice.systems
    assert [region.systems for region in regions] == [direct] * 3


def test_one_profile_has_no_regions() -> None:
    found = size(**ASKED, profile=[10.0] * 24)
    assert found.regions is None
    assert "regions" not in found.to_json()
