"""The fleet of a plan: routers, regions and systems that exist."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.questions import plans_with
from tonnage import api, size
from tonnage.plan.fleet import BehindRouter
from tonnage.plan.plan import Plan
from tonnage.report.plans.fleet import regions_text, router_text
from tonnage.results.metrics import Latencies

few_parts = plans_with()


def test_the_router_is_worth_what_a_plain_service_would_need() -> None:
    def behind(router: str, systems: int | None, p95: float) -> BehindRouter:
        return BehindRouter(
            router=router,
            systems=systems,
            **dict.fromkeys(("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"), Latencies(p95=p95)),
        )

    own, text = behind("least-outstanding", 9, 201.0), "the answer counts on least-outstanding; "
    service = "a plain Kubernetes service (random choice)"
    assert (
        router_text((own, behind("random", 14, 400.0)), (), 9)
        == f"{text}{service} would need 14 systems in place of 9"
    )
    as_many = f"{text}{service} needs as many systems, at TTFT p95 230 ms in place of 201 ms"
    assert router_text((own, behind("random", 9, 230.0)), (), 9) == as_many
    assert (
        router_text((own, behind("random", None, 1.0)), (), 9)
        == f"{text}behind {service} no number of systems holds the limits"
    )
    assert router_text((), (), 9) == ""
    itself = (behind("random", 9, 230.0), behind("least-outstanding", 8, 201.0))
    assert (
        router_text(itself, (), 9)
        == "random choice, TTFT p95 230 ms at the peak; behind least-outstanding 201 ms (8 systems"
        " would do)"
    )


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
