"""One of anything is written in the singular."""

from dataclasses import replace

import pytest

from tonnage.plan.fleet import FleetCheck, FleetRun
from tonnage.plan.limit import Breach, Limit
from tonnage.report.plans.confidence import fleet_check_text
from tonnage.report.plans.question import demand_text
from tonnage.results.metrics import Latencies
from tonnage.sizing.demand import demand_of

NOTHING = Latencies()
BREACH = Breach(limit=Limit(metric="ttft", statistic="p95", milliseconds=1_000.0), value_ms=2_000.0)
HOLDS = FleetRun(
    systems=1,
    instances=1,
    simulated_instances=1,
    router="random",
    requests=4_000,
    holds=True,
    worst=None,
    ttft_ms=NOTHING,
    itl_ms=NOTHING,
    tpot_ms=NOTHING,
    e2e_ms=NOTHING,
)
BREAKS = replace(HOLDS, holds=False, worst=BREACH)


def test_a_fleet_of_one_instance_is_singular() -> None:
    text = fleet_check_text(FleetCheck(by_division=1, systems=1, runs=(HOLDS,)))
    assert text == "1 instance on 1 system, simulated, meets every limit"


def test_one_instance_that_breaks_a_limit_is_singular() -> None:
    two = replace(HOLDS, systems=2, instances=2, simulated_instances=2)
    text = fleet_check_text(FleetCheck(by_division=1, systems=2, runs=(BREAKS, two)))
    assert text.startswith("1 instance on 1 system, simulated, breaks a limit (")


def test_two_instances_are_plural() -> None:
    two = replace(HOLDS, instances=2, simulated_instances=2)
    text = fleet_check_text(FleetCheck(by_division=1, systems=1, runs=(two,)))
    assert text == "2 instances on 1 system, simulated together, meet every limit"


@pytest.mark.parametrize(
    ("calls", "each", "said"),
    [(1, None, "1 call a year × 1 request)"), (1_000, 3, "1,000 calls a year × 3 requests)"), (2, 1, "2 calls a year × 1 request)")],
)
def test_one_call_of_one_request_is_singular(calls: float, each: float | None, said: str) -> None:
    assert said in demand_text(demand_of(calls_per_year=calls, requests_per_call=each))
