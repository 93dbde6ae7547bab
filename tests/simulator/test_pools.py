"""Two pools: the compiled engines and the reference give the same record, whatever the schedulers;
and what a transfer costs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.simulator.reference.examples import TICK, VLLM, closed_trace, ms
from tests.simulator.two_pools import COLUMNS
from tests.strategies import MS, examples, runs
from tonnage.api import simulate
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED, REJECTED, Requests
from tonnage.simulator import reference
from tonnage.simulator.engine import Engine
from tonnage.simulator.pools import COUNTING, KvLink, _Router, simulate_pools
from tonnage.simulator.request import RECEIVING, Request
from tonnage.simulator.router import draw
from tonnage.spec.workload import Trace

LINK = KvLink(bytes_per_token=1000, bytes_s=1e6, layers=4)
"""A millisecond for each token of the prompt."""


def trace_of(*requests: tuple[int, int, int]) -> Trace:
    due, isl, osl = np.array(requests, np.int64).T
    return Trace(due_ps=due * MS, isl=isl, osl=osl, concurrency=0, turnaround_ps=0)


def pools(
    kind: Any,
    trace: Trace,
    link: KvLink = LINK,
    blocks: tuple[int, int] = (1000, 1000),
    numbers: tuple[int, int] = (1, 1),
) -> Requests:
    prefill, decode = (
        [kind(TICK, VLLM, size) for _ in range(count)]
        for size, count in zip(blocks, numbers, strict=True)
    )
    return simulate_pools(trace, prefill, decode, link)


@settings(examples(0.25), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_kernel_and_reference_agree_on_pools_with_transfers(data):
    first, second = (data.draw(runs(RECEIVING)) for _ in range(2))
    second = replace(second, knobs=replace(second.knobs, chunked_prefill=True))
    rate = data.draw(st.sampled_from([1e3, 3.3e4, 1e9]))
    link = KvLink(
        bytes_per_token=100,
        bytes_s=rate,
        layers=3,
        window_bytes_per_token=7,
        window_tokens=4,
        overlap=data.draw(st.booleans()),
    )
    numbers = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 3)))
    found = []
    for kinds in (
        (reference.Engine,) * 2,
        (Engine,) * 2,
        (Engine, partial(Engine, ends_only=True)),
    ):
        prefill, decode = (
            [
                kind(
                    r.step,
                    r.knobs,
                    r.kv_blocks,
                    windows=r.windows,
                    max_context=r.max_context,
                    seed=i,
                )
                for i in range(count)
            ]
            for kind, r, count in zip(kinds, (first, second), numbers, strict=True)
        )
        found.append(simulate_pools(first.trace, prefill, decode, link))
        for engine in (*prefill, *decode):
            assert engine.kv_blocks_used == 0
    for other in found[1:]:
        for name in COLUMNS:
            assert (getattr(found[0], name) == getattr(other, name)).all(), name
    record = found[0]
    assert len(record) == len(first.trace)
    assert set(record.status.tolist()) <= {COMPLETED, REJECTED}
    done = record.status == COMPLETED
    assert (record.osl[done] == first.trace.osl[: len(record)][done]).all()
    assert int(record.gaps.sum()) == int((record.osl[done] - 1).sum())


@pytest.mark.parametrize("kind", [Engine, reference.Engine])
def test_a_request_waits_for_its_cache(kind):
    """One tick of prefill, 10 ms of transfer for 10 tokens, then a tick for each further token; the
    first comes with the second."""
    record = pools(kind, trace_of((0, 10, 4), (0, 10, 1)))
    assert record.first_token_ns.tolist() == [12_000_000, 1_000_000]
    assert record.last_token_ns.tolist() == [14_000_000, 1_000_000]
    assert record.gaps[:, 0].tolist()[:2] == [1, 0]


def test_with_overlap_only_what_is_left_after_the_prompt_is_waited_for():
    """Four layers: three quarters of the tick of the prompt send 0.75 ms of the 10; a slow link
    then has all but that to send."""
    record = pools(Engine, trace_of((0, 10, 4)), replace(LINK, overlap=True))
    assert record.last_token_ns.tolist() == [14_000_000 - 750_000]
    fast = replace(LINK, overlap=True, bytes_s=1e7)
    assert pools(Engine, trace_of((0, 10, 4)), fast).last_token_ns.tolist() == [4_000_000 + 250_000]


def test_one_cache_is_sent_after_another():
    record = pools(Engine, trace_of((0, 10, 2), (0, 10, 2)))
    assert sorted(record.last_token_ns.tolist()) == [12_000_000, 22_000_000]


def test_bytes_are_counted_by_kind_of_layer():
    link = KvLink(
        bytes_per_token=10,
        bytes_s=1.0,
        layers=1,
        window_bytes_per_token=3,
        window_tokens=100,
        state_bytes=50,
    )
    assert link.bytes_of(40) == 40 * 13 + 50
    assert link.bytes_of(1000) == 10_000 + 300 + 50


def test_the_source_keeps_its_blocks_until_the_transfer_has_ended():
    """The cache of the prefill engine holds one prompt: the second one waits for the first one's
    transfer of 16 ms."""
    link = replace(LINK, block_tokens=VLLM.tokens_per_block)
    record = pools(
        Engine,
        trace_of((0, 16, 2), (0, 16, 2)),
        link,
        blocks=(-(-17 // VLLM.tokens_per_block), 100),
    )
    assert (
        record.first_token_ns.tolist() == record.last_token_ns.tolist() == [18_000_000, 35_000_000]
    )


@pytest.mark.parametrize("kind", [Engine, reference.Engine])
def test_whoever_waits_for_a_slot_of_the_decode_pool_waits_for_the_first_token(kind):
    """One slot: the second answer of 20 tokens begins when the first has ended."""
    prefill, decode = kind(TICK, VLLM, 1000), kind(TICK, replace(VLLM, max_batch_size=1), 1000)
    record = simulate_pools(
        trace_of((0, 10, 20), (0, 10, 20)), [prefill], [decode], replace(LINK, bytes_s=1e15)
    )
    assert record.first_token_ns.tolist() == [2_000_000, 21_000_000]


def test_a_preempted_request_computes_its_prompt_where_it_decodes():
    size = VLLM.tokens_per_block
    record = pools(
        Engine,
        trace_of((0, 2 * size, 3 * size), (0, 2 * size, 3 * size)),
        replace(LINK, bytes_s=1e12),
        blocks=(1000, 6),
    )
    assert (record.status == COMPLETED).all()
    assert record.preemptions.sum() > 0


def test_a_pool_needs_engines_and_a_link_and_schedulers_that_receive():
    with pytest.raises(InputError, match="one engine"):
        simulate_pools(trace_of((0, 1, 1)), [], [], LINK)
    with pytest.raises(InputError, match="bandwidth"):
        pools(Engine, trace_of((0, 1, 1)), replace(LINK, bytes_s=0.0))
    for kind in (Engine, reference.Engine):
        with pytest.raises(InputError, match="does not take"):
            kind(TICK, replace(VLLM, scheduler="sglang"), 10).submit(
                Request(id=0, isl=3, osl=2, at=0, received=True)
            )


ASKED = {"model": "llama-3.1-8b", "isl": 2000, "osl": 60, "request_rate": 12, "requests": 120}


def test_a_slow_link_is_waited_for_and_layer_by_layer_less():
    """0.26 GB of cache take 262 ms at 1 GB/s; what is sent while the prompt is computed is not
    waited for."""
    fast, slow, overlapped = (
        simulate(
            **ASKED | {"request_rate": 1, "requests": 20},
            disaggregated="1:1",
            kv_link=link,
            kv_overlap=overlap,
        ).summary
        for link, overlap in (("1TB/s", False), ("1GB/s", False), ("1GB/s", True))
    )
    assert slow.e2e_ms.p50 - fast.e2e_ms.p50 == pytest.approx(262, rel=0.1)
    assert fast.e2e_ms.p50 < overlapped.e2e_ms.p50 < slow.e2e_ms.p50 - 20
    assert slow.ttft_ms.p50 - fast.ttft_ms.p50 == pytest.approx(262, rel=0.1)
    assert slow.tpot_ms.p50 == pytest.approx(fast.tpot_ms.p50, rel=0.02)


def test_the_command_says_what_ran(capsys):
    flags = [
        "--model",
        "llama-3.1-8b",
        "--isl",
        "500",
        "--osl",
        "20",
        "--request-rate",
        "5",
        "--requests",
        "30",
    ]
    assert run(["simulate", *flags, "--disaggregated", "1:2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["router"] == "1:2 disaggregated"
    assert run(["simulate", *flags, "--kv-link", "50GB/s"]) == 2
    assert "--kv-link" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "prompt_bytes", "takes_ms"),
    [
        ({}, 1000, 10),
        ({"latency_s": 0.003}, 1000, 13),
        ({"window_bytes_per_token": 5, "window_tokens": 40}, 1200, 12),
        ({"window_bytes_per_token": 5, "window_tokens": 400}, 1500, 15),
        ({"state_bytes": 300}, 1300, 13),
        # of four layers three are sent while the prompt is computed, in 8 or in 20 ms
        ({"overlap": True, "computed": 8}, 1000, 4),
        ({"overlap": True, "computed": 20}, 1000, 2.5),
        ({"overlap": True, "computed": 8, "latency_s": 0.003}, 1000, 7),
    ],
)
def test_the_way_of_a_cache_of_a_hundred_tokens_by_hand(changed, prompt_bytes, takes_ms):
    computed = changed.get("computed", 8)
    values = {name: value for name, value in changed.items() if name != "computed"}
    link = KvLink(bytes_per_token=10, bytes_s=100_000.0, layers=4, **values)
    assert link.bytes_of(100) == prompt_bytes
    assert link.takes_ps(100, computed * MS) == takes_ms * MS
    assert link.takes_ps(np.array([100, 100]), computed * MS).tolist() == [takes_ms * MS] * 2
    assert (link.latency_s, link.overlap, link.block_tokens) == (
        changed.get("latency_s", 0.0),
        "overlap" in changed,
        16,
    )


def test_two_clients_of_a_closed_loop_by_hand() -> None:
    """The program is free 3 ms after each request that it sends: at 3 and 6 ms, then after each
    answer. A tick of prefill, 10 ms on the link one after another, and a tick in which the first
    token comes with the second one."""
    trace = closed_trace(2, 3, (10, 2), (10, 2), (10, 2), (10, 2))
    record = pools(reference.Engine, trace)
    ends = [15, 25, 35, 45]
    assert ms(record.due_ns) == ms(record.sent_ns) == ms(record.admitted_ns) == [3, 6, 18, 28]
    assert record.prefilled_ns is not None
    assert ms(record.prefilled_ns) == [4, 7, 19, 29]
    assert ms(record.first_token_ns) == ms(record.last_token_ns) == ends
    assert (record.isl.tolist(), record.osl.tolist()) == ([10] * 4, [2] * 4)
    for name in ("status", "instance", "cached_tokens", "preemptions"):
        assert getattr(record, name).tolist() == [0] * 4, name
    assert record.gaps.sum() == 4
    crowd = pools(reference.Engine, closed_trace(9, 3, (10, 1), (10, 1)))
    assert ms(crowd.due_ns) == [3, 6]


def test_each_pool_takes_the_one_with_the_fewest_requests_by_hand() -> None:
    """The first goes to instance 0 of both pools, the second to instance 1, and among equals they
    take turns; the one of a single token ends in the prefill pool, and that of 50 tokens nobody
    could ever hold."""
    trace = trace_of((0, 10, 30), (0, 10, 5), (1, 10, 1), (1, 50, 5), (40, 10, 2))
    record = pools(reference.Engine, trace, blocks=(10, 100), numbers=(2, 2))
    assert record.status.tolist() == [COMPLETED] * 3 + [REJECTED, COMPLETED]
    assert record.instance.tolist() == [0, 1, 0, -1, 0]
    assert record.osl.tolist() == [30, 5, 1, 0, 2]
    assert ms(record.admitted_ns)[:3] == [0, 0, 1]
    assert (record.prefilled_ns // 1_000_000).tolist() == [1, 1, 2, -1, 41]
    assert (record.first_token_ns // 1_000_000).tolist() == [12, 12, 2, -1, 52]
    assert (record.last_token_ns // 1_000_000).tolist() == [40, 15, 2, -1, 52]


def test_a_pool_on_one_side_alone_and_routers_that_see_more_are_refused() -> None:
    engines = [reference.Engine(TICK, VLLM, 100)]
    for prefill, decode in (([], engines), (engines, [])):
        with pytest.raises(InputError, match="one engine"):
            simulate_pools(trace_of((0, 1, 1)), prefill, decode, LINK)
    with pytest.raises(InputError, match="bandwidth"):
        simulate_pools(trace_of((0, 1, 1)), engines, engines, replace(LINK, bytes_s=-1.0))
    assert COUNTING == (
        "least-outstanding",
        "round-robin",
        "random",
        "power-of-two",
        "weighted",
    )
    for router in ("prefix-aware", "session"):
        with pytest.raises(InputError, match=r"router: two pools .* least-outstanding, round"):
            simulate_pools(trace_of((0, 1, 1)), engines, engines, LINK, router)


def test_a_random_router_draws_by_the_number_of_the_request() -> None:
    router = _Router("random", 5, 7)
    places = [router.next(10) for _ in range(40)]
    assert places == [draw(7, number, 0) % 5 for number in range(40)]
    assert router.requests == np.bincount(places, minlength=5).tolist()
