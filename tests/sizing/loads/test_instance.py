"""One deployment under load: closed forms, and what no run exceeds."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.in_turn import in_turn
from tests.questions import contender, contenders, question
from tests.sizing.loads.load_scan_cases import Curve, limit, rate_of
from tests.sizing.loads.small_instance import Small, round_times, traffic
from tonnage.errors import DoesNotFit
from tonnage.sizing.loads.instance import QUICK, SURE, Instance, burst_factor, middle
from tonnage.sizing.loads.runs import Runs, saturation_rate
from tonnage.sizing.loads.trial import MARGIN, _token_seconds, rate_bound, token_limit
from tonnage.sizing.loads.two_pools import (
    TwoPools,
    decodes_at_most,
    prefills_at_most,
    room_for,
    step_of,
)
from tonnage.spec.deployment import Limit
from tonnage.spec.lengths import Lengths


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
    monkeypatch.setattr(
        "tonnage.sizing.loads.two_pools.batch_seconds",
        lambda c, tokens, sequences: cost[tokens] * sequences,
    )
    link = SimpleNamespace(bytes_of=lambda tokens: tokens, bytes_s=1e9)
    assert prefills_at_most(small, link) == pytest.approx(2 / (100 * 0.2 + 0.005))
    again = Small()
    cost[32] = 1.6
    assert again.least_token_s == 0.05
    assert prefills_at_most(again, link) == pytest.approx(2 / (100 * 0.05 + 0.005))
    tiny = Small(knobs=SimpleNamespace(max_num_tokens=1))
    cost[1] = 7.0
    assert tiny.least_token_s == 7.0
    assert prefills_at_most(tiny, link) == pytest.approx(2 / (100 * 7.0 + 0.005))


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
    assert room_for(small) == 4, "four slots"
    small.knobs.max_batch_size = 99
    assert room_for(small) == 4, "105 tokens take 21 blocks of a hundred"
    small.memory.blocks = 105
    assert room_for(small) == 5
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
