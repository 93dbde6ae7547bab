"""Two pools as a deployment: no other split carries more."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizing.loads.small_instance import Small, traffic
from tests.sizing.pooled import contender, pooled
from tests.sizing.search.contenders import (
    TTFT,
    CarryingInPools,
    Hashed,
    asked_for,
    capacity_of,
    early,
    ready_of,
)
from tonnage.plan.fleet import fleet
from tonnage.plan.limit import SATURATION, Breach, bound_by, limit_of
from tonnage.plan.reason import AboveSaturation, BrokenAtAnyLoad, CannotRun
from tonnage.simulator.request import ALL_TOKENS, CONTEXT_TOKENS, DECODE_SEQUENCES, DURATION
from tonnage.sizing.loads.confidence import AS_PREDICTED, Slowdown
from tonnage.sizing.loads.fleet_check import FleetAtPeak
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import MARGIN, Ready
from tonnage.sizing.question import Pools
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.sizing.search.disaggregated import (
    STAND,
    PooledAtPeak,
    PooledContender,
    _per_instance,
    _sides,
    contenders_of,
    poolable,
)
from tonnage.units import to_ps


@pytest.mark.parametrize(
    ("split", "prefill"),
    [((1, 1), 4), ((1, 3), 2), ((3, 1), 6), ((7, 1), 7), ((1, 9), 1), ((99, 1), 7)],
)
def test_each_pool_has_an_instance_whatever_the_split(split: tuple[int, int], prefill: int) -> None:
    asked = contender(pooled(), Runs())
    divided = replace(asked, split=split)
    assert divided._prefill(8) == prefill
    assert divided._prefill(2) == 1


def test_no_other_split_carries_more() -> None:
    runs = Runs()
    one = contender(pooled(), runs)
    found = one.settled_on(1, one.as_asked)
    assert isinstance(found, PooledContender)
    assert sum(found.split) == 8
    carried = {
        prefill: replace(one, split=(prefill, 8 - prefill), whole=8).capacity(8, care=QUICK).rate
        for prefill in range(1, 8)
    }
    assert carried[found.split[0]] >= 0.97 * max(carried.values())


def test_a_slower_link_carries_no_more_and_comes_later() -> None:
    runs = Runs()
    fast, slow = (
        contender(replace(pooled(), pools=Pools(link_bytes_s=bytes_s)), runs)
        for bytes_s in (1e11, 4e9)
    )
    assert slow.alone().ttft_ms.mean > fast.alone().ttft_ms.mean
    assert slow.capacity(4, care=QUICK).rate <= fast.capacity(4, care=QUICK).rate * 1.01
    overlapped = contender(replace(pooled(), pools=Pools(link_bytes_s=4e9, overlap=True)), runs)
    assert overlapped.alone().ttft_ms.mean < slow.alone().ttft_ms.mean


def ended(metric: str) -> Any:
    """A capacity that a limit on the metric ends, in each of the ways."""
    limit = replace(TTFT, metric=metric)
    broken = Breach(limit=limit_of(limit), value_ms=1.0)
    return (
        capacity_of(1.0, binds=bound_by(limit)),
        capacity_of(0.0, reason=BrokenAtAnyLoad(breach=broken)),
        capacity_of(0.0, reason=replace(early(1.0), breach=broken)),
    )


@pytest.mark.parametrize(
    ("metric", "prompts", "first"),
    [
        ("ttft", False, 1),
        ("ttft", True, 1),
        ("tpot", True, -1),
        ("itl", True, -1),
        ("itl", False, -1),
        ("e2e", True, 1),
        ("e2e", False, -1),
    ],
)
def test_which_pool_a_limit_asks_for(metric: str, prompts: bool, first: int) -> None:
    for capacity in ended(metric):
        assert _sides(capacity, prompts) == (first, -first)
    for capacity in (capacity_of(1.0, binds=SATURATION), capacity_of(1.0)):
        assert _sides(capacity, prompts)[0] == (1 if prompts else -1)


def test_the_load_of_all_instances_over_their_number() -> None:
    assert _per_instance(capacity_of(8.0), 4) == capacity_of(2.0, concurrency=0.75)
    assert _per_instance(capacity_of(0.0, reason=early(8.0)), 4).reason == early(2.0)
    above = AboveSaturation(requests_per_second=12.0, most=10.0)
    assert _per_instance(capacity_of(0.0, reason=above), 4).reason == AboveSaturation(
        requests_per_second=3.0, most=2.5
    )
    plain = CannotRun(error="no")
    assert _per_instance(capacity_of(0.0, reason=plain), 4).reason is plain


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({}, None),
        ({"pp": 2}, "two pools are not simulated with pipeline stages"),
        ({"scheduler": "static"}, "two pools need in-flight batching"),
    ],
)
def test_what_cannot_be_two_pools_says_why(changed: dict[str, Any], error: str | None) -> None:
    trial = SimpleNamespace(
        deployment=SimpleNamespace(
            parallelism=SimpleNamespace(pp=changed.get("pp", 1)),
            knobs=SimpleNamespace(scheduler=changed.get("scheduler", "vllm")),
        ),
        rejected=lambda reason: reason,
    )
    ready = Ready(trial=trial, instance=None, place=0, first=trial)
    rows = [ready, "rejected before"]
    assert poolable(asked_for(1.0), rows) == rows
    expected = ready if error is None else CannotRun(error=error)
    assert poolable(asked_for(1.0, pools=object()), rows) == [expected, "rejected before"]


def test_the_contenders_of_a_question_are_in_two_pools_where_it_asks_for_them() -> None:
    for pools, kind in ((None, Contender), (object(), PooledContender)):
        (contender,) = contenders_of(asked_for(1.0, pools=pools), [ready_of()], None)
        assert type(contender) is kind


def in_pools(load: float = 400.0, **changed: Any) -> CarryingInPools:
    parts: dict[str, Any] = {"question": asked_for(load), "ready": ready_of(), "runs": None}
    return CarryingInPools(**parts | changed)


def test_a_load_to_beat_is_looked_at_on_the_systems_that_it_would_take() -> None:
    """Instances that carry more than 4 each would be 25 systems; on 24 they would have to carry the
    load."""
    layout = in_pools().layout
    assert layout.carrying(400.0, 4.0).systems == 25
    assert in_pools()._beyond(4.0, AS_PREDICTED, "") == 25
    only_fewer = in_pools(carries=lambda instances: 4.2 if instances == 96 else 3.0)
    assert only_fewer._beyond(4.0, AS_PREDICTED, "") == 24
    assert only_fewer.calls == [(100, QUICK), (96, QUICK)]
    neither = in_pools(carries=lambda instances: 3.0)
    assert neither._beyond(4.0, AS_PREDICTED, "") == early(4.0), "why the first breaks"
    assert neither.needed(above=4.0) == early(4.0)
    needed = in_pools().needed(above=4.0)
    assert isinstance(needed, tuple)
    assert needed == (20, capacity_of(5.0))


def test_roles_and_the_instances_that_stand_for_a_fleet() -> None:
    contender = in_pools(split=(1, 3), whole=8)
    assert contender.roles(8) == (("prefill", 2), ("decode", 6))
    assert [contender.standing_for(instances) for instances in (2, 32, 33)] == [2, 32, STAND]
    assert contender.settled_on(3, AS_PREDICTED) is contender
    with pytest.raises(ValueError, match="does not ask for two pools"):
        contender.asked  # noqa: B018


class Pair(SimpleNamespace):
    """Rates of one instance of each pool."""

    def at_most(self, token_s: float) -> tuple[float, float]:
        return self.rates


@dataclass(frozen=True, kw_only=True)
class Split(PooledContender):
    """Pools whose instances complete 8 and 2 requests per second, and carry the lesser in all."""

    calls: list[int] = field(default_factory=list)
    rates: tuple[float, float] = (8.0, 2.0)
    _pair = property(lambda self: Pair(rates=self.rates, single_client=lambda: None))

    def pools(self, base: Any, split: tuple[int, int], whole: int) -> Any:
        return SimpleNamespace(split=split, single_client=lambda: None)


@pytest.mark.parametrize(
    ("instances", "rates", "prefill"),
    [
        (10, (8.0, 2.0), 2),
        (10, (2.0, 8.0), 8),
        (8, (5.0, 5.0), 4),
        (2, (9.0, 1.0), 1),
        (40, (2.0, 2.0), 16),
    ],
)
@pytest.mark.parametrize("saturates", [False, True])
def test_the_best_split_is_found_from_closed_forms_on(
    *,
    instances: int,
    rates: tuple[float, float],
    prefill: int,
    saturates: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By trying every split: of more than 32 instances 32 are split."""
    module = "tonnage.sizing.search.disaggregated"
    monkeypatch.setattr(f"{module}.broken_alone", lambda summary, slo: None)
    monkeypatch.setattr(f"{module}.token_limit", lambda pair, slo: 1.0)

    def carries(split: tuple[int, int]) -> float:
        return min(split[0] * rates[0], split[1] * rates[1])

    def find(runs: Any, pools: Any, slo: Any, *, above: float, care: Any, near: float) -> Any:
        assert (care, near) == (QUICK, 0.0)
        contender.calls.append(pools.split[0])
        rate = carries(pools.split)
        if saturates:
            reason = AboveSaturation(requests_per_second=above, most=rate)
            return capacity_of(rate) if rate > above else capacity_of(0.0, reason=reason)
        limit = replace(TTFT, metric="ttft" if pools.split[0] * rates[0] == rate else "tpot")
        if rate <= above:
            broken = Breach(limit=limit_of(limit), value_ms=1.0)
            return capacity_of(0.0, reason=replace(early(rate), breach=broken))
        return capacity_of(rate, binds=bound_by(limit))

    monkeypatch.setattr(f"{module}.find_capacity", find)
    contender = Split(question=asked_for(1.0), ready=ready_of(), runs=None, rates=rates)
    best, capacity = contender._best(None, instances, ())
    together = min(instances, 32)
    most = max(carries((count, together - count)) for count in range(1, together))
    assert (best, capacity.rate) == (prefill, most)
    assert len(contender.calls) == len(set(contender.calls)) <= 4
    fixed = replace(contender, split=(1, 1), whole=2)
    assert fixed._best(None, instances, ())[0] == together // 2
    assert contender.bound(Slowdown(steps=2.0)) == pytest.approx(
        MARGIN / (1 / rates[0] + 1 / rates[1]) / 2
    )


def test_what_is_simulated_of_two_pools() -> None:
    contender = in_pools(split=(1, 3), whole=8)
    assert contender._prefill(40) == 10
    pools: list[tuple[Any, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            CarryingInPools,
            "pools",
            lambda self, *args: (
                pools.append(args) or SimpleNamespace(prefill=args[1][0], decode=args[1][1])
            ),
        )
        patch.setattr(CarryingInPools, "running", "base")
        instance, count, rate = contender.simulated(40, 2.0)
        assert (instance.prefill, instance.decode, count, rate) == (8, 24, 1, 64.0)
        contender.standing("base", 40, 16)
    assert pools == [("base", (8, 24), 40), ("base", (4, 12), 40)]


def test_the_fleet_of_two_pools_at_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 engines at most, of two attention ranks each; and an instance for each pool."""
    module = "tonnage.sizing.search.disaggregated"
    monkeypatch.setattr(f"{module}.fleet_seen", lambda *args, seed: (*args, seed))
    monkeypatch.setattr(
        CarryingInPools, "standing", lambda self, base, instances, most: (base, instances, most)
    )
    instance = SimpleNamespace(
        deployment=SimpleNamespace(parallelism=SimpleNamespace(dp=2)), recorded_sessions=None
    )
    peak = PooledAtPeak(
        runs="runs",
        instance=instance,
        layout=fleet(8, 8),
        rate=100.0,
        saturation=99.0,
        asked=(),
        slo=(),
        contender=in_pools(split=(1, 3), whole=4),
    )
    assert [peak.simulated(systems) for systems in (2, 128, 129)] == [2, 128, 128]
    assert not peak.could_carry(1)
    assert peak.could_carry(2)
    assert not replace(peak, rate=1e6).could_carry(2)
    assert peak.seen(200, "random", 3) == (
        "runs",
        (instance, 200, 128),
        pytest.approx(64.0),
        1,
        "random",
        3,
    )
    wide = replace(
        peak,
        instance=SimpleNamespace(deployment=SimpleNamespace(parallelism=SimpleNamespace(dp=999))),
    )
    assert wide.simulated(99) == 2


@pytest.mark.parametrize(
    ("instances", "link", "bytes_s"), [(4, None, 400.0), (5, None, 25.0), (4, 7.0, 7.0)]
)
def test_pools_on_one_system_send_over_its_own_links(
    instances: int, link: float | None, bytes_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "tonnage.sizing.search.disaggregated"
    monkeypatch.setattr(
        f"{module}.sent_bytes_s", lambda gpu, *, together: 400.0 if together else 25.0
    )
    monkeypatch.setattr(f"{module}.decode_worker", lambda deployment: "decoding")
    monkeypatch.setattr(f"{module}.TwoPools", lambda *args, **how: (*args, how))
    runs = Runs()
    monkeypatch.setattr(runs, "instance", lambda *args: args)
    contender = PooledContender(
        question=asked_for(1.0, pools=Pools(link_bytes_s=link, overlap=True)),
        ready=ready_of(),
        runs=runs,
    )
    base = Hashed(
        deployment=SimpleNamespace(gpu=None, parallelism=SimpleNamespace(gpus=2)),
        traffic="traffic",
    )
    pools = contender.pools(base, (1, 3), instances)
    assert pools == (base, ("decoding", "traffic"), 1, 3, {"bytes_s": bytes_s, "overlap": True})
    assert contender.pools(base, (1, 3), instances) is pools


@pytest.mark.parametrize(
    ("instances", "care", "rate"),
    [(1, QUICK, 0.0), (8, QUICK, 5.0), (40, QUICK, 1.25), (8, SURE, 6.0)],
)
def test_what_each_instance_of_two_pools_carries(
    instances: int, care: Any, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short runs find the split, and the longest what it carries: 40 and 48 requests per second, or
    as much for the 32 that stand for 40, with steps of the same length."""
    module = "tonnage.sizing.search.disaggregated"
    calls: list[Any] = []
    summary = SimpleNamespace(limit_s=lambda limit: 0.1)
    pools = SimpleNamespace(single_client=lambda: summary)
    monkeypatch.setattr(Split, "pools", lambda self, *args: pools)
    monkeypatch.setattr(Split, "_pair", pools)
    monkeypatch.setattr(Split, "bound", lambda self, slowdown: 8.0)

    def best(self: Any, base: Any, count: int, slo: Any, *loads: float) -> Any:
        calls.append((count, *loads))
        return 2, capacity_of(40.0)

    def find(runs: Any, pools: Any, slo: Any, **how: Any) -> Any:
        calls.append(how)
        return capacity_of(48.0)

    monkeypatch.setattr(Split, "_best", best)
    monkeypatch.setattr(f"{module}.find_capacity", find)
    ready = ready_of(traffic=SimpleNamespace(router="random"))
    contender = Split(question=asked_for(1.0), ready=ready, runs=None, share=0.5)
    capacity = contender.capacity(instances, above=2.0, care=care)
    together = min(instances, 32)
    if instances == 1:
        assert capacity == capacity_of(
            0.0,
            concurrency=0.0,
            summary=summary,
            reason=CannotRun(error="two pools take two instances"),
        )
        assert calls == []
        return
    assert capacity.rate == pytest.approx(rate)
    assert calls[0] == (instances, 2.0 * together, 4.0 * together)
    longest = [{"above": 16.0, "care": SURE, "near": 40.0}] if care == SURE else []
    assert calls[1:] == longest
    contender.capacity(instances, Slowdown(steps=1.5), above=2.0, near=3.0)
    assert (instances, 3.0 * together, 4.5 * together) in calls


@pytest.mark.parametrize("metric", ["ttft", "tpot"])
def test_the_steps_of_the_pool_that_ends_the_load(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 22 requests per second 11 come to each prefill instance and 5.5 to each decode one, which
    holds 5.5 * 9 * 40 ms of them: one on each of its two ranks, of 100 tokens and half of ten."""
    module = "tonnage.sizing.search.disaggregated"
    monkeypatch.setattr(f"{module}.token_limit", lambda pair, slo: 1.0)
    monkeypatch.setattr(f"{module}.decode_worker", lambda deployment: "decoding")
    monkeypatch.setattr(Split, "running", Small(traffic=traffic_of()))
    made: list[Any] = []

    def instance(deployment: Any, traffic: Any) -> Any:
        made.append((deployment, traffic.osl.mean))
        small = Small()
        small.requests_of = lambda rate, length: (rate, length)
        small.recorded = lambda *args: SimpleNamespace(steps=args)
        return small

    contender = Split(
        question=asked_for(1.0),
        ready=ready_of(),
        runs=SimpleNamespace(instance=instance),
        split=(2, 4),
    )
    summary = SimpleNamespace(tpot_ms=SimpleNamespace(mean=40.0))
    capacity = capacity_of(22 / 6, summary=summary, binds=bound_by(replace(TTFT, metric=metric)))
    _, rate, steps = contender.recorded(capacity, 99)
    if metric == "ttft":
        assert rate == pytest.approx(11.0)
        assert steps == (rate, (rate, QUICK), 99)
        assert made == [(Split.running.deployment, 1)]
        return
    assert rate == pytest.approx(5.5)
    assert made == [("decoding", 10)]
    batch = 1  # 1.98 over the two attention ranks
    assert (steps[0, DECODE_SEQUENCES], steps[0, CONTEXT_TOKENS], steps[0, ALL_TOKENS]) == (
        batch,
        105,
        2,
    )
    assert steps[0, DURATION] == to_ps(1 / 50 + 105e-6)
    idle = replace(capacity, summary=SimpleNamespace(tpot_ms=SimpleNamespace(mean=None)))
    assert contender.recorded(idle, 99)[2][0, DECODE_SEQUENCES] == 1
    busy = replace(capacity, summary=SimpleNamespace(tpot_ms=SimpleNamespace(mean=400.0)))
    assert contender.recorded(busy, 99)[2][0, :].tolist() != steps[0].tolist()
    assert contender.recorded(busy, 99)[2][0, DECODE_SEQUENCES] == 10


def traffic_of() -> Any:
    parts = vars(traffic())
    return make_dataclass("Traffic", list(parts), eq=False)(**parts)


def test_the_split_that_carries_most_is_kept_for_the_deployment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On three systems of four instances, or on ten, of which 32 instances stand for all."""
    calls: list[Any] = []

    def best(self: Any, base: Any, instances: int, slo: Any) -> Any:
        calls.append((base, instances, slo))
        return 5, capacity_of(1.0)

    monkeypatch.setattr(CarryingInPools, "_best", best)
    contender, slow = in_pools(), Slowdown(steps=2.0)
    assert (contender.split, contender.whole) == (None, 2)
    for systems, split, whole in ((3, (5, 7), 12), (10, (5, 27), 40)):
        kept_split = contender.settled_on(systems, slow)
        assert (kept_split.split, kept_split.whole) == (split, whole)
        assert calls.pop() == (contender.instance, whole, slow.tightened(contender.question.limits))


def test_saturation_of_two_pools_is_over_all_of_their_instances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CarryingInPools, "pools", lambda self, *args: args)
    runs = SimpleNamespace(saturation=lambda pools: 24.0 if pools[1:] == ((1, 3), 8) else 12.0)
    divided = in_pools(split=(1, 3), whole=8, runs=runs)
    assert divided.saturation() == 6.0
    assert divided.saturation(Slowdown(steps=1.5)) == 4.0
    assert in_pools(runs=runs).saturation() == 6.0, "one of each"
    slower = asked_for(400.0, step_factor=2.0)
    assert in_pools(runs=runs, question=slower).saturation() == 3.0
    pair = in_pools(runs=runs)
    assert pair._pair == (pair.instance, (1, 1), 2)


def test_a_peak_of_two_pools_is_that_of_any_deployment_in_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peaks = FleetAtPeak(
        runs="runs",
        instance="instance",
        layout=fleet(8, 8),
        rate=3.0,
        saturation=4.0,
        asked=(TTFT,),
        slo=(),
    )
    monkeypatch.setattr(Contender, "at_peak", lambda self, slowdown: replace(peaks, rate=slowdown))
    contender = in_pools()
    peak = contender.at_peak(9.0)
    assert isinstance(peak, PooledAtPeak)
    assert peak.contender is contender
    assert (peak.runs, peak.instance, peak.layout, peak.rate) == (
        "runs",
        "instance",
        fleet(8, 8),
        9.0,
    )
    assert (peak.saturation, peak.asked, peak.slo, peak.replayed) == (4.0, (TTFT,), (), None)
