"""Two pools under load: what is simulated of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.sizing.loads.small_instance import Small, traffic
from tonnage.sizing.loads import two_pools
from tonnage.sizing.loads.two_pools import TwoPools


class Side(Small):
    """One instance of a pool, which sends 10 bytes of each token."""

    def __init__(self, seconds: float, ranks: int = 1, **changed: Any) -> None:
        """Prompts and tokens of the instance take so long."""
        deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=ranks))
        super().__init__(deployment=deployment, memory=f"memory {seconds}", **changed)
        self.unloaded_ttft_s = lambda: seconds
        self.unloaded_tpot_s = lambda: seconds / 10


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> TwoPools:
    """Three instances of 2 s a prompt, and two of 0.4 s a token that hold 8 requests each."""

    def link(prefill: Any, decode: Any, *, bytes_s: float, overlap: bool) -> Any:
        return SimpleNamespace(
            of=(prefill, decode), bytes_s=bytes_s, overlap=overlap, bytes_of=lambda n: 10 * n
        )

    monkeypatch.setattr(two_pools, "link_between", link)
    one, other = Side(2.0, traffic=traffic(seed=5)), Side(4.0, 2, batch=6)
    return TwoPools(one, other, 3, 2, bytes_s=500.0)


def test_two_pools_as_one_instance_by_hand(pools: TwoPools) -> None:
    """A first token takes a prompt's 2 s, 1,000 bytes over 500 a second and a step of 0.4 s; ten
    tokens take 0.4 s each."""
    one, other = pools.one, pools.other
    assert (pools.prefill, pools.decode, pools.batch, pools.in_flight) == (3, 2, 6, 16)
    assert pools.unloaded_ttft_s() == pytest.approx(2.0 + 2.0 + 0.4)
    assert pools.alone_e2e_s == pytest.approx(4.4 + 4.0)
    assert (pools.deployment, pools.traffic, pools.memory, pools.knobs, pools.spec) == (
        one.deployment,
        one.traffic,
        one.memory,
        one.knobs,
        one.spec,
    )
    assert (pools.computed, pools.shared, pools.standing_for(7), pools.USUAL) == (50, None, 1, 0.75)
    assert pools.link.of == ("memory 2.0", "memory 4.0")
    assert (pools.link.bytes_s, pools.link.overlap) == (500.0, False)
    assert TwoPools(one, other, 3, 2, bytes_s=9.0, overlap=True).link.overlap


@pytest.mark.parametrize(
    ("osl", "count", "apart_s"),
    [([10], 8, 8 * 8.4), ([10, 30], 100, 8 * 8.4 * 3), ([5, 8], 100, 8 * 8.4)],
)
def test_a_single_client_of_two_pools_sends_so_rarely_that_no_request_meets_another(
    osl: list[int], count: int, apart_s: float, pools: TwoPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight times what one takes, or as many times as long as the longest answer is longer than the
    mean; eight where all are equal, else a hundred."""
    calls: list[Any] = []
    lengths = np.resize(osl, count)
    drawn = SimpleNamespace(isl=np.full(count, 100), osl=lengths)
    pools.workload = lambda arrivals, requests: SimpleNamespace(
        trace=lambda seed: calls.append((requests, seed)) or drawn
    )
    if len(osl) > 1:
        pools.one.traffic.pairs = object()
    monkeypatch.setattr(TwoPools, "_run", lambda self, *args: args)
    trace, sides, router = pools.alone()
    assert calls == [(count, 5)]
    assert (sides, router) == ((1, 1), "least-outstanding")
    assert np.diff(trace.due_ps) == pytest.approx(apart_s * 1e12)
    assert (trace.due_ps[0], len(trace), trace.concurrency, trace.turnaround_ps) == (0, count, 0, 0)
    assert (trace.isl is drawn.isl, trace.osl is drawn.osl) == (True, True)


@pytest.mark.parametrize("compiled", [True, False])
def test_every_rank_of_every_instance_is_an_engine_of_its_pool(
    compiled: bool, pools: TwoPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel, or where that cannot by the reference."""
    checked: list[Any] = []
    monkeypatch.setattr(two_pools, "check_pools", lambda *args: checked.append(args))
    monkeypatch.setattr(
        two_pools, "run_pools", lambda *args, **how: (*args, how) if compiled else None
    )
    monkeypatch.setattr(two_pools, "simulate_pools", lambda *args, **how: ("plain", *args, how))
    monkeypatch.setattr(
        two_pools,
        "pool_engines",
        lambda spec, count, *, inside: [SimpleNamespace(machine=("decoder", inside))] * count,
    )
    pools.one.__dict__["engine"] = "prefiller"
    record = pools.together("trace", 1, "random")
    assert checked == [(range(3), range(2), pools.link, "random")]
    if compiled:
        engines = (["prefiller"] * 3, [("decoder", True)] * 4)
        assert record == ("trace", *engines, pools.link, "random", {"seed": 5})
        assert pools.serve("trace")[-2] == "least-outstanding"
        return
    name, trace, prefill, decode, link, router, how = record
    assert (name, trace, link, router, how) == ("plain", "trace", pools.link, "random", {"seed": 5})
    assert [engine.machine[1] for engine in prefill] == [False] * 3
    assert [engine.machine[1] for engine in decode] == [True] * 4
