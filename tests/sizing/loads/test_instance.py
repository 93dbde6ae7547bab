"""One deployment under load: closed forms, and what no run exceeds."""

from __future__ import annotations

import math
from dataclasses import dataclass, make_dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.in_turn import in_turn
from tests.questions import contender, contenders, question
from tests.sizing.loads.instances import traffic as traffic_of
from tests.sizing.loads.load_scan_cases import Curve, limit, rate_of
from tests.sizing.loads.small_instance import Small, round_times, traffic
from tonnage.errors import DoesNotFit
from tonnage.sizing.loads import instance as instances
from tonnage.sizing.loads.instance import QUICK, SURE, Instance, burst_factor, middle
from tonnage.sizing.loads.runs import Runs, saturation_rate
from tonnage.sizing.loads.shared_load import Answers
from tonnage.sizing.loads.trial import MARGIN, _token_seconds, rate_bound, token_limit
from tonnage.sizing.loads.two_pools import (
    TwoPools,
    decodes_at_most,
    prefills_at_most,
    room_for,
    step_of,
)
from tonnage.spec.deployment import Limit
from tonnage.spec.kv_tiers import OFF
from tonnage.spec.lengths import Lengths
from tonnage.spec.workload import ClosedLoop, OpenLoop


@pytest.mark.parametrize(
    ("lengths", "engine"),
    in_turn(
        [(1000, 100), (200, 400), ("lognormal:2000,1500", "lognormal:200,200")],
        ["tensorrt-llm-0.15", "vllm"],
    ),
)
def test_no_deployment_completes_more_than_its_closed_form_allows(
    engine: str, lengths: tuple[object, object]
) -> None:
    for one in contenders(
        question(
            isl=lengths[0], osl=lengths[1], engine=engine, tp="1,4", gpu="h100,l40s", ttft=None
        )
    ):
        # with a front end, which may limit
        assert one.runs.saturation(one.instance) < rate_bound(one.instance, ())
        bare = Instance(one.instance.deployment, one.instance.traffic)
        bare.spec = replace(bare.spec, step=bare.step.in_process)
        assert 0.85 < Runs().saturation(bare) / bare.saturation_estimate() < MARGIN


def test_a_busy_engine_completes_at_a_constant_rate() -> None:
    one = contender(tp="1", ttft=None).instance
    runs = [
        saturation_rate(one.open(1.3 * one.saturation_estimate(), requests, 0))
        for requests in (12_000, 24_000)
    ]
    assert runs[0] == pytest.approx(runs[1], rel=0.03)
    assert one.requests_of(1.0, SURE) >= 16_000


@pytest.mark.parametrize("target", [0.3, 2.0, 77.7, 130.0, 640.0, 999.0])
@pytest.mark.parametrize("care", [QUICK, SURE])
@pytest.mark.parametrize("begin", [1000.0, 80.0, 1.0])
def test_a_rising_latency_is_read_between_two_loads_wherever_the_search_begins(
    target: float, care: Any, begin: float
) -> None:
    """A power of the load is a straight line in logarithms, so that what is read is exact."""
    found = Curve(lambda rate, length: rate, begin=begin).highest(limit(target), care=care)
    assert rate_of(found) == pytest.approx(target, rel=1e-6)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Small:
    round_times(monkeypatch)
    return Small()


def test_closed_forms_of_an_idle_instance_by_hand(small: Small) -> None:
    """A prompt enters in 10 ms; 50 tokens of it take 50 ms, its sequence 10 ms, and 50 * 150 pairs
    of tokens 7.5 ms. A step of one request with 105 tokens takes 20.105 ms.
    """
    assert small.unloaded_ttft_s() == pytest.approx(0.0775)
    assert small.unloaded_tpot_s() == pytest.approx(0.020105)
    small.step.tokens_per_step = 2.0
    assert small.unloaded_tpot_s() == pytest.approx(0.0100525)


def test_closed_forms_of_a_full_batch_by_hand(small: Small) -> None:
    """Four requests take 4 * 60 / 10 tokens a step: 24 ms, 40 ms of sequences, 0.42 ms of contexts
    and 0.4 prompts of 3.75 ms: 65.92 ms a token."""
    assert small.token_seconds(4) == pytest.approx(0.06592)
    assert small.token_seconds(4, 100) == pytest.approx(0.044 + 0.04 + 0.00042 + 0.4 * 0.005)
    assert small.saturation_estimate() == pytest.approx(2 * 4 / 0.6592)
    assert small.saturation_estimate(prefix_found=False) == pytest.approx(2 * 4 / 0.8642)
    assert small.steady_estimate() == small.saturation_estimate(), "prompts share nothing"
    # the cheapest token of a prompt is in the fullest step: 64 ms and 10 ms for 64
    assert small.least_token_s == pytest.approx(0.074 / 64)
    assert small.budget_estimate() == pytest.approx(2 / (60 * 0.074 / 64 + 0.00375))
    assert (
        Small(knobs=SimpleNamespace(max_num_tokens=64, scheduler="static")).budget_estimate()
        == math.inf
    )


def test_the_cheapest_token_of_a_prompt_may_be_in_a_step_that_is_not_full(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = {64: 64.0, 32: 8.0, 16: 3.2}
    monkeypatch.setattr(
        "tonnage.sizing.loads.instance.batch_seconds",
        lambda c, tokens, sequences: cost[tokens] * sequences,
    )
    assert small.least_token_s == 0.2
    again = Small()
    cost[32] = 1.6
    assert again.least_token_s == 0.05
    tiny = Small(knobs=SimpleNamespace(max_num_tokens=1))
    cost[1] = 7.0
    assert tiny.least_token_s == 7.0


def test_fewer_steps_with_guessed_tokens_by_hand(small: Small) -> None:
    """With two tokens a step five steps answer; a step computes 4 * 50 / 5 = 40 tokens in 40 ms, for
    4 sequences in 80 ms with 420 tokens of context, less 3 ms of the host."""
    small.step.drafting, small.step.tokens_per_step = object(), 2.0
    step = 0.04 + 0.08 + 0.00042 - 0.003
    assert small.saturation_estimate() == pytest.approx(2 / (step * 5 / 4 + 0.00375))
    assert small.budget_estimate() == math.inf
    assert small.in_flight_at(1.0) == 1.5, "by the time of a lone answer alone"


def test_requests_in_flight_by_hand(small: Small) -> None:
    """Three times those of an empty engine, or half as many again as batches of that rate hold."""
    rates, held = small._filled
    assert held == [2.0, 4.0, 8.0]
    assert rates == pytest.approx([2 * n / (10 * small.token_seconds(n)) for n in (1, 2, 4)])
    assert Small(batch=5)._filled[1] == [2.0, 4.0, 8.0, 10.0]
    assert Small(batch=1)._filled[1] == [2.0]
    small.__dict__["_filled"] = ([1.0, 2.0, 4.0], [2.0, 4.0, 8.0])
    small.alone_e2e_s = 0.1
    assert small.in_flight_at(2.0) == 6.0
    assert small.in_flight_at(1.5) == 4.5
    small.in_flight = 99
    assert small.in_flight_at(4.0) == pytest.approx(1.5 * 7.2), "no fuller than at 0.9 of the last"
    small.alone_e2e_s = 2.0
    assert small.in_flight_at(4.0) == 24.0
    small.in_flight = 8
    assert small.in_flight_at(4.0) == 8


@pytest.mark.parametrize(
    ("rate", "length", "changed", "requests"),
    [
        (10.0, 0, {}, 2_000),
        (10.0, 1, {}, 4_000),
        (10.0, 2, {}, 16_000),
        (10.0, 2, {"process": "gamma", "cv": 2.0}, 64_000),  # 2.5 times, and a power of two
        (10.0, 0, {"process": "gamma", "cv": 1.5}, 4_000),
        (1e-6, 0, {}, 100),
        (1e-4, 0, {}, 300),
        (10.0, 1, {"sharing": SimpleNamespace(recorded=None, follows=False)}, 2_000),
        (10.0, 0, {"sharing": SimpleNamespace(recorded=None, follows=False)}, 1_000),
        (10.0, 2, {"sharing": SimpleNamespace(recorded=None, follows=True)}, 16_000),
    ],
)
def test_requests_of_a_run_are_few_numbers(
    rate: float, length: Any, changed: dict[str, Any], requests: int
) -> None:
    assert Small(traffic=traffic(**changed)).requests_of(rate, length) == requests


def test_requests_of_a_run_grow_with_what_is_in_flight() -> None:
    """3 * 1000 * 0.5 in flight on each of four instances, times 2, 4 or 8, and a power of two."""
    large = Small(in_flight=4_000)
    assert [large.requests_of(1_000.0, length, 4) for length in (0, 1, 2)] == [
        16_000,
        32_000,
        64_000,
    ]
    # exactly a power of two times the fewest, and one request in flight more
    exactly, more = Small(in_flight=1_000), Small(in_flight=4_001)
    assert [exactly.requests_of(1e4, length, 4) for length in (0, 1, 2)] == [8_000, 16_000, 32_000]
    assert [more.requests_of(1e4, length) for length in (0, 1, 2)] == [16_000, 32_000, 64_000]
    assert Small(in_flight=100).requests_of(1_000.0, 0, 4) == 2_000
    assert Small(in_flight=500).requests_of(1_000.0, 0, 4) == 4_000


@pytest.mark.parametrize(
    ("instances", "ranks", "changed", "together"),
    [
        (1, 1, {}, 1),
        (8, 1, {}, 8),
        (9, 1, {}, 8),
        (15, 1, {}, 14),
        (17, 1, {}, 16),
        (300, 1, {}, 16),
        (300, 1, {"process": "gamma"}, 64),
        (63, 1, {"process": "gamma"}, 56),
        (300, 8, {}, 8),
        (300, 8, {"process": "gamma"}, 8),
        (7, 32, {}, 2),
        (2, 32, {}, 2),
        (300, 128, {}, 1),
        (300, 1, {"load": "closed"}, 1),
        (300, 1, {"router": "random"}, 1),
        (300, 1, {"router": "random", "process": "constant"}, 16),
        (300, 1, {"sharing": SimpleNamespace(balanced=lambda router: False)}, 1),
        (300, 1, {"sharing": SimpleNamespace(balanced=lambda router: True)}, 16),
    ],
)
def test_instances_that_stand_for_a_fleet(
    instances: int, ranks: int, changed: dict[str, Any], together: int
) -> None:
    deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=ranks))
    small = Small(deployment=deployment, traffic=traffic(**changed))
    assert small.standing_for(instances) == together


def test_bursty_arrivals_take_longer_runs_up_to_four_times() -> None:
    cases = (("poisson", 3.0), ("constant", 3.0), ("gamma", 0.5), ("gamma", 2.0), ("gamma", 3.0))
    assert [burst_factor(process, cv) for process, cv in cases] == [1.0, 1.0, 1.0, 2.5, 4.0]


def test_statistics_are_of_the_requests_from_a_fifth_to_97_of_a_hundred() -> None:
    class Record(list[int]):
        def some(self, rows: slice) -> list[int]:
            return self[rows]

    assert middle(Record(range(200))) == list(range(40, 194))


def test_a_cache_that_keeps_all_or_nothing_of_conversations(small: Small) -> None:
    """The closed form between them is a rate at which as much is computed as it completes."""
    low, high = small.saturation_estimate(prefix_found=False), small.saturation_estimate()
    for share, rate in ((1.0, high), (0.0, low)):
        conversations = SimpleNamespace(follows=True, kept=lambda seconds, share=share: share)
        keeping = Small(
            traffic=traffic(sharing=conversations), memory=SimpleNamespace(tokens=1_000)
        )
        assert keeping.steady_estimate() == pytest.approx(rate, rel=0.011)
    pauses: list[float] = []

    def half(seconds: float) -> float:
        pauses.append(seconds)
        return 0.5

    keeping = Small(
        traffic=traffic(sharing=SimpleNamespace(follows=True, kept=half)),
        memory=SimpleNamespace(tokens=1_000),
    )
    assert keeping.steady_estimate() == pytest.approx(keeping._busy(75), rel=0.011)
    # at the first rate that is tried the requests in flight hold 105 tokens each, and every request
    # computes 60
    rate = math.sqrt(low * high)
    assert pauses[0] == pytest.approx(1.5 * (1_000 - rate * 0.5 * 105) / (rate * 60))
    keeping.memory.tokens = 10
    pauses.clear()
    keeping.steady_estimate()
    assert pauses[0] == 0.0
    keeping.knobs.prefix_caching = False
    assert keeping.steady_estimate() == high


# what closed forms say that an instance cannot exceed


def test_the_load_that_a_limit_on_tokens_leaves_by_hand(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes 50 ms whatever is in it, and 11.105 ms for each request; prompts of 50 tokens in
    steps of their own, one for ten tokens, take 50 * 124 / 64 + 3.75 ms."""
    for module in ("trial", "instance"):
        monkeypatch.setattr(
            f"tonnage.sizing.loads.{module}.batch_seconds",
            lambda c, tokens, sequences: 0.05 + tokens / 1e3 + sequences / 1e2,
        )
    apart = [0.05 + n * (0.011105 + (50 * 0.124 / 64 + 0.00375) / 10) for n in range(5)]
    together = [0.05 + n * (0.016 + 0.000105 + 0.000375) for n in range(5)]
    for n in (1, 2, 3, 4):
        assert _token_seconds(small, n) == pytest.approx(together[n])
    whole = MARGIN * 8 / (10 * together[4])
    assert rate_bound(small, ()) == pytest.approx(whole)
    tpot = Limit(metric="tpot", statistic="mean", seconds=together[2] * 1.01)
    assert rate_bound(small, (tpot,)) == pytest.approx(MARGIN * 2 * 2 / (10 * together[2]))
    tight = replace(tpot, seconds=together[1] / 2)
    assert rate_bound(small, (tight,)) == pytest.approx(MARGIN * 2 / (10 * together[1] / 2))
    small.token_seconds = lambda batch: 9.0
    for n in (1, 2, 3, 4):
        assert _token_seconds(small, n) == pytest.approx(apart[n])
    small.steady_estimate = lambda: 99.0
    small.budget_estimate = lambda: 98.0
    assert rate_bound(small, ()) == pytest.approx(98.0 * MARGIN)
    loose = replace(tpot, seconds=apart[4])
    assert rate_bound(small, (loose,)) == pytest.approx(MARGIN * 8 / (10 * apart[4]))


def test_the_longest_time_per_token_that_limits_leave_by_hand(small: Small) -> None:
    """An answer of a second leaves its first token 77.5 ms, and each of nine more 102.5 ms."""
    tpot = Limit(metric="tpot", statistic="p95", seconds=0.2)
    e2e = Limit(metric="e2e", statistic="mean", seconds=1.0)
    assert token_limit(small, ()) == math.inf
    assert token_limit(small, (tpot,)) == 0.2
    assert token_limit(small, (tpot, e2e)) == pytest.approx(0.1025)
    assert token_limit(small, (replace(e2e, seconds=0.01),)) == 1e-9
    for skewed in (replace(tpot, statistic="p50"), replace(e2e, statistic="p50")):
        assert token_limit(small, (skewed,)) == math.inf
    assert (
        token_limit(small, (replace(tpot, metric="itl"), replace(tpot, metric="ttft"))) == math.inf
    )
    small.traffic.osl = Lengths(mean=1)
    assert token_limit(small, (e2e,)) == pytest.approx(0.9225)


@pytest.mark.parametrize(
    ("share", "token_s"), [(0.9, 0.4), (0.95, 0.4), (0.89, math.inf), (None, math.inf)]
)
def test_joint_attainment_limits_tokens_from_nine_tenths_on(
    share: float | None, token_s: float, small: Small
) -> None:
    joint = SimpleNamespace(
        metric="attain",
        statistic="",
        seconds=2.0,
        share=share,
        parts=(("tpot", 0.2), ("ttft", 0.1)),
    )
    parts = {"tpot": 0.4, "ttft": 0.2}

    def changed(limit: Any, *, metric: str, seconds: float) -> Any:
        assert seconds == parts[metric]
        return SimpleNamespace(metric=metric, statistic="", seconds=seconds, share=None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tonnage.sizing.loads.trial.replace", changed)
        assert token_limit(small, (joint,)) == token_s


def test_sessions_and_conversations_have_margins_of_their_own(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.steady_estimate = lambda: 10.0
    small.budget_estimate = lambda: 100.0
    assert rate_bound(small, ()) == pytest.approx(11.2)
    small.traffic.sharing = SimpleNamespace(follows=True, recorded=None)
    assert rate_bound(small, ()) == pytest.approx(9.8)
    small.traffic.sharing = SimpleNamespace(follows=True, recorded=object())
    assert rate_bound(small, ()) == pytest.approx(14.7)
    small.budget_estimate = lambda: 5.0
    assert rate_bound(small, ()) == pytest.approx(5.6)
    limit = (Limit(metric="tpot", statistic="mean", seconds=1.0),)
    small.token_seconds = lambda batch: 4.0
    monkeypatch.setattr("tonnage.sizing.loads.trial.batch_seconds", lambda *_: 4.0)
    assert rate_bound(small, limit) == pytest.approx(MARGIN * 2 / 10), "one request, at the limit"
    small.knobs.scheduler = "static"
    assert rate_bound(small, limit) == pytest.approx(5.6)


# a pool of prefill instances and one of decode instances


def test_closed_forms_of_two_pools_by_hand(small: Small) -> None:
    """A prefill instance computes 2 prompts in 100 * 74 / 64 + 5 ms; a decode instance holds 4
    requests, whose step takes 44 ms and 0.42 ms."""
    link = SimpleNamespace(bytes_of=lambda tokens: 10 * tokens, bytes_s=50_000.0)
    prefill = 2 / (0.1 * 74 / 64 + 0.005)
    assert prefills_at_most(small, link) == pytest.approx(prefill)
    link.bytes_s = 2_000.0
    assert prefills_at_most(small, link) == pytest.approx(2 / 0.5), "as many as the link sends"
    step = [n * (0.011 + 0.000105) for n in range(6)]
    assert decodes_at_most(small, math.inf, 4) == pytest.approx(2 * 4 / (9 * step[4]))
    assert decodes_at_most(small, step[3] * 1.01, 4) == pytest.approx(2 * 3 / (9 * step[3]))
    assert decodes_at_most(small, step[1] / 2, 4) == pytest.approx(2 / (9 * step[1] / 2))
    assert [step_of(0.09, osl) for osl in (11, 3, 2, 1)] == pytest.approx(
        [0.1, 0.18, math.inf, math.inf]
    )
    small.memory = SimpleNamespace(blocks=100, request_blocks=lambda tokens: tokens // 5)
    assert room_for(small) == 4, "105 tokens take 21 blocks of a hundred; four slots"
    small.knobs.max_batch_size = 3
    assert room_for(small) == 3
    small.memory.blocks = 10
    assert room_for(small) == 1


def test_two_pools_complete_what_the_busier_one_does(small: Small) -> None:
    link = SimpleNamespace(bytes_of=lambda tokens: 10 * tokens, bytes_s=50_000.0)
    pools = TwoPools.__new__(TwoPools)
    decoding = Small(memory=SimpleNamespace(blocks=100, request_blocks=lambda tokens: tokens // 5))
    pools.one, pools.other, pools.prefill, pools.decode = small, decoding, 3, 2
    pools.link, pools.traffic, pools.in_flight, pools.alone_e2e_s = link, small.traffic, 16, 0.5
    prompts, decodes = prefills_at_most(small, link), 8 / (9 * 0.04442)
    assert pools.unloaded_ttft_s() == pytest.approx(0.0775 + 0.02 + 0.020105)
    assert pools.saturation_estimate() == pytest.approx(min(3 * prompts, 2 * decodes))
    assert pools.at_most(math.inf) == pytest.approx((prompts, decodes))
    assert pools.most(math.inf) == pytest.approx(2 * decodes)
    assert rate_bound(pools, ()) == pytest.approx(MARGIN * 2 * decodes)
    pools.prefill = 0.1
    assert pools.most(math.inf) == pools.saturation_estimate() == pytest.approx(0.1 * prompts)
    assert pools.standing_for(7) == 1
    small.in_flight_at = decoding.in_flight_at = lambda rate: rate
    assert [pools.in_flight_at(rate) for rate in (2.0, 100.0)] == [3.0, 16]
    pools.alone_e2e_s = 0.1
    assert pools.in_flight_at(2.0) == 2.0


@pytest.mark.parametrize(
    ("computed", "common", "caches", "tokens"),
    [
        (30.0, 20.9, True, (30.0, 20)),
        (0.2, 0.0, True, (1.0, 0)),
        (30.0, 20.9, False, (100, 0)),
    ],
)
def test_tokens_of_a_prompt_that_are_computed_at_best(
    computed: float, common: float, caches: bool, tokens: tuple[float, int]
) -> None:
    best = SimpleNamespace(computed=computed, common=common)
    small = Small(traffic=traffic(sharing=SimpleNamespace(best=lambda osl: best)))
    assert small._computed(caches) == tokens
    assert Small()._computed(True) == (100, 0)


def test_what_comes_to_an_instance_where_prompts_share_something() -> None:
    """Answers of 1.5 times the time of a lone one; recorded sessions come as they were."""
    assert Small()._shared() is None
    assert Small(traffic=traffic(sharing=SimpleNamespace(recorded=object())))._shared() is None
    sharing = SimpleNamespace(recorded=None, shorter=lambda *blocks: ("shorter", *blocks))
    deployment = SimpleNamespace(knobs=SimpleNamespace(tokens_per_block=16))
    small = Small(traffic=traffic(sharing=sharing), deployment=deployment)
    small.knobs.tokens_per_block = 8
    shared = small._shared()
    assert shared.sharing == ("shorter", 16, 8)
    assert (shared.answer_s, shared.caches, shared.router) == (0.75, True, "least-outstanding")
    assert (shared.process, shared.cv, shared.osl) == ("poisson", 1.0, small.traffic.osl)
    assert not Small().follows
    assert Small(traffic=traffic(sharing=SimpleNamespace(follows=True))).follows
    assert Small().equal
    assert not Small(traffic=traffic(pairs=object())).equal
    for name in ("isl", "osl"):
        drawn = SimpleNamespace(kind="normal")
        assert not Small(traffic=traffic(**{name: drawn})).equal


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({}, None),
        ({"max_context": 110}, None),
        ({"max_context": 109}, "one request of 110 tokens exceeds the context of m, 109 tokens"),
        ({"blocks": 11}, None),
        ({"blocks": 10}, "one request of 110 tokens does not fit the KV cache of 160 tokens"),
        ({"max_num_tokens": 64}, None),
        (
            {"max_num_tokens": 109, "chunked_prefill": False},
            "110 tokens exceed the token budget of 109 without chunked prefill",
        ),
        ({"max_num_tokens": 110, "chunked_prefill": False}, None),
        ({"max_num_tokens": 100, "chunked_prefill": False, "scheduler": "tensorrt-llm"}, None),
        (
            {"max_num_tokens": 99, "chunked_prefill": False, "scheduler": "tensorrt-llm"},
            "100 tokens exceed the token budget of 99 without chunked prefill",
        ),
        ({"max_num_tokens": 9, "chunked_prefill": False, "scheduler": "sglang"}, None),
        ({"max_num_tokens": 9, "chunked_prefill": False, "scheduler": "static"}, None),
        ({"pairs": 50, "max_context": 50}, None),
        ({"pairs": 51, "max_context": 50}, "one request of 51 tokens exceeds the context of m"),
    ],
)
def test_the_longest_request_has_to_fit(changed: dict[str, Any], error: str | None) -> None:
    knobs = {"chunked_prefill": True, "scheduler": "vllm", "max_num_tokens": 512} | changed
    pairs = SimpleNamespace(longest=changed["pairs"]) if "pairs" in changed else None
    small = Small(
        deployment=SimpleNamespace(
            model=SimpleNamespace(max_context=changed.get("max_context", 500), name="m")
        ),
        memory=SimpleNamespace(
            blocks=changed.get("blocks", 11),
            room=160,
            request_blocks=lambda tokens: -(-tokens // 10),
        ),
        knobs=SimpleNamespace(**knobs),
        traffic=traffic(pairs=pairs),
    )
    if error is None:
        small._check_longest()
    else:
        with pytest.raises(DoesNotFit, match=error):
            small._check_longest()


def test_a_run_of_shared_prompts_has_requests_that_warm_the_caches_of_each_instance() -> None:
    """Three instances of 10 requests per second each, whose caches fill with 20 requests."""
    load = SimpleNamespace(
        warm=lambda rate: round(2 * rate),
        trace=lambda rate, requests, seed, *, whole: (rate, requests, seed, whole),
        counted=lambda *args: args,
    )
    small = Small()
    small.together = lambda trace, instances, router: (trace, instances, router)
    for count, whole in ((3, True), (1, False)):
        trace = (10.0 * count, 400 + 20 * count, 5, whole)
        assert small._open_sharing(load, 10.0 * count, 400, 5, count) == (
            (trace, count, "least-outstanding"),
            10.0 * count,
            20 * count,
            400,
        )


# what is simulated of an instance, by what each part of it is called with


@dataclass(frozen=True, kw_only=True)
class Requested:
    """Requests whose prompts may share something."""

    contents: Any = None
    pause_ps: Any = None
    due_ps: Any = None
    isl: Any = None
    concurrency: int = 0

    def __len__(self) -> int:
        return 25


SPEC = make_dataclass("Spec", ["step", "knobs", "tiers"], eq=True)


def test_the_run_of_a_single_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight requests that are all equal, a hundred that are drawn; where prompts share something
    after twenty, and three for each prefix."""
    monkeypatch.setattr(instances, "after", lambda record, first: (record, first))
    closed: Any = lambda clients, requests: (clients, requests)  # noqa: E731
    assert Small(closed=closed).alone() == (1, 8)
    assert Small(closed=closed, traffic=traffic(pairs=object())).alone() == (1, 100)

    def shares(**changed: Any) -> Small:
        parts = {"recorded": None, "recording": None, "sessions": None}
        sharing = SimpleNamespace(**parts | changed)
        return Small(closed=closed, traffic=traffic(sharing=sharing))

    assert shares().alone() == ((1, 120), 20)
    assert shares(sessions=SimpleNamespace(prefixes=10)).alone() == ((1, 150), 50)
    assert shares(sessions=SimpleNamespace(prefixes=9_999)).alone() == ((1, 4_100), 4_000)
    recorded = shares(recorded=object())
    recorded.__dict__["_alone_sessions"] = "sessions"
    assert recorded.alone() == "sessions"
    replaying = shares(recording=SimpleNamespace(mean_rps=3.0))
    monkeypatch.setattr(
        instances, "replayed", lambda *args: Requested(contents=args[1:], due_ps=np.array([5, 9]))
    )
    replaying.serve = lambda trace: trace
    trace, first = replaying.alone()
    assert (trace.due_ps.tolist(), trace.concurrency, trace.contents) == ([-1, -1], 1, (3.0, 0))
    assert first == 2, "a tenth of 25"
    with pytest.raises(ValueError, match="without recorded sessions"):
        Small()._alone_sessions  # noqa: B018


def test_a_single_client_is_simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(
        instances, "summarize", lambda record, *, by_request: calls.append(by_request) or record
    )
    small = Small(alone=lambda: "record")
    assert [small.single_client() for _ in range(2)] == ["record"] * 2
    assert calls == [True]


def test_how_long_a_lone_answer_takes_by_the_recorded_row() -> None:
    small = Small()
    small.__dict__["_alone_sessions"] = Record(
        row=np.array([2, 0, 1]), due_ns=np.array([5, 20, 40]), last_token_ns=np.array([9, 27, 42])
    )
    assert small.alone_ns.tolist() == [7, 2, 4]


class Record(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.row)


def test_a_rate_of_sessions_is_held_by_a_whole_number_of_them() -> None:
    sharing = SimpleNamespace(recorded=SimpleNamespace(pace=0.5), follows=True)
    small = Small(traffic=traffic(sharing=sharing))
    assert [small.held_rate(rate) for rate in (0.1, 3.2, 3.4)] == [0.5, 3.0, 3.5]
    assert Small().held_rate(3.2) == 3.2
    assert small.recorded_sessions is sharing.recorded
    assert Small().recorded_sessions is None
    assert small.requests_of(3.2, 1) == 3_000, "those of sessions"


def test_an_open_loop_by_what_comes_to_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sessions those of one instance; else the requests of all instances together."""
    monkeypatch.setattr(instances, "session_run", lambda *args, **how: (*args, how))
    monkeypatch.setattr(instances, "balanced_trace", lambda *args: args)
    sessions = SimpleNamespace(pace=0.5)
    of_sessions = Small(traffic=traffic(sharing=SimpleNamespace(recorded=sessions)))
    of_sessions.__dict__ |= {"tiered": "tiered", "alone_ns": "alone"}
    assert of_sessions.open(3.4, 400, 7) == (
        "tiered",
        sessions,
        7,
        400,
        {"seed": 7, "alone_ns": "alone"},
    )
    shares = Small(shared="shared", _open_sharing=lambda *args: args)
    assert shares.open(5.0, 400, 7, 3) == ("shared", 15.0, 400, 7, 3)
    assert shares.open(5.0, 400, 7) == ("shared", 5.0, 400, 7, 1)
    plain = Small(workload=lambda *args: args, together=lambda *args: args, traffic=traffic(cv=2.0))
    for count, how in ((3, (3,)), (1, ())):
        arrivals = OpenLoop(rate=5.0 * count, process="poisson", cv=2.0)
        assert plain.open(5.0, 400, 7, *how) == (
            ((arrivals, 400), arrivals, 7),
            count,
            "least-outstanding",
        )


def test_the_memory_below_the_cache_is_of_the_question_and_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "tiers_of", lambda *args, **how: (*args, how))
    monkeypatch.setattr(instances, "resolved_tiers", lambda *args: args)
    spec = SPEC(step="step", knobs=None, tiers=None)
    system = {"memories": "memories", "gpus_per_system": 4}
    small = Small(spec=spec, traffic=traffic(sharing=SimpleNamespace(tiers="asked"), **system))
    small.memory, small.knobs.tokens_per_block = "memory", 16
    of_system = {**system, "block_tokens": 16}
    assert small.tiered.tiers == ("asked", small.deployment, "memory", of_system)
    assert small.below == ("asked", small.deployment, "memories", 4)
    none = Small(spec=spec, traffic=traffic(**system))
    assert none.tiered is spec
    assert none.below == (OFF, none.deployment, "memories", 4)


def test_clients_of_a_closed_loop_and_the_engine_that_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "client_turnaround_s", lambda deployment: 0.25)
    monkeypatch.setattr(instances, "run_instance", lambda *args, **how: ((args, how), "steps"))

    def workload(loop: Any, requests: int) -> Any:
        return SimpleNamespace(trace=lambda seed, stretch: (loop, requests, seed, stretch))

    small = Small(workload=workload, serve=lambda trace: trace, traffic=traffic(seed=5))
    loop = ClosedLoop(concurrency=3, turnaround_s=0.25)
    assert small.closed(3, 30) == (loop, 30, 5, True)
    serving = Small(spec=SPEC(step="step", knobs=None, tiers=None), _ranks=lambda trace: [trace])
    serving.__dict__["tiered"] = tiered = SPEC(step="step", knobs=None, tiers="tiers")
    plain, shares = Requested(), Requested(contents="pieces")
    assert serving.serve(plain) == ((serving.spec, [plain]), {})
    assert serving.serve(shares) == ((tiered, [shares]), {})
    assert serving.serve(shares, "slow") == ((replace(tiered, step="slow"), [shares]), {})


@pytest.mark.parametrize(
    ("ranks", "contents", "parts"),
    [
        (2, None, ("ranks", 2)),
        (1, "pieces", ("ranks", 1)),
        (2, "pieces", ("parts", ("owners", 2, "session", 5), 2)),
    ],
)
def test_turns_of_a_conversation_stay_at_their_rank(
    ranks: int, contents: Any, parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "rank_traces", lambda trace, count: ("ranks", count))
    monkeypatch.setattr(instances, "owners", lambda trace, *args: ("owners", *args))
    monkeypatch.setattr(instances, "parts_of", lambda trace, *args: ("parts", *args))
    deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=ranks))
    small = Small(deployment=deployment, traffic=traffic(seed=5))
    assert small._ranks(Requested(contents=contents)) == parts


def in_a_fleet(ranks: int = 1, balanced: bool = True, **changed: Any) -> Small:
    """An instance whose runs say what they are of; ten of 100 tokens are common to all prompts."""
    sharing = SimpleNamespace(
        balanced=lambda router: balanced,
        common_tokens=lambda trace: 10,
        recording=None,
        follows=False,
        recorded=None,
    )
    deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=ranks))
    small = Small(deployment=deployment, traffic=traffic(**{"sharing": sharing, **changed}))
    small.serve = lambda trace: ("alone", trace)
    small._routed = lambda *args: SimpleNamespace(
        requests=("routed", *args), chosen=np.array([0, 1, 2, 3])
    )
    return small


def test_requests_of_several_instances_behind_a_router(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that share nothing are routed in the simulation; others are given out before, and
    each instance simulated with its cache."""
    parts: list[Any] = []

    def parts_of(trace: Any, owner: Any, count: int) -> list[str]:
        parts.append((owner if isinstance(owner, tuple) else owner.tolist(), count))
        return ["a", "b"]

    monkeypatch.setattr(instances, "parts_of", parts_of)
    monkeypatch.setattr(instances, "pooled", lambda records: records)
    monkeypatch.setattr(instances, "owners", lambda trace, *args: args)
    plain, shares = Requested(isl=100), Requested(contents="pieces", isl=100)
    assert in_a_fleet().together(plain, 1, "random") == ("alone", plain)
    for ranks, count in ((2, 1), (1, 2)):
        routed = ("routed", plain, count, "random")
        assert in_a_fleet(ranks).together(plain, count, "random") == routed
    alone = in_a_fleet(sharing=None)
    assert alone.together(shares, 2, "random") == ("routed", shares, 2, "random")
    assert in_a_fleet(2).together(shares, 1, "random") == ("alone", shares)
    both = [("alone", "a"), ("alone", "b")]
    calls: list[Any] = []
    for caches, computed in ((True, 90), (False, 100)):
        loaded = in_a_fleet(2)
        loaded.knobs.prefix_caching = caches
        loaded._routed = lambda *args: (
            calls.append(args) or SimpleNamespace(chosen=np.array([0, 1, 2, 3]))
        )
        assert loaded.together(shares, 2, "least-outstanding") == both
        assert calls.pop() == (Requested(isl=computed), 2, "least-outstanding")
        assert parts.pop() == ([0, 0, 1, 1], 2), "two ranks of each"
    for blind in (in_a_fleet(balanced=False, seed=5), in_a_fleet(seed=5)):
        blind.saturation_estimate = lambda: 4.0
        turns = replace(shares, pause_ps="pauses") if blind.traffic.sharing.balanced("") else shares
        assert blind.together(turns, 2, "least-outstanding") == both
        answers = Answers(answer_ps=750 * 10**9, apart_ps=250 * 10**9)
        assert parts.pop() == ((2, "random", 5, answers), 2)


def test_each_rank_of_each_instance_is_an_engine_of_the_fleet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "run_fleet", lambda *args, **how: (*args, how))
    small = Small(traffic=traffic(seed=5))
    small.__dict__["engine"] = "engine"
    assert small._routed("trace", 3, "random") == (
        "trace",
        ["engine"] * 6,
        "random",
        {"seed": 5, "ranks": 2, "knobs": small.knobs},
    )
    monkeypatch.setattr(
        instances, "engine_of", lambda spec, *, seed: SimpleNamespace(machine=(spec, seed))
    )
    knobs = make_dataclass("Knobs", ["ranks", "queue_order"])
    for ranks, order in ((True, "fcfs"), (False, "priority")):
        asked = knobs(ranks, "priority")
        alone = Small(knobs=asked, spec=SPEC("step", asked, None), traffic=traffic(seed=5))
        assert alone.engine == (SPEC("step", knobs(ranks, order), None), 5)


def test_the_steps_that_are_recorded_of_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "run_instance", lambda *args, **how: ("record", (args, how)))
    monkeypatch.setattr(instances, "session_traces", lambda *args: (args, "rows", 99))
    sessions = SimpleNamespace(pace=0.5)
    of_sessions = Small(traffic=traffic(seed=5, sharing=SimpleNamespace(recorded=sessions)))
    of_sessions.__dict__["tiered"] = "tiered"
    traces = ("tiered", sessions, 7, 400, 5)
    assert of_sessions.recorded(3.4, 400, 60) == (
        ("tiered", traces),
        {"most_steps": 60, "window_ps": 99},
    )

    def workload(arrivals: Any, requests: int) -> Any:
        return SimpleNamespace(trace=lambda seed, stretch: (arrivals, requests, seed, stretch))

    plain = Small(workload=workload, _ranks=lambda trace: trace, traffic=traffic(seed=5, cv=2.0))
    arrivals = OpenLoop(rate=3.4, process="poisson", cv=2.0)
    how = {"most_steps": 60}
    assert plain.recorded(3.4, 400, 60) == ((plain.spec, (arrivals, 400, 5, True)), how)
    plain.shared = SimpleNamespace(trace=lambda *args: args)
    assert plain.recorded(3.4, 400, 60) == ((plain.spec, (3.4, 400, 5)), how)


def test_the_lengths_of_a_workload_are_those_of_the_question_or_of_new_turns() -> None:
    lengths = {"isl": Lengths(mean=100), "osl": Lengths(mean=10)}
    loop, new = OpenLoop(rate=2.0), Lengths(mean=30)
    knobs = SimpleNamespace(tokens_per_block=16)
    deployment = SimpleNamespace(knobs=knobs)
    plain = Small(traffic=traffic(pairs="pairs"), deployment=deployment).workload(loop, 40)
    assert (plain.isl, plain.osl) == (lengths["isl"], lengths["osl"])
    assert (plain.arrivals, plain.requests, plain.pairs, plain.sessions) == (
        loop,
        40,
        "pairs",
        None,
    )
    for fresh, sessions, isl in ((new, "sessions", new), (None, "sessions", lengths["isl"])):
        sharing = SimpleNamespace(new=fresh, sessions=sessions)
        sharing.shorter = lambda *blocks, sharing=sharing: sharing
        small = Small(
            traffic=traffic(sharing=sharing),
            deployment=deployment,
            knobs=knobs,
        )
        work = small.workload(loop, 40)
        assert (work.isl, work.osl, work.arrivals, work.requests) == (isl, lengths["osl"], loop, 40)
        assert work.sessions == (sessions if fresh else None)


def test_a_front_end_has_the_requests_of_its_rank() -> None:
    small = Small()
    small.step.front_end_busy = lambda *args: args
    assert small.front_end_busy(6.0) == (3.0, 100, 10, 0.0)
    assert small.front_end_busy(6.0, 40.0) == (3.0, 100, 10, 40.0)


def test_blocks_of_the_size_that_is_simulated() -> None:
    """Where a cache keeps prefixes, of a size by what has to be computed of a prompt."""
    deployment = make_dataclass("Deployment", ["knobs"])
    knobs = make_dataclass("Knobs", ["prefix_caching", "tokens_per_block"])
    sharing = SimpleNamespace(
        best=lambda osl: SimpleNamespace(computed=30.0, common=0.0),
        block_tokens=lambda block, computed: (block, computed),
    )
    small = Small(deployment=deployment(knobs(True, 16)), traffic=traffic(sharing=sharing))
    assert small._simulated() == deployment(knobs(True, (16, 30.0)))
    small.deployment = deployment(knobs(False, 16))
    assert small._simulated() is small.deployment
    plain = Small(deployment=deployment(knobs(True, 16)))
    assert plain._simulated() is plain.deployment


@pytest.mark.parametrize(
    ("changed", "common", "batch"),
    [
        ({}, 0, 7),  # 110 tokens take 11 of 80 blocks
        ({"max_batch_size": 5}, 0, 5),
        ({"blocks": 10}, 0, 1),
        ({}, 60, 16),  # 60 tokens of a prompt are in blocks that all requests hold together
        ({}, 100, 32),  # a token and ten of the answer: 2 blocks
        ({"scheduler": "static"}, 60, 3),
    ],
)
def test_the_requests_that_an_instance_holds_at_once(
    changed: dict[str, Any], common: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = SimpleNamespace(
        prefix_caching=True,
        max_batch_size=changed.get("max_batch_size", 32),
        scheduler=changed.get("scheduler", "vllm"),
    )
    memory = SimpleNamespace(
        blocks=changed.get("blocks", 80),
        request_blocks=lambda tokens: -(-tokens // 10),
        concurrent_requests=lambda isl, osl: 3 if (isl, osl) == (100, 10) else 0,
    )
    prices: list[Any] = []

    def estimated(deployment: Any, **how: Any) -> Any:
        prices.append((deployment, how))
        return SimpleNamespace(memory=memory, step="step", knobs="knobs")

    monkeypatch.setattr(instances, "estimated_instance", estimated)
    monkeypatch.setattr(instances, "slower", lambda step, factor: (step, factor))
    monkeypatch.setattr(
        instances, "engine_spec", lambda *args: SimpleNamespace(args=args, knobs=knobs)
    )
    for name, value in {
        "_simulated": lambda self: "simulated",
        "_computed": lambda self, caches: (50.0, common),
        "_check_longest": lambda self: None,
        "_shared": lambda self: "shared",
        "unloaded_ttft_s": lambda self: 0.5,
        "unloaded_tpot_s": lambda self: 0.02,
    }.items():
        monkeypatch.setattr(Instance, name, value)
    deployment = SimpleNamespace(parallelism=SimpleNamespace(dp=2))
    asked = replace(traffic_of(99.5, 9.2), step_factor=1.5, gpus_per_system=4)
    made = Instance(deployment, asked)
    assert prices == [("simulated", {"gpus_per_system": 4, "prompt_tokens": 100})]
    assert made.spec.args == (deployment, ("step", 1.5), "knobs", memory)
    assert (made.batch, made.in_flight, made.computed) == (batch, 2 * batch, 50.0)
    assert made.alone_e2e_s == pytest.approx(0.5 + 9.2 * 0.02)
    assert (made.deployment, made.traffic, made.memory, made.shared) == (
        deployment,
        asked,
        memory,
        "shared",
    )


def test_traffic_is_of_whole_systems_as_predicted_unless_it_says_otherwise() -> None:
    usual = traffic_of()
    assert (usual.pairs, usual.step_factor, usual.gpus_per_system) == (None, 1.0, 8)
    assert (usual.memories, usual.router, usual.sharing) == ((), "least-outstanding", None)
