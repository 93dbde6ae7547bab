"""What a search keeps of its runs, and what it reads from a record: by values worked by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tonnage.sizing.loads import runs as runs_module
from tonnage.sizing.loads.instance import QUICK, SHORT, SURE
from tonnage.sizing.loads.runs import Runs, Seen, _decoding, _growth, saturation_rate
from tonnage.spec.deployment import Limit


class Record(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.due_ns)


def record(waits: list[float]) -> Record:
    due = np.arange(len(waits)) * 1_000
    return Record(due_ns=due, first_token_ns=due + np.array(waits))


def test_what_is_made_once_is_made_once_and_forgotten_where_single_requests_are_to_be_kept() -> (
    None
):
    runs, calls = Runs(), []
    for _ in range(2):
        assert runs.once("key", lambda: calls.append(1) or 7) == 7
    assert (runs.kept, calls) == (1, [1])
    plain = Limit(metric="ttft", statistic="p95", seconds=1.0)
    runs.keep_requests((plain,))
    assert runs.kept == 1
    joint = SimpleNamespace(share=0.9)
    runs.keep_requests((plain, joint))
    assert runs.kept == 0
    runs.once("key", lambda: 8)
    runs.keep_requests((joint,))
    assert runs.kept == 1, "they are kept already"
    with pytest.raises(ZeroDivisionError):
        runs.once("error", lambda: 1 / 0)
    assert runs.once("error", lambda: 3) == 3


@pytest.mark.parametrize("joint", [False, True])
def test_latencies_of_single_requests_are_kept_for_joint_attainment_alone(
    joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "summarize", lambda record, *, by_request: by_request)
    slo = (SimpleNamespace(share=0.9 if joint else None),)
    assert Runs(slo).summary(record([1.0])) is joint


def test_completions_per_second_are_counted_between_30_and_90_of_a_hundred() -> None:
    """Of a hundred ends, from the 31st to the 90th: 59 steps of 10 ms there, others elsewhere; what
    did not end counts nothing."""
    gaps_ms = np.concatenate([np.full(31, 500), np.full(59, 10), np.full(10, 70)])
    ends = gaps_ms.cumsum() * 1_000_000
    order = np.random.default_rng(0).permutation(100)
    whole = np.concatenate([ends[order], np.full(30, -1)])
    assert saturation_rate(SimpleNamespace(last_token_ns=whole)) == pytest.approx(100.0)
    assert saturation_rate(SimpleNamespace(last_token_ns=ends[:9])) == 0.0
    assert saturation_rate(SimpleNamespace(last_token_ns=ends[:10])) == pytest.approx(2.0)
    assert saturation_rate(SimpleNamespace(last_token_ns=np.array([0]))) == 0.0


def test_growth_is_of_the_last_third_over_the_second() -> None:
    follows = SimpleNamespace(follows=True, recorded_sessions=None)
    waits = [9.0] * 3 + [2.0, 2.0, 5.0] + [4.0, 4.0, 4.0]
    assert _growth(follows, record(waits), 9) == pytest.approx(12 / 9)
    assert _growth(follows, record(waits), 11) == pytest.approx(12 / 9)
    assert _growth(follows, record(waits), 12) == math.inf, "fewer than 0.8 of them came"
    assert _growth(follows, record([1.0, 1.0]), 2) == math.inf
    for quiet in (
        {"follows": False, "recorded_sessions": None},
        {"follows": True, "recorded_sessions": 1},
    ):
        assert _growth(SimpleNamespace(**quiet), record(waits), 99) == 0.0


def test_requests_that_decode_at_once_by_littles_law() -> None:
    means = {("e2e", "mean"): 900.0, ("ttft", "mean"): 400.0}
    summary = SimpleNamespace(statistic_ms=lambda *name: means[name])
    assert _decoding(summary, 6.0) == pytest.approx(3.0)
    means["e2e", "mean"] = math.nan
    assert _decoding(summary, 6.0) == 0.0


class Counted:
    """An instance whose runs are their numbers of requests."""

    def __init__(self, ranks: int = 1, **changed: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.follows, self.recorded_sessions, self.in_flight = False, None, 100
        self.deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=ranks))
        self.traffic = SimpleNamespace(seed=3, sharing=None)
        self.__dict__.update(changed)

    def held_rate(self, rate: float) -> float:
        return rate

    def requests_of(self, rate: float, length: int, instances: int) -> int:
        return 1_000 * (length + 1) * instances

    def open(self, rate: float, requests: int, seed: int, instances: int = 1) -> list[int]:
        self.calls.append((rate, requests, seed, instances))
        return [requests] * 3

    def saturation_estimate(self) -> float:
        return 10.0

    def steady_estimate(self) -> float:
        return 7.0

    def closed(self, clients: int, requests: int) -> tuple[int, int]:
        return clients, requests


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(runs_module, "middle", lambda requests: requests)
    memory = Runs()
    monkeypatch.setattr(
        memory,
        "summary",
        lambda requests: SimpleNamespace(
            statistic_ms=lambda *name: 9e3 if name[0] == "e2e" else 1e3, of=requests
        ),
    )
    return memory


def test_a_run_is_made_once_with_the_seed_of_the_traffic(runs: Runs) -> None:
    instance = Counted()
    first = runs.open(instance, 2, 5.0, QUICK, seed=4)
    assert (first.requests, first.growth, first.summary.of) == (3, 0.0, [4_000] * 3)
    assert runs.open(instance, 2, 5.0, QUICK, seed=4) is first
    runs.open(instance, 2, 5.0, QUICK)
    assert instance.calls == [(5.0, 4_000, 7, 2), (5.0, 4_000, 3, 2)]


@pytest.mark.parametrize(
    ("ranks", "length", "rate", "sharing", "requests"),
    [
        (2, QUICK, 63.0, None, [4_000, 16_000]),  # 2 * 63 * 8 s are 1,008 at once, over 4000 / 4
        (2, QUICK, 62.0, None, [4_000]),
        (1, QUICK, 63.0, None, [4_000]),
        (2, SHORT, 999.0, None, [2_000]),
        (2, SURE, 999.0, None, [6_000]),
        (2, QUICK, 63.0, object(), [4_000]),
    ],
)
def test_a_run_of_ranks_is_made_longer_where_more_decode_than_it_has_room_for(
    *, ranks: int, length: Any, rate: float, sharing: Any, requests: list[int], runs: Runs
) -> None:
    instance = Counted(ranks, traffic=SimpleNamespace(seed=3, sharing=sharing))
    shown = runs.open(instance, 2, rate, length)
    assert [call[1] for call in instance.calls] == requests
    assert shown.summary.of == [requests[-1]] * 3


@pytest.mark.parametrize(("length", "allowed"), [(SHORT, 1.3), (QUICK, 1.5), (SURE, 1.3)])
def test_growth_counts_over_what_chance_shows(
    length: Any, allowed: float, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "_growth", lambda instance, record, requests: requests / 1e3)
    assert runs.open(Counted(), 1, 1.0, length).growth == pytest.approx((length + 1) / allowed)


@pytest.mark.parametrize(("in_flight", "requests"), [(1, 4_000), (600, 6_000), (9_000, 48_000)])
def test_saturation_is_measured_once_over_ten_batches(
    in_flight: int, requests: int, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "saturation_rate", lambda record: record[0] / 1e3)
    instance = Counted(in_flight=in_flight)
    assert not runs.knows_saturation(instance)
    assert [runs.saturation(instance) for _ in range(2)] == [requests / 1e3] * 2
    assert instance.calls == [(13.0, requests, 3, 1)]
    assert runs.knows_saturation(instance)
    assert runs.saturation(Counted(follows=True)) == 7.0


@pytest.mark.parametrize(("clients", "requests"), [(1, 100), (10, 100), (11, 110)])
def test_a_closed_loop_is_ten_requests_of_each_client(
    clients: int, requests: int, runs: Runs
) -> None:
    assert runs.clients(Counted(), clients).of == (clients, requests)


def test_a_run_is_steady_unless_it_says_otherwise() -> None:
    assert Seen(summary=None, requests=1).growth == 0.0
