"""What the tests of plan cost share with others."""

from __future__ import annotations

from dataclasses import replace

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING

JOB_PRICES = COURSE_PRICES.with_overrides(
    {"cloud": {"h100": 2.0}, "licence_usd_per_gpu_hour": None}
)
TOKENS = (2_000.0, 200.0)
ONE = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
