"""Systems of several kinds behind one router."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.questions import question
from tests.sizing.search.contenders import TTFT, Hashed
from tonnage.errors import InputError
from tonnage.plan.fleet import fleet
from tonnage.sizing.fleet.existing import strongest, whole_fleet
from tonnage.sizing.loads.fleet_check import FleetAtPeak
from tonnage.sizing.loads.mixed_check import MixedAtPeak, at_peak
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.search.search import Search


def mixed_fleet(router: str = "least-outstanding") -> MixedAtPeak:
    asked = question(tp="1", have="1xdgx-h100,2x8xl40s", router=router)
    search = Search(question=asked, runs=Runs(asked.slo), rows=False)
    kinds = [(strongest(search, owned), owned.count) for owned in asked.have]
    fleet = whole_fleet([(sized, count) for sized, count in kinds if sized is not None], 300.0)
    assert isinstance(fleet, MixedAtPeak)
    return fleet


def test_every_request_is_served_once_by_one_of_the_kinds() -> None:
    fleet = mixed_fleet()
    record, bounds, simulated = fleet.record()
    assert bounds == (0, 8, 24)
    assert (
        len(np.unique(record.due_ns)) == len(record) == int(0.97 * simulated) - int(0.2 * simulated)
    )
    assert set(np.unique(record.instance)) == set(range(24))
    assert (record.last_token_ns > record.due_ns).all()
    (fast, of_fast), (slow, of_slow) = fleet.of_kinds()
    assert fast + slow == pytest.approx(1)
    whole = fleet.seen(3).summary.ttft_ms.mean
    parts = fast * (of_fast.ttft_ms.mean or 0) + slow * (of_slow.ttft_ms.mean or 0)
    assert whole == pytest.approx(parts, rel=1e-6)


def test_weights_give_requests_in_proportion_to_what_instances_carry() -> None:
    fleet = mixed_fleet("weighted")
    (fast, _), (slow, _) = fleet.of_kinds()
    carried = [weight * count for weight, count in zip(fleet.weights, fleet.counts, strict=True)]
    assert fast / slow == pytest.approx(carried[0] / carried[1], rel=0.02)


def kind_of(saturation: float, instances: int, in_flight: float = 0.0, dp: int = 1) -> Any:
    """Systems of one instance each."""
    instance = Hashed(
        in_flight_at=lambda rate: in_flight * rate,
        deployment=SimpleNamespace(parallelism=SimpleNamespace(dp=dp)),
        traffic=SimpleNamespace(process="poisson", cv=1.0, seed=5, router="least-outstanding"),
        workload=lambda arrivals, requests: (arrivals.rate, requests),
    )
    peak = FleetAtPeak(
        runs=Runs(),
        instance=instance,
        layout=fleet(8, 8),
        rate=7.0,
        saturation=saturation,
        asked=(TTFT,),
        slo=(replace(TTFT, seconds=1.0 / saturation),),
    )
    return peak, instances


def test_a_fleet_of_two_kinds_by_hand() -> None:
    """Two instances of 10 and six of 5 requests per second: of 50 in all, 49 settle."""
    whole = at_peak([kind_of(10.0, 2), kind_of(5.0, 6)], [3.0, 1.0])
    assert isinstance(whole, MixedAtPeak)
    assert (whole.counts, whole.instances(99), whole.simulated(99)) == ((2, 6), 8, 8)
    assert whole._shares() == (0.2, 0.1)
    assert replace(whole, rate=49.0).could_carry(0)
    assert not replace(whole, rate=49.01).could_carry(0)
    assert whole.slo == (replace(TTFT, seconds=0.1),), "the tighter of both"
    assert (whole.weights, whole.rate, whole.saturation) == ((3.0, 1.0), 7.0, 10.0)
    assert {kind.rate for kind, _ in whole.kinds} == {7.0}
    alone = kind_of(10.0, 2)
    assert at_peak([alone], [1.0]) is alone[0]
    with pytest.raises(InputError, match="attention ranks"):
        at_peak([alone, kind_of(5.0, 6, dp=2)], [1.0, 1.0])


def test_of_a_large_fleet_the_shares_of_its_kinds_are_simulated() -> None:
    whole = at_peak([kind_of(10.0, 400), kind_of(5.0, 112)], [1.0, 1.0])
    assert whole._shown() == (200, 56)
    assert at_peak([kind_of(1.0, 255), kind_of(1.0, 1)], [1.0, 1.0])._shown() == (255, 1)
    assert at_peak([kind_of(1.0, 9_999), kind_of(1.0, 1)], [1.0, 1.0])._shown() == (256, 1)


@pytest.mark.parametrize(
    ("counts", "in_flight", "requests"),
    [
        ((2, 6), 0.0, 16_000),  # of all together
        ((100, 100), 0.0, 40_000),  # 200 of each
        # 8 times those in flight of each of the first kind, to which a fifth of all comes
        ((2, 6), 1_000.0, 2 * 8 * 1_000 * 0.2 * 7 + 6 * 2_000),
    ],
)
def test_requests_of_a_run_of_two_kinds(
    counts: tuple[int, int],
    in_flight: float,
    requests: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "tonnage.sizing.loads.mixed_check"
    monkeypatch.setattr(
        f"{module}.balanced_trace", lambda workload, arriving, seed: (workload, seed)
    )
    monkeypatch.setattr(f"{module}.middle", lambda record: record)
    monkeypatch.setattr(
        MixedAtPeak, "routed", lambda self, trace, shown, router: (trace, shown, router)
    )
    whole = at_peak([kind_of(10.0, counts[0], in_flight), kind_of(5.0, counts[1])], [3.0, 1.0])
    (((rate, drawn), seed), shown, router), bounds, _ = whole.record("random", 3)
    assert drawn == pytest.approx(requests)
    assert (rate, seed, shown, router) == (7.0, 10, counts, "random")
    assert bounds == (0, counts[0], sum(counts))
    (_, seed), shown, router = whole.record()[0]
    assert (seed, shown, router) == (7, counts, "")


def test_each_instance_has_its_engine_and_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def run_fleet(trace: Any, engines: Any, router: str, *, seed: int, weight: Any) -> Any:
        calls.append((trace, engines, router, seed, weight))
        return SimpleNamespace(requests="record")

    monkeypatch.setattr("tonnage.sizing.loads.mixed_check.run_fleet", run_fleet)
    whole = at_peak([kind_of(10.0, 2), kind_of(5.0, 3)], [3.0, 1.0])
    for number, (kind, _) in enumerate(whole.kinds):
        kind.instance.engine = number
    assert whole.routed("trace") == "record"
    assert whole.routed("trace", (1, 2), "random") == "record"
    assert calls == [
        ("trace", (0, 0, 1, 1, 1), "least-outstanding", 5, (3.0, 3.0, 1.0, 1.0, 1.0)),
        ("trace", (0, 1, 1), "random", 5, (3.0, 1.0, 1.0)),
    ]


class Run(SimpleNamespace):
    """Requests of instances."""

    def __len__(self) -> int:
        return len(self.instance)

    def some(self, rows: Any) -> Any:
        return rows.tolist()


def test_what_each_kind_gets_and_sees_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight requests five come to the first two instances."""
    record = Run(instance=np.array([0, 2, 1, 1, 3, 0, 1, 4]))
    calls: list[Any] = []
    monkeypatch.setattr(
        MixedAtPeak, "record", lambda self, *args: calls.append(args) or (record, (0, 2, 5), 40)
    )
    whole = at_peak([kind_of(10.0, 2), kind_of(5.0, 3)], [3.0, 1.0])
    monkeypatch.setattr(whole.runs, "summary", lambda rows: rows)
    assert whole.of_kinds() == ((5 / 8, [0, 2, 3, 5, 6]), (3 / 8, [1, 4, 7]))
    assert whole.of_kinds() is whole.of_kinds()
    seen = whole.seen(9)
    assert (seen.summary, seen.requests, seen.growth) == (record, 40, 0.0)
    assert whole.seen(5, "least-outstanding", 0) is seen, "whatever the number of systems"
    assert whole.seen(9, "random") is not whole.seen(9, seed=3)
    assert calls == [(), ("", 0), ("random", 0), ("", 3)]
