"""How many requests and instances are simulated: at the ends of what decides it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizing.loads.small_instance import Small, traffic
from tonnage.sizing.loads import capacity, fleet_check, instance, runs, session_load, shared_load
from tonnage.sizing.loads.runs import Runs

SHARES = {"sharing": SimpleNamespace(recorded=None, follows=False)}
FOLLOWS = {"sharing": SimpleNamespace(recorded=None, follows=True)}
BURSTS = {"process": "gamma", "cv": 9.0}


@pytest.mark.parametrize(
    ("in_flight", "changed", "requests"),
    [
        (1, {}, [2_000, 4_000, 16_000]),
        (1, SHARES, [1_000, 2_000, 8_000]),
        (1, FOLLOWS, [2_000, 4_000, 16_000]),
        (1, BURSTS, [8_000, 16_000, 64_000]),
        # 2, 4 and 8 times those in flight are powers of two times the fewest, or just above
        (4_000, {}, [8_000, 16_000, 32_000]),
        (4_001, {}, [16_000, 32_000, 64_000]),
    ],
)
def test_requests_of_a_run(in_flight: int, changed: dict[str, Any], requests: list[int]) -> None:
    small = Small(in_flight=in_flight, traffic=traffic(**changed))
    assert [small.requests_of(1e4, length) for length in (0, 1, 2)] == requests
    assert (instance.LIVES, instance.FOLLOWED) == ((2, 4, 8), 2)
    assert small.requests_of(1e-9, 2) == instance.ALONE_REQUESTS == 100
    small.in_flight = small.alone_e2e_s = 10**6
    assert small.requests_of(1.0, 2) == instance.WITHIN_S == 3_000_000


def test_requests_of_runs_that_are_busy_or_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten batches, from 4,000 to 48,000, at 1.3 times the closed form; ten of each client."""
    monkeypatch.setattr(runs, "saturation_rate", lambda record: record)
    memory = Runs()
    for in_flight, requests in ((1, 4_000), (601, 6_010), (4_799, 47_990), (4_801, 48_000)):
        small = Small(in_flight=in_flight, saturation_estimate=lambda: 10.0)
        small.open = lambda *args: args
        assert memory.saturation(small) == (13.0, requests, 0)
    monkeypatch.setattr(memory, "summary", lambda record: record)
    small.closed = lambda *args: args
    assert [memory.clients(small, count)[1] for count in (1, 10, 11)] == [100, 100, 110]


def test_requests_of_runs_of_sessions() -> None:
    """30, 60 or 150 of each, and 1,500, 3,000 or 9,000: doubled until they are as many."""
    recorded = SimpleNamespace(pace=1.0)
    assert [
        [session_load.session_requests(recorded, rate, length) for length in (0, 1, 2)]
        for rate in (1, 50, 51, 100, 160, 161)
    ] == [
        [1_500, 3_000, 12_000],
        [1_500, 3_000, 12_000],
        [3_000, 6_000, 12_000],
        [3_000, 6_000, 24_000],
        [6_000, 12_000, 24_000],
        [6_000, 12_000, 48_000],
    ]


def test_instances_and_requests_of_a_fleet() -> None:
    """256 engines and eight with sessions; caches that take 60,000 requests to fill, in all."""

    def simulated(count: int, warm: int | None = None, sessions: object = None) -> int:
        shared = None if warm is None else SimpleNamespace(warm=lambda rate: warm)
        deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=1))
        whole = SimpleNamespace(recorded_sessions=sessions, deployment=deployment, shared=shared)
        return fleet_check.simulated_of(whole, count, 1.0)

    assert [simulated(count) for count in (255, 256, 257)] == [255, 256, 256]
    assert [simulated(300, warm) for warm in (0, 300, 2_069, 60_000)] == [256, 200, 28, 8]
    assert [simulated(count, sessions=object()) for count in (8, 9)] == [8, 8]
    assert (fleet_check.SEED_STEP, fleet_check.SESSION_SEEDS) == (2, (0, 1, 2))
    assert fleet_check._of_a_further((0.8, 0.9, 1.0)) == pytest.approx(0.9 + 2.18 * 0.1)
    assert (capacity.SIMULATED, capacity.MOST_INSTANCES, capacity.HALVINGS) == (16_000, 4_096, 7)
    assert len(shared_load._every(range(160))) == 160 // shared_load.OVERDRAWN == 10
